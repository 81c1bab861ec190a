// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that outlive their parents.
//!
//! A child subreaper becomes the parent of orphans among its descendants (prctl(2)). It can
//! therefore end processes that a killed agent or a daemonising rank left behind.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;

/// Makes this process the parent of orphans among its descendants.
pub(crate) fn become_subreaper() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true).context("becoming a child subreaper")
}

/// Returns this process's children, including zombies.
pub(crate) fn children() -> HashSet<i32> {
    let own = Pid::this().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashSet::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(own)).collect()
}

/// Kills and reaps all children except those in `exceptions`, and the orphans that this process
/// inherits from them. Leaves processes with other credentials (set-user-id).
pub(crate) fn kill_all_but(exceptions: &HashSet<i32>) {
    let mut left = exceptions.clone();
    loop {
        let orphans: Vec<i32> = children().difference(&left).copied().collect();
        if orphans.is_empty() {
            return;
        }
        for number in orphans {
            let pid = Pid::from_raw(number);
            // A process that cannot be killed must not be waited for.
            if kill(pid, Signal::SIGKILL).is_err() || waitpid(pid, None).is_err() {
                left.insert(number);
            }
        }
    }
}

/// Reaps the children that have ended, except those in `exceptions`: orphans of this process, which
/// would stay zombies.
pub(crate) fn reap_all_but(exceptions: &HashSet<i32>) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, flags)
        && let Some(pid) = status.pid()
    {
        // An exception is reaped by its owner, and the children behind it at the next signal.
        if exceptions.contains(&pid.as_raw()) || waitpid(pid, None).is_err() {
            return;
        }
    }
}

/// Returns the parent from field 4 of `/proc/PID/stat`. The name in field 2 may contain anything,
/// so parsing starts after its closing bracket.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_lists_a_running_child() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(children().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&pid));
    }
}
