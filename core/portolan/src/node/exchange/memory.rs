// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a collective operation, parts of which its messages use.
//!
//! Each part that a message uses keeps the whole alive. The one invariant: parts that are written
//! do not overlap other parts at that time, as `plan` guarantees.
#![allow(
    unsafe_code,
    reason = "several messages use parts of one buffer at the same time"
)]

use super::plan::{Action, Place, Span};
use crate::buffer::{self, Buffer};
use crate::error::Error;
use crate::node::reduce::{ReduceOp, Side};
use std::ptr;
use std::slice;
use std::sync::Arc;

/// Combines values, as bytes, with those of another member.
pub(super) enum Combine {
    /// Operation of the library.
    Known(ReduceOp, fn(ReduceOp, Side, &mut [u8], &[u8])),
    /// Function of the program.
    Own(OwnCombine),
}

/// Function that combines the own values, in place, with those of another member.
type OwnCombine = Box<dyn Fn(Side, &mut [u8], &[u8]) + Send>;

impl Combine {
    /// Combines `other`, the values of members on `side`, with the own ones.
    pub(super) fn perform(&self, side: Side, own: &mut [u8], other: &[u8]) {
        match self {
            Combine::Known(op, function) => function(*op, side, own, other),
            Combine::Own(function) => function(side, own, other),
        }
    }
}

/// One buffer, by address.
struct Whole {
    at: *mut u8,
    len: usize,
    /// Owner of the memory at `at`.
    buffer: Buffer,
}

// SAFETY: the address is that of the buffer, which may move between threads. The memory is
// accessed through parts and by `Memories`, which the engine's owner alone uses.
unsafe impl Send for Whole {}
// SAFETY: as above; `&Whole` gives no access to the memory.
unsafe impl Sync for Whole {}

impl Whole {
    fn read_only(buffer: Buffer) -> Arc<Whole> {
        Arc::new(Whole {
            at: buffer.as_ptr().cast_mut(),
            len: buffer.len(),
            buffer,
        })
    }

    fn writable(mut buffer: Buffer) -> Result<Arc<Whole>, Error> {
        let bytes = buffer.as_mut_slice().ok_or(Error::BufferShared)?;
        let (at, len) = (bytes.as_mut_ptr(), bytes.len());
        Ok(Arc::new(Whole { at, len, buffer }))
    }

    /// Returns the address of a part, which lies inside.
    fn part(&self, span: Span) -> *mut u8 {
        assert!(span.off <= self.len && span.len <= self.len - span.off);
        // SAFETY: the offset lies inside the buffer, as asserted.
        unsafe { self.at.add(span.off) }
    }
}

/// Memories of one operation.
pub(super) struct Memories {
    input: Arc<Whole>,
    output: Arc<Whole>,
    scratch: Arc<Whole>,
}

impl Memories {
    /// Uses the buffers, and allocates the memory for the time of the operation.
    ///
    /// # Errors
    /// [`Error::BufferShared`] if the output cannot be written; [`Error::NoMemory`].
    pub(super) fn new(input: Buffer, output: Buffer, scratch_len: usize) -> Result<Self, Error> {
        let scratch = buffer::zeroed("the memory of a collective operation", scratch_len)?;
        Ok(Memories {
            input: Whole::read_only(input),
            output: Whole::writable(output)?,
            scratch: Whole::writable(Buffer::from(scratch))?,
        })
    }

    fn whole(&self, place: Place) -> &Arc<Whole> {
        match place {
            Place::Input => &self.input,
            Place::Output => &self.output,
            Place::Scratch => &self.scratch,
        }
    }

    /// Returns the bytes of a part that no message writes to.
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        let at = self.whole(span.place).part(span);
        // SAFETY: the part lies inside a live buffer, and only parts of the current round are
        // written, by methods with `&mut self` or by receives, which do not overlap it.
        unsafe { slice::from_raw_parts(at, span.len) }
    }

    /// Returns the bytes of a part for writing.
    pub(super) fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        assert_ne!(span.place, Place::Input, "the input is not written");
        let at = self.whole(span.place).part(span);
        // SAFETY: as in `bytes`; output and scratch memory are writable, and no message of the
        // current round uses the part.
        unsafe { slice::from_raw_parts_mut(at, span.len) }
    }

    /// Returns a part as the buffer of a send.
    pub(super) fn source(&self, span: Span) -> Buffer {
        let whole = Arc::clone(self.whole(span.place));
        let at = whole.part(span);
        // SAFETY: the closure keeps the memory alive. It is not changed before the round ends,
        // which waits for the send.
        unsafe { Buffer::from_raw_released(at, span.len, move || drop(whole)) }
    }

    /// Returns a part as the buffer of a receive.
    pub(super) fn place(&self, span: Span) -> Buffer {
        assert_ne!(span.place, Place::Input, "the input is not written");
        let whole = Arc::clone(self.whole(span.place));
        let at = whole.part(span);
        // SAFETY: as in `source`; the part is not used otherwise before the round ends.
        unsafe { Buffer::from_raw_mut_released(at, span.len, move || drop(whole)) }
    }

    /// Performs the work after a round.
    pub(super) fn act(&mut self, action: Action, combine: Option<&Combine>) {
        let (Action::Copy { from, to } | Action::Combine { from, to, .. }) = action;
        let overlaps = from.off < to.off + to.len && to.off < from.off + from.len;
        assert!(from.len == to.len && (from.place != to.place || !overlaps));
        assert_ne!(to.place, Place::Input, "the input is not written");
        let source = self.whole(from.place).part(from);
        if let (Action::Combine { side, .. }, Some(combine)) = (action, combine) {
            // SAFETY: as in `bytes`; plans combine scratch memory, which no other place contains,
            // and the parts do not overlap, as asserted.
            let other = unsafe { slice::from_raw_parts(source, from.len) };
            return combine.perform(side, self.bytes_mut(to), other);
        }
        let target = self.whole(to.place).part(to);
        // SAFETY: both parts lie inside live buffers, and no message of the current round uses
        // them. They may overlap: programs in other languages gather in place.
        unsafe { ptr::copy(source, target, from.len) };
    }

    /// Returns the output after all messages have ended.
    pub(super) fn into_output(self) -> Option<Buffer> {
        Arc::into_inner(self.output).map(|whole| whole.buffer)
    }
}
