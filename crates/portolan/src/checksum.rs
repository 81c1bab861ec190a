// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksums of frames, for networks that let broken ones through (`P13`).
//!
//! Stands between the core and the network links, where user memory is at hand. The core marks the
//! frames of a path whose two sides have agreed on checksums; each leaves with the CRC32C of its bytes
//! in front, and what comes is believed when the sum is right. In front, and not behind, since the
//! system then cuts a run of segments as it does without: each has a header that is longer, and
//! payload stays where it is.

mod choice;

pub(crate) use choice::Choice;

use crc_fast::{CrcAlgorithm, Digest};
use portolan_link::{Run, Segments, TxFrame};
use portolan_proto::DropReason;
use portolan_sys::effort;
use portolan_wire::{CHECK_LEN, CheckedFrame, FrameHeader, FrameKind, SealedFrame};

/// Puts sums in front of what leaves by one link.
#[derive(Default)]
pub(crate) struct Sums {
    /// Sums, and the headers behind them, of what left last.
    heads: Vec<u8>,
}

impl Sums {
    /// Hands `frame` to `send`, with sums if the core has marked it. `P13.2`
    ///
    /// # Errors
    /// That of `send`.
    pub(crate) fn transmit<E>(
        &mut self,
        frame: &TxFrame<'_>,
        send: impl FnOnce(&TxFrame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = match frame.head {
            [] => frame.payload.first().map_or(&[][..], |slice| slice),
            head => head,
        };
        if !CheckedFrame::wants_sum(first) {
            return send(frame);
        }
        self.heads.clear();
        if frame.payload.is_empty() {
            let sum = crc_fast::crc32_iscsi(frame.head);
            effort::copies();
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

    /// Sum and header of each datagram.
    fn put_heads(&mut self, frame: &TxFrame<'_>) {
        let run = Run::new(frame);
        let header_len = frame
            .segments
            .map_or(frame.head.len(), |cut| cut.header_len);
        let (full, mut left) = (run.datagram_len(), run.total_len());
        let mut headers = frame.head;
        let (mut sum, mut summed) = (new_digest(), 0);
        for piece in run.pieces() {
            sum.update(piece);
            (summed, left) = (summed + piece.len(), left - piece.len());
            if summed == full || left == 0 {
                let (header, behind) = headers.split_at(header_len);
                self.heads
                    .extend_from_slice(&CheckedFrame::front(value(&sum)));
                self.heads.extend_from_slice(header);
                (headers, sum, summed) = (behind, new_digest(), 0);
            }
        }
    }
}

/// The frame in `datagram`: all of it, or what stands behind a right sum. `P13.3`
///
/// # Errors
/// [`DropReason::BadChecksum`] for a wrong sum, and for a frame that has lost its sum.
#[inline]
pub(crate) fn open(datagram: &[u8]) -> Result<&[u8], DropReason> {
    if !CheckedFrame::has_sum(datagram) {
        return match CheckedFrame::wants_sum(datagram) {
            true => Err(DropReason::BadChecksum),
            false => Ok(datagram),
        };
    }
    let checked = CheckedFrame::parse(datagram).map_err(|_| DropReason::BadChecksum)?;
    if crc_fast::crc32_iscsi(checked.frame) != checked.sum {
        return Err(DropReason::BadChecksum);
    }
    Ok(checked.frame)
}

/// The same of a frame whose payload lies elsewhere: its header.
#[inline]
pub(crate) fn open_apart<'a>(head: &'a [u8], payload: &[u8]) -> Option<&'a [u8]> {
    let (frame, sum) = CheckedFrame::split_front(head)?;
    let mut digest = new_digest();
    digest.update(frame);
    digest.update(payload);
    (value(&digest) == sum).then_some(frame)
}

/// `datagram` without the sum in front of it, if there is one, right or wrong.
#[inline]
pub(crate) fn behind_sum(datagram: &[u8]) -> &[u8] {
    match CheckedFrame::has_sum(datagram) {
        true => datagram.get(CHECK_LEN..).unwrap_or_default(),
        false => datagram,
    }
}

/// Turns a bit of `datagram` as a wire may. Without a check of its own it would be dropped by that of
/// the wire, so it becomes one with a wrong sum, which the receiver drops and counts. `P13.5`
pub(crate) fn spoil(datagram: &mut [u8], bit: usize) {
    let header = FrameHeader::parse_head(datagram, datagram.len());
    let is_handshake =
        header.is_ok_and(|header| matches!(header.kind, FrameKind::Hello | FrameKind::HelloAck));
    let proves_itself = CheckedFrame::has_sum(datagram) || SealedFrame::is_sealed(datagram);
    if proves_itself || is_handshake {
        datagram[bit / 8 % datagram.len()] ^= 1 << (bit % 8);
    } else if let Some((front, behind)) = datagram.split_first_chunk_mut::<CHECK_LEN>() {
        *front = CheckedFrame::front(!crc_fast::crc32_iscsi(behind));
    }
}

/// A sum that is taken piece by piece, in a word: for who keeps no more of it meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct PartSum(u64);

impl PartSum {
    /// That of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> PartSum {
        PartSum(new_digest().get_state()).with(bytes)
    }

    /// One that was kept.
    pub(crate) fn kept(word: u64) -> PartSum {
        PartSum(word)
    }

    pub(crate) fn keep(self) -> u64 {
        self.0
    }

    /// With more bytes behind.
    pub(crate) fn with(self, more: &[u8]) -> PartSum {
        let mut digest = self.digest();
        digest.update(more);
        PartSum(digest.get_state())
    }

    pub(crate) fn value(self) -> u32 {
        value(&self.digest())
    }

    fn digest(self) -> Digest {
        Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, self.0)
    }
}

fn new_digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc32Iscsi)
}

fn value(digest: &Digest) -> u32 {
    // The crate returns sums of any width as 64 bits.
    u32::try_from(digest.finalize()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
