// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the papers' interfaces: the same work as Portolan's own rows, through a C library on top
//! of it. The metrics are those of the papers' evaluations: ping-pong, LogP, and streams in one and
//! both directions.

mod bip;
mod gamma;
mod gm;
mod vipl;

use crate::args::{Metric, Path};
use crate::bidir;
use crate::costs::Costs;
use crate::logp::{self, Endpoint};
use crate::measure::{SHM_BATCH, Sample};
use crate::pattern::{Flags, stamp, verify};
use crate::place::pin;
use crate::portolan_rows::write_result;
use crate::spec::{Program, Role, Spec, window};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// C libraries on top of Portolan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Interface {
    /// `bip.h`.
    Bip,
    /// `gamma.h`.
    Gamma,
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
            Interface::Gamma => "gamma",
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
            Interface::Gamma | Interface::Gm | Interface::GmPlus | Interface::Vipl => size > 0,
        }
    }

    /// Returns true if the interface measures `metric`.
    pub(crate) fn measures(metric: Metric) -> bool {
        matches!(
            metric,
            Metric::Pingpong | Metric::Logp | Metric::Stream | Metric::Bidir
        )
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
        Interface::Gamma => play(&mut gamma::Gamma::join(spec.size)?, spec, metric),
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

    /// Starts to send `message`, which must not change before [`Member::complete`].
    fn begin(&mut self, message: &[u8]) -> Result<()> {
        self.send(message)
    }

    /// Waits until the messages of [`Member::begin`] may change.
    fn complete(&mut self) -> Result<()>;

    /// Lets the next [`Endpoint::receive`], which passes the same memory, start now, if a long send
    /// waits for that.
    fn prepare(&mut self, _message: &mut [u8]) -> Result<()> {
        Ok(())
    }

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
        (Metric::Stream, Role::Driver) => Some(member.send_windows(spec)?),
        (Metric::Stream, Role::Answerer) => member.receive_windows(spec).map(|()| None)?,
        (Metric::Bidir, _) => both_ways(member, spec)?,
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

/// Runs an end of streams in both directions at once.
fn both_ways(member: &mut impl Member, spec: &Spec) -> Result<Option<Sample>> {
    let role = member.role();
    let mut end = BothWays {
        member,
        outgoing: vec![0; spec.size],
        incoming: vec![0; spec.size],
    };
    match role {
        Role::Driver => bidir::drive_windows(spec, |seq, flags| end.exchange(seq, flags)).map(Some),
        Role::Answerer => {
            bidir::answer_windows(|seq, flags| end.exchange(seq, flags), || {}).map(|()| None)
        }
    }
}

/// Sends that start before the message that they are exchanged for has arrived.
const SENDS_AHEAD: u64 = 2;

struct BothWays<'a, T> {
    member: &'a mut T,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl<T: Member> BothWays<'_, T> {
    /// Sends a window with `flags` and receives one. Returns the flags of the received window.
    fn exchange(&mut self, seq: u64, flags: Flags) -> Result<Flags> {
        let messages = window(self.outgoing.len());
        stamp(&mut self.outgoing, seq, flags);
        let mut received = Flags::NONE;
        let mut sent = 0;
        for index in 0..messages {
            self.member.prepare(&mut self.incoming)?;
            while sent < messages.min(index + SENDS_AHEAD) {
                self.member.begin(&self.outgoing)?;
                sent += 1;
            }
            self.member.receive(&mut self.incoming)?;
            received = verify(&self.incoming, seq)?;
        }
        self.member.complete()?;
        Ok(received)
    }
}
