// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that return when their message has been sent or received. They expose their caller's
//! memory to an operation and wait until it completes.
#![allow(
    unsafe_code,
    reason = "a blocking send passes its slice to an operation; see `ops`"
)]

use super::wait::FIRST_TURNS;
use super::{Awaited, Engine, Inbox, Inner, Submitted, Taken, Waiter};
use crate::error::Error;
use crate::ops::{OpKind, Received};
use portolan_proto::{
    HeldId, Instant, NotTaken, OpId, PeerId, PortId, RecvFilter, SendSpec, WaitingRecv,
};
use portolan_sys::usage;

impl Engine {
    /// Sends a message by any path. Not inlined, so that a message by shared memory needs few
    /// registers.
    #[inline(never)]
    pub(crate) fn send_by_any_path(
        &mut self,
        waiter: &mut Waiter,
        peer: PeerId,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if self.submit_now(peer, &spec, [bytes, &[]]) {
            self.progress_between_sends();
            return Ok(());
        }
        self.send_queued(waiter, peer, spec, bytes)
    }

    /// Sends a message that must wait for earlier messages of its lane.
    #[inline(never)]
    fn send_queued(
        &mut self,
        waiter: &mut Waiter,
        peer: PeerId,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if self.inner.try_eager(peer, &spec, &[bytes])? == Submitted::Accepted {
            self.flush();
            self.progress_between_sends();
            return Ok(());
        }
        if self.inner.must_buffer(peer, bytes.len()) {
            return self.send_buffered(waiter, peer, spec, bytes);
        }
        // SAFETY: `finish_borrowed` returns only when the operation is done, and its guard detaches
        // the memory if a handler panics.
        let op = unsafe { self.inner.ops.borrowed(OpKind::Send(peer), bytes) };
        self.inner.submit_op(peer, spec, op);
        self.flush();
        self.finish_borrowed(waiter, op, &[peer]).map(|_| ())
    }

    /// Sends a copy, which may wait for its receiver after the return. The call itself waits only
    /// for credit.
    pub(crate) fn send_buffered(
        &mut self,
        waiter: &mut Waiter,
        peer: PeerId,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let is_self = peer.0 == self.inner.rank();
        if is_self {
            // A completed receive is known only after its acknowledgement has made its way through
            // the engine.
            (0..FIRST_TURNS).any(|_| self.progress() == 0);
        }
        let op = self.inner.submit_copy(peer, spec, bytes)?;
        self.flush();
        if let Some(op) = op.filter(|_| !is_self) {
            waiter.until(self, &[peer], Awaited::Credit(op), |inner| {
                !inner.pending.holds(peer, op)
            });
        }
        // No caller waits for the completion of an announced copy.
        self.inner.check_gone(peer)
    }

    /// Takes a message that arrives within the first turns directly from its frame. Nothing waits
    /// where it is matched. Returns `None`, with `bytes` unchanged, if no message arrives before
    /// `stop`. Does the same for one that does not fit or is not wanted.
    #[inline(never)]
    pub(crate) fn recv_in_turns(
        &mut self,
        want: WaitingRecv,
        bytes: &mut [u8],
        stop: impl Fn() -> bool,
    ) -> Option<Taken> {
        let mut inbox = Inbox {
            want,
            bytes,
            got: None,
            is_quiet: true,
        };
        for _ in 0..FIRST_TURNS {
            self.work(Some(&mut inbox));
            if inbox.got.is_some() {
                self.leave_to_caller();
                break;
            }
            self.leave();
            // A timer may also have made a message ready.
            if !self.inner.core.is_quiet(&want.filter) || stop() {
                break;
            }
            inbox.is_quiet = true;
        }
        inbox.got
    }

    /// Takes the message that a receive at `port` would get now. See [`Core::take_held`].
    ///
    /// [`Core::take_held`]: portolan_proto::Core::take_held
    #[inline(always)]
    pub(crate) fn take_held(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Result<Received, NotTaken> {
        let taken = self.inner.core.take_held(port, source, bytes)?;
        usage::count_copy();
        Ok(Received {
            len: taken.len,
            source: taken.peer.0,
        })
    }

    /// Takes a message to `port` like [`Engine::recv_in_turns`]. A message that is next in shared
    /// memory needs no turn. A function of its own, because its caller would not have enough registers for it.
    #[inline(never)]
    pub(crate) fn recv_next(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
        stop: impl Fn() -> bool,
    ) -> Option<Received> {
        if let Some((source, len)) = self.take_next(port, source, bytes) {
            self.leave_to_caller();
            let source = source.0;
            return Some(Received { len, source });
        }
        let want = WaitingRecv {
            filter: RecvFilter::Port(port, source),
            len: bytes.len(),
        };
        let taken = self.recv_in_turns(want, bytes, stop)?;
        Some(taken.received)
    }

    /// Receives the next message to `port` by a posted receive.
    #[inline(never)]
    pub(crate) fn recv_posted(
        &mut self,
        waiter: &mut Waiter,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        let inner = &mut self.inner;
        let len = bytes.len() as u64;
        // SAFETY: `bytes` is not used before the operation is complete.
        let op = unsafe { inner.ops.borrowed_mut(OpKind::Recv { port, source }, bytes) };
        inner.core.post_recv(port, op, len, source);
        self.drain();
        self.finish_borrowed(waiter, op, source.as_slice())
    }

    /// Waits for an operation on borrowed memory and returns its result.
    #[inline]
    pub(crate) fn finish_borrowed(
        &mut self,
        waiter: &mut Waiter,
        op: OpId,
        about: &[PeerId],
    ) -> Result<Received, Error> {
        self.await_borrowed(waiter, op, about);
        let done = self.inner.ops.finish_borrowed(op);
        done.unwrap_or_else(|| Err(self.inner.stale()))
    }

    /// Waits for a receive into borrowed memory until `deadline`. Returns `false`, with the receive
    /// cancelled, if no message has matched it by then.
    pub(crate) fn await_borrowed_until(
        &mut self,
        waiter: &mut Waiter,
        op: OpId,
        deadline: Instant,
    ) -> bool {
        let guard = BorrowGuard { engine: self, op };
        let is_done = guard.engine.await_until(waiter, op, deadline);
        if is_done {
            std::mem::forget(guard);
            return true;
        }
        let inner = &mut guard.engine.inner;
        if inner.withdraw(op) {
            inner.ops.forget(op);
            return false;
        }
        std::mem::forget(guard);
        // The message is being received. Without this wait it would be lost.
        let about = self.inner.awaited_peer(op);
        self.await_borrowed(waiter, op, about.as_slice());
        true
    }

    /// Waits for an operation until `deadline`. Returns whether it is done.
    pub(crate) fn await_until(&mut self, waiter: &mut Waiter, op: OpId, deadline: Instant) -> bool {
        if !self.inner.ops.is_done(op) {
            let about = self.inner.awaited_peer(op);
            let awaited = Awaited::Op(op);
            waiter.until_deadline(self, about.as_slice(), awaited, deadline, |inner| {
                inner.ops.is_done(op) || inner.is_deserted() && inner.is_from_anybody(op)
            });
            if !self.inner.ops.is_done(op) {
                self.on_empty_poll(op);
            }
        }
        self.inner.ops.is_done(op)
    }

    /// Sends a copy of `bytes` like [`Engine::send_buffered`], but only if its receiver grants
    /// credit before `deadline`. Returns whether it is sent.
    pub(crate) fn send_copy_until(
        &mut self,
        waiter: &mut Waiter,
        peer: PeerId,
        spec: SendSpec,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<bool, Error> {
        let op = self.inner.submit_copy(peer, spec, bytes)?;
        self.flush();
        if let Some(op) = op.filter(|_| peer.0 != self.inner.rank()) {
            let awaited = Awaited::Credit(op);
            waiter.until_deadline(self, &[peer], awaited, deadline, |inner| {
                !inner.pending.holds(peer, op)
            });
            if self.inner.pending.remove(peer, op) {
                self.inner.ops.forget(op);
                self.inner.check_gone(peer)?;
                return Ok(false);
            }
        }
        self.inner.check_gone(peer).map(|()| true)
    }

    /// Waits for an operation on borrowed memory, and leaves its result in the table.
    #[inline]
    pub(crate) fn await_borrowed(&mut self, waiter: &mut Waiter, op: OpId, about: &[PeerId]) {
        if !self.inner.ops.is_done(op) {
            let guard = BorrowGuard { engine: self, op };
            let engine = &mut *guard.engine;
            waiter.until(engine, about, Awaited::Op(op), |inner| inner.has_ended(op));
            engine.inner.end_orphan(op);
            if engine.inner.ops.is_done(op) {
                // The memory is no longer exposed.
                std::mem::forget(guard);
            }
        }
    }
}

/// Guard that takes exposed memory back if the wait for its operation ends early.
struct BorrowGuard<'a> {
    engine: &'a mut Engine,
    op: OpId,
}

impl Drop for BorrowGuard<'_> {
    fn drop(&mut self) {
        self.engine.inner.take_back(self.op);
    }
}

impl Inner {
    /// Copies a held message to the beginning of `bytes`, which must be long enough, and frees it.
    #[inline]
    pub(crate) fn copy_held(&mut self, held: HeldId, bytes: &mut [u8]) {
        usage::count_copy();
        let copied = self.core.release_into(held, bytes);
        debug_assert!(copied.is_some(), "the buffer is too short");
    }

    /// Takes the memory of an operation back, if the operation is incomplete.
    pub(crate) fn take_back(&mut self, op: OpId) {
        if self.ops.exists(op) {
            self.give_up_op(op);
        }
    }

    /// Ends an operation, because its completion is no longer awaited.
    pub(crate) fn give_up_op(&mut self, op: OpId) {
        match self.withdraw(op) {
            true => self.ops.forget(op),
            false => _ = self.ops.detach(op),
        }
    }
}
