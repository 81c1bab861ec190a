// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the benchmark takes from the command that it is part of.

use crate::args::Path;
use crate::mpi::MpiJob;
use crate::place::{Place, Site};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Makes hosts to measure between, and runs jobs on them.
pub trait Launcher {
    /// Opens a temporary lab.
    ///
    /// # Errors
    /// Labs are not allowed here, or something that they need is missing.
    fn open_lab(&self, lab: &LabOrder<'_>) -> Result<Site>;

    /// Runs `job` to its end.
    ///
    /// # Errors
    /// It cannot be started, or a rank fails.
    fn run_job(&self, job: &Job<'_>) -> Result<()>;

    /// Runs `job` to its end.
    ///
    /// # Errors
    /// The MPI or its compiler is not there, or the program fails.
    fn run_mpi(&self, job: &MpiJob<'_>) -> Result<()>;

    /// Whether a person wants to see what there is, and no more measured.
    fn interrupted(&self) -> bool {
        false
    }
}

/// What a lab is to be like.
#[derive(Clone, Copy, Debug)]
pub struct LabOrder<'a> {
    /// MTU of its interfaces in bytes.
    pub mtu: u32,
    /// Hosts.
    pub count: u32,
    /// What its wires are like, as `portolan lab up --link` has it; those of a bare veth pair without.
    pub link: Option<&'a str>,
}

/// A job of one rank at each of `places`.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// Where the ranks run.
    pub places: &'a [Place],
    /// The connection to the agent of the last rank, if that is a server's.
    pub server: Option<Arc<TcpStream>>,
    /// The path that their messages take.
    pub path: Path,
    /// Further options of the job.
    pub options: BTreeMap<String, String>,
    /// A broker is to listen at [`crate::BROKER`] on each host, as long as the job runs.
    pub by_broker: bool,
    /// How long the ranks measure; the job may take [`crate::GRACE`] longer.
    pub lasts: Duration,
}
