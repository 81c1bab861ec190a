// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submits messages: at once if the core accepts them, otherwise they are queued here in order.

use super::{Engine, Inner};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::ops::{Memory, OpKind, Owner, Received, Request};
use crate::port::Target;
use portolan_proto::{
    Cause, FlushHint, LinkId, OpError, OpId, PeerId, PeerStatus, Refused, SendSpec,
};
use portolan_sys::usage;

/// Longest message for which a blocking send does not wait for the receiver. Networks send such a
/// message without a request (`P4.5`). On shared memory the receiver reads a longer message in
/// place, and a shorter one from a copy. A program therefore completes on every path if it
/// completes on one.
pub(crate) const BUFFERED_LEN_MAX: usize = 64 * 1024;

/// Maximum number of bytes that a process may have sent to itself and not received, in addition to
/// credit. Leaves room for a long message or thousands of short ones, and stops a program that
/// never receives them.
const SELF_UNREAD_MAX: usize = 64 << 20;

/// Number of transfers to a peer up to which a request to send leaves at once. With more, requests
/// wait for the next turn and share frames (`P4.6`). This delays no data: the peer is busy with
/// earlier transfers, and their data needs further turns of this process. Two keep the peer busy
/// while the next request is on its way.
const PROMPT_REQUESTS_MAX: usize = 2;

/// Result of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The message was copied; its memory is free.
    Accepted,
    /// The message must wait or needs a rendezvous; its memory stays in use.
    Wait,
}

impl Engine {
    /// Sends a copy of `bytes`; the caller has nothing to wait for. Messages by shared memory bypass
    /// the queues, because a frame costs as much as a message there. So does the first message of a
    /// turn over a network, because it would leave at once anyway.
    #[inline(always)]
    pub(crate) fn send_copy(
        &mut self,
        rank: u32,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let peer = self.inner.check_rank(rank)?;
        if self.inner.core.is_direct(peer) && self.send_direct(peer, &spec, bytes) {
            return Ok(());
        }
        let turn = self.inner.turn;
        if self.inner.peers[peer.0 as usize].is_first(turn) && self.send_direct(peer, &spec, bytes)
        {
            self.inner.peers[peer.0 as usize].note_send(turn);
            return Ok(());
        }
        self.inner.send_copy_spec(peer, spec, bytes)?;
        self.flush_if_wanted();
        Ok(())
    }
}

impl Inner {
    /// Tries to send `pieces` eagerly.
    #[inline]
    pub(crate) fn try_eager(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        pieces: &[&[u8]],
    ) -> Result<Submitted, Error> {
        let Some(hint) = self.stage(peer, spec, pieces)? else {
            return Ok(Submitted::Wait);
        };
        // A message that is alone in this turn, or fills frames that fit no further message, leaves
        // at once. A message of a burst leaves with the next turn, together with the ones after it.
        let info = &mut self.peers[peer.0 as usize];
        let waits = info.note_send(self.turn);
        let leaves = match hint {
            FlushHint::Open => info.is_alone(),
            FlushHint::Frames => !waits,
            FlushHint::Full => true,
        };
        self.flush_wanted |= leaves;
        Ok(Submitted::Accepted)
    }

    /// Copies `pieces` into frames of their lane, if they may be sent now.
    #[inline]
    pub(crate) fn stage(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        pieces: &[&[u8]],
    ) -> Result<Option<FlushHint>, Error> {
        if self.pending.has(peer, spec) {
            return Ok(None);
        }
        let len = pieces.iter().map(|piece| piece.len()).sum();
        match self.core.eager(peer, spec, len) {
            Ok(mut staging) => {
                for piece in pieces {
                    usage::count_copy();
                    staging.push(piece);
                }
                Ok(Some(staging.hint()))
            }
            Err(Refused::Busy | Refused::TooLong) => Ok(None),
            Err(refused) => self.on_refused(peer, refused).map(|_| None),
        }
    }

    /// Handles a refusal that concerns the session.
    #[cold]
    pub(super) fn on_refused(
        &mut self,
        peer: PeerId,
        refused: Refused,
    ) -> Result<Submitted, Error> {
        match refused {
            Refused::PeerFailed(cause @ (Cause::ProcessExited | Cause::Violation(_))) => {
                Err(self.peer_error(peer, cause))
            }
            Refused::Unknown | Refused::PeerFailed(_) => {
                self.connect(peer)?;
                Ok(Submitted::Wait)
            }
            _ => Ok(Submitted::Wait),
        }
    }

    /// Tests whether a blocking send of `len` bytes must send a copy. The receiver may request the
    /// message late or never, and this process cannot receive from itself while it waits.
    pub(crate) fn must_buffer(&self, peer: PeerId, len: usize) -> bool {
        let shm = self.core.path_status(peer, LinkId::SHM);
        peer.0 == self.rank() || len <= BUFFERED_LEN_MAX && shm.is_some_and(|path| path.up)
    }

    /// Submits a copy of `bytes` that no caller waits for. It is sent at once in parts if possible.
    /// Otherwise its operation is returned.
    pub(crate) fn submit_copy(
        &mut self,
        peer: PeerId,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<Option<OpId>, Error> {
        let may_go = peer.0 != self.rank() && !self.pending.has(peer, &spec);
        if may_go && self.core.eager_in_parts(peer, &spec, bytes).is_ok() {
            self.flush_wanted = true;
            return Ok(None);
        }
        let op = self.copy_of(peer, bytes)?;
        self.submit_op(peer, spec, op);
        Ok(Some(op))
    }

    /// Enters an operation that sends a copy of `bytes` and that no caller waits for.
    fn copy_of(&mut self, peer: PeerId, bytes: &[u8]) -> Result<OpId, Error> {
        let copy = Buffer::from(self.pool.copy("a copy of a message", bytes)?);
        if peer.0 == self.rank() {
            let unread = self.self_unread;
            if bytes.len() > SELF_UNREAD_MAX - unread {
                return Err(Error::SelfFull {
                    len: bytes.len(),
                    unread,
                    limit: SELF_UNREAD_MAX,
                });
            }
            self.self_unread += bytes.len();
        }
        let memory = Memory::Owned(copy);
        Ok(self.ops.enter(OpKind::Send(peer), memory, Owner::None))
    }

    /// Tests whether `peer` was given up.
    pub(crate) fn is_gone(&self, peer: PeerId) -> bool {
        matches!(self.core.peer_status(peer), PeerStatus::Failed(_))
    }

    /// Returns an error if `peer` was given up.
    pub(crate) fn check_gone(&self, peer: PeerId) -> Result<(), Error> {
        match self.core.peer_status(peer) {
            PeerStatus::Failed(cause) => Err(self.peer_error(peer, cause)),
            _ => Ok(()),
        }
    }

    /// Opens a session with `peer`, unless one is open or being opened.
    pub(crate) fn connect(&mut self, peer: PeerId) -> Result<(), Error> {
        if self.relations.is_some() && self.peers[peer.0 as usize].has_ended {
            // Another relation makes it another peer.
            self.check_gone(peer)?;
        }
        if self.table.links_to(peer).is_empty() {
            return Err(Error::NoPath {
                rank: peer.0,
                host: self.host_of(peer),
                why: self.no_address_text(peer),
            });
        }
        let now = self.read_clock();
        if !matches!(
            self.core.peer_status(peer),
            PeerStatus::Up | PeerStatus::Connecting
        ) {
            self.peers[peer.0 as usize].is_opening = true;
            self.core.connect(now, peer);
            self.unreached.push(peer);
            self.flush_wanted = true;
        }
        Ok(())
    }

    /// Announces or queues the message of `op`.
    pub(crate) fn submit_op(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        if self.pending.has(peer, &spec) || !self.try_op(peer, &spec, op) {
            self.pending.push(peer, spec, op);
            self.flush_wanted = true;
        }
    }

    /// Submits the message of `op` to the core. Returns `false` if it must wait longer.
    pub(super) fn try_op(&mut self, peer: PeerId, spec: &SendSpec, op: OpId) -> bool {
        if let Some(OpKind::Remote(_)) = self.ops.kind(op) {
            return self.try_queued_remote(peer, op);
        }
        match self.try_uncoordinated(peer, spec, op) {
            Ok(()) => {
                self.flush_wanted = true;
                self.complete_send(op, peer, Ok(()));
                return true;
            }
            Err(Refused::TooLong) => {}
            Err(Refused::PeerFailed(cause)) => {
                let gone = Err(OpError::PeerFailed(peer, cause));
                self.complete_send(op, peer, gone);
                return true;
            }
            Err(_) => return false,
        }
        let len = self.ops.len(op) as u64;
        let remote_addr = self.pull_addr(peer, op, 0);
        self.note_long(len);
        // The transfer may be timed.
        self.read_clock();
        match self
            .core
            .rendezvous(self.now, peer, spec, op, len, remote_addr)
        {
            Ok(is_pushed) => {
                // A peer that reads the message itself needs nothing else of this process.
                self.flush_wanted |= is_pushed
                    || remote_addr != 0
                    || !self.core.sends_more_than(PROMPT_REQUESTS_MAX, peer);
                self.note_exposed(peer, op, (remote_addr, len));
                true
            }
            Err(Refused::PeerFailed(cause)) => {
                self.complete_send(op, peer, Err(OpError::PeerFailed(peer, cause)));
                true
            }
            Err(_) => false,
        }
    }

    /// Submits the message of `op` whole, or in parts if no caller waits for it. It has then left,
    /// even if its receiver never posts a receive. Refuses it as too long if it needs a rendezvous.
    fn try_uncoordinated(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        op: OpId,
    ) -> Result<(), Refused> {
        if self.needs_rendezvous(op) {
            return Err(Refused::TooLong);
        }
        let goes_in_parts =
            peer.0 != self.rank() && matches!(self.ops.owner(op), Some(Owner::None));
        let [bytes, more] = self.ops.pieces(op);
        match self.core.eager(peer, spec, bytes.len() + more.len()) {
            Ok(mut staging) => {
                staging.push(bytes);
                staging.push(more);
                Ok(())
            }
            // A copy has a single piece.
            Err(Refused::TooLong) if goes_in_parts => self.core.eager_in_parts(peer, spec, bytes),
            Err(refused) => Err(refused),
        }
    }

    /// Returns the address of byte `off` of the memory of `op` if `peer` may be able to read it,
    /// otherwise 0. Also returns 0 for memory in two pieces, which a single address cannot
    /// describe.
    pub(super) fn pull_addr(&self, peer: PeerId, op: OpId, off: usize) -> u64 {
        let path = self.core.path_status(peer, LinkId::SHM);
        let [bytes, more] = self.ops.pieces(op);
        match bytes.get(off..) {
            Some(bytes) if more.is_empty() && path.is_some_and(|path| path.up) => {
                bytes.as_ptr().addr() as u64
            }
            _ => 0,
        }
    }

    pub(crate) fn complete_send(&mut self, op: OpId, peer: PeerId, result: Result<(), OpError>) {
        let result = self.take_fault(op).map_or(result, Err);
        match (self.ops.owner(op), result) {
            (None, _) => {}
            (Some(Owner::Caller(_)), result) => self.end_raw_send(op, peer, result),
            (Some(Owner::None), _) => {
                if peer.0 == self.rank() {
                    self.self_unread -= self.ops.bytes(op).len();
                }
                self.ops.forget(op);
            }
            (Some(Owner::Request(_)), Ok(())) => {
                let len = self.ops.len(op);
                let source = peer.0;
                self.ops.complete_ok(op, Received { len, source }, None);
            }
            (Some(Owner::Request(_)), Err(error)) => {
                let error = self.op_error(op, error);
                self.ops.fail(op, error);
            }
        }
    }

    /// Sends a buffer without blocking. The library owns the buffer until the send completes.
    pub(crate) fn isend(&mut self, to: &Target, buffer: Buffer) -> Result<Request, Error> {
        let peer = self.check_rank(to.rank())?;
        self.isend_spec(peer, to.spec(), buffer)
    }

    /// Sends a buffer like [`Inner::isend`], to any address.
    pub(crate) fn isend_spec(
        &mut self,
        peer: PeerId,
        spec: SendSpec,
        buffer: Buffer,
    ) -> Result<Request, Error> {
        let (submitted, len) = (self.offer(peer, &spec, &buffer)?, buffer.len());
        let op = self.ops.owned(OpKind::Send(peer), buffer);
        self.settle(peer, spec, (op, len), submitted);
        Ok(Request(op))
    }

    /// Copies a message to a frame, if it can be sent now.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<Submitted, Error> {
        match self.append(peer, spec, bytes) {
            true => Ok(Submitted::Accepted),
            false => self.try_eager(peer, spec, &[bytes]),
        }
    }

    /// Completes the send `op` of a message of `len` bytes that was offered, or queues it.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        peer: PeerId,
        spec: SendSpec,
        (op, len): (OpId, usize),
        submitted: Submitted,
    ) {
        match submitted {
            Submitted::Accepted => {
                let source = peer.0;
                self.ops.complete_ok(op, Received { len, source }, None);
            }
            Submitted::Wait => self.submit_op(peer, spec, op),
        }
    }

    /// Appends a message to a frame that is being filled and has room. Returns `false` if there is
    /// none.
    #[inline]
    fn append(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        let appended =
            !self.pending.has(peer, spec) && self.core.append(peer, spec, [bytes, &[]]).is_some();
        if appended {
            self.peers[peer.0 as usize].note_send(self.turn);
        }
        appended
    }

    /// Sends a copy of `bytes`; the caller has nothing to wait for.
    pub(crate) fn send_copy(&mut self, to: &Target, bytes: &[u8]) -> Result<(), Error> {
        let peer = self.check_rank(to.rank())?;
        self.send_copy_spec(peer, to.spec(), bytes)
    }

    /// Sends `buffer` and drops it when the message has arrived. No caller waits for that.
    pub(crate) fn send_unawaited(
        &mut self,
        peer: PeerId,
        spec: SendSpec,
        buffer: Buffer,
    ) -> Result<(), Error> {
        if peer.0 == self.rank() {
            // Counted as unread.
            return self.send_copy_spec(peer, spec, &buffer);
        }
        if self.append(peer, &spec, &buffer)
            || self.try_eager(peer, &spec, &[&buffer])? == Submitted::Accepted
        {
            return Ok(());
        }
        let memory = Memory::Owned(buffer);
        let op = self.ops.enter(OpKind::Send(peer), memory, Owner::None);
        self.submit_op(peer, spec, op);
        Ok(())
    }

    /// Sends a copy like [`Inner::send_copy`], to any address.
    pub(crate) fn send_copy_spec(
        &mut self,
        peer: PeerId,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if self.append(peer, &spec, bytes) {
            return Ok(());
        }
        if self.try_eager(peer, &spec, &[bytes])? == Submitted::Wait {
            self.submit_copy(peer, spec, bytes)?;
        }
        Ok(())
    }
}
