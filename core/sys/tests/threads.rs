// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting threads when a limit leaves no memory. Runs in a child process, because limits apply to
//! a process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use portolan_sys::process::spawn_quiet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set in the limited child process.
const LIMITED: &str = "PORTOLAN_TEST_LIMITED";
/// Number of threads; a single one may win the race against the limit by chance.
const THREADS: usize = 50;

/// Returns the bytes of address space that this process has mapped.
fn mapped() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = size
        .and_then(|size| size.trim().strip_suffix(" kB"))
        .unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

fn limit_to(current: Option<u64>) {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

fn start_and_use_up() {
    for _ in 0..THREADS {
        let in_use = mapped();
        let thread = spawn_quiet("begins", || ());
        limit_to(Some(in_use));
        thread.unwrap().join().unwrap();
        limit_to(getrlimit(Resource::As).maximum);
    }
}

#[test]
fn started_thread_needs_no_more_memory() {
    if std::env::var_os(LIMITED).is_some() {
        return start_and_use_up();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let again = again.env(LIMITED, "1").arg("--nocapture");
    let ended = again.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}
