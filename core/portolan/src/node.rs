// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Node`: a process's membership in its job, with the calls that programs make.
#![allow(
    unsafe_code,
    reason = "blocking calls pass their slices to operations; see `ops`"
)]

mod call;
mod collective;
mod event;
mod exchange;
mod group;
mod join;
mod probe;
mod reduce;
mod remote;
mod requests;
mod running;
mod standalone;
mod tagged;
mod timeout;
mod window;

pub use call::{Call, CallBuilder, ReceivedCall, Reply, ReplyTo};
pub use exchange::Operator;
pub use group::Group;
pub use reduce::{Bf16, F16, ReduceOp, Reducible};
pub use remote::{PutNotice, Registration, RemoteKey, RemoteTarget};
pub use requests::Ended;
pub use standalone::{Connecting, Peer};
pub use tagged::{Claimed, Envelope, TagMatch, TagTarget};
pub use window::Window;

use collective::{Sending, Task, Wait};

use crate::buffer::{self, Buffer};
use crate::engine::{
    Awaited, BUFFERED_LEN_MAX, Context, Descriptor, Engine, Inner, PortUse, Submitted, Waiter,
};
use crate::error::Error;
use crate::launch::Job;
use crate::links::RawBy;
use crate::model;
use crate::ops::{Completion, Failed, Received, Request};
use crate::port::{Message, PortConfig, Target};
use crate::settings;
use portolan_proto::{
    Counters, LinkId, NotTaken, PathStatus, PeerId, PortId, PortMode, RecvFilter, SendSpec,
};
use portolan_sys::gate::Gate;
use portolan_wire::MESSAGE_LEN;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

/// Longest buffer for a message that no receive was posted for: one frame on every path. The parts
/// of a longer message need their destination when the first part arrives.
const INBOX_LEN_MAX: usize = 1024;

/// Measured properties of a path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    status: PathStatus,
    raw_by: Option<RawBy>,
}

impl fmt::Display for PathInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathStatus {
            link,
            up,
            small,
            bulk,
            frame_len,
            rtt_min,
            window,
            ..
        } = self.status;
        write!(f, "{link}: {}", if up { "up" } else { "down" })?;
        match self.raw_by {
            Some(RawBy::Broker) => f.write_str(", by the broker")?,
            Some(RawBy::Xdp(mode)) => write!(f, ", by AF_XDP in {mode} mode")?,
            None => {}
        }
        if let Some(rtt) = rtt_min {
            write!(f, ", round trip from {:.1} µs", rtt.as_secs_f64() * 1e6)?;
        }
        write!(f, ", frames of {frame_len} bytes")?;
        if let Some(window) = window {
            write!(f, ", {window} under way at most")?;
        }
        match (small, bulk) {
            (true, true) => f.write_str(", all messages"),
            (true, false) => f.write_str(", small messages"),
            (false, true) => f.write_str(", bulk data"),
            (false, false) => Ok(()),
        }
    }
}

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
}

impl Node {
    /// Returns the rank of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.job.rank
    }

    /// Returns the number of processes in the job; 1 in a standalone process.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.job.size
    }

    /// Returns the random number of the job, the same in all its processes.
    #[must_use]
    pub fn job_id(&self) -> [u8; 16] {
        self.job.job_id
    }

    /// Returns the name of the host of process `rank`, as the launcher spells it; `None` if there
    /// is no such process.
    #[must_use]
    pub fn host_name(&self, rank: u32) -> Option<String> {
        let engine = self.engine.read();
        let is_known = rank < engine.inner.size();
        is_known.then(|| engine.inner.host_of(PeerId(rank)))
    }

    /// Returns the program's own option `name`, given with `portolan run --option app.NAME=VALUE`.
    /// All processes of the job have the same options. Portolan's own settings are not among them.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        settings::app_option(&self.job.options, name)
    }

    /// Returns the state of the stored model of this machine's paths.
    #[must_use]
    pub fn model(&self) -> &model::Status {
        &self.model
    }

    /// Sends by `choices` from now on, instead of by those of the stored model. The limits of the
    /// protocol still apply.
    pub fn choose(&mut self, choices: &model::Choices) {
        self.engine.enter().inner.core.choose(choices.to_core());
    }

    /// Returns the protocol's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.read().inner.core.counters().clone()
    }

    /// Returns the number of engine turns in calls of the program, modulo 2^32. Each turn polls the
    /// links. A sleeping process takes few.
    #[must_use]
    pub fn turn_count(&self) -> u32 {
        self.engine.read().inner.turn_count()
    }

    /// Returns the number of liveness probes, and answers to probes of peers, that this process has
    /// sent (`P9.3`). Each causes at most three wake-ups.
    #[must_use]
    pub fn question_count(&self) -> u64 {
        self.engine.read().question_count()
    }

    /// Returns whether messages to process `rank` use shared memory, which loses none. Interfaces
    /// use this to choose their services.
    #[must_use]
    pub fn shares_memory(&self, rank: u32) -> bool {
        let engine = self.engine.read();
        let status = engine.inner.core.path_status(PeerId(rank), LinkId::SHM);
        status.is_some_and(|path| path.up)
    }

    /// Returns the number of broadcasts that this process, as their root, sent by multicast
    /// (setting `multicast`).
    #[must_use]
    pub fn multicast_count(&self) -> u64 {
        self.engine.read().inner.multicast_count()
    }

    /// Returns the number of drops of the protocol and the links, by reason.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.engine.read().inner.drops()
    }

    /// Returns the paths to process `rank` that were tried so far.
    #[must_use]
    pub fn paths(&self, rank: u32) -> Vec<PathInfo> {
        let engine = self.engine.read();
        let status = |link| engine.inner.core.path_status(PeerId(rank), link);
        LinkId::ALL
            .into_iter()
            .filter_map(status)
            .map(|status| PathInfo {
                status,
                raw_by: engine.raw_by().filter(|_| status.link == LinkId::PACKET),
            })
            .collect()
    }

    /// Opens `port` for [`Node::recv`] and [`Node::post_recv`]. Messages that arrived earlier are
    /// kept for it.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
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

    /// Returns whether `port` has a handler, which receives the buffers that are posted there.
    ///
    /// # Errors
    /// [`Error::PortClosed`].
    pub fn has_handler(&self, port: u16) -> Result<bool, Error> {
        self.engine.read().inner.has_handler(port)
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
    #[inline(always)]
    pub fn send(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        let peer = engine.inner.check_rank(to.rank())?;
        if engine.send_by_memory::<MESSAGE_LEN>(peer, &to.spec(), bytes) {
            engine.progress_between_sends();
            engine.leave();
            return Ok(());
        }
        let sent = engine.send_otherwise(&mut self.waiter, peer, to.spec(), bytes);
        engine.leave();
        sent
    }

    /// Sends the pieces as one message, like [`Node::send`].
    ///
    /// # Errors
    /// As [`Node::send`]; [`Error::NoMemory`].
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
        engine.send_otherwise(&mut self.waiter, peer, spec, bytes)
    }

    /// Starts a nonblocking send of `buffer`. The completion returns the buffer. A single message
    /// is sent at once. Short messages of a burst share frames, which are sent by the next call
    /// that waits or makes progress.
    ///
    /// # Errors
    /// As [`Node::send`].
    #[inline]
    pub fn isend(&mut self, to: Target, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let engine = &mut *self.engine.enter();
        let request = engine.inner.isend(&to, buffer.into())?;
        engine.flush_if_wanted();
        Ok(request)
    }

    /// Starts a nonblocking send of two buffers as one message. If the message fits a frame, it is
    /// copied there, and nothing is pending. Otherwise nothing is copied, and the library keeps the
    /// buffers until the returned request is complete. It then drops them instead of returning
    /// them. The message is sent as by [`Node::isend`].
    ///
    /// On shared memory a receiver reads a long message in one piece directly from the sender; a
    /// message in two pieces is copied through the ring.
    ///
    /// # Errors
    /// As [`Node::send`].
    pub fn isend_two(
        &mut self,
        to: Target,
        first: impl Into<Buffer>,
        second: impl Into<Buffer>,
    ) -> Result<Option<Request>, Error> {
        let engine = &mut *self.engine.enter();
        let request = engine.inner.isend_two(&to, [first.into(), second.into()])?;
        engine.flush_if_wanted();
        Ok(request)
    }

    /// Starts a nonblocking send of a copy of `bytes`, without a request to wait for. The message
    /// is sent as by [`Node::isend`].
    ///
    /// # Errors
    /// As [`Node::send`].
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
    #[inline]
    pub fn recv(&mut self, port: u16, bytes: &mut [u8]) -> Result<Received, Error> {
        self.recv_of(port, None, bytes)
    }

    /// Waits for the next message to `port` from process `source`.
    ///
    /// # Errors
    /// As [`Node::recv`]; [`Error::NoSuchRank`], [`Error::PeerGone`].
    #[inline]
    pub fn recv_from(
        &mut self,
        source: u32,
        port: u16,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        self.recv_of(port, Some(source), bytes)
    }

    /// Waits for the next message to `port`, only from process `source` if given. For interfaces in
    /// other languages, which inline a single call.
    ///
    /// # Errors
    /// As [`Node::recv`] and [`Node::recv_from`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn recv_of(
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

    /// Longest message that [`Node::take`] takes, in bytes.
    pub const TAKE_LEN_MAX: usize = INBOX_LEN_MAX;

    /// Polls some turns for the next message to `port`, which has a handler. For interfaces with
    /// handlers that are not Portolan's. A message without a posted buffer that fits `bytes` and
    /// [`Node::TAKE_LEN_MAX`] is copied to `bytes`, and the handler does not run. Returns `None`,
    /// with `bytes` unchanged, if no message arrives before `stop`, or if a posted buffer must
    /// receive another one first.
    #[inline]
    pub fn take(
        &mut self,
        port: u16,
        bytes: &mut [u8],
        stop: impl Fn() -> bool,
    ) -> Option<Received> {
        let port = PortId::user(port);
        let len = bytes.len().min(INBOX_LEN_MAX);
        let engine = &mut *self.engine.enter();
        let wanted = RecvFilter::Port(port, None);
        // Messages that arrived while the program computed come first.
        if engine.run_deferred() > 0 || !engine.inner.core.is_quiet(&wanted) {
            return None;
        }
        engine.recv_next(port, None, &mut bytes[..len], stop)
    }

    /// Runs `handler` as if a message had arrived at its port, and flushes its sends.
    #[inline]
    pub fn in_context<T>(&mut self, handler: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let engine = &mut *self.engine.enter();
        let result = handler(&mut Context::new(&mut engine.inner));
        engine.drain();
        engine.flush_if_wanted();
        result
    }

    /// Waits for a non-blocking operation; the completion holds its buffer, and so does a failure.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::NobodyLeft`], [`Error::Truncated`], [`Error::Refused`],
    /// [`Error::UnexpectedMemoryFull`]; [`Error::StaleRequest`] when the request was completed
    /// before, or its port has a handler.
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

    /// Makes progress until a frame has moved, at most `turns` times. For programs that poll for
    /// messages of handlers. Acknowledgements that are not urgent are left to the next call, as
    /// after a receive that waited.
    #[inline]
    pub fn progress_until_moved(&mut self, turns: u32) -> usize {
        let engine = &mut *self.engine.enter();
        for _ in 0..turns {
            let moved = engine.work(None);
            if moved > 0 {
                engine.leave_to_caller();
                return moved;
            }
            engine.leave();
        }
        0
    }

    /// Makes progress until `done` returns true, and sleeps while there is nothing to do. For
    /// programs that count in their handlers.
    ///
    /// `done` must depend on what handlers change: it is called after each turn.
    ///
    /// # Errors [`Error::NobodyLeft`] when every other process of the job has ended, and `done`
    /// still returns false: no further handler will run. [`Error::Forked`] in a process that was
    /// forked after it had joined, which gets no messages.
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
    pub fn flush(&mut self) {
        self.engine.enter().flush();
    }

    /// Ends the whole job with exit status `status`, because of `reason`. This process should end
    /// too.
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
    pub fn close(mut self) -> Result<(), Error> {
        self.leave_job()
    }

    /// Leaves the job at once, as a process that panics does: without a farewell, and without
    /// waiting until its messages are received. The launcher treats this process as failed.
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
