// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting in a program's own event loop: one descriptor for all events of a node.

use super::Node;
use crate::engine::{Descriptor, PeerEvent};
use crate::error::Error;
use std::os::fd::BorrowedFd;

impl Node {
    /// Returns the descriptor for a program's own event loop, which waits until it is readable.
    ///
    /// Call [`Node::arm`] before each wait and [`Node::disarm`] after it. Never read from it.
    ///
    /// # Errors
    /// [`Error::System`] for want of descriptors.
    pub fn event_fd(&mut self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.descriptor()?.as_fd())
    }

    fn descriptor(&mut self) -> Result<&mut Descriptor, Error> {
        let descriptor = match self.descriptor.take() {
            Some(descriptor) => descriptor,
            None => Box::new(Descriptor::new()?),
        };
        Ok(self.descriptor.insert(descriptor))
    }

    /// Makes [`Node::event_fd`] readable as soon as there is work. Returns `false` if there is work
    /// already: do not wait, but call [`Node::progress`] and test the requests.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses. [`Error::NobodyLeft`] when every other process of a
    /// job of several has ended and all that they sent was taken in: the descriptor would stay silent.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.descriptor()?;
        // A message that the helper receives while the program sleeps would not wake it.
        let engine = self.engine.hold_mut();
        engine.inner.check_owner()?;
        engine.flush();
        if engine.has_deferred() || engine.inner.has_peer_events() {
            return Ok(false);
        }
        engine.inner.check_company()?;
        match self.descriptor.as_deref_mut() {
            Some(descriptor) => engine.arm_for_program(descriptor),
            None => Ok(false),
        }
    }

    /// Returns the next event of a peer, if any, without waiting. [`Node::event_fd`] becomes readable when
    /// there may be one, in programs that have called this before.
    ///
    /// Each loss is reported once, whether an operation needed the peer or not: the end of every process of
    /// the job that `portolan run` has started, and peers that this process could not reach any more
    /// when it waited for them. A peer that comes back and is lost again is reported again.
    pub fn next_peer_event(&mut self) -> Option<PeerEvent> {
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner().ok()?;
        engine.next_peer_event()
    }

    /// Reverts [`Node::arm`], and handles what is due: timers, notices of peers, messages.
    pub fn disarm(&mut self) {
        let engine = &mut *self.engine.enter();
        if engine.inner.check_owner().is_err() {
            return;
        }
        engine.disarm();
        engine.progress();
    }
}
