// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of `examples/npb` under an MPI, over each network: the measurements of `portolan report
//! npb`, their charts, and the corresponding tables of the paper.
//!
//! This module runs nothing; the command does.

mod answers;
mod charts;
mod section;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use charts::figures;
pub(crate) use section::section;
pub(crate) use tables::exact;

use crate::chart::Ink;
use crate::systems;
use portolan_bench::{Path, Report, SiteKind};
use portolan_profile::{Tally, World};
use serde::{Deserialize, Serialize};

/// Format name in the JSON. The number changes with the format.
pub const NPB_FORMAT: &str = "portolan-npb-1";

/// Programs by the names that they print: in the order of the paper, then those that it left out.
pub const PROGRAMS: [&str; 8] = ["IS", "MG", "CG", "SP", "EP", "LU", "FT", "BT"];

/// Number of size classes of messages, by decimal digits.
const CLASS_COUNT: usize = 6;

/// Transport of an MPI's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Portolan over raw Ethernet.
    PortolanPacket,
    /// Portolan over UDP.
    PortolanUdp,
    /// The MPI's own transport between hosts.
    OwnTcp,
    /// Portolan over shared memory.
    PortolanShm,
    /// The MPI's own transport within a host.
    OwnShm,
}

impl Network {
    /// All networks, those between hosts first.
    pub const ALL: [Network; 5] = [
        Network::PortolanPacket,
        Network::PortolanUdp,
        Network::OwnTcp,
        Network::PortolanShm,
        Network::OwnShm,
    ];

    /// Returns true if messages stay within a host.
    #[must_use]
    pub fn is_within(self) -> bool {
        matches!(self, Network::PortolanShm | Network::OwnShm)
    }

    /// Returns true for Portolan's networks.
    #[must_use]
    pub fn is_portolan(self) -> bool {
        !matches!(self, Network::OwnTcp | Network::OwnShm)
    }

    /// Returns the path of messages.
    #[must_use]
    pub fn path(self) -> Path {
        match self {
            Network::PortolanPacket => Path::Packet,
            Network::PortolanUdp | Network::OwnTcp => Path::Udp,
            Network::PortolanShm | Network::OwnShm => Path::Shm,
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Network::OwnTcp => "the MPI's TCP".into(),
            Network::OwnShm => "the MPI's memory".into(),
            _ => systems::portolan(self.path()).name,
        }
    }

    /// Returns the colour, the same as in all charts.
    fn ink(self) -> Ink {
        match self {
            Network::OwnTcp => Ink::KERNEL,
            Network::OwnShm => Ink::KERNEL_LOCAL,
            _ => systems::portolan(self.path()).ink,
        }
    }
}

/// Class of Ethernet that a lab's wires are shaped like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wire {
    /// 100 Mb/s, the network of the paper.
    #[serde(rename = "fast-ethernet")]
    FastEthernet,
    /// 1 Gb/s.
    #[serde(rename = "1g")]
    Gigabit,
    /// 10 Gb/s.
    #[serde(rename = "10g")]
    TenGigabit,
}

impl Wire {
    /// All classes, the slowest first.
    pub const ALL: [Wire; 3] = [Wire::FastEthernet, Wire::Gigabit, Wire::TenGigabit];

    /// Returns the class as `portolan lab up --link` accepts it.
    #[must_use]
    pub fn link(self) -> &'static str {
        match self {
            Wire::FastEthernet => "fast-ethernet",
            Wire::Gigabit => "1g",
            Wire::TenGigabit => "10g",
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Wire::FastEthernet => "Fast Ethernet",
            Wire::Gigabit => "1\u{a0}Gb/s",
            Wire::TenGigabit => "10\u{a0}Gb/s",
        }
    }
}

/// Returns `text`, with the name of a shaped wire after it.
fn with_wire(text: &str, wire: Option<Wire>) -> String {
    match wire {
        Some(wire) => format!("{text}, {}", wire.name()),
        None => text.to_owned(),
    }
}

/// Measurements of `portolan report npb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Npb {
    /// [`NPB_FORMAT`].
    pub format: String,
    /// Name and version of the MPI; empty if none was found.
    pub mpi: String,
    /// Size of the problems: S, W, A or B.
    pub class: String,
    /// Number of alternating rounds behind the medians in the runs.
    pub rounds: u32,
    /// Kind of the hosts: those of a lab, with one process on each, or this host's loopback
    /// interface.
    pub site: SiteKind,
    /// Runs of each program on each network, and with a single process.
    pub runs: Vec<NpbRun>,
    /// Ping-pong measurements of the networks themselves.
    pub networks: Option<Report>,
    /// Missing measurements, with the reasons.
    pub notes: Vec<String>,
}

/// A program on one network with one number of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NpbRun {
    /// Name of the program, one of [`PROGRAMS`].
    pub program: String,
    /// Network; `None` for a single process, which sends no messages.
    pub network: Option<Network>,
    /// Class that the wires between hosts are shaped like; `None` for unshaped ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Number of processes.
    pub processes: u32,
    /// Seconds of the program's timed part: the median of the rounds.
    pub seconds: f64,
    /// Seconds in each round.
    pub per_round: Vec<f64>,
    /// Profile of the round with the median time, or the next longer one.
    pub world: World,
}

impl Npb {
    /// Returns the measured wires, the unshaped one first.
    fn wires(&self) -> Vec<Option<Wire>> {
        let has = |wire: &Option<Wire>| {
            let mut runs = self.runs.iter();
            runs.any(|run| run.network.is_some() && run.wire == *wire)
        };
        let all = [None].into_iter().chain(Wire::ALL.map(Some));
        all.filter(has).collect()
    }

    /// Returns the measurements over `wire`, with those of a single process.
    fn over(&self, wire: Option<Wire>) -> Npb {
        let mut part = self.clone();
        part.runs
            .retain(|run| run.network.is_none() || run.wire == wire);
        part
    }

    /// Returns the measurements over the first of [`Npb::wires`].
    fn first_wire(&self) -> Npb {
        self.over(self.wires().first().copied().flatten())
    }

    /// Returns the run of `program` with a single process.
    fn alone(&self, program: &str) -> Option<&NpbRun> {
        self.runs
            .iter()
            .find(|run| run.program == program && run.network.is_none())
    }

    /// Returns the run of `program` on `network` with `processes` processes. There is one at most if the
    /// measurements are over one wire.
    fn run(&self, program: &str, network: Network, processes: u32) -> Option<&NpbRun> {
        self.runs.iter().find(|run| {
            run.program == program && run.network == Some(network) && run.processes == processes
        })
    }

    /// Returns the measured numbers of processes in ascending order, without runs of a single
    /// process.
    fn counts(&self) -> Vec<u32> {
        let networked = self.runs.iter().filter(|run| run.network.is_some());
        let mut counts: Vec<u32> = networked.map(|run| run.processes).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Returns the largest measured number of processes.
    fn most(&self) -> Option<u32> {
        self.counts().pop()
    }

    /// Returns the speed relative to a single process.
    fn speed_up(&self, run: &NpbRun) -> Option<f64> {
        let alone = self.alone(&run.program)?;
        (run.seconds > 0.0).then(|| alone.seconds / run.seconds)
    }

    /// Returns the fastest run of `program` with the most processes.
    fn fastest(&self, program: &str) -> Option<&NpbRun> {
        let most = self.most()?;
        let runs = Network::ALL
            .into_iter()
            .filter_map(|network| self.run(program, network, most));
        runs.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

impl NpbRun {
    /// Returns the messages by size, including those of collective operations.
    fn classes(&self) -> [Tally; CLASS_COUNT] {
        let sizes = &self.world.sizes;
        let mut sums = [Tally::default(); CLASS_COUNT];
        for classes in [&sizes.messages, &sizes.one_sided, &sizes.of_collectives] {
            for (sum, class) in sums.iter_mut().zip(classes) {
                sum.add(class.tally);
            }
        }
        sums
    }

    /// Returns the sum of all messages.
    fn messages(&self) -> Tally {
        let mut all = Tally::default();
        for class in self.classes() {
            all.add(class);
        }
        all
    }
}
