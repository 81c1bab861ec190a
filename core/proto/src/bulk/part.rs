// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of transfers that use a stream (`P15`): cut from granted bytes, and accounted for when
//! received. Bytes lost when a stream closes are sent as fragments.
//!
//! Invariant: a transfer uses its stream from its first byte until the stream closes, and fragments
//! afterwards. So no byte counts as acknowledged twice.

use super::push::PushRequest;
use super::send::SendQueue;
use super::trial::Carrier;
use super::{FinishedRx, RxTransfer, Transfers};
use crate::base::context::Context;
use crate::mem::scratch::Scratch;
use crate::path::control::ControlQueue;
use crate::path::outgoing::{Outgoing, OutgoingKind};
use crate::{LinkId, OpId, PeerId};
use portolan_wire::{CHECK_LEN, CHUNK_LEN, CheckedFrame, Chunk, Done, Record, Records, Sum};

/// Maximum length of a part in bytes. At 5 GB/s it takes 50 µs to receive, for which short messages
/// wait.
pub(crate) const PART_LEN_MAX: u64 = 256 * 1024;

/// Length of the first part in bytes. While it arrives, the next is summed and sent, so the
/// receiver starts about 10 µs earlier than with a long one. A call costs as much as copying half
/// of it.
const PART_LEN_FIRST: u64 = 32 * 1024;

/// Maximum length in bytes of a part, or a run of frames, while short messages pass. They wait
/// about 5 µs for it at each end, about their own latency.
pub const PART_LEN_MAX_LATENCY_SENSITIVE: usize = 16 * 1024;

/// Maximum length of a part's head in bytes: the front of a stream less its two lengths.
pub(crate) const HEAD_LEN_MAX: usize = 56;

/// Alignment of parts of a transfer, relative to its buffer.
const PAGE_LEN: u64 = 4096;

/// Returns the length of the part at `off` of a transfer with `left` granted bytes. Parts of a
/// single transfer grow at first, because the receiver is otherwise idle. Later parts are equal, so
/// that both ends are equally busy. Parts are short while short messages pass.
fn part_len(off: u64, left: u64, is_alone: bool, is_latency_sensitive: bool) -> u64 {
    if is_latency_sensitive {
        return left.min(PART_LEN_MAX_LATENCY_SENSITIVE as u64);
    }
    let most = PART_LEN_FIRST + 2 * off;
    let part = match is_alone && most < PART_LEN_MAX {
        true => most,
        false => left.div_ceil(left.div_ceil(PART_LEN_MAX).max(1)),
    };
    left.min(part.next_multiple_of(PAGE_LEN))
}

/// Head of a part of a transfer, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartHead {
    /// Place of the part in its transfer.
    Chunk(Chunk),
    /// Announcement of a transfer, and optionally the completion of another one. The first bytes
    /// follow. `P15.13`, `P15.16`
    Push(PushRequest, Option<Done>),
}

impl PartHead {
    /// Parses a head; `payload_len` is the number of bytes that follow it. Returns `None` if it is
    /// not one of a part.
    #[must_use]
    pub fn parse(head: &[u8], payload_len: usize) -> Option<PartHead> {
        let mut records = Records::new(head, 0, head.len() + payload_len);
        let mut next = records.next();
        let mut done = None;
        if let Some(Ok((Record::Done(it), _))) = next {
            done = Some(it);
            next = records.next();
        }
        let (record, payload) = next?.ok()?;
        match record {
            _ if payload.start != head.len() => None,
            Record::Chunk(chunk) if done.is_none() => Some(PartHead::Chunk(chunk)),
            Record::Rts(rts) => Some(PartHead::Push(PushRequest::Message(rts), done)),
            Record::RemoteSource(source) => Some(PartHead::Push(PushRequest::Reply(source), done)),
            _ => None,
        }
    }
}

/// Destination of the next bytes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartPlace {
    /// Bytes to receive at an offset of an operation's buffer.
    At {
        /// Operation that owns the buffer.
        op: OpId,
        /// Offset in the buffer.
        off: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Discarded: the transfer or its buffer has ended, or it continues as fragments.
    Nowhere,
    /// Invalid: the bytes contradict their transfer. `P15.5`
    Wrong,
}

impl Transfers {
    /// Returns the next part for the peer's stream. It has room for a checksum in front if
    /// `checked`, and is short if `is_latency_sensitive`. A pushed part carries the completion that
    /// waits in `control`.
    pub(crate) fn next_stream_part(
        &mut self,
        (queue, control): (&mut SendQueue, &mut ControlQueue),
        scratch: &mut Scratch,
        (checked, is_latency_sensitive): (bool, bool),
    ) -> Option<Outgoing> {
        let streamed = |key| {
            self.tx
                .get(key)
                .is_some_and(|tx| tx.carrier == Some(Carrier::Stream))
        };
        let (place, key) = queue.find_ready(streamed)?;
        let is_alone = self.tx.len() == 1;
        let transfer = self.tx.get_mut(key)?;
        if transfer.pushed.is_some() {
            queue.remove_ready(place);
            transfer.queued = false;
            return transfer.push_part(key, control, scratch, checked);
        }
        let off = transfer.next_off;
        let left = transfer.granted - off;
        let part = part_len(off, left, is_alone, is_latency_sensitive);
        transfer.next_off += part;
        if transfer.next_off >= transfer.granted {
            transfer.queued = false;
            queue.remove_ready(place);
        }
        let chunk = Chunk {
            transfer: transfer.receiver_transfer,
            offset: off,
        };
        let header_len = CHUNK_LEN + if checked { CHECK_LEN } else { 0 };
        let out = scratch.start(header_len);
        if checked {
            // The link, which has the bytes, computes the sum.
            out[..CHECK_LEN].copy_from_slice(&CheckedFrame::front(Sum::default()));
        }
        chunk.emit(&mut out[header_len - CHUNK_LEN..]);
        let len = usize::try_from(part).unwrap_or(usize::MAX);
        Some(Outgoing {
            link: LinkId::STREAM,
            bytes: transfer.put_bytes(scratch, off, len, header_len),
            kind: OutgoingKind::Chunk { transfer: key, off },
        })
    }

    /// Handles a closed stream to `peer`: its data that may not have arrived is sent as fragments.
    /// `P15.7`
    pub(crate) fn on_stream_closed(&mut self, peer: PeerId, queue: &mut SendQueue) {
        for key in self
            .tx
            .keys_where(|tx| tx.peer == peer && tx.carrier == Some(Carrier::Stream))
        {
            let Some(transfer) = self.tx.get_mut(key) else {
                continue;
            };
            transfer.carrier = Some(Carrier::Moved);
            let fragment_len = u64::from(transfer.fragment_len.max(1));
            let known = transfer.confirmed.min(transfer.next_off);
            transfer.next_off = known - known % fragment_len;
            transfer.acked = transfer.next_off;
            if !transfer.queued && transfer.next_off < transfer.granted {
                transfer.queued = true;
                queue.push_ready(key);
            }
        }
    }

    /// Returns the place for bytes `off..off + len` of a part from `from`. `P15.5`
    pub(crate) fn place_part(
        &mut self,
        from: PeerId,
        chunk: &Chunk,
        off: u64,
        len: u64,
    ) -> PartPlace {
        let place = self.part_place(from, chunk, off, len);
        if let (PartPlace::At { .. }, Some(rx)) = (place, self.rx.get_mut(chunk.transfer)) {
            rx.takes_parts = true;
        }
        place
    }

    /// Returns the transfer of a part from `from`, if it is known and no fragment of it has
    /// arrived. `P15.5`
    fn part_owner(&self, from: PeerId, chunk: &Chunk) -> Option<&RxTransfer> {
        let transfer = self.rx.get(chunk.transfer);
        transfer.filter(|rx| rx.peer == from && !rx.lossless && !rx.has_left_stream)
    }

    /// Returns true if a part from `from` is still needed.
    pub(crate) fn needs_part(&self, from: PeerId, chunk: &Chunk) -> bool {
        self.part_owner(from, chunk).is_some()
    }

    fn part_place(&self, from: PeerId, chunk: &Chunk, off: u64, len: u64) -> PartPlace {
        let Some(transfer) = self.part_owner(from, chunk) else {
            return PartPlace::Nowhere;
        };
        let at = chunk.offset.checked_add(off);
        let Some((at, end)) = at.and_then(|at| Some((at, at.checked_add(len)?))) else {
            return PartPlace::Wrong;
        };
        if end > transfer.granted {
            return PartPlace::Wrong;
        }
        match transfer.posted.len.saturating_sub(at).min(len) {
            0 => PartPlace::Nowhere,
            len => PartPlace::At {
                op: transfer.posted.op,
                off: transfer.posted.base + at,
                len,
            },
        }
    }

    /// Handles bytes `off..off + len` of a part, now received; returns the transfer if it has
    /// completed.
    pub(crate) fn on_part_landed(
        &mut self,
        ctx: &mut Context,
        from: PeerId,
        chunk: &Chunk,
        off: u64,
        len: u64,
    ) -> Option<FinishedRx> {
        let is_wrong = self.part_place(from, chunk, off, len) == PartPlace::Wrong;
        if is_wrong || len == 0 || !self.needs_part(from, chunk) {
            return None;
        }
        let transfer = self.rx.get_mut(chunk.transfer)?;
        let (start, end) = (chunk.offset + off, chunk.offset + off + len);
        transfer.streamed = true;
        let new = transfer.arrived.insert(start, end);
        ctx.counters_mut().stream_bytes += new;
        self.on_arrived(chunk.transfer, end, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of the parts of a transfer of `len` bytes that was granted at once.
    fn parts(len: u64) -> alloc::vec::Vec<u64> {
        let mut off = 0;
        core::iter::from_fn(|| {
            let part = part_len(off, len - off, true, false);
            off += part;
            (part > 0).then_some(part)
        })
        .collect()
    }

    #[test]
    fn parts_grow_and_cover_the_transfer() {
        const KIB: u64 = 1024;
        assert_eq!(parts(20 * KIB), [20 * KIB]);
        assert_eq!(parts(256 * KIB), [32, 96, 128].map(|len| len * KIB));
        let long = parts(10 << 20);
        assert_eq!(long[..3], [32, 96, 256].map(|len| len * KIB));
        assert_eq!(part_len(0, 256 * KIB, false, false), 256 * KIB);
        assert_eq!(part_len(0, 256 * KIB, false, true), 16 * KIB);
        assert_eq!(part_len(0, 7, true, true), 7);
        for len in [1, 4097, 131_073, 1 << 20, (64 << 20) + 3] {
            let parts = parts(len);
            assert_eq!(parts.iter().sum::<u64>(), len);
            assert!(parts.iter().all(|part| *part <= PART_LEN_MAX));
            // All but the last begin and end on page boundaries.
            assert!(
                parts[..parts.len() - 1]
                    .iter()
                    .all(|part| part % PAGE_LEN == 0)
            );
        }
    }
}
