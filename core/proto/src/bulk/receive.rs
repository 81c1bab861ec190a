// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving side of bulk data: fragments and chunks go to their place in the posted buffer.

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
    /// Begins a transfer into a posted buffer; the caller has checked that there is room for it.
    /// `P5.2`
    pub(crate) fn start(
        &mut self,
        ctx: &mut Context,
        request: &Request,
        posted: Posted,
        origin: Origin,
    ) -> u32 {
        let asked = &request.asked;
        let params = ctx.link(asked.link);
        let transfer = self.rx.insert(RxTransfer {
            peer: request.peer,
            link: asked.link,
            lossless: ctx.is_lossless(asked.link),
            sender_transfer: asked.sender_transfer,
            posted,
            len: request.len,
            received: 0,
            frontier: 0,
            arrived: Coverage::default(),
            granted: 0,
            served_at: self.scheduler.stamp(),
            followed_by: 0,
            fragment_len: asked.fragment_len,
            streamed: false,
            takes_parts: false,
            has_left_stream: false,
            origin,
            to: request.to,
            lane: request.lane,
        });
        let Ok(key) = transfer else { return 0 };
        // P8.5
        let pull = params.is_some_and(|params| params.pull) && asked.remote_addr != 0;
        if pull {
            ctx.emit(Event::Pull {
                transfer: key,
                peer: request.peer,
                remote_addr: asked.remote_addr,
                op: posted.op,
                off: posted.base,
                len: request.len.min(posted.len),
            });
        } else {
            self.scheduler.add(key);
        }
        key
    }

    /// The engine has pulled a message, which ends the transfer, or could not (`ok` false): then its
    /// bytes are asked for as frames.
    pub(crate) fn on_pulled(&mut self, key: u32, ok: bool) -> Option<FinishedRx> {
        let transfer = self.rx.get_mut(key)?;
        if ok {
            transfer.received = transfer.len;
            return self.end_rx(key);
        }
        self.scheduler.add(key);
        None
    }

    /// A bulk frame whose packet number is new; returns the transfer if it has ended. `P5.6`
    /// Of a frame of `frame_len` bytes that is at its place already, `frame` is the header alone.
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

    /// A chunk: on a lossless link, or a part of a fragment for a narrower path; returns the transfer
    /// if it has ended.
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
        // P8.3, chunks of a lossless link come in order: anything else is a hole or an overlap.
        let astray = transfer.lossless && chunk.offset != transfer.received;
        if astray || end.is_none_or(|end| end > transfer.granted) {
            return Err(DropReason::BadFragment);
        }
        self.place(ctx, chunk.transfer, chunk.offset, payload, true)
    }

    /// Accounts for a part of a transfer, which is to be `copied` from the frame unless it is at its
    /// place already.
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

    /// Accounts for `part` new bytes of a transfer, the last of which lies before `end`.
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

    /// Whether frames of a batch from `from` that begin with this fragment can be taken as a run:
    /// they are the next of its transfer, and the buffer has room for them. `P5.4`, `P5.6`
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
        // A part of the message that nothing has been heard of yet, nor of anything behind it, and
        // that the buffer has room for.
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

    /// `count` fragments of a run have come by `link`; returns the transfer if it has ended.
    #[inline]
    pub(crate) fn on_run(&mut self, link: LinkId, run: &BulkRun, count: u32) -> Option<FinishedRx> {
        let end = run.off + u64::from(count) * run.part;
        let transfer = self.rx.get_mut(run.transfer)?;
        transfer.has_left_stream = true;
        let new = transfer.arrived.insert(run.off, end);
        self.note_fragment(link, run.transfer);
        self.on_arrived(run.transfer, end, new)
    }

    /// Ends a transfer to this process, whatever of it has arrived.
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
            owed_done: (transfer.lossless || transfer.streamed).then_some(transfer.sender_transfer),
        })
    }

    /// Of the first transfer: bytes that are granted, passed and received.
    #[cfg(test)]
    pub(crate) fn first_rx(&self) -> (u64, u64, u64) {
        let transfer = self.rx.iter().next().unwrap();
        (transfer.granted, transfer.frontier, transfer.received)
    }

    /// The number of the first transfer.
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
    /// How many there can be.
    #[inline]
    pub(crate) fn count_max(&self) -> u32 {
        self.count_max
    }

    /// Where the first belongs.
    #[inline]
    pub(crate) fn dest(&self) -> Dest {
        self.dest
    }
}
