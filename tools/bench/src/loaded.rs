// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ping-pong while a stream runs between the same two processes: Portolan's row, and what it
//! shares with TCP's.
//!
//! The first half of the time has no stream, the second half has. The driver keeps a few large
//! messages under way on the low lane, and the ping-pong takes the high lane; the answerer returns
//! the small messages from a handler while it waits for the large ones.

use crate::extra::{Extra, Latency};
use crate::measure::{Pace, Sample, Turn, drive};
use crate::pattern::{Flags, stamp, verify};
use crate::portolan_rows::region_of;
use crate::rows::turn_flags;
use crate::spec::Spec;
use anyhow::{Context, Result, ensure};
use portolan::{Lane, Node, PortConfig, Region, Request, Target};
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of a message of the stream.
pub(crate) const BULK_LEN: usize = 1 << 20;

/// Large messages under way, and receives posted for them: enough that the stream never waits for
/// the loop around it.
const UNDER_WAY: usize = 4;

/// Ports of the stream, of the small messages, and of their answers.
const BULK: u16 = 1;
const PINGS: u16 = 3;
const PONGS: u16 = 4;

/// Half of a row's time or count for each of the two measurements.
pub(crate) fn halved(pace: Pace) -> Pace {
    match pace {
        Pace::Seconds(seconds) => Pace::Seconds(seconds / 2.0),
        Pace::Iterations(count) => Pace::Iterations(count.div_ceil(2)),
    }
}

/// Puts the two measurements together.
pub(crate) struct Report {
    idle: Latency,
    began: Instant,
    /// Messages of the stream by the latest round trip, and when that was.
    streamed: (u64, Instant),
}

impl Report {
    /// The stream begins now.
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

    /// That many messages of the stream have gone.
    pub(crate) fn so_far(&mut self, messages: u64) {
        if messages != self.streamed.0 {
            self.streamed = (messages, Instant::now());
        }
    }

    /// The row's sample: times of the ping-pong beside the stream.
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

/// Rank 0.
///
/// # Errors
/// A payload was wrong, or the other rank is gone.
pub(crate) fn measure(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(PONGS, PortConfig::default())?;
    node.barrier()?;
    let mut pings = Pings {
        message: vec![0; spec.size],
        answer: vec![0; spec.size],
        seq: 0,
    };
    let shape = Turn::round_trips(1);
    let pace = halved(spec.pace);
    let idle = drive(pace, shape, |_| pings.exchange(node, |_| Ok(())))?;
    let mut report = Report::start(&idle);
    let mut stream = Stream::begin(node)?;
    let loaded = drive(pace, shape, |_| {
        pings.exchange(node, |node| stream.go_on(node))?;
        report.so_far(stream.arrived);
        Ok(())
    })?;
    stream.end(node)?;
    Ok(report.finish(loaded))
}

struct Pings {
    message: Vec<u8>,
    answer: Vec<u8>,
    seq: u64,
}

impl Pings {
    /// One round trip, with `meanwhile` for as long as nothing comes.
    fn exchange(
        &mut self,
        node: &mut Node,
        mut meanwhile: impl FnMut(&mut Node) -> Result<()>,
    ) -> Result<()> {
        let flags = turn_flags(self.seq, false);
        stamp(&mut self.message, self.seq, flags);
        let answer = node.post_recv(PONGS, std::mem::take(&mut self.answer))?;
        node.send(Target::new(1, PINGS).lane(Lane::High), &self.message)?;
        let completion = loop {
            if let Some(completion) = node.test(answer)? {
                break completion;
            }
            meanwhile(node)?;
        };
        ensure!(
            completion.len == self.message.len(),
            "an answer of {} bytes",
            completion.len
        );
        self.answer = completion
            .buffer
            .context("a receive gives its buffer back")?
            .into_vec();
        ensure!(
            verify(&self.answer, self.seq)? == flags,
            "the answer is not the question"
        );
        self.seq += 1;
        Ok(())
    }
}

struct Stream {
    under_way: VecDeque<Request>,
    sent: u64,
    arrived: u64,
}

impl Stream {
    fn begin(node: &mut Node) -> Result<Self> {
        let mut stream = Stream {
            under_way: VecDeque::new(),
            sent: 0,
            arrived: 0,
        };
        for _ in 0..UNDER_WAY {
            stream.send(node, Region::new(BULK_LEN)?, turn_flags(stream.sent, false))?;
        }
        Ok(stream)
    }

    /// Sends the next message as soon as the oldest has arrived.
    fn go_on(&mut self, node: &mut Node) -> Result<()> {
        let Some(oldest) = self.under_way.front() else {
            return Ok(());
        };
        let Some(completion) = node.test(*oldest)? else {
            return Ok(());
        };
        self.under_way.pop_front();
        self.arrived += 1;
        self.send(node, region_of(completion)?, Flags::NONE)
    }

    fn end(mut self, node: &mut Node) -> Result<()> {
        self.send(node, Region::new(BULK_LEN)?, Flags::LAST)?;
        for request in self.under_way {
            node.wait(request)?;
        }
        Ok(())
    }

    fn send(&mut self, node: &mut Node, mut message: Region, flags: Flags) -> Result<()> {
        stamp(&mut message, self.sent, flags);
        self.sent += 1;
        self.under_way
            .push_back(node.isend(Target::new(1, BULK), message)?);
        Ok(())
    }
}

/// Rank 1.
///
/// # Errors
/// A payload was wrong, or the other rank is gone.
pub(crate) fn answer(node: &mut Node) -> Result<()> {
    node.open_active(PINGS, PortConfig::in_place(), |context, message| {
        let to = Target::new(message.source(), PONGS).lane(Lane::High);
        if let Err(error) = context.send(to, message.bytes()) {
            // The driver waits in vain and says so; this is the reason.
            eprintln!("portolan bench: an answer could not be sent: {error}");
        }
    })?;
    node.open(BULK, PortConfig::default())?;
    let mut posted = VecDeque::new();
    for _ in 0..UNDER_WAY {
        posted.push_back(node.post_recv(BULK, Region::new(BULK_LEN)?)?);
    }
    node.barrier()?;
    for seq in 0.. {
        let request = posted.pop_front().context("a receive is always posted")?;
        // Spinning, as TCP's end does: whoever waits between two round trips must not fall asleep.
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
