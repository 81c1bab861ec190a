// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hosts of a job, and the ranks of each.

use crate::error::user_error;
use crate::lab::Lab;
use crate::lab::cores::Cores;
use anyhow::Result;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Method of reaching a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This machine.
    Here,
    /// A network namespace of this machine, and the cores for its processes.
    Namespace(String, Cores),
    /// Another machine, through ssh.
    Ssh,
    /// A node of this process's Slurm allocation, through srun.
    Slurm,
    /// A host with an existing connection to its agent.
    Connected,
}

/// A host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Name of the host, for messages and for ssh.
    pub(crate) name: String,
    /// Largest number of ranks; `u32::MAX` for no limit.
    pub(crate) slots: u32,
    pub(crate) place: Place,
}

/// Order in which the slots of the hosts are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MapBy {
    /// All slots of the first host, then all of the second.
    #[default]
    Slot,
    /// One slot of each host in turn.
    Node,
}

/// Returns this machine as the only host.
pub(crate) fn here(per_host: Option<u32>) -> Vec<Host> {
    let name = nix::unistd::gethostname().unwrap_or_else(|_| "localhost".into());
    vec![Host {
        name: name.to_string_lossy().into_owned(),
        slots: per_host.unwrap_or(u32::MAX),
        place: Place::Here,
    }]
}

/// Returns the host with this name: this machine for its own name or `localhost`, else a host that
/// ssh reaches.
///
/// # Errors
/// An error message for the user if it is no valid host name.
pub(crate) fn named(name: &str) -> Result<Host> {
    let mut host = match parse_line(name) {
        Ok(host) if host.name == name => host,
        _ => user_error!("{name:?} is not a host name"),
    };
    if name == "localhost" || name == here(None)[0].name {
        host.place = Place::Here;
    }
    Ok(host)
}

/// Returns the hosts of a lab; without `per_host` the ranks are spread evenly over all of them.
pub(crate) fn of_lab(lab: &Lab, rank_count: u32, per_host: Option<u32>) -> Vec<Host> {
    let slots = per_host.unwrap_or(rank_count.div_ceil(lab.host_count));
    let host = |index| {
        let name = lab.namespace(index);
        Host {
            name: name.clone(),
            slots,
            place: Place::Namespace(name, lab.cores(index)),
        }
    };
    (0..lab.host_count).map(host).collect()
}

/// Returns the nodes of this process's Slurm allocation except this one; `None` outside an
/// allocation.
///
/// # Errors
/// An error message for the user if Slurm does not list them.
pub(crate) fn of_slurm() -> Result<Option<Vec<Host>>> {
    let Some(list) = std::env::var_os("SLURM_JOB_NODELIST").filter(|list| !list.is_empty()) else {
        return Ok(None);
    };
    // Slurm expands its own notation, `n[1-3]` and the like.
    let output = Command::new("scontrol")
        .args(["show", "hostnames"])
        .arg(&list)
        .output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => user_error!(
            "`scontrol show hostnames` does not list the nodes {}: {}; give --hosts FILE",
            list.to_string_lossy(),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => user_error!(
            "the command `scontrol`, which lists the nodes of this allocation, does not start: {error}; \
             install the clients of Slurm, or give --hosts FILE"
        ),
    };
    let own = std::env::var("SLURMD_NODENAME").unwrap_or_else(|_| here(None)[0].name.clone());
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(Some(nodes(names.lines(), &own)))
}

/// Returns all nodes except this machine. Its name may have a domain appended.
fn nodes<'a>(names: impl Iterator<Item = &'a str>, own: &str) -> Vec<Host> {
    let is_own = |name: &str| name == own || own.split('.').next() == Some(name);
    let others = names.filter(|name| !name.is_empty() && !is_own(name));
    let host = |name: &str| Host {
        name: name.to_owned(),
        slots: 1,
        place: Place::Slurm,
    };
    others.map(host).collect()
}

/// Returns the hosts of a hosts file.
///
/// # Errors
/// An error message for the user that names the file and the line.
pub(crate) fn of_file(path: &Path, per_host: Option<u32>) -> Result<Vec<Host>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => user_error!(
            "the hosts file {} cannot be read: {error}; name another with --hosts",
            path.display()
        ),
    };
    let mut hosts = match parse(&text) {
        Ok(hosts) => hosts,
        Err((number, why)) => user_error!(
            "{} line {number}: {why}; a line is `host` or `host slots=K`, and # starts a comment",
            path.display()
        ),
    };
    if hosts.is_empty() {
        user_error!(
            "the hosts file {} names no host: add lines `host slots=K`",
            path.display()
        );
    }
    if let Some(slots) = per_host {
        hosts.iter_mut().for_each(|host| host.slots = slots);
    }
    Ok(hosts)
}

/// Parses lines `host [slots=K]`; the slots of a repeated host are added. The error contains the
/// line number.
fn parse(text: &str) -> Result<Vec<Host>, (usize, String)> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut index_of: HashMap<String, usize> = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let host = parse_line(line).map_err(|why| (index + 1, why))?;
        match index_of.get(&host.name) {
            Some(known) => {
                let slots = &mut hosts[*known].slots;
                *slots = slots.saturating_add(host.slots);
            }
            None => {
                index_of.insert(host.name.clone(), hosts.len());
                hosts.push(host);
            }
        }
    }
    Ok(hosts)
}

fn parse_line(line: &str) -> Result<Host, String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    // Accept what ssh takes: a name or address, optionally with a user, but never an option.
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@:%[]".contains(c);
    if name.starts_with('-') || !name.chars().all(plain) {
        return Err(format!("{name:?} is not a host name"));
    }
    let mut slots = 1;
    for word in words {
        let count = word
            .strip_prefix("slots=")
            .ok_or_else(|| format!("unknown word {word:?}"))?;
        slots = match count.parse() {
            Ok(count) if count > 0 => count,
            _ => return Err(format!("{count:?} is not a number of slots")),
        };
    }
    Ok(Host {
        name: name.to_owned(),
        slots,
        place: Place::Ssh,
    })
}

/// Assigns the ranks of each host, by local rank. Hosts may stay empty.
///
/// # Errors
/// An error message for the user if there are more ranks than slots.
pub(crate) fn place(rank_count: u32, hosts: &[Host], map_by: MapBy) -> Result<Vec<Vec<u32>>> {
    let slots: u64 = hosts.iter().map(|host| u64::from(host.slots)).sum();
    if u64::from(rank_count) > slots {
        user_error!(
            "{rank_count} processes do not fit into the {slots} slots of {} host{}: \
             add hosts, raise --per-host (or slots=K in the hosts file), or lower -n",
            hosts.len(),
            if hosts.len() == 1 { "" } else { "s" }
        );
    }
    let mut ranks = vec![Vec::new(); hosts.len()];
    let mut host = 0;
    for rank in 0..rank_count {
        while ranks[host].len() >= hosts[host].slots as usize {
            host = (host + 1) % hosts.len();
        }
        ranks[host].push(rank);
        if map_by == MapBy::Node {
            host = (host + 1) % hosts.len();
        }
    }
    Ok(ranks)
}

/// Returns the number of ranks that compete for the cores of each host: its own, and those of lab
/// hosts that own some of the same cores.
pub(crate) fn rivals(hosts: &[Host], ranks: &[Vec<u32>]) -> Vec<u32> {
    let cores = |host: &Host| match &host.place {
        Place::Namespace(_, cores) => cores.clone(),
        _ => Cores::default(),
    };
    let cores: Vec<Cores> = hosts.iter().map(cores).collect();
    let count = |host: usize| {
        let with = |other: &usize| *other == host || cores[host].overlaps(&cores[*other]);
        let met: usize = (0..ranks.len())
            .filter(with)
            .map(|other| ranks[other].len())
            .sum();
        u32::try_from(met).unwrap_or(u32::MAX)
    };
    (0..ranks.len()).map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(slots: &[u32]) -> Vec<Host> {
        let host = |slots: &u32| Host {
            name: "x".into(),
            slots: *slots,
            place: Place::Here,
        };
        slots.iter().map(host).collect()
    }

    #[test]
    fn own_node_is_excluded() {
        let names = |own: &str| -> Vec<String> {
            let nodes = nodes("n1\nn2\nn10\n".lines(), own);
            assert!(
                nodes
                    .iter()
                    .all(|node| node.place == Place::Slurm && node.slots == 1)
            );
            nodes.into_iter().map(|node| node.name).collect()
        };
        assert_eq!(names("n1"), ["n2", "n10"]);
        assert_eq!(names("n1.example.org"), ["n2", "n10"]);
        assert_eq!(names("login"), ["n1", "n2", "n10"]);
    }

    #[test]
    fn rivals_share_cores() {
        let host = |cores: &str| Host {
            name: "x".into(),
            slots: 2,
            place: Place::Namespace("x".into(), cores.parse().unwrap()),
        };
        let hosts = ["0", "1", "0", "all"].map(host);
        let ranks = [vec![0, 1], vec![2], vec![3], vec![4]];
        assert_eq!(rivals(&hosts, &ranks), [3, 1, 3, 1]);
    }

    #[test]
    fn map_by_slot_fills_hosts_in_order() {
        let ranks = place(5, &slots(&[2, 2, 4]), MapBy::Slot).unwrap();
        assert_eq!(ranks, [vec![0, 1], vec![2, 3], vec![4]]);
    }

    #[test]
    fn map_by_node_skips_full_hosts() {
        let ranks = place(6, &slots(&[1, 2, 4]), MapBy::Node).unwrap();
        assert_eq!(ranks, [vec![0], vec![1, 3], vec![2, 4, 5]]);
    }

    #[test]
    fn more_ranks_than_slots_are_refused() {
        let error = place(5, &slots(&[2, 2]), MapBy::Node)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("5 processes") && error.contains("4 slots of 2 hosts"),
            "{error}"
        );
        assert!(place(4, &slots(&[2, 2]), MapBy::Slot).is_ok());
        assert!(place(1000, &slots(&[u32::MAX]), MapBy::Slot).is_ok());
    }

    #[test]
    fn hosts_file_parses_slots_and_comments() {
        let text = "# two machines\nn1 slots=2\n\n  user@n2 # the old one\nn1\n[fe80::1%eth0]\n";
        let hosts = parse(text).unwrap();
        let short: Vec<_> = hosts
            .iter()
            .map(|host| (host.name.as_str(), host.slots))
            .collect();
        assert_eq!(short, [("n1", 3), ("user@n2", 1), ("[fe80::1%eth0]", 1)]);
    }

    #[test]
    fn parse_error_has_the_line_number() {
        for (text, number) in [
            ("n1\nn2 slots=none", 2),
            ("n1 slots=0", 1),
            ("\n\nn1 cores=4", 3),
            ("-oProxyCommand=x", 1),
            ("n1;reboot", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().0, number, "{text}");
        }
    }
}
