// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the command `portolan` and checks its effects.

#![allow(
    dead_code,
    unused_macros,
    reason = "each test program uses its own part of this"
)]

pub(crate) mod clean;
pub(crate) mod disguise;
pub(crate) mod hosts;
pub(crate) mod labs;
pub(crate) mod mpi;
pub(crate) mod payload;
pub(crate) mod pmi;
#[macro_use]
pub(crate) mod ranks;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for every wait before a test fails; generous because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the command with arguments, without its user's stored model.
pub(crate) fn portolan(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    command.args(args).stdin(Stdio::null());
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Builds a package of the workspace in the profile of this test; returns the path of its `file`.
pub(crate) fn built(package: &str, file: &str) -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_portolan"));
    let mut parts = beside.components();
    let is_release = parts.any(|part| part.as_os_str() == "release");
    let profile = if is_release { "release" } else { "test" };
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--package",
        package,
        "--profile",
        profile,
    ]);
    assert!(build.status().unwrap().success(), "cannot build {package}");
    beside.with_file_name(file)
}

/// Copies a program of this build to `to`, where it can be run at once.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    // Let another process write the file, as in `write_program`.
    let status = Command::new("cp").arg("--").args([from, to]).status();
    assert!(status.unwrap().success(), "cannot copy {}", from.display());
}

/// Output and exit status of a command.
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            status: output
                .status
                .code()
                .expect("portolan was killed by a signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the command to its end.
pub(crate) fn run(args: &[&str]) -> Ended {
    portolan(args).output().unwrap().into()
}

/// Makes `command` find `script` as `ssh`, which is written to `directory`.
pub(crate) fn give_ssh(command: &mut Command, directory: &Path, script: &str) {
    write_command(&directory.join("ssh"), script);
    let search = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    command.env("PATH", search);
}

/// Writes a command for `sh`.
pub(crate) fn write_command(path: &Path, script: &str) {
    write_program(path, &format!("#!/bin/sh\n{script}\n"));
}

/// Writes an executable file that can be run at once.
pub(crate) fn write_program(path: &Path, text: &str) {
    // Let another process write the file. A child forked by another thread of this one would
    // inherit the descriptor, and a file that is open for writing cannot be run (ETXTBSY,
    // execve(2)).
    let written = Command::new("sh")
        .args(["-c", r#"printf %s "$1" > "$0" && chmod 755 "$0""#])
        .args([path.as_os_str(), text.as_ref()])
        .status();
    assert!(written.unwrap().success());
}

/// An ssh that runs the command locally, with the host's name in FAKE_HOST. It accepts exactly the
/// options that `run` passes.
pub(crate) const LOCAL_SSH: &str = r#"
test "$1 $2 $3 $4 $5" = "-T -o BatchMode=yes -o ConnectTimeout=10" || exit 99
export FAKE_HOST="$6"; shift 6
exec sh -c "$*"
"#;

/// Runs the command, expects the exit status of a user mistake and one line on standard error, and
/// returns that line.
pub(crate) fn refused(args: &[&str]) -> String {
    let ended = run(args);
    assert_eq!(ended.status, 2, "{args:?} said: {}", ended.err);
    assert_eq!(
        ended.err.lines().count(),
        1,
        "more than one sentence: {}",
        ended.err
    );
    ended.err
}

/// Returns true if this process may create network namespaces; prints SKIPPED if not.
pub(crate) fn can_make_labs() -> bool {
    let may = Command::new("unshare")
        .args(["--net", "--mount", "true"])
        .status();
    let can =
        may.is_ok_and(|status| status.success()) && Command::new("ip").arg("-V").output().is_ok();
    if !can {
        eprintln!("SKIPPED: this test needs root, network namespaces and iproute2");
    }
    can
}

/// Locks out other measurements of the same test program. Ends spin, so several measurements on two
/// cores would wait for each other's time slices.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the processes with `needle` in their command line, except zombies.
pub(crate) fn processes_with(needle: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(needle)
    })
    .collect()
}

/// Returns a number of seconds for `sleep` that no other test uses, which identifies its processes.
/// It is about a minute, so that the processes of a failed test end.
pub(crate) fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The fixed length keeps the number of sleep 1 out of that of sleep 10.
    format!(
        "9{}.{:04}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed) + 1
    )
}

/// Kills a child that a failed assertion would leave behind.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal by number.
pub(crate) fn kill(pid: i32, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Returns the path where a shell finds an installed program.
pub(crate) fn find_in_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).map(|place| place.join(program));
    places.find(|file| file.is_file()).unwrap()
}
