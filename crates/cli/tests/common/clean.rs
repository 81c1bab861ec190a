// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a job may leave behind: nothing.

use super::ranks::{run_marked, unique_word};
use super::{Ended, processes_with, wait_until};

/// Names of this process's abstract unix sockets.
pub(crate) fn unix_sockets() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let own: Vec<String> = links
        .filter_map(|link| link.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/unix").unwrap();
    let lines = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (inode, name) = (words.get(6)?, words.get(7)?);
        own.contains(&format!("socket:[{inode}]"))
            .then(|| (*name).to_owned())
    });
    lines.collect()
}

fn names_in(dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Whether a file of `/dev/shm` is at work: then it belongs to another program of the machine, for
/// the job's processes have ended. A program removes its files, or maps them a moment after.
fn is_of_others(name: &str) -> bool {
    let path = format!("/dev/shm/{name}");
    names_in("/proc").iter().any(|pid| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| maps.contains(&path))
    })
}

/// Runs a job and checks that nothing of it is left.
pub(crate) fn run_clean(count: u32, role: &str, args: &[&str]) -> Ended {
    let (word, tmp) = (unique_word(), tempfile::tempdir().unwrap());
    let shm_before = names_in("/dev/shm");
    let tmpdir = format!("TMPDIR={}", tmp.path().display());
    let args = [args, &["--env", &tmpdir, "--grace-ms", "5000"]].concat();
    let ended = run_marked(count, role, &args, &word);
    wait_until("its processes end", || processes_with(&word).is_empty());
    wait_until("nothing new is left in /dev/shm", || {
        let mut names = names_in("/dev/shm").into_iter();
        names.all(|name| shm_before.contains(&name) || is_of_others(&name))
    });
    let in_tmp = names_in(tmp.path().to_str().unwrap());
    assert!(
        in_tmp.is_empty(),
        "left in the directory for temporary files: {in_tmp:?}"
    );
    assert_no_sockets(&ended.out);
    assert_no_namespaces(&ended);
    ended
}

/// None of the sockets that the ranks said they hold is there any more.
fn assert_no_sockets(out: &str) {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let lines = out.lines().filter_map(|line| line.split_once("holds: "));
    for name in lines.flat_map(|(_, names)| names.split_whitespace()) {
        let left = table.lines().any(|line| line.ends_with(name));
        assert!(!left, "the socket {name} is left");
    }
}

/// None of the namespaces that the job named as hosts is there any more.
fn assert_no_namespaces(ended: &Ended) {
    for name in names_in("/run/netns") {
        let named = ended.out.contains(&name) || ended.err.contains(&name);
        assert!(!named, "the network namespace {name} is left");
    }
}
