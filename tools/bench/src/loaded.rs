// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ping-pong beside a stream between the same two processes: Portolan's row, and code that it
//! shares with TCP's.
//!
//! The first half of the time has no stream, the second half has one. The driver keeps a few large
//! messages in flight on the low lane, and the ping-pong uses the high lane. The answerer returns
//! the small messages from a handler while it waits for the large ones.

use crate::extra::{Extra, Latency};
use crate::measure::{Pace, Pass, Sample, drive};
use crate::pattern::{Flags, stamp, verify};
use crate::portolan_rows::region_of;
use crate::rows::pass_flags;
use crate::spec::Spec;
use anyhow::{Context, Result, ensure};
use portolan::{Lane, Node, PortConfig, Region, Request, Target};
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of a message of the stream.
pub(crate) const BULK_LEN: usize = 1 << 20;

/// Large messages in flight, and receives posted for them. They suffice for a stream that never
/// waits for the loop around it.
const IN_FLIGHT: usize = 4;

/// Ports of the stream, of the small messages, and of their answers.
const BULK: u16 = 1;
const PINGS: u16 = 3;
const PONGS: u16 = 4;

/// Returns half of a row's time or count, for each of the two measurements.
pub(crate) fn halved(pace: Pace) -> Pace {
    match pace {
        Pace::Seconds(seconds) => Pace::Seconds(seconds / 2.0),
        Pace::Iterations(count) => Pace::Iterations(count.div_ceil(2)),
    }
}

/// Combines the two measurements.
pub(crate) struct Report {
    idle: Latency,
    began: Instant,
    /// Messages of the stream by the latest round trip, with the time of that round trip.
    streamed: (u64, Instant),
}

impl Report {
    /// Starts the measurement of the stream.
    pub(crate) fn start(idle: &Sample) -> Self {
        let now = Instant::now();
        let idle = Latency {
            p50_us: idle.p50_us,
            p99_us: idle.p99_us,
        };
        Report {
            idle,
            began: now,
            streamed: (0, now),
        }
    }

    /// Records that `messages` messages of the stream have been sent so far.
    pub(crate) fn record_sent(&mut self, messages: u64) {
        if messages != self.streamed.0 {
            self.streamed = (messages, Instant::now());
        }
    }

    /// Returns the row's sample, with the times of the ping-pong beside the stream.
    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    pub(crate) fn finish(self, loaded: Sample) -> Sample {
        let (messages, at) = self.streamed;
        let elapsed = at.duration_since(self.began).as_secs_f64();
        let megabytes = messages as f64 * BULK_LEN as f64 / 1e6;
        let rate = if elapsed > 0.0 {
            megabytes / elapsed
        } else {
            0.0
        };
        let extra = Extra {
            idle: Some(self.idle),
            bulk_mbytes_per_s: Some(rate),
            ..Extra::default()
        };
        Sample { extra, ..loaded }
    }
}

/// Runs rank 0.
///
/// # Errors
/// A payload was wrong, or the other rank has failed.
pub(crate) fn measure(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(PONGS, PortConfig::default())?;
    node.barrier()?;
    let mut pings = Pings {
        message: vec![0; spec.size],
        reply: vec![0; spec.size],
        seq: 0,
    };
    let shape = Pass::round_trips(1);
    let pace = halved(spec.pace);
    let idle = drive(pace, shape, |_| pings.exchange(node, |_| Ok(())))?;
    let mut report = Report::start(&idle);
    let mut stream = Stream::begin(node)?;
    let loaded = drive(pace, shape, |_| {
        pings.exchange(node, |node| stream.send_next(node))?;
        report.record_sent(stream.arrived);
        Ok(())
    })?;
    stream.end(node)?;
    Ok(report.finish(loaded))
}

struct Pings {
    message: Vec<u8>,
    reply: Vec<u8>,
    seq: u64,
}

impl Pings {
    /// Performs one round trip, and calls `meanwhile` until the answer arrives.
    fn exchange(
        &mut self,
        node: &mut Node,
        mut meanwhile: impl FnMut(&mut Node) -> Result<()>,
    ) -> Result<()> {
        let flags = pass_flags(self.seq, false);
        stamp(&mut self.message, self.seq, flags);
        let reply = node.post_recv(PONGS, std::mem::take(&mut self.reply))?;
        node.send(Target::new(1, PINGS).lane(Lane::High), &self.message)?;
        let completion = loop {
            if let Some(completion) = node.test(reply)? {
                break completion;
            }
            meanwhile(node)?;
        };
        ensure!(
            completion.len == self.message.len(),
            "a reply of {} bytes",
            completion.len
        );
        self.reply = completion
            .buffer
            .context("a completed receive returns its buffer")?
            .into_vec();
        ensure!(
            verify(&self.reply, self.seq)? == flags,
            "the reply differs from the request"
        );
        self.seq += 1;
        Ok(())
    }
}

struct Stream {
    in_flight: VecDeque<Request>,
    sent: u64,
    arrived: u64,
}

impl Stream {
    fn begin(node: &mut Node) -> Result<Self> {
        let mut stream = Stream {
            in_flight: VecDeque::new(),
            sent: 0,
            arrived: 0,
        };
        for _ in 0..IN_FLIGHT {
            stream.send(node, Region::new(BULK_LEN)?, pass_flags(stream.sent, false))?;
        }
        Ok(stream)
    }

    /// Sends the next message as soon as the oldest has completed.
    fn send_next(&mut self, node: &mut Node) -> Result<()> {
        let Some(oldest) = self.in_flight.front() else {
            return Ok(());
        };
        let Some(completion) = node.test(*oldest)? else {
            return Ok(());
        };
        self.in_flight.pop_front();
        self.arrived += 1;
        self.send(node, region_of(completion)?, Flags::NONE)
    }

    fn end(mut self, node: &mut Node) -> Result<()> {
        self.send(node, Region::new(BULK_LEN)?, Flags::LAST)?;
        for request in self.in_flight {
            node.wait(request)?;
        }
        Ok(())
    }

    fn send(&mut self, node: &mut Node, mut message: Region, flags: Flags) -> Result<()> {
        stamp(&mut message, self.sent, flags);
        self.sent += 1;
        self.in_flight
            .push_back(node.isend(Target::new(1, BULK), message)?);
        Ok(())
    }
}

/// Runs rank 1.
///
/// # Errors
/// A payload was wrong, or the other rank has failed.
pub(crate) fn answer(node: &mut Node) -> Result<()> {
    node.open_active(PINGS, PortConfig::in_place(), |context, message| {
        let to = Target::new(message.source(), PONGS).lane(Lane::High);
        if let Err(error) = context.send(to, message.bytes()) {
            // The driver times out and reports that; this line gives the reason.
            eprintln!("portolan bench: a reply could not be sent: {error}");
        }
    })?;
    node.open(BULK, PortConfig::default())?;
    let mut posted = VecDeque::new();
    for _ in 0..IN_FLIGHT {
        posted.push_back(node.post_recv(BULK, Region::new(BULK_LEN)?)?);
    }
    node.barrier()?;
    for seq in 0.. {
        let request = posted.pop_front().context("a receive is always posted")?;
        // Spins like TCP's end: a process that waits between two round trips must not sleep.
        let completion = loop {
            if let Some(completion) = node.test(request)? {
                break completion;
            }
        };
        let message = region_of(completion)?;
        if verify(&message, seq)?.last {
            break;
        }
        posted.push_back(node.post_recv(BULK, message)?);
    }
    Ok(())
}
