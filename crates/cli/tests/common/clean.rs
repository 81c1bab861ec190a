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

/// Names in `/dev/shm` that are Portolan's; other programs of the machine come and go there.
fn own_names_in_shm() -> Vec<String> {
    let mut names = names_in("/dev/shm");
    names.retain(|name| name.contains("portolan"));
    names
}

/// Runs a job and checks that nothing of it is left.
pub(crate) fn run_clean(count: u32, role: &str, args: &[&str]) -> Ended {
    let (word, tmp) = (unique_word(), tempfile::tempdir().unwrap());
    let shm_before = own_names_in_shm();
    let tmpdir = format!("TMPDIR={}", tmp.path().display());
    let args = [args, &["--env", &tmpdir, "--grace-ms", "5000"]].concat();
    let ended = run_marked(count, role, &args, &word);
    wait_until("its processes end", || processes_with(&word).is_empty());
    let mut shm_after = own_names_in_shm();
    shm_after.retain(|name| !shm_before.contains(name));
    assert!(shm_after.is_empty(), "left in /dev/shm: {shm_after:?}");
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
