// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's place in its job: what programs call.
#![allow(
    unsafe_code,
    reason = "blocking calls lend their slices to operations; see `ops`"
)]

mod collective;
mod join;

pub(crate) use collective::{Run, Sending, Wait};

use crate::buffer::{self, Buffer};
use crate::engine::{BUFFERED_LEN_MAX, Engine, Inbox, PortUse};
use crate::error::Error;
use crate::event::EventSet;
use crate::launch::Job;
use crate::model;
use crate::ops::{Completion, OpKind, Received, Request};
use crate::port::{Context, Message, PortConfig, Target};
use crate::settings;
use crate::wait::{LOOK_TURNS, Waiter};
use portolan_proto::{Counters, LinkId, OpId, PathStatus, PeerId, PortId, PortMode, Want};
use portolan_sys::gate::Gate;
use std::collections::BTreeMap;
use std::fmt;

/// Longest buffer that waits for its message without being posted: what every path carries in one
/// frame. The parts of a longer message must find their place when the first arrives.
const INBOX_LEN_MAX: usize = 1024;

/// A path to a peer, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo(PathStatus);

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
        } = self.0;
        write!(f, "{link}: {}", if up { "up" } else { "down" })?;
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
/// Belongs to one thread at a time. Dropping it leaves the job as [`Node::close`] does, and logs what
/// that would return.
pub struct Node {
    pub(crate) engine: Gate<Engine>,
    /// Beside the engine: asking for a rank must not take that back from its helper.
    job: Box<Job>,
    pub(crate) waiter: Waiter,
    pub(crate) events: Option<Box<EventSet>>,
    collectives: collective::Collectives,
    clean: bool,
    /// It has left the job.
    closed: bool,
    model: model::Status,
}

impl Node {
    /// Rank of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.job.rank
    }

    /// Processes in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.job.size
    }

    /// Random number of the job, the same in all its processes.
    #[must_use]
    pub fn job_id(&self) -> [u8; 16] {
        self.job.job_id
    }

    /// The program's own option `name`, given with `portolan run --option app.NAME=VALUE`: the same
    /// in all processes of the job. Portolan's settings are not among them.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        settings::app_option(&self.job, name)
    }

    /// What became of the stored model of this machine's paths.
    #[must_use]
    pub fn model(&self) -> &model::Status {
        &self.model
    }

    /// Sends by `choices` from now on, instead of by those of the stored model. Limits of the
    /// protocol stay limits.
    pub fn choose(&mut self, choices: &model::Choices) {
        self.engine.inner.core.choose(choices.to_core());
    }

    /// What the protocol has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.engine.inner.core.counters()
    }

    /// Turns of the engine so far, modulo 2^32: in each it has looked at what may have come. A process
    /// that waits takes few.
    #[must_use]
    pub fn turn_count(&self) -> u32 {
        self.engine.inner.turn
    }

    /// Everything that was dropped here, by reason, by the protocol and by the links.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.engine.inner.drops()
    }

    /// The paths to process `rank` that were tried so far.
    #[must_use]
    pub fn paths(&self, rank: u32) -> Vec<PathInfo> {
        let status = |link| self.engine.inner.core.path_status(PeerId(rank), link);
        LinkId::ALL
            .into_iter()
            .filter_map(status)
            .map(PathInfo)
            .collect()
    }

    /// Opens `port` for [`Node::recv`] and [`Node::post_recv`]. Messages that came before wait.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    pub fn open(&mut self, port: u16, config: PortConfig) -> Result<(), Error> {
        let PortConfig { in_place: _ } = config;
        self.take_port(port, PortUse::Open)?;
        self.engine
            .inner
            .core
            .open_port(PortId::user(port), PortMode::Posted);
        Ok(())
    }

    /// Opens `port` as an active port: `handler` runs for each message, inside calls of this
    /// library. With [`PortConfig::in_place`] it gets messages where they lie; else each goes into
    /// a buffer that was posted, which the handler gets with it.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    pub fn open_active(
        &mut self,
        port: u16,
        config: PortConfig,
        handler: impl FnMut(&mut Context<'_>, Message<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        self.take_port(port, PortUse::Handled)?;
        let index = usize::from(port);
        if self.engine.handlers.len() <= index {
            self.engine.handlers.resize_with(index + 1, || None);
        }
        self.engine.handlers[index] = Some(Box::new(handler));
        let mode = if config.in_place {
            PortMode::InPlace
        } else {
            PortMode::Posted
        };
        self.engine.inner.core.open_port(PortId::user(port), mode);
        self.drain();
        Ok(())
    }

    /// Whether `port` has a handler, which gets the buffers that are posted there.
    ///
    /// # Errors
    /// [`Error::PortClosed`].
    pub fn has_handler(&self, port: u16) -> Result<bool, Error> {
        self.engine.inner.has_handler(port)
    }

    fn take_port(&mut self, port: u16, claimed: PortUse) -> Result<(), Error> {
        let uses = &mut self.engine.inner.port_uses;
        let index = usize::from(port);
        if uses.len() <= index {
            uses.resize(index + 1, PortUse::Closed);
        }
        if uses[index] != PortUse::Closed {
            return Err(Error::PortInUse { port });
        }
        uses[index] = claimed;
        Ok(())
    }

    /// Sends `bytes`; on return they may be used again.
    ///
    /// A message of up to [`Node::BUFFERED_LEN_MAX`] bytes is copied, and on its way when this returns,
    /// whether its receiver asks for it or not, while no more than 512 KiB of its lane are unread
    /// there. A longer one has arrived: two processes that send one another such messages, and would
    /// receive them afterwards, wait for ever. A message to this process itself is copied whatever its
    /// length.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::NoPath`], [`Error::PeerGone`]; [`Error::SelfFull`].
    #[inline]
    pub fn send(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        let peer = self.engine.inner.check_rank(to.rank())?;
        let spec = to.spec();
        self.send_spec(peer, spec, bytes)
    }

    /// Sends the pieces as one message, as [`Node::send`].
    ///
    /// # Errors
    /// As [`Node::send`]; [`Error::NoMemory`].
    pub fn send_gather(&mut self, to: Target, pieces: &[&[u8]]) -> Result<(), Error> {
        let peer = self.engine.inner.check_rank(to.rank())?;
        let spec = to.spec();
        let submitted = self.engine.inner.try_eager(peer, &spec, pieces)?;
        if submitted == crate::engine::Submitted::Accepted {
            self.engine.flush();
            self.part();
            return Ok(());
        }
        // Too long to be copied into a frame, or no room now: in one piece it can wait.
        let whole = buffer::gathered("a copy of the pieces of a message", pieces)?;
        self.send_spec(peer, spec, &whole)
    }

    #[inline]
    pub(crate) fn send_spec(
        &mut self,
        peer: PeerId,
        spec: portolan_proto::SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let engine = &mut *self.engine;
        if engine.send_direct(peer, &spec, bytes) {
            self.part();
            return Ok(());
        }
        let submitted = engine.inner.try_eager(peer, &spec, &[bytes])?;
        if submitted == crate::engine::Submitted::Accepted {
            engine.flush();
            self.part();
            return Ok(());
        }
        if engine.inner.must_buffer(peer, bytes.len()) {
            return self.send_buffered(peer, spec, bytes);
        }
        // SAFETY: `finish_lent` returns only when the operation is done, and its guard detaches
        // the memory if a handler panics; the engine is not left to its helper before.
        let op = unsafe { engine.inner.ops.lent(OpKind::Send(peer), bytes) };
        engine.inner.submit_op(peer, spec, op);
        engine.flush();
        self.finish_lent(op, &[peer]).map(|_| ())
    }

    /// Sends a copy, which waits for its receiver when this has returned; the sender waits for credit
    /// alone.
    fn send_buffered(
        &mut self,
        peer: PeerId,
        spec: portolan_proto::SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let Node { engine, waiter, .. } = self;
        if peer.0 == engine.inner.rank() {
            // What was received is known to have ended when its end has gone round.
            (0..LOOK_TURNS).any(|_| engine.progress() == 0);
        }
        let op = engine.inner.copy_of(peer, bytes)?;
        engine.inner.submit_op(peer, spec, op);
        engine.flush();
        if peer.0 != engine.inner.rank() {
            waiter.until(engine, &[peer], |inner| !inner.pending.holds(peer, op));
        }
        // One that was announced has no end that anybody waits for.
        let result = engine.inner.check_gone(peer);
        self.part();
        result
    }

    /// Begins to send `buffer` and returns at once; the buffer comes back with the completion.
    /// Short messages of a burst gather, and leave together with the next call that waits or makes
    /// progress; a message on its own leaves at once.
    ///
    /// # Errors
    /// As [`Node::send`].
    #[inline]
    pub fn isend(&mut self, to: Target, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let request = self.engine.inner.isend(&to, buffer.into())?;
        self.flush_if_wanted();
        Ok(request)
    }

    /// Begins to send a copy of `bytes`; there is nothing to wait for. Leaves as [`Node::isend`].
    ///
    /// # Errors
    /// As [`Node::send`].
    #[inline]
    pub fn isend_copy(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        self.engine.inner.send_copy(&to, bytes)?;
        self.flush_if_wanted();
        Ok(())
    }

    /// Posts `buffer` for the next message to `port`. At a port with a handler, the handler gets
    /// it; there is nothing to wait for then.
    ///
    /// # Errors
    /// [`Error::PortClosed`], [`Error::BufferShared`].
    #[inline]
    pub fn post_recv(&mut self, port: u16, buffer: impl Into<Buffer>) -> Result<Request, Error> {
        let request = self
            .engine
            .inner
            .post_recv(PortId::user(port), buffer.into(), None)?;
        self.drain();
        Ok(request)
    }

    /// Posts `buffer` for the next message to `port` from process `source`. If that is gone, or
    /// goes, the request ends with an error.
    ///
    /// # Errors
    /// As [`Node::post_recv`]; [`Error::NoSuchRank`].
    pub fn post_recv_from(
        &mut self,
        source: u32,
        port: u16,
        buffer: impl Into<Buffer>,
    ) -> Result<Request, Error> {
        let peer = self.engine.inner.check_rank(source)?;
        let buffer = buffer.into();
        let request = self
            .engine
            .inner
            .post_recv(PortId::user(port), buffer, Some(peer))?;
        self.drain();
        Ok(request)
    }

    /// Waits for the next message to `port`.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when every other process of the job has ended, as Portolan's own launcher
    /// tells, and nothing is there.
    /// [`Error::PortClosed`], [`Error::Truncated`]; [`Error::UnexpectedMemoryFull`] when the
    /// message is behind unread ones that fill their memory.
    #[inline]
    pub fn recv(&mut self, port: u16, bytes: &mut [u8]) -> Result<Received, Error> {
        self.recv_with(PortId::user(port), None, bytes)
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
        let peer = self.engine.inner.check_rank(source)?;
        self.recv_with(PortId::user(port), Some(peer), bytes)
    }

    #[inline]
    fn recv_with(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        let inner = &mut self.engine.inner;
        inner.check_owner()?;
        match inner.port_use(port) {
            PortUse::Open => {}
            PortUse::Closed => return Err(Error::PortClosed { port: port.number }),
            PortUse::Handled => return Err(Error::PortInUse { port: port.number }),
        }
        if bytes.len() <= INBOX_LEN_MAX
            && inner.core.is_quiet(port)
            && let Some(got) = self.recv_at_once(port, source, bytes, || false)
        {
            self.part();
            return Ok(got);
        }
        let inner = &mut self.engine.inner;
        let len = bytes.len() as u64;
        // SAFETY: as in `send_spec`; `bytes` is not used before the operation is done.
        let op = unsafe { inner.ops.lent_mut(OpKind::Recv { port, source }, bytes) };
        inner.core.post_recv(port, op, len, source);
        self.engine.drain();
        self.finish_lent(op, source.as_slice())
    }

    /// Longest message whose blocking send does not wait for its receiver to ask, in bytes. On
    /// networks, a stored model of the machine may have found that asking pays earlier.
    pub const BUFFERED_LEN_MAX: usize = BUFFERED_LEN_MAX;

    /// Longest message that [`Node::take`] takes, in bytes.
    pub const TAKE_LEN_MAX: usize = INBOX_LEN_MAX;

    /// Waits for some turns for the next message to `port`, which has a handler: for interfaces whose
    /// handlers are others than the library's. A message that finds no posted buffer, and fits `bytes`
    /// and [`Node::TAKE_LEN_MAX`], goes straight to `bytes`, and the handler does not run. `None`, with
    /// `bytes` as they were, if none comes before `stop`, or another has to be served first by a posted
    /// buffer.
    #[inline]
    pub fn take(
        &mut self,
        port: u16,
        bytes: &mut [u8],
        stop: impl Fn() -> bool,
    ) -> Option<Received> {
        let port = PortId::user(port);
        let len = bytes.len().min(INBOX_LEN_MAX);
        if !self.engine.inner.core.is_quiet(port) {
            return None;
        }
        let got = self.recv_at_once(port, None, &mut bytes[..len], stop);
        self.part();
        got
    }

    /// Runs `handler` as that of a port to which a message has come; what it sends leaves then.
    #[inline]
    pub fn in_context<T>(&mut self, handler: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let result = handler(&mut Context {
            inner: &mut self.engine.inner,
        });
        self.engine.drain();
        self.flush_if_wanted();
        result
    }

    /// Takes a message that comes within the first turns straight from its frame. `None`, and
    /// `bytes` as they were, when none comes before `stop`, or one that does not fit or is not the
    /// wanted one.
    #[inline]
    fn recv_at_once(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
        stop: impl Fn() -> bool,
    ) -> Option<Received> {
        let want = Want {
            port,
            source,
            len: bytes.len(),
        };
        let mut inbox = Inbox {
            want,
            bytes,
            got: None,
        };
        let engine = &mut *self.engine;
        for _ in 0..LOOK_TURNS {
            let moved = engine.work(Some(&mut inbox));
            if inbox.got.is_some() {
                engine.leave_to_caller();
                break;
            }
            engine.leave();
            if moved > 0 && !engine.inner.core.is_quiet(port) || stop() {
                break;
            }
        }
        inbox.got
    }

    /// Waits for an operation whose memory is lent.
    #[inline]
    pub(crate) fn finish_lent(&mut self, op: OpId, about: &[PeerId]) -> Result<Received, Error> {
        self.await_lent(op, about);
        let done = self.engine.inner.ops.finish_lent(op);
        let done = done.unwrap_or_else(|| Err(self.engine.inner.stale()));
        self.part();
        done
    }

    #[inline]
    pub(crate) fn await_lent(&mut self, op: OpId, about: &[PeerId]) {
        if !self.engine.inner.ops.is_done(op) {
            let guard = LentGuard { node: self, op };
            let Node { engine, waiter, .. } = &mut *guard.node;
            waiter.until(engine, about, |inner| inner.has_ended(op));
            engine.inner.end_orphan(op);
            if engine.inner.ops.is_done(op) {
                // Nothing is lent any more.
                std::mem::forget(guard);
            }
        }
    }

    /// Waits for a non-blocking operation; the completion holds its buffer.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::Truncated`], [`Error::Refused`],
    /// [`Error::UnexpectedMemoryFull`]; [`Error::StaleRequest`] when
    /// it was completed before, or its port has a handler.
    #[inline]
    pub fn wait(&mut self, request: Request) -> Result<Completion, Error> {
        let op = request.0;
        let ops = &self.engine.inner.ops;
        if ops.is_handled(op) {
            return Err(Error::StaleRequest);
        }
        if !ops.is_done(op) {
            let about = match ops.kind(op) {
                Some(OpKind::Send(peer) | OpKind::Remote(peer)) => Some(peer),
                Some(OpKind::Recv { source, .. } | OpKind::RecvTagged { source }) => source,
                Some(OpKind::Region) | None => None,
            };
            let Node { engine, waiter, .. } = self;
            waiter.until(engine, about.as_slice(), |inner| inner.has_ended(op));
            engine.inner.end_orphan(op);
        }
        let done = self.engine.inner.ops.finish(op);
        let done = done.unwrap_or_else(|| Err(self.engine.inner.stale()));
        self.part();
        done
    }

    /// Makes progress once; the completion if the operation has ended.
    ///
    /// # Errors
    /// As [`Node::wait`].
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, Error> {
        let tested = self.test_once(request.0);
        self.part();
        tested
    }

    fn test_once(&mut self, op: OpId) -> Result<Option<Completion>, Error> {
        let engine = &mut *self.engine;
        if engine.inner.ops.is_handled(op) {
            return Err(Error::StaleRequest);
        }
        if !engine.inner.ops.is_done(op) {
            engine.progress();
            engine.inner.check_owner()?;
            if !engine.inner.ops.is_done(op) {
                return Ok(None);
            }
        }
        match engine.inner.ops.finish(op) {
            Some(done) => done.map(Some),
            None => Err(engine.inner.stale()),
        }
    }

    /// Receives and sends what is ready, runs handlers, and returns at once; the number of frames
    /// that moved.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let moved = self.engine.progress();
        self.part();
        moved
    }

    /// Makes progress, and sleeps between, until `done` says so. For programs whose handlers count.
    ///
    /// `done` must depend on what handlers change: it is asked after each turn. Returns before it says
    /// so in a process that was forked after it had joined, which gets no messages.
    pub fn wait_until(&mut self, done: impl Fn() -> bool) {
        let Node { engine, waiter, .. } = self;
        waiter.until(engine, &[], |_| done());
        self.part();
    }

    /// Sends everything that has gathered.
    pub fn flush(&mut self) {
        self.engine.flush();
        self.part();
    }

    /// Ends the whole job with exit status `status`, because of `reason`; this process, too, should
    /// end then.
    pub fn abort(&mut self, status: i32, reason: &str) {
        self.clean = false;
        if self.engine.inner.owner.is_another() {
            return;
        }
        if let Some(launch) = &mut self.engine.launch {
            launch.abort(status, reason);
        }
    }

    #[inline]
    pub(crate) fn flush_if_wanted(&mut self) {
        if self.engine.inner.flush_wanted {
            self.engine.flush();
        }
        self.part();
    }

    /// The last thing that a call does: what it has left is carried on if the program does not call
    /// again soon.
    #[inline]
    pub(crate) fn part(&mut self) {
        if self.engine.has_left()
            && let Err(error) = Gate::leave(&mut self.engine)
        {
            log::warn!("{error}");
        }
    }

    /// Acts on events that a call, not a frame, has caused.
    #[inline]
    pub(crate) fn drain(&mut self) {
        self.engine.drain();
        self.part();
    }

    /// Leaves the job after everything that was sent has arrived: a message whose send has ended is
    /// acknowledged, or lies in shared memory that its receiver reads on. That takes as long as the
    /// receivers take, while they live. Sends that nobody has waited for get a second to end.
    /// Messages that this process has not received are thrown away.
    ///
    /// # Errors
    /// [`Error::Undelivered`] when a process that may live was given up and may not have got
    /// everything; the launcher then takes this process for failed.
    pub fn close(mut self) -> Result<(), Error> {
        self.leave_job()
    }

    fn leave_job(&mut self) -> Result<(), Error> {
        self.closed = true;
        self.engine.inner.check_owner()?;
        if !self.clean {
            return Ok(());
        }
        let Node { engine, waiter, .. } = self;
        engine.close(waiter)?;
        if let Some(launch) = &mut engine.launch {
            launch.bye();
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.engine.inner.owner.is_another() {
            self.engine.abandon();
            return;
        }
        if std::thread::panicking() || self.closed {
            return;
        }
        if let Err(error) = self.leave_job() {
            // A program that wants to know calls `close`; its launcher is told by the missing farewell.
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

/// Takes lent memory back if the wait for its operation ends early.
struct LentGuard<'a> {
    node: &'a mut Node,
    op: OpId,
}

impl Drop for LentGuard<'_> {
    fn drop(&mut self) {
        let inner = &mut self.node.engine.inner;
        if !inner.ops.exists(self.op) {
            return;
        }
        if inner.withdraw(self.op) {
            inner.ops.forget(self.op);
            return;
        }
        inner.ops.detach(self.op);
    }
}
