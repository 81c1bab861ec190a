// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged messages for programs: matched by a 64-bit tag and the sender, instead of a port.
#![allow(
    unsafe_code,
    reason = "a blocking receive passes its slice to an operation; see `ops`"
)]

use super::{INBOX_LEN_MAX, Node};
use crate::buffer::Buffer;
use crate::engine::{Context, Engine, Inner, Taken};
use crate::error::Error;
use crate::ops::{OpKind, Request};
use crate::port::Lane;
use portolan_proto::{
    ClaimId, Core, MatchBits, OpId, PeerId, RecvFilter, Selector, SendSpec, Space, WaitingRecv,
};
use std::time::Duration;

/// Destination, tag and service of a tagged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagTarget {
    /// Rank of the receiver.
    pub rank: u32,
    /// Tag that its receives match.
    pub tag: u64,
    /// Priority.
    pub lane: Lane,
    /// Immediate data: a word beside the message, which the receiver's completion contains.
    pub imm: Option<u64>,
}

impl TagTarget {
    /// Selects process `rank`, on the low lane, without immediate data.
    ///
    /// # Examples
    /// See [`Node::recv_tagged`].
    #[must_use]
    pub fn new(rank: u32, tag: u64) -> Self {
        TagTarget {
            rank,
            tag,
            lane: Lane::Low,
            imm: None,
        }
    }

    /// Selects another lane.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let to = TagTarget::new(node.rank(), 5).lane(Lane::High);
    /// node.send_tagged(to, b"ahoy")?;
    /// # node.recv_tagged(TagMatch::any(), &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn lane(self, lane: Lane) -> Self {
        TagTarget { lane, ..self }
    }

    /// Adds immediate data.
    ///
    /// # Examples
    /// See [`Node::recv_tagged`].
    #[must_use]
    pub fn imm(self, imm: u64) -> Self {
        let imm = Some(imm);
        TagTarget { imm, ..self }
    }

    pub(super) fn spec(&self) -> SendSpec {
        let match_bits = MatchBits {
            space: Space::Tagged,
            tag: self.tag,
            imm: self.imm,
        };
        SendSpec {
            to: match_bits.into(),
            lane: self.lane.into(),
            best_effort: false,
        }
    }
}

/// Criteria by which a receive selects tagged messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagMatch {
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that may differ: 0 for exactly this tag, `u64::MAX` for any.
    pub ignore: u64,
    /// Required source; `None` for any.
    pub source: Option<u32>,
}

impl TagMatch {
    /// Selects exactly `tag`, from any source.
    ///
    /// # Examples
    /// See [`Node::recv_tagged`].
    #[must_use]
    pub fn new(tag: u64) -> Self {
        TagMatch {
            tag,
            ignore: 0,
            source: None,
        }
    }

    /// Selects any message.
    ///
    /// # Examples
    /// See [`Node::recv_tagged`].
    #[must_use]
    pub fn any() -> Self {
        TagMatch::new(0).ignore(u64::MAX)
    }

    /// Ignores these bits of the tag.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// // All tags from 0x50 to 0x5f, from any process.
    /// let which = TagMatch::new(0x50).ignore(0xf);
    /// node.send_tagged(TagTarget::new(node.rank(), 0x57), b"ahoy")?;
    /// assert_eq!(node.recv_tagged(which, &mut [0; 16])?.tag, 0x57);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ignore(self, ignore: u64) -> Self {
        TagMatch { ignore, ..self }
    }

    /// Selects only messages from process `rank`.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let which = TagMatch::new(5).source(node.rank());
    /// node.send_tagged(TagTarget::new(node.rank(), 5), b"ahoy")?;
    /// node.recv_tagged(which, &mut [0; 16])?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn source(self, rank: u32) -> Self {
        let source = Some(rank);
        TagMatch { source, ..self }
    }
}

/// Properties of a received tagged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Rank of the sender.
    pub source: u32,
    /// Tag of the message.
    pub tag: u64,
    /// Length of the message, in bytes.
    pub len: usize,
    /// Immediate data of the message.
    pub imm: Option<u64>,
}

impl From<Taken> for Envelope {
    #[inline]
    fn from(taken: Taken) -> Envelope {
        Envelope {
            source: taken.received.source,
            tag: taken.match_bits.map_or(0, |bits| bits.tag),
            len: taken.received.len,
            imm: taken.match_bits.and_then(|bits| bits.imm),
        }
    }
}

impl From<portolan_proto::Envelope> for Envelope {
    fn from(envelope: portolan_proto::Envelope) -> Envelope {
        Envelope {
            source: envelope.peer.0,
            tag: envelope.match_bits.tag,
            len: usize::try_from(envelope.len).unwrap_or(usize::MAX),
            imm: envelope.match_bits.imm,
        }
    }
}

/// A message that is removed from matching, to be received by [`Node::recv_claimed`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claimed message that is never received keeps its memory"]
pub struct Claimed {
    id: ClaimId,
    envelope: Envelope,
}

impl Claimed {
    /// Returns the message's properties.
    ///
    /// # Examples
    /// See [`Node::claim`].
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}

impl Node {
    /// Sends `bytes`, like [`Node::send`]. Messages to one rank and lane are matched in the order
    /// in which they were sent, whether they go to ports or are tagged.
    ///
    /// # Errors
    /// As [`Node::send`].
    ///
    /// # Examples
    /// See [`Node::recv_tagged`].
    #[inline]
    pub fn send_tagged(&mut self, to: TagTarget, bytes: &[u8]) -> Result<(), Error> {
        self.send_spec(to.rank, to.spec(), bytes)
    }

    /// Starts a nonblocking send of `buffer`, like [`Node::isend`].
    ///
    /// # Errors
    /// As [`Node::send`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.isend_tagged(TagTarget::new(node.rank(), 5), vec![1; 4])?;
    /// # node.recv_tagged(TagMatch::any(), &mut [0; 4])?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn isend_tagged(
        &mut self,
        to: TagTarget,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let peer = engine.inner.check_rank(to.rank)?;
        let request = engine.inner.isend_spec(peer, to.spec(), buffer.into())?;
        engine.flush_if_wanted();
        Ok(request)
    }

    /// Starts a nonblocking send of a copy of `bytes`, without a request to wait for. The message
    /// is sent as by [`Node::isend_tagged`].
    ///
    /// # Errors
    /// As [`Node::send`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.isend_tagged_copy(TagTarget::new(node.rank(), 5), b"ahoy")?;
    /// # node.recv_tagged(TagMatch::any(), &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn isend_tagged_copy(&mut self, to: TagTarget, bytes: &[u8]) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        engine.send_copy(to.rank, to.spec(), bytes)
    }

    /// Posts `buffer` for the first message that matches `which` and no earlier receive. If `which`
    /// names a source that has ended, or ends, the request completes with an error.
    ///
    /// # Errors
    /// [`Error::BufferShared`], [`Error::NoSuchRank`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv_tagged(TagMatch::new(5), vec![0; 16])?;
    /// node.send_tagged(TagTarget::new(node.rank(), 5), b"ahoy")?;
    /// assert_eq!(node.wait(request)?.tag, 5);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn post_recv_tagged(
        &mut self,
        which: TagMatch,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let request = engine.inner.post_recv_tagged(which, buffer.into())?;
        engine.drain();
        Ok(request)
    }

    /// Waits for the first message that matches `which` and no earlier receive.
    ///
    /// # Errors
    /// [`Error::TruncatedTagged`], [`Error::NoSuchRank`], [`Error::PeerGone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send_tagged(TagTarget::new(node.rank(), 5).imm(9), b"ahoy")?;
    /// let received = node.recv_tagged(TagMatch::new(5), &mut [0; 16])?;
    /// assert_eq!((received.len, received.imm), (4, Some(9)));
    /// assert!(node.peek(TagMatch::any())?.is_none());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn recv_tagged(&mut self, which: TagMatch, bytes: &mut [u8]) -> Result<Envelope, Error> {
        let engine = &mut *self.engine.enter();
        let (selector, ready) = engine.recv_tagged_ready(which, bytes)?;
        if let Some(envelope) = ready {
            return Ok(envelope);
        }
        let (inner, source) = (&mut engine.inner, selector.source);
        let len = bytes.len() as u64;
        let kind = OpKind::RecvTagged { source };
        // SAFETY: `await_borrowed` returns only when the operation is complete, and its guard detaches
        // the memory if a handler panics; `bytes` is not used before.
        let op = unsafe { inner.ops.borrowed_mut(kind, bytes) };
        inner.core.post_tagged(&selector, op, len);
        engine.drain();
        engine.await_borrowed(&mut self.waiter, op, source.as_slice());
        engine.finish_tagged(op)
    }

    /// Waits like [`Node::recv_tagged`], at most for `timeout`. Returns `None`, with no message
    /// lost, if none has arrived by then.
    ///
    /// # Errors
    /// As [`Node::recv_tagged`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// let none = node.recv_tagged_timeout(TagMatch::new(5), &mut [0; 16], patience)?;
    /// assert!(none.is_none());
    /// # Ok(()) }
    /// ```
    pub fn recv_tagged_timeout(
        &mut self,
        which: TagMatch,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<Envelope>, Error> {
        let engine = &mut *self.engine.enter();
        let deadline = engine.inner.deadline(timeout);
        let (selector, ready) = engine.recv_tagged_ready(which, bytes)?;
        if ready.is_some() {
            return Ok(ready);
        }
        let (inner, len) = (&mut engine.inner, bytes.len() as u64);
        let kind = OpKind::RecvTagged {
            source: selector.source,
        };
        // SAFETY: as in `recv_tagged`, with `await_borrowed_until`.
        let op = unsafe { inner.ops.borrowed_mut(kind, bytes) };
        inner.core.post_tagged(&selector, op, len);
        engine.drain();
        match engine.await_borrowed_until(&mut self.waiter, op, deadline) {
            true => engine.finish_tagged(op).map(Some),
            false => Ok(None),
        }
    }

    /// Sends `bytes` like [`Node::send_timeout`], with a tag.
    ///
    /// # Errors
    /// As [`Node::send_timeout`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let patience = std::time::Duration::from_millis(1);
    /// assert!(node.send_tagged_timeout(TagTarget::new(node.rank(), 5), b"ahoy", patience)?);
    /// # node.recv_tagged(TagMatch::any(), &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    pub fn send_tagged_timeout(
        &mut self,
        to: TagTarget,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<bool, Error> {
        self.send_spec_timeout(to.rank, to.spec(), bytes, timeout)
    }

    /// Makes progress once, and returns the first unexpected message that matches `which`. It stays
    /// available to receives.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::UnexpectedMemoryFull`] when no such message can arrive before other
    /// messages are received; [`Error::PeerGone`] when its source has ended; [`Error::NobodyLeft`]
    /// when every other process of a job of several has ended.
    ///
    /// # Examples
    /// See [`Node::recv_tagged`].
    pub fn peek(&mut self, which: TagMatch) -> Result<Option<Envelope>, Error> {
        let engine = &mut *self.engine.enter();
        let selector = engine.inner.selector(which)?;
        let found = engine.poll_for(&selector, |core| core.peek_tagged(&selector))?;
        Ok(found.map(Envelope::from))
    }

    /// Like [`Node::peek`], but removes the message from matching with other receives.
    ///
    /// # Errors
    /// As [`Node::peek`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send_tagged(TagTarget::new(node.rank(), 5), b"ahoy")?;
    /// let claimed = loop {
    ///     if let Some(claimed) = node.claim(TagMatch::new(5))? {
    ///         break claimed;
    ///     }
    /// };
    /// let bytes = vec![0; claimed.envelope().len];
    /// let request = node.recv_claimed(claimed, bytes)?;
    /// node.wait(request)?;
    /// # Ok(()) }
    /// ```
    pub fn claim(&mut self, which: TagMatch) -> Result<Option<Claimed>, Error> {
        let engine = &mut *self.engine.enter();
        let selector = engine.inner.selector(which)?;
        let found = engine.poll_for(&selector, |core| core.claim_tagged(&selector))?;
        Ok(found.map(|(id, envelope)| Claimed {
            id,
            envelope: envelope.into(),
        }))
    }

    /// Posts `buffer` for a claimed message. An empty buffer discards it: the request then
    /// completes with [`Error::TruncatedTagged`], unless the message is empty too.
    ///
    /// # Errors
    /// [`Error::BufferShared`], [`Error::StaleRequest`] for a claim of another node.
    ///
    /// # Examples
    /// See [`Node::claim`].
    pub fn recv_claimed(
        &mut self,
        claimed: Claimed,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let source = Some(PeerId(claimed.envelope.source));
        let engine = &mut *self.engine.enter();
        let (op, len) = engine.inner.own_tagged(source, buffer.into())?;
        if !engine.inner.core.recv_claimed(claimed.id, op, len) {
            engine.inner.ops.forget(op);
            return Err(Error::StaleRequest);
        }
        engine.drain();
        Ok(Request(op))
    }

    /// Cancels a posted receive, tagged or at a port without a handler, or a call without a reply.
    /// It completes with [`Error::Cancelled`]. Returns `false` for a send or a collective operation,
    /// or when a message has matched the receive, which then completes normally.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv(7, vec![0; 16])?;
    /// assert!(node.cancel(request));
    /// assert!(matches!(node.wait(request).unwrap_err().error(), Error::Cancelled));
    /// # Ok(()) }
    /// ```
    pub fn cancel(&mut self, request: Request) -> bool {
        let inner = &mut self.engine.enter().inner;
        let withdrawn = !inner.ops.is_handled(request.0)
            && (inner.withdraw(request.0) || inner.forget_call(request.0));
        if withdrawn {
            inner.ops.fail(request.0, Error::Cancelled);
        }
        withdrawn
    }
}

impl Engine {
    /// Checks the arguments of a receive, and receives a message that is here or arrives at once.
    #[inline]
    fn recv_tagged_ready(
        &mut self,
        which: TagMatch,
        bytes: &mut [u8],
    ) -> Result<(Selector, Option<Envelope>), Error> {
        self.inner.check_owner()?;
        let selector = self.inner.selector(which)?;
        let want = WaitingRecv {
            filter: RecvFilter::MatchBits(selector),
            len: bytes.len(),
        };
        if bytes.len() <= INBOX_LEN_MAX
            && self.inner.core.is_quiet(&want.filter)
            && let Some(taken) = self.recv_in_turns(want, bytes, || false)
        {
            return Ok((selector, Some(taken.into())));
        }
        let inner = &mut self.inner;
        let Some((envelope, held)) = inner.core.take_held_tagged(&selector, bytes.len()) else {
            return Ok((selector, None));
        };
        inner.copy_held(held, bytes);
        Ok((selector, Some(envelope.into())))
    }

    /// Removes a completed tagged receive and returns its result.
    fn finish_tagged(&mut self, op: OpId) -> Result<Envelope, Error> {
        let done = self.inner.ops.finish(op);
        let done = done.unwrap_or_else(|| Err(self.inner.stale().into()))?;
        Ok(Envelope {
            source: done.source,
            tag: done.tag,
            len: done.len,
            imm: done.imm,
        })
    }

    /// Makes progress once and calls `find` to search for a message. Returns an error if no message
    /// waits and none can arrive.
    fn poll_for<T>(
        &mut self,
        selector: &Selector,
        find: impl Fn(&mut Core) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.progress();
        let mut found = find(&mut self.inner.core);
        if found.is_none() {
            self.on_empty_poll_from(selector.source);
            found = find(&mut self.inner.core);
        }
        if found.is_none() {
            self.inner.check_shortage()?;
            self.inner.check_sender(selector.source)?;
        }
        Ok(found)
    }
}

impl Inner {
    pub(super) fn check_shortage(&self) -> Result<(), Error> {
        match self.core.shortage() {
            Some(error) => Err(self.op_error(OpId(u64::MAX), error)),
            None => Ok(()),
        }
    }
}

impl Context<'_> {
    /// Sends a copy of `bytes`, like [`Context::send`].
    ///
    /// # Errors
    /// As [`Context::send`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn send_tagged(&mut self, to: TagTarget, bytes: &[u8]) -> Result<(), Error> {
        let inner = self.inner();
        let peer = inner.check_rank(to.rank)?;
        inner.send_copy_spec(peer, to.spec(), bytes)
    }

    /// Sends `buffer`; wait for it outside the handler.
    ///
    /// # Errors
    /// As [`Context::send`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn isend_tagged(
        &mut self,
        to: TagTarget,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let inner = self.inner();
        let peer = inner.check_rank(to.rank)?;
        inner.isend_spec(peer, to.spec(), buffer.into())
    }

    /// Posts `buffer` like [`Node::post_recv_tagged`]; wait for it outside the handler.
    ///
    /// # Errors
    /// As [`Node::post_recv_tagged`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn post_recv_tagged(
        &mut self,
        which: TagMatch,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        self.inner().post_recv_tagged(which, buffer.into())
    }
}

impl Inner {
    fn post_recv_tagged(&mut self, which: TagMatch, buffer: Buffer) -> Result<Request, Error> {
        self.check_owner()?;
        let selector = self.selector(which)?;
        let (op, len) = self.own_tagged(selector.source, buffer)?;
        self.core.post_tagged(&selector, op, len);
        Ok(Request(op))
    }

    pub(super) fn selector(&self, which: TagMatch) -> Result<Selector, Error> {
        let check = |rank| self.check_rank(rank);
        Ok(Selector {
            space: Space::Tagged,
            tag: which.tag,
            ignore: which.ignore,
            source: which.source.map(check).transpose()?,
        })
    }

    /// Uses `buffer` as the memory of a tagged receive.
    fn own_tagged(
        &mut self,
        source: Option<PeerId>,
        mut buffer: Buffer,
    ) -> Result<(OpId, u64), Error> {
        if buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        let len = buffer.len() as u64;
        let kind = OpKind::RecvTagged { source };
        Ok((self.ops.owned(kind, buffer), len))
    }
}
