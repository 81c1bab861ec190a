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

/// An operation that is being advanced for the first time. It is given up if a handler panics, as
/// no caller has its request.
struct Beginning<'a> {
    operation: Option<Box<dyn Background>>,
    engine: &'a mut Engine,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if let Some(mut operation) = self.operation.take() {
            operation.give_up(self.engine);
        }
    }
}

impl Engine {
    /// Advances `operation` now, and in later calls until it is complete.
    pub(crate) fn begin_background(&mut self, operation: Box<dyn Background>) {
        let mut beginning = Beginning {
            operation: Some(operation),
            engine: self,
        };
        let Beginning { operation, engine } = &mut beginning;
        let has_ended = operation.as_mut().is_none_or(|one| one.advance(engine));
        let operation = beginning.operation.take().filter(|_| !has_ended);
        drop(beginning);
        self.background.extend(operation);
    }

    /// Advances all operations in the list. Returns the number of operations that have completed,
    /// calls of other processes among them.
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
        let before = list.len() + engine.inner.pending_call_count();
        list.retain_mut(|operation| !operation.advance(engine));
        before.saturating_sub(list.len() + engine.inner.pending_call_count())
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
