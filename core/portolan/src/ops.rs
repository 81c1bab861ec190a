// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations under way, in one table: what each is, the user memory that it may touch, and whom its
//! end is told.
//!
//! This is the only place where the library reaches user memory by pointer: blocking calls lend
//! their slices for the time of the call. A call that ends early (a handler panicked) takes its
//! memory back with [`Ops::detach`] before the borrow ends.
#![allow(
    unsafe_code,
    reason = "blocking calls lend slices to operations that outlive a borrow"
)]

use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::{Cookie, RawKind, RawOp, RawPiece, RawWhat};
use portolan_proto::{MatchBits, OpId, PeerId, PortId};
use portolan_sys::effort;
use std::collections::HashMap;
use std::ptr::NonNull;

/// A message that was received.
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
    /// The request as a number, never 0, for interfaces in other languages.
    #[must_use]
    pub fn to_raw(self) -> u64 {
        self.0.0
    }

    /// The request of a number that [`Request::to_raw`] gave. Any other number is a request that
    /// has been completed already.
    pub fn from_raw(raw: u64) -> Request {
        Request(OpId(raw))
    }
}

/// How a non-blocking operation ended.
#[derive(Debug)]
pub struct Completion {
    /// Bytes of the message.
    pub len: usize,
    /// Rank of the sender, or for a send of the receiver.
    pub source: u32,
    /// The operation's buffer.
    pub buffer: Option<Buffer>,
    /// Tag of a tagged message that was received; else 0.
    pub tag: u64,
    /// Its immediate data.
    pub imm: Option<u64>,
}

/// What a posted receive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Send(PeerId),
    /// On the memory of this peer.
    Remote(PeerId),
    /// No operation: memory that is open to others.
    Region,
    Recv {
        port: PortId,
        source: Option<PeerId>,
    },
    RecvTagged {
        source: Option<PeerId>,
    },
}

impl OpKind {
    /// The peer that alone can end the operation.
    #[inline]
    pub(crate) fn awaited_peer(self) -> Option<PeerId> {
        match self {
            OpKind::Send(peer) | OpKind::Remote(peer) => Some(peer),
            OpKind::Recv { source, .. } | OpKind::RecvTagged { source } => source,
            OpKind::Region => None,
        }
    }
}

/// The bytes of an operation.
#[derive(Debug)]
pub(crate) enum Memory {
    Owned(Buffer),
    /// A message in two pieces, to be sent.
    Two(Box<[Buffer; 2]>),
    /// Borrowed for reading by a send.
    Lent(*const u8, usize),
    /// Borrowed for writing by a receive.
    LentMut(*mut u8, usize),
}

impl Memory {
    /// # Safety
    /// `bytes` must stay, and stay as they are, until the operation has ended: taken from the table, or
    /// [`Ops::detach`]ed.
    #[inline]
    pub(crate) unsafe fn lent(bytes: &[u8]) -> Memory {
        Memory::Lent(bytes.as_ptr(), bytes.len())
    }

    /// # Safety
    /// As [`Memory::lent`], and nobody else may use `bytes` until then.
    #[inline]
    pub(crate) unsafe fn lent_mut(bytes: &mut [u8]) -> Memory {
        Memory::LentMut(bytes.as_mut_ptr(), bytes.len())
    }

    /// Memory to be written; an empty piece may be null.
    ///
    /// # Safety
    /// As [`Memory::lent_mut`].
    #[inline]
    pub(crate) unsafe fn of_piece(piece: RawPiece) -> Memory {
        match piece.len {
            0 => Memory::LentMut(NonNull::dangling().as_ptr(), 0),
            len => Memory::LentMut(piece.ptr, len),
        }
    }

    /// Empty for what lies in two pieces.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Owned(buffer) => buffer,
            Memory::Two(_) => &[],
            // SAFETY: `lent`'s caller keeps the borrow alive while the operation exists.
            &Memory::Lent(ptr, len) => unsafe { std::slice::from_raw_parts(ptr, len) },
            // SAFETY: as above; nobody else uses the bytes until the operation is finished.
            &Memory::LentMut(ptr, len) => unsafe { std::slice::from_raw_parts(ptr, len) },
        }
    }

    /// Empty for what is sent.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Owned(buffer) => buffer.as_mut_slice().unwrap_or(&mut []),
            // SAFETY: `lent_mut`'s caller lent the bytes for writing and does not use them until
            // the operation is finished; `&mut self` keeps this the only access.
            &mut Memory::LentMut(ptr, len) => unsafe { std::slice::from_raw_parts_mut(ptr, len) },
            Memory::Lent(..) | Memory::Two(_) => &mut [],
        }
    }
}

impl Memory {
    /// The bytes in the order of sending; the second piece is empty for what lies in one.
    #[inline]
    pub(crate) fn pieces(&self) -> [&[u8]; 2] {
        match self {
            Memory::Two(pieces) => [&pieces[0], &pieces[1]],
            _ => [self.bytes(), &[]],
        }
    }
}

/// How far an operation is whose end is waited for here.
#[derive(Debug)]
pub(crate) enum State {
    Pending,
    /// With the match bits of a tagged message that was received.
    Done(Received, Option<MatchBits>),
    /// Boxed, because errors are long and rare.
    Failed(Box<Error>),
}

/// Whom the end of an operation is told.
#[derive(Debug)]
pub(crate) enum Owner {
    /// Who holds its request, and comes to ask.
    Request(State),
    /// The handler of its port, or nobody.
    Nobody,
    /// The caller of an endpoint, by a completion.
    Caller(RawOp),
}

#[derive(Debug)]
struct Op {
    kind: OpKind,
    memory: Memory,
    owner: Owner,
}

/// An operation of an endpoint that has ended, out of the table.
pub(crate) struct Ended {
    pub(crate) awaited_peer: Option<PeerId>,
    pub(crate) memory: Memory,
    pub(crate) raw: RawOp,
}

/// A receive of an endpoint's caller into one piece of its memory, out of the table.
pub(crate) struct PlainRecv {
    pub(crate) awaited_peer: Option<PeerId>,
    pub(crate) cookie: Cookie,
    pub(crate) kind: RawKind,
    pub(crate) buf: *mut u8,
    pub(crate) buf_len: usize,
}

/// No operation: generations begin at 1.
const NOBODY: OpId = OpId(0);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    places: Vec<(u32, Option<Op>)>,
    free: Vec<u32>,
    /// Operations that the core has numbers of its own for.
    parts: HashMap<OpId, OpId>,
}

// SAFETY: the raw pointers are only dereferenced through `&mut self` of the engine that owns the
// table: by the thread that runs the blocking call which lent them, or, of an endpoint's operations,
// whose callers have promised that nobody else uses the memory until they have ended, by whichever
// thread has the engine.
unsafe impl Send for Ops {}

impl Ops {
    /// An operation on a buffer, for who holds its request.
    pub(crate) fn owned(&mut self, kind: OpKind, buffer: Buffer) -> OpId {
        self.enter(kind, Memory::Owned(buffer), Owner::Request(State::Pending))
    }

    /// Lends `bytes` to a send.
    ///
    /// # Safety
    /// The caller must [`Ops::finish`] or [`Ops::detach`] the operation before the borrow of
    /// `bytes` ends.
    pub(crate) unsafe fn lent(&mut self, kind: OpKind, bytes: &[u8]) -> OpId {
        // SAFETY: the caller's promise.
        let memory = unsafe { Memory::lent(bytes) };
        self.enter(kind, memory, Owner::Request(State::Pending))
    }

    /// Lends `bytes` to a receive.
    ///
    /// # Safety
    /// The caller must [`Ops::finish`] or [`Ops::detach`] the operation before the borrow of
    /// `bytes` ends, and not use `bytes` until then.
    pub(crate) unsafe fn lent_mut(&mut self, kind: OpKind, bytes: &mut [u8]) -> OpId {
        // SAFETY: the caller's promise.
        let memory = unsafe { Memory::lent_mut(bytes) };
        self.enter(kind, memory, Owner::Request(State::Pending))
    }

    #[inline]
    pub(crate) fn enter(&mut self, kind: OpKind, memory: Memory, owner: Owner) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        // The highest bit of a number belongs to the core.
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

    /// Makes `part`, which the core has chosen a number for, stand for `id` until that has ended.
    pub(crate) fn name_part(&mut self, part: OpId, id: OpId) {
        self.parts.insert(part, id);
    }

    /// The number in this table of an operation that the core may have another number for.
    #[inline]
    pub(crate) fn real(&self, id: OpId) -> OpId {
        match id.is_part() {
            true => self.real_part(id),
            false => id,
        }
    }

    #[cold]
    fn real_part(&self, id: OpId) -> OpId {
        self.parts.get(&id).copied().unwrap_or(NOBODY)
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

    /// Forgets an operation in whatever state: [`Ops::remove`], without moving it out.
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

    /// Returns the operations under way.
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

    /// Whether the operation exists, and nobody comes to ask for its end.
    #[inline]
    pub(crate) fn is_handled(&self, id: OpId) -> bool {
        self.owner(id)
            .is_some_and(|owner| !matches!(owner, Owner::Request(_)))
    }

    #[inline]
    pub(crate) fn is_done(&self, id: OpId) -> bool {
        !matches!(
            self.owner(id),
            Some(Owner::Request(State::Pending) | Owner::Nobody | Owner::Caller(_))
        )
    }

    /// What the caller of an endpoint has said of the operation, if it is one.
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

    /// All operations of an endpoint's caller.
    pub(crate) fn iter_raw(&self) -> impl Iterator<Item = (OpId, &RawOp)> {
        (0_u64..)
            .zip(&self.places)
            .filter_map(|(index, (generation, op))| match &op.as_ref()?.owner {
                Owner::Caller(raw) => Some((OpId(u64::from(*generation) << 32 | index), raw)),
                _ => None,
            })
    }

    /// Takes an operation of an endpoint's caller out of the table.
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

    /// Takes the usual receive of an endpoint's caller out of the table, without moving it; `None` if
    /// the operation is of another kind.
    #[inline]
    pub(crate) fn take_plain_recv(&mut self, id: OpId) -> Option<PlainRecv> {
        let index = index_of(id);
        // A part has another generation than any operation here.
        let (generation, place) = self.places.get_mut(index)?;
        if u64::from(*generation) != id.0 >> 32 {
            return None;
        }
        let Some(Op {
            kind,
            memory: Memory::LentMut(buf, buf_len),
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
        // Nothing in it is to be dropped, which the compiler does not see.
        std::mem::forget(place.take());
        self.free.push(u32::try_from(index).unwrap_or(0));
        Some(recv)
    }

    /// The operation's bytes for reading; empty for those that lie in two pieces.
    #[inline]
    pub(crate) fn bytes(&self, id: OpId) -> &[u8] {
        self.get(id).map_or(&[], |op| op.memory.bytes())
    }

    /// The same, as [`Memory::pieces`].
    #[inline]
    pub(crate) fn pieces(&self, id: OpId) -> [&[u8]; 2] {
        self.get(id).map_or([&[], &[]], |op| op.memory.pieces())
    }

    /// Bytes of the operation's memory.
    #[inline]
    pub(crate) fn len(&self, id: OpId) -> usize {
        let [first, second] = self.pieces(id);
        first.len() + second.len()
    }

    /// The operation's bytes for writing; empty for sends.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, id: OpId) -> &mut [u8] {
        self.get_mut(id).map_or(&mut [], |op| op.memory.bytes_mut())
    }

    /// Copies a message into a pending receive and completes it; `true` if a handler must be told.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        id: OpId,
        bytes: &[u8],
        source: u32,
        match_bits: Option<MatchBits>,
    ) -> bool {
        let len = bytes.len();
        effort::copies();
        portolan_proto::copy(&mut self.bytes_mut(id)[..len], bytes);
        self.complete_ok(id, Received { len, source }, match_bits)
    }

    /// Completes an operation with success; `true` if a handler must be told.
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

    /// Takes an operation on lent memory that is done; `None` while it is pending.
    #[inline]
    pub(crate) fn finish_lent(&mut self, id: OpId) -> Option<Result<Received, Error>> {
        if let &Owner::Request(State::Done(received, _)) = self.owner(id)? {
            self.forget(id);
            return Some(Ok(received));
        }
        self.finish(id).map(|done| {
            done.map(|done| Received {
                len: done.len,
                source: done.source,
            })
        })
    }

    /// Takes an operation that is done; `None` while it is pending.
    #[inline]
    pub(crate) fn finish(&mut self, id: OpId) -> Option<Result<Completion, Error>> {
        if !self.is_done(id) {
            return None;
        }
        let op = self.remove(id)?;
        let buffer = match op.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Lent(..) | Memory::LentMut(..) | Memory::Two(_) => None,
        };
        match op.owner {
            Owner::Request(State::Done(got, match_bits)) => Some(Ok(Completion {
                len: got.len,
                source: got.source,
                buffer,
                tag: match_bits.map_or(0, |match_bits| match_bits.tag),
                imm: match_bits.and_then(|match_bits| match_bits.imm),
            })),
            Owner::Request(State::Failed(error)) => Some(Err(*error)),
            _ => None,
        }
    }

    /// Takes an operation's buffer, in whatever state it is.
    pub(crate) fn reclaim(&mut self, id: OpId) -> Option<Buffer> {
        match self.remove(id)?.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Lent(..) | Memory::LentMut(..) | Memory::Two(_) => None,
        }
    }

    /// Gives lent memory back while the operation goes on: on a copy, or into a buffer that nobody
    /// reads.
    pub(crate) fn detach(&mut self, id: OpId) {
        let copy = self.pieces(id).concat();
        if let Some(op) = self.get_mut(id) {
            op.memory = Memory::Owned(Buffer::from(copy));
            op.owner = Owner::Nobody;
        }
    }
}

fn index_of(id: OpId) -> usize {
    usize::try_from(id.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_request_is_stale() {
        let mut ops = Ops::default();
        let kind = OpKind::Send(PeerId(1));
        let id = ops.owned(kind, Buffer::from(vec![1, 2]));
        assert!(ops.finish(id).is_none());
        ops.complete_ok(id, Received { len: 2, source: 1 }, None);
        assert!(ops.is_done(id));
        let done = ops.finish(id).unwrap().unwrap();
        assert_eq!(done.buffer.unwrap().into_vec(), [1, 2]);
        let again = ops.owned(kind, Buffer::from(vec![]));
        assert_ne!(id, again);
        assert!(!ops.exists(id));
        assert_eq!(ops.bytes(id), &[] as &[u8]);
    }

    #[test]
    fn a_failed_operation_is_done() {
        let mut ops = Ops::default();
        let id = ops.owned(OpKind::Send(PeerId(1)), Buffer::from(vec![]));
        assert!(!ops.is_done(id));
        ops.fail(id, Error::Cancelled);
        assert!(ops.is_done(id));
        assert!(matches!(ops.finish(id), Some(Err(Error::Cancelled))));
    }

    #[test]
    fn detached_memory_is_no_longer_touched() {
        let mut ops = Ops::default();
        let mut bytes = [7; 4];
        let kind = OpKind::Recv {
            port: PortId::user(1),
            source: None,
        };
        // SAFETY: detached before `bytes` is used again.
        let id = unsafe { ops.lent_mut(kind, &mut bytes) };
        ops.bytes_mut(id)[0] = 8;
        ops.detach(id);
        ops.bytes_mut(id)[1] = 9;
        assert_eq!(bytes, [8, 7, 7, 7]);
    }
}
