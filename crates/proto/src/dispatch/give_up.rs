// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer is given up: what it has sent and this side has whole stays, and is delivered; what can
//! no longer be completed ends (`P9.6`, `P9.7`).

use crate::matching::remains::Remains;
use crate::mem::slot::SlotPool;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Cause, Core, Dest, Event, HeldId, OpError, PeerId, PortId};
use alloc::vec::Vec;
use portolan_wire::{LaneId, Record, Records};

impl Core {
    /// Gives `peer` up: its operations fail with `cause`, and nothing is sent to it any more.
    /// Messages that have arrived from it are still delivered. `P9.6`, `P9.7`
    pub fn fail_peer(&mut self, peer: PeerId, cause: Cause) {
        self.awaken(peer);
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        if state.session.failed.is_some() {
            return;
        }
        state.session.failed = Some(cause);
        state.session.up = false;
        let unheard = state.has_unheard(&self.sh.slots);
        let error = OpError::PeerGone(peer, cause);
        self.abandon(peer, error);
        self.sh.ctx.emit(Event::PeerFailed {
            peer,
            cause,
            unheard,
        });
        // What had been granted to it may be granted to others, who may say nothing until then.
        self.schedule_grants();
    }

    /// Messages from `peer` that have arrived and wait for a receive: how many at each port, per
    /// lane. They outlive its session.
    #[must_use]
    pub fn unread(&mut self, peer: PeerId) -> Vec<(PortId, LaneId, usize)> {
        self.sh.matching.unread(peer)
    }

    /// Ends everything that belongs to a peer's session.
    fn abandon(&mut self, peer: PeerId, error: OpError) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        state.abandon_tx(&mut self.sh);
        let mut remains = Remains::default();
        // From the oldest to the youngest: what waits at a port was taken there after what its lane
        // has matched, and before the rest of its lane.
        for lane in LaneId::ALL {
            state.end_matched(&mut self.sh, lane, &mut remains);
        }
        let Shared { matching, held, .. } = &mut self.sh;
        matching.end_waiting(peer, error, held, &mut remains);
        for lane in LaneId::ALL {
            state.end_unmatched(&mut self.sh, lane, &mut remains);
        }
        let Shared { transfers, ctx, .. } = &mut self.sh;
        transfers.abandon(ctx, peer, error);
        self.sh.remote.abandon(&mut self.sh.ctx, peer, error);
        self.sh.start_late();
        self.sh.forget_held(&remains.held);
        // Receives that are posted take what waited behind messages of other ports.
        self.serve_unblocked();
        remains.ops.extend(self.sh.matching.take_sourced(peer));
        for op in remains.ops {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }
}

impl Shared {
    /// Frees the memory of messages, and forgets what of the frame at hand was to be placed there.
    pub(crate) fn forget_held(&mut self, held: &[HeldId]) {
        if held.is_empty() {
            return;
        }
        self.ctx.retain_events(|event| match event {
            Event::Place {
                dest: Dest::Held(id, _),
                ..
            } => !held.contains(id),
            _ => true,
        });
        for &id in held {
            self.held.release(id);
        }
    }
}

impl Peer {
    /// Whether a message whose send has ended is not known to have arrived.
    fn has_unheard(&self, slots: &SlotPool) -> bool {
        let mut paths = self.paths.iter();
        paths.any(|path| path.has_unheard(slots, holds_message))
    }
}

/// Whether a frame holds a message, or a part of one, that was accepted from the program. Requests to
/// send, and those for remote memory, belong to operations that tell of their end themselves.
fn holds_message(frame: &[u8], header_len: usize) -> bool {
    let records = Records::new(frame, header_len, frame.len());
    records
        .map_while(Result::ok)
        .any(|(record, _)| match record {
            Record::Message(message) => !message.best_effort,
            Record::Fragment(_) => true,
            _ => false,
        })
}
