// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the library itself, to and from its own ports: what groups are made of. They go by
//! the high lane, so that a barrier does not wait behind the program's data.

use super::Node;
use crate::buffer::{self, Buffer};
use crate::engine::Submitted;
use crate::error::Error;
use crate::ops::{Completion, OpKind, Request};
use portolan_proto::{LaneId, PortId, SendSpec};

impl Node {
    /// Sends to a system port of each of `ranks`, and waits until `bytes` may be used again.
    pub(crate) fn system_send(
        &mut self,
        ranks: &[u32],
        port: u16,
        bytes: &[u8],
    ) -> Result<(), Error> {
        for &rank in ranks {
            let peer = self.engine.inner.check_rank(rank)?;
            let spec = system_spec(port);
            self.send_spec(peer, spec, bytes)?;
        }
        Ok(())
    }

    /// As [`Node::system_send`], without waiting; `None` when there is nothing to wait for.
    pub(crate) fn system_isend(
        &mut self,
        rank: u32,
        port: u16,
        bytes: &[u8],
    ) -> Result<Option<Request>, Error> {
        let inner = &mut self.engine.inner;
        let peer = inner.check_rank(rank)?;
        let spec = system_spec(port);
        let mut request = None;
        if inner.try_eager(peer, &spec, &[bytes])? == Submitted::Wait {
            let copy = Buffer::from(buffer::gathered("a copy of a message", &[bytes])?);
            let op = inner.ops.owned(OpKind::Send(peer), copy, false);
            inner.submit_op(peer, spec, op);
            request = Some(Request(op));
        }
        self.flush();
        Ok(request)
    }

    /// Waits for a non-blocking operation as [`Node::wait`], but only until `stop` says so, too;
    /// `None` when that came first.
    pub(crate) fn wait_or(
        &mut self,
        request: Request,
        stop: impl Fn() -> bool,
    ) -> Result<Option<Completion>, Error> {
        let op = request.0;
        let about = match self.engine.inner.ops.kind(op) {
            Some(OpKind::Recv { source, .. }) => source,
            Some(OpKind::Send(peer)) => Some(peer),
            _ => None,
        };
        let Node { engine, waiter, .. } = self;
        waiter.until(engine, about.as_slice(), |inner| {
            inner.ops.is_done(op) || stop()
        });
        if !self.engine.inner.ops.is_done(op) {
            self.part();
            return Ok(None);
        }
        self.wait(request).map(Some)
    }

    /// Begins to send `buffer` to a system port.
    pub(crate) fn system_isend_buffer(
        &mut self,
        rank: u32,
        port: u16,
        buffer: Buffer,
    ) -> Result<Request, Error> {
        let inner = &mut self.engine.inner;
        let peer = inner.check_rank(rank)?;
        let request = inner.isend_spec(peer, system_spec(port), buffer);
        self.flush();
        request
    }

    /// Posts a buffer at a system port.
    pub(crate) fn system_post_recv(
        &mut self,
        rank: u32,
        port: u16,
        buffer: Buffer,
    ) -> Result<Request, Error> {
        let peer = self.engine.inner.check_rank(rank)?;
        let request = self
            .engine
            .inner
            .post_recv(PortId::system(port), buffer, Some(peer))?;
        self.drain();
        Ok(request)
    }

    /// Receives from a system port what must fill `bytes`.
    pub(crate) fn system_recv_exact(
        &mut self,
        rank: u32,
        port: u16,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let peer = self.engine.inner.check_rank(rank)?;
        let expected = bytes.len();
        let len = match self.recv_with(PortId::system(port), Some(peer), bytes) {
            Ok(got) => got.len as u64,
            Err(Error::Truncated { message_len, .. }) => message_len,
            Err(error) => return Err(error),
        };
        if len == expected as u64 {
            return Ok(());
        }
        Err(Error::LengthMismatch {
            rank,
            len,
            expected,
        })
    }

    pub(crate) fn system_recv(
        &mut self,
        rank: u32,
        port: u16,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let peer = self.engine.inner.check_rank(rank)?;
        self.recv_with(PortId::system(port), Some(peer), bytes)
            .map(|_| ())
    }
}

fn system_spec(port: u16) -> SendSpec {
    SendSpec {
        to: PortId::system(port).into(),
        lane: LaneId::High,
        best_effort: false,
    }
}
