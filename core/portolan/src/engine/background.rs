// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of several messages, such as non-blocking collectives, which advance inside all calls
//! that wait or make progress.
//!
//! Each has an entry in the table of operations, so that programs wait for it like for any request.
//! The one invariant: an operation leaves the list when that entry is complete.

use super::Engine;
use portolan_proto::{OpId, PeerId};

/// Operation that consists of several messages.
pub(crate) trait Background: Send {
    /// Returns its entry in the table of operations.
    fn op(&self) -> OpId;

    /// Advances as far as possible without waiting. Returns `true` once the entry is complete.
    fn advance(&mut self, engine: &mut Engine) -> bool;

    /// Cancels pending messages, and removes the entry.
    fn give_up(&mut self, engine: &mut Engine);
}

/// Operations that are being advanced. They return to the engine even if a handler panics.
struct Advancing<'a> {
    list: Vec<Box<dyn Background>>,
    engine: &'a mut Engine,
}

impl Drop for Advancing<'_> {
    fn drop(&mut self) {
        self.engine.background.append(&mut self.list);
    }
}

impl Engine {
    /// Advances `operation` now, and in later calls until it is complete.
    pub(crate) fn begin_background(&mut self, mut operation: Box<dyn Background>) {
        if !operation.advance(self) {
            self.background.push(operation);
        }
    }

    /// Advances all operations in the list. Returns the number of those that have completed.
    #[inline]
    pub(crate) fn advance_background(&mut self) -> usize {
        match self.background.is_empty() {
            true => 0,
            false => self.advance_listed(),
        }
    }

    #[cold]
    fn advance_listed(&mut self) -> usize {
        let list = std::mem::take(&mut self.background);
        let mut advancing = Advancing { list, engine: self };
        let Advancing { list, engine } = &mut advancing;
        let before = list.len();
        list.retain_mut(|operation| !operation.advance(engine));
        before - list.len()
    }

    /// Ends an operation in the list before it is complete.
    pub(crate) fn give_up_background(&mut self, op: OpId) {
        let mut listed = self.background.iter();
        if let Some(index) = listed.position(|operation| operation.op() == op) {
            let mut operation = self.background.swap_remove(index);
            operation.give_up(self);
        }
    }

    /// Makes one turn, and advances the operations in the list. Returns the number of frames that
    /// moved.
    #[inline]
    pub(crate) fn progress_all(&mut self) -> usize {
        let moved = self.progress();
        self.advance_background();
        moved
    }

    /// Detects the failure of a peer that an operation in the list waits for.
    pub(crate) fn watch_background(&mut self, peer: PeerId) {
        if !self.inner.is_gone(peer) {
            self.watch_while_polled(peer);
        }
    }
}
