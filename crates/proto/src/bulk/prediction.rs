// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which bulk frames a link most likely brings next, so that they can be received in their place.
//!
//! A guess may be wrong, and what comes instead is then written where the expected fragments
//! belong before anybody can look at it. So a guess names only bytes of which nothing has arrived:
//! beyond the highest that has, of a transfer whose buffer takes the whole message.

use super::rendezvous::RxTransfer;
use crate::{Core, Instant, LinkId, OpId};
use alloc::collections::VecDeque;
use portolan_wire::{BULK_HEADER_LEN, BulkHeader, FrameHeader, FrameKind};

/// Transfers that were granted and not yet heard of that are remembered per link. A grant lets
/// few go on at a time; more would only make guesses later, and never wrong ones right.
const GRANTED_MAX: usize = 32;

/// A run of fragments that is expected next, and where their bytes belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRun {
    session: u64,
    transfer: u32,
    first_index: u32,
    fragment_len: u16,
    /// Bytes of the message from the first fragment on.
    left: u64,
    /// The path's frames have checksums.
    checked: bool,
    op: u64,
    off: u64,
    len: u64,
}

impl ExpectedRun {
    /// Bytes of header in each frame.
    pub const HEADER_LEN: usize = BULK_HEADER_LEN;

    /// The operation into whose buffer the bytes belong.
    #[must_use]
    pub fn op(&self) -> OpId {
        OpId(self.op)
    }

    /// Where in that buffer.
    #[must_use]
    pub fn off(&self) -> u64 {
        self.off
    }

    /// How many bytes have been granted there and not arrived.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none; never of a run that [`Core::expected_run`] returned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a checksum stands in front of each frame (`P13`), which is not counted as header.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// Bytes of payload in each frame; the last may have fewer.
    #[must_use]
    pub fn fragment_len(&self) -> usize {
        usize::from(self.fragment_len)
    }

    /// Whether a frame with this header, and so many bytes behind it, is the `index`th of the run.
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

/// What one link has brought.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    /// Transfer of the last fragment.
    last: u32,
    /// No fragment has come since the last guess.
    is_fresh: bool,
    /// Transfers that were granted something, oldest first.
    granted: VecDeque<u32>,
}

impl Guess {
    pub(crate) fn on_granted(&mut self, transfer: u32) {
        if self.granted.back() != Some(&transfer) {
            self.granted.truncate(GRANTED_MAX - 1);
            self.granted.push_back(transfer);
        }
    }
}

impl RxTransfer {
    /// First fragment of which nothing, and beyond which nothing, has arrived.
    fn expected_run(&self) -> Option<ExpectedRun> {
        let fragment_len = u64::from(self.fragment_len);
        if self.lossless || fragment_len == 0 || self.posted.len < self.len {
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

impl Core {
    /// The bulk frames that `link` most likely brings next: those of the transfer that followed the
    /// present one last time, else of the present one, else of one that was granted. To be asked
    /// before each batch of frames is received. Nothing of value is where they belong.
    pub fn expected_run(&mut self, link: LinkId) -> Option<ExpectedRun> {
        let guess = &mut self.sh.guesses[link.index()];
        guess.is_fresh = true;
        let last = guess.last;
        let followed_by = self
            .sh
            .rx_transfers
            .get(last)
            .map_or(0, |last| last.followed_by);
        for transfer in [followed_by, last] {
            if let Some(run) = self.run_of(link, transfer) {
                return Some(run);
            }
        }
        while let Some(&transfer) = self.sh.guesses[link.index()].granted.front() {
            if let Some(run) = self.run_of(link, transfer) {
                return Some(run);
            }
            self.sh.guesses[link.index()].granted.pop_front();
        }
        None
    }

    fn run_of(&self, link: LinkId, transfer: u32) -> Option<ExpectedRun> {
        let state = self.sh.rx_transfers.get(transfer)?;
        if state.link != link {
            return None;
        }
        let run = state.expected_run()?;
        let peer = self.peers[state.peer.index()].as_ref()?;
        Some(ExpectedRun {
            session: peer.session.token_mine,
            checked: peer.paths[link.index()].as_ref()?.checked,
            transfer,
            ..run
        })
    }

    /// A fragment has come by `link`.
    #[inline]
    pub(crate) fn note_fragment(&mut self, link: LinkId, transfer: u32) {
        let guess = &mut self.sh.guesses[link.index()];
        let last = core::mem::replace(&mut guess.last, transfer);
        if core::mem::take(&mut guess.is_fresh)
            && let Some(last) = self.sh.rx_transfers.get_mut(last)
        {
            last.followed_by = transfer;
        }
    }

    /// A datagram that [`ExpectedRun::matches`] has recognised, with its header alone:
    /// `payload_len` bytes behind it are already where the run says. No event asks to copy them.
    pub fn handle_placed(&mut self, now: Instant, link: LinkId, head: &[u8], payload_len: usize) {
        match self.on_datagram(now, link, head, head.len() + payload_len) {
            Ok(None) => self.sh.ctx.counters_mut().placement_hits += 1,
            Ok(Some(_)) => self.sh.ctx.drop_for(crate::DropReason::Misplaced),
            Err(reason) => self.sh.ctx.drop_for(reason),
        }
    }

    /// Frames of a batch that were not where they belong, and bytes that were copied to repair it.
    pub fn note_missed(&mut self, frame_count: usize, copied_len: usize) {
        self.sh.ctx.counters_mut().placement_misses += frame_count as u64;
        self.sh.ctx.counters_mut().placement_repaired_bytes += copied_len as u64;
    }
}
