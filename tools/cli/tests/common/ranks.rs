// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs whose ranks are the test program itself: it is started once more as each rank, and its test
//! `as_rank` then plays the role that the environment names.

use super::{Ended, portolan};
use portolan::{Node, PortConfig};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Name of the role, in the environment of each rank.
const ROLE: &str = "PORTOLAN_TEST_ROLE";

/// What a job may take at most, in seconds: one that hangs is ended by its launcher.
const JOB_SECONDS: &str = "100";

/// The role of this process; `None` in the test program proper.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The node of a rank, with `ports` open; `None` in the test program proper.
pub(crate) fn joined(ports: &[u16]) -> Option<Node> {
    role()?;
    let mut node = Node::join().unwrap();
    for port in ports {
        node.open(*port, PortConfig::default()).unwrap();
    }
    Some(node)
}

/// A word that only the command lines of one job hold, by which its processes are known.
pub(crate) fn unique_word() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("job-{}-{next}", std::process::id())
}

/// Runs `as_rank` of this program as `count` ranks in `role`; `args` are those of `portolan run`.
pub(crate) fn run_ranks(count: u32, role: &str, args: &[&str]) -> Ended {
    run_marked(count, role, args, &unique_word())
}

/// The same, with a word of the caller's in every command line.
pub(crate) fn run_marked(count: u32, role: &str, args: &[&str], word: &str) -> Ended {
    let mut command = ranks_command(count, role, args, word);
    command.output().unwrap().into()
}

/// The command that [`run_marked`] runs.
pub(crate) fn ranks_command(count: u32, role: &str, args: &[&str], word: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let count = count.to_string();
    let env = format!("{ROLE}={role}");
    let run = [
        "run",
        "-n",
        &count,
        "--env",
        &env,
        "--tag-output",
        "--timeout",
        JOB_SECONDS,
    ];
    let own = own.to_str().unwrap();
    // The word filters tests, too; none is called so.
    let program = [
        "--",
        own,
        "as_rank",
        word,
        "--exact",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut command = portolan(&[&run, args, &program].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts `as_rank` of this program in `role`, without a launcher.
pub(crate) fn alone(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_rank", "--exact", "--nocapture", "--test-threads=1"]);
    command
        .env(ROLE, role)
        .env_remove(portolan::launch::FD_VARIABLE);
    command
}

impl Ended {
    /// Expects a job that succeeded; returns what it printed.
    pub(crate) fn succeeded(self, what: &str) -> String {
        let Ended { status, out, err } = self;
        assert_eq!(
            status, 0,
            "{what} failed\nstandard output:\n{out}\nstandard error:\n{err}"
        );
        out
    }
}
