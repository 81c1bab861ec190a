// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations under way, and the user memory that they may touch.
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
use portolan_proto::{Label, OpId, PeerId, PortId};
use std::collections::HashMap;

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

#[derive(Debug)]
enum Memory {
    Owned(Buffer),
    /// Borrowed for reading by a blocking send.
    Lent(*const u8, usize),
    /// Borrowed for writing by a blocking receive.
    LentMut(*mut u8, usize),
}

#[derive(Debug)]
enum State {
    Pending,
    Done(Received),
    /// Boxed, because errors are long and rare.
    Failed(Box<Error>),
}

#[derive(Debug)]
struct Op {
    kind: OpKind,
    memory: Memory,
    state: State,
    /// Completed by its port's handler, not by a wait.
    handled: bool,
    /// Of the message that a tagged receive has taken.
    label: Option<Label>,
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
    pub(crate) fn owned(&mut self, kind: OpKind, buffer: Buffer, handled: bool) -> OpId {
        self.insert(Op {
            kind,
            memory: Memory::Owned(buffer),
            state: State::Pending,
            handled,
            label: None,
        })
    }

    /// Lends `bytes` to a send.
    ///
    /// # Safety
    /// The caller must [`Ops::finish`] or [`Ops::detach`] the operation before the borrow of
    /// `bytes` ends.
    pub(crate) unsafe fn lent(&mut self, kind: OpKind, bytes: &[u8]) -> OpId {
        let memory = Memory::Lent(bytes.as_ptr(), bytes.len());
        self.insert(Op {
            kind,
            memory,
            state: State::Pending,
            handled: false,
            label: None,
        })
    }

    /// Lends `bytes` to a receive.
    ///
    /// # Safety
    /// The caller must [`Ops::finish`] or [`Ops::detach`] the operation before the borrow of
    /// `bytes` ends, and not use `bytes` until then.
    pub(crate) unsafe fn lent_mut(&mut self, kind: OpKind, bytes: &mut [u8]) -> OpId {
        let memory = Memory::LentMut(bytes.as_mut_ptr(), bytes.len());
        self.insert(Op {
            kind,
            memory,
            state: State::Pending,
            handled: false,
            label: None,
        })
    }

    /// Lends `bytes` to a send of an endpoint, whose end is told by its completion.
    ///
    /// # Safety
    /// As [`Ops::lent`]: `bytes` must stay until the operation has ended.
    pub(crate) unsafe fn lent_raw(&mut self, kind: OpKind, bytes: &[u8]) -> OpId {
        self.insert(Op {
            kind,
            memory: Memory::Lent(bytes.as_ptr(), bytes.len()),
            state: State::Pending,
            handled: true,
            label: None,
        })
    }

    /// Lends `bytes` to a receive of an endpoint, whose end is told by its completion.
    ///
    /// # Safety
    /// As [`Ops::lent_mut`]: `bytes` must stay, and not be used, until the operation has ended.
    pub(crate) unsafe fn lent_mut_raw(&mut self, kind: OpKind, bytes: &mut [u8]) -> OpId {
        self.insert(Op {
            kind,
            memory: Memory::LentMut(bytes.as_mut_ptr(), bytes.len()),
            state: State::Pending,
            handled: true,
            label: None,
        })
    }

    #[inline]
    fn insert(&mut self, op: Op) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        // The highest bit of a number belongs to the core.
        place.0 = place.0.wrapping_add(1) & (u32::MAX >> 1);
        place.1 = Some(op);
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

    /// [`Ops::remove`], without moving the operation out.
    #[inline]
    fn clear(&mut self, id: OpId) {
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

    pub(crate) fn kind(&self, id: OpId) -> Option<OpKind> {
        self.get(id).map(|op| op.kind)
    }

    pub(crate) fn is_handled(&self, id: OpId) -> bool {
        self.get(id).is_some_and(|op| op.handled)
    }

    #[inline]
    pub(crate) fn is_done(&self, id: OpId) -> bool {
        self.get(id)
            .is_none_or(|op| !matches!(op.state, State::Pending))
    }

    /// The operation's bytes for reading.
    #[inline]
    pub(crate) fn bytes(&self, id: OpId) -> &[u8] {
        match self.get(id).map(|op| &op.memory) {
            Some(Memory::Owned(buffer)) => buffer,
            // SAFETY: `lent`'s caller keeps the borrow alive while the operation exists.
            Some(&Memory::Lent(ptr, len)) => unsafe { std::slice::from_raw_parts(ptr, len) },
            // SAFETY: as above; nobody else uses the bytes until the operation is finished.
            Some(&Memory::LentMut(ptr, len)) => unsafe { std::slice::from_raw_parts(ptr, len) },
            None => &[],
        }
    }

    /// The operation's bytes for writing; empty for sends.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, id: OpId) -> &mut [u8] {
        match self.get_mut(id).map(|op| &mut op.memory) {
            Some(Memory::Owned(buffer)) => buffer.as_mut_slice().unwrap_or(&mut []),
            // SAFETY: `lent_mut`'s caller lent the bytes for writing and does not use them until
            // the operation is finished; `&mut self` keeps this the only access.
            Some(&mut Memory::LentMut(ptr, len)) => unsafe {
                std::slice::from_raw_parts_mut(ptr, len)
            },
            Some(Memory::Lent(..)) | None => &mut [],
        }
    }

    /// Copies a message into a pending receive and completes it; `true` if a handler must be told.
    #[inline]
    pub(crate) fn fill(&mut self, id: OpId, bytes: &[u8], source: u32) -> bool {
        let len = bytes.len();
        self.bytes_mut(id)[..len].copy_from_slice(bytes);
        self.complete_ok(id, Received { len, source })
    }

    /// Notes the label of the message that a tagged receive takes.
    #[inline]
    pub(crate) fn set_label(&mut self, id: OpId, label: Label) {
        if let Some(op) = self.get_mut(id) {
            op.label = Some(label);
        }
    }

    /// Completes an operation with success; `true` if a handler must be told.
    #[inline]
    pub(crate) fn complete_ok(&mut self, id: OpId, received: Received) -> bool {
        let Some(op) = self.get_mut(id) else {
            return false;
        };
        op.state = State::Done(received);
        op.handled
    }

    /// Completes an operation with an error.
    #[cold]
    pub(crate) fn fail(&mut self, id: OpId, error: Error) {
        if let Some(op) = self.get_mut(id) {
            op.state = State::Failed(Box::new(error));
        }
    }

    /// Takes an operation on lent memory that is done; `None` while it is pending.
    #[inline]
    pub(crate) fn finish_lent(&mut self, id: OpId) -> Option<Result<Received, Error>> {
        if let State::Done(received) = self.get(id)?.state {
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
        if matches!(self.get(id)?.state, State::Pending) {
            return None;
        }
        let op = self.remove(id)?;
        let buffer = match op.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Lent(..) | Memory::LentMut(..) => None,
        };
        match op.state {
            State::Done(got) => Some(Ok(Completion {
                len: got.len,
                source: got.source,
                buffer,
                tag: op.label.map_or(0, |label| label.tag),
                imm: op.label.and_then(|label| label.imm),
            })),
            State::Failed(error) => Some(Err(*error)),
            State::Pending => None,
        }
    }

    /// Takes an operation's buffer, in whatever state it is.
    pub(crate) fn reclaim(&mut self, id: OpId) -> Option<Buffer> {
        match self.remove(id)?.memory {
            Memory::Owned(buffer) => Some(buffer),
            Memory::Lent(..) | Memory::LentMut(..) => None,
        }
    }

    /// Forgets an operation in whatever state.
    #[inline]
    pub(crate) fn forget(&mut self, id: OpId) {
        self.clear(id);
    }

    /// Gives lent memory back while the operation goes on: on a copy, or into a buffer that nobody
    /// reads.
    pub(crate) fn detach(&mut self, id: OpId) {
        let copy = self.bytes(id).to_vec();
        if let Some(op) = self.get_mut(id) {
            op.memory = Memory::Owned(Buffer::from(copy));
            op.handled = true;
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
        let id = ops.owned(kind, Buffer::from(vec![1, 2]), false);
        assert!(ops.finish(id).is_none());
        ops.complete_ok(id, Received { len: 2, source: 1 });
        assert!(ops.is_done(id));
        let done = ops.finish(id).unwrap().unwrap();
        assert_eq!(done.buffer.unwrap().into_vec(), [1, 2]);
        let again = ops.owned(kind, Buffer::from(vec![]), false);
        assert_ne!(id, again);
        assert!(!ops.exists(id));
        assert_eq!(ops.bytes(id), &[] as &[u8]);
    }

    #[test]
    fn a_failed_operation_is_done() {
        let mut ops = Ops::default();
        let id = ops.owned(OpKind::Send(PeerId(1)), Buffer::from(vec![]), false);
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
