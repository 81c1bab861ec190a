// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of fragments that were received in one call: checked header by header and processed as a
//! unit. Anything unusual is left to [`Core::handle_frame`], frame by frame.

mod eager;

use crate::session::token_index;
use crate::{Core, Dest, Instant, LinkId};
use portolan_wire::{BULK_HEADER_LEN, BulkHeader, FrameHeader, FrameKind};

/// Fragments with a payload that must be copied: consecutive pieces of equal length, the last
/// possibly shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenRun {
    /// Destination of the first piece.
    pub dest: Dest,
    /// Length in bytes of each frame before its payload.
    pub header_len: usize,
    /// Length in bytes of each piece but the last.
    pub part_len: usize,
    /// Length in bytes of all pieces together.
    pub len: usize,
    /// Number of frames that were taken; at least one.
    pub count: usize,
}

impl TakenRun {
    /// Returns the pieces, given the frames that were passed to [`Core::handle_run`].
    pub fn pieces<'a>(
        &self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let (header_len, part_len, len) = (self.header_len, self.part_len, self.len);
        let starts = (0..len).step_by(part_len.max(1));
        frames.zip(starts).map(move |(frame, start)| {
            let part = part_len.min(len - start);
            &frame[header_len..header_len + part]
        })
    }
}

impl Core {
    /// Takes a prefix of `datagrams`, which have one length and arrived on `link` in order: the
    /// next fragments of one transfer, or of one message. The payload of a [`TakenRun`] must be
    /// copied before the following events are handled. The next frame after it is for
    /// [`Core::handle_frame`], and the rest for another run.
    pub fn handle_run<'a>(
        &mut self,
        now: Instant,
        link: LinkId,
        mut datagrams: impl Iterator<Item = &'a [u8]>,
    ) -> Option<TakenRun> {
        let first = datagrams.next()?;
        match parse(first, first.len()) {
            Some(head) => self.handle_bulk_run(now, link, (head, first.len()), datagrams),
            None => self.handle_eager_run(now, link, first, datagrams),
        }
    }

    fn handle_bulk_run<'a>(
        &mut self,
        now: Instant,
        link: LinkId,
        ((first, bulk), frame_len): ((FrameHeader, BulkHeader), usize),
        others: impl Iterator<Item = &'a [u8]>,
    ) -> Option<TakenRun> {
        let peer = match self.peers.get_mut(token_index(first.session)) {
            Some(Some(peer)) if peer.session().token_mine() == first.session => &mut **peer,
            _ => return None,
        };
        let from = peer.id();
        if !peer.is_open() {
            return None;
        }
        let ack = self.sh.ctx.bulk_ack_times();
        let path = peer.paths_mut().get_mut(link)?;
        let part_len = frame_len - BULK_HEADER_LEN;
        let run = self.sh.transfers.next_run(from, &bulk, part_len)?;
        let most = run.count_max().min(path.run_max(first.packet_num));
        if most == 0 || !path.takes(first.checked) {
            return None;
        }
        let others = others.take(most as usize - 1);
        let count = 1 + count_next(first, bulk, frame_len, others);
        let is_prompt = path.on_numbered_run(now, (first.packet_num, count, first.attempt), ack);
        peer.on_activity(now);
        self.schedule_ack(from, is_prompt);
        self.sh.ctx.counters_mut().frames_received += u64::from(count);
        let taken = TakenRun {
            dest: run.dest(),
            header_len: BULK_HEADER_LEN,
            part_len,
            len: part_len * count as usize,
            count: count as usize,
        };
        if let Some(done) = self.sh.transfers.on_run(link, &run, count) {
            self.finish_rx(&done);
        }
        self.after_records(from);
        Some(taken)
    }
}

/// Returns how many of `others` continue `first` and `bulk`: consecutive numbers, all else equal.
#[inline]
fn count_next<'a>(
    first: FrameHeader,
    bulk: BulkHeader,
    frame_len: usize,
    others: impl Iterator<Item = &'a [u8]>,
) -> u32 {
    let mut count = 0;
    for (ahead, other) in (1..).zip(others) {
        let frame = FrameHeader {
            packet_num: first.packet_num.wrapping_add(ahead),
            ..first
        };
        let next = BulkHeader {
            fragment_index: bulk.fragment_index.wrapping_add(ahead),
            ..bulk
        };
        if other.len() != frame_len || parse(other, frame_len) != Some((frame, next)) {
            break;
        }
        count = ahead;
    }
    count
}

/// Parses both headers of a fragment that fills its frame of `frame_len` bytes, and has payload.
#[inline]
fn parse(header: &[u8], frame_len: usize) -> Option<(FrameHeader, BulkHeader)> {
    let frame = FrameHeader::parse_head(header, frame_len).ok()?;
    let bulk = BulkHeader::parse(header).ok()?;
    let is_complete = frame.kind == FrameKind::Bulk && usize::from(frame.frame_len) == frame_len;
    (is_complete && frame_len > BULK_HEADER_LEN).then_some((frame, bulk))
}
