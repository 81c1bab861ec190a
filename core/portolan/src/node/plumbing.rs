// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of a node for interfaces in other languages and with other semantics.
//!
//! Programs do not need them; see [`crate::binding`].

use super::{Awaited, Context, Ended, Group, INBOX_LEN_MAX, Node, ReduceOp, Reducible};
use crate::buffer::Buffer;
use crate::engine::Interrupter;
use crate::error::Error;
use crate::links;
use crate::model;
use crate::ops::{Completion, Failed, Received, Request};
use crate::port::Target;
use crate::settings;
use portolan_link::PortRange;
use portolan_proto::{PortId, RecvFilter};
use std::net::IpAddr;
use std::time::Duration;

/// Longest message that [`Plumbing::take`] takes, in bytes.
pub const TAKE_LEN_MAX: usize = INBOX_LEN_MAX;

mod sealed {
    /// Restricts [`super::Plumbing`] to this crate.
    pub trait Sealed {}

    impl Sealed for super::Node {}
}

/// Calls of a node for interfaces. Only [`Node`] has them.
pub trait Plumbing: sealed::Sealed {
    /// Returns whether `port` has a handler, which receives the buffers that are posted there.
    ///
    /// # Errors
    /// [`Error::PortClosed`].
    fn has_handler(&self, port: u16) -> Result<bool, Error>;

    /// Returns true if the job has the setting `progress=thread`.
    fn has_progress_thread(&self) -> bool;

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
    fn isend_two(
        &mut self,
        to: Target,
        first: impl Into<Buffer>,
        second: impl Into<Buffer>,
    ) -> Result<Option<Request>, Error>;

    /// Waits for the next message to `port`, only from process `source` if given. For interfaces in
    /// other languages, which inline a single call.
    ///
    /// # Errors
    /// As [`Node::recv`] and [`Node::recv_from`].
    fn recv_of(
        &mut self,
        port: u16,
        source: Option<u32>,
        bytes: &mut [u8],
    ) -> Result<Received, Error>;

    /// Polls some turns for the next message to `port`, which has a handler. For interfaces with
    /// handlers that are not Portolan's. A message without a posted buffer that fits `bytes` and
    /// [`TAKE_LEN_MAX`] is copied to `bytes`, and the handler does not run. Returns `None`,
    /// with `bytes` unchanged, if no message arrives before `stop`, or if a posted buffer must
    /// receive another one first.
    fn take(&mut self, port: u16, bytes: &mut [u8], stop: impl Fn() -> bool) -> Option<Received>;

    /// Runs `handler` as if a message had arrived at its port, and flushes its sends.
    fn in_context<T>(&mut self, handler: impl FnOnce(&mut Context<'_>) -> T) -> T;

    /// Makes progress until a frame has moved, at most `turns` times. For programs that poll for
    /// messages of handlers. Acknowledgements that are not urgent are left to the next call, as
    /// after a receive that waited.
    fn progress_until_moved(&mut self, turns: u32) -> usize;

    /// Waits for a non-blocking operation until `stop` returns true, which is called after each turn
    /// and must depend on what handlers or other threads change. Returns `None` if the operation has
    /// not ended by then. For interfaces with locks of their own.
    ///
    /// # Errors
    /// As [`Node::wait`].
    fn wait_or_stop(
        &mut self,
        request: Request,
        stop: impl Fn() -> bool,
    ) -> Result<Option<Completion>, Failed>;

    /// Waits like [`Node::wait_any_timeout`], but sleeps instead of spinning. For a thread beside one
    /// that computes.
    fn wait_any_asleep(&mut self, requests: &mut Vec<Request>, timeout: Duration) -> Option<Ended>;

    /// Begins [`Node::iallreduce`] on the bytes of values in any memory.
    ///
    /// # Errors
    /// As [`Node::iallreduce`]; [`Error::BufferShared`], [`Error::PartialElement`].
    fn iallreduce_buffer<T: Reducible>(
        &mut self,
        group: &Group,
        op: ReduceOp,
        buffer: Buffer,
    ) -> Result<Request, Error>;

    /// Begins [`Node::ireduce`] on the bytes of values in any memory.
    ///
    /// # Errors
    /// As [`Node::ireduce`]; [`Error::BufferShared`], [`Error::PartialElement`].
    fn ireduce_buffer<T: Reducible>(
        &mut self,
        group: &Group,
        root: u32,
        op: ReduceOp,
        buffer: Buffer,
    ) -> Result<Request, Error>;

    /// Sends by `choices` from now on, instead of by those of the stored model. The limits of the
    /// protocol still apply.
    fn choose(&mut self, choices: &model::Choices);

    /// Returns the state of the stored model of this machine's paths.
    #[must_use]
    fn model(&self) -> &model::Status;

    /// Returns the address of the interface for the job's network traffic on this host, which the
    /// setting `interface` or the library has chosen; `None` for a job on one host.
    #[must_use]
    fn network_addr(&self) -> Option<IpAddr>;

    /// Returns the ports that sockets of the job may be bound to, by the setting `ports`. By
    /// default the system chooses them.
    #[must_use]
    fn port_range(&self) -> PortRange;

    /// Returns the number of engine turns in calls of the program, modulo 2^32. Each turn polls the
    /// links. A sleeping process takes few.
    #[must_use]
    fn turn_count(&self) -> u32;

    /// Returns the number of liveness probes, and answers to probes of peers, that this process has
    /// sent (`P9.3`). Each causes at most three wake-ups.
    #[must_use]
    fn question_count(&self) -> u64;

    /// Returns the number of broadcasts that this process, as their root, sent by multicast
    /// (setting `multicast`).
    #[must_use]
    fn multicast_count(&self) -> u64;

    /// Returns the object by which other threads end waits with a timeout as if it had passed. For
    /// interfaces in which threads share a node.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no free descriptors.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// use portolan::binding::Plumbing as _;
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let interrupter = node.interrupter()?;
    /// let interruption = interrupter.interrupt();
    /// let day = Duration::from_secs(86_400);
    /// assert_eq!(node.recv_timeout(7, &mut [0; 16], day)?, None);
    /// drop(interruption);
    /// # Ok(())
    /// # }
    /// ```
    fn interrupter(&mut self) -> Result<Interrupter, Error>;
}

impl Plumbing for Node {
    fn has_handler(&self, port: u16) -> Result<bool, Error> {
        self.engine.read().inner.has_handler(port)
    }

    fn has_progress_thread(&self) -> bool {
        settings::PROGRESS.of(&self.job).as_deref() == Some("thread")
    }

    fn isend_two(
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

    #[inline(always)]
    fn recv_of(
        &mut self,
        port: u16,
        source: Option<u32>,
        bytes: &mut [u8],
    ) -> Result<Received, Error> {
        self.recv_at(port, source, bytes)
    }

    #[inline]
    fn take(&mut self, port: u16, bytes: &mut [u8], stop: impl Fn() -> bool) -> Option<Received> {
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

    #[inline]
    fn in_context<T>(&mut self, handler: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let engine = &mut *self.engine.enter();
        let result = handler(&mut Context::new(&mut engine.inner));
        engine.drain();
        engine.flush_if_wanted();
        result
    }

    #[inline]
    fn progress_until_moved(&mut self, turns: u32) -> usize {
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

    fn wait_or_stop(
        &mut self,
        request: Request,
        stop: impl Fn() -> bool,
    ) -> Result<Option<Completion>, Failed> {
        let op = request.0;
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        if engine.inner.ops.is_handled(op) {
            return Err(Error::StaleRequest.into());
        }
        if !engine.inner.ops.is_done(op) {
            let about = engine.inner.awaited_peer(op);
            let awaited = Awaited::Op(op);
            self.waiter
                .until(engine, about.as_slice(), awaited, |inner| {
                    inner.has_ended(op) || stop()
                });
            engine.advance_background();
            if !engine.inner.ops.is_done(op) {
                engine.on_empty_poll(op);
                return Ok(None);
            }
        }
        let done = engine.inner.ops.finish(op);
        done.unwrap_or_else(|| Err(engine.inner.stale().into()))
            .map(Some)
    }

    fn wait_any_asleep(&mut self, requests: &mut Vec<Request>, timeout: Duration) -> Option<Ended> {
        self.waiter.set_sleepy(true);
        let ended = self.wait_any_timeout(requests, timeout);
        self.waiter.set_sleepy(false);
        ended
    }

    fn iallreduce_buffer<T: Reducible>(
        &mut self,
        group: &Group,
        op: ReduceOp,
        buffer: Buffer,
    ) -> Result<Request, Error> {
        self.iallreduce_bytes::<T>(group, op, buffer)
    }

    fn ireduce_buffer<T: Reducible>(
        &mut self,
        group: &Group,
        root: u32,
        op: ReduceOp,
        buffer: Buffer,
    ) -> Result<Request, Error> {
        self.ireduce_bytes::<T>(group, root, op, buffer)
    }

    fn choose(&mut self, choices: &model::Choices) {
        self.engine.enter().inner.core.choose(choices.to_core());
    }

    fn model(&self) -> &model::Status {
        &self.model
    }

    fn network_addr(&self) -> Option<IpAddr> {
        self.engine.read().network_addr()
    }

    fn port_range(&self) -> PortRange {
        // Checked when the node joined.
        links::ports(&self.job).unwrap_or_default()
    }

    fn turn_count(&self) -> u32 {
        self.engine.read().inner.turn_count()
    }

    fn question_count(&self) -> u64 {
        self.engine.read().question_count()
    }

    fn multicast_count(&self) -> u64 {
        self.engine.read().inner.multicast_count()
    }

    fn interrupter(&mut self) -> Result<Interrupter, Error> {
        self.engine.enter().inner.interrupter()
    }
}
