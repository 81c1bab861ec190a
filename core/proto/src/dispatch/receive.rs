// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving: parses frames and passes their records to the mechanisms. A bad frame is counted by
//! its drop reason and discarded.

use super::{PendingCounts, list};
use crate::base::narrow::narrow;
use crate::base::poll_gap::DELAY_UNKNOWN;
use crate::bulk::trial::Carrier;
use crate::path::Contents;
use crate::path::failover::TIMEOUTS;
use crate::path::refragment::PART_HEADER_LEN;
use crate::peer::Peer;
use crate::session::token_index;
use crate::shared::Shared;
use crate::{Admitted, Cause, Core, DropReason, Instant, LinkId, PeerId};
use alloc::vec::Vec;
use core::ops::Range;
use portolan_wire::{
    Ack, BULK_HEADER_LEN, Done, DoneStatus, FRAME_HEADER_LEN, Fragment, FrameHeader, FrameKind,
    Grant, Marks, Record, Records,
};

impl Core {
    /// Handles a datagram that arrived on `link` and queues its events; see the crate's contract.
    pub fn handle_frame(&mut self, now: Instant, link: LinkId, bytes: &[u8]) {
        if let Some(frame) = self.admit(now, link, bytes) {
            self.handle_rest(now, &frame, bytes);
        }
    }

    /// Handles a frame from a lossless link, which identifies the sender. `head` holds the first
    /// bytes of the frame: all of them, unless it is one large record.
    pub fn handle_lossless(
        &mut self,
        now: Instant,
        link: LinkId,
        from: PeerId,
        head: &[u8],
        total_len: usize,
    ) {
        if let Some(frame) = self.admit_lossless(now, link, from, total_len) {
            self.handle_rest(now, &frame, head);
        }
    }

    /// Performs the first half of [`Core::handle_frame`]: checks the header and records the packet
    /// number. Returns `None` if only events remain. Between the halves, [`Core::take_message`] may
    /// take messages.
    #[inline(always)]
    pub fn admit(&mut self, now: Instant, link: LinkId, bytes: &[u8]) -> Option<Admitted> {
        match self.on_datagram(now, link, bytes, bytes.len()) {
            Ok(admitted) => admitted,
            Err(reason) => {
                self.sh.ctx.drop_for(reason);
                None
            }
        }
    }

    /// Performs the first half of [`Core::handle_lossless`].
    #[inline]
    pub fn admit_lossless(
        &mut self,
        now: Instant,
        link: LinkId,
        from: PeerId,
        total_len: usize,
    ) -> Option<Admitted> {
        if let Some(None) = self.peers.get(from.index()) {
            self.connect(now, from);
        }
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            self.sh.ctx.drop_for(DropReason::NoPath);
            return None;
        };
        if let Some(cause) = peer.session().failure() {
            return self.admit_again(now, link, from, total_len, cause);
        }
        peer.on_activity(now);
        self.sh.ctx.counters_mut().frames_received += 1;
        Some(Admitted {
            from,
            link,
            reliable: true,
            at: 0,
            total_len,
        })
    }

    /// Handles a frame from a failed peer. `P8.2`: a live peer has connected anew, since the link
    /// closed the connection on which it failed.
    #[cold]
    fn admit_again(
        &mut self,
        now: Instant,
        link: LinkId,
        from: PeerId,
        total_len: usize,
        cause: Cause,
    ) -> Option<Admitted> {
        match cause {
            Cause::ProcessExited | Cause::Violation(_) => {
                self.sh.ctx.drop_for(DropReason::StaleSession);
                None
            }
            _ => {
                self.connect(now, from);
                self.admit_lossless(now, link, from, total_len)
            }
        }
    }

    /// Performs the second half: handles the records that have not been taken.
    pub fn handle_rest(&mut self, now: Instant, frame: &Admitted, head: &[u8]) {
        for item in Records::new(head, frame.at, frame.total_len) {
            let outcome = match item {
                Ok((record, payload)) => self.on_record(now, frame, &record, payload, head),
                Err(malformed) => Err(malformed.into()),
            };
            if let Err(reason) = outcome {
                self.sh.ctx.drop_for(reason);
                // P8.9
                if self.is_violation(frame.link, reason) {
                    self.fail_peer(frame.from, Cause::Violation(reason.name()));
                    break;
                }
            }
        }
        self.after_records(frame.from);
    }

    /// Returns true if the drop is a protocol violation. A lossless link loses, duplicates and
    /// corrupts nothing, so an invalid record was sent as such and its valid form will never
    /// arrive.
    #[cold]
    fn is_violation(&self, link: LinkId, reason: DropReason) -> bool {
        let params = self.sh.ctx.link(link);
        let contradicts = matches!(
            reason,
            DropReason::Truncated
                | DropReason::Malformed
                | DropReason::Misplaced
                | DropReason::BeyondCredit
                | DropReason::BadFragment
        );
        contradicts && params.is_some_and(|params| params.lossless)
    }

    /// Handles a datagram of `total_len` bytes. If `bytes` is only its header, the payload is
    /// already in its final place.
    #[inline(always)]
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        link: LinkId,
        bytes: &[u8],
        total_len: usize,
    ) -> Result<Option<Admitted>, DropReason> {
        let header = FrameHeader::parse_head(bytes, total_len)?;
        let frame = &bytes[..bytes.len().min(header.frame_len.into())];
        let Core {
            peers,
            sh,
            ready,
            timed,
            pending_counts,
            ..
        } = self;
        // P2.3
        let peer = match peers.get_mut(token_index(header.session)) {
            Some(Some(peer)) if peer.is_open_as(header.session) => &mut **peer,
            _ => return self.on_rare_frame(now, link, (&header, frame), (bytes, total_len)),
        };
        let from = peer.id();
        let kind = header.kind;
        let reliable = kind == FrameKind::Data;
        // P3.10
        let is_refused = reliable && may_hold(peer, sh) && must_hold(peer, sh, frame);
        let path = match peer.paths_mut().get_mut(link) {
            // P13.3
            Some(path) if path.takes(header.checked) && kind.has_contents() => path,
            _ => return self.on_rare_frame(now, link, (&header, frame), (bytes, total_len)),
        };
        if kind != FrameKind::Unnumbered {
            // P3.2
            let number = (header.packet_num, header.attempt);
            if let Err(reason) = path.check_num(now, number.0, number.1) {
                return Err(self.on_bad_number(now, from, header.attempt, reason));
            }
            if is_refused {
                peer.on_activity(now);
                let (lanes, env) = &mut peer.lanes(sh);
                lanes.on_refused(now, env);
                return Err(DropReason::NoMemory);
            }
            let ack = match reliable && !Fragment::is_at(frame, FRAME_HEADER_LEN) {
                true => sh.ctx.ack_times(),
                false => sh.ctx.bulk_ack_times(),
            };
            match path.on_numbered(now, number, ack) {
                true => list(ready, timed, peer),
                false => list_for_later(timed, pending_counts, peer),
            }
        }
        peer.on_activity(now);
        sh.ctx.counters_mut().frames_received += 1;
        if kind == FrameKind::Bulk {
            self.on_bulk(from, link, frame, header.frame_len.into())?;
            self.after_records(from);
            return Ok(None);
        }
        Ok(Some(Admitted {
            from,
            link,
            reliable,
            at: FRAME_HEADER_LEN,
            total_len: frame.len(),
        }))
    }

    /// Handles a frame that opens or closes a session, or that no open session accepts.
    #[cold]
    fn on_rare_frame(
        &mut self,
        now: Instant,
        link: LinkId,
        (header, frame): (&FrameHeader, &[u8]),
        (bytes, total_len): (&[u8], usize),
    ) -> Result<Option<Admitted>, DropReason> {
        if matches!(header.kind, FrameKind::Hello | FrameKind::HelloAck) {
            if self.on_handshake(now, link, header, frame)? {
                self.sh.ctx.counters_mut().frames_received += 1;
            }
            return Ok(None);
        }
        let peer = match self.peers.get_mut(token_index(header.session)) {
            Some(Some(peer)) if peer.session().token_mine() == header.session => &mut **peer,
            _ => return self.on_unknown_session(now, link, header, (bytes, total_len)),
        };
        let from = peer.id();
        let path = peer.paths().get(link);
        // P13.3
        if path.is_some_and(|path| !path.takes(header.checked)) {
            return Err(DropReason::Unchecked);
        }
        let has_path = path.is_some();
        // P2.8
        if header.kind == FrameKind::Reset && !header.is_bare() {
            return Err(DropReason::Malformed);
        }
        if !peer.is_open() {
            if header.kind != FrameKind::Reset {
                peer.session_mut().on_frame_out_of_session(link);
                self.touch(from);
            }
            return Err(DropReason::StaleSession);
        }
        peer.on_activity(now);
        if !has_path {
            return Err(DropReason::NoPath);
        }
        if header.kind != FrameKind::Reset {
            return Err(DropReason::Misplaced);
        }
        self.sh.ctx.counters_mut().frames_received += 1;
        self.fail_peer(from, Cause::Closed);
        Ok(None)
    }

    /// Handles a number that has arrived, or is beyond the window.
    #[cold]
    fn on_bad_number(
        &mut self,
        now: Instant,
        from: PeerId,
        attempt: u8,
        reason: DropReason,
    ) -> DropReason {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return reason;
        };
        peer.on_activity(now);
        if reason == DropReason::Duplicate {
            // P6.7: earlier acknowledgements of this frame were lost.
            if u32::from(attempt) >= TIMEOUTS {
                peer.paths_mut().suspect(now);
            }
            list(&mut self.ready, &mut self.timed, peer);
        }
        reason
    }

    /// Schedules an acknowledgement, at once or after a delay, even if the program makes no further
    /// call.
    #[inline]
    pub(super) fn schedule_ack(&mut self, from: PeerId, at_once: bool) {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return;
        };
        if at_once {
            return list(&mut self.ready, &mut self.timed, peer);
        }
        list_for_later(&mut self.timed, &mut self.pending_counts, peer);
    }

    /// Handles a frame that belongs to no session; its sender may be dormant here.
    fn on_unknown_session(
        &mut self,
        now: Instant,
        link: LinkId,
        header: &FrameHeader,
        (bytes, total_len): (&[u8], usize),
    ) -> Result<Option<Admitted>, DropReason> {
        let index = narrow(token_index(header.session));
        let ids = self.session_ids(PeerId(index));
        if ids.is_none_or(|ids| ids.mine.1 != header.session) || !self.revive(PeerId(index)) {
            return Err(DropReason::StaleSession);
        }
        self.on_datagram(now, link, bytes, total_len)
    }

    #[inline]
    pub(crate) fn after_records(&mut self, from: PeerId) {
        self.serve_unblocked();
        self.schedule_grants();
        if let Some(Some(peer)) = self.peers.get_mut(from.index())
            && peer.is_starved()
        {
            peer.wake_starved(&mut self.sh);
        }
        self.list_if_due(from);
    }

    #[inline]
    fn on_record(
        &mut self,
        now: Instant,
        frame: &Admitted,
        record: &Record,
        payload: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let (from, link) = (frame.from, frame.link);
        // P3.11
        if !frame.reliable && !may_be_lost(record) {
            return Err(DropReason::Misplaced);
        }
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        match record {
            Record::Chunk(chunk) => self.on_chunk(from, chunk, payload),
            Record::Grant(grant) => self.on_grant(now, frame, grant),
            Record::Done(done) => self.on_done(now, from, done),
            Record::Credit(credit) => {
                peer.lanes_mut().tx(credit.lane).on_credit(credit.limit);
                Ok(())
            }
            Record::Ack(ack) => {
                let words = bytes.get(payload).ok_or(DropReason::Truncated)?;
                self.on_ack(now, from, ack, words)
            }
            Record::Probe(probe) => {
                let path = peer.paths_mut().get_mut(link).ok_or(DropReason::NoPath)?;
                // P6.4
                if !probe.reply {
                    path.on_probe_request(probe.nonce);
                } else {
                    peer.on_probe_reply(now, &mut self.sh, link, probe.nonce);
                }
                Ok(())
            }
            Record::Marks(marks) => self.on_ecn_count(from, marks),
            Record::BestEffortPart(part) => {
                let (lanes, env) = &mut peer.lanes(&mut self.sh);
                lanes.on_best_effort_part(now, env, part, payload)
            }
            Record::StreamMark(mark) => peer.on_stream_ack(mark.received, &mut self.sh.slots),
            Record::RemoteReply(reply) => self.on_remote_reply(from, reply, payload),
            Record::RemoteSource(source) => self.on_remote_source(from, link, source),
            Record::Message(_)
            | Record::Fragment(_)
            | Record::Rts(_)
            | Record::RemoteWrite(_)
            | Record::RemoteRts(_)
            | Record::RemoteGet(_) => {
                let data_link = peer.data_link(link);
                let (lanes, env) = &mut peer.lanes(&mut self.sh);
                lanes.on_record(env, record, payload, data_link)
            }
        }
    }

    fn on_grant(
        &mut self,
        now: Instant,
        frame: &Admitted,
        grant: &Grant,
    ) -> Result<(), DropReason> {
        let from = frame.from;
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        let Shared { transfers, ctx, .. } = &mut self.sh;
        let avoids_stream = peer.avoids_stream(ctx);
        let (queue, stream) = peer.bulk_parts();
        let choose = |len| match avoids_stream {
            true => Carrier::Fragments,
            false => stream.choose(now, ctx, from, len),
        };
        match transfers.on_grant(now, from, grant, queue, choose) {
            // P5.11: a repeated grant may arrive late.
            Err(DropReason::StaleTransfer) if !frame.reliable => Ok(()),
            Err(reason) => Err(reason),
            Ok(is_missed) => {
                if let Some(is_missed) = is_missed {
                    peer.on_push_answered(&mut self.sh, is_missed);
                }
                Ok(())
            }
        }
    }

    pub(super) fn on_done(
        &mut self,
        now: Instant,
        from: PeerId,
        done: &Done,
    ) -> Result<(), DropReason> {
        if done.status == DoneStatus::Unreadable {
            return self.on_source_fault(from, done.transfer);
        }
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        peer.stream_mut().on_success();
        let is_complete = done.status == DoneStatus::Complete;
        if is_complete && self.sh.transfers.is_pushed(from, done.transfer) {
            peer.on_push_answered(&mut self.sh, false);
        }
        let Shared { transfers, ctx, .. } = &mut self.sh;
        transfers.on_done(now, ctx, from, done, peer.stream_mut().trial())
    }

    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        from: PeerId,
        ack: &Ack,
        words: &[u8],
    ) -> Result<(), DropReason> {
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::StaleSession);
        };
        let link = LinkId::from_u8(ack.path).ok_or(DropReason::BadAck)?;
        let (paths, mut trial) = peer.paths_and_trial();
        let path = paths.get_mut(link).ok_or(DropReason::BadAck)?;
        let Shared {
            ctx,
            slots,
            transfers,
            ..
        } = &mut self.sh;
        let mut ack = *ack;
        if ctx.poll_gap().covers(now) {
            ack.delay_us = DELAY_UNKNOWN;
        }
        // Fragments of one transfer come in runs. The transfer is updated once per run.
        let (mut run, mut run_len) = (0, 0);
        let mut on_part = |transfer, frame_len: u16, header_len| {
            if transfer != run {
                let part = (run, core::mem::take(&mut run_len));
                transfers.on_acked(now, ctx, part, trial.as_deref_mut());
                run = transfer;
            }
            run_len += usize::from(frame_len).saturating_sub(header_len) as u64;
        };
        let result = path.on_ack(now, &ack, words, |contents, len| match contents {
            Contents::Slot { slot, .. } => slots.release(slot),
            Contents::Fragment { transfer, .. } => on_part(transfer, len, BULK_HEADER_LEN),
            Contents::FragmentPart { transfer, .. } => on_part(transfer, len, PART_HEADER_LEN),
            Contents::Nothing => {}
        });
        if run_len > 0 {
            transfers.on_acked(now, ctx, (run, run_len), trial);
        }
        result
    }

    /// Handles the peer's count of frames of this side that the network has marked. `P3.14`
    #[cold]
    fn on_ecn_count(&mut self, from: PeerId, marks: &Marks) -> Result<(), DropReason> {
        let peer = self
            .peers
            .get_mut(from.index())
            .and_then(Option::as_deref_mut);
        let link = LinkId::from_u8(marks.path).ok_or(DropReason::BadAck)?;
        let path = peer.and_then(|peer| peer.paths_mut().get_mut(link));
        let newly_marked = path.ok_or(DropReason::BadAck)?.on_ecn_count(marks.count);
        self.sh.ctx.counters_mut().marks_heard += u64::from(newly_marked);
        Ok(())
    }

    /// Records that the network has marked `count` accepted frames for congestion. They arrived on
    /// `link` in one run with `frame`, which may be sealed.
    #[cold]
    pub fn note_marked(&mut self, link: LinkId, frame: &[u8], count: u32) {
        let Some(session) = FrameHeader::session_of_numbered(frame) else {
            return;
        };
        if let Some(Some(peer)) = self.peers.get_mut(token_index(session))
            && peer.session().token_mine() == session
            && let Some(path) = peer.paths_mut().get_mut(link)
        {
            path.on_marked(count);
            self.sh.ctx.counters_mut().frames_marked += u64::from(count);
        }
    }
}

/// Puts a peer into the list of timed peers, because an acknowledgement is due later.
#[inline]
pub(super) fn list_for_later(timed: &mut Vec<PeerId>, counts: &mut PendingCounts, peer: &mut Peer) {
    counts.update(peer.note_unacknowledged());
    if peer.mark_timed() {
        timed.push(peer.id());
    }
}

/// Returns true if memory may be exhausted, and messages of the peer use some of it.
#[inline]
fn may_hold(peer: &mut Peer, sh: &Shared) -> bool {
    (peer.lanes_mut().has_outstanding() || sh.held.orphaned_len() > 0) && sh.is_full()
}

/// Returns true if a frame brings a message that would have to be held.
#[cold]
fn must_hold(peer: &mut Peer, sh: &mut Shared, frame: &[u8]) -> bool {
    let (lanes, env) = &mut peer.lanes(sh);
    lanes.must_hold(env, frame)
}

/// Returns true if a frame without a number may carry the record. `P3.11`, `P3.14`, `P5.11`, `P7.2`
fn may_be_lost(record: &Record) -> bool {
    match record {
        Record::Message(message) => message.best_effort,
        Record::BestEffortPart(_) => true,
        Record::Ack(_) | Record::Probe(_) | Record::Marks(_) | Record::Grant(_) => true,
        _ => false,
    }
}
