// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking calls with a timeout. Another thread can end them early, by an [`crate::binding::Interrupter`].
//!
//! A call that has timed out has had no effect on messages: a repeated call neither loses nor
//! doubles one. A sleeping process wakes up at the deadline. The clock starts when the call begins.
#![allow(
    unsafe_code,
    reason = "blocking calls pass their slices to operations; see `ops`"
)]

use super::{Awaited, Node, PutNotice};
use crate::engine::Submitted;
use crate::error::Error;
use crate::ops::{Completion, Failed, OpKind, Received, Request};
use crate::port::Target;
use portolan_proto::{PortId, SendSpec};
use std::cell::Cell;
use std::time::Duration;

impl Node {
    /// Waits for the next message to `port`, at most for `timeout`. Returns `None`, with no message
    /// lost, if none has arrived by then. A long message that has begun to arrive is received
    /// completely, even after the deadline.
    ///
    /// # Errors
    /// As [`Node::recv`].
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let mut buf = [0; 16];
    /// let timeout = Duration::from_millis(1);
    /// assert_eq!(node.recv_timeout(7, &mut buf, timeout)?, None);
    ///
    /// node.send(Target::new(node.rank(), 7), b"ahoy")?;
    /// let received = node.recv_timeout(7, &mut buf, timeout)?;
    /// assert_eq!(received.map(|received| received.len), Some(4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_timeout(
        &mut self,
        port: u16,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Received>, Error> {
        self.recv_with_timeout(PortId::user(port), None, bytes, timeout)
    }

    /// Waits for the next message to `port` from process `source`, like [`Node::recv_timeout`].
    ///
    /// # Errors
    /// As [`Node::recv_from`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// assert_eq!(node.recv_from_timeout(own.rank(), 7, &mut [0; 16], patience)?, None);
    /// # Ok(()) }
    /// ```
    pub fn recv_from_timeout(
        &mut self,
        source: u32,
        port: u16,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Received>, Error> {
        self.recv_with_timeout(PortId::user(port), Some(source), bytes, timeout)
    }

    fn recv_with_timeout(
        &mut self,
        port: PortId,
        source: Option<u32>,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Received>, Error> {
        let engine = &mut *self.engine.enter();
        let deadline = engine.inner.deadline(timeout);
        let (inner, len) = (&mut engine.inner, bytes.len() as u64);
        let source = inner.check_recv(port, source)?;
        // SAFETY: `await_borrowed_until` returns only when the operation is complete or cancelled,
        // and its guard detaches the memory if a handler panics; `bytes` is not used before.
        let op = unsafe { inner.ops.borrowed_mut(OpKind::Recv { port, source }, bytes) };
        inner.core.post_recv(port, op, len, source);
        engine.drain();
        if !engine.await_borrowed_until(&mut self.waiter, op, deadline) {
            return Ok(None);
        }
        let done = engine.inner.ops.finish_borrowed(op);
        done.unwrap_or_else(|| Err(engine.inner.stale())).map(Some)
    }

    /// Waits at most for `timeout` until the receiver accepts `bytes`, of any length. Returns
    /// `false` if it has not: the message is not sent.
    ///
    /// The bytes are copied. After `true` they are sent as if by [`Node::isend_copy`]. A receiver
    /// accepts nothing while it has 512 KiB of unread messages of this process and lane, or has not
    /// yet answered. To wait until a long message has arrived, use [`Node::isend`] and
    /// [`Node::wait_timeout`].
    ///
    /// # Errors
    /// As [`Node::send`].
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let to = Target::new(node.rank(), 7);
    /// assert!(node.send_timeout(to, b"ahoy", Duration::from_millis(1))?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_timeout(
        &mut self,
        to: Target,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<bool, Error> {
        self.send_spec_timeout(to.rank(), to.spec(), bytes, timeout)
    }

    pub(super) fn send_spec_timeout(
        &mut self,
        rank: u32,
        spec: SendSpec,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<bool, Error> {
        let engine = &mut *self.engine.enter();
        let deadline = engine.inner.deadline(timeout);
        let peer = engine.inner.check_rank(rank)?;
        if engine.inner.try_eager(peer, &spec, &[bytes])? == Submitted::Accepted {
            engine.flush();
            engine.progress_between_sends();
            return Ok(true);
        }
        engine.send_copy_until(&mut self.waiter, peer, spec, bytes, deadline)
    }

    /// Waits for a non-blocking operation, at most for `timeout`. Returns `None` if it has not
    /// ended by then. The request then stays valid.
    ///
    /// # Errors
    /// As [`Node::wait`].
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig, Target};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let request = node.post_recv(7, vec![0; 16])?;
    /// assert!(node.wait_timeout(request, Duration::from_millis(1))?.is_none());
    ///
    /// node.send(Target::new(node.rank(), 7), b"ahoy")?;
    /// let done = node.wait_timeout(request, Duration::from_millis(1))?;
    /// assert_eq!(done.map(|done| done.len), Some(4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_timeout(
        &mut self,
        request: Request,
        timeout: Duration,
    ) -> Result<Option<Completion>, Failed> {
        let op = request.0;
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        if engine.inner.ops.is_handled(op) {
            return Err(Error::StaleRequest.into());
        }
        if !engine.inner.ops.is_done(op) {
            let deadline = engine.inner.deadline(timeout);
            if !engine.await_until(&mut self.waiter, op, deadline) {
                return Ok(None);
            }
        }
        let done = engine.inner.ops.finish(op);
        done.unwrap_or_else(|| Err(engine.inner.stale().into()))
            .map(Some)
    }

    /// Waits for the next notice of a put, at most for `timeout`.
    ///
    /// # Errors
    /// As [`Node::wait_notice`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = portolan::Node::join()?;
    /// let timeout = std::time::Duration::from_micros(100);
    /// assert_eq!(node.wait_notice_timeout(timeout)?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_notice_timeout(&mut self, timeout: Duration) -> Result<Option<PutNotice>, Error> {
        let engine = &mut *self.engine.enter();
        if !engine.inner.has_notices() {
            let deadline = engine.inner.deadline(timeout);
            let awaited = Awaited::Notice;
            self.waiter
                .until_deadline(engine, &[], awaited, deadline, |inner| {
                    inner.has_notices() || inner.is_deserted()
                });
        }
        match engine.inner.pop_notice() {
            None => engine.inner.check_any_sender().map(|()| None),
            found => Ok(found),
        }
    }

    /// Makes progress until `done` returns true, at most for `timeout`. Returns whether it did; see
    /// [`Node::wait_until`].
    ///
    /// # Errors
    /// As [`Node::wait_until`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = portolan::Node::join()?;
    /// let timeout = std::time::Duration::from_micros(100);
    /// assert!(!node.wait_until_timeout(|| false, timeout)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_until_timeout(
        &mut self,
        done: impl Fn() -> bool,
        timeout: Duration,
    ) -> Result<bool, Error> {
        let engine = &mut *self.engine.enter();
        let deadline = engine.inner.deadline(timeout);
        let is_done = Cell::new(false);
        let awaited = Awaited::Condition;
        self.waiter
            .until_deadline(engine, &[], awaited, deadline, |inner| {
                is_done.set(done());
                is_done.get() || inner.is_deserted()
            });
        match is_done.get() {
            true => Ok(true),
            false => engine.inner.check_any_sender().map(|()| false),
        }
    }
}
