// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speculative placement: receiving bulk payload where it is expected to belong.
//!
//! Who receives may say before each batch which frames he expects next, and where their payload
//! belongs ([`Plan`]). A link that can points its receive call straight there. What comes is then
//! compared with what was expected: frames that are the expected ones are handed over as placed;
//! all others are put together again and handed over as ordinary frames. A link that cannot
//! ignores plans and hands over ordinary frames.
//!
//! The one invariant: bytes in a plan's destination mean nothing, unless their frame was handed
//! over as placed. A destination must therefore hold nothing of value.

use crate::RxFrame;

/// Takes what a link receives; see [`crate::Link::receive_placed`].
pub trait Receiver {
    /// What is expected to come next, if anything. Asked before each batch.
    fn plan(&mut self) -> Option<Plan<'_>>;

    /// A frame that is not at its place.
    fn frame(&mut self, frame: RxFrame<'_>);

    /// Tests whether the receiver wants no more frames in this call. A link calls this after each frame, or
    /// after all frames of one system call, and leaves the rest with the kernel.
    fn has_enough(&self) -> bool {
        false
    }

    /// Frames of `frame_len` bytes each, the last perhaps less, that came with one call, end to end;
    /// `marked` is as in [`RxFrame`], of each. Returns how many of the first ones it has dealt with;
    /// the others are handed over one by one.
    fn run(&mut self, frames: &[u8], frame_len: usize, marked: bool) -> usize {
        let _ = (frames, frame_len, marked);
        0
    }

    /// A frame that was expected: its header, how many bytes of payload lie behind one another at
    /// their place already, and whether it is marked. Those of a batch come in the order of their
    /// plan, from its first, before any other frame of the batch.
    fn placed(&mut self, header: &[u8], payload_len: usize, marked: bool);

    /// Frames of a batch that landed where they do not belong, and how many of their bytes had to
    /// be copied to hand them over.
    fn missed(&mut self, frame_count: usize, copied_len: usize);
}

/// What is expected next: frames with `header_len` bytes of header and `fragment_len` of payload,
/// the last perhaps less, whose payload belongs end to end into `dst`.
pub struct Plan<'a> {
    /// Bytes of header in each frame.
    pub header_len: usize,
    /// Bytes of payload in each frame; `dst` may end with a shorter one.
    pub fragment_len: usize,
    /// Where the payload belongs. Whatever happens, its bytes may be overwritten.
    pub dst: &'a mut [u8],
    /// Tells an expected frame from others.
    pub expected: &'a dyn Expected,
}

/// Tells whether a frame is the one that was expected.
pub trait Expected {
    /// Whether a frame with this header and payload is the `index`th of the plan.
    fn matches(&self, index: usize, header: &[u8], payload: &[u8]) -> bool;
}

/// A sink of ordinary frames, as a receiver without plans.
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
