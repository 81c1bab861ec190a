// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole clusters, simulated over the real protocol core in virtual time.
//!
//! A run draws everything from one seed: processes and hosts, links, latencies, bandwidths, switch
//! buffers, faults, traffic. Each process is the real [`portolan_proto::Core`] with a small engine
//! around it; wires, shared memory and clocks are made up. Checkers know what the programs were
//! promised and stop the run at the first broken promise. No sockets, no threads, no clock: the
//! same seed gives the same run, event by event.
//!
//! What is checked: each message arrives once, whole, unaltered and in the order of its peer, lane
//! and port; every operation ends; nothing on a live and reachable peer fails; buffers are neither
//! touched after they were given back nor kept; credit and memory are all back at the end; frames
//! are dropped only for reasons that the faults in play explain.

mod canary;
mod capture;
mod clock;
mod context;
mod cuts;
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

pub use canary::Canary;
pub use cuts::{Cut, Cuts};
pub use plan::Plan;
pub use scenario::{Flow, OPENING_LEN, Scenario};
pub use shrink::{Shrunk, shrink};
pub use world::{Arrival, Failure, Options, Report, simulate, simulate_plan};
