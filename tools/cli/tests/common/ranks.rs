// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs with the test program itself as ranks. It is started again as each rank, and the test
//! `as_rank` of the module that started the job then plays the role given in the environment.
//!
//! A module gets the functions that start its ranks by `ranks_of_this_module!(run_ranks, ...)`.

use super::{Ended, portolan};
use portolan::{Node, PortConfig};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Environment variable with the role of each rank.
const ROLE: &str = "PORTOLAN_TEST_ROLE";

/// Time limit of a job in seconds; the launcher ends a hanging job. The variable `JOB_SECONDS`
/// raises it for long tests.
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
    // The end keeps the word of job 1 out of the command lines of job 10.
    format!("job-{}-{next}-end", std::process::id())
}

/// Defines functions that start the test `as_rank` of the module in which the macro is used. Each
/// has the name and the remaining parameters of a function that takes the path of a module.
macro_rules! ranks_of_this_module {
    ($($function:ident),+) => {
        $(ranks_of_this_module!(@ $function);)+
    };
    (@ as_rank_args) => {
        fn as_rank_args() -> [String; 4] {
            $crate::common::ranks::as_rank_args(module_path!())
        }
    };
    (@ run_ranks) => {
        fn run_ranks(count: u32, role: &str, args: &[&str]) -> $crate::common::Ended {
            $crate::common::ranks::run_ranks(module_path!(), count, role, args)
        }
    };
    (@ ranks_command) => {
        fn ranks_command(
            count: u32,
            role: &str,
            args: &[&str],
            word: &str,
        ) -> std::process::Command {
            $crate::common::ranks::ranks_command(module_path!(), count, role, args, word)
        }
    };
    (@ run_clean) => {
        fn run_clean(count: u32, role: &str, args: &[&str]) -> $crate::common::Ended {
            $crate::common::clean::run_clean(module_path!(), count, role, args)
        }
    };
    (@ alone) => {
        fn alone(role: &str) -> std::process::Command {
            $crate::common::ranks::alone(module_path!(), role)
        }
    };
}

/// Returns the arguments of this program that run only the test `as_rank` of `module`.
pub(crate) fn as_rank_args(module: &str) -> [String; 4] {
    // A module's path begins with the name of the test program, and a test's name does not.
    let name = match module.split_once("::") {
        Some((_, inside)) => format!("{inside}::as_rank"),
        None => "as_rank".to_owned(),
    };
    let options = ["--exact", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let [exact, nocapture, threads] = options;
    [name, exact, nocapture, threads]
}

/// Runs `as_rank` of `module` as `count` ranks in `role`; `args` are arguments of `portolan run`.
pub(crate) fn run_ranks(module: &str, count: u32, role: &str, args: &[&str]) -> Ended {
    let mut command = ranks_command(module, count, role, args, &unique_word());
    command.output().unwrap().into()
}

/// Returns the command that [`run_ranks`] runs, with the caller's word in every command line.
pub(crate) fn ranks_command(
    module: &str,
    count: u32,
    role: &str,
    args: &[&str],
    word: &str,
) -> Command {
    let own = std::env::current_exe().unwrap();
    let count = count.to_string();
    let env = format!("{ROLE}={role}");
    let seconds = std::env::var("JOB_SECONDS").unwrap_or(JOB_SECONDS.to_owned());
    let run = [
        "run",
        "-n",
        &count,
        "--env",
        &env,
        "--tag-output",
        "--timeout",
        &seconds,
    ];
    let mut command = portolan(&[&run, args, &["--"]].concat());
    // The word also acts as a test filter, but no test has that name.
    command.arg(own).args(as_rank_args(module)).arg(word);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns a command for `as_rank` of `module` in `role`, without a launcher.
pub(crate) fn alone(module: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(as_rank_args(module));
    command
        .env(ROLE, role)
        .env_remove(portolan::binding::launch::FD_VARIABLE);
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
