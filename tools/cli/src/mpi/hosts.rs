// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--hosts FILE` for the launchers of MPIs: their own form of the file, and the check for the library on each host.

use super::find::Kind;
use super::provider;
use crate::error::user_error;
use crate::run::hosts::Host;
use crate::run::{cannot_start, ssh};
use anyhow::Result;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the check of the library on all hosts: the same as for ssh to reach a shell.
const ANSWER_DELAY: Duration = ssh::LOGIN_DELAY;

/// Interval between polls of the checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Exit status of the check if the library is missing. ssh and shells do not use this status.
const MISSING: i32 = 3;

/// Variables that make a launcher reach hosts by other means than ssh. The library is not checked
/// then.
const NO_SSH_VARIABLES: [&str; 7] = [
    "SLURM_JOB_ID",
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
];

/// Returns the hosts file as the launcher of this kind of MPI reads it.
///
/// # Errors
/// A host that the launcher's form of the file cannot express.
pub(super) fn translated(kind: Kind, hosts: &[Host]) -> Result<String> {
    hosts.iter().map(|host| line(kind, host)).collect()
}

fn line(kind: Kind, host: &Host) -> Result<String> {
    let Host { name, slots, .. } = host;
    if kind == Kind::OpenMpi {
        return Ok(format!("{name} slots={slots}\n"));
    }
    let (user, name) = match name.split_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, name.as_str()),
    };
    if name.contains(':') {
        user_error!(
            "the launcher of {kind} does not accept IPv6 addresses such as {name}: give the host a name in /etc/hosts, and \
             write that name into the hosts file"
        );
    }
    match (user, kind) {
        (None, _) => Ok(format!("{name}:{slots}\n")),
        (Some(user), Kind::Mpich) => Ok(format!("{name}:{slots} user={user}\n")),
        (Some(user), _) => user_error!(
            "the launcher of {kind} does not accept user names as in {user}@{name}: write `Host {name}` and `User {user}` \
             into ~/.ssh/config, and {name} into the hosts file"
        ),
    }
}

/// Checks that all hosts but this one have the provider or the component at the path `library`.
///
/// # Errors
/// Names the hosts that lack it or cannot be reached.
pub(super) fn check_library(hosts: &[Host], library: &Path) -> Result<()> {
    if NO_SSH_VARIABLES
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        return Ok(());
    }
    let others = hosts.iter().filter(|host| !is_here(&host.name));
    let checks: Vec<(&Host, Command)> = others
        .map(|host| (host, check_command(host, library)))
        .collect();
    let mut missing = Vec::new();
    for (host, output) in run_checks(checks)? {
        match output {
            Some(output) if output.status.success() => {}
            Some(output) if output.status.code() == Some(MISSING) => {
                missing.push(host.name.clone())
            }
            output => return fail_unreachable(host, output),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (verb, names) = (
        if missing.len() == 1 { "has" } else { "have" },
        missing.join(", "),
    );
    user_error!(
        "{names} {verb} no {}, which the MPI loads there: install Portolan there with the same PREFIX, or {}",
        library.display(),
        remedy(library)
    )
}

/// Names the option that avoids the need for `library`.
fn remedy(library: &Path) -> &'static str {
    match library.ends_with(provider::FILE) {
        true => "name a directory that all hosts have with --provider-dir",
        false => "use the libfabric provider with --via ofi",
    }
}

fn fail_unreachable(host: &Host, output: Option<Output>) -> Result<()> {
    let text = match output {
        Some(output) => {
            let text = String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ");
            format!("{text} ({})", output.status)
        }
        None => format!("no answer within {} s", ANSWER_DELAY.as_secs()),
    };
    user_error!(
        "cannot reach host {name}: {text}; check the name in the hosts file, and that `ssh -o BatchMode=yes {name} \
         true` works without a password",
        name = host.name
    )
}

fn check_command(host: &Host, library: &Path) -> Command {
    let script = format!("test -r \"$0\" || exit {MISSING}");
    let mut command = ssh::command(&host.name);
    command.arg(ssh::script(&script, library));
    command
}

/// Runs the checks on all hosts at once; the output is `None` if a host did not answer in time.
fn run_checks(checks: Vec<(&Host, Command)>) -> Result<Vec<(&Host, Option<Output>)>> {
    let mut children = Vec::new();
    for (host, mut command) in checks {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| cannot_start("ssh", &error))?;
        children.push((host, child));
    }
    let deadline = Instant::now() + ANSWER_DELAY;
    let mut all = Vec::new();
    for (host, mut child) in children {
        while child.try_wait()?.is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        let has_ended = child.try_wait()?.is_some();
        if !has_ended {
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        all.push((host, has_ended.then_some(output)));
    }
    Ok(all)
}

/// Returns true if `name` is a name of this machine: a socket can be bound to one of its addresses.
fn is_here(name: &str) -> bool {
    let name = name.rsplit('@').next().unwrap_or(name);
    let addresses = (name.trim_matches(['[', ']']), 0).to_socket_addrs();
    let is_own = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    addresses.is_ok_and(|mut all| all.any(|address| is_own(address.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::hosts::Place;

    fn host(name: &str, slots: u32) -> Host {
        Host {
            name: name.into(),
            slots,
            place: Place::Ssh,
        }
    }

    #[test]
    fn slots_use_each_launchers_format() {
        let hosts = [host("a", 2), host("b.example.org", 1)];
        let open = translated(Kind::OpenMpi, &hosts).unwrap();
        assert_eq!(open, "a slots=2\nb.example.org slots=1\n");
        for kind in [Kind::Mpich, Kind::Intel] {
            assert_eq!(translated(kind, &hosts).unwrap(), "a:2\nb.example.org:1\n");
        }
    }

    #[test]
    fn users_and_ipv6_are_translated_or_refused() {
        let of_user = [host("u@a", 3)];
        assert_eq!(
            translated(Kind::OpenMpi, &of_user).unwrap(),
            "u@a slots=3\n"
        );
        assert_eq!(translated(Kind::Mpich, &of_user).unwrap(), "a:3 user=u\n");
        assert!(translated(Kind::Intel, &of_user).is_err());
        let address = [host("[fe80::1%eth0]", 1)];
        assert!(translated(Kind::Mpich, &address).is_err());
        assert!(translated(Kind::OpenMpi, &address).is_ok());
    }

    #[test]
    fn own_addresses_are_local() {
        assert!(is_here("localhost") && is_here("u@127.0.0.1"));
        // An address for documentation (RFC 5737), which no host has.
        assert!(!is_here("192.0.2.1") && !is_here("no-such-host.invalid"));
    }
}
