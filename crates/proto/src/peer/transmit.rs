// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending: which frame leaves next, by which path.
//!
//! The order on a path: what was lost, the high lane, control records, the low lane, runs of eager
//! fragments, bulk data (`P4.10`). Acknowledgements and credit ride on whatever leaves anyway
//! (`ride`).

use super::Peer;
use crate::mem::slot::SlotId;
use crate::path::{Cargo, OpenFrame, Path, TxState};
use crate::shared::Shared;
use crate::{Core, Instant, LinkId, OpId, PeerId};
use portolan_wire::{ATTEMPT_MAX, FrameHeader, FrameKind, LaneId};

/// A frame, or run of frames, for a link to send now.
#[derive(Debug)]
pub enum Transmit<'a> {
    /// One frame.
    Frame {
        /// To whom.
        peer: PeerId,
        /// By which link.
        link: LinkId,
        /// The frame.
        bytes: &'a [u8],
    },
    /// Frames of `segment_len` bytes behind one another; the last may be shorter.
    Run {
        /// To whom.
        peer: PeerId,
        /// By which link.
        link: LinkId,
        /// The frames.
        bytes: &'a [u8],
        /// Those that follow, if any: then all of `bytes` are full ones.
        more: &'a [u8],
        /// Bytes of each but the last.
        segment_len: usize,
    },
    /// Headers here, payload from the buffer of `op`.
    Bulk {
        /// To whom.
        peer: PeerId,
        /// By which link.
        link: LinkId,
        /// Whose buffer.
        op: OpId,
        /// First byte.
        off: u64,
        /// Bytes of payload.
        len: usize,
        /// Headers, one per fragment, behind one another.
        headers: &'a [u8],
        /// Bytes of each header.
        header_len: usize,
        /// Bytes of payload behind each header but the last.
        fragment_len: usize,
    },
}

impl Transmit<'_> {
    /// To whom, and by which link.
    #[must_use]
    pub fn way(&self) -> (PeerId, LinkId) {
        match *self {
            Transmit::Frame { peer, link, .. }
            | Transmit::Run { peer, link, .. }
            | Transmit::Bulk { peer, link, .. } => (peer, link),
        }
    }
}

/// What was handed out last, in case the link will not have it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    /// A numbered frame or run: `count` numbers from `first`.
    Numbered {
        peer: PeerId,
        link: LinkId,
        first: u32,
        count: u32,
        what: View,
    },
    /// A frame on a lossless link.
    Lossless {
        peer: PeerId,
        link: LinkId,
        lane: usize,
        frame: OpenFrame,
    },
    /// An unnumbered frame from a frame buffer (best effort, acknowledgements).
    Unnumbered {
        peer: PeerId,
        link: LinkId,
        frame: OpenFrame,
    },
    /// A chunk of a transfer on a lossless link.
    Chunk {
        peer: PeerId,
        link: LinkId,
        transfer: u32,
        off: u64,
        what: View,
    },
    /// Handshake or probe, in the scratch buffer; it repeats itself.
    Scratch { peer: PeerId, link: LinkId },
}

/// Which bytes a transmit shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    Slot {
        slot: SlotId,
        off: usize,
        len: usize,
        segment_len: usize,
    },
    Bulk {
        op: OpId,
        off: u64,
        len: usize,
        header_len: usize,
        fragment_len: usize,
    },
    /// The end of one buffer's frames and the first of the next one's.
    Slots {
        slots: [SlotId; 2],
        off: u32,
        lens: [u32; 2],
        segment_len: u32,
    },
    /// A frame without records, in the scratch buffer.
    Empty,
}

impl Core {
    /// The next frame to send, or `None`. Asking for the next one says that the link took this one.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.settle();
        while let Some(&id) = self.ready.front() {
            let sent = self.next_of_peer(now, id);
            if let Some(sent) = sent {
                self.sh.ctx.counters_mut().frames_sent += 1;
                self.sent = Some(sent);
                return Some(self.view(sent));
            }
            self.ready.pop_front();
            if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                peer.queued = false;
                if peer.is_starved() {
                    peer.wake_starved(&mut self.sh);
                }
                peer.note_outstanding(&mut self.sh);
            }
        }
        None
    }

    /// Whether something may be left to do although the program asks for nothing: frames to send,
    /// to send again if they are lost, or acknowledgements to give. Seen when frames are asked for.
    #[inline]
    #[must_use]
    pub fn has_outstanding(&self) -> bool {
        !self.ready.is_empty() || self.sh.outstanding_count > 0
    }

    /// Looks at every peer with a timer, so that [`Core::has_outstanding`] says how it is now.
    pub fn look_for_outstanding(&mut self) {
        for id in &self.timed {
            if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                peer.note_outstanding(&mut self.sh);
            }
        }
    }

    /// Whether anything waits that should not wait for the program's next call: all but
    /// acknowledgements for which the sender has no need yet.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        let peers = self
            .ready
            .iter()
            .filter_map(|id| self.peers.get(id.index()));
        peers
            .flatten()
            .any(|peer| peer.is_pressed(self.sh.ctx.credit_len()))
    }

    /// The link had no room for the last transmit: it will be handed out again once
    /// [`Core::link_ready`] was called.
    pub fn transmit_refused(&mut self) {
        self.sh.ctx.counters_mut().link_full += 1;
        let Some(sent) = self.sent.take() else { return };
        let (id, link) = match sent {
            Sent::Numbered { peer, link, .. }
            | Sent::Lossless { peer, link, .. }
            | Sent::Unnumbered { peer, link, .. }
            | Sent::Chunk { peer, link, .. }
            | Sent::Scratch { peer, link } => (peer, link),
        };
        let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
            return;
        };
        let Some(path) = peer.path_mut(link) else {
            return;
        };
        path.blocked = true;
        match sent {
            Sent::Numbered { first, count, .. } => {
                for ahead in (0..count).rev() {
                    path.put_back(first.wrapping_add(ahead));
                }
            }
            Sent::Lossless { lane, frame, .. } => path.closed[lane].push_front(frame),
            Sent::Unnumbered { frame, .. } => self.sh.slots.release(frame.slot),
            Sent::Chunk { transfer, off, .. } => peer.rewind(&mut self.sh, transfer, off),
            Sent::Scratch { .. } => {}
        }
    }

    /// Links may have room again: refused transmits are handed out once more.
    pub fn link_ready(&mut self, link: LinkId) {
        for index in 0..self.timed.len() {
            let id = self.timed[index];
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                continue;
            };
            if let Some(path) = peer.path_mut(link)
                && core::mem::take(&mut path.blocked)
            {
                self.touch(id);
            }
        }
    }

    /// The last transmit left: what lived for it alone is free.
    #[inline]
    fn settle(&mut self) {
        if let Some(Sent::Lossless { frame, .. } | Sent::Unnumbered { frame, .. }) =
            self.sent.take()
        {
            self.sh.slots.release(frame.slot);
        }
    }

    #[inline]
    fn view(&self, sent: Sent) -> Transmit<'_> {
        let (peer, link, what) = match sent {
            Sent::Lossless {
                peer, link, frame, ..
            }
            | Sent::Unnumbered { peer, link, frame } => {
                let bytes = &self.sh.slots.bytes(frame.slot)[..frame.len];
                return Transmit::Frame { peer, link, bytes };
            }
            Sent::Scratch { peer, link } => {
                return Transmit::Frame {
                    peer,
                    link,
                    bytes: self.sh.scratch.bytes(),
                };
            }
            Sent::Numbered {
                peer, link, what, ..
            }
            | Sent::Chunk {
                peer, link, what, ..
            } => (peer, link, what),
        };
        match what {
            View::Empty => {
                let bytes = self.sh.scratch.bytes();
                Transmit::Frame { peer, link, bytes }
            }
            View::Slot {
                slot,
                off,
                len,
                segment_len,
            } => {
                let bytes = &self.sh.slots.bytes(slot)[off..off + len];
                if len <= segment_len {
                    Transmit::Frame { peer, link, bytes }
                } else {
                    Transmit::Run {
                        peer,
                        link,
                        bytes,
                        more: &[],
                        segment_len,
                    }
                }
            }
            View::Slots {
                slots,
                off,
                lens,
                segment_len,
            } => Transmit::Run {
                peer,
                link,
                bytes: &self.sh.slots.bytes(slots[0])[off as usize..][..lens[0] as usize],
                more: &self.sh.slots.bytes(slots[1])[..lens[1] as usize],
                segment_len: segment_len as usize,
            },
            View::Bulk {
                op,
                off,
                len,
                header_len,
                fragment_len,
            } => {
                let headers = self.sh.scratch.bytes();
                Transmit::Bulk {
                    peer,
                    link,
                    op,
                    off,
                    len,
                    headers,
                    header_len,
                    fragment_len,
                }
            }
        }
    }

    #[inline]
    fn next_of_peer(&mut self, now: Instant, id: PeerId) -> Option<Sent> {
        let sh = &mut self.sh;
        let peer = self.peers.get_mut(id.index())?.as_deref_mut()?;
        if peer.session.failed.is_some() {
            let link = peer.emit_reset(sh)?;
            return Some(Sent::Scratch { peer: id, link });
        }
        // Highest number first: raw frames before datagrams, so small messages before bulk.
        for link in LinkId::ALL.into_iter().rev() {
            if peer.paths[link.index()].is_some()
                && let Some(sent) = peer.next_on_path(now, sh, link)
            {
                return Some(sent);
            }
        }
        None
    }
}

impl Peer {
    #[inline]
    fn next_on_path(&mut self, now: Instant, sh: &mut Shared, link: LinkId) -> Option<Sent> {
        let path = self.paths[link.index()].as_deref_mut()?;
        if path.blocked {
            return None;
        }
        if !self.may_send(link, now) {
            return None;
        }
        let path = self.paths[link.index()].as_deref_mut()?;
        if path.params.lossless {
            return self.next_lossless(sh, link);
        }
        if self.emit_handshake(sh, link) {
            return Some(Sent::Scratch {
                peer: self.id,
                link,
            });
        }
        if !self.session.up {
            return None;
        }
        let path = self.paths[link.index()].as_deref_mut()?;
        if path.probe.has_due() && self.emit_probe(now, sh, link) {
            return Some(Sent::Scratch {
                peer: self.id,
                link,
            });
        }
        let path = self.paths[link.index()].as_deref_mut()?;
        if path.may_repair()
            && let Some(sent) = path.next_lost(now, sh, self.id, self.session.token_theirs)
        {
            return Some(sent);
        }
        let is_small = self.small == Some(link);
        for lane in [LaneId::High, LaneId::Low] {
            if let Some(frame) = self.take_frame(sh, link, lane, is_small) {
                return Some(self.seal(now, sh, link, frame));
            }
        }
        if is_small && self.ack_is_due(now) && !self.run_goes_first() {
            let frame = self.empty_frame(sh, link)?;
            return Some(self.seal(now, sh, link, frame));
        }
        if let Some(sent) = self.next_run(now, sh, link) {
            return Some(sent);
        }
        if !self.pieces.is_empty()
            && self.bulk == Some(link)
            && let Some(sent) = self.next_piece(now, sh, link)
        {
            return Some(sent);
        }
        self.next_bulk(now, sh, link)
    }

    /// Whether anything at all waits for `link`. Asked after each frame, so it must be cheap.
    #[inline]
    fn may_send(&self, link: LinkId, now: Instant) -> bool {
        let Some(path) = self.paths[link.index()].as_deref() else {
            return false;
        };
        let is_small = self.small == Some(link);
        path.has_waiting()
            || self.session.has_handshake(link)
            || is_small && (self.has_control() || self.ack_is_due(now))
            || !self.bulk_ready.is_empty()
            || !self.pieces.is_empty()
    }

    /// See [`Core::is_pressed`].
    fn is_pressed(&self, credit_len: u32) -> bool {
        let waits = |path: &Path| {
            path.has_waiting() || path.rx.is_awaited() || self.session.has_handshake(path.link)
        };
        self.session.failed.is_some()
            || !self.control.is_empty()
            || self
                .lanes_rx
                .iter()
                .any(|lane| lane.owes_credit(credit_len))
            || !self.bulk_ready.is_empty()
            || !self.pieces.is_empty()
            || self.paths.iter().flatten().any(|path| waits(path))
    }

    /// Whether a run leaves now, by whatever path: credit and acknowledgements ride on it if they
    /// fit, else they follow it. Data does not wait for them, nor they for more than one run.
    fn run_goes_first(&self) -> bool {
        let mut paths = self.paths.iter().flatten();
        let more = self.is_starved();
        !self.ack_waited && paths.any(|path| !path.blocked && path.has_run_to_send(more))
    }

    /// The lane's next frame. The high lane also carries control records, with or without messages.
    #[inline]
    fn take_frame(
        &mut self,
        sh: &mut Shared,
        link: LinkId,
        lane: LaneId,
        is_small: bool,
    ) -> Option<OpenFrame> {
        let control = is_small
            && lane == LaneId::High
            && self.has_control()
            && !(self.control.is_empty() && self.run_goes_first());
        let path = self.paths[link.index()].as_deref_mut()?;
        let place = lane.index();
        if !control && path.open[place].is_none() && path.closed[place].is_empty() {
            return None;
        }
        let numbered = match path.closed[place].front() {
            Some(frame) => frame.numbered,
            None => path.open[place].is_none_or(|open| open.numbered),
        };
        // P3.3
        if numbered && path.window_left() == 0 {
            return None;
        }
        let frame = path.closed[place]
            .pop_front()
            .or_else(|| path.open[place].take());
        match frame {
            Some(frame) => Some(frame),
            None if control => self.empty_frame(sh, link),
            None => None,
        }
    }

    fn empty_frame(&mut self, sh: &mut Shared, link: LinkId) -> Option<OpenFrame> {
        let path = self.paths[link.index()].as_deref_mut()?;
        // Control records and a full acknowledgement fit the smallest buffer.
        let slot = sh.slots.take(2048);
        Some(OpenFrame {
            slot,
            len: path.header_len(),
            len_max: path.header_len(),
            numbered: false,
        })
    }

    /// Appends what rides along, numbers the frame and writes its header.
    #[inline]
    fn seal(&mut self, now: Instant, sh: &mut Shared, link: LinkId, mut frame: OpenFrame) -> Sent {
        let path = self.paths[link.index()].as_deref();
        let (limit, room) =
            path.map_or((0, false), |path| (path.frame_len, path.window_left() > 0));
        self.append_control(sh, &mut frame, limit, room);
        self.append_acks(now, sh, &mut frame, limit);
        if !frame.numbered && self.last_grant.is_some() {
            self.repeat_grant(sh, &mut frame, limit);
        }
        self.ack_waited = false;
        let session = self.session.token_theirs;
        let peer = self.id;
        let frame_len = u16::try_from(frame.len).unwrap_or(u16::MAX);
        let Some(path) = self.paths[link.index()].as_deref_mut() else {
            return Sent::Unnumbered { peer, link, frame };
        };
        let bytes = sh.slots.bytes_mut(frame.slot);
        if !frame.numbered {
            let kind = FrameKind::Unnumbered;
            FrameHeader {
                kind,
                attempt: 0,
                checked: path.checked,
                frame_len,
                packet_num: 0,
                session,
            }
            .emit(bytes);
            return Sent::Unnumbered { peer, link, frame };
        }
        let cargo = Cargo::Slot {
            slot: frame.slot,
            off: 0,
        };
        let packet_num = path.push_inflight(now, cargo, frame.len);
        path.loss.last_sent_at = now;
        let kind = FrameKind::Data;
        FrameHeader {
            kind,
            attempt: 0,
            checked: path.checked,
            frame_len,
            packet_num,
            session,
        }
        .emit(bytes);
        let what = View::Slot {
            slot: frame.slot,
            off: 0,
            len: frame.len,
            segment_len: frame.len,
        };
        Sent::Numbered {
            peer,
            link,
            first: packet_num,
            count: 1,
            what,
        }
    }

    #[inline]
    pub(crate) fn ack_is_due(&self, now: Instant) -> bool {
        self.paths.iter().flatten().any(|path| path.rx.due() <= now)
    }

    /// A frame or chunk for a lossless link. `P8.1`
    #[inline]
    fn next_lossless(&mut self, sh: &mut Shared, link: LinkId) -> Option<Sent> {
        let peer = self.id;
        for lane in [LaneId::High, LaneId::Low] {
            if let Some(mut frame) = self.take_frame(sh, link, lane, true) {
                let limit = crate::path::SHARED_FRAME_LEN_LOSSLESS;
                self.append_control(sh, &mut frame, limit, true);
                return Some(Sent::Lossless {
                    peer,
                    link,
                    lane: lane.index(),
                    frame,
                });
            }
        }
        self.next_chunk(sh, link)
    }

    /// Notes whether frames or acknowledgements are left.
    #[inline]
    pub(crate) fn note_outstanding(&mut self, sh: &mut Shared) {
        let paths = self.paths.iter().flatten();
        let is_outstanding = self.session.up && paths.clone().any(|path| path.has_outstanding());
        if is_outstanding != self.is_outstanding {
            self.is_outstanding = is_outstanding;
            sh.outstanding_count = match is_outstanding {
                true => sh.outstanding_count + 1,
                false => sh.outstanding_count - 1,
            };
        }
    }

    /// Frees everything that waits to be sent or acknowledged.
    pub(crate) fn abandon_tx(&mut self, sh: &mut Shared) {
        for path in self.paths.iter_mut().flatten() {
            for entry in path.inflight.drain(..) {
                if let Cargo::Slot { slot, .. } = entry.cargo {
                    sh.slots.release(slot);
                }
            }
            path.flying = 0;
            path.lost.clear();
            let open = path.open.iter_mut().filter_map(Option::take);
            let closed = path.closed.iter_mut().flat_map(|closed| closed.drain(..));
            for frame in open.chain(closed) {
                sh.slots.release(frame.slot);
            }
            for run in path.runs.drain(..) {
                sh.slots.release(run.slot);
            }
        }
        self.control.clear();
        self.last_grant = None;
        self.bulk_ready.clear();
        self.pieces.clear();
        self.note_outstanding(sh);
    }
}

impl Path {
    /// The next lost frame, or run of lost fragments, to be sent again. `P3.1`
    fn next_lost(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        peer: PeerId,
        session: u64,
    ) -> Option<Sent> {
        let link = self.link;
        while let Some(num) = self.lost.pop_front() {
            let Some(entry) = self.entry_mut(num) else {
                continue;
            };
            if entry.state != TxState::Lost {
                continue;
            }
            entry.state = TxState::Sent;
            entry.sent_at = now;
            entry.attempt = (entry.attempt + 1).min(ATTEMPT_MAX);
            let (cargo, len, attempt) = (entry.cargo, usize::from(entry.len), entry.attempt);
            self.flying += 1;
            let checked = self.checked;
            let what = match cargo {
                Cargo::Slot { slot, off } => {
                    let off = off as usize;
                    FrameHeader::set_attempt(&mut sh.slots.bytes_mut(slot)[off..], attempt);
                    View::Slot {
                        slot,
                        off,
                        len,
                        segment_len: len,
                    }
                }
                Cargo::Fragment { transfer, index } => sh
                    .fragment_view(transfer, index, num, (attempt, checked), len)
                    .unwrap_or_else(|| sh.empty_view(session, num, (attempt, checked))),
                Cargo::Piece {
                    transfer,
                    index,
                    within,
                } => sh
                    .piece_view(transfer, (index, within), num, (attempt, checked), len)
                    .unwrap_or_else(|| sh.empty_view(session, num, (attempt, checked))),
                // P3.12
                Cargo::Nothing => sh.empty_view(session, num, (attempt, checked)),
            };
            self.on_repaired(now);
            sh.ctx.counters_mut().retransmits += 1;
            return Some(Sent::Numbered {
                peer,
                link,
                first: num,
                count: 1,
                what,
            });
        }
        None
    }
}
