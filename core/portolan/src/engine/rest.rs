// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rest of a frame of which a blocking receive has taken the first message. The following receives
//! at the same port take their messages from here, which costs less than to hold each of them.
//!
//! Invariant: all other calls, turns and frames [settle](Inner::settle_rest) the rest first, so that
//! it is as if the whole frame had been handled when it arrived.

use super::events::whole;
use super::{Engine, Inner};
use crate::ops::Received;
use portolan_proto::{Admitted, PeerId, PortId, RecvFilter, WaitingRecv, copy};
use portolan_sys::memory::append;
use portolan_sys::usage;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Rest {
    /// Records left of the frame, and the port of the next message.
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
    /// Keeps the rest of `frame` if its next message is for `port`. Returns false otherwise.
    pub(super) fn keep_rest(&mut self, admitted: &Admitted, frame: &[u8], port: PortId) -> bool {
        if !admitted.is_next_for(frame, port) {
            return false;
        }
        let (left, bytes) = admitted.rest(frame);
        usage::count_copy();
        self.rest.bytes.clear();
        append(&mut self.rest.bytes, bytes);
        self.rest.left = Some((left, port));
        true
    }

    /// Takes the next message of the rest, if it is for a receive with these arguments.
    #[inline]
    fn take_rest(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        bytes: &mut [u8],
    ) -> Option<Received> {
        let Inner { rest, core, .. } = self;
        let (left, next) = rest.left.as_mut()?;
        let want = WaitingRecv {
            filter: RecvFilter::Port(port, source),
            len: bytes.len(),
        };
        if *next != port {
            return None;
        }
        let payload = core.take_next(left, &rest.bytes, &want)?;
        usage::count_copy();
        let len = payload.len();
        copy(&mut bytes[..len], &rest.bytes[payload]);
        let source = left.from.0;
        if left.is_done() {
            rest.left = None;
        }
        self.note_short();
        Some(Received { len, source })
    }
}

impl Engine {
    /// Takes the next message to `port` from the rest of a frame, if there is any. Settles a rest
    /// that has another record next.
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
        let taken = self.inner.take_rest(port, source, bytes);
        let (rest, handlers) = (&self.inner.rest, &mut self.handlers);
        // Acknowledgements and credit behind the messages do not wait for the next call.
        let left = rest.left.as_ref();
        if left.is_some_and(|(left, port)| taken.is_none() || !left.is_next_for(&rest.bytes, *port))
        {
            self.inner.settle_rest(handlers);
        }
        taken
    }

    /// Handles the rest of a frame, if there is any, before anything else.
    #[inline(always)]
    pub(super) fn settle_rest(&mut self) {
        if !self.inner.rest.is_empty() {
            self.inner.settle_rest(&mut self.handlers);
        }
    }
}

impl Inner {
    /// Handles the rest of a frame as if no receive had waited for it.
    #[cold]
    pub(super) fn settle_rest(&mut self, handlers: &mut super::delivery::Handlers) {
        if let Some((left, _)) = self.rest.left.take() {
            let bytes = std::mem::take(&mut self.rest.bytes);
            self.on_records(handlers, left, false, &whole(&bytes), None);
            self.rest.bytes = bytes;
        }
    }
}
