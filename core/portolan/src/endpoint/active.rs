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
use portolan_sys::memory;
use std::mem::MaybeUninit;

/// Longest message for which both pieces are joined before sending: about the payload of a frame,
/// which has a shorter send path. The pieces of a longer message are copied into its frames
/// separately.
const JOINED_LEN_MAX: usize = 1400;

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
        hook: impl FnMut(ActiveMessage<'_>) + Clone + Send + 'static,
    ) -> Result<(), Error> {
        let mut engine = self.engine.enter();
        for tag in 0..=u8::MAX {
            let port = u16::from(tag);
            engine.inner.take_port(port, PortUse::Handled)?;
            let mut hook = hook.clone();
            let handler = Box::new(
                move |_: &mut crate::Context<'_>, message: crate::Message<'_>| {
                    hook(ActiveMessage {
                        source: PeerIndex(message.source()),
                        tag,
                        bytes: message.bytes(),
                    });
                },
            );
            engine.set_handler(port, true, handler);
            let (id, mode) = (PortId::user(port), PortMode::InPlace);
            engine.inner.core.open_port(id, mode);
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
        [head, body]: [&[u8]; 2],
    ) -> Result<(), SubmitError> {
        let engine = &mut *self.engine.enter();
        let peer = engine.check_index(to)?;
        let spec = spec_of(tag);
        let len = head.len() + body.len();
        let accepted = if body.is_empty() {
            engine.submit_now(peer, &spec, head)
        } else if len <= JOINED_LEN_MAX {
            let mut room = [MaybeUninit::uninit(); JOINED_LEN_MAX];
            engine.submit_now(peer, &spec, joined(&mut room, head, body))
        } else if len <= BUFFERED_LEN_MAX {
            engine.submit_two_now(peer, &spec, [head, body])
        } else {
            return Err(SubmitError::TooLong);
        };
        match accepted {
            true => Ok(()),
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
        if engine.submit_now(peer, &spec, bytes) {
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

/// Copies `head` and `body` to the begin of `room`, which must be long enough. Returns both.
#[inline]
fn joined<'a>(
    room: &'a mut [MaybeUninit<u8>; JOINED_LEN_MAX],
    head: &[u8],
    body: &[u8],
) -> &'a [u8] {
    let len = head.len() + body.len();
    assert!(len <= JOINED_LEN_MAX);
    let first = room.as_mut_ptr().cast::<u8>();
    // SAFETY: both pieces fit in `room`, which nothing else borrows.
    unsafe {
        memory::copy(head.as_ptr(), first, head.len());
        memory::copy(body.as_ptr(), first.add(head.len()), body.len());
    }
    // SAFETY: the first `len` bytes were written above.
    unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_short_lengths_are_joined() {
        let bytes: Vec<u8> = (0..100).collect();
        for head_len in 0..40 {
            for body_len in 0..40 {
                let (head, body) = (&bytes[..head_len], &bytes[50..50 + body_len]);
                let mut room = [MaybeUninit::new(0xa5); JOINED_LEN_MAX];
                assert_eq!(joined(&mut room, head, body), [head, body].concat());
            }
        }
    }
}
