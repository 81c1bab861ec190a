// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulation of whole clusters over the real protocol core in virtual time.
//!
//! A run draws everything from one seed: processes and hosts, links, latencies, bandwidths, switch
//! buffers, faults, traffic. Each process is the real [`portolan_proto::Core`] with a small engine
//! around it; wires, shared memory and clocks are simulated. Checkers record all guarantees given
//! to the programs and stop the run at the first violation. There are no sockets, no threads and no
//! clock: the same seed gives the same run, event by event.
//!
//! Checked guarantees: each message arrives once, complete, unaltered and in the order of its peer,
//! lane and port. Every operation completes. Nothing on a live and reachable peer fails. Buffers
//! are neither accessed after they were returned nor leaked. All credit and memory is returned at
//! the end. Frames are dropped only for reasons that the active faults explain.

mod canary;
mod capture;
mod clock;
mod context;
mod cuts;
mod engine;
mod faults;
mod ledger;
pub mod liveness;
mod net;
mod node;
mod payload;
mod plan;
mod program;
mod queue;
mod scenario;
mod shm;
mod shrink;
mod stream;
mod trace;
mod world;

pub use canary::{Canary, named};
pub use cuts::{Cut, Cuts};
pub use engine::{
    CompareRow, EngineFailure, EngineOptions, EnginePlan, EngineReport, FragmentsRow, ScaleRow,
    all_to_all, collective, compare, fragments_table, in_fragments, incast, rolling_failure,
    simulate_engine,
};
pub use plan::Plan;
pub use portolan::binding::simulated::Canary as EngineCanary;
pub use scenario::{Flow, OPENING_LEN, Scenario};
pub use shrink::{Shrunk, shrink};
pub use world::{Arrival, Failure, Options, Report, simulate, simulate_plan};
