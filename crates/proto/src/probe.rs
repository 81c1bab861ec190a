// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes: a path's frame length is proven, not believed, and its round trip is measured a few
//! times, so that the choice between paths rests on figures (`P6`).

use crate::core_state::Shared;
use crate::path::{FRAME_LEN_SAFE, Path};
use crate::peer::Peer;
use crate::time::Span;
use crate::{Instant, LinkId};
use portolan_wire::{FRAME_HEADER_LEN, FrameHeader, FrameKind, PROBE_LEN, Probe};

/// Round trips measured per path before the choice is final. `P6.3`
const ROUNDS: u8 = 8;

/// Wait for an answer before a probe counts as lost; a peer that sleeps answers within this.
const PATIENCE: Span = Span::from_millis(20);

/// Lost probes of one length before a shorter one is tried.
const TRIES: u8 = 3;

/// `P6.1`: frame lengths tried below the links' own. UDP on a 1500-byte Ethernet, behind a tunnel,
/// safe.
const LENGTHS: [usize; 3] = [1472, 1400, FRAME_LEN_SAFE];

#[derive(Debug, Default)]
pub(crate) struct ProbeState {
    /// Frame length being tried; 0 when settled.
    trying: usize,
    tries: u8,
    rounds: u8,
    /// Shortest round trip of a probe and its answer, both by this path.
    pub(crate) best: Option<Span>,
    nonce: u32,
    sent_at: Instant,
    waiting: bool,
    /// To be sent now.
    due: bool,
    /// Nonce of a probe to be answered.
    answer: Option<u32>,
    /// The peer is to be asked for a sign of life; nothing is measured by that.
    pub(crate) asked: bool,
}

impl ProbeState {
    pub(crate) fn has_due(&self) -> bool {
        self.due || self.asked || self.answer.is_some()
    }

    pub(crate) fn timer(&self) -> Instant {
        if self.waiting {
            self.sent_at + PATIENCE
        } else {
            Instant::NEVER
        }
    }
}

impl Path {
    pub(crate) fn start_probing(&mut self, now: Instant) {
        self.probe.trying = if self.frame_len < self.frame_len_bound {
            self.frame_len_bound
        } else {
            0
        };
        self.next_probe(now);
    }

    fn next_probe(&mut self, now: Instant) {
        self.probe.waiting = false;
        if self.probe.trying == 0 && self.probe.rounds >= ROUNDS {
            return;
        }
        self.probe.nonce = self.probe.nonce.wrapping_add(1);
        self.probe.sent_at = now;
        self.probe.waiting = true;
        self.probe.due = true;
    }

    pub(crate) fn on_probe_timer(&mut self, now: Instant) {
        if now < self.probe.timer() {
            return;
        }
        self.probe.tries += 1;
        if self.probe.trying == 0 {
            // A lost measurement; the peer may be busy with other things than progress.
            if self.probe.tries >= ROUNDS {
                self.probe.rounds = ROUNDS;
            }
        } else if self.probe.tries >= TRIES {
            self.probe.tries = 0;
            let trying = self.probe.trying;
            self.probe.trying = LENGTHS
                .into_iter()
                .find(|&len| len < trying && len > self.frame_len)
                .unwrap_or(0);
        }
        self.next_probe(now);
    }

    /// The peer asks: answer by this path. `P6.4`
    pub(crate) fn on_probe_asked(&mut self, nonce: u32) {
        self.probe.answer = Some(nonce);
    }

    /// The peer answers; `true` if the choice between paths may change.
    pub(crate) fn on_probe_answered(&mut self, now: Instant, nonce: u32) -> bool {
        if !self.probe.waiting || nonce != self.probe.nonce {
            return false;
        }
        if self.probe.trying == 0 {
            let sample = now.span_since(self.probe.sent_at);
            self.rtt.on_sample(sample);
            self.probe.best = Some(self.probe.best.map_or(sample, |best| best.min(sample)));
            self.probe.rounds += 1;
        } else {
            self.frame_len = self.probe.trying;
            self.probe.trying = 0;
        }
        self.probe.tries = 0;
        self.next_probe(now);
        true
    }
}

impl Peer {
    /// Writes the probe or answer that is to leave by `link`, if one is; returns its length.
    pub(crate) fn emit_probe(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> bool {
        let session = self.session.token_theirs;
        let Some(path) = self.path_mut(link) else {
            return false;
        };
        let probe = &mut path.probe;
        let short = FRAME_HEADER_LEN + PROBE_LEN;
        let (record, frame_len) = if let Some(nonce) = probe.answer.take() {
            (
                Probe {
                    reply: true,
                    path: link.as_u8(),
                    nonce,
                },
                short,
            )
        } else if probe.due {
            probe.due = false;
            probe.sent_at = now;
            let record = Probe {
                reply: false,
                path: link.as_u8(),
                nonce: probe.nonce,
            };
            (record, probe.trying.max(short))
        } else if core::mem::take(&mut probe.asked) {
            let record = Probe {
                reply: false,
                path: link.as_u8(),
                nonce: probe.nonce,
            };
            (record, short)
        } else {
            return false;
        };
        sh.scratch.clear();
        // What follows the record is padding: zeros.
        sh.scratch.resize(frame_len, 0);
        let frame_len = u16::try_from(frame_len).unwrap_or(u16::MAX);
        let kind = FrameKind::Unnumbered;
        FrameHeader {
            kind,
            attempt: 0,
            frame_len,
            packet_num: 0,
            session,
        }
        .emit(&mut sh.scratch);
        record.emit(&mut sh.scratch[FRAME_HEADER_LEN..]);
        true
    }
}
