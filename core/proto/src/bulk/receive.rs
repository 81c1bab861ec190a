// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving side of bulk data: fragments and chunks are placed in the posted buffer.

use super::{FinishedRx, Origin, RxTransfer, Transfers};
use crate::base::context::Context;
use crate::base::coverage::Coverage;
use crate::base::request::Request;
use crate::matching::port::Posted;
use crate::{Dest, DropReason, Event, LinkId, OpError, OpId, PeerId};
use alloc::vec::Vec;
use core::ops::Range;
use portolan_wire::{BULK_HEADER_LEN, BulkHeader, Chunk};

impl Transfers {
    /// Starts a transfer into a posted buffer; the caller has checked that there is room for it.
    /// `P5.2`
    pub(crate) fn start(
        &mut self,
        ctx: &mut Context,
        request: &Request,
        posted: Posted,
        origin: Origin,
    ) -> u32 {
        let announced = &request.announced;
        let params = ctx.link(announced.link);
        let transfer = self.rx.insert(RxTransfer {
            peer: request.peer,
            link: announced.link,
            lossless: ctx.is_lossless(announced.link),
            sender_transfer: announced.sender_transfer,
            posted,
            len: request.len,
            received: 0,
            frontier: 0,
            arrived: Coverage::default(),
            granted: 0,
            served_at: self.scheduler.stamp(),
            followed_by: 0,
            fragment_len: announced.fragment_len,
            streamed: false,
            takes_parts: false,
            late_done: false,
            has_left_stream: false,
            origin,
            to: request.to,
            lane: request.lane,
        });
        let Ok(key) = transfer else { return 0 };
        if self.accept_push(ctx, key, request) {
            return key;
        }
        // P8.5
        let pull = params.is_some_and(|params| params.pull) && announced.remote_addr != 0;
        if pull {
            ctx.emit(Event::Pull {
                transfer: key,
                peer: request.peer,
                remote_addr: announced.remote_addr,
                op: posted.op,
                off: posted.base,
                len: request.len.min(posted.len),
            });
        } else {
            self.scheduler.add(key);
        }
        key
    }

    /// Completes a transfer that the engine has pulled. If `ok` is false, it could not, and the
    /// bytes are requested as frames.
    pub(crate) fn on_pulled(&mut self, key: u32, ok: bool) -> Option<FinishedRx> {
        let transfer = self.rx.get_mut(key)?;
        if ok {
            transfer.received = transfer.len;
            return self.end_rx(key);
        }
        self.scheduler.add(key);
        None
    }

    /// Handles a bulk frame with a new packet number; returns the transfer if it has completed.
    /// `P5.6` If the payload of its `frame_len` bytes is already in place, `frame` is only the
    /// header.
    pub(crate) fn on_fragment(
        &mut self,
        ctx: &mut Context,
        from: PeerId,
        link: LinkId,
        frame: &[u8],
        frame_len: usize,
    ) -> Result<Option<FinishedRx>, DropReason> {
        let bulk = BulkHeader::parse(frame)?;
        let transfer = self.rx.get(bulk.transfer);
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
        self.place(ctx, bulk.transfer, off, BULK_HEADER_LEN..frame_len, copied)
    }

    /// Handles a chunk on a lossless link, or a part of a fragment for a narrower path; returns the
    /// transfer if it has completed.
    pub(crate) fn on_chunk(
        &mut self,
        ctx: &mut Context,
        from: PeerId,
        chunk: &Chunk,
        payload: Range<usize>,
    ) -> Result<Option<FinishedRx>, DropReason> {
        let transfer = self.rx.get(chunk.transfer);
        let Some(transfer) = transfer.filter(|transfer| transfer.peer == from) else {
            return Err(DropReason::StaleTransfer);
        };
        let end = chunk.offset.checked_add(payload.len() as u64);
        // P8.3: chunks of a lossless link arrive in order; any other offset is a gap or an overlap.
        let astray = transfer.lossless && chunk.offset != transfer.received;
        if astray || end.is_none_or(|end| end > transfer.granted) {
            return Err(DropReason::BadFragment);
        }
        self.place(ctx, chunk.transfer, chunk.offset, payload, true)
    }

    /// Accounts for a part of a transfer, and emits the event that copies it from the frame if it
    /// must be `copied`.
    fn place(
        &mut self,
        ctx: &mut Context,
        key: u32,
        off: u64,
        src: Range<usize>,
        copied: bool,
    ) -> Result<Option<FinishedRx>, DropReason> {
        let mut part = src.len() as u64;
        let Some(transfer) = self.rx.get_mut(key) else {
            return Err(DropReason::StaleTransfer);
        };
        let end = off + part;
        // P3.12
        if !transfer.lossless {
            transfer.has_left_stream = true;
            part = transfer.arrived.insert(off, end);
            if part == 0 {
                return Err(DropReason::Duplicate);
            }
        }
        if copied && let Some(event) = transfer.posted.place(off, src) {
            ctx.emit(event);
        }
        Ok(self.on_arrived(key, end, part))
    }

    /// Accounts for `part` new bytes of a transfer, the last of which is before `end`.
    pub(super) fn on_arrived(&mut self, key: u32, end: u64, part: u64) -> Option<FinishedRx> {
        let transfer = self.rx.get_mut(key)?;
        transfer.received += part;
        // P5.10
        let passed = end.saturating_sub(transfer.frontier);
        transfer.frontier += passed;
        let (link, lossless) = (transfer.link, transfer.lossless);
        let done = transfer.received >= transfer.len;
        if !lossless {
            self.scheduler.on_passed(link, passed);
        }
        if done { self.end_rx(key) } else { None }
    }

    /// Returns the run of frames from `from` that begins with this fragment, if they are the next
    /// of its transfer and the buffer has room for them. `P5.4`, `P5.6`
    #[inline]
    pub(crate) fn next_run(
        &mut self,
        from: PeerId,
        bulk: &BulkHeader,
        part_len: usize,
    ) -> Option<BulkRun> {
        let transfer = self.rx.get_mut(bulk.transfer)?;
        let part = part_len as u64;
        let off = u64::from(bulk.fragment_index) * part;
        // Range of the message of which nothing, and beyond which nothing, has arrived, and that
        // fits the buffer.
        let end_max = transfer.granted.min(transfer.posted.len);
        let is_next = transfer.peer == from
            && !transfer.lossless
            && u64::from(transfer.fragment_len) == part
            && off >= transfer.arrived.end();
        if !is_next || off >= end_max {
            return None;
        }
        Some(BulkRun {
            transfer: bulk.transfer,
            off,
            part,
            count_max: u32::try_from((end_max - off) / part).unwrap_or(u32::MAX),
            dest: Dest::Op(transfer.posted.op, transfer.posted.base + off),
        })
    }

    /// Handles `count` fragments of a run on `link`; returns the transfer if it has completed.
    #[inline]
    pub(crate) fn on_run(&mut self, link: LinkId, run: &BulkRun, count: u32) -> Option<FinishedRx> {
        let end = run.off + u64::from(count) * run.part;
        let transfer = self.rx.get_mut(run.transfer)?;
        transfer.has_left_stream = true;
        let new = transfer.arrived.insert(run.off, end);
        self.note_fragment(link, run.transfer);
        self.on_arrived(run.transfer, end, new)
    }

    /// Ends a transfer to this process, complete or not.
    pub(crate) fn end_rx(&mut self, key: u32) -> Option<FinishedRx> {
        let transfer = self.rx.remove(key)?;
        self.scheduler.remove(key, &transfer);
        Some(FinishedRx {
            key,
            peer: transfer.peer,
            lane: transfer.lane,
            to: transfer.to,
            op: transfer.posted.op,
            len: transfer.len,
            origin: transfer.origin,
            error: OpError::truncated(transfer.len, transfer.posted.len),
            // P8.4, P15.6
            pending_done: (transfer.lossless || transfer.streamed)
                .then_some(transfer.sender_transfer),
            late_done: transfer.late_done,
        })
    }

    /// Returns the granted, passed and received bytes of the first transfer.
    #[cfg(test)]
    pub(crate) fn first_rx(&self) -> (u64, u64, u64) {
        let transfer = self.rx.iter().next().unwrap();
        (transfer.granted, transfer.frontier, transfer.received)
    }

    /// Returns the number of the first transfer.
    #[cfg(test)]
    pub(crate) fn first_rx_key(&self) -> u32 {
        self.rx.keys_where(|_| true)[0]
    }

    /// Ends the transfers into the memory of `op`, and returns them.
    pub(crate) fn end_into(&mut self, op: OpId) -> Vec<FinishedRx> {
        let keys = self.rx.keys_where(|rx| rx.posted.op == op);
        keys.into_iter()
            .filter_map(|key| self.end_rx(key))
            .collect()
    }

    /// Ends the transfers into bytes `range` of the memory of `op`. Returns them, each with its
    /// sender's number.
    pub(crate) fn end_within(&mut self, op: OpId, range: &Range<u64>) -> Vec<(FinishedRx, u32)> {
        let touches = |rx: &RxTransfer| {
            let (begin, end) = (rx.posted.base, rx.posted.base.saturating_add(rx.len));
            rx.posted.op == op && begin < range.end && range.start < end
        };
        let keys = self.rx.keys_where(touches);
        let ended = keys.into_iter().filter_map(|key| {
            let theirs = self.rx.get(key)?.sender_transfer;
            Some((self.end_rx(key)?, theirs))
        });
        ended.collect()
    }

    /// Ends the transfer that has this number at its sender `peer`.
    pub(crate) fn end_from(&mut self, peer: PeerId, sender_transfer: u32) -> Option<FinishedRx> {
        let is_it = |rx: &RxTransfer| rx.peer == peer && rx.sender_transfer == sender_transfer;
        let key = self.rx.keys_where(is_it).into_iter().next()?;
        self.end_rx(key)
    }
}

/// Fragments that can be taken at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkRun {
    transfer: u32,
    off: u64,
    part: u64,
    count_max: u32,
    dest: Dest,
}

impl BulkRun {
    /// Returns the maximum number of fragments.
    #[inline]
    pub(crate) fn count_max(&self) -> u32 {
        self.count_max
    }

    /// Returns the destination of the first fragment.
    #[inline]
    pub(crate) fn dest(&self) -> Dest {
        self.dest
    }
}
