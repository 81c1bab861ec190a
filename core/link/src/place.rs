// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speculative placement: receiving bulk payload directly at its expected destination.
//!
//! Before each batch, the receiver may state which frames it expects next and where their payload
//! belongs ([`Plan`]). A link with placement receives directly to that destination. It then
//! compares the received frames with the expected ones. Expected frames are delivered as placed;
//! all others are reassembled and delivered as ordinary frames. A link without placement ignores
//! plans and delivers ordinary frames.
//!
//! Invariant: bytes in a plan's destination are undefined unless their frame was delivered as
//! placed. A destination must therefore hold no valid data.

use crate::RxFrame;

/// Consumer of the frames that a link receives; see [`crate::Link::receive_placed`].
pub trait Receiver {
    /// Returns the frames expected next, if any. Called before each batch.
    fn plan(&mut self) -> Option<Plan<'_>>;

    /// Receives a frame that was not placed.
    fn frame(&mut self, frame: RxFrame<'_>);

    /// Returns `true` if the receiver wants no more frames in this call. A link calls this after
    /// each frame, or after all frames of one system call, and leaves the rest with the kernel.
    fn has_enough(&self) -> bool {
        false
    }

    /// Receives the frames of one call, end to end, of `frame_len` bytes each except perhaps the
    /// last. `marked` applies to each, as in [`RxFrame`]. Returns how many of the first frames it
    /// consumed; the rest are delivered one by one.
    fn run(&mut self, frames: &[u8], frame_len: usize, marked: bool) -> usize {
        let _ = (frames, frame_len, marked);
        0
    }

    /// Receives an expected frame: its header, the bytes of payload that are already contiguous at
    /// their destination, and its congestion mark. Placed frames of a batch arrive in the order of
    /// their plan, from its first frame, before any other frame of the batch.
    fn placed(&mut self, header: &[u8], payload_len: usize, marked: bool);

    /// Reports that the system could not write to the destination of the last plan. The frames of
    /// the call are lost.
    fn faulted(&mut self) {}

    /// Counts the frames of a batch that landed at the wrong place, and the bytes copied to deliver
    /// them.
    fn missed(&mut self, frame_count: usize, copied_len: usize);
}

/// Frames expected next. Each has `header_len` bytes of header and `fragment_len` of payload,
/// except perhaps the last. Their payload belongs in `dst`, end to end.
pub struct Plan<'a> {
    /// Bytes of header in each frame.
    pub header_len: usize,
    /// Bytes of payload in each frame; `dst` may end with a shorter one.
    pub fragment_len: usize,
    /// Destination of the payload. Its bytes may be overwritten in any case.
    pub dst: &'a mut [u8],
    /// Distinguishes expected frames from other frames.
    pub expected: &'a dyn Expected,
}

/// Test for expected frames.
pub trait Expected {
    /// Returns `true` if a frame with this header and payload is frame `index` of the plan.
    fn matches(&self, index: usize, header: &[u8], payload: &[u8]) -> bool;
}

/// Sink of ordinary frames, as a receiver without plans.
pub(crate) struct Unplanned<F>(pub(crate) F);

impl<F: FnMut(RxFrame<'_>)> Receiver for Unplanned<F> {
    #[inline]
    fn plan(&mut self) -> Option<Plan<'_>> {
        None
    }

    #[inline]
    fn frame(&mut self, frame: RxFrame<'_>) {
        (self.0)(frame);
    }

    fn placed(&mut self, _: &[u8], _: usize, _: bool) {}

    fn missed(&mut self, _: usize, _: usize) {}
}
