// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single messages between hosts: from the caller's memory into frames that are sent at once, past
//! the queues; and their acknowledgement.
//!
//! Neither changes anything if it does not apply.

use super::list;
use crate::path::outgoing::OutgoingKind;
use crate::shared::Shared;
use crate::{Admitted, Core, Instant, LinkId, PeerId, Refused, SendSpec, SingleFrame, Transmit};
use portolan_wire::{ACK_FIXED_LEN, Ack};

impl Core {
    /// Sends a message at once in a frame of its own, if its session is open on a network and
    /// nothing waits there before it. Returns the frame. Its outcome is reported as for
    /// [`Core::poll_transmit`].
    ///
    /// # Errors
    /// [`Refused::TooLong`] for a message that needs several frames ([`Core::submit_run`]);
    /// [`Refused::Busy`] or [`Refused::Unknown`] if the message cannot be sent now. The state is
    /// then unchanged.
    #[inline]
    pub fn submit(
        &mut self,
        now: Instant,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<SingleFrame<'_>, Refused> {
        self.release_sent();
        let Core {
            peers, sh, timed, ..
        } = self;
        let Some(Some(state)) = peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let Shared { ctx, slots, .. } = sh;
        let frame = state.send_frame(now, (ctx.poll_gap(), slots), spec, bytes)?;
        let counters = ctx.counters_mut();
        counters.messages_sent += 1;
        counters.frames_sent += 1;
        self.pending_counts.update(state.note_unacknowledged());
        if state.mark_timed() {
            timed.push(peer);
        }
        let (first, count) = (frame.num(), 1);
        self.sent = Some((peer, frame.link, OutgoingKind::Numbered { first, count }));
        Ok(frame)
    }

    /// Sends a message of several frames as [`Core::submit`] does. Returns as many of its frames as
    /// the window and a call take, or the whole message for a stream. After the transmit, the caller
    /// must call [`Core::keep_message`] before any other method.
    ///
    /// # Errors
    /// As [`Core::submit`]; [`Refused::TooLong`] for a message that needs a rendezvous.
    pub fn submit_run<'a>(
        &'a mut self,
        now: Instant,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &'a [u8],
    ) -> Result<Transmit<'a>, Refused> {
        self.release_sent();
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return Err(Refused::Unknown);
        };
        let run = state.send_run(now, &mut self.sh, spec, bytes)?;
        let counters = self.sh.ctx.counters_mut();
        counters.messages_sent += 1;
        counters.frames_sent += 1;
        self.pending_counts.update(state.note_unacknowledged());
        if state.has_left(run.link) {
            list(&mut self.ready, &mut self.timed, state);
        } else if state.mark_timed() {
            self.timed.push(peer);
        }
        self.sent = Some((peer, run.link, run.kind));
        Ok(match self.view(peer, &run) {
            Transmit::Message { peer, head, .. } => Transmit::Message {
                peer,
                head,
                payload: bytes,
            },
            frames => frames,
        })
    }

    /// Keeps a copy of `bytes` if [`Core::submit_run`] has returned them for a stream. The copy is
    /// made after the message has left, so that it arrives earlier. `P15.11`
    pub fn keep_message(&mut self, bytes: &[u8]) {
        if let Some((peer, _, OutgoingKind::Message)) = self.sent
            && let Some(Some(state)) = self.peers.get_mut(peer.index())
        {
            state.keep_message(&mut self.sh.slots, bytes);
        }
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
            return self.touch(peer);
        }
        if state.mark_timed() {
            self.timed.push(peer);
        }
        self.pending_counts.update(state.update_pending_work());
    }
}
