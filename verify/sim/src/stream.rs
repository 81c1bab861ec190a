// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams: TCP connections between two processes that send pages without copying them. Bytes
//! arrive in order or not at all. A connection may be slow or refused, and may end at any moment.
//!
//! Sent pages are not copied. A part refers to the memory of its sender. It is read when the
//! receiver takes the bytes, as late as possible, or when they leave the sender's system.
//!
//! Invariant: each event either removes bytes from a connection, or is later than the one before.

use crate::plan::StreamPlan;
use crate::queue::{Happening, Queue};
use portolan_proto::{PushRequest, StreamMessage};
use portolan_wire::{Chunk, Done};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// Time limit for opening a connection, as in the link.
const PATIENCE_NS: u64 = 3_000_000_000;

/// First timeout of TCP; each consecutive one is twice as long.
const TIMEOUT_NS: u64 = 200_000_000;

/// Consecutive timeouts after which the sender closes the connection, as the engine does.
const TIMEOUTS_MAX: u32 = 2;

/// Time within which an end is detected, unless a send detects it earlier.
const END_DETECTION_NS: u64 = 300_000_000;

/// Event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamEvent {
    /// The greeting has reached the accepting process.
    Greeting,
    /// The answer to the greeting has returned.
    Reply { ok: bool },
    /// The time limit for an answer has expired.
    AnswerTimeout,
    /// A part has reached the system of this end.
    Landed { end: usize },
    /// This end is ready to receive.
    Read { end: usize },
    /// Check whether this end was used recently.
    Idle { end: usize },
    /// The path between the two systems has failed.
    Break,
    /// This end's system detects that the other end has closed.
    Ended { end: usize },
}

/// Payload of a part.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Bytes in the memory of this operation of the sender.
    InPlace { op: u64, off: usize },
    /// Copy of the bytes at the time of sending.
    Copied(Vec<u8>),
}

/// Contents of a part, as its head describes them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents {
    /// Bytes of a transfer.
    Chunk(Chunk),
    /// Eager message.
    Message(StreamMessage),
    /// First bytes of a transfer, behind its request and the completion of another one.
    Push(PushRequest, Option<Done>),
}

/// Part in transit.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) contents: Contents,
    pub(crate) payload: Payload,
    pub(crate) len: usize,
    /// Number of bytes that the receiver has taken.
    pub(crate) taken: usize,
    /// Checksum set by the sender, if parts have one; and the checksum of the bytes taken so far.
    pub(crate) sum: Option<u64>,
    pub(crate) sum_taken: u64,
}

/// Parts from one end to the other, in order.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    pub(crate) parts: VecDeque<Part>,
    /// Number of parts that have landed, and bytes of all parts.
    pub(crate) landed: usize,
    pub(crate) used_len: usize,
    /// Time when the last part has been sent.
    free_ns: u64,
    /// Consecutive timeouts, and the time of the next one.
    timeouts: u32,
    timeout_ns: u64,
    /// Earliest `Read` in the queue.
    read_at: u64,
    /// Set if the sender was refused.
    pub(crate) is_starved: bool,
    /// Set if nothing follows the parts that have landed.
    pub(crate) is_ended: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    /// Opener and acceptor.
    pub(crate) ends: [u32; 2],
    pub(crate) lives: [u32; 2],
    /// Tokens of the session: the opener's, then the acceptor's.
    pub(crate) tokens: [u64; 2],
    pub(crate) is_opening: bool,
    pub(crate) is_open: [bool; 2],
    pub(crate) is_used: [bool; 2],
    pub(crate) is_broken: bool,
    /// From the opener to the acceptor, and back.
    pub(crate) directions: [Direction; 2],
}

impl Connection {
    /// Returns the index of a process's end.
    pub(crate) fn end_of(&self, node: u32) -> usize {
        usize::from(self.ends[0] != node)
    }

    /// Returns true if no part is in transit in either direction, as far as this end can determine.
    pub(crate) fn is_between_parts(&self, end: usize, buffer_len: usize) -> bool {
        let is_begun = self.directions[1 - end]
            .parts
            .front()
            .is_some_and(|part| part.taken > 0);
        !is_begun && self.directions[end].used_len <= buffer_len
    }
}

/// Result of sending a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Taken,
    Full,
    /// Not sent, because the connection has ended.
    Ended,
}

/// All connections of a run.
#[derive(Debug)]
pub(crate) struct Streams {
    plan: Option<StreamPlan>,
    rng: ChaCha8Rng,
    pub(crate) all: Vec<Connection>,
}

impl Streams {
    pub(crate) fn new(plan: &crate::Plan) -> Streams {
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
        rng.set_stream(2);
        Streams {
            plan: plan.streams,
            rng,
            all: Vec::new(),
        }
    }

    fn plan(&self) -> StreamPlan {
        self.plan.unwrap_or_default()
    }

    pub(crate) fn roll(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share)
    }

    /// Starts a connection from one process to another.
    pub(crate) fn begin(
        &mut self,
        queue: &mut Queue,
        now: u64,
        ends: [u32; 2],
        lives: [u32; 2],
        tokens: [u64; 2],
    ) {
        let id = self.all.len();
        self.all.push(Connection {
            ends,
            lives,
            tokens,
            is_opening: true,
            is_open: [false; 2],
            is_used: [true; 2],
            is_broken: false,
            directions: Default::default(),
        });
        for direction in &mut self.all[id].directions {
            direction.read_at = u64::MAX;
        }
        let plan = self.plan();
        // A packet filter drops or refuses connections it does not allow.
        let is_dropped = self.roll(plan.dropped);
        let push = |queue: &mut Queue, at, what| queue.push(at, Happening::Stream { id, what });
        push(queue, now + PATIENCE_NS, StreamEvent::AnswerTimeout);
        let to = now + plan.latency_ns;
        if !is_dropped && self.roll(plan.refused) {
            let back = to + plan.latency_ns;
            push(queue, back, StreamEvent::Reply { ok: false });
        } else if !is_dropped {
            push(queue, to, StreamEvent::Greeting);
        }
    }

    /// Draws the fate of a connection that is open at both ends.
    pub(crate) fn on_open(&mut self, queue: &mut Queue, now: u64, id: usize) {
        let plan = self.plan();
        if self.roll(plan.broken) {
            let at = now + self.rng.random_range(0..=plan.broken_ns);
            let what = StreamEvent::Break;
            queue.push(at, Happening::Stream { id, what });
        }
    }

    /// Schedules another check whether an end is idle.
    pub(crate) fn watch(&self, queue: &mut Queue, now: u64, id: usize, end: usize) {
        let at = now + self.plan().idle_ns;
        let what = StreamEvent::Idle { end };
        queue.push(at, Happening::Stream { id, what });
    }

    /// Closes an end at once: data not sent yet is dropped, and the other end detects the close.
    pub(crate) fn leave(&mut self, queue: &mut Queue, now: u64, id: usize, end: usize) {
        let connection = &mut self.all[id];
        connection.is_open[end] = false;
        if end == 0 {
            connection.is_opening = false;
        }
        let direction = &mut connection.directions[end];
        direction.parts.truncate(direction.landed);
        connection.directions[1 - end].parts.clear();
        connection.directions[1 - end].landed = 0;
        self.report_end(queue, now, id, 1 - end);
    }

    /// Closes an end after its process has exited. Its system sends the data it has taken before it
    /// closes.
    pub(crate) fn fade(&mut self, queue: &mut Queue, now: u64, id: usize, end: usize) {
        let latency_ns = self.plan().latency_ns;
        let connection = &mut self.all[id];
        connection.is_open[end] = false;
        connection.is_opening &= end != 0;
        connection.directions[1 - end].parts.clear();
        connection.directions[1 - end].landed = 0;
        let at = connection.directions[end].free_ns.max(now) + latency_ns + 1;
        let what = StreamEvent::Ended { end: 1 - end };
        queue.push(at, Happening::Stream { id, what });
    }

    /// Reports to an end that the other one has closed.
    pub(crate) fn report_end(&mut self, queue: &mut Queue, now: u64, id: usize, end: usize) {
        let plan = self.plan();
        let at = now + plan.latency_ns;
        let what = StreamEvent::Ended { end };
        queue.push(at, Happening::Stream { id, what });
    }

    /// Breaks the connection; each end detects it at some time.
    pub(crate) fn break_up(&mut self, queue: &mut Queue, now: u64, id: usize) {
        self.all[id].is_broken = true;
        for end in [0, 1] {
            let direction = &mut self.all[id].directions[end];
            direction.parts.truncate(direction.landed);
            let at = now + self.rng.random_range(0..END_DETECTION_NS);
            let what = StreamEvent::Ended { end };
            queue.push(at, Happening::Stream { id, what });
        }
    }

    /// Accepts a part to be sent from this end.
    pub(crate) fn send(
        &mut self,
        queue: &mut Queue,
        now: u64,
        id: usize,
        end: usize,
        part: Part,
    ) -> Sent {
        let plan = self.plan();
        let is_found = self.all[id].is_broken && self.roll(0.3);
        let is_late = self.roll(plan.stalled);
        let stall_ns = match is_late {
            true => self.rng.random_range(0..=plan.stall_ns),
            false => 0,
        };
        let connection = &mut self.all[id];
        if is_found {
            return Sent::Ended;
        }
        let (is_broken, direction) = (connection.is_broken, &mut connection.directions[end]);
        // The pipe and the socket together take one part more than fits the socket.
        if direction.used_len > plan.buffer_len {
            direction.is_starved = true;
            return Sent::Full;
        }
        connection.is_used[end] = true;
        if is_broken || !connection.is_open[1 - end] && !connection.is_opening {
            return Sent::Taken;
        }
        direction.used_len += part.len;
        let wire_ns = part.len as u64 * 1_000_000_000 / plan.bandwidth;
        direction.free_ns = direction.free_ns.max(now) + wire_ns + stall_ns;
        direction.parts.push_back(part);
        let at = direction.free_ns + plan.latency_ns;
        let what = StreamEvent::Landed { end: 1 - end };
        queue.push(at, Happening::Stream { id, what });
        Sent::Taken
    }

    /// Lands the next part at this end, or delays it because the path is `cut`. Returns `false`
    /// after too many timeouts of the sender.
    pub(crate) fn land(
        &mut self,
        queue: &mut Queue,
        now: u64,
        (id, end): (usize, usize),
        cut: bool,
    ) -> bool {
        let direction = &mut self.all[id].directions[1 - end];
        if direction.landed == direction.parts.len() {
            return true;
        }
        if !cut {
            direction.timeouts = 0;
            direction.landed += 1;
            return true;
        }
        if now >= direction.timeout_ns {
            direction.timeout_ns = now + (TIMEOUT_NS << direction.timeouts.min(6));
            direction.timeouts += 1;
        }
        let what = StreamEvent::Landed { end };
        queue.push(direction.timeout_ns, Happening::Stream { id, what });
        direction.timeouts <= TIMEOUTS_MAX
    }

    pub(crate) fn schedule_read(&mut self, queue: &mut Queue, at: u64, (id, end): (usize, usize)) {
        let direction = &mut self.all[id].directions[1 - end];
        if at < direction.read_at {
            direction.read_at = at;
            let what = StreamEvent::Read { end };
            queue.push(at, Happening::Stream { id, what });
        }
    }

    /// Returns true if a `Read` now is the one that was scheduled last.
    pub(crate) fn takes_read(&mut self, now: u64, (id, end): (usize, usize)) -> bool {
        let direction = &mut self.all[id].directions[1 - end];
        let is_due = now >= direction.read_at;
        if is_due {
            direction.read_at = u64::MAX;
        }
        is_due
    }

    /// Flips a bit of the received bytes with some probability.
    pub(crate) fn corrupt(&mut self, bytes: &mut [u8]) {
        if self.roll(self.plan().corrupt) {
            let bit = self.rng.random_range(0..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Returns the length in bytes of the next piece of a part with `left` bytes to come.
    pub(crate) fn piece_len(&mut self, left: usize) -> usize {
        let most = left.min(self.plan().piece_len_max);
        match self.roll(0.5) {
            true => most,
            false => self.rng.random_range(1..=most.max(1)),
        }
        .max(left.min(LEAST_PIECE_LEN))
    }

    /// Frees `len` bytes that the receiver has taken. Returns true if the sender, which was
    /// refused, must retry.
    pub(crate) fn free_space(&mut self, id: usize, end: usize, len: usize) -> bool {
        let buffer_len = self.plan().buffer_len;
        let direction = &mut self.all[id].directions[1 - end];
        direction.used_len -= len;
        let has_room = direction.is_starved && direction.used_len <= buffer_len;
        direction.is_starved &= !has_room;
        has_room
    }
}

/// Minimum length of a piece in bytes; shorter pieces of long parts would only take time.
const LEAST_PIECE_LEN: usize = 1500;

/// Computes FNV-1a over words, which detects a changed byte piece by piece.
pub(crate) fn sum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
