// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the papers' interfaces: the same work as Portolan's own rows, through a C library on top
//! of it. The metrics are ping-pong and LogP, as in the papers' evaluations.

mod bip;
mod gm;
mod vipl;

use crate::args::{Metric, Path};
use crate::costs::Costs;
use crate::logp::{self, Endpoint};
use crate::measure::SHM_BATCH;
use crate::place::pin;
use crate::portolan_rows::write_result;
use crate::spec::{Program, Role, Spec};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// C libraries on top of Portolan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Interface {
    /// `bip.h`.
    Bip,
    /// `gm.h`.
    Gm,
    /// `gm.h` with the options of GM+.
    #[value(name = "gm+")]
    GmPlus,
    /// `vipl.h`.
    Vipl,
}

impl Interface {
    /// Returns the name in the table and the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Interface::Bip => "bip",
            Interface::Gm => "gm",
            Interface::GmPlus => "gm+",
            Interface::Vipl => "vipl",
        }
    }

    /// Returns true if messages of `size` bytes can be sent and stamped.
    pub(crate) fn carries(self, size: usize) -> bool {
        match self {
            // A message consists of words of four bytes.
            Interface::Bip => size > 0 && size.is_multiple_of(4),
            Interface::Gm | Interface::GmPlus | Interface::Vipl => size > 0,
        }
    }

    /// Returns true if the interface measures `metric`.
    pub(crate) fn measures(metric: Metric) -> bool {
        matches!(metric, Metric::Pingpong | Metric::Logp)
    }
}

/// Runs one rank of a row through `interface`.
///
/// # Errors
/// A message was wrong, or the result cannot be written. The libraries terminate the process on
/// fatal errors.
pub(crate) fn work(spec: &Spec, interface: Interface, metric: Metric) -> Result<()> {
    match interface {
        Interface::Bip => play(&mut bip::Bip::join()?, spec, metric),
        Interface::Gm => play(&mut gm::Gm::open(spec.size, 0)?, spec, metric),
        Interface::GmPlus => play(&mut gm::Gm::open(spec.size, gm::PLUS)?, spec, metric),
        Interface::Vipl => play(&mut vipl::Vipl::connect(spec.size)?, spec, metric),
    }
}

/// Bytes of the longest control message of the loops: the times of a burst.
const CONTROL_LEN_MAX: usize = 256;

/// Copies of control messages that are in flight. The loops reuse their buffers at once and have
/// one or two control messages in flight.
#[derive(Default)]
struct ControlBuffers {
    buffers: Box<[ControlBuffer; 4]>,
    next: usize,
}

#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL_LEN_MAX]);

impl Default for ControlBuffer {
    fn default() -> ControlBuffer {
        ControlBuffer([0; CONTROL_LEN_MAX])
    }
}

impl ControlBuffers {
    /// Copies `message`, which has at most [`CONTROL_LEN_MAX`] bytes, and returns the copy.
    fn copy(&mut self, message: &[u8]) -> &[u8] {
        self.next = (self.next + 1) % self.buffers.len();
        let ControlBuffer(buffer) = &mut self.buffers[self.next];
        buffer[..message.len()].copy_from_slice(message);
        &buffer[..message.len()]
    }
}

/// An end with a fixed role.
trait Member: Endpoint {
    fn role(&self) -> Role;

    /// Waits until all sent messages have been received, so that this end may exit.
    fn end(&mut self) -> Result<()>;
}

fn play(member: &mut impl Member, spec: &Spec, metric: Metric) -> Result<()> {
    let role = member.role();
    if let Some(cores) = spec.cores {
        pin(cores[role.index()]).context("cannot pin to a core")?;
    }
    let batch = match spec.program {
        Program::Interface(_, _, Path::Shm) => SHM_BATCH,
        _ => 1,
    };
    let sample = match (metric, role) {
        (Metric::Pingpong, Role::Driver) => Some(logp::ping(member, spec, batch)?),
        (Metric::Pingpong, Role::Answerer) => logp::pong(member, spec).map(|()| None)?,
        (Metric::Logp, Role::Driver) => Some(logp::measure(member, spec)?),
        (Metric::Logp, Role::Answerer) => logp::answer(member, spec).map(|()| None)?,
        _ => bail!("{metric} is not measured by the papers' interfaces"),
    };
    member.end()?;
    let Some(mut sample) = sample else {
        return Ok(());
    };
    if !spec.calls {
        sample.extra.costs = Costs::default();
    }
    write_result(spec, &sample)
}
