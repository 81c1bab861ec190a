// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that a job leaves nothing behind.

use super::ranks::{ranks_command, unique_word};
use super::{Ended, processes_with, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Returns the names of this process's abstract unix sockets.
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

/// Runs a command with a `/dev/shm` of its own, which no other program uses, and then lists its
/// contents. The machine's mounts are visible but not changed.
const WITH_OWN_SHM: &str = r#"
mount -t tmpfs tmpfs /dev/shm || exit 97
list="$1"; shift
"$@"; status=$?
ls -A /dev/shm > "$list" || exit 98
exit $status
"#;

fn with_own_shm(list: &Path, command: &Command) -> Command {
    let mut own = Command::new("unshare");
    own.args(["--mount", "--propagation", "slave", "sh", "-c"]);
    own.args([WITH_OWN_SHM, "sh"]).arg(list);
    own.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => own.env(name, value),
            None => own.env_remove(name),
        };
    }
    own.stdin(Stdio::null());
    own
}

/// Set if jobs can have a `/dev/shm` of their own; prints SKIPPED if not.
pub(crate) static CAN_OWN_SHM: LazyLock<bool> = LazyLock::new(|| {
    let tried = with_own_shm(Path::new("/dev/null"), &Command::new("true")).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("NOT CHECKED: what is left in /dev/shm; that needs root and mount namespaces");
    }
    can
});

/// Runs a job and checks that nothing of it is left.
pub(crate) fn run_clean(module: &str, count: u32, role: &str, args: &[&str]) -> Ended {
    let (word, tmp) = (unique_word(), tempfile::tempdir().unwrap());
    let list = tempfile::NamedTempFile::new().unwrap();
    let tmpdir = format!("TMPDIR={}", tmp.path().display());
    let args = [args, &["--env", &tmpdir, "--grace-ms", "5000"]].concat();
    let mut command = ranks_command(module, count, role, &args, &word);
    if *CAN_OWN_SHM {
        command = with_own_shm(list.path(), &command);
    }
    let ended = Ended::from(command.output().unwrap());
    wait_until("its processes end", || processes_with(&word).is_empty());
    let in_shm = std::fs::read_to_string(list.path()).unwrap();
    assert!(in_shm.is_empty(), "left in /dev/shm: {in_shm}");
    let in_tmp = names_in(tmp.path().to_str().unwrap());
    assert!(
        in_tmp.is_empty(),
        "left in the directory for temporary files: {in_tmp:?}"
    );
    assert_no_sockets(&ended.out);
    assert_no_namespaces(&ended);
    ended
}

/// Asserts that none of the sockets that the ranks listed still exists.
fn assert_no_sockets(out: &str) {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let lines = out.lines().filter_map(|line| line.split_once("holds: "));
    for name in lines.flat_map(|(_, names)| names.split_whitespace()) {
        let left = table.lines().any(|line| line.ends_with(name));
        assert!(!left, "the socket {name} is left");
    }
}

/// Asserts that none of the namespaces of the job's hosts still exists.
fn assert_no_namespaces(ended: &Ended) {
    for name in names_in("/run/netns") {
        let named = ended.out.contains(&name) || ended.err.contains(&name);
        assert!(!named, "the network namespace {name} is left");
    }
}
