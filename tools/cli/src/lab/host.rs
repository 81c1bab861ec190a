// SPDX-License-Identifier: MIT OR Apache-2.0
//! Presents a process to other programs as a host of a lab: with a host name, and names for the
//! other hosts.
//!
//! A network namespace alone is a host for Portolan. Launchers and schedulers also use the host
//! name and resolve addresses. The process therefore gets a UTS namespace, and a mount namespace
//! with an `/etc/hosts` that lists the lab. Both namespaces end with the process and leave nothing
//! behind.

use super::{Lab, plan};
use crate::error::user_error;
use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::io::Write;
use std::process::Command;

const HOSTS_FILE: &str = "/etc/hosts";

/// Moves this process into host `index` and onto its cores, except for the network. Returns a
/// command that enters the network; the caller adds the program to run.
///
/// # Errors
/// An error message for the user if privileges are missing.
pub(crate) fn entry(lab: &Lab, index: u32) -> Result<Command> {
    super::ip::check_privilege()?;
    let namespace = lab.namespace(index);
    bind_to_cores(lab, index)?;
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS) {
        user_error!(
            "a host of a lab needs mount and UTS namespaces, which cannot be created here ({error}): in a container, add CAP_SYS_ADMIN"
        );
    }
    nix::unistd::sethostname(&namespace).context("setting the name of the host")?;
    name_hosts(lab).context("adding the names of the lab's hosts to /etc/hosts")?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace]);
    Ok(command)
}

/// Moves this process onto the cores of host `index`.
///
/// # Errors
/// An error message for the user if this process may use none of them.
pub(super) fn bind_to_cores(lab: &Lab, index: u32) -> Result<()> {
    let cores = lab.cores(index);
    if let Err(error) = cores.bind_self() {
        user_error!(
            "host {} owns the cores {cores}, and this process may use none of them ({error}): create the \
             lab again with other cores, `portolan lab up --cores LIST`, or allow this process to use them",
            lab.namespace(index)
        );
    }
    Ok(())
}

/// Mounts an `/etc/hosts` with the hosts of the lab over the original, for this process and its
/// children.
fn name_hosts(lab: &Lab) -> Result<()> {
    let own = names(lab);
    let mut text = std::fs::read_to_string(HOSTS_FILE)?;
    if text.ends_with(&own) {
        // A launcher on one host started a helper on another, which inherits the mount.
        return Ok(());
    }
    text.push('\n');
    text.push_str(&own);
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    // Give it the permissions of the original, so that programs other than root's can read it.
    let permissions = std::fs::metadata(HOSTS_FILE)?.permissions();
    file.as_file().set_permissions(permissions)?;
    let (nothing, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE);
    mount(nothing, "/", nothing, private, nothing)?;
    mount(
        Some(file.path()),
        HOSTS_FILE,
        nothing,
        MsFlags::MS_BIND,
        nothing,
    )?;
    // The mount keeps the file alive after its name is removed.
    Ok(())
}

/// Returns the lines of `/etc/hosts` for the lab.
fn names(lab: &Lab) -> String {
    let line = |index| format!("{} {}\n", plan::address(index), lab.namespace(index));
    (0..lab.host_count).map(line).collect()
}
