// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs whose ranks are the test program itself. It is started again as each rank, and its test
//! `as_rank` then plays the role given in the environment.

use super::{Ended, portolan};
use portolan::{Node, PortConfig};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Environment variable with the role of each rank.
const ROLE: &str = "PORTOLAN_TEST_ROLE";

/// Time limit of a job in seconds; the launcher ends a hanging job.
const JOB_SECONDS: &str = "100";

/// Returns the role of this process; `None` in the test program itself.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Returns the node of a rank, with `ports` open; `None` in the test program itself.
pub(crate) fn joined(ports: &[u16]) -> Option<Node> {
    role()?;
    let mut node = Node::join().unwrap();
    for port in ports {
        node.open(*port, PortConfig::default()).unwrap();
    }
    Some(node)
}

/// Returns a word that is unique to the command lines of one job and identifies its processes.
pub(crate) fn unique_word() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("job-{}-{next}", std::process::id())
}

/// Runs `as_rank` of this program as `count` ranks in `role`; `args` are arguments of `portolan
/// run`.
pub(crate) fn run_ranks(count: u32, role: &str, args: &[&str]) -> Ended {
    run_marked(count, role, args, &unique_word())
}

/// Does the same with the caller's word in every command line.
pub(crate) fn run_marked(count: u32, role: &str, args: &[&str], word: &str) -> Ended {
    let mut command = ranks_command(count, role, args, word);
    command.output().unwrap().into()
}

/// Returns the command that [`run_marked`] runs.
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
    // The word also acts as a test filter, but no test has that name.
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

/// Returns a command for `as_rank` of this program in `role`, without a launcher.
pub(crate) fn alone(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_rank", "--exact", "--nocapture", "--test-threads=1"]);
    command
        .env(ROLE, role)
        .env_remove(portolan::launch::FD_VARIABLE);
    command
}

impl Ended {
    /// Asserts that a job succeeded, and returns its output.
    pub(crate) fn succeeded(self, what: &str) -> String {
        let Ended { status, out, err } = self;
        assert_eq!(
            status, 0,
            "{what} failed\nstandard output:\n{out}\nstandard error:\n{err}"
        );
        out
    }
}
