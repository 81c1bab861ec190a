// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission: returns frames to send, and handles their outcome.

use crate::path::outgoing::{Bytes, Outgoing};
use crate::{Core, Instant, LinkId, Payload, PeerId, PendingWork};
use alloc::vec;
use alloc::vec::Vec;

/// Frame, or run of frames, for a link to send now.
#[derive(Debug)]
pub enum Transmit<'a> {
    /// One frame.
    Frame {
        /// Destination.
        peer: PeerId,
        /// Link to use.
        link: LinkId,
        /// Frame.
        bytes: &'a [u8],
    },
    /// Consecutive frames of `segment_len` bytes; the last may be shorter.
    Run {
        /// Destination.
        peer: PeerId,
        /// Link to use.
        link: LinkId,
        /// Frames.
        bytes: &'a [u8],
        /// Further frames, if any. Then all frames in `bytes` have the full length.
        more: &'a [u8],
        /// Length in bytes of each frame but the last.
        segment_len: usize,
    },
    /// Headers from the core, and payload from the buffers of operations.
    Bulk {
        /// Destination.
        peer: PeerId,
        /// Link to use.
        link: LinkId,
        /// Payload parts in sending order, usually one. All but the last are whole fragments.
        payload: &'a [Payload],
        /// Headers, one per fragment, in one piece.
        headers: &'a [u8],
        /// Length of each header in bytes.
        header_len: usize,
        /// Payload length in bytes of each fragment but the last.
        fragment_len: usize,
    },
    /// Eager message for the peer's stream, in one record.
    Message {
        /// Destination.
        peer: PeerId,
        /// Head of the record.
        head: &'a [u8],
        /// Payload, which stays unchanged until the peer has acknowledged it.
        payload: &'a [u8],
    },
}

impl<'a> Transmit<'a> {
    /// Returns the destination and the link.
    #[must_use]
    pub fn destination(&self) -> (PeerId, LinkId) {
        match *self {
            Transmit::Frame { peer, link, .. }
            | Transmit::Run { peer, link, .. }
            | Transmit::Bulk { peer, link, .. } => (peer, link),
            Transmit::Message { peer, .. } => (peer, LinkId::STREAM),
        }
    }

    /// Returns the parts of operations' buffers in this transmit, in sending order.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [Payload] {
        match *self {
            Transmit::Bulk { payload, .. } => payload,
            _ => &[],
        }
    }

    /// Splits the transmit into one for each part of its [payload](Transmit::payload), with the
    /// matching headers.
    pub fn each_payload(&self) -> impl Iterator<Item = Transmit<'a>> {
        let (peer, link) = self.destination();
        let (mut headers, header_len, fragment_len) = match *self {
            Transmit::Bulk {
                headers,
                header_len,
                fragment_len,
                ..
            } => (headers, header_len, fragment_len),
            _ => (&[][..], 0, 1),
        };
        self.payload().chunks(1).map(move |payload| {
            let count = payload[0].len.div_ceil(fragment_len);
            let (own, others) = headers.split_at(count * header_len);
            headers = others;
            Transmit::Bulk {
                peer,
                link,
                payload,
                headers: own,
                header_len,
                fragment_len,
            }
        })
    }

    /// Returns the frames as they appear on a wire, with `payload` as the [`Transmit::payload`].
    /// For simulated links.
    #[must_use]
    pub fn frames(&self, payload: &[u8]) -> Vec<Vec<u8>> {
        match *self {
            Transmit::Frame { bytes, .. } => vec![bytes.to_vec()],
            Transmit::Run {
                bytes,
                more,
                segment_len,
                ..
            } => {
                let frames = bytes.chunks(segment_len).chain(more.chunks(segment_len));
                frames.map(<[u8]>::to_vec).collect()
            }
            Transmit::Bulk {
                headers,
                header_len,
                fragment_len,
                ..
            } => {
                let parts = payload.chunks(fragment_len);
                let headers = headers.chunks(header_len);
                headers.zip(parts).map(|(h, p)| [h, p].concat()).collect()
            }
            Transmit::Message { head, payload, .. } => vec![[head, payload].concat()],
        }
    }
}

impl Core {
    /// Returns the next frame to send. The next call confirms that the link accepted this one.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.release_sent();
        while let Some(&id) = self.ready.front() {
            let Core {
                peers,
                sh,
                pending_counts,
                ..
            } = self;
            let peer = peers.get_mut(id.index()).and_then(Option::as_deref_mut);
            if let Some(peer) = peer {
                if let Some(outgoing) = peer.next_outgoing(now, sh) {
                    sh.ctx.counters_mut().frames_sent += 1;
                    self.sent = Some((id, outgoing.link, outgoing.kind));
                    return Some(self.view(id, &outgoing));
                }
                peer.unmark_queued();
                if peer.is_starved() {
                    peer.wake_starved(sh);
                }
                pending_counts.update(peer.update_pending_work());
            }
            self.ready.pop_front();
        }
        self.has_staged = false;
        None
    }

    /// Returns the destination of the next frame from [`Core::poll_transmit`], if there is one.
    #[inline]
    #[must_use]
    pub fn next_peer(&self) -> Option<PeerId> {
        self.ready.front().copied()
    }

    /// Moves the peer of the last transmit behind all other peers that have something to send.
    #[inline]
    pub fn yield_peer(&mut self) {
        if self.ready.len() > 1 {
            self.ready.rotate_left(1);
        }
    }

    /// Returns the work that may be left if the program makes no further call. Updated when frames
    /// are polled.
    #[inline(always)]
    #[must_use]
    pub fn pending_work(&self) -> PendingWork {
        match self.ready.is_empty() && self.pending_counts.any == 0 {
            true => PendingWork::None,
            false => self.some_pending_work(),
        }
    }

    #[inline(always)]
    fn some_pending_work(&self) -> PendingWork {
        let waits = self.has_staged
            || self.pending_counts.unsent > 0
            || self.sh.transfers.count() > 0
            || self.sh.remote.outstanding_count() > 0;
        let has_late_done = || self.ready.iter().any(|&peer| self.has_late_done(peer));
        let must_leave = || self.has_urgent_tx() || has_late_done();
        match waits || !self.ready.is_empty() && must_leave() {
            true => PendingWork::Unsent,
            false => PendingWork::Unacknowledged,
        }
    }

    /// Returns true if the completion of a transfer from `peer` waits for the program's next call.
    #[must_use]
    pub fn has_late_done(&self, peer: PeerId) -> bool {
        match self.peers.get(peer.index()) {
            Some(Some(peer)) => peer.has_late_done(),
            _ => false,
        }
    }

    /// Checks every peer with a timer, so that [`Core::pending_work`] is up to date.
    pub fn refresh_pending_work(&mut self) {
        for id in &self.timed {
            if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                self.pending_counts.update(peer.update_pending_work());
            }
        }
    }

    /// Returns true if anything to send must not wait for the program's next call: everything
    /// except acknowledgements and credit that the sender does not need yet.
    #[inline(never)]
    #[must_use]
    pub fn has_urgent_tx(&self) -> bool {
        let credit_len = self.sh.ctx.credit_len();
        self.ready
            .iter()
            .any(|id| match self.peers.get(id.index()) {
                Some(Some(peer)) => peer.has_urgent_tx(credit_len),
                _ => false,
            })
    }

    /// Reports that the link had no room for the last transmit. It is returned again after
    /// [`Core::link_ready`].
    pub fn transmit_refused(&mut self) {
        self.sh.ctx.counters_mut().link_full += 1;
        let Some((id, link, kind)) = self.sent.take() else {
            return;
        };
        if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
            peer.take_back(&mut self.sh, link, kind);
        }
    }

    /// Reports that `link` may have room again, so refused transmits are returned again.
    pub fn link_ready(&mut self, link: LinkId) {
        for index in 0..self.timed.len() {
            let id = self.timed[index];
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                continue;
            };
            let path = peer.paths_mut().get_mut(link);
            let was_blocked = match path {
                Some(path) => path.unblock(),
                None => link == LinkId::STREAM && peer.stream_mut().unblock(),
            };
            if was_blocked {
                self.touch(id);
            }
        }
    }

    /// Frees the buffers that were kept only for the last transmit, which has been sent.
    #[inline]
    pub(super) fn release_sent(&mut self) {
        let kept = self.sent.as_ref().and_then(|(.., kind)| kind.kept_slot());
        if let Some(slot) = kept {
            self.sh.slots.release(slot);
        }
        self.sent = None;
    }

    #[inline]
    pub(super) fn view(&self, peer: PeerId, outgoing: &Outgoing) -> Transmit<'_> {
        let link = outgoing.link;
        let slots = &self.sh.slots;
        match outgoing.bytes {
            Bytes::Scratch => {
                let bytes = self.sh.scratch.bytes();
                Transmit::Frame { peer, link, bytes }
            }
            Bytes::Slot {
                slot,
                off,
                len,
                segment_len,
            } => {
                let bytes = &slots.bytes(slot)[off..off + len];
                if len <= segment_len {
                    return Transmit::Frame { peer, link, bytes };
                }
                Transmit::Run {
                    peer,
                    link,
                    bytes,
                    more: &[],
                    segment_len,
                }
            }
            Bytes::Slots {
                slots: [first, second],
                off,
                lens,
                segment_len,
            } => Transmit::Run {
                peer,
                link,
                bytes: &slots.bytes(first)[off as usize..][..lens[0] as usize],
                more: &slots.bytes(second)[..lens[1] as usize],
                segment_len: segment_len as usize,
            },
            Bytes::Message { slot, len } => Transmit::Message {
                peer,
                head: self.sh.scratch.bytes(),
                payload: &slots.bytes(slot)[..len],
            },
            Bytes::Gathered {
                header_len,
                fragment_len,
            } => Transmit::Bulk {
                peer,
                link,
                payload: self.sh.scratch.payload(),
                headers: self.sh.scratch.bytes(),
                header_len,
                fragment_len,
            },
        }
    }
}
