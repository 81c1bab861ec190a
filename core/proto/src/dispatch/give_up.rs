// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failure of a peer. Messages that have arrived completely are kept and delivered; everything that
//! can no longer complete fails (`P9.6`, `P9.7`).

use crate::matching::remains::Remains;
use crate::mem::slot::SlotPool;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Cause, Core, Event, OpError, PeerId, PortId};
use alloc::vec::Vec;
use portolan_wire::{LaneId, Record, Records};

impl Core {
    /// Marks `peer` as failed: its operations fail with `cause`, and nothing more is sent to it.
    /// Messages that have arrived from it are still delivered. `P9.6`, `P9.7`
    pub fn fail_peer(&mut self, peer: PeerId, cause: Cause) {
        self.revive(peer);
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        if state.session().failure().is_some() {
            return;
        }
        state.session_mut().fail(cause);
        let has_unacked = has_unacked_messages(state, &self.sh.slots);
        let error = OpError::PeerFailed(peer, cause);
        self.abandon(peer, error);
        self.sh.ctx.emit(Event::PeerFailed {
            peer,
            cause,
            has_unacked,
        });
        // The failed peer's grants may go to other peers, which may send nothing until then.
        self.schedule_grants();
    }

    /// Returns the number of arrived messages from `peer` that wait for a receive, per port and
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
        self.pending_counts.update(state.update_pending_work());
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        let mut remains = Remains::default();
        // From the oldest to the newest: a message at a port was put there after those its lane has
        // matched, and before the rest of its lane.
        for lane in LaneId::ALL {
            lanes.end_matched(env, lane, &mut remains);
        }
        let Shared { matching, held, .. } = &mut *env.sh;
        matching.end_waiting(peer, error, held, &mut remains);
        for lane in LaneId::ALL {
            lanes.end_unmatched(env, lane, &mut remains);
        }
        lanes.end_incomplete(env);
        let Shared { transfers, ctx, .. } = &mut self.sh;
        transfers.abandon(ctx, peer, error);
        for event in self.sh.matching.plain_order().abandon(peer) {
            self.sh.ctx.emit(event);
        }
        self.sh.remote.abandon(&mut self.sh.ctx, peer, error);
        self.sh.start_late();
        self.sh.forget_held(&remains.held);
        // Posted receives take messages that waited behind messages of other ports.
        self.serve_unblocked();
        remains.ops.extend(self.sh.matching.take_sourced(peer));
        for op in remains.ops {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }
}

impl Core {
    /// Returns true if a message to `peer` with a completed send may not have arrived. Answers to
    /// requests for remote memory do not count. `P2.15`
    #[must_use]
    pub fn has_unacked_messages(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.index()).and_then(Option::as_deref);
        state.is_some_and(|state| has_unacked_messages(state, &self.sh.slots))
    }
}

/// Returns true if a message with a completed send may not have arrived.
fn has_unacked_messages(peer: &Peer, slots: &SlotPool) -> bool {
    let mut paths = peer.paths().iter();
    peer.stream().eager().has_kept()
        || paths.any(|path| path.has_unacked_messages(slots, holds_message))
}

/// Returns true if a frame contains a message of the program, or a part of one. Requests to send
/// and requests for remote memory belong to operations that report their own completion.
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
