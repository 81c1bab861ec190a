// SPDX-License-Identifier: MIT OR Apache-2.0
//! Services that the command provides to the benchmark.

use crate::args::Path;
use crate::mpi::MpiJob;
use crate::place::{Place, Site};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Creates hosts to measure between and runs jobs on them.
pub trait Launcher {
    /// Opens a temporary lab.
    ///
    /// # Errors
    /// Labs are not allowed here, or something that they need is missing.
    fn open_lab(&self, lab: &LabOrder<'_>) -> Result<Site>;

    /// Runs `job` until it ends.
    ///
    /// # Errors
    /// The job cannot be started, or a rank fails.
    fn run_job(&self, job: &Job<'_>) -> Result<()>;

    /// Runs `job` until it ends.
    ///
    /// # Errors
    /// The MPI or its compiler is not installed, or the program fails.
    fn run_mpi(&self, job: &MpiJob<'_>) -> Result<()>;

    /// Returns true if the user interrupted the run and wants only the results so far.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Properties of a lab to create.
#[derive(Clone, Copy, Debug)]
pub struct LabOrder<'a> {
    /// MTU of its interfaces in bytes.
    pub mtu: u32,
    /// Number of hosts.
    pub count: u32,
    /// Link properties in the format of `portolan lab up --link`; `None` for a bare veth pair.
    pub link: Option<&'a str>,
}

/// A job with one rank at each of `places`.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// Hosts of the ranks.
    pub places: &'a [Place],
    /// Connection to the agent of the last rank, if a server runs that rank.
    pub server: Option<Arc<TcpStream>>,
    /// Path of the messages.
    pub path: Path,
    /// Further options of the job.
    pub options: BTreeMap<String, String>,
    /// Set to run a broker at [`crate::BROKER`] on each host until the job ends.
    pub by_broker: bool,
    /// Duration of the measurement; the job may take [`crate::GRACE`] longer.
    pub lasts: Duration,
}
