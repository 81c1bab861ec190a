// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts of the two ends of a row.
//!
//! A network path needs two hosts. They belong to a temporary lab if one can be created. Otherwise
//! both ends share this host and its loopback interface, and the report states that.

use crate::args::Path;
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, setns};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// A host of one end of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Network namespace under `/run/netns`; `None` is the command's own namespace.
    pub netns: Option<String>,
    /// Address on the interface.
    pub addr: IpAddr,
    /// Name of the interface.
    pub interface: String,
    /// Cores that belong to the host; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<usize>,
}

impl Place {
    /// Returns this host with its loopback interface.
    pub fn loopback() -> Self {
        Place {
            netns: None,
            addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
            interface: "lo".into(),
            cores: Vec::new(),
        }
    }

    /// Returns the option by which a job's rank selects this interface. Jobs do not select the
    /// loopback interface by name.
    pub(crate) fn interface_option(&self) -> Option<(String, String)> {
        let is_named = !self.addr.is_loopback();
        is_named.then(|| ("interface".to_owned(), self.interface.clone()))
    }

    /// Moves the calling thread into the network namespace and onto the cores of this host.
    ///
    /// # Errors
    /// The namespace does not exist or may not be entered, or the process may not use the cores.
    pub(crate) fn enter(&self) -> io::Result<()> {
        if !self.cores.is_empty() {
            run_on(&self.cores)?;
        }
        let Some(name) = &self.netns else {
            return Ok(());
        };
        let namespace = fs::File::open(format!("/run/netns/{name}"))?;
        Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
    }
}

/// Kind of the hosts of a network path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// Network namespaces, joined by a veth pair, or by a bridge if there are more than two.
    Lab,
    /// One host and its loopback interface.
    Loopback,
    /// This host and the host of a server.
    Hosts,
}

/// Hosts of network paths, with the guard that keeps them alive.
pub struct Site {
    /// Kind of the hosts.
    pub kind: SiteKind,
    /// Hosts of the driver, of the answerer, and of any further ends.
    pub hosts: Vec<Place>,
    /// MTU between them.
    pub mtu: usize,
    /// Link properties of a lab, if they differ from a bare veth pair.
    pub link: Option<String>,
    /// Removes a temporary lab when dropped.
    _guard: Option<Box<dyn Any>>,
}

impl Site {
    /// Creates a site of a lab's hosts. The lab exists until `guard` is dropped.
    pub fn lab(mtu: usize, link: Option<String>, hosts: Vec<Place>, guard: Box<dyn Any>) -> Self {
        Site {
            kind: SiteKind::Lab,
            hosts,
            mtu,
            link,
            _guard: Some(guard),
        }
    }

    /// Creates a site of this host and the host of a server.
    pub(crate) fn hosts(mtu: usize, hosts: [Place; 2]) -> Self {
        Site {
            kind: SiteKind::Hosts,
            hosts: hosts.to_vec(),
            mtu,
            link: None,
            _guard: None,
        }
    }

    /// Returns the hosts of ends with messages on `path`.
    pub(crate) fn hosts_for(&self, path: Path) -> Vec<Place> {
        if path == Path::Shm {
            self.hosts.iter().map(|_| Place::loopback()).collect()
        } else {
            self.hosts.clone()
        }
    }

    /// Creates a site with all `count` ends on this host.
    pub fn loopback(mtu: usize, count: u32) -> Self {
        let hosts = (0..count).map(|_| Place::loopback()).collect();
        // Frames have the MTU of a lab, so that the figures resemble those of a network.
        Site {
            kind: SiteKind::Loopback,
            hosts,
            mtu,
            link: None,
            _guard: None,
        }
    }
}

/// Returns the cores that this process may use. One hardware thread of each physical core comes
/// before the second ones, which share its cache and execution units.
#[must_use]
pub fn usable_cores() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else {
        return Vec::new();
    };
    let cores = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    spread(&cores.collect::<Vec<_>>(), siblings)
}

/// Returns `cores` in the order of [`usable_cores`].
fn spread(cores: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut physical: Vec<Vec<usize>> = Vec::new();
    for cpu in cores {
        match physical.iter_mut().find(|of| siblings(of[0]).contains(cpu)) {
            Some(threads) => threads.push(*cpu),
            None => physical.push(vec![*cpu]),
        }
    }
    let threads_max = physical.iter().map(Vec::len).max().unwrap_or(0);
    let of_thread = |thread: usize| physical.iter().filter_map(move |of| of.get(thread));
    (0..threads_max).flat_map(of_thread).copied().collect()
}

/// Returns two physical cores for the two ends, the cores of a lab's first two hosts. Returns
/// `None` if this process may use fewer. The scheduler then places the ends, and they yield instead
/// of spinning.
pub fn pick_cores() -> Option<[usize; 2]> {
    // Two hardware threads of one core share its cache, so a line would not travel at all.
    match usable_cores()[..] {
        [first, other, ..] => Some([first, other]),
        _ => None,
    }
}

/// Pins the calling thread to a core.
///
/// # Errors
/// The system call fails.
pub fn pin(cpu: usize) -> io::Result<()> {
    run_on(&[cpu])
}

/// Restricts the calling thread to `cores`, which must not be empty.
///
/// # Errors
/// The system call fails, for example because this process may use none of them.
pub fn run_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cores {
        set.set(*cpu)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Returns the hardware threads on the core of `cpu`, or only `cpu` if the kernel does not report
/// them.
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut cpus: Vec<usize> = text.trim().split(',').flat_map(parse_range).collect();
    cpus.push(cpu);
    cpus
}

/// Parses `3` or `3-5`.
fn parse_range(text: &str) -> std::ops::Range<usize> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => first..last.saturating_add(1),
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_ranges_are_parsed() {
        assert_eq!(parse_range("3").collect::<Vec<_>>(), [3]);
        assert_eq!(parse_range("3-5").collect::<Vec<_>>(), [3, 4, 5]);
        assert!(parse_range("").next().is_none());
    }

    #[test]
    fn physical_cores_come_before_their_second_threads() {
        let pairs = |cpu: usize| vec![cpu & !1, cpu | 1];
        assert_eq!(spread(&[0, 1, 2, 3, 5], pairs), [0, 2, 5, 1, 3]);
        let halves = |cpu: usize| vec![cpu % 2, cpu % 2 + 2];
        assert_eq!(spread(&[0, 1, 2, 3], halves), [0, 1, 2, 3]);
        assert_eq!(spread(&[6, 7], pairs), [6, 7]);
        assert!(spread(&[], pairs).is_empty());
    }

    #[test]
    fn picked_cores_differ() {
        if let Some([first, second]) = pick_cores() {
            assert_ne!(first, second);
        }
    }

    #[test]
    fn missing_namespace_is_an_error() {
        let place = Place {
            netns: Some("portolan-no-such-host".into()),
            ..Place::loopback()
        };
        assert_eq!(
            place.enter().expect_err("absent").kind(),
            io::ErrorKind::NotFound
        );
    }
}
