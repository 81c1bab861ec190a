// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of `examples/npb` under an MPI, over each network: what `portolan report npb` measures,
//! its charts, and the tables of the paper that asked the same of its networks.
//!
//! Nothing is run here: that is the command's.

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

/// What the JSON says that it is; the number changes with its shape.
pub const NPB_FORMAT: &str = "portolan-npb-1";

/// The programs in the order of the paper, as they call themselves.
pub const PROGRAMS: [&str; 4] = ["IS", "MG", "CG", "EP"];

/// Sizes of messages by decimal digits.
const CLASS_COUNT: usize = 6;

/// What carries an MPI's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Portolan by raw Ethernet.
    PortolanPacket,
    /// Portolan by UDP.
    PortolanUdp,
    /// What the MPI has itself between hosts.
    OwnTcp,
    /// Portolan by shared memory.
    PortolanShm,
    /// What the MPI has itself within a host.
    OwnShm,
}

impl Network {
    /// All, those between hosts first.
    pub const ALL: [Network; 5] = [
        Network::PortolanPacket,
        Network::PortolanUdp,
        Network::OwnTcp,
        Network::PortolanShm,
        Network::OwnShm,
    ];

    /// Whether its messages stay within a host.
    #[must_use]
    pub fn is_within(self) -> bool {
        matches!(self, Network::PortolanShm | Network::OwnShm)
    }

    /// Whether it is Portolan's.
    #[must_use]
    pub fn is_portolan(self) -> bool {
        !matches!(self, Network::OwnTcp | Network::OwnShm)
    }

    /// The path that messages take.
    #[must_use]
    pub fn path(self) -> Path {
        match self {
            Network::PortolanPacket => Path::Packet,
            Network::PortolanUdp | Network::OwnTcp => Path::Udp,
            Network::PortolanShm | Network::OwnShm => Path::Shm,
        }
    }

    /// How it is called.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Network::OwnTcp => "the MPI's TCP".into(),
            Network::OwnShm => "the MPI's memory".into(),
            _ => systems::portolan(self.path()).name,
        }
    }

    /// The same colour as in all charts.
    fn ink(self) -> Ink {
        match self {
            Network::OwnTcp => Ink::KERNEL,
            Network::OwnShm => Ink::KERNEL_LOCAL,
            _ => systems::portolan(self.path()).ink,
        }
    }
}

/// What `portolan report npb` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Npb {
    /// [`NPB_FORMAT`].
    pub format: String,
    /// Name and version of the MPI; empty where none was found.
    pub mpi: String,
    /// The problems' sizes: S, W, A or B.
    pub class: String,
    /// Rounds in alternation, whose medians the runs give.
    pub rounds: u32,
    /// Whether networks were between the hosts of a lab, a process on each, or on this host's loopback
    /// interface.
    pub site: SiteKind,
    /// Each program on each network, and alone.
    pub runs: Vec<NpbRun>,
    /// The networks themselves, by ping-pong.
    pub networks: Option<Report>,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// A program on one network with one number of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NpbRun {
    /// As it calls itself, of [`PROGRAMS`].
    pub program: String,
    /// None of a single process, which has nobody to send to.
    pub network: Option<Network>,
    /// How many.
    pub processes: u32,
    /// Of the program's timed part: the median of the rounds.
    pub seconds: f64,
    /// The same in each round.
    pub per_round: Vec<f64>,
    /// What was counted in the round that took the median, or a little longer.
    pub world: World,
}

impl Npb {
    /// The run of `program` alone.
    fn alone(&self, program: &str) -> Option<&NpbRun> {
        self.runs
            .iter()
            .find(|run| run.program == program && run.network.is_none())
    }

    /// The run of `program` on `network` by `processes`.
    fn run(&self, program: &str, network: Network, processes: u32) -> Option<&NpbRun> {
        self.runs.iter().find(|run| {
            run.program == program && run.network == Some(network) && run.processes == processes
        })
    }

    /// Numbers of processes that something ran with, ascending, without programs alone.
    fn counts(&self) -> Vec<u32> {
        let networked = self.runs.iter().filter(|run| run.network.is_some());
        let mut counts: Vec<u32> = networked.map(|run| run.processes).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// The most processes that something ran with.
    fn most(&self) -> Option<u32> {
        self.counts().pop()
    }

    /// How many times faster than alone.
    fn speed_up(&self, run: &NpbRun) -> Option<f64> {
        let alone = self.alone(&run.program)?;
        (run.seconds > 0.0).then(|| alone.seconds / run.seconds)
    }

    /// The run of `program` by the most processes on the network that was fastest.
    fn fastest(&self, program: &str) -> Option<&NpbRun> {
        let most = self.most()?;
        let runs = Network::ALL
            .into_iter()
            .filter_map(|network| self.run(program, network, most));
        runs.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

impl NpbRun {
    /// Messages by size, those that collective operations are made of among them.
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

    /// All of them.
    fn messages(&self) -> Tally {
        let mut all = Tally::default();
        for class in self.classes() {
            all.add(class);
        }
        all
    }
}
