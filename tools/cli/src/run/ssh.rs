// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a command on another machine through ssh.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Seconds that ssh may take to connect; short because a user is waiting.
pub(super) const CONNECT_TIMEOUT_S: u32 = 10;

/// Time limit until ssh or srun runs a shell on the host. A login may wait for name services and
/// home directories, on many hosts at once.
pub(crate) const LOGIN_DELAY: Duration = Duration::from_secs(30);

/// Returns ssh with its options and the host; the caller adds one argument, the command line.
pub(crate) fn command(host: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-T", "-o", "BatchMode=yes", "-o"]);
    command.arg(format!("ConnectTimeout={CONNECT_TIMEOUT_S}"));
    command.arg(host);
    command
}

/// Returns a command line of `sh` that runs `script`, which must not contain single quotes, with
/// `arg` as its `$0`. The host's login shell, which may not be `sh`, parses the line.
pub(crate) fn script(script: &str, arg: &Path) -> OsString {
    let mut line = format!("sh -c '{script}' ").into_bytes();
    line.extend(quoted(arg.as_os_str().as_bytes()));
    OsString::from_vec(line)
}

/// Quotes a word for POSIX shells, csh and fish: single quotes, and `'\''` for one inside.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(br"'\''"),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}
