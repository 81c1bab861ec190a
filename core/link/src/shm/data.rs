// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data path: no system call (except to wake a sleeper), no clock, no allocation, no lock.

use super::Shm;
use super::peer::Inbound;
use crate::{Body, PeerId, RxFrame, TxError, TxFrame};
use portolan_sys::ring::{Entry, PushError, RingBroken};
use std::ops::ControlFlow;

/// Longest frame that is copied out as a whole before it is parsed. A page is cheap to copy inside
/// the first-level cache, and parsing needs memory that does not change.
const COPIED_LEN_MAX: usize = 4096;

/// First bytes of a longer frame that are copied out: one cache line, which holds its headers. The
/// rest is copied once, to its destination.
const HEAD_LEN: usize = 64;

/// Frames taken from one ring before the next is served: enough to pay for the switch, few enough
/// that a flood from one peer delays other peers by about 1 µs.
pub(super) const BURST_MAX: usize = 32;

/// Private copy of a frame or of its head.
#[repr(align(64))]
pub(super) struct Scratch([u8; COPIED_LEN_MAX]);

impl Scratch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Scratch([0; COPIED_LEN_MAX]))
    }
}

impl Shm {
    #[inline]
    pub(super) fn transmit_frame(
        &mut self,
        peer: PeerId,
        frame: &TxFrame<'_>,
    ) -> Result<(), TxError> {
        debug_assert!(
            frame
                .segments
                .is_none_or(|cut| frame.head.len() <= cut.header_len),
            "this link takes one segment a call, as its capabilities state"
        );
        let Some(Some(outbound)) = self.outbound.get_mut(peer as usize) else {
            return Err(TxError::NotConnected(peer));
        };
        match outbound.ring.push(frame.head, frame.payload) {
            Ok(bell) => {
                outbound.notify(bell);
                Ok(())
            }
            Err(err) => Err(self.push_failed(peer, frame.head.len() + frame.payload_len(), err)),
        }
    }

    /// Sends a frame of a header and a payload. Inlined into its caller, because calls between the
    /// layers would be most of the cost of a short message.
    ///
    /// # Errors
    /// As [`crate::Link::transmit`].
    #[inline(always)]
    pub fn transmit_message<const N: usize>(
        &mut self,
        peer: PeerId,
        header: &[u8; N],
        payload: &[u8],
    ) -> Result<(), TxError> {
        let Some(Some(outbound)) = self.outbound.get_mut(peer as usize) else {
            return Err(TxError::NotConnected(peer));
        };
        match outbound.ring.push_message(header, payload) {
            Ok(bell) => {
                outbound.notify(bell);
                Ok(())
            }
            Err(err) => Err(self.push_failed(peer, N + payload.len(), err)),
        }
    }

    #[cold]
    fn push_failed(&mut self, peer: PeerId, len: usize, err: PushError) -> TxError {
        match err {
            PushError::Full => {
                if let Some(Some(outbound)) = self.outbound.get_mut(peer as usize) {
                    outbound.blocked_len = Some(len);
                }
                TxError::Full
            }
            PushError::TooLong(frame_len_max) => TxError::TooLong { frame_len_max },
            PushError::Broken(broken) => {
                self.break_off(peer, broken);
                TxError::NotConnected(peer)
            }
        }
    }

    /// Returns the next frame of the ring that is served now. Returns `None` if it has none, or if
    /// the next call of [`Shm::receive_with`] must serve another ring.
    #[inline(always)]
    pub fn next_frame(&mut self) -> Option<NextFrame<'_>> {
        let burst_left = &mut self.burst_left;
        if *burst_left < 2 {
            if self.inbound.len() > 1 {
                return None;
            }
            *burst_left = BURST_MAX;
        }
        let inbound = self.inbound.get_mut(self.cursor)?;
        // `receive_with` reports a broken ring.
        let len = inbound.ring.peek().ok()??.len();
        Some(NextFrame {
            inbound,
            burst_left,
            len,
        })
    }

    /// Receives until the budget is used up, all rings are empty, or `sink` breaks off. In the last
    /// case the next call continues at the same ring.
    #[inline]
    pub(super) fn receive_frames(
        &mut self,
        budget: usize,
        sink: &mut (impl FnMut(RxFrame<'_>) -> ControlFlow<()> + ?Sized),
    ) -> usize {
        let mut received = 0;
        // Each ring is visited once. If a broken ring is removed, another takes its place.
        for _ in 0..self.inbound.len() {
            if received >= budget {
                break;
            }
            if self.cursor >= self.inbound.len() {
                self.cursor = 0;
            }
            let Some(inbound) = self.inbound.get_mut(self.cursor) else {
                break;
            };
            let burst = self.burst_left.min(budget - received);
            let (count, result) = receive_burst(inbound, burst, &mut self.scratch, sink);
            received += count;
            if let Ok(ControlFlow::Break(())) = result
                && count < self.burst_left
            {
                self.burst_left -= count;
                break;
            }
            self.burst_left = BURST_MAX;
            self.cursor += 1;
            match result {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(broken) => {
                    let peer = inbound.peer;
                    self.break_off(peer, broken);
                }
            }
        }
        received
    }
}

/// Frame in its ring, where it stays unless it is [consumed](NextFrame::consume).
pub struct NextFrame<'a> {
    inbound: &'a mut Inbound,
    burst_left: &'a mut usize,
    len: usize,
}

impl NextFrame<'_> {
    /// Returns the sender.
    #[inline]
    #[must_use]
    pub fn from(&self) -> PeerId {
        self.inbound.peer
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.len
    }

    /// Copies `dst.len()` bytes, starting at `off`. The sender may change them at any moment, so
    /// each byte is read once only.
    ///
    /// # Panics
    /// Panics if the range exceeds the frame.
    #[inline(always)]
    pub fn copy_to(&self, off: usize, dst: &mut [u8]) {
        self.inbound.ring.entry(self.len).copy_to(off, dst);
    }

    /// Removes the frame from its ring.
    #[inline(always)]
    pub fn consume(self) {
        *self.burst_left -= 1;
        let bell = self.inbound.ring.consume(self.len);
        self.inbound.notify(bell);
    }
}

/// Receives up to `burst` frames from one ring, or fewer if `sink` breaks off.
#[inline]
fn receive_burst(
    inbound: &mut Inbound,
    burst: usize,
    scratch: &mut Scratch,
    sink: &mut (impl FnMut(RxFrame<'_>) -> ControlFlow<()> + ?Sized),
) -> (usize, Result<ControlFlow<()>, RingBroken>) {
    for count in 0..burst {
        let entry = match inbound.ring.peek() {
            Ok(Some(entry)) => entry,
            Ok(None) => return (count, Ok(ControlFlow::Continue(()))),
            Err(broken) => return (count, Err(broken)),
        };
        let len = entry.len();
        let flow = deliver(entry, inbound.peer, scratch, sink);
        let bell = inbound.ring.consume(len);
        inbound.notify(bell);
        if flow.is_break() {
            return (count + 1, Ok(flow));
        }
    }
    (burst, Ok(ControlFlow::Continue(())))
}

#[inline]
fn deliver(
    entry: Entry<'_>,
    peer: PeerId,
    scratch: &mut Scratch,
    sink: &mut (impl FnMut(RxFrame<'_>) -> ControlFlow<()> + ?Sized),
) -> ControlFlow<()> {
    let head_len = if entry.len() <= COPIED_LEN_MAX {
        entry.len()
    } else {
        HEAD_LEN
    };
    let head = &mut scratch.0[..head_len];
    entry.copy_to(0, head);
    if head_len == entry.len() {
        sink(RxFrame {
            from: Some(peer),
            head,
            body: None,
            marked: false,
        })
    } else {
        sink(RxFrame {
            from: Some(peer),
            head,
            body: Some(&Rest(entry)),
            marked: false,
        })
    }
}

/// Bytes behind the head of a long frame, in the ring.
struct Rest<'a>(Entry<'a>);

impl Body for Rest<'_> {
    fn len(&self) -> usize {
        self.0.len() - HEAD_LEN
    }

    fn copy_to(&self, off: usize, dst: &mut [u8]) {
        self.0.copy_to(off.saturating_add(HEAD_LEN), dst);
    }
}
