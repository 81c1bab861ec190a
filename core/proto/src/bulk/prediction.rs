// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prediction of the bulk frames that a link receives next, so that they can be received in place.
//!
//! A prediction may be wrong. Other bytes are then written in place of the expected fragments
//! before any code can check them. A prediction therefore covers only bytes that have not arrived,
//! beyond the highest received byte, in a transfer with a buffer for the whole message.

use super::{RxTransfer, Transfers};
use crate::{LinkId, OpId, PeerId};
use alloc::collections::VecDeque;
use portolan_wire::{BULK_HEADER_LEN, BulkHeader, FrameHeader, FrameKind};

/// Maximum number of granted transfers without fragments that are recorded per link. Few are
/// granted at a time. A higher limit would delay predictions without improving them.
const GRANTED_MAX: usize = 32;

/// Run of fragments that is expected next, and its destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRun {
    session: u64,
    transfer: u32,
    first_index: u32,
    fragment_len: u16,
    /// Bytes of the message from the first fragment on.
    left: u64,
    /// Set if the path's frames have checksums.
    checked: bool,
    op: u64,
    off: u64,
    len: u64,
}

impl ExpectedRun {
    /// Sets the session token and checksum flag of the frames on this path.
    pub(crate) fn in_session(self, session: u64, checked: bool) -> ExpectedRun {
        ExpectedRun {
            session,
            checked,
            ..self
        }
    }

    /// Length in bytes of the headers in each frame.
    pub const HEADER_LEN: usize = BULK_HEADER_LEN;

    /// Returns the operation with the buffer that receives the bytes.
    #[must_use]
    pub fn op(&self) -> OpId {
        OpId(self.op)
    }

    /// Returns the offset in that buffer.
    #[must_use]
    pub fn off(&self) -> u64 {
        self.off
    }

    /// Returns the number of bytes there that were granted and have not arrived.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there are none. A run from [`crate::Core::expected_run`] is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if a checksum precedes each frame (`P13`); it does not count as header.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// Returns the payload length in bytes of each frame; the last may have fewer.
    #[must_use]
    pub fn fragment_len(&self) -> usize {
        usize::from(self.fragment_len)
    }

    /// Returns true if a frame with this header and payload length is the `index`th of the run.
    #[must_use]
    pub fn matches(&self, index: usize, head: &[u8], payload_len: usize) -> bool {
        let frame_len = BULK_HEADER_LEN + payload_len;
        let Ok(header) = FrameHeader::parse_head(head, frame_len) else {
            return false;
        };
        let (Ok(bulk), Ok(index)) = (BulkHeader::parse(head), u32::try_from(index)) else {
            return false;
        };
        let fragment_len = u64::from(self.fragment_len);
        let left = self.left.saturating_sub(u64::from(index) * fragment_len);
        header.kind == FrameKind::Bulk
            && header.session == self.session
            && usize::from(header.frame_len) == frame_len
            && bulk.transfer == self.transfer
            && Some(bulk.fragment_index) == self.first_index.checked_add(index)
            // P5.6
            && payload_len as u64 == left.min(fragment_len)
    }
}

/// Recent fragments and grants of one link.
#[derive(Debug, Default)]
pub(super) struct Prediction {
    /// Transfer of the last fragment.
    last: u32,
    /// Set if no fragment has arrived since the last prediction.
    is_fresh: bool,
    /// Transfers that received grants, oldest first.
    granted: VecDeque<u32>,
}

impl Prediction {
    pub(super) fn on_granted(&mut self, transfer: u32) {
        if self.granted.back() != Some(&transfer) {
            self.granted.truncate(GRANTED_MAX - 1);
            self.granted.push_back(transfer);
        }
    }
}

impl RxTransfer {
    /// Returns the run from the first fragment of which, and beyond which, nothing has arrived. A
    /// wrong prediction overwrites its place, so a place where an incomplete part may still count
    /// is excluded.
    fn expected_run(&self) -> Option<ExpectedRun> {
        let fragment_len = u64::from(self.fragment_len);
        let awaits_part = self.takes_parts && !self.has_left_stream;
        if self.lossless || awaits_part || fragment_len == 0 || self.posted.len < self.len {
            return None;
        }
        let first = self.arrived.end().div_ceil(fragment_len);
        let off = first * fragment_len;
        if off >= self.granted {
            return None;
        }
        Some(ExpectedRun {
            session: 0,
            transfer: 0,
            first_index: u32::try_from(first).ok()?,
            fragment_len: self.fragment_len,
            left: self.len - off,
            checked: false,
            op: self.posted.op.0,
            off: self.posted.base + off,
            len: self.granted - off,
        })
    }
}

impl Transfers {
    /// Returns the bulk frames that `link` most likely receives next, and their sender. They are of
    /// the transfer that followed the current one last time, else of the current one, else of a
    /// granted one.
    pub(crate) fn expected_run(&mut self, link: LinkId) -> Option<(PeerId, ExpectedRun)> {
        let prediction = &mut self.predictions[link.index()];
        prediction.is_fresh = true;
        let last = prediction.last;
        let followed_by = self.rx.get(last).map_or(0, |last| last.followed_by);
        for transfer in [followed_by, last] {
            if let Some(run) = self.run_of(link, transfer) {
                return Some(run);
            }
        }
        while let Some(&transfer) = self.predictions[link.index()].granted.front() {
            if let Some(run) = self.run_of(link, transfer) {
                return Some(run);
            }
            self.predictions[link.index()].granted.pop_front();
        }
        None
    }

    fn run_of(&self, link: LinkId, key: u32) -> Option<(PeerId, ExpectedRun)> {
        let transfer = self.rx.get(key).filter(|rx| rx.link == link)?;
        let run = ExpectedRun {
            transfer: key,
            ..transfer.expected_run()?
        };
        Some((transfer.peer, run))
    }

    /// Records a fragment that arrived on `link`.
    #[inline]
    pub(super) fn note_fragment(&mut self, link: LinkId, transfer: u32) {
        let prediction = &mut self.predictions[link.index()];
        let last = core::mem::replace(&mut prediction.last, transfer);
        if core::mem::take(&mut prediction.is_fresh)
            && let Some(last) = self.rx.get_mut(last)
        {
            last.followed_by = transfer;
        }
    }
}
