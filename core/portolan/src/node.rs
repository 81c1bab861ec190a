// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Node`: a process's membership in its job, with the calls that programs make.
#![allow(
    unsafe_code,
    reason = "blocking calls pass their slices to operations; see `ops`"
)]

mod burst;
mod call;
mod collective;
mod event;
mod exchange;
mod facts;
mod group;
mod join;
mod plumbing;
mod probe;
mod reduce;
mod remote;
mod requests;
mod running;
mod scope;
mod simulated;
mod standalone;
mod tagged;
mod timeout;
mod window;

pub use call::{Call, CallBuilder, ReceivedCall, Reply, ReplyTo};
pub use exchange::Operator;
pub use facts::PathInfo;
pub use group::Group;
pub use plumbing::{Plumbing, TAKE_LEN_MAX};
pub use reduce::{Bf16, F16, ReduceOp, Reducible};
pub use remote::{PutNotice, Registration, RemoteKey, RemoteTarget};
pub use requests::Ended;
pub use scope::{Pending, Scope};
pub use simulated::SimulatedNode;
pub use standalone::{Connecting, Peer};
pub use tagged::{Claimed, Envelope, TagMatch, TagTarget};
pub use window::Window;

use collective::{Sending, Task, Wait};
use exchange::PreparedPlans;

use crate::buffer::{self, Buffer};
use crate::engine::{
    Awaited, BUFFERED_LEN_MAX, Context, Descriptor, Engine, Inner, PortUse, Submitted, Waiter,
};
use crate::error::Error;
use crate::launch::Job;
use crate::model;
use crate::ops::{Completion, Failed, Received, Request};
use crate::port::{Message, PortConfig, Target};
use portolan_proto::{NotTaken, PeerId, PortId, PortMode, SendSpec};
use portolan_sys::gate::Gate;
use portolan_wire::MESSAGE_LEN;
use std::cell::Cell;
use std::fmt;

/// Longest buffer for a message that no receive was posted for: one frame on every path. The parts
/// of a longer message need their destination when the first part arrives.
const INBOX_LEN_MAX: usize = 1024;

/// This process, as a member of a job.
///
/// A node belongs to one thread at a time. Dropping it leaves the job as [`Node::close`] does, and
/// logs the error that `close` would return.
pub struct Node {
    engine: Gate<Engine>,
    /// Kept outside the engine: reading the rank must not take the engine back from its
    /// helper.
    job: Box<Job>,
    waiter: Waiter,
    descriptor: Option<Box<Descriptor>>,
    /// All processes of the job.
    all: Group,
    /// Number of the next group that is made by a split.
    next_group_id: u16,
    is_clean: bool,
    /// Set when the process has left the job.
    is_closed: bool,
    model: model::Status,
    plans: PreparedPlans,
}

impl Node {
    /// Opens `port` for [`Node::recv`] and [`Node::post_recv`]. Messages that arrived earlier are
    /// kept for it.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.open(8, PortConfig::default())?;
    /// assert!(node.open(8, PortConfig::default()).is_err());
    /// # Ok(()) }
    /// ```
    pub fn open(&mut self, port: u16, config: PortConfig) -> Result<(), Error> {
        let PortConfig { in_place: _ } = config;
        let inner = &mut self.engine.enter().inner;
        inner.take_port(port, PortUse::Open)?;
        inner.core.open_port(PortId::user(port), PortMode::Posted);
        Ok(())
    }

    /// Opens `port` as an active port: `handler` runs for each message, inside calls of this
    /// library. With [`PortConfig::in_place`] the handler reads messages where they are. Otherwise
    /// each message goes to a posted buffer, which the handler receives.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// # let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    /// # let is_done = done.clone();
    /// node.open_active(8, PortConfig::in_place(), move |_, message| {
    ///     assert_eq!(message.bytes(), b"ahoy");
    ///     done.store(true, std::sync::atomic::Ordering::Relaxed);
    /// })?;
    /// node.send(Target::new(node.rank(), 8), b"ahoy")?;
    /// node.wait_until(|| is_done.load(std::sync::atomic::Ordering::Relaxed))?;
    /// # Ok(()) }
    /// ```
    pub fn open_active(
        &mut self,
        port: u16,
        config: PortConfig,
        handler: impl FnMut(&mut Context<'_>, Message<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        engine.inner.take_port(port, PortUse::Handled)?;
        engine.set_handler(port, config.in_place, Box::new(handler));
        let mode = if config.in_place {
            PortMode::InPlace
        } else {
            PortMode::Posted
        };
        engine.inner.core.open_port(PortId::user(port), mode);
        engine.drain();
        Ok(())
    }

    /// Sends `bytes`. The caller may reuse them when this returns.
    ///
    /// A message of up to [`Node::BUFFERED_LEN_MAX`] bytes is copied when this returns, even if no
    /// receive is posted. It has left, except over networks in a burst: after eight sends without
    /// another call, messages share frames, which leave with the next call or by the progress thread
    /// within microseconds. This holds while its lane has at most 512 KiB of unread messages at the
    /// receiver. A longer message has arrived when this returns. Two
    /// processes that send each other such messages before they receive therefore deadlock. A
    /// message to this process itself is copied, whatever its length.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::NoPath`], [`Error::PeerGone`]; [`Error::SelfFull`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own, b"ahoy")?;
    /// # node.recv(7, &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    #[inline(always)]
    pub fn send(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        let peer = engine.inner.check_rank(to.rank())?;
        if engine.send_by_shm::<MESSAGE_LEN>(peer, &to.spec(), bytes) {
            engine.progress_between_sends();
            engine.leave();
            return Ok(());
        }
        let sent = engine.send_by_any_path(&mut self.waiter, peer, to.spec(), bytes);
        engine.leave();
        sent
    }

    /// Sends the pieces as one message, like [`Node::send`].
    ///
    /// # Errors
    /// As [`Node::send`]; [`Error::NoMemory`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send_gather(own, &[b"ahoy, ", b"there"])?;
    /// assert_eq!(node.recv_vec::<u8>(7)?.0, b"ahoy, there");
    /// # Ok(()) }
    /// ```
    pub fn send_gather(&mut self, to: Target, pieces: &[&[u8]]) -> Result<(), Error> {
        let spec = to.spec();
        {
            let engine = &mut *self.engine.enter();
            let peer = engine.inner.check_rank(to.rank())?;
            if engine.inner.try_eager(peer, &spec, pieces)? == Submitted::Accepted {
                engine.flush();
                return Ok(());
            }
        }
        // Too long for a frame, or no room now: a copy in one piece can stay pending.
        let whole = buffer::gathered("a copy of the pieces of a message", pieces)?;
        self.send_spec(to.rank(), spec, &whole)
    }

    pub(crate) fn send_spec(
        &mut self,
        rank: u32,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        let peer = engine.inner.check_rank(rank)?;
        engine.send_by_any_path(&mut self.waiter, peer, spec, bytes)
    }

    /// Starts a nonblocking send of `buffer`. The completion returns the buffer. A single message
    /// is sent at once. Short messages of a burst share frames, which are sent by the next call
    /// that waits or makes progress.
    ///
    /// # Errors
    /// As [`Node::send`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.isend(own, vec![1; 1000])?;
    /// # node.recv(7, &mut [0; 1000])?;
    /// let buffer = node.wait(request)?.buffer; // to be used again
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn isend(&mut self, to: Target, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let request = engine.inner.isend(&to, buffer.into())?;
        engine.flush_if_wanted();
        Ok(request)
    }

    /// Starts a nonblocking send of a copy of `bytes`, without a request to wait for. The message
    /// is sent as by [`Node::isend`].
    ///
    /// # Errors
    /// As [`Node::send`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// for number in 0..3_u32 {
    ///     node.isend_copy(own, &number.to_le_bytes())?;
    /// }
    /// node.flush();
    /// # for _ in 0..3 { node.recv(7, &mut [0; 4])?; }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn isend_copy(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        engine.send_copy(to.rank(), to.spec(), bytes)
    }

    /// Posts `buffer` for the next message to `port`. At a port with a handler, the handler
    /// receives the buffer, and there is nothing to wait for.
    ///
    /// # Errors
    /// [`Error::PortClosed`], [`Error::BufferShared`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv(7, vec![0; 16])?;
    /// # node.send(own, b"ahoy")?;
    /// let received = node.wait(request)?;
    /// assert_eq!(received.len, 4);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn post_recv(&mut self, port: u16, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let port = PortId::user(port);
        let request = engine.inner.post_recv(port, buffer.into(), None)?;
        engine.drain();
        Ok(request)
    }

    /// Posts `buffer` for the next message to `port` from process `source`. If that process has
    /// ended, or ends, the request completes with an error.
    ///
    /// # Errors
    /// As [`Node::post_recv`]; [`Error::NoSuchRank`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv_from(own.rank(), 7, vec![0; 16])?;
    /// # node.send(own, b"ahoy")?;
    /// assert_eq!(node.wait(request)?.source, own.rank());
    /// # Ok(()) }
    /// ```
    pub fn post_recv_from(
        &mut self,
        source: u32,
        port: u16,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let peer = engine.inner.check_rank(source)?;
        let (port, buffer) = (PortId::user(port), buffer.into());
        let request = engine.inner.post_recv(port, buffer, Some(peer))?;
        engine.drain();
        Ok(request)
    }

    /// Waits for the next message to `port`.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when no message is left and every other process of the job has ended,
    /// which only Portolan's own launcher reports. [`Error::PortClosed`], [`Error::Truncated`];
    /// [`Error::UnexpectedMemoryFull`] when the message is behind unread ones that fill their
    /// memory.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own, b"ahoy")?;
    /// let mut buf = [0; 16];
    /// let received = node.recv(7, &mut buf)?;
    /// assert_eq!(&buf[..received.len], b"ahoy");
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn recv(&mut self, port: u16, bytes: &mut [u8]) -> Result<Received, Error> {
        self.recv_at(port, None, bytes)
    }

    /// Waits for the next message to `port` from process `source`.
    ///
    /// # Errors
    /// As [`Node::recv`]; [`Error::NoSuchRank`], [`Error::PeerGone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own, b"ahoy")?;
    /// let received = node.recv_from(own.rank(), 7, &mut [0; 16])?;
    /// assert_eq!(received.len, 4);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn recv_from(
        &mut self,
        source: u32,
        port: u16,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        self.recv_at(port, Some(source), bytes)
    }

    #[inline(always)]
    pub(crate) fn recv_at(
        &mut self,
        port: u16,
        source: Option<u32>,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        let mut engine = self.engine.enter_unsettled();
        let port = PortId::user(port);
        let source = engine.inner.check_recv(port, source)?;
        if let Some(received) = engine.take_rest(port, source, bytes) {
            engine.leave();
            return Ok(received);
        }
        let is_quiet = match engine.take_held(port, source, bytes) {
            Ok(received) => {
                engine.leave();
                return Ok(received);
            }
            Err(reason) => reason == NotTaken::Nothing,
        };
        if is_quiet
            && bytes.len() <= INBOX_LEN_MAX
            && let Some(received) = engine.recv_next(port, source, bytes, || false)
        {
            engine.leave();
            return Ok(received);
        }
        engine.recv_posted(&mut self.waiter, port, source, bytes)
    }

    /// Longest message that a blocking send copies without waiting for its receiver, in bytes. On
    /// networks, a stored model of the machine may lower it.
    pub const BUFFERED_LEN_MAX: usize = BUFFERED_LEN_MAX;

    /// Waits for a non-blocking operation; the completion holds its buffer, and so does a failure.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::NobodyLeft`], [`Error::Truncated`], [`Error::Refused`],
    /// [`Error::UnexpectedMemoryFull`]; [`Error::StaleRequest`] when the request was completed
    /// before, or its port has a handler.
    ///
    /// # Examples
    /// See [`Node::post_recv`].
    #[inline]
    pub fn wait(&mut self, request: Request) -> Result<Completion, Failed> {
        let op = request.0;
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        let ops = &engine.inner.ops;
        if ops.is_handled(op) {
            return Err(Error::StaleRequest.into());
        }
        if !ops.is_done(op) {
            let about = engine.inner.awaited_peer(op);
            let ended = |inner: &Inner| inner.has_ended(op);
            self.waiter
                .until(engine, about.as_slice(), Awaited::Op(op), ended);
            engine.inner.end_orphan(op);
        }
        let done = engine.inner.ops.finish(op);
        done.unwrap_or_else(|| Err(engine.inner.stale().into()))
    }

    /// Makes progress once and returns the completion if the operation has ended. A program that
    /// tests repeatedly waits for the peer: as with [`Node::wait`], a silent peer is declared dead.
    ///
    /// # Errors
    /// As [`Node::wait`]. In a job of one process, however, a receive from any source does not end
    /// by itself, because the process may still send to itself.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let request = node.post_recv(7, vec![0; 16])?;
    /// assert!(node.test(request)?.is_none());
    /// node.send(own, b"ahoy")?;
    /// while node.test(request)?.is_none() {}
    /// # Ok(()) }
    /// ```
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, Failed> {
        let op = request.0;
        let engine = &mut *self.engine.enter();
        // Checked even if the operation had completed before the process was forked.
        engine.inner.check_owner()?;
        if engine.inner.ops.is_handled(op) {
            return Err(Error::StaleRequest.into());
        }
        if !engine.inner.ops.is_done(op) {
            engine.progress_all();
            if !engine.inner.ops.is_done(op) {
                engine.on_empty_poll(op);
            }
            if !engine.inner.ops.is_done(op) {
                return Ok(None);
            }
        }
        match engine.inner.ops.finish(op) {
            Some(done) => done.map(Some),
            None => Err(engine.inner.stale().into()),
        }
    }

    /// Receives and sends what is ready, runs handlers, and returns at once with the number of
    /// frames that moved.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when every other process of a job of several has ended, and all their
    /// messages were received before this call: no further message can arrive.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.isend_copy(own, b"ahoy")?;
    /// node.progress()?;
    /// # node.recv(7, &mut [0; 4])?;
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn progress(&mut self) -> Result<usize, Error> {
        let engine = &mut *self.engine.enter();
        let was_last = engine.inner.is_last();
        match engine.progress_all() {
            0 if was_last => engine.inner.check_any_sender().map(|()| 0),
            0 => engine.inner.check_owner().map(|()| 0),
            moved => Ok(moved),
        }
    }

    /// Makes progress until `done` returns true, and sleeps while there is nothing to do. For
    /// programs that count in their handlers.
    ///
    /// `done` must depend on what handlers change: it is called after each turn.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when every other process of the job has ended, and `done` still returns
    /// false: no further handler will run. [`Error::Forked`] in a process that was forked after it
    /// had joined, which gets no messages.
    ///
    /// # Examples
    /// See [`Node::open_active`].
    pub fn wait_until(&mut self, done: impl Fn() -> bool) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        let is_done = Cell::new(false);
        self.waiter.until(engine, &[], Awaited::Condition, |inner| {
            is_done.set(done());
            is_done.get() || inner.has_no_sender()
        });
        match is_done.get() {
            true => Ok(()),
            false => Err(engine.inner.no_sender_error()),
        }
    }

    /// Sends all pending frames.
    ///
    /// # Examples
    /// See [`Node::isend_copy`].
    pub fn flush(&mut self) {
        self.engine.enter().flush();
    }

    /// Ends the whole job with exit status `status`, because of `reason`. This process should end
    /// too.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// if false {
    ///     node.abort(3, "the input is malformed");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn abort(&mut self, status: i32, reason: &str) {
        self.is_clean = false;
        self.engine.enter().abort(status, reason);
    }

    /// Leaves the job after everything that was sent has arrived. A message of a completed send is
    /// acknowledged, or is in shared memory that its receiver can still read. A message that its
    /// receiver must request (more than 64 KiB, in shared memory 16 KiB) arrives when it is
    /// received, so this waits for live receivers. Sends that were not waited for get one second to
    /// complete. Messages that this process has not received are discarded.
    ///
    /// # Errors
    /// [`Error::Undelivered`] when a process that may be alive was declared dead and may have
    /// missed messages; [`Error::CollectiveMismatch`] when another member called another collective
    /// operation than this process, and no call has reported that yet. The launcher then treats
    /// this process as failed.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.close()?;
    /// # Ok(()) }
    /// ```
    pub fn close(mut self) -> Result<(), Error> {
        self.leave_job()
    }

    /// Leaves the job at once, as a process that panics does: without a farewell, and without
    /// waiting until its messages are received. The launcher treats this process as failed.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// // As in a test of survivors.
    /// node.abandon();
    /// # Ok(()) }
    /// ```
    pub fn abandon(mut self) {
        self.is_closed = true;
    }

    fn leave_job(&mut self) -> Result<(), Error> {
        self.is_closed = true;
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        if !self.is_clean {
            return Ok(());
        }
        // Closing discards messages at ports, which may include reports of a mismatch.
        engine.inner.check_groups();
        engine.close(&mut self.waiter)?;
        engine.inner.check_unreported()?;
        engine.send_bye();
        if self.job.is_standalone() {
            engine.end_relations();
            engine.disconnect_all();
        }
        Ok(())
    }
}

impl Inner {
    /// Checks the arguments of a receive at a port, and returns the source.
    #[inline(always)]
    pub(crate) fn check_recv(
        &self,
        port: PortId,
        source: Option<u32>,
    ) -> Result<Option<PeerId>, Error> {
        self.check_owner()?;
        let source = source.map(|rank| self.check_rank(rank)).transpose()?;
        match self.port_use(port) {
            PortUse::Open => Ok(source),
            PortUse::Closed => Err(Error::PortClosed { port: port.number }),
            PortUse::Handled => Err(Error::PortHandled { port: port.number }),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            self.engine.enter().abandon();
            return;
        }
        if std::thread::panicking() || self.is_closed {
            return;
        }
        if let Err(error) = self.leave_job() {
            // A program that needs the error calls `close`. The launcher detects the missing
            // farewell.
            log::error!("{error}");
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
