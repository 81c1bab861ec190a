// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether short messages pass one after another by a network: long ones then leave and come in short parts, one
//! in a turn, so that those are looked for in between ([`super::Engine::flush`], `stream`).
//!
//! The one invariant: it decides how much a turn does, never whether it is done.

use super::Inner;

/// Turns from a short message on in which another is expected: beside a stream half a millisecond, more than
/// a program takes between question and answer.
const HURRIED_TURNS: u32 = 64;

/// Short messages, each expected from the one before, after which those to come are hurried for. Fewer end a
/// window of long ones, as those of a bandwidth test, which had better not be slowed down.
const HURRIED_STREAK: u32 = 4;

impl Inner {
    /// A short message has passed.
    #[inline]
    pub(super) fn note_short(&mut self) {
        self.shorts = match self.expects_short() {
            true => self.shorts.saturating_add(1),
            false => 1,
        };
        self.short_turn = self.turn;
    }

    #[inline]
    fn expects_short(&self) -> bool {
        self.turn.wrapping_sub(self.short_turn) <= HURRIED_TURNS
    }

    /// Whether short messages pass one after another, and are to be looked for between short parts of long
    /// ones.
    #[inline]
    pub(super) fn is_hurried(&self) -> bool {
        self.shorts >= HURRIED_STREAK && self.expects_short()
    }
}
