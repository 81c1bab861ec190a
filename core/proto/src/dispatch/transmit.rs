// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking for frames to send, and saying what became of them.

use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::{Core, Instant, Left, LinkId, Payload, PeerId};
use alloc::vec;
use alloc::vec::Vec;

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
    /// Headers here, payload from the buffers of operations.
    Bulk {
        /// To whom.
        peer: PeerId,
        /// By which link.
        link: LinkId,
        /// The payload, in the order of sending: whole fragments each, but for the last. Mostly one.
        payload: &'a [Payload],
        /// Headers, one per fragment, behind one another.
        headers: &'a [u8],
        /// Bytes of each header.
        header_len: usize,
        /// Bytes of payload behind each header but the last.
        fragment_len: usize,
    },
}

impl<'a> Transmit<'a> {
    /// To whom, and by which link.
    #[must_use]
    pub fn way(&self) -> (PeerId, LinkId) {
        match *self {
            Transmit::Frame { peer, link, .. }
            | Transmit::Run { peer, link, .. }
            | Transmit::Bulk { peer, link, .. } => (peer, link),
        }
    }

    /// The parts of operations' buffers that leave with it, in the order of sending.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [Payload] {
        match *self {
            Transmit::Bulk { payload, .. } => payload,
            _ => &[],
        }
    }

    /// A transmit for each part of its [payload](Transmit::payload), with the headers that go with it.
    pub fn each_payload(&self) -> impl Iterator<Item = Transmit<'a>> {
        let (peer, link) = self.way();
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

    /// Its frames one by one, as a link would put them on a wire, with the [`Transmit::payload`]: for
    /// links that are simulated.
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
        }
    }
}

impl Core {
    /// The next frame to send, or `None`. Asking for the next one says that the link took this one.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.release_sent();
        while let Some(&id) = self.ready.front() {
            let Core {
                peers,
                sh,
                left_counts,
                ..
            } = self;
            let peer = peers.get_mut(id.index()).and_then(Option::as_deref_mut);
            if let Some(peer) = peer {
                if let Some(outgoing) = peer.next_outgoing(now, sh) {
                    sh.ctx.counters_mut().frames_sent += 1;
                    self.sent = Some((id, outgoing));
                    return Some(self.view(id, &outgoing));
                }
                peer.unmark_queued();
                if peer.is_starved() {
                    peer.wake_starved(sh);
                }
                left_counts.update(peer.note_left());
            }
            self.ready.pop_front();
        }
        None
    }

    /// Whose frames [`Core::poll_transmit`] hands out next, if it has any.
    #[inline]
    #[must_use]
    pub fn next_peer(&self) -> Option<PeerId> {
        self.ready.front().copied()
    }

    /// Lets all others that have something to send go before the one whose frame was handed out last.
    #[inline]
    pub fn yield_peer(&mut self) {
        if self.ready.len() > 1 {
            self.ready.rotate_left(1);
        }
    }

    /// What may be left to do although the program asks for nothing. Seen when frames are asked for.
    #[inline]
    #[must_use]
    pub fn left(&self) -> Left {
        if self.ready.is_empty() && self.left_counts.any == 0 {
            return Left::Nothing;
        }
        let waits = self.left_counts.unsent > 0
            || self.sh.transfers.count() > 0
            || self.sh.remote.outstanding_count() > 0;
        match waits || self.has_urgent_tx() {
            true => Left::Unsent,
            false => Left::Unacknowledged,
        }
    }

    /// Looks at every peer with a timer, so that [`Core::left`] says how it is now.
    pub fn look_for_left(&mut self) {
        for id in &self.timed {
            if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                self.left_counts.update(peer.note_left());
            }
        }
    }

    /// Whether anything waits that should not wait for the program's next call: all but
    /// acknowledgements for which the sender has no need yet.
    #[must_use]
    pub fn has_urgent_tx(&self) -> bool {
        let credit_len = self.sh.ctx.credit_len();
        let is_urgent = |id: &PeerId| match self.peers.get(id.index()) {
            Some(Some(peer)) => peer.has_urgent_tx(credit_len),
            _ => false,
        };
        // Mostly the list has one peer, or none.
        match self.ready.front() {
            None => false,
            Some(first) => is_urgent(first) || self.ready.iter().skip(1).any(is_urgent),
        }
    }

    /// The link had no room for the last transmit: it will be handed out again once
    /// [`Core::link_ready`] was called.
    pub fn transmit_refused(&mut self) {
        self.sh.ctx.counters_mut().link_full += 1;
        let Some((id, sent)) = self.sent.take() else {
            return;
        };
        if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
            peer.take_back(&mut self.sh, &sent);
        }
    }

    /// Links may have room again: refused transmits are handed out once more.
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

    /// The last transmit left: what lived for it alone is free.
    #[inline]
    pub(super) fn release_sent(&mut self) {
        if let Some((_, sent)) = self.sent.take() {
            match sent.kind {
                OutgoingKind::Lossless { frame, .. } => self.sh.slots.release(frame.slot),
                OutgoingKind::Unnumbered { slot } => self.sh.slots.release(slot),
                OutgoingKind::BestEffort(run) => self.sh.slots.release(run.slot()),
                _ => {}
            }
        }
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
