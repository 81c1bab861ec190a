// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes: they verify a path's frame length and measure its round trip several times, so that the
//! choice between paths is based on measurements (`P6`).

use super::outgoing::{Bytes, Outgoing, OutgoingKind};
use super::{FRAME_LEN_SAFE, InFlight, Path};
use crate::Instant;
use crate::base::time::Span;
use crate::mem::scratch::Scratch;
use alloc::collections::VecDeque;
use portolan_wire::{FRAME_HEADER_LEN, FrameKind, PROBE_LEN, Probe};

/// Number of round trips measured per path before the choice is final. The shortest one counts.
/// With only 8, a slower path was chosen in a few of 100 runs if the peer was busy. `P6.3`
const ROUNDS: u8 = 32;

/// Number of round trips after which measuring may stop if the choice is clear.
const ROUNDS_LEAST: u8 = 8;

/// Timeout of a probe; a sleeping peer answers within it.
const PATIENCE: Span = Span::from_millis(20);

/// Consecutive lost measurements before measuring stops. Each waits twice as long as the one
/// before. A peer that computes for 5 s is measured after it polls again, and is sent little
/// meanwhile. `P6.3`
const MEASURE_TRIES: u8 = 8;

/// Lost probes of one length before a shorter one is tried.
const TRIES: u8 = 3;

/// `P6.1`: frame lengths tried below the links' own: UDP on a 1500-byte Ethernet, behind a tunnel,
/// safe.
const LENGTHS: [usize; 3] = [1472, 1400, FRAME_LEN_SAFE];

/// Minimum length, tried only when frames no longer pass that passed before.
const LENGTH_LEAST: usize = crate::path::FRAME_LEN_LEAST;

/// Flag in the nonces of probes that measure nothing and only request a reply.
const KEEPALIVE: u32 = 1 << 31;

/// Unanswered attempts at a suspected length after which the suspicion is dropped: the path is
/// silent, not narrow.
const SILENCE_MAX: u8 = 12;

/// Maximum number of replies that may wait. A peer may probe for a length and for a sign of life at
/// once.
const REPLIES_MAX: usize = 4;

/// Pause before a path that became narrower is tried at its former length again. `P6.2`
const REGROW: Span = Span::from_millis(10_000);

/// Consecutive timeouts after which the frame length is suspected.
const SUSPECT_TIMEOUTS: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct ProbeState {
    /// Frame length being tried; 0 when settled.
    trying: usize,
    tries: u8,
    rounds: u8,
    /// Shortest round trip of a probe and its reply, both on this path.
    best: Option<Span>,
    nonce: u32,
    sent_at: Instant,
    waiting: bool,
    /// Set if a probe is to be sent now.
    due: bool,
    /// Nonces of probes to be answered.
    replies: VecDeque<u32>,
    /// Set if a probe for a sign of life is to be sent; it measures nothing.
    keepalive_due: bool,
    /// Set while the current length is suspected: it is tried again, then shorter ones.
    suspected: bool,
    /// State of the suspicion: whether a short frame was answered, and the number of unanswered
    /// attempts.
    short_passed: bool,
    silences: u8,
    /// Frame length reported by the operating system.
    hint: usize,
    /// Longest frame that has ever passed, and the time to try it again.
    widest: usize,
    regrow_at: Instant,
}

/// Compact state of a path that is not being probed.
#[derive(Debug, Default)]
pub(crate) struct ProbeMemory {
    best: Option<Span>,
    nonce: u32,
    rounds: u8,
    widest: usize,
    regrow_at: Instant,
}

impl ProbeMemory {
    pub(super) fn best(&self) -> Option<Span> {
        self.best
    }
}

impl ProbeState {
    /// Returns the shortest round trip of a probe and its reply, both on this path.
    pub(super) fn best(&self) -> Option<Span> {
        self.best
    }

    /// Returns the compact state; `None` while a probe or a reply is pending.
    pub(crate) fn memory(&self) -> Option<ProbeMemory> {
        let settled = !self.waiting && !self.suspected && !self.has_due();
        settled.then_some(ProbeMemory {
            best: self.best,
            nonce: self.nonce,
            rounds: self.rounds,
            widest: self.widest,
            regrow_at: self.regrow_at,
        })
    }

    pub(crate) fn restore(&mut self, memory: ProbeMemory) {
        self.best = memory.best;
        self.nonce = memory.nonce;
        self.rounds = memory.rounds;
        self.widest = memory.widest;
        self.regrow_at = memory.regrow_at;
    }

    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.due | self.keepalive_due | !self.replies.is_empty()
    }

    /// Returns true if the choice may rely on the round trips measured so far.
    pub(super) fn has_measured(&self) -> bool {
        self.rounds >= ROUNDS_LEAST && self.best.is_some()
    }

    /// Ends the measurement of round trips.
    pub(super) fn end_rounds(&mut self) {
        self.rounds = ROUNDS;
        if self.trying == 0 {
            self.stop();
        }
    }

    /// Stops all measurements.
    pub(crate) fn stop(&mut self) {
        self.trying = 0;
        (self.waiting, self.due, self.suspected) = (false, false, false);
    }
}

impl Path {
    /// Schedules a probe for a sign of life on this path.
    pub(super) fn send_keepalive(&mut self) {
        self.probe.keepalive_due = true;
        self.free_left = 0;
    }

    /// Returns the time of the next [`Path::on_probe_timer`].
    pub(super) fn probe_timer(&self) -> Instant {
        if self.probe.waiting {
            self.probe.sent_at + self.probe_patience()
        } else if self.frame_len < self.probe.widest && self.is_usable() {
            self.probe.regrow_at
        } else {
            Instant::NEVER
        }
    }

    fn probe_patience(&self) -> Span {
        match self.probe.trying {
            0 => PATIENCE * (1 << self.probe.tries.min(MEASURE_TRIES)),
            _ => PATIENCE,
        }
    }

    pub(super) fn start_probing(&mut self, now: Instant) {
        self.probe.tries = 0;
        self.probe.trying = if self.frame_len < self.frame_len_bound {
            self.frame_len_bound
        } else {
            0
        };
        self.next_probe(now);
    }

    /// Suspects the frame length after repeated timeouts of long frames. `P6.2`
    pub(super) fn suspect_frame_len(&mut self, now: Instant) {
        let is_long = |entry: &InFlight| usize::from(entry.len) > LENGTH_LEAST;
        if self.loss.timeouts() >= SUSPECT_TIMEOUTS && self.unacked.front().is_some_and(is_long) {
            self.confirm_frame_len(now, 0);
        }
    }

    /// Tries the current length again, and shorter ones (`reported` first) if it no longer passes
    /// while short frames do. `P6.2`
    pub(super) fn confirm_frame_len(&mut self, now: Instant, reported: usize) {
        if self.probe.suspected || self.frame_len <= LENGTH_LEAST || !self.is_usable() {
            return;
        }
        self.probe.suspected = true;
        self.probe.hint = reported;
        (self.probe.tries, self.probe.silences) = (0, 0);
        self.probe.trying = self.frame_len;
        self.next_probe(now);
    }

    fn next_probe(&mut self, now: Instant) {
        self.probe.waiting = false;
        if self.probe.trying == 0 && self.probe.rounds >= ROUNDS {
            return;
        }
        self.probe.nonce = self.probe.nonce.wrapping_add(1) & !KEEPALIVE;
        self.probe.sent_at = now;
        self.probe.waiting = true;
        self.probe.due = true;
        self.free_left = 0;
        if self.probe.suspected {
            self.probe.short_passed = false;
            self.probe.keepalive_due = true;
        }
    }

    pub(super) fn on_probe_timer(&mut self, now: Instant) {
        if now < self.probe_timer() {
            return;
        }
        if !self.probe.waiting {
            self.probe.regrow_at = now + REGROW;
            return self.start_probing(now);
        }
        if self.probe.suspected && !self.probe.short_passed {
            self.probe.silences += 1;
            if self.probe.silences >= SILENCE_MAX {
                self.probe.stop();
            }
            return self.next_probe(now);
        }
        self.probe.tries += 1;
        if self.probe.trying == 0 {
            // A lost measurement; the peer may be busy.
            if self.probe.tries >= MEASURE_TRIES {
                self.probe.rounds = ROUNDS;
            }
        } else if self.probe.tries >= TRIES {
            self.probe.tries = 0;
            self.probe.trying = self.shorter().unwrap_or(0);
            self.probe.suspected &= self.probe.trying != 0;
        }
        self.next_probe(now);
    }

    /// Returns the next length to try.
    fn shorter(&self) -> Option<usize> {
        let (trying, probe) = (self.probe.trying, &self.probe);
        let lengths = LENGTHS.map(|len| len - self.check_len());
        if !probe.suspected {
            return lengths
                .into_iter()
                .find(|&len| len < trying && len > self.frame_len);
        }
        let hint = (trying == self.frame_len).then_some(probe.hint);
        let hint = hint.filter(|&len| len > LENGTH_LEAST && len < trying);
        let mut lengths = lengths.into_iter().chain([LENGTH_LEAST]);
        hint.or_else(|| lengths.find(|&len| len < trying))
    }

    /// Schedules the reply to the peer's probe on this path. `P6.4`
    pub(crate) fn on_probe_request(&mut self, nonce: u32) {
        if self.probe.replies.len() < REPLIES_MAX {
            self.probe.replies.push_back(nonce);
            self.free_left = 0;
        }
    }

    /// Handles the peer's reply; returns `true` if the choice of paths, or the frame length, may
    /// change.
    fn on_reply(&mut self, now: Instant, nonce: u32) -> bool {
        if !self.probe.waiting || nonce != self.probe.nonce {
            return false;
        }
        if self.probe.trying == 0 {
            let sample = now.span_since(self.probe.sent_at);
            // A later reply measures how long the peer did not poll.
            if sample <= PATIENCE {
                self.rtt.on_sample(sample);
                self.probe.best = Some(self.probe.best.map_or(sample, |best| best.min(sample)));
            }
            self.probe.rounds += 1;
        } else {
            self.frame_len = self.probe.trying;
            self.probe.widest = self.probe.widest.max(self.frame_len);
            self.probe.regrow_at = now + REGROW;
            self.probe.trying = 0;
            self.probe.suspected = false;
        }
        self.probe.tries = 0;
        self.next_probe(now);
        true
    }

    /// Handles a reply to a probe on this path.
    pub(super) fn on_probe_reply(&mut self, now: Instant, nonce: u32) -> ProbeReply {
        if nonce & KEEPALIVE != 0 {
            self.probe.short_passed = true;
            return ProbeReply::SignOfLife;
        }
        let before = self.frame_len;
        match self.on_reply(now, nonce) {
            false => ProbeReply::Stale,
            true if self.frame_len < before => ProbeReply::Shrunk(self.frame_len),
            true => ProbeReply::Measured,
        }
    }

    /// Writes the next probe or reply, if any is due.
    pub(crate) fn emit_probe(
        &mut self,
        now: Instant,
        scratch: &mut Scratch,
        session: u64,
    ) -> Option<Outgoing> {
        let probe = &mut self.probe;
        let short = FRAME_HEADER_LEN + PROBE_LEN;
        let (reply, nonce, frame_len) = if let Some(nonce) = probe.replies.pop_front() {
            (true, nonce, short)
        } else if probe.due {
            probe.due = false;
            probe.sent_at = now;
            (false, probe.nonce, probe.trying.max(short))
        } else if core::mem::take(&mut probe.keepalive_due) {
            (false, probe.nonce | KEEPALIVE, short)
        } else {
            return None;
        };
        // The bytes after the record are padding: zeros.
        let out = scratch.start(frame_len);
        let header = self.header(FrameKind::Unnumbered, (0, 0), frame_len, session);
        header.emit(out);
        let record = Probe {
            reply,
            path: self.link.as_u8(),
            nonce,
        };
        record.emit(&mut out[FRAME_HEADER_LEN..]);
        Some(Outgoing {
            link: self.link,
            bytes: Bytes::Scratch,
            kind: OutgoingKind::Repeating,
        })
    }
}

/// Result of a reply to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeReply {
    Stale,
    /// The path works.
    SignOfLife,
    /// The choice of paths may change.
    Measured,
    /// Maximum length in bytes of frames from now on, less than before.
    Shrunk(usize),
}
