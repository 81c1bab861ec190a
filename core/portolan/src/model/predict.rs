// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipeline model: predicts the time of a message alone and in a stream.

use super::{Far, PathModel, Stage, Stages};

/// Protocol of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Eager: copied and sent at once.
    Eager,
    /// Rendezvous: sent after a request and its answer.
    Rendezvous,
}

/// Load of the path beside the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A single message: the time from its call to its arrival.
    Lone,
    /// One of a stream of messages: the time from one arrival to the next.
    Stream,
}

/// Calls, datagrams and bytes that a stage processes.
#[derive(Clone, Copy, Debug)]
struct Work {
    calls: f64,
    datagrams: f64,
    bytes: f64,
}

impl Stage {
    /// Returns the stage's cost for a message, in microseconds.
    fn cost(&self, work: Work) -> f64 {
        self.per_call_us * work.calls
            + self.per_datagram_us * work.datagrams
            + self.per_byte_ns * work.bytes / 1e3
    }

    fn is_finite(&self) -> bool {
        [self.per_call_us, self.per_datagram_us, self.per_byte_ns]
            .iter()
            .all(|cost| cost.is_finite())
    }

    fn is_sane(&self) -> bool {
        let least = self.per_call_us.min(self.per_datagram_us);
        self.is_finite() && least.min(self.per_byte_ns) >= 0.0
    }
}

/// Part of the stages' own cost that a prediction never falls below, whatever the corrections are.
const FLOOR: f64 = 0.1;

impl Stages {
    /// Returns the cost of the slowest stage, which limits a stream.
    fn slowest(&self, work: Work) -> f64 {
        let stages = [self.sender, self.wire, self.receiver];
        stages
            .map(|stage| stage.cost(work))
            .into_iter()
            .fold(0.0, f64::max)
    }

    /// Returns the time through all stages, one after another.
    fn through(&self, work: Work) -> f64 {
        let forth = self.sender.cost(work) + self.wire.cost(work) + self.receiver.cost(work);
        // At least the receiver's own work is never hidden.
        (forth - self.overlap.cost(work)).max(self.receiver.cost(work))
    }
}

impl PathModel {
    /// Returns the protocol that a message of `len` bytes uses by default.
    #[must_use]
    pub fn default_protocol(&self, len: u64) -> Protocol {
        if len <= self.eager_len_bound || self.rendezvous.is_none() {
            Protocol::Eager
        } else {
            Protocol::Rendezvous
        }
    }

    /// Predicts the time of a message of `len` bytes in calls of at most `call_len` (0: as many
    /// bytes as a call takes), in microseconds. Returns `None` if this protocol was not measured.
    ///
    /// The first call of a lone message passes through all stages, and each further call costs the
    /// time of the slowest stage. While the slowest stage processes one call, the others have
    /// finished theirs.
    #[must_use]
    pub fn predict(&self, len: u64, protocol: Protocol, load: Load, call_len: u64) -> Option<f64> {
        let stages = match protocol {
            Protocol::Eager => &self.eager,
            Protocol::Rendezvous => self.rendezvous.as_ref()?,
        };
        let first = self.first_call(len, call_len);
        let calls = (len as f64 / first.max(1) as f64).ceil().max(1.0);
        let all = self.work(len, calls);
        let further = self.further_call_us * (calls - 1.0);
        let us = match load {
            Load::Stream => {
                let slowest = stages.slowest(all);
                // Once per message, whatever pieces it is cut into.
                let once = Work { calls: 1.0, ..all };
                let beyond = stages.in_stream.cost(once) + far(&self.far_streaming, len);
                (slowest + further + beyond).max(FLOOR * slowest)
            }
            Load::Lone => {
                let head = self.work(first, 1.0);
                let rest = Work {
                    calls: all.calls - head.calls,
                    datagrams: (all.datagrams - head.datagrams).max(0.0),
                    bytes: all.bytes - head.bytes,
                };
                let handshake = if protocol == Protocol::Rendezvous {
                    self.rendezvous_us
                } else {
                    0.0
                };
                let piped = stages.through(head) + stages.slowest(rest);
                (handshake + piped + further + far(&self.far, len)).max(FLOOR * piped)
            }
        };
        Some(us)
    }

    /// Returns the call length of `candidates` by which a lone message of `len` bytes takes the
    /// least time. Returns 0 for a whole message, unless a candidate saves at least the fraction
    /// `gain_min` of the time.
    #[must_use]
    pub fn best_call_len(&self, len: u64, candidates: &[u64], gain_min: f64) -> u64 {
        let protocol = self.default_protocol(len);
        let time = |call_len| self.predict(len, protocol, Load::Lone, call_len);
        let Some(whole) = time(0) else { return 0 };
        let cut = candidates
            .iter()
            .filter_map(|call| Some((time(*call)?, *call)));
        match cut.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((us, call_len)) if us < whole * (1.0 - gain_min) => call_len,
            _ => 0,
        }
    }

    /// Predicts the time of a lone eager message of `len` bytes in frames of at most `frame_len`
    /// message bytes, in microseconds, for a path on which each frame is a call.
    ///
    /// The first frame passes through all stages, and each further one costs the time of the slowest
    /// stage. If that stage costs `a` per frame, and the other stages together `d` per byte, the
    /// time is shortest with frames of about `sqrt(len * a / d)` bytes.
    #[must_use]
    pub fn predict_in_frames(&self, len: u64, frame_len: u64) -> f64 {
        let frames = |bytes: u64, count: u64| Work {
            calls: count as f64,
            datagrams: count as f64,
            bytes: bytes as f64,
        };
        let head_len = len.min(frame_len.max(1));
        let rest_count = len.div_ceil(head_len.max(1)).saturating_sub(1);
        let head = self.eager.through(frames(head_len, 1));
        let rest = self.eager.slowest(frames(len - head_len, rest_count));
        let piped = head + rest;
        (piped + self.further_call_us * rest_count as f64).max(FLOOR * piped)
    }

    /// Returns the frame length of `candidates` by which a lone message of `len` bytes takes the
    /// least time. Returns 0 for whole frames, unless a candidate saves at least the fraction
    /// `gain_min` of the time.
    #[must_use]
    pub fn best_frame_len(&self, len: u64, candidates: &[u64], gain_min: f64) -> u64 {
        let whole = self.predict_in_frames(len, self.datagram_len);
        let short = candidates.iter().filter(|of| **of < self.datagram_len);
        let timed = short.map(|of| (self.predict_in_frames(len, *of), *of));
        match timed.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((us, frame_len)) if us < whole * (1.0 - gain_min) => frame_len,
            _ => 0,
        }
    }

    /// Returns the number of bytes in the first call.
    fn first_call(&self, len: u64, call_len: u64) -> u64 {
        let bound = if len <= self.frame_len || self.call_len == 0 {
            len
        } else {
            self.call_len
        };
        match call_len {
            0 => len.min(bound),
            _ => len.min(bound).min(call_len.max(self.datagram_len)),
        }
    }

    fn work(&self, len: u64, calls: f64) -> Work {
        let divided = self.datagram_len > 0 && len > self.frame_len;
        Work {
            calls,
            datagrams: if divided {
                len.div_ceil(self.datagram_len) as f64
            } else {
                1.0
            },
            bytes: len as f64,
        }
    }

    pub(super) fn is_sane(&self) -> bool {
        let all_stages = || {
            [Some(&self.eager), self.rendezvous.as_ref()]
                .into_iter()
                .flatten()
        };
        let far = self.far.iter().chain(&self.far_streaming);
        all_stages()
            .flat_map(|stages| [stages.sender, stages.wire, stages.receiver, stages.overlap])
            .all(|stage| stage.is_sane())
            && all_stages().all(|stages| stages.in_stream.is_finite())
            && far.map(|far| far.per_byte_ns).all(f64::is_finite)
            && self.further_call_us.is_finite()
            && self.rendezvous_us.is_finite()
            && self.rendezvous_us >= 0.0
    }
}

fn far(steps: &[Far], len: u64) -> f64 {
    let beyond = steps
        .iter()
        .map(|far| len.saturating_sub(far.from_len) as f64 * far.per_byte_ns);
    beyond.sum::<f64>() / 1e3
}
