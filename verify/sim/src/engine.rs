// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulation of the engine that ships: endpoints, and nodes of a job, in one thread and in virtual
//! time.
//!
//! A run draws its processes, network, programs and faults from a seed. Each process is a real
//! [`Endpoint`](portolan::binding::Endpoint) or [`Node`](portolan::Node) over a port of
//! [`SimNet`](portolan::binding::simulated::SimNet). The world does what threads and the kernel do
//! otherwise: it moves frames and liveness probes, lets processes sleep, wake, compute and die, and
//! runs the turns of their helpers.
//!
//! Checked guarantees: every operation ends, once, and in time. Messages arrive once, in order and
//! unaltered, and so do puts and gets. Collective operations have the right results, and fail for
//! all members if one dies. Nothing fails between live processes. Closing delivers what was
//! accepted. If no process ended early, all memory is free at the end.

mod endpoint;
mod job;
mod oracle;
mod plan;
mod process;
mod scale;
mod world;

pub use plan::EnginePlan;
pub use scale::{
    CompareRow, FragmentsRow, ScaleRow, all_to_all, collective, compare, fragments_table,
    in_fragments, incast, rolling_failure,
};

use portolan::binding::simulated::Canary;
use std::fmt;
use std::time::Duration;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineOptions {
    /// Seed from which everything is drawn.
    pub seed: u64,
    /// Deliberate fault to add to the engine. Only builds with debug assertions have any.
    pub canary: Option<Canary>,
    /// Print every event.
    pub trace: bool,
}

/// Result of a run without a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// Number of processes.
    pub processes: u32,
    /// Number of frames sent.
    pub frame_count: u64,
    /// Number of operations that succeeded.
    pub done_count: u64,
    /// Number of operations that failed, each for a reason explained by a fault.
    pub failed_count: u64,
    /// Number of engine turns.
    pub turn_count: u64,
    /// Virtual time at the end.
    pub virtual_time: Duration,
    /// Hash over all events.
    pub trace_hash: u64,
}

/// Violation of a guarantee.
#[derive(Clone, Debug)]
pub struct EngineFailure {
    /// Plan of the run.
    pub plan: String,
    /// Description of the violation.
    pub violation: String,
    /// Virtual time of the violation.
    pub at: Duration,
    /// Seed of the run.
    pub seed: u64,
}

impl fmt::Display for EngineFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineFailure {
            plan,
            violation,
            at,
            seed,
        } = self;
        writeln!(f, "{plan}")?;
        writeln!(f, "at {:.6} s: {violation}", at.as_secs_f64())?;
        write!(f, "reproduce: portolan-sim engine --seed {seed} --seeds 1")
    }
}

/// Simulates one seed.
///
/// # Errors
/// The first violation, a panic included.
pub fn simulate_engine(options: &EngineOptions) -> Result<EngineReport, Box<EngineFailure>> {
    let plan = EnginePlan::draw(options.seed);
    world::run(plan, options)
}
