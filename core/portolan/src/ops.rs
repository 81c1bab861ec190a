// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of pending operations: the kind of each, the user memory that it may access, and the owner
//! that is notified of its end.
//!
//! This is the only place where the library accesses user memory through pointers: blocking calls
//! expose their slices for the time of the call. A call that ends early (a handler panicked) takes
//! its memory back with [`Ops::detach`] before the borrow ends.
#![allow(
    unsafe_code,
    reason = "blocking calls pass slices to operations that outlive a borrow"
)]

use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::{Cookie, RawKind, RawOp, RawPiece, RawWhat};
use bytemuck::Pod;
use portolan_proto::{MatchBits, OpId, PeerId, PortId};
use portolan_sys::usage;
use std::collections::HashMap;
use std::ptr::NonNull;

/// Length and sender of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the message.
    pub len: usize,
    /// Rank of the sender.
    pub source: u32,
}

/// A non-blocking operation, to be waited for or tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "an operation that is never waited for keeps its buffer"]
pub struct Request(pub(crate) OpId);

impl Request {
    /// Returns the request as a number, never 0, for interfaces in other languages.
    ///
    /// # Examples
    /// See [`crate::Node::wait`].
    #[must_use]
    pub fn to_raw(self) -> u64 {
        self.0.0
    }

    /// Returns the request of a number from [`Request::to_raw`]. Any other number gives a request
    /// that is already complete.
    ///
    /// # Examples
    /// See [`crate::Node::wait`].
    pub fn from_raw(raw: u64) -> Request {
        Request(OpId(raw))
    }
}

/// Result of a non-blocking operation.
#[derive(Debug)]
pub struct Completion {
    /// Bytes of the message.
    pub len: usize,
    /// Rank of the sender; for a send, rank of the receiver.
    pub source: u32,
    /// The operation's buffer.
    pub buffer: Option<Buffer>,
    /// Tag of a received tagged message; otherwise 0.
    pub tag: u64,
    /// Immediate data of the message.
    pub imm: Option<u64>,
}

impl Completion {
    /// Returns the received elements. They are not copied if the operation's buffer was made of such
    /// elements ([`Buffer::typed`]). Without a buffer the vector is empty.
    ///
    /// # Errors
    /// [`Error::PartialElement`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv(7, Buffer::typed(vec![0_u32; 4]))?;
    /// node.send(own, &5_u32.to_ne_bytes())?;
    /// let numbers: Vec<u32> = node.wait(request)?.into_vec()?;
    /// assert_eq!(numbers, [5]);
    /// # Ok(()) }
    /// ```
    pub fn into_vec<T: Pod>(self) -> Result<Vec<T>, Error> {
        match self.buffer {
            Some(buffer) => {
                let len = self.len.min(buffer.len());
                buffer.into_elements(len)
            }
            None => Ok(Vec::new()),
        }
    }
}

/// Failure of a non-blocking operation. It returns the operation's buffer.
///
/// The operator `?` converts it to an [`Error`] in functions that return one.
#[derive(thiserror::Error)]
#[error("{}", self.0.error)]
pub struct Failed(Box<FailedParts>);

struct FailedParts {
    error: Error,
    completion: Completion,
}

impl Failed {
    /// Rank in the completion of an operation that failed without a peer.
    pub const NO_SOURCE: u32 = u32::MAX;

    /// Creates the failure of an operation of this kind, with the facts that the error names.
    fn new(kind: OpKind, error: Error, buffer: Option<Buffer>) -> Failed {
        let awaited = kind.awaited_peer().map(|peer| peer.0);
        let (source, len, tag, imm) = match &error {
            Error::Truncated {
                source_rank,
                message_len,
                ..
            } => (Some(*source_rank), *message_len, 0, None),
            Error::TruncatedTagged {
                source_rank,
                tag,
                imm,
                message_len,
                ..
            } => (Some(*source_rank), *message_len, *tag, *imm),
            Error::PeerGone { rank, .. } => (Some(*rank), 0, 0, None),
            _ => (None, 0, 0, None),
        };
        let completion = Completion {
            len: usize::try_from(len).unwrap_or(usize::MAX),
            source: source.or(awaited).unwrap_or(Failed::NO_SOURCE),
            buffer,
            tag,
            imm,
        };
        Failed(Box::new(FailedParts { error, completion }))
    }

    /// Returns the reason.
    ///
    /// # Examples
    /// See [`Failed::into_parts`].
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// Returns what is known of the operation: its buffer, and length, source and tag of a message
    /// that was longer than the buffer. Without a peer, the source is [`Failed::NO_SOURCE`].
    ///
    /// # Examples
    /// See [`Failed::into_parts`].
    #[must_use]
    pub fn completion(&self) -> &Completion {
        &self.0.completion
    }

    /// Returns the reason, and what is known of the operation.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv(7, vec![0; 2])?;
    /// node.send(own, b"ahoy")?;
    /// let failed = node.wait(request).unwrap_err();
    /// assert!(matches!(failed.error(), Error::Truncated { .. }));
    /// let (_, completion) = failed.into_parts();
    /// assert_eq!(&completion.buffer.unwrap()[..], b"ah");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_parts(self) -> (Error, Completion) {
        let FailedParts { error, completion } = *self.0;
        (error, completion)
    }
}

impl std::fmt::Debug for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        failed.0.error
    }
}

impl From<Error> for Failed {
    /// Makes the failure of a call that ended no operation.
    fn from(error: Error) -> Failed {
        Failed::new(OpKind::Region, error, None)
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Send(PeerId),
    /// Access to the memory of this peer.
    Remote(PeerId),
    /// Registered memory, which other processes may access. Not an operation.
    Region,
    Recv {
        port: PortId,
        source: Option<PeerId>,
    },
    RecvTagged {
        source: Option<PeerId>,
    },
    /// Several messages of a group.
    Collective {
        group: u16,
    },
    /// Call of this peer, which replies.
    Call(PeerId),
    /// Wait for a message that is not received.
    Probe {
        source: Option<PeerId>,
    },
}

impl OpKind {
    /// Returns the only peer that can end the operation, if there is one.
    #[inline]
    pub(crate) fn awaited_peer(self) -> Option<PeerId> {
        match self {
            OpKind::Send(peer) | OpKind::Remote(peer) | OpKind::Call(peer) => Some(peer),
            OpKind::Recv { source, .. }
            | OpKind::RecvTagged { source }
            | OpKind::Probe { source } => source,
            OpKind::Region | OpKind::Collective { .. } => None,
        }
    }
}

/// Memory of an operation.
#[derive(Debug)]
pub(crate) enum Memory {
    Owned(Buffer),
    /// Message in two pieces, to be sent.
    Two(Box<[Buffer; 2]>),
    /// Borrowed for reading by a send.
    Borrowed(*const u8, usize),
    /// Borrowed for writing by a receive.
    BorrowedMut(*mut u8, usize),
}

impl Memory {
    /// Borrows `bytes` for reading.
    ///
    /// # Safety
    /// `bytes` must stay valid and unchanged until the operation has ended: removed from the table,
    /// or [`Ops::detach`]ed.
    #[inline]
    pub(crate) unsafe fn borrowed(bytes: &[u8]) -> Memory {
        Memory::Borrowed(bytes.as_ptr(), bytes.len())
    }

    /// Borrows `bytes` for writing.
    ///
    /// # Safety
    /// As [`Memory::borrowed`], and nothing else may use `bytes` until then.
    #[inline]
    pub(crate) unsafe fn borrowed_mut(bytes: &mut [u8]) -> Memory {
        Memory::BorrowedMut(bytes.as_mut_ptr(), bytes.len())
    }

    /// Borrows a piece for writing; an empty piece may be null.
    ///
    /// # Safety
    /// As [`Memory::borrowed_mut`].
    #[inline]
    pub(crate) unsafe fn of_piece(piece: RawPiece) -> Memory {
        match piece.len {
            0 => Memory::BorrowedMut(NonNull::dangling().as_ptr(), 0),
            len => Memory::BorrowedMut(piece.ptr, len),
        }
    }

    /// Returns the bytes; an empty slice for a message in two pieces.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Owned(buffer) => buffer,
            Memory::Two(_) => &[],
            // SAFETY: `borrowed`'s caller keeps the borrow alive while the operation exists.
            &Memory::Borrowed(ptr, len) => unsafe { std::slice::from_raw_parts(ptr, len) },
            // SAFETY: as above; nothing else uses the bytes until the operation is finished.
            &Memory::BorrowedMut(ptr, len) => unsafe { std::slice::from_raw_parts(ptr, len) },
        }
    }

    /// Returns the bytes for writing; an empty slice for memory of sends.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Owned(buffer) => buffer.as_mut_slice().unwrap_or(&mut []),
            // SAFETY: `borrowed_mut`'s caller borrowed the bytes for writing and does not use them
            // until the operation is finished; `&mut self` keeps this the only access.
            &mut Memory::BorrowedMut(ptr, len) => unsafe {
                std::slice::from_raw_parts_mut(ptr, len)
            },
            Memory::Borrowed(..) | Memory::Two(_) => &mut [],
        }
    }
}

impl Memory {
    /// Returns the bytes in the order of sending; the second piece is empty for a message in one
    /// piece.
    #[inline]
    pub(crate) fn pieces(&self) -> [&[u8]; 2] {
        match self {
            Memory::Two(pieces) => [&pieces[0], &pieces[1]],
            _ => [self.bytes(), &[]],
        }
    }
}

/// State of an operation that has a request.
#[derive(Debug)]
pub(crate) enum State {
    Pending,
    /// Result, with the match bits of a received tagged message.
    Done(Received, Option<MatchBits>),
    /// Boxed, because errors are long and rare.
    Failed(Box<Error>),
}

/// Owner of an operation, which is notified of its end.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Holder of the operation's request, which polls the state.
    Request(State),
    /// Handler of the operation's port, or no owner.
    None,
    /// Caller of an endpoint, notified by a completion.
    Caller(RawOp),
}

#[derive(Debug)]
struct Op {
    kind: OpKind,
    memory: Memory,
    owner: Owner,
}

/// Ended operation of an endpoint, removed from the table.
pub(crate) struct Ended {
    pub(crate) awaited_peer: Option<PeerId>,
    pub(crate) memory: Memory,
    pub(crate) raw: RawOp,
}

/// Receive of an endpoint's caller into one piece of memory, removed from the table.
pub(crate) struct PlainRecv {
    pub(crate) awaited_peer: Option<PeerId>,
    pub(crate) cookie: Cookie,
    pub(crate) kind: RawKind,
    pub(crate) buf: *mut u8,
    pub(crate) buf_len: usize,
}

/// Id of no operation: generations begin at 1.
const NO_OP: OpId = OpId(0);

/// Table of the pending operations.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    places: Vec<(u32, Option<Op>)>,
    free: Vec<u32>,
    /// Operations that the core has assigned further numbers to, by those numbers.
    parts: HashMap<OpId, OpId>,
}

// SAFETY: the raw pointers are dereferenced only through `&mut self` of the engine that owns the
// table. For a blocking call, the thread that borrowed the memory does this. For an endpoint's
// operations, any thread that has the engine may: their callers guarantee that nothing else uses
// the memory until the operation has ended.
unsafe impl Send for Ops {}

impl Ops {
    /// Creates an operation on a buffer, with a request.
    pub(crate) fn owned(&mut self, kind: OpKind, buffer: Buffer) -> OpId {
        self.enter(kind, Memory::Owned(buffer), Owner::Request(State::Pending))
    }

    /// Creates an operation without memory, with a request.
    pub(crate) fn without_memory(&mut self, kind: OpKind) -> OpId {
        self.owned(kind, Buffer::from(Vec::new()))
    }

    /// Creates a send of borrowed `bytes`.
    ///
    /// # Safety
    /// The caller must [`Ops::finish`] or [`Ops::detach`] the operation before the borrow of
    /// `bytes` ends.
    pub(crate) unsafe fn borrowed(&mut self, kind: OpKind, bytes: &[u8]) -> OpId {
        // SAFETY: required of the caller by this function's contract.
        let memory = unsafe { Memory::borrowed(bytes) };
        self.enter(kind, memory, Owner::Request(State::Pending))
    }

    /// Creates a receive into borrowed `bytes`.
    ///
    /// # Safety
    /// The caller must [`Ops::finish`] or [`Ops::detach`] the operation before the borrow of
    /// `bytes` ends, and not use `bytes` until then.
    pub(crate) unsafe fn borrowed_mut(&mut self, kind: OpKind, bytes: &mut [u8]) -> OpId {
        // SAFETY: required of the caller by this function's contract.
        let memory = unsafe { Memory::borrowed_mut(bytes) };
        self.enter(kind, memory, Owner::Request(State::Pending))
    }

    #[inline]
    pub(crate) fn enter(&mut self, kind: OpKind, memory: Memory, owner: Owner) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        // The core uses the highest bit of a number to mark parts.
        place.0 = place.0.wrapping_add(1) & (u32::MAX >> 1);
        place.1 = Some(Op {
            kind,
            memory,
            owner,
        });
        OpId(u64::from(place.0) << 32 | u64::from(index))
    }

    #[inline]
    fn get(&self, id: OpId) -> Option<&Op> {
        let id = self.real(id);
        let (generation, op) = self.places.get(index_of(id))?;
        if u64::from(*generation) == id.0 >> 32 {
            op.as_ref()
        } else {
            None
        }
    }

    #[inline]
    fn get_mut(&mut self, id: OpId) -> Option<&mut Op> {
        let id = self.real(id);
        let (generation, op) = self.places.get_mut(index_of(id))?;
        if u64::from(*generation) == id.0 >> 32 {
            op.as_mut()
        } else {
            None
        }
    }

    /// Makes `part`, a number that the core has chosen, stand for `id` until the operation has
    /// ended.
    pub(crate) fn name_part(&mut self, part: OpId, id: OpId) {
        self.parts.insert(part, id);
    }

    /// Returns the number in this table of an operation that the core may have another number for.
    #[inline]
    pub(crate) fn real(&self, id: OpId) -> OpId {
        match id.is_part() {
            true => self.real_part(id),
            false => id,
        }
    }

    #[cold]
    fn real_part(&self, id: OpId) -> OpId {
        self.parts.get(&id).copied().unwrap_or(NO_OP)
    }

    #[inline]
    fn remove(&mut self, id: OpId) -> Option<Op> {
        self.get(id)?;
        let index = index_of(self.real(id));
        if id.is_part() {
            self.parts.remove(&id);
        }
        let op = self.places[index].1.take();
        self.free.push(u32::try_from(index).unwrap_or(0));
        op
    }

    /// Removes an operation in any state, like [`Ops::remove`], without moving it out.
    #[inline]
    pub(crate) fn forget(&mut self, id: OpId) {
        if self.exists(id) {
            let index = index_of(self.real(id));
            if id.is_part() {
                self.parts.remove(&id);
            }
            self.places[index].1 = None;
            self.free.push(u32::try_from(index).unwrap_or(0));
        }
    }

    #[inline]
    pub(crate) fn exists(&self, id: OpId) -> bool {
        self.get(id).is_some()
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = OpId> + '_ {
        let places = (0_u64..).zip(&self.places);
        places.filter_map(|(index, (generation, op))| {
            let op = op.as_ref()?;
            let is_pending =
                !matches!(op.owner, Owner::Request(State::Done(..) | State::Failed(_)));
            let is_under_way = is_pending && op.kind != OpKind::Region;
            is_under_way.then(|| OpId(u64::from(*generation) << 32 | index))
        })
    }

    pub(crate) fn kind(&self, id: OpId) -> Option<OpKind> {
        self.get(id).map(|op| op.kind)
    }

    #[inline]
    pub(crate) fn owner(&self, id: OpId) -> Option<&Owner> {
        self.get(id).map(|op| &op.owner)
    }

    /// Returns whether the operation exists and has no request.
    #[inline]
    pub(crate) fn is_handled(&self, id: OpId) -> bool {
        self.owner(id)
            .is_some_and(|owner| !matches!(owner, Owner::Request(_)))
    }

    #[inline]
    pub(crate) fn is_done(&self, id: OpId) -> bool {
        !matches!(
            self.owner(id),
            Some(Owner::Request(State::Pending) | Owner::None | Owner::Caller(_))
        )
    }

    /// Returns the description that the caller of an endpoint gave of the operation, if it has one.
    #[inline]
    pub(crate) fn raw(&self, id: OpId) -> Option<&RawOp> {
        match self.owner(id)? {
            Owner::Caller(raw) => Some(raw),
            _ => None,
        }
    }

    pub(crate) fn raw_mut(&mut self, id: OpId) -> Option<&mut RawOp> {
        match &mut self.get_mut(id)?.owner {
            Owner::Caller(raw) => Some(raw),
            _ => None,
        }
    }

    /// Returns all operations of an endpoint's caller.
    pub(crate) fn iter_raw(&self) -> impl Iterator<Item = (OpId, &RawOp)> {
        (0_u64..)
            .zip(&self.places)
            .filter_map(|(index, (generation, op))| match &op.as_ref()?.owner {
                Owner::Caller(raw) => Some((OpId(u64::from(*generation) << 32 | index), raw)),
                _ => None,
            })
    }

    /// Removes an operation of an endpoint's caller from the table and returns it.
    #[inline]
    pub(crate) fn take_raw(&mut self, id: OpId) -> Option<Ended> {
        let place = self.real(id);
        let index = index_of(place);
        let (generation, op) = self.places.get_mut(index)?;
        let is_callers = |op: &mut Op| matches!(op.owner, Owner::Caller(_));
        if u64::from(*generation) != place.0 >> 32 {
            return None;
        }
        let Op {
            kind,
            memory,
            owner: Owner::Caller(raw),
        } = op.take_if(is_callers)?
        else {
            return None;
        };
        if id.is_part() {
            self.parts.remove(&id);
        }
        self.free.push(u32::try_from(index).unwrap_or(0));
        Some(Ended {
            awaited_peer: kind.awaited_peer(),
            memory,
            raw,
        })
    }

    /// Removes the usual receive of an endpoint's caller from the table, without moving it. Returns
    /// `None` if the operation is of another kind.
    #[inline]
    pub(crate) fn take_plain_recv(&mut self, id: OpId) -> Option<PlainRecv> {
        let index = index_of(id);
        // The generation of a part differs from that of every operation here.
        let (generation, place) = self.places.get_mut(index)?;
        if u64::from(*generation) != id.0 >> 32 {
            return None;
        }
        let Some(Op {
            kind,
            memory: Memory::BorrowedMut(buf, buf_len),
            owner: Owner::Caller(raw),
        }) = place
        else {
            return None;
        };
        if !matches!(raw.what, RawWhat::Recv) {
            return None;
        }
        let recv = PlainRecv {
            awaited_peer: kind.awaited_peer(),
            cookie: raw.cookie,
            kind: raw.kind,
            buf: *buf,
            buf_len: *buf_len,
        };
        // No field needs to be dropped, but the compiler cannot prove that.
        std::mem::forget(place.take());
        self.free.push(u32::try_from(index).unwrap_or(0));
        Some(recv)
    }

    /// Returns the operation's bytes for reading; an empty slice for a message in two pieces.
    #[inline]
    pub(crate) fn bytes(&self, id: OpId) -> &[u8] {
        self.get(id).map_or(&[], |op| op.memory.bytes())
    }

    /// Returns the operation's bytes in one or two pieces, like [`Memory::pieces`].
    #[inline]
    pub(crate) fn pieces(&self, id: OpId) -> [&[u8]; 2] {
        self.get(id).map_or([&[], &[]], |op| op.memory.pieces())
    }

    /// Returns the length of the operation's memory, in bytes.
    #[inline]
    pub(crate) fn len(&self, id: OpId) -> usize {
        let [first, second] = self.pieces(id);
        first.len() + second.len()
    }

    /// Returns the operation's bytes for writing; an empty slice for sends.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, id: OpId) -> &mut [u8] {
        self.get_mut(id).map_or(&mut [], |op| op.memory.bytes_mut())
    }

    /// Copies a message into a pending receive and completes it. Returns `true` if a handler or an
    /// endpoint's caller must be notified.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        id: OpId,
        bytes: &[u8],
        source: u32,
        match_bits: Option<MatchBits>,
    ) -> bool {
        let len = bytes.len();
        usage::count_copy();
        portolan_proto::copy(&mut self.bytes_mut(id)[..len], bytes);
        self.complete_ok(id, Received { len, source }, match_bits)
    }

    /// Completes an operation with success. Returns `true` if a handler or an endpoint's caller
    /// must be notified.
    #[inline]
    pub(crate) fn complete_ok(
        &mut self,
        id: OpId,
        received: Received,
        match_bits: Option<MatchBits>,
    ) -> bool {
        match self.get_mut(id).map(|op| &mut op.owner) {
            Some(Owner::Request(state)) => {
                *state = State::Done(received, match_bits);
                false
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Completes an operation with an error.
    #[cold]
    pub(crate) fn fail(&mut self, id: OpId, error: Error) {
        if let Some(Owner::Request(state)) = self.get_mut(id).map(|op| &mut op.owner) {
            *state = State::Failed(Box::new(error));
        }
    }

    /// Removes a completed operation on borrowed memory; returns `None` while it is pending.
    #[inline]
    pub(crate) fn finish_borrowed(&mut self, id: OpId) -> Option<Result<Received, Error>> {
        if let &Owner::Request(State::Done(received, _)) = self.owner(id)? {
            self.forget(id);
            return Some(Ok(received));
        }
        self.finish(id).map(|done| {
            let done = done?;
            Ok(Received {
                len: done.len,
                source: done.source,
            })
        })
    }

    /// Removes a completed operation; returns `None` while it is pending.
    #[inline]
    pub(crate) fn finish(&mut self, id: OpId) -> Option<Result<Completion, Failed>> {
        if !self.is_done(id) {
            return None;
        }
        let op = self.remove(id)?;
        let buffer = match op.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Borrowed(..) | Memory::BorrowedMut(..) | Memory::Two(_) => None,
        };
        match op.owner {
            Owner::Request(State::Done(got, match_bits)) => Some(Ok(Completion {
                len: got.len,
                source: got.source,
                buffer,
                tag: match_bits.map_or(0, |match_bits| match_bits.tag),
                imm: match_bits.and_then(|match_bits| match_bits.imm),
            })),
            Owner::Request(State::Failed(error)) => Some(Err(Failed::new(op.kind, *error, buffer))),
            _ => None,
        }
    }

    /// Removes an operation in any state and returns its buffer.
    pub(crate) fn reclaim(&mut self, id: OpId) -> Option<Buffer> {
        match self.remove(id)?.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Borrowed(..) | Memory::BorrowedMut(..) | Memory::Two(_) => None,
        }
    }

    /// Returns memory to its owner while the operation continues. The operation then uses a copy,
    /// which no caller reads. Returns the operation's buffer.
    pub(crate) fn detach(&mut self, id: OpId) -> Option<Buffer> {
        let copy = self.pieces(id).concat();
        let op = self.get_mut(id)?;
        op.owner = Owner::None;
        match std::mem::replace(&mut op.memory, Memory::Owned(Buffer::from(copy))) {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Borrowed(..) | Memory::BorrowedMut(..) | Memory::Two(_) => None,
        }
    }

    /// Completes an operation on a buffer that was kept elsewhere.
    pub(crate) fn complete_with(
        &mut self,
        id: OpId,
        buffer: Buffer,
        result: Result<Received, Error>,
        match_bits: Option<MatchBits>,
    ) {
        if let Some(op) = self.get_mut(id) {
            op.memory = Memory::Owned(buffer);
        }
        match result {
            Ok(received) => _ = self.complete_ok(id, received, match_bits),
            Err(error) => self.fail(id, error),
        }
    }
}

fn index_of(id: OpId) -> usize {
    usize::try_from(id.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
