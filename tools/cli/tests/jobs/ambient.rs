// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that `portolan run` and `portolan mpirun` with CAP_NET_RAW as a file capability pass only
//! this capability on to the programs of the job.

use crate::common::{Ended, copy_program, write_command};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user without privileges.
const UID: &str = "65533";

/// Capability set with CAP_NET_RAW only, in the format of /proc.
const NET_RAW_ALONE: &str = "0000000000002000";
const NOTHING: &str = "0000000000000000";

/// Returns a copy of the command that all users may run, with CAP_NET_RAW if `capable`. Prints
/// SKIPPED and returns `None` where that is not possible.
fn command_in(directory: &Path, capable: bool) -> Option<PathBuf> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: file capabilities are root's to give");
        return None;
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.join("portolan");
    copy_program(env!("CARGO_BIN_EXE_portolan").as_ref(), &copy);
    let given = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(&copy)
        .status();
    if capable && !given.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: `setcap` (libcap2-bin) does not work here");
        return None;
    }
    if !capable {
        let plain = directory.join("plain");
        copy_program(env!("CARGO_BIN_EXE_portolan").as_ref(), &plain);
        return Some(plain);
    }
    Some(copy)
}

/// Returns the output of `command` for an ordinary user.
fn as_user(command: &Path, args: &[&str]) -> String {
    let mut user = Command::new("setpriv");
    user.args(["--reuid", UID, "--regid", UID, "--clear-groups"]);
    user.arg(command).args(args).stdin(Stdio::null());
    user.current_dir("/").env("XDG_CONFIG_HOME", "/nonexistent");
    Ended::from(user.output().unwrap()).succeeded("the command")
}

/// Returns the effective and ambient sets of the job's programs.
fn sets(status: &str) -> [&str; 2] {
    ["CapEff:", "CapAmb:"].map(|name| {
        let line = status.lines().find_map(|line| line.split_once(name));
        line.unwrap_or_else(|| panic!("no {name} in {status}"))
            .1
            .trim()
    })
}

#[test]
fn ranks_have_the_launchers_net_raw() {
    let directory = tempfile::tempdir().unwrap();
    for (capable, wanted) in [(true, NET_RAW_ALONE), (false, NOTHING)] {
        let Some(command) = command_in(directory.path(), capable) else {
            return;
        };
        let status = as_user(
            &command,
            &["run", "-n", "1", "--", "cat", "/proc/self/status"],
        );
        assert_eq!(sets(&status), [wanted, wanted], "capable: {capable}");
    }
}

#[test]
fn the_launcher_of_an_mpi_has_net_raw() {
    let directory = tempfile::tempdir().unwrap();
    let launcher = directory.path().join("mpirun");
    let script = "[ \"$1\" != --version ] || exec echo 'mpirun (Open MPI) 4.1.4'\n\
                  exec cat /proc/self/status";
    write_command(&launcher, script);
    let args = [
        "mpirun",
        "--plain",
        "--mpi",
        launcher.to_str().unwrap(),
        "-n",
        "1",
        "true",
    ];
    for (capable, wanted) in [(true, NET_RAW_ALONE), (false, NOTHING)] {
        let Some(command) = command_in(directory.path(), capable) else {
            return;
        };
        let status = as_user(&command, &args);
        assert_eq!(sets(&status), [wanted, wanted], "capable: {capable}");
    }
}
