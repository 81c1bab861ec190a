// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission to one peer: chooses the next frame and its path.
//!
//! Order on a path: lost frames, high lane, control records, low lane, runs of eager fragments,
//! bulk data (`P4.10`). Acknowledgements and credit are piggybacked on any frame (`piggyback`).

use super::{Direct, Peer};
use crate::base::narrow::narrow;
use crate::mem::scratch::Scratch;
use crate::path::control::Control;
use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::path::{Contents, OpenFrame, Path, SHARED_FRAME_LEN_LOSSLESS};
use crate::shared::Shared;
use crate::{Instant, LinkId};
use portolan_wire::{FRAME_HEADER_LEN, FrameHeader, FrameKind, LaneId};

impl Peer {
    /// Returns the next frame to the peer.
    #[inline]
    pub(crate) fn next_outgoing(&mut self, now: Instant, sh: &mut Shared) -> Option<Outgoing> {
        if self.session.failure().is_some() {
            return self.emit_reset(sh);
        }
        LinkId::IN_TURN
            .into_iter()
            .find_map(|link| self.next_on_path(now, sh, link))
            .or_else(|| self.next_on_stream(sh))
    }

    /// Returns the next eager message, or part of a transfer, by stream.
    #[inline]
    fn next_on_stream(&mut self, sh: &mut Shared) -> Option<Outgoing> {
        if !self.stream.takes_parts() {
            return None;
        }
        if self.stream.eager().has_unsent() {
            return self.next_for_stream(sh);
        }
        self.next_stream_part(sh)
    }

    /// Returns the next part of a transfer by stream. `P15.4`
    fn next_stream_part(&mut self, sh: &mut Shared) -> Option<Outgoing> {
        if self.send_queue.is_empty() {
            return None;
        }
        let checked = self.paths.bulk_path().is_some_and(Path::is_checked);
        let is_latency_sensitive = sh.ctx.is_latency_sensitive();
        let Shared {
            transfers, scratch, ..
        } = sh;
        let had_late_done = self.control.is_late();
        let part = transfers.next_stream_part(
            (&mut self.send_queue, &mut self.control),
            scratch,
            (checked, is_latency_sensitive),
        );
        if had_late_done && !self.control.is_late() {
            self.stream.on_late_done_sent(true);
        }
        part
    }

    #[inline]
    fn next_on_path(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        let path = self.paths.get(link)?;
        if path.is_blocked() || !self.may_send(path, now) {
            return None;
        }
        if path.is_lossless() {
            return self.next_lossless(sh, link);
        }
        if self.session.has_handshake(link)
            && let Some(sent) = self.emit_handshake(sh, link)
        {
            return Some(sent);
        }
        if !self.session.is_up() {
            return None;
        }
        let session = self.session.token_theirs();
        let path = self.paths.get_mut(link)?;
        if let Some(sent) = path.emit_probe(now, &mut sh.scratch, session) {
            return Some(sent);
        }
        if path.may_repair()
            && let Some(sent) = self.next_repair(now, sh, link)
        {
            return Some(sent);
        }
        let is_small = self.paths.is_small(link);
        for lane in [LaneId::High, LaneId::Low] {
            if let Some(frame) = self.take_frame(sh, link, lane, is_small) {
                return self.seal(now, sh, link, frame);
            }
        }
        if is_small && self.paths.ack_is_due(now) && !self.run_is_first() {
            let frame = self.paths.get(link)?.empty_frame(&mut sh.slots);
            return self.seal(now, sh, link, frame);
        }
        if let Some(sent) = self.next_batch(now, sh, link) {
            return Some(sent);
        }
        self.next_bulk(now, sh, link)
    }

    /// Returns true if anything waits for a path. Called after each frame, so it must be cheap.
    #[inline]
    fn may_send(&self, path: &Path, now: Instant) -> bool {
        let link = path.link();
        path.has_waiting()
            || self.session.has_handshake(link)
            || self.paths.is_small(link) && (self.has_control() || self.paths.ack_is_due(now))
            || !self.send_queue.is_empty()
    }

    /// See [`Core::has_urgent_tx`](crate::Core::has_urgent_tx).
    pub(crate) fn has_urgent_tx(&self, credit_len: u32) -> bool {
        let waits = |path: &Path| path.has_urgent() || self.session.has_handshake(path.link());
        self.session.failure().is_some()
            || self.control.has_urgent()
            || self.lanes.has_urgent_credit(credit_len)
            || !self.send_queue.is_empty()
            || self.paths.iter().any(waits)
    }

    /// Returns true if a run is sent next, on any path. Credit and acknowledgements are piggybacked
    /// on its last batch if they fit; otherwise they follow it. Data does not wait for them, and
    /// they wait for at most one run.
    fn run_is_first(&self) -> bool {
        let more = self.is_starved();
        let is_sendable = |path: &Path| !path.is_blocked() && path.has_run_to_send(more);
        !self.ack_waited && self.paths.iter().any(is_sendable)
    }

    /// Returns true if a pushed part leaves by the stream next, and its head has room for a
    /// completion.
    pub(super) fn pushes_next(&self, sh: &Shared) -> bool {
        let checked = self.paths.bulk_path().is_some_and(Path::is_checked);
        self.stream.takes_parts() && sh.transfers.carries_done(&self.send_queue, checked)
    }

    /// Returns true if the completion of a transfer waits for the program's next call.
    pub(crate) fn has_late_done(&self) -> bool {
        self.control.is_late()
    }

    /// Takes the lane's next frame. The high lane also carries control records, with or without
    /// messages.
    #[inline]
    fn take_frame(
        &mut self,
        sh: &mut Shared,
        link: LinkId,
        lane: LaneId,
        is_small: bool,
    ) -> Option<OpenFrame> {
        let path = self.paths.get_mut(link)?;
        if path.has_frame(lane.index()) {
            return path.take_frame(lane.index());
        }
        let control = is_small
            && lane == LaneId::High
            && self.has_control()
            && !(self.control.is_empty() && self.run_is_first())
            && !(self.control.is_late() && self.pushes_next(sh));
        let path = self.paths.get(link)?;
        // P3.3
        (control && path.window_left() > 0).then(|| path.empty_frame(&mut sh.slots))
    }

    /// Appends piggybacked records, numbers the frame and writes its header.
    #[inline]
    fn seal(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
        mut frame: OpenFrame,
    ) -> Option<Outgoing> {
        let path = self.paths.get(link)?;
        let (limit, room) = (path.frame_len(), path.window_left() > 0);
        self.append_control(sh, &mut frame, limit, room);
        self.append_acks(now, sh, &mut frame, limit);
        if !frame.numbered && self.control.last_grant().is_some() {
            self.repeat_grant(sh, &mut frame, limit);
        }
        self.ack_waited = false;
        let session = self.session.token_theirs();
        let path = self.paths.get_mut(link)?;
        Some(path.seal(now, &mut sh.slots, session, &frame))
    }

    /// Returns the next retransmission: several fragments together, or any other frame alone.
    fn next_repair(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        let takes_more = self.is_bulk_next(now, link);
        let session = self.session.token_theirs();
        let Shared {
            ctx,
            transfers,
            scratch,
            ..
        } = sh;
        let paths = (&mut self.paths, link);
        let queue = &mut self.send_queue;
        let more = (session, takes_more);
        let sent = transfers.next_repairs(now, ctx, queue, paths, scratch, more);
        sent.or_else(|| self.next_lost(now, sh, link))
    }

    /// Returns true if only bulk data waits for a path in addition to lost frames.
    fn is_bulk_next(&self, now: Instant, link: LinkId) -> bool {
        let Some(path) = self.paths.get(link) else {
            return false;
        };
        let control =
            self.paths.is_small(link) && (self.has_control() || self.paths.ack_is_due(now));
        !path.has_more_waiting() && !control && !self.send_queue.has_parts()
    }

    /// Returns the retransmission of the next lost frame. `P3.1`
    fn next_lost(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        let path = self.paths.get_mut(link)?;
        let lost = path.next_lost(now)?;
        let Shared {
            ctx,
            slots,
            transfers,
            scratch,
            ..
        } = sh;
        ctx.counters_mut().retransmits += 1;
        let session = self.session.token_theirs();
        let kind = match lost.contents {
            Contents::Fragment { .. } => FrameKind::Bulk,
            _ => FrameKind::Data,
        };
        let header = path.header(kind, (lost.num, lost.attempt), lost.len, session);
        let bytes = match lost.contents {
            Contents::Slot { slot, off } => {
                let off = off as usize;
                FrameHeader::set_attempt(&mut slots.bytes_mut(slot)[off..], lost.attempt);
                Bytes::frame(slot, off, lost.len)
            }
            Contents::Fragment { transfer, index } => transfers
                .fragment_bytes(scratch, (transfer, index), header)
                .unwrap_or_else(|| empty_bytes(scratch, &header)),
            Contents::FragmentPart {
                transfer,
                index,
                within,
            } => transfers
                .part_bytes(scratch, (transfer, index, within), header)
                .unwrap_or_else(|| empty_bytes(scratch, &header)),
            // P3.12
            Contents::Nothing => empty_bytes(scratch, &header),
        };
        Some(path.outgoing((lost.num, 1), bytes))
    }

    /// Returns as many of the waiting runs of fragments as one GSO batch takes.
    pub(super) fn next_batch(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
    ) -> Option<Outgoing> {
        let (more, session) = (self.is_starved(), self.session.token_theirs());
        let path = self.paths.get_mut(link)?;
        if let Some(sent) = path.next_best_effort(&mut sh.slots, session) {
            return Some(sent);
        }
        let mut batch = path.take_batch(&mut sh.slots, more)?;
        self.ack_waited = false;
        if let Some((slot, at, end)) = path.room_behind(&batch) {
            batch.grow(self.append_to_run(now, sh, (slot, at, end)));
            self.ack_waited = self.paths.ack_is_due(now) || self.has_control();
        }
        let path = self.paths.get_mut(link)?;
        Some(path.seal_batch(now, &mut sh.slots, session, &batch))
    }

    /// Returns the next bulk data: retransmitted parts first, then granted bytes.
    fn next_bulk(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        let session = self.session.token_theirs();
        let Shared {
            ctx,
            transfers,
            scratch,
            ..
        } = sh;
        let queue = &mut self.send_queue;
        if queue.has_parts() && self.paths.is_bulk(link) {
            let path = self.paths.get_mut(link)?;
            let sent = transfers.next_part(now, queue, path, scratch, session);
            if sent.is_some() {
                return sent;
            }
        }
        let paths = (&mut self.paths, link);
        transfers.next_run_out(now, ctx, queue, paths, scratch, session)
    }

    /// Returns a frame or chunk for a lossless link. `P8.1`
    #[inline]
    fn next_lossless(&mut self, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        for lane in [LaneId::High, LaneId::Low] {
            if let Some(mut frame) = self.take_frame(sh, link, lane, true) {
                self.append_control(sh, &mut frame, SHARED_FRAME_LEN_LOSSLESS, true);
                let lane = lane.index();
                return Some(Outgoing {
                    link,
                    bytes: Bytes::frame(frame.slot, 0, frame.len),
                    kind: OutgoingKind::Lossless { lane, frame },
                });
            }
        }
        let queue = &mut self.send_queue;
        sh.transfers.next_chunk(queue, &mut sh.scratch, link)
    }

    /// Puts back a transmit that the link refused. It is returned again once the path is unblocked.
    pub(crate) fn take_back(&mut self, sh: &mut Shared, link: LinkId, kind: OutgoingKind) {
        self.direct = Direct::Unknown;
        if let Some(path) = self.paths.get_mut(link) {
            path.block();
            path.take_back(&mut sh.slots, kind);
            if let OutgoingKind::Repairs { .. } = kind {
                let repaired = sh.scratch.repaired().iter().rev();
                repaired.for_each(|&num| path.put_back(num));
            }
        } else if link == LinkId::STREAM {
            self.stream.block();
        }
        if let OutgoingKind::Message = kind {
            self.take_back_message();
        }
        if let OutgoingKind::Chunk { transfer, off } = kind {
            sh.transfers.rewind(&mut self.send_queue, transfer, off);
            if let Some(done) = sh.transfers.take_carried_done(transfer) {
                self.control.push(Control::Done(done));
            }
        }
    }

    /// Frees everything that waits to be sent or acknowledged.
    pub(crate) fn abandon_tx(&mut self, sh: &mut Shared) {
        for path in self.paths.iter_mut() {
            path.abandon_tx(&mut sh.slots);
        }
        self.control.clear();
        self.send_queue.clear();
        self.stream.eager_mut().abandon(&mut sh.slots);
    }
}

/// Returns a frame that only fills its number, because its contents moved or its transfer has
/// ended.
fn empty_bytes(scratch: &mut Scratch, header: &FrameHeader) -> Bytes {
    let header = FrameHeader {
        kind: FrameKind::Data,
        frame_len: narrow(FRAME_HEADER_LEN),
        ..*header
    };
    header.emit(scratch.start(FRAME_HEADER_LEN));
    Bytes::Scratch
}
