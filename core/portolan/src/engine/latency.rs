// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects a sequence of short messages over a network. During one, long messages are sent and
//! received in short parts, one per turn, and short messages are polled for in between
//! ([`super::Engine::flush`], `stream`).
//!
//! Invariant: it affects how much a turn does, never the final result.

use super::Inner;

/// Turns after a short message in which another is expected. Beside a stream they take half a
/// millisecond, which is more than a program takes between request and answer.
const LATENCY_MODE_TURNS: u32 = 64;

/// Number of short messages in sequence from which on long ones are split. Fewer also end a window
/// of long messages, as in a bandwidth test, which should not be slowed down.
const LATENCY_MODE_COUNT: u32 = 4;

/// Longest message, in bytes, that keeps long parts after short messages while no other transfer is
/// in progress. Open MPI sends three short messages for each long one. Up to this length its
/// messages are faster with long parts, above it with short ones.
const LONE_LEN_MAX: u64 = 1 << 20;

impl Inner {
    /// Records a short message.
    #[inline]
    pub(super) fn note_short(&mut self) {
        self.note_shorts(1);
    }

    /// Records `count` short messages that arrived together.
    #[inline]
    pub(super) fn note_shorts(&mut self, count: u32) {
        self.shorts = match self.expects_short() {
            true => self.shorts.saturating_add(count),
            false => count,
        };
        self.shorts_since_lone = self.shorts_since_lone.saturating_add(count);
        self.short_turn = self.turn;
    }

    /// Records that a message of `len` bytes begins. Earlier short messages, such as requests for it,
    /// then do not shorten its parts, if it has at most [`LONE_LEN_MAX`] bytes and no other transfer
    /// is in progress.
    pub(super) fn note_long(&mut self, len: u64) {
        if len <= LONE_LEN_MAX && self.core.transfer_count() == 0 {
            self.shorts_since_lone = 0;
        }
    }

    #[inline]
    fn expects_short(&self) -> bool {
        self.turn.wrapping_sub(self.short_turn) <= LATENCY_MODE_TURNS
    }

    /// Tests whether a sequence of short messages is under way, so that they must be polled for
    /// between short parts of long ones.
    #[inline]
    pub(super) fn in_latency_mode(&self) -> bool {
        self.shorts >= LATENCY_MODE_COUNT
            && self.expects_short()
            && (self.shorts_since_lone >= LATENCY_MODE_COUNT || self.core.transfer_count() > 1)
    }
}
