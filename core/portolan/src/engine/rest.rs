// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rest of a frame of which a blocking receive has taken the first message. The following receives
//! at the same port take their messages from here, which costs less than holding each of them.
//!
//! Only messages to that port are kept. No other record waits for the program's next receive, and a
//! message that waits at its port affects nothing but the calls of the program.
//!
//! Invariant: all other calls, turns and frames [settle](Engine::settle_rest) the rest first, so that
//! it is as if the whole frame had been handled when it arrived.

use super::delivery::Handlers;
use super::events::whole;
use super::{Engine, Inbox, Inner, PortUse};
use crate::ops::Received;
use portolan_proto::{Admitted, PeerId, PortId, RecvFilter, WaitingRecv, copy};
use portolan_sys::memory::append;
use portolan_sys::usage;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Rest {
    /// Messages left, and their port.
    left: Option<(Admitted, PortId)>,
    bytes: Vec<u8>,
}

impl Rest {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_none()
    }
}

impl Inner {
    /// Keeps the rest of `frame`, of which `inbox` has taken a message, if it has only messages to
    /// the same port and these have no handler. Returns false otherwise.
    pub(super) fn keep_rest(
        &mut self,
        admitted: &Admitted,
        frame: &[u8],
        inbox: Option<&Inbox<'_>>,
    ) -> bool {
        let filter = inbox.map(|inbox| inbox.want.filter);
        let Some(RecvFilter::Port(port, _)) = filter else {
            return false;
        };
        if port.system || self.port_use(port) != PortUse::Open || !admitted.has_only(frame, port) {
            return false;
        }
        let (left, bytes) = admitted.rest(frame);
        usage::count_copy();
        self.rest.bytes.clear();
        append(&mut self.rest.bytes, bytes);
        self.rest.left = Some((left, port));
        true
    }

    /// Handles the rest of a frame as if no receive had waited for it.
    #[cold]
    pub(super) fn settle_rest(&mut self, handlers: &mut Handlers) {
        if let Some((left, _)) = self.rest.left.take() {
            let bytes = std::mem::take(&mut self.rest.bytes);
            self.on_records(handlers, left, false, &whole(&bytes), None);
            self.rest.bytes = bytes;
        }
    }
}

impl Engine {
    /// Takes the next message to `port` from the rest of a frame, if there is any. Settles a rest
    /// from which this receive takes nothing.
    #[inline(always)]
    pub(crate) fn take_rest(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Option<Received> {
        match self.inner.rest.is_empty() {
            true => None,
            false => self.take_next_of_rest(port, source, bytes),
        }
    }

    #[inline(never)]
    fn take_next_of_rest(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Option<Received> {
        let Inner { rest, core, .. } = &mut self.inner;
        let (left, kept_port) = rest.left.as_mut()?;
        let filter = RecvFilter::Port(port, source);
        let len = bytes.len();
        let want = WaitingRecv { filter, len };
        let taken = match *kept_port == port {
            true => core.take_next(left, &rest.bytes, &want),
            false => None,
        };
        let Some(payload) = taken else {
            self.settle_rest();
            return None;
        };
        let (source, len) = (left.from.0, payload.len());
        usage::count_copy();
        copy(&mut bytes[..len], &rest.bytes[payload]);
        if left.is_done() {
            rest.left = None;
        }
        self.inner.note_short();
        Some(Received { len, source })
    }

    /// Handles the rest of a frame, if there is any, before anything else.
    #[inline(always)]
    pub(super) fn settle_rest(&mut self) {
        if !self.inner.rest.is_empty() {
            self.inner.settle_rest(&mut self.handlers);
        }
    }
}
