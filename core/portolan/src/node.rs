// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's place in its job: what programs call.
#![allow(
    unsafe_code,
    reason = "blocking calls lend their slices to operations; see `ops`"
)]

mod collective;
mod event;
mod group;
mod join;
mod reduce;
mod remote;
mod tagged;

pub use group::{Barrier, Broadcast, Group};
pub use reduce::{ReduceOp, Reducible};
pub use remote::{PutNotice, Registration, RemoteKey, RemoteTarget};
pub use tagged::{Claimed, Envelope, TagMatch, TagTarget};

use collective::{Sending, Task, Wait};

use crate::buffer::{self, Buffer};
use crate::engine::{
    BUFFERED_LEN_MAX, Context, Descriptor, Engine, Inner, PortUse, Submitted, Waiter,
};
use crate::error::Error;
use crate::launch::Job;
use crate::links::RawBy;
use crate::model;
use crate::ops::{Completion, OpKind, Received, Request};
use crate::port::{Message, PortConfig, Target};
use crate::settings;
use portolan_proto::{Counters, LinkId, PathStatus, PeerId, PortId, PortMode, SendSpec, Wanted};
use portolan_sys::gate::Gate;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

/// Longest buffer that waits for its message without being posted: what every path carries in one
/// frame. The parts of a longer message must find their place when the first arrives.
const INBOX_LEN_MAX: usize = 1024;

/// A path to a peer, as it was measured.
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
/// Belongs to one thread at a time. Dropping it leaves the job as [`Node::close`] does, and logs what
/// that would return.
pub struct Node {
    engine: Gate<Engine>,
    /// Beside the engine: asking for a rank must not take that back from its helper.
    job: Box<Job>,
    waiter: Waiter,
    descriptor: Option<Box<Descriptor>>,
    /// All processes of the job.
    all: Group,
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

    /// Name of the host of process `rank`, as the launcher calls it; `None` if there is no such process.
    #[must_use]
    pub fn host_name(&self, rank: u32) -> Option<String> {
        let known = rank < self.size();
        known.then(|| self.engine.look().inner.host_of(PeerId(rank)))
    }

    /// The program's own option `name`, given with `portolan run --option app.NAME=VALUE`: the same
    /// in all processes of the job. Portolan's settings are not among them.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        settings::app_option(&self.job.options, name)
    }

    /// What became of the stored model of this machine's paths.
    #[must_use]
    pub fn model(&self) -> &model::Status {
        &self.model
    }

    /// Sends by `choices` from now on, instead of by those of the stored model. Limits of the
    /// protocol stay limits.
    pub fn choose(&mut self, choices: &model::Choices) {
        self.engine.enter().inner.core.choose(choices.to_core());
    }

    /// What the protocol has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.look().inner.core.counters().clone()
    }

    /// Turns of the engine in calls of the program so far, modulo 2^32: in each it has looked at what
    /// may have come. A process that waits takes few.
    #[must_use]
    pub fn turn_count(&self) -> u32 {
        self.engine.look().inner.turn_count()
    }

    /// Questions whether a peer lives, and answers to those of others, that this process has sent so
    /// far (`P9.3`). Each wakes it up to three times.
    #[must_use]
    pub fn question_count(&self) -> u64 {
        self.engine.look().question_count()
    }

    /// Whether messages to process `rank` go through shared memory, where none is lost: for interfaces that
    /// choose their services by that.
    #[must_use]
    pub fn shares_memory(&self, rank: u32) -> bool {
        let engine = self.engine.look();
        let status = engine.inner.core.path_status(PeerId(rank), LinkId::SHM);
        status.is_some_and(|path| path.up)
    }

    /// Broadcasts of this process, as their root, that went by multicast (the setting `multicast`).
    #[must_use]
    pub fn multicast_count(&self) -> u64 {
        self.engine.look().inner.multicast_count()
    }

    /// Everything that was dropped here, by reason, by the protocol and by the links.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.engine.look().inner.drops()
    }

    /// The paths to process `rank` that were tried so far.
    #[must_use]
    pub fn paths(&self, rank: u32) -> Vec<PathInfo> {
        let engine = self.engine.look();
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

    /// Opens `port` for [`Node::recv`] and [`Node::post_recv`]. Messages that came before wait.
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

    /// Whether `port` has a handler, which gets the buffers that are posted there.
    ///
    /// # Errors
    /// [`Error::PortClosed`].
    pub fn has_handler(&self, port: u16) -> Result<bool, Error> {
        self.engine.look().inner.has_handler(port)
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
        self.send_spec(to.rank(), to.spec(), bytes)
    }

    /// Sends the pieces as one message, as [`Node::send`].
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
        // Too long to be copied into a frame, or no room now: in one piece it can wait.
        let whole = buffer::gathered("a copy of the pieces of a message", pieces)?;
        self.send_spec(to.rank(), spec, &whole)
    }

    #[inline]
    pub(crate) fn send_spec(
        &mut self,
        rank: u32,
        spec: SendSpec,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        let peer = engine.inner.check_rank(rank)?;
        if engine.send_direct(peer, &spec, bytes) {
            engine.look_between_sends();
            return Ok(());
        }
        if engine.inner.try_eager(peer, &spec, &[bytes])? == Submitted::Accepted {
            engine.flush();
            engine.look_between_sends();
            return Ok(());
        }
        if engine.inner.must_buffer(peer, bytes.len()) {
            return engine.send_buffered(&mut self.waiter, peer, spec, bytes);
        }
        // SAFETY: `finish_lent` returns only when the operation is done, and its guard detaches
        // the memory if a handler panics.
        let op = unsafe { engine.inner.ops.lent(OpKind::Send(peer), bytes) };
        engine.inner.submit_op(peer, spec, op);
        engine.flush();
        engine
            .finish_lent(&mut self.waiter, op, &[peer])
            .map(|_| ())
    }

    /// Begins to send `buffer` and returns at once; the buffer comes back with the completion.
    /// Short messages of a burst gather, and leave together with the next call that waits or makes
    /// progress; a message on its own leaves at once.
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

    /// Begins to send two buffers as one message, without a copy of what does not fit a frame. What does is
    /// put there, and there is nothing to wait for; else the buffers stay until the request that this returns
    /// is complete. They are dropped then, and not given back. Leaves as [`Node::isend`].
    ///
    /// On shared memory the receiver reads a long message in one piece where it lies; one in two
    /// comes through the ring.
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

    /// Begins to send a copy of `bytes`; there is nothing to wait for. Leaves as [`Node::isend`].
    ///
    /// # Errors
    /// As [`Node::send`].
    #[inline]
    pub fn isend_copy(&mut self, to: Target, bytes: &[u8]) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        let peer = engine.inner.check_rank(to.rank())?;
        engine.send_copy(peer, to.spec(), bytes)
    }

    /// Posts `buffer` for the next message to `port`. At a port with a handler, the handler gets
    /// it; there is nothing to wait for then.
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
        self.recv_with(PortId::user(port), Some(source), bytes)
    }

    #[inline]
    fn recv_with(
        &mut self,
        port: PortId,
        source: Option<u32>,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        let engine = &mut *self.engine.enter();
        let inner = &mut engine.inner;
        inner.check_owner()?;
        let source = source.map(|rank| inner.check_rank(rank)).transpose()?;
        match inner.port_use(port) {
            PortUse::Open => {}
            PortUse::Closed => return Err(Error::PortClosed { port: port.number }),
            PortUse::Handled => return Err(Error::PortHandled { port: port.number }),
        }
        let wanted = Wanted::Port(port, source);
        if bytes.len() <= INBOX_LEN_MAX
            && inner.core.is_quiet(&wanted)
            && let Some(taken) = engine.recv_at_once(wanted, bytes, || false)
        {
            return Ok(taken.received);
        }
        let inner = &mut engine.inner;
        if let Some(taken) = inner.core.take_held(port, bytes.len(), source) {
            let len = inner.copy_held(taken.held, bytes);
            let source = taken.peer.0;
            return Ok(Received { len, source });
        }
        let len = bytes.len() as u64;
        // SAFETY: as in `send_spec`; `bytes` is not used before the operation is done.
        let op = unsafe { inner.ops.lent_mut(OpKind::Recv { port, source }, bytes) };
        inner.core.post_recv(port, op, len, source);
        engine.drain();
        engine.finish_lent(&mut self.waiter, op, source.as_slice())
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
        let wanted = Wanted::Port(PortId::user(port), None);
        let len = bytes.len().min(INBOX_LEN_MAX);
        let engine = &mut *self.engine.enter();
        // What came while the program computed is first.
        if engine.run_deferred() > 0 || !engine.inner.core.is_quiet(&wanted) {
            return None;
        }
        let taken = engine.recv_at_once(wanted, &mut bytes[..len], stop)?;
        Some(taken.received)
    }

    /// Runs `handler` as that of a port to which a message has come; what it sends leaves then.
    #[inline]
    pub fn in_context<T>(&mut self, handler: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let engine = &mut *self.engine.enter();
        let result = handler(&mut Context::new(&mut engine.inner));
        engine.drain();
        engine.flush_if_wanted();
        result
    }

    /// Waits for a non-blocking operation; the completion holds its buffer.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::NobodyLeft`], [`Error::Truncated`], [`Error::Refused`],
    /// [`Error::UnexpectedMemoryFull`]; [`Error::StaleRequest`] when
    /// it was completed before, or its port has a handler.
    #[inline]
    pub fn wait(&mut self, request: Request) -> Result<Completion, Error> {
        let op = request.0;
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        let ops = &engine.inner.ops;
        if ops.is_handled(op) {
            return Err(Error::StaleRequest);
        }
        if !ops.is_done(op) {
            let about = engine.inner.awaited_peer(op);
            let ended = |inner: &Inner| inner.has_ended(op);
            self.waiter.until(engine, about.as_slice(), ended);
            engine.inner.end_orphan(op);
        }
        let done = engine.inner.ops.finish(op);
        done.unwrap_or_else(|| Err(engine.inner.stale()))
    }

    /// Makes progress once; the completion if the operation has ended. A program that goes on asking
    /// waits for the peer, which is given up as by [`Node::wait`] when it is gone or silent.
    ///
    /// # Errors
    /// As [`Node::wait`]. In a job of one, however, a receive from anybody does not end by itself: the
    /// process may still send to itself.
    pub fn test(&mut self, request: Request) -> Result<Option<Completion>, Error> {
        let op = request.0;
        let engine = &mut *self.engine.enter();
        // Also where its end was there when the process was forked.
        engine.inner.check_owner()?;
        if engine.inner.ops.is_handled(op) {
            return Err(Error::StaleRequest);
        }
        if !engine.inner.ops.is_done(op) {
            engine.progress();
            if !engine.inner.ops.is_done(op) {
                engine.look_for(op);
            }
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
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when every other process of a job of several has ended, and all that they
    /// sent was taken in before this call: a program that polls for more would poll for ever.
    #[inline]
    pub fn progress(&mut self) -> Result<usize, Error> {
        let engine = &mut *self.engine.enter();
        let was_last = engine.inner.is_last();
        match engine.progress() {
            0 if was_last => engine.inner.check_company().map(|()| 0),
            0 => engine.inner.check_owner().map(|()| 0),
            moved => Ok(moved),
        }
    }

    /// The same until something has come, `turns` times at most: for programs that poll for messages which
    /// handlers take. As after a receive that waited, acknowledgements that need not leave at once are left
    /// to the next call.
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

    /// Makes progress, and sleeps between, until `done` returns true. For programs whose handlers count.
    ///
    /// `done` must depend on what handlers change: it is called after each turn.
    ///
    /// # Errors
    /// [`Error::NobodyLeft`] when every other process of the job has ended, and `done` still returns
    /// false: no handler will run any more. [`Error::Forked`] in a process that was forked after it had
    /// joined, which gets no messages.
    pub fn wait_until(&mut self, done: impl Fn() -> bool) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        let is_done = Cell::new(false);
        self.waiter.until(engine, &[], |inner| {
            is_done.set(done());
            is_done.get() || inner.is_deserted()
        });
        match is_done.get() {
            true => Ok(()),
            false => Err(engine.inner.nobody_left()),
        }
    }

    /// Sends everything that has gathered.
    pub fn flush(&mut self) {
        self.engine.enter().flush();
    }

    /// Ends the whole job with exit status `status`, because of `reason`; this process, too, should
    /// end then.
    pub fn abort(&mut self, status: i32, reason: &str) {
        self.clean = false;
        self.engine.enter().abort(status, reason);
    }

    /// Leaves the job after everything that was sent has arrived: a message whose send has ended is
    /// acknowledged, or lies in shared memory that its receiver reads on; one that has to ask (of more
    /// than 64 KiB, in shared memory 16 KiB) arrives when it is received. That takes as long as the
    /// receivers take, while they live. Sends that nobody has waited for get a second to end.
    /// Messages that this process has not received are thrown away.
    ///
    /// # Errors
    /// [`Error::Undelivered`] when a process that may live was given up and may not have got
    /// everything; [`Error::CollectiveMismatch`] when another member called another operation of a group
    /// than this process, which has not been told yet. The launcher then takes this process for failed.
    pub fn close(mut self) -> Result<(), Error> {
        self.leave_job()
    }

    fn leave_job(&mut self) -> Result<(), Error> {
        self.closed = true;
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        if !self.clean {
            return Ok(());
        }
        // What lies at ports is thrown away when a process closes.
        engine.inner.check_groups();
        engine.close(&mut self.waiter)?;
        engine.inner.check_told()?;
        engine.say_bye();
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            self.engine.enter().abandon();
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
