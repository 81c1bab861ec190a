// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving side of bulk data: fragments and chunks go to their place in the posted buffer.

use crate::lane::place_clipped;
use crate::{Core, DropReason, LinkId, PeerId};
use core::ops::Range;
use portolan_wire::{BULK_HEADER_LEN, BulkHeader, Chunk};

impl Core {
    /// A bulk frame whose packet number is new. `P5.6`
    /// Of a frame of `frame_len` bytes that is at its place already, `frame` is the header alone.
    pub(crate) fn on_bulk(
        &mut self,
        from: PeerId,
        link: LinkId,
        frame: &[u8],
        frame_len: usize,
    ) -> Result<(), DropReason> {
        let bulk = BulkHeader::parse(frame)?;
        let transfer = self.sh.rx_transfers.get(bulk.transfer);
        let transfer = transfer.filter(|transfer| transfer.peer == from && !transfer.lossless);
        let Some(transfer) = transfer else {
            return Err(DropReason::StaleTransfer);
        };
        let fragment_len = u64::from(transfer.fragment_len);
        let off = u64::from(bulk.fragment_index) * fragment_len;
        let part = (frame_len - BULK_HEADER_LEN) as u64;
        if off >= transfer.granted || part != fragment_len.min(transfer.len - off) {
            return Err(DropReason::BadFragment);
        }
        self.note_fragment(link, bulk.transfer);
        let copied = frame.len() == frame_len;
        self.place(bulk.transfer, off, BULK_HEADER_LEN..frame_len, copied)
    }

    /// A chunk: on a lossless link, or a fragment that was cut again for a narrower path.
    pub(crate) fn on_chunk(
        &mut self,
        from: PeerId,
        chunk: &Chunk,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let transfer = self.sh.rx_transfers.get(chunk.transfer);
        let Some(transfer) = transfer.filter(|transfer| transfer.peer == from) else {
            return Err(DropReason::StaleTransfer);
        };
        let end = chunk.offset.checked_add(payload.len() as u64);
        // P8.3, chunks of a lossless link come in order: anything else is a hole or an overlap.
        let astray = transfer.lossless && chunk.offset != transfer.received;
        if astray || end.is_none_or(|end| end > transfer.granted) {
            return Err(DropReason::BadFragment);
        }
        self.place(chunk.transfer, chunk.offset, payload, true)
    }

    /// Accounts for a part of a transfer, which is to be `copied` from the frame unless it is at its
    /// place already.
    fn place(
        &mut self,
        key: u32,
        off: u64,
        src: Range<usize>,
        copied: bool,
    ) -> Result<(), DropReason> {
        let mut part = src.len() as u64;
        let Some(transfer) = self.sh.rx_transfers.get_mut(key) else {
            return Err(DropReason::StaleTransfer);
        };
        let end = off + part;
        // P3.12
        if !transfer.lossless {
            part = transfer.arrived.insert(off, end);
            if part == 0 {
                return Err(DropReason::Duplicate);
            }
        }
        if copied {
            let posted = transfer.posted;
            place_clipped(&mut self.sh, &posted, off, src);
        }
        self.on_arrived(key, end, part);
        Ok(())
    }

    /// Accounts for `part` new bytes of a transfer, the last of which lies before `end`.
    pub(crate) fn on_arrived(&mut self, key: u32, end: u64, part: u64) {
        let Some(transfer) = self.sh.rx_transfers.get_mut(key) else {
            return;
        };
        transfer.received += part;
        // P5.10
        let passed = end.saturating_sub(transfer.frontier);
        transfer.frontier += passed;
        let (link, lossless) = (transfer.link, transfer.lossless);
        let done = transfer.received >= transfer.len;
        if !lossless {
            self.sh.scheduler.on_passed(link, passed);
        }
        if done {
            self.finish_rx(key);
        }
    }
}
