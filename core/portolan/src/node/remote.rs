// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory for programs: regions, put, get, and atomic operations.
//!
//! A process registers memory and sends its key to other processes. These put into it and get from
//! it without a receive. The process itself takes part only inside calls of this library, as for
//! messages.
//!
//! An operation that is submitted after a put, to the same process and on the same lane, finds its
//! bytes in place: a message, a get, another put or an atomic operation. If two operations use
//! transfers (longer than 64 KiB, 16 KiB within a host) and touch the same bytes, the second must
//! wait for the completion of the first. Between lanes and processes only completions give an
//! order: a put is complete when its bytes are in place.
#![allow(
    unsafe_code,
    reason = "blocking calls pass their slices to operations; see `ops`"
)]

use super::Node;
use crate::atomic::{AtomicOp, Datatype, Number};
use crate::buffer::Buffer;
use crate::engine::{Awaited, Call, Context, Engine, Inner, Waiter, atomic_spec};
use crate::error::Error;
use crate::ops::{OpKind, Request};
use crate::port::Lane;
use portolan_proto::{Access, AtomicSpec, OpId, RegionSpec, RemoteSpec};

/// Names a region of another process. A process that has the key may use the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey(u64);

impl RemoteKey {
    /// Returns the key as eight bytes, to send to processes that use the region.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let bytes = key.to_bytes(); // to be sent to another process
    /// assert_eq!(RemoteKey::from_bytes(bytes), key);
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Returns the key that [`RemoteKey::to_bytes`] was called on.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let bytes = key.to_bytes(); // to be sent to another process
    /// assert_eq!(RemoteKey::from_bytes(bytes), key);
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        RemoteKey(u64::from_le_bytes(bytes))
    }
}

/// Memory of this process that other processes may use, until [`Node::deregister`].
#[derive(Debug)]
#[must_use = "only `deregister` returns registered memory"]
pub struct Registration {
    op: OpId,
    key: RemoteKey,
}

impl Registration {
    /// Returns the key by which other processes name it.
    ///
    /// # Examples
    /// See [`Node::register`].
    #[must_use]
    pub fn key(&self) -> RemoteKey {
        self.key
    }
}

/// A place in a region of another process, and the service to reach it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteTarget {
    rank: u32,
    key: RemoteKey,
    offset: u64,
    lane: Lane,
    imm: Option<u64>,
}

impl RemoteTarget {
    /// Selects byte `offset` of the region `key` of process `rank`, on the low lane.
    ///
    /// # Examples
    /// See [`Node::put`].
    #[must_use]
    pub fn new(rank: u32, key: RemoteKey, offset: u64) -> Self {
        RemoteTarget {
            rank,
            key,
            offset,
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
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let place = RemoteTarget::new(node.rank(), key, 8).lane(Lane::High);
    /// node.put(place, b"ahoy")?;
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn lane(self, lane: Lane) -> Self {
        RemoteTarget { lane, ..self }
    }

    /// Requests a [`PutNotice`] with `word` at the target when a put is in place.
    ///
    /// # Examples
    /// See [`Node::wait_notice`].
    #[must_use]
    pub fn notify(self, word: u64) -> Self {
        let imm = Some(word);
        RemoteTarget { imm, ..self }
    }

    fn spec(&self) -> RemoteSpec {
        RemoteSpec {
            lane: self.lane.into(),
            key: self.key.0,
            addr: self.offset,
            imm: self.imm,
        }
    }
}

/// Notice of a put into a region of this process, requested with [`RemoteTarget::notify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutNotice {
    /// Rank of the process that made the put.
    pub source: u32,
    /// Word that the putting process chose.
    pub word: u64,
    /// The region.
    pub key: RemoteKey,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length of the put, in bytes.
    pub len: u64,
}

impl Node {
    /// Registers `memory` for all processes of the job that have its key.
    ///
    /// # Errors
    /// [`Error::RegionShared`] for shared memory with write access.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let access = Access { read: true, write: false };
    /// let region = node.register(vec![7; 64], access)?;
    /// let key = region.key(); // to be sent to other processes
    /// let memory = node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn register(
        &mut self,
        memory: impl Into<Buffer>,
        access: Access,
    ) -> Result<Registration, Error> {
        let mut memory = memory.into();
        if access.write && memory.as_mut_slice().is_none() {
            return Err(Error::RegionShared);
        }
        let inner = &mut self.engine.enter().inner;
        let spec = RegionSpec {
            key: None,
            base: 0,
            len: memory.len() as u64,
            access,
        };
        let op = inner.ops.owned(OpKind::Region, memory);
        // A random key is never in use.
        let key = inner.core.register(op, &spec).unwrap_or(0);
        let key = RemoteKey(key);
        Ok(Registration { op, key })
    }

    /// Returns the current bytes of registered memory. They do not change before the next call:
    /// work left over from earlier calls waits until then.
    ///
    /// # Examples
    /// See [`Node::put`].
    #[must_use]
    pub fn registered(&self, region: &Registration) -> &[u8] {
        self.engine.hold().inner.ops.bytes(region.op)
    }

    /// Returns the bytes for writing; an empty slice if the memory is shared.
    ///
    /// # Examples
    /// See [`Node::put`].
    #[must_use]
    pub fn registered_mut(&mut self, region: &Registration) -> &mut [u8] {
        self.engine.hold_mut().inner.ops.bytes_mut(region.op)
    }

    /// Deregisters a region and returns its memory. Operations on it, pending or later, fail with
    /// [`Error::RemoteRefused`].
    ///
    /// # Examples
    /// See [`Node::register`].
    pub fn deregister(&mut self, region: Registration) -> Buffer {
        let engine = &mut *self.engine.enter();
        engine.inner.core.deregister(region.key.0);
        let memory = engine.inner.ops.reclaim(region.op);
        engine.drain();
        engine.flush();
        memory.unwrap_or_else(|| Buffer::from(Vec::new()))
    }

    /// Puts `bytes` into the memory of another process. They are in place when this returns.
    ///
    /// # Errors
    /// [`Error::RemoteRefused`], [`Error::NoSuchRank`], [`Error::NoPath`], [`Error::PeerGone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// node.put(RemoteTarget::new(node.rank(), key, 8), b"ahoy")?;
    /// assert_eq!(&node.registered(&region)[8..12], b"ahoy");
    /// node.registered_mut(&region)[8] = b'A';
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn put(&mut self, to: RemoteTarget, bytes: &[u8]) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        // SAFETY: `finish_remote` returns only when the operation is complete, and its guard detaches
        // the memory if a handler panics.
        let op = unsafe { engine.begin_put(to, bytes) }?;
        engine.finish_remote(&mut self.waiter, op)
    }

    /// Gets `bytes.len()` bytes from the memory of another process.
    ///
    /// # Errors
    /// As [`Node::put`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let mut bytes = [9; 4];
    /// node.get(RemoteTarget::new(node.rank(), key, 8), &mut bytes)?;
    /// assert_eq!(bytes, [0; 4]);
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn get(&mut self, from: RemoteTarget, bytes: &mut [u8]) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        // SAFETY: as in `put`; `bytes` is not used before the operation is complete.
        let op = unsafe { engine.begin_get(from, bytes) }?;
        engine.finish_remote(&mut self.waiter, op)
    }

    /// Starts a nonblocking put of `buffer`. The completion returns the buffer, and means that its
    /// bytes are in place.
    ///
    /// # Errors
    /// As [`Node::put`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let request = node.iput(RemoteTarget::new(node.rank(), key, 8), vec![5; 4])?;
    /// node.wait(request)?;
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn iput(&mut self, to: RemoteTarget, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let request = engine.inner.begin(to, buffer.into(), Call::Put);
        engine.flush_if_wanted();
        request
    }

    /// Starts a nonblocking get from the memory of another process into `buffer`.
    ///
    /// # Errors
    /// As [`Node::put`]; [`Error::BufferShared`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let request = node.iget(RemoteTarget::new(node.rank(), key, 8), vec![9; 4])?;
    /// assert_eq!(&node.wait(request)?.buffer.unwrap()[..], [0; 4]);
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn iget(
        &mut self,
        from: RemoteTarget,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let request = engine.inner.begin_get(from, buffer.into());
        engine.flush_if_wanted();
        request
    }

    /// Returns the next notice of a completed put, without making progress.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when there is none, and every other process of a job of several has ended.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// node.put(RemoteTarget::new(node.rank(), key, 0).notify(5), b"ahoy")?;
    /// while let Some(notice) = node.next_notice()? {
    ///     assert_eq!(notice.word, 5);
    /// }
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn next_notice(&mut self) -> Result<Option<PutNotice>, Error> {
        let inner = &mut self.engine.enter().inner;
        match inner.pop_notice() {
            None => inner.check_any_sender().map(|()| None),
            found => Ok(found),
        }
    }

    /// Waits for the next notice of a put.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when there is none, and every other process of the job has ended.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// node.put(RemoteTarget::new(node.rank(), key, 0).notify(5), b"ahoy")?;
    /// assert_eq!(node.wait_notice()?.word, 5);
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn wait_notice(&mut self) -> Result<PutNotice, Error> {
        let engine = &mut *self.engine.enter();
        if !engine.inner.has_notices() {
            self.waiter.until(engine, &[], Awaited::Notice, |inner| {
                inner.has_notices() || inner.has_no_sender()
            });
        }
        let found = engine.inner.pop_notice();
        found.ok_or_else(|| engine.inner.no_sender_error())
    }

    /// Changes numbers in the memory of another process by as many operands. They are changed when
    /// this returns. Operands of a compare operation are followed by the numbers to compare with.
    ///
    /// # Errors
    /// As [`Node::put`]; [`Error::Atomic`] for an invalid operation.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let place = RemoteTarget::new(node.rank(), key, 0);
    /// node.atomic(place, AtomicOp::Sum, &[1_u64, 2])?; // two numbers
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn atomic<T: Number>(
        &mut self,
        at: RemoteTarget,
        op: AtomicOp,
        operands: &[T],
    ) -> Result<(), Error> {
        let count = match op.compares() {
            true => operands.len() / 2,
            false => operands.len(),
        };
        let engine = &mut *self.engine.enter();
        let mut bytes = engine.inner.take_operands();
        store_all(operands, &mut bytes);
        let spec = atomic_spec(op, T::DATATYPE, count, bytes.len(), 0);
        let done =
            spec.and_then(|spec| engine.atomic_bytes(&mut self.waiter, at, spec, &bytes, &mut []));
        engine.inner.return_operands(bytes);
        done
    }

    /// Changes numbers like [`Node::atomic`], and stores their previous values in `before`. It has
    /// as many numbers as there are operands, or half as many for a compare operation. Without
    /// operands its length is the number of values to read.
    ///
    /// # Errors
    /// As [`Node::atomic`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let (place, mut before) = (RemoteTarget::new(node.rank(), key, 0), [9_u64]);
    /// node.fetch_atomic(place, AtomicOp::Sum, &[5], &mut before)?;
    /// assert_eq!(before, [0]);
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn fetch_atomic<T: Number>(
        &mut self,
        at: RemoteTarget,
        op: AtomicOp,
        operands: &[T],
        before: &mut [T],
    ) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        let mut bytes = engine.inner.take_operands();
        store_all(operands, &mut bytes);
        let len = T::DATATYPE.len();
        let mut back = engine.inner.take_before();
        back.clear();
        back.resize(before.len() * len, 0);
        let spec = atomic_spec(op, T::DATATYPE, before.len(), bytes.len(), back.len());
        let done = spec
            .and_then(|spec| engine.atomic_bytes(&mut self.waiter, at, spec, &bytes, &mut back));
        engine.inner.return_operands(bytes);
        if done.is_ok() {
            for (number, bytes) in before.iter_mut().zip(back.chunks_exact(len)) {
                *number = T::load(bytes);
            }
        }
        engine.inner.return_before(back);
        done
    }

    /// Starts an atomic operation on numbers of `datatype`; `operands` are their bytes,
    /// little-endian. With `before`, a buffer for as many numbers as are changed, the completion
    /// returns the bytes of the previous values. Without it, the completion returns an empty
    /// buffer.
    ///
    /// # Errors
    /// As [`Node::atomic`]; [`Error::BufferShared`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let access = Access { read: true, write: true };
    /// # let region = node.register(vec![0; 64], access)?; let key = region.key();
    /// let (place, five) = (RemoteTarget::new(node.rank(), key, 0), 5_u64.to_ne_bytes());
    /// let request = node.iatomic(place, AtomicOp::Sum, Datatype::U64, &five, None)?;
    /// node.wait(request)?;
    /// # node.deregister(region);
    /// # Ok(()) }
    /// ```
    pub fn iatomic(
        &mut self,
        at: RemoteTarget,
        op: AtomicOp,
        datatype: Datatype,
        operands: &[u8],
        before: Option<Buffer>,
    ) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let inner = &mut engine.inner;
        let request = inner.begin_atomic(at, op, datatype, operands, before);
        engine.flush_if_wanted();
        request
    }
}

impl Engine {
    fn atomic_bytes(
        &mut self,
        waiter: &mut Waiter,
        at: RemoteTarget,
        spec: AtomicSpec,
        operands: &[u8],
        back: &mut [u8],
    ) -> Result<(), Error> {
        let peer = self.inner.check_rank(at.rank)?;
        // SAFETY: as in `Node::get`.
        let id = unsafe { self.inner.ops.borrowed_mut(OpKind::Remote(peer), back) };
        self.submit(at, id, Call::Atomic(spec, operands.into()))?;
        self.finish_borrowed(waiter, id, &[peer]).map(|_| ())
    }

    /// Begins to put borrowed `bytes`.
    ///
    /// # Safety
    /// As [`Ops::borrowed`](crate::ops::Ops::borrowed).
    pub(super) unsafe fn begin_put(
        &mut self,
        to: RemoteTarget,
        bytes: &[u8],
    ) -> Result<OpId, Error> {
        let peer = self.inner.check_rank(to.rank)?;
        // SAFETY: required of the caller; one that is not submitted is forgotten.
        let op = unsafe { self.inner.ops.borrowed(OpKind::Remote(peer), bytes) };
        self.submit(to, op, Call::Put).map(|()| op)
    }

    /// Begins to get into borrowed `bytes`.
    ///
    /// # Safety
    /// As [`Ops::borrowed_mut`](crate::ops::Ops::borrowed_mut).
    pub(super) unsafe fn begin_get(
        &mut self,
        from: RemoteTarget,
        bytes: &mut [u8],
    ) -> Result<OpId, Error> {
        let peer = self.inner.check_rank(from.rank)?;
        // SAFETY: required of the caller; one that is not submitted is forgotten.
        let op = unsafe { self.inner.ops.borrowed_mut(OpKind::Remote(peer), bytes) };
        self.submit(from, op, Call::Get).map(|()| op)
    }

    fn finish_remote(&mut self, waiter: &mut Waiter, op: OpId) -> Result<(), Error> {
        let about = self.inner.awaited_peer(op);
        self.finish_borrowed(waiter, op, about.as_slice())
            .map(|_| ())
    }

    fn submit(&mut self, at: RemoteTarget, op: OpId, call: Call<'_>) -> Result<(), Error> {
        let submitted = self.inner.submit(at, op, call);
        self.flush_if_wanted();
        submitted
    }
}

impl Context<'_> {
    /// Starts a nonblocking put of `buffer`, like [`Node::iput`]; wait for it outside the handler.
    ///
    /// # Errors
    /// As [`Node::iput`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn iput(&mut self, to: RemoteTarget, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        self.inner().begin(to, buffer.into(), Call::Put)
    }

    /// Starts a nonblocking get into `buffer`, like [`Node::iget`]; wait for it outside the
    /// handler.
    ///
    /// # Errors
    /// As [`Node::iget`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn iget(
        &mut self,
        from: RemoteTarget,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        self.inner().begin_get(from, buffer.into())
    }

    /// Starts an atomic operation, like [`Node::iatomic`]; wait for it outside the handler.
    ///
    /// # Errors
    /// As [`Node::iatomic`].
    ///
    /// # Examples
    /// See [`Context::isend`].
    pub fn iatomic(
        &mut self,
        at: RemoteTarget,
        op: AtomicOp,
        datatype: Datatype,
        operands: &[u8],
        before: Option<Buffer>,
    ) -> Result<Request, Error> {
        self.inner()
            .begin_atomic(at, op, datatype, operands, before)
    }
}

impl Inner {
    pub(super) fn pop_notice(&mut self) -> Option<PutNotice> {
        let notice = self.take_notice()?;
        Some(PutNotice {
            source: notice.peer.0,
            word: notice.imm,
            key: RemoteKey(notice.key),
            offset: notice.addr,
            len: notice.len,
        })
    }

    fn begin_get(&mut self, from: RemoteTarget, mut buffer: Buffer) -> Result<Request, Error> {
        if buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        self.begin(from, buffer, Call::Get)
    }

    fn begin_atomic(
        &mut self,
        at: RemoteTarget,
        op: AtomicOp,
        datatype: Datatype,
        operands: &[u8],
        before: Option<Buffer>,
    ) -> Result<Request, Error> {
        let mut buffer = before.unwrap_or_else(|| Buffer::from(Vec::new()));
        if buffer.as_mut_slice().is_none() {
            return Err(Error::BufferShared);
        }
        let span = match op {
            AtomicOp::Read => buffer.len(),
            _ if op.compares() => operands.len() / 2,
            _ => operands.len(),
        };
        let count = span / datatype.len();
        let spec = atomic_spec(op, datatype, count, operands.len(), buffer.len())?;
        self.begin(at, buffer, Call::Atomic(spec, operands.into()))
    }

    fn begin(
        &mut self,
        at: RemoteTarget,
        buffer: Buffer,
        call: Call<'_>,
    ) -> Result<Request, Error> {
        let peer = self.check_rank(at.rank)?;
        let op = self.ops.owned(OpKind::Remote(peer), buffer);
        self.submit(at, op, call)?;
        Ok(Request(op))
    }

    fn submit(&mut self, at: RemoteTarget, op: OpId, call: Call<'_>) -> Result<(), Error> {
        let peer = self.check_rank(at.rank)?;
        let submitted = self.submit_remote(peer, op, at.spec(), call);
        if submitted.is_err() {
            self.ops.forget(op);
        }
        submitted
    }
}

fn store_all<T: Number>(numbers: &[T], bytes: &mut Vec<u8>) {
    let len = T::DATATYPE.len();
    bytes.clear();
    bytes.resize(numbers.len() * len, 0);
    for (out, number) in bytes.chunks_exact_mut(len).zip(numbers) {
        number.store(out);
    }
}
