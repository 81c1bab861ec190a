// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksums of frames, for networks that deliver corrupted frames (`P13`).
//!
//! This module is between the core and the network links, where user memory is available. The core
//! marks the frames of a path if its two sides have agreed on checksums. Each is sent with the XXH3
//! of its bytes in front, and a received frame is accepted if its checksum is right. The checksum
//! is in front so that the system still segments a run as before. Each header is longer, and the
//! payload stays where it is.

mod choice;

pub(crate) use choice::Choice;

use portolan_link::{Segments, TxFrame};
use portolan_proto::DropReason;
use portolan_sys::usage;
use portolan_wire::{CHECK_LEN, CheckedFrame, FrameHeader, FrameKind, SealedFrame, Sum};
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Adds checksums to the frames that are sent on one link.
#[derive(Default)]
pub(crate) struct Sums {
    /// Checksums and headers of the last frame or run that was sent.
    heads: Vec<u8>,
}

impl Sums {
    /// Passes `frame` to `send`, with checksums if the core has marked it. `P13.2`
    pub(crate) fn transmit<E>(
        &mut self,
        frame: &TxFrame<'_>,
        send: impl FnOnce(&TxFrame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // A run to which the core has added checksums has no head.
        if !CheckedFrame::needs_sum(frame.head) {
            return send(frame);
        }
        self.heads.clear();
        if frame.payload.is_empty() {
            let sum = sum_of_frame(frame.head);
            usage::count_copy();
            self.heads.extend_from_slice(&CheckedFrame::front(sum));
            self.heads.extend_from_slice(frame.head);
        } else {
            self.put_heads(frame);
        }
        send(&TxFrame {
            head: &self.heads,
            payload: frame.payload,
            segments: frame.segments.map(|cut| Segments {
                header_len: CHECK_LEN + cut.header_len,
                ..cut
            }),
        })
    }

    /// Writes the checksum and header of each datagram to `heads`.
    fn put_heads(&mut self, frame: &TxFrame<'_>) {
        let (header_len, payload_len) = match frame.segments {
            Some(cut) => (cut.header_len, cut.payload_len),
            None => (frame.head.len(), usize::MAX),
        };
        let (mut slices, mut open) = (frame.payload.iter(), &[][..]);
        for header in frame.head.chunks_exact(header_len) {
            let (mut sum, mut room) = (Summing::of(header), payload_len);
            loop {
                let (piece, behind) = open.split_at(room.min(open.len()));
                (sum, room, open) = (sum.with(piece), room - piece.len(), behind);
                match slices.as_slice() {
                    [next, ..] if room > 0 => {
                        open = next;
                        slices.next();
                    }
                    _ => break,
                }
            }
            let front = CheckedFrame::front(sum.value());
            self.heads.extend_from_slice(&front);
            self.heads.extend_from_slice(header);
        }
    }
}

/// Returns the frame in `datagram`: all of it, or the bytes after a right checksum. `P13.3`
///
/// # Errors
/// [`DropReason::BadChecksum`] for a wrong checksum, and for a frame that has lost its checksum.
#[inline]
pub(crate) fn open(datagram: &[u8]) -> Result<&[u8], DropReason> {
    if !CheckedFrame::has_sum(datagram) {
        return match CheckedFrame::needs_sum(datagram) {
            true => Err(DropReason::BadChecksum),
            false => Ok(datagram),
        };
    }
    let checked = CheckedFrame::parse(datagram).map_err(|_| DropReason::BadChecksum)?;
    match is_right(checked.sum, checked.frame, &[]) {
        true => Ok(checked.frame),
        false => Err(DropReason::BadChecksum),
    }
}

/// Checks a frame with its payload in separate memory, as [`open`] does. Returns its header.
#[inline]
pub(crate) fn open_apart<'a>(head: &'a [u8], payload: &[u8]) -> Option<&'a [u8]> {
    let (frame, sum) = CheckedFrame::split_front(head)?;
    is_right(sum, frame, payload).then_some(frame)
}

/// Tests whether `sum` is the checksum of a frame that consists of `head` and `body`.
#[inline]
fn is_right(sum: Sum, head: &[u8], body: &[u8]) -> bool {
    // Covers nearly every frame that was sent in one piece, in one call and without state for
    // further pieces.
    if sum.head_len == 0 && body.is_empty() {
        return sum_of_frame(head) == sum;
    }
    let Some((first, rest)) = head.split_at_checked(sum.head_len.into()) else {
        return false;
    };
    Summing::of(first).with(rest).with(body).value() == sum
}

/// Returns `datagram` without the checksum in front of it, if there is one, right or wrong.
#[inline]
pub(crate) fn behind_sum(datagram: &[u8]) -> &[u8] {
    match CheckedFrame::has_sum(datagram) {
        true => datagram.get(CHECK_LEN..).unwrap_or_default(),
        false => datagram,
    }
}

/// Flips a bit of `datagram` as a wire may. Without a checksum of its own, the wire's checksum
/// would drop it. So it gets a wrong checksum, and the receiver drops and counts it. `P13.5`
pub(crate) fn corrupt(datagram: &mut [u8], bit: usize) {
    let header = FrameHeader::parse_head(datagram, datagram.len());
    let is_handshake =
        header.is_ok_and(|header| matches!(header.kind, FrameKind::Hello | FrameKind::HelloAck));
    let proves_itself = CheckedFrame::has_sum(datagram) || SealedFrame::is_sealed(datagram);
    if proves_itself || is_handshake {
        datagram[bit / 8 % datagram.len()] ^= 1 << (bit % 8);
    } else if let Some((front, behind)) = datagram.split_first_chunk_mut::<CHECK_LEN>() {
        let mut sum = Summing::of(&[]).with(behind).value();
        sum.value ^= Sum::MASK;
        *front = CheckedFrame::front(sum);
    }
}

/// Checksum under construction. `P13.2`
struct Summing<'a> {
    head_len: u8,
    seed: u64,
    /// Body so far while it is one piece, which is summed faster.
    piece: &'a [u8],
    /// State once the body has several pieces. Boxed, because it is half a kilobyte that each step
    /// would move.
    pieces: Option<Box<twox_hash::xxhash3_64::Hasher>>,
}

impl<'a> Summing<'a> {
    /// Starts the checksum of a frame that begins with `head`, which is hashed separately from the
    /// body. For a frame in one piece, `head` is empty.
    ///
    /// # Panics
    /// If `head` is longer than 255 bytes, which no header is.
    #[inline]
    fn of(head: &[u8]) -> Self {
        Summing {
            head_len: u8::try_from(head.len()).expect("headers are short"),
            seed: seed_of(head),
            piece: &[],
            pieces: None,
        }
    }

    #[inline]
    fn with(mut self, piece: &'a [u8]) -> Self {
        match &mut self.pieces {
            _ if piece.is_empty() => {}
            Some(pieces) => pieces.write(piece),
            None if self.piece.is_empty() => self.piece = piece,
            None => {
                let mut pieces = twox_hash::xxhash3_64::Hasher::with_seed(self.seed);
                pieces.write(self.piece);
                pieces.write(piece);
                self.pieces = Some(Box::new(pieces));
            }
        }
        self
    }

    #[inline]
    fn value(&self) -> Sum {
        let value = match &self.pieces {
            Some(pieces) => pieces.finish(),
            None => XxHash3_64::oneshot_with_seed(self.seed, self.piece),
        };
        Sum {
            head_len: self.head_len,
            value: value & Sum::MASK,
        }
    }
}

#[inline]
fn seed_of(head: &[u8]) -> u64 {
    match head {
        [] => 0,
        head => XxHash3_64::oneshot(head),
    }
}

/// Returns the checksum of a frame in one piece.
#[inline]
pub(crate) fn sum_of_frame(frame: &[u8]) -> Sum {
    Sum {
        head_len: 0,
        value: XxHash3_64::oneshot(frame) & Sum::MASK,
    }
}

/// Returns the checksum of a part of a transfer: of its head, followed by its bytes.
///
/// # Panics
/// If `head` is longer than 255 bytes.
pub(crate) fn sum_of_part(head: &[u8], [bytes, more]: [&[u8]; 2]) -> Sum {
    let sum = Summing::of(head).with(bytes);
    let sum = if more.is_empty() { sum } else { sum.with(more) };
    sum.value()
}

/// Returns a hasher for the checksum of a part with this head that is received in pieces.
pub(crate) fn part_hasher(head: &[u8]) -> Box<dyn Hasher + Send> {
    Box::new(twox_hash::xxhash3_64::Hasher::with_seed(seed_of(head)))
}

/// Tests whether `sum` is the checksum of a part with `head`. All bytes of the part were written to
/// `hash`.
pub(crate) fn is_right_of_part(sum: Sum, head: &[u8], hash: &dyn Hasher) -> bool {
    usize::from(sum.head_len) == head.len() && sum.value == hash.finish() & Sum::MASK
}

#[cfg(test)]
mod tests;
