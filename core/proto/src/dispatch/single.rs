// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortcut for a single message between hosts: from the caller's memory into frames that are sent
//! immediately, past the queues; and for its acknowledgement.
//!
//! Like all shortcuts, it changes nothing if it does not apply.

use super::list;
use crate::peer::single::Single;
use crate::{Admitted, Core, Instant, LinkId, PeerId, SendSpec, Transmit};
use portolan_wire::{ACK_FIXED_LEN, Ack};

impl Core {
    /// Returns a message that may be sent now with [`Core::send_single`]. Its session is open, on a
    /// network, and nothing waits there before it.
    #[inline]
    #[must_use]
    pub fn single<'a>(
        &self,
        peer: PeerId,
        spec: &'a SendSpec,
        bytes: &'a [u8],
    ) -> Option<Single<'a>> {
        let peer = self.peers.get(peer.index()).and_then(Option::as_deref)?;
        peer.single(&self.sh.ctx, spec, bytes)
    }

    /// Accepts a message that [may](Core::single) be sent now, if the core was not changed since,
    /// and returns its frames: as many as the window and a call take. The outcome is reported as
    /// for [`Core::poll_transmit`].
    #[inline]
    pub fn send_single(&mut self, now: Instant, single: &Single<'_>) -> Option<Transmit<'_>> {
        self.release_sent();
        let peer = single.peer();
        let state = self.peers.get_mut(peer.index())?.as_deref_mut()?;
        let outgoing = state.send_single(now, &mut self.sh, single)?;
        let counters = self.sh.ctx.counters_mut();
        counters.messages_sent += 1;
        counters.frames_sent += 1;
        self.pending_counts.update(state.note_unacknowledged());
        match state.has_left(outgoing.link) {
            true => list(&mut self.ready, &mut self.timed, state),
            false if state.mark_timed() => self.timed.push(peer),
            false => {}
        }
        self.sent = Some((peer, outgoing));
        Some(self.view(peer, &outgoing))
    }

    /// Takes the next record of an admitted frame, if it is an acknowledgement of everything in
    /// flight on its path and nothing waits for it. `head` is the argument that was passed to
    /// [`Core::admit`].
    #[inline]
    pub fn take_ack(&mut self, now: Instant, frame: &mut Admitted, head: &[u8]) -> bool {
        let end = head.len().min(frame.total_len);
        let Some(ack) = head.get(frame.at..end).and_then(Ack::peek) else {
            return false;
        };
        if !self.on_ack_of_all(now, frame.from, &ack) {
            return false;
        }
        frame.at += ACK_FIXED_LEN;
        if frame.is_done() {
            self.list_if_due(frame.from);
        }
        true
    }

    /// Applies an acknowledgement without a bitmap.
    #[inline]
    pub(super) fn on_plain_ack(&mut self, now: Instant, from: PeerId, ack: &Ack) {
        if !self.on_ack_of_all(now, from, ack)
            && let Err(reason) = self.on_ack(now, from, ack, &[])
        {
            self.sh.ctx.drop_for(reason);
        }
    }

    /// Applies an acknowledgement of everything in flight on its path, if nothing waits for it.
    /// Returns false for any other acknowledgement.
    #[inline]
    fn on_ack_of_all(&mut self, now: Instant, from: PeerId, ack: &Ack) -> bool {
        let peer = self.peers.get_mut(from.index());
        let (Some(Some(peer)), Some(link)) = (peer, LinkId::from_u8(ack.path)) else {
            return false;
        };
        // Its delay is meaningless then.
        if peer.is_starved() || self.sh.ctx.poll_gap().covers(now) {
            return false;
        }
        let path = peer.paths_mut().get_mut(link);
        path.is_some_and(|path| path.on_ack_of_all(now, ack, &mut self.sh.slots))
    }

    /// Puts `peer` into the queue of peers with something to transmit, if it has anything.
    #[inline]
    pub(super) fn list_if_due(&mut self, peer: PeerId) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        if state.has_tx() {
            return self.touch_for_credit(peer);
        }
        if state.mark_timed() {
            self.timed.push(peer);
        }
        self.pending_counts.update(state.update_pending_work());
    }
}
