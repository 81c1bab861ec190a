// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job from the image to the report, as every process runs it.

use crate::block::Block;
use crate::comm::{Channel, Comm};
use crate::decompose::Layout;
use crate::field::{Field, check_alpha, check_size};
use crate::march::march;
use crate::picture::{Palette, check_writable, read_pgm, write_png};
use crate::report::ratio;
use crate::spread::{gather, scatter};
use crate::{HeatError, Report};
use anyhow::{Result, bail, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of a job.
#[derive(Clone, Debug)]
pub struct Options {
    /// PGM image with the initial field; only rank 0 reads it.
    pub input: PathBuf,
    /// Time steps.
    pub steps: u64,
    /// Diffusion number, D dt / dx^2.
    pub alpha: f64,
    /// Compare the result with the sequential solution.
    pub check: bool,
    /// PNG image for the result; only rank 0 writes it.
    pub output: Option<PathBuf>,
    /// Colours of the result.
    pub palette: Palette,
}

/// Successful end of a process's part in the job.
#[derive(Debug)]
pub enum Outcome {
    /// All steps are done; on rank 0.
    Finished(Report),
    /// All steps are done; on other ranks.
    Done,
    /// Rank 0 cancelled the job, and reports the reason.
    CalledOff,
}

/// Runs this process's part.
///
/// # Errors
/// On rank 0: [`HeatError`] for user mistakes, and an error for a result that differs from the
/// sequential solution. On all ranks: failures of the network.
pub fn run<C: Comm>(comm: &mut C, options: &Options) -> Result<Outcome> {
    for channel in Channel::ALL {
        comm.open(channel)?;
    }
    // No process may send before all processes can receive.
    comm.barrier()?;
    let Some((layout, initial)) = agree(comm, options)? else {
        return Ok(Outcome::CalledOff);
    };
    let cells = scatter(comm, &layout, initial.as_ref())?;
    let mut block = Block::new(&layout, comm.rank(), &cells);

    comm.barrier()?;
    let start = Instant::now();
    let own_time = march(comm, &layout, &mut block, options.alpha, options.steps)?;
    // The share of this process's own time, because other processes began a little earlier or
    // later.
    let own_share = ratio(own_time.as_secs_f64(), start.elapsed().as_secs_f64());
    comm.barrier()?;
    let elapsed = start.elapsed();

    let result = gather(comm, &layout, &block.cells())?;
    let communicating = collect_shares(comm, own_share)?;
    // No process may leave before all messages have arrived.
    comm.barrier()?;
    let (Some(initial), Some(result)) = (initial, result) else {
        return Ok(Outcome::Done);
    };
    let (steps, alpha, output) = (options.steps, options.alpha, options.output.clone());
    let checked = options
        .check
        .then(|| check(&initial, &result, options))
        .transpose()?;
    if let Some(path) = &output {
        write_png(path, &result, options.palette)?;
    }
    let report = Report {
        layout,
        steps,
        alpha,
        elapsed,
        communicating,
        checked,
        output,
    };
    Ok(Outcome::Finished(report))
}

/// Lets rank 0 read the image and send the size of the field to all processes. Sides of 0 cancel
/// the job.
fn agree<C: Comm>(comm: &mut C, options: &Options) -> Result<Option<(Layout, Option<Field>)>> {
    let ranks = comm.size();
    if comm.rank() != 0 {
        let (width, height) = receive_sides(comm)?;
        if (width, height) == (0, 0) {
            return Ok(None);
        }
        check_size(width, height)?;
        return Ok(Some((Layout::new(width, height, ranks)?, None)));
    }
    let plan = prepare(options, ranks);
    let sides = plan
        .as_ref()
        .map_or((0, 0), |(layout, _)| (layout.width, layout.height));
    send_sides(comm, sides)?;
    let (layout, field) = plan?;
    Ok(Some((layout, Some(field))))
}

/// Checks on rank 0 that the job can be done, and reads the field.
fn prepare(options: &Options, ranks: usize) -> Result<(Layout, Field), HeatError> {
    check_alpha(options.alpha)?;
    if let Some(path) = &options.output {
        check_writable(path)?;
    }
    let field = read_pgm(&options.input)?;
    let layout = Layout::new(field.width(), field.height(), ranks)?;
    Ok((layout, field))
}

fn send_sides<C: Comm>(comm: &mut C, (width, height): (usize, usize)) -> Result<()> {
    let sides = [width as u64, height as u64].map(u64::to_le_bytes);
    for to in 1..comm.size() {
        comm.send(to, Channel::Plan, sides.as_flattened())?;
    }
    Ok(())
}

fn receive_sides<C: Comm>(comm: &mut C) -> Result<(usize, usize)> {
    let mut bytes = [[0; 8]; 2];
    let received = comm.recv(Channel::Plan, bytes.as_flattened_mut())?;
    ensure!(
        received.len == 16,
        "plan: {} bytes where 16 were due",
        received.len
    );
    let [width, height] = bytes.map(u64::from_le_bytes);
    Ok((usize::try_from(width)?, usize::try_from(height)?))
}

/// Collects the communication share of each rank on rank 0, in the order of the ranks.
fn collect_shares<C: Comm>(comm: &mut C, own: f64) -> Result<Vec<f64>> {
    if comm.rank() != 0 {
        comm.send(0, Channel::Shares, &own.to_le_bytes())?;
        return Ok(Vec::new());
    }
    let mut shares = vec![own; comm.size()];
    for _ in 1..comm.size() {
        let mut bytes = [0; 8];
        let received = comm.recv(Channel::Shares, &mut bytes)?;
        ensure!(
            received.len == 8,
            "shares: {} bytes where 8 were due",
            received.len
        );
        shares[received.source] = f64::from_le_bytes(bytes);
    }
    Ok(shares)
}

/// Compares `result` with the sequential solution, bit for bit, and returns the time this took.
fn check(initial: &Field, result: &Field, options: &Options) -> Result<Duration> {
    let start = Instant::now();
    let expected = initial.diffused(options.alpha, options.steps);
    let elapsed = start.elapsed();
    if let Some(((x, y), count)) = expected.difference(result) {
        let index = y * result.width() + x;
        let (should, is) = (expected.cells()[index], result.cells()[index]);
        bail!(
            "check failed: {count} cells differ from the sequential solution, the first in column \
             {x}, row {y}: {is:e} instead of {should:e}"
        );
    }
    Ok(elapsed)
}

#[cfg(test)]
mod tests;
