// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time loop of one process.

use crate::block::Block;
use crate::comm::Comm;
use crate::decompose::Layout;
use crate::halo::Halo;
use anyhow::Result;
use std::time::{Duration, Instant};

/// Advances `block` by `steps` steps and returns the time spent in calls of the network.
///
/// # Errors
/// When a neighbour has failed.
pub fn march<C: Comm>(
    comm: &mut C,
    layout: &Layout,
    block: &mut Block,
    alpha: f64,
    steps: u64,
) -> Result<Duration> {
    let mut communicating = Duration::ZERO;
    let mut halo = Halo::new(comm, layout, block, steps)?;
    for _ in 0..steps {
        communicating += timed(|| halo.begin(comm, block))?;
        block.relax_inner(alpha);
        communicating += timed(|| halo.finish(comm, block))?;
        block.relax_rim(alpha);
    }
    Ok(communicating)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
