// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scatters the datagrams of one call according to a plan, and reassembles those that were not
//! expected.
//!
//! The call fills pieces in this order: header and payload for each frame of the plan, then the
//! bounce buffer. The bounce buffer alone holds the longest run, so nothing is ever
//! truncated.
//!
//! Invariant: after [`Slots::settle`], no frame delivered as an ordinary one has bytes in the
//! plan's destination. Copying one to its place therefore cannot corrupt another.

use crate::place::Plan;
use portolan_sys::net::Received;

/// Maximum number of frames that the kernel merges into one run (`UDP_GRO_CNT_MAX` of
/// net/ipv4/udp_offload.c).
pub(super) const SLOTS_MAX: usize = 64;

/// Maximum number of pieces in one call.
pub(super) const PIECES_MAX: usize = 2 * SLOTS_MAX + 1;

/// Longest header that gets a piece of its own. The protocol's header has 24 bytes.
const HEADER_LEN_MAX: usize = 64;

/// Buffers for the headers of planned frames, divided for the current plan.
pub(super) struct Slots {
    headers: Box<[u8]>,
    header_len: usize,
    fragment_len: usize,
    count: usize,
}

/// Result of a call with a plan.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Landed {
    /// Number of leading frames that match the plan.
    pub(super) placed_count: usize,
    /// Payload length of the last placed frame; the others have the plan's length.
    pub(super) last_len: usize,
    /// Bytes of the other frames, at the start of the bounce buffer.
    pub(super) rest_len: usize,
    /// Number of unexpected frames that landed in the plan's pieces.
    pub(super) missed_count: usize,
    /// Bytes copied from those frames to the bounce buffer.
    pub(super) copied_len: usize,
}

impl Slots {
    pub(super) fn new() -> Self {
        Slots {
            headers: vec![0; SLOTS_MAX * HEADER_LEN_MAX].into_boxed_slice(),
            header_len: 0,
            fragment_len: 0,
            count: 0,
        }
    }

    /// Divides the header buffers for `plan`. Returns `false` if the plan cannot be followed.
    pub(super) fn divide(&mut self, plan: &Plan<'_>, bounce_len: usize) -> bool {
        let (header_len, fragment_len) = (plan.header_len, plan.fragment_len);
        let fits = (1..=HEADER_LEN_MAX).contains(&header_len);
        if !fits || fragment_len == 0 || plan.dst.is_empty() {
            return false;
        }
        // Pieces beyond one call's maximum would only cost the kernel time.
        let count_max = bounce_len
            .div_ceil(header_len + fragment_len)
            .min(SLOTS_MAX);
        self.count = plan.dst.len().div_ceil(fragment_len).min(count_max);
        (self.header_len, self.fragment_len) = (header_len, fragment_len);
        true
    }

    /// Returns the pieces for one call.
    pub(super) fn pieces<'a>(
        &'a mut self,
        dst: &'a mut [u8],
        bounce: &'a mut [u8],
    ) -> impl Iterator<Item = &'a mut [u8]> {
        let headers = self.headers.chunks_mut(self.header_len);
        let slots = headers
            .zip(dst.chunks_mut(self.fragment_len))
            .take(self.count);
        let pieces = slots.flat_map(|(header, payload)| [header, payload]);
        pieces.chain(std::iter::once(bounce))
    }

    /// Returns the header of a placed frame.
    pub(super) fn header(&self, index: usize) -> &[u8] {
        &self.headers[index * self.header_len..][..self.header_len]
    }

    /// Returns the payload length of placed frames, except the last of the batch.
    pub(super) fn fragment_len(&self) -> usize {
        self.fragment_len
    }

    /// Separates expected frames from other frames, and reassembles the other frames in `bounce`.
    pub(super) fn settle(&self, plan: &Plan<'_>, got: &Received, bounce: &mut [u8]) -> Landed {
        let segment_len = got.segment_len.max(1);
        let placed_count = self.count_expected(plan, got, segment_len);
        let placed_len = (placed_count * segment_len).min(got.len);
        let rest_len = got.len - placed_len;
        let (header_len, slot_len) = (self.header_len, self.header_len + self.fragment_len);
        let payload_len = plan.dst.len().min(self.count * self.fragment_len);
        let slots_len = self.count * header_len + payload_len;
        let missed_len = got.len.min(slots_len).saturating_sub(placed_len);
        let beyond_len = got.len.saturating_sub(slots_len);
        if missed_len > 0 {
            // Move the contents of the bounce buffer behind the bytes that precede them.
            bounce.copy_within(..beyond_len, missed_len);
            self.gather(plan, placed_len / slot_len, &mut bounce[..missed_len]);
        }
        Landed {
            placed_count,
            last_len: placed_len
                .saturating_sub(placed_count.saturating_sub(1) * segment_len + header_len),
            rest_len,
            missed_count: missed_len.div_ceil(segment_len),
            copied_len: missed_len,
        }
    }

    fn count_expected(&self, plan: &Plan<'_>, got: &Received, segment_len: usize) -> usize {
        let slot_len = self.header_len + self.fragment_len;
        let is_expected = |index: &usize| {
            let datagram_len = segment_len.min(got.len - (index * segment_len).min(got.len));
            let at = (index * self.fragment_len).min(plan.dst.len());
            let dst_left = plan.dst.len() - at;
            let Some(payload_len) = datagram_len.checked_sub(self.header_len) else {
                return false;
            };
            // The frame must start where its pieces start and must not extend past them.
            (*index == 0 || segment_len == slot_len)
                && payload_len <= dst_left.min(self.fragment_len)
                && plan.expected.matches(
                    *index,
                    self.header(*index),
                    &plan.dst[at..at + payload_len],
                )
        };
        (0..self.count).take_while(is_expected).count()
    }

    /// Copies the bytes that landed in the slots starting at `first`, end to end.
    fn gather(&self, plan: &Plan<'_>, first: usize, mut to: &mut [u8]) {
        let payloads = plan.dst.chunks(self.fragment_len).skip(first);
        for (index, payload) in (first..).zip(payloads) {
            for piece in [self.header(index), payload] {
                let len = piece.len().min(to.len());
                let (front, rest) = to.split_at_mut(len);
                front.copy_from_slice(&piece[..len]);
                to = rest;
            }
            if to.is_empty() {
                return;
            }
        }
    }
}
