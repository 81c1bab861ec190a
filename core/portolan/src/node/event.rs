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
    /// [`Error::System`] when the process has no free descriptors.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// use std::os::fd::AsRawFd;
    /// let fd = node.event_fd()?.as_raw_fd(); // for epoll
    /// if node.arm()? {
    ///     // Wait until `fd` is readable.
    /// }
    /// node.disarm();
    /// # Ok(()) }
    /// ```
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

    /// Makes [`Node::event_fd`] readable as soon as there is work. If it returns `false`, there is
    /// work already: do not wait, but call [`Node::progress`] and test the requests.
    ///
    /// # Errors
    /// [`Error::System`] when a system call fails. [`Error::NobodyLeft`] when every other process
    /// of a job of several has ended and all their messages were received: the descriptor would
    /// never become readable.
    ///
    /// # Examples
    /// See [`Node::event_fd`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.descriptor()?;
        // A message that the helper receives while the program sleeps would not wake it.
        let engine = self.engine.hold_mut();
        engine.inner.check_owner()?;
        engine.flush();
        if engine.advance_background() > 0
            || engine.has_deferred()
            || engine.inner.has_peer_events()
        {
            return Ok(false);
        }
        engine.inner.check_any_sender()?;
        match self.descriptor.as_deref_mut() {
            Some(descriptor) => engine.arm_for_program(descriptor),
            None => Ok(false),
        }
    }

    /// Returns the next event of a peer, if any, without waiting. After the first call of this
    /// method, [`Node::event_fd`] also becomes readable when there may be an event.
    ///
    /// Each loss is reported once, even if no operation needed the peer. Reported are every process
    /// of the job that `portolan run` started and that has ended, and peers that became unreachable
    /// while this process waited for them. A peer that returns and is lost again is reported again.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// while let Some(event) = node.next_peer_event() {
    ///     println!("rank {}: {:?}", event.rank, event.kind);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn next_peer_event(&mut self) -> Option<PeerEvent> {
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner().ok()?;
        engine.next_peer_event()
    }

    /// Reverts [`Node::arm`], and handles what is due: timers, notices of peers, messages.
    ///
    /// # Examples
    /// See [`Node::event_fd`].
    pub fn disarm(&mut self) {
        let engine = &mut *self.engine.enter();
        if engine.inner.check_owner().is_err() {
            return;
        }
        engine.disarm();
        engine.progress_all();
    }
}
