// SPDX-License-Identifier: MIT OR Apache-2.0
//! Active messages of an endpoint. Each has a tag and runs the receiver's hook on arrival.
//!
//! They are messages to ports: the tag is the port. No receive is posted and nothing is matched.
//! The hook runs within calls of the endpoint, mostly [`Endpoint::poll`], as soon as a message is
//! complete. A short message may overtake a long one that was sent before it.

use super::Endpoint;
use super::message::slice_of;
use crate::engine::{BUFFERED_LEN_MAX, PortUse};
use crate::error::Error;
use crate::ops::{Memory, OpKind};
use crate::raw::{Cookie, PeerIndex, RawKind, RawPiece, RawWhat, Sent, SubmitError};
use portolan_proto::{LaneId, PortId, PortMode, SendSpec};

/// Active message, as passed to the hook.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ActiveMessage<'a> {
    /// Sender, which need not have been inserted.
    pub source: PeerIndex,
    /// Tag chosen by the sender.
    pub tag: u8,
    /// Contents, valid only while the hook runs.
    pub bytes: &'a [u8],
}

impl Endpoint {
    /// Runs `hook` for each active message. Messages that arrived before are stored and run it
    /// first.
    ///
    /// # Errors
    /// [`Error::PortInUse`] if the endpoint has a hook already.
    pub fn on_active(
        &mut self,
        mut hook: impl FnMut(ActiveMessage<'_>) + Send + 'static,
    ) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        for tag in 0..=u8::MAX {
            let port = u16::from(tag);
            engine.inner.take_port(port, PortUse::Handled)?;
        }
        engine.set_active_hook(Box::new(move |source, port, bytes| {
            hook(ActiveMessage {
                source: PeerIndex(source.0),
                // All open ports are below 256.
                tag: port.to_le_bytes()[0],
                bytes,
            });
        }));
        for tag in 0..=u8::MAX {
            let port = PortId::user(u16::from(tag));
            engine.inner.core.open_port(port, PortMode::InPlace);
        }
        engine.drain();
        Ok(())
    }

    /// Returns the length of the longest active message that [`Endpoint::inject_active`] accepts.
    #[must_use]
    pub fn active_inject_len_max(&self) -> usize {
        BUFFERED_LEN_MAX
    }

    /// Sends two pieces as one active message without queueing it. The caller's memory is free when
    /// this returns, and there is no completion.
    ///
    /// # Errors
    /// [`SubmitError::Again`] if the message must be queued: use [`Endpoint::send_active`] then.
    /// After an error nothing was sent.
    #[inline]
    pub fn inject_active(
        &mut self,
        to: PeerIndex,
        tag: u8,
        pieces: [&[u8]; 2],
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_index(to)?;
        if engine.submit_now(peer, &spec_of(tag), pieces) {
            return Ok(());
        }
        match pieces.map(<[u8]>::len).iter().sum::<usize>() > BUFFERED_LEN_MAX {
            true => Err(SubmitError::TooLong),
            false => Err(SubmitError::Again),
        }
    }

    /// Sends `piece` as an active message. [`Sent::Done`] means that it was copied into frames;
    /// otherwise a completion follows.
    ///
    /// # Errors
    /// After a [`SubmitError`] there is no completion.
    ///
    /// # Safety
    /// Same as [`Endpoint::send`].
    #[inline]
    pub unsafe fn send_active(
        &mut self,
        to: PeerIndex,
        tag: u8,
        piece: RawPiece,
        cookie: Cookie,
    ) -> Result<Sent, SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_index(to)?;
        let spec = spec_of(tag);
        // SAFETY: the caller guarantees that the piece is readable.
        let bytes = unsafe { slice_of(&piece) };
        if engine.submit_now(peer, &spec, [bytes, &[]]) {
            return Ok(Sent::Done);
        }
        engine.inner.check_capacity()?;
        // SAFETY: the caller guarantees that the piece stays readable and unchanged until the
        // completion.
        let memory = unsafe { Memory::borrowed(bytes) };
        let raw = (RawKind::Send, RawWhat::Send(false), cookie);
        let op = engine.enter_op(OpKind::Send(peer), memory, raw);
        engine.submit_later(peer, spec, op);
        Ok(Sent::Pending)
    }
}

#[inline]
fn spec_of(tag: u8) -> SendSpec {
    SendSpec {
        to: PortId::user(u16::from(tag)).into(),
        lane: LaneId::Low,
        best_effort: false,
    }
}
