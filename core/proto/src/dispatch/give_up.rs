// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer is given up: what it has sent and this side has whole stays, and is delivered; what can
//! no longer be completed ends (`P9.6`, `P9.7`).

use crate::matching::remains::Remains;
use crate::mem::slot::SlotPool;
use crate::path::Paths;
use crate::shared::Shared;
use crate::{Cause, Core, Event, OpError, PeerId, PortId};
use alloc::vec::Vec;
use portolan_wire::{LaneId, Record, Records};

impl Core {
    /// Gives `peer` up: its operations fail with `cause`, and nothing is sent to it any more.
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
        let unheard = has_unheard(state.paths(), &self.sh.slots);
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
        self.left_counts.update(state.note_left());
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        let mut remains = Remains::default();
        // From the oldest to the youngest: what waits at a port was taken there after what its lane
        // has matched, and before the rest of its lane.
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
        // Receives that are posted take what waited behind messages of other ports.
        self.serve_unblocked();
        remains.ops.extend(self.sh.matching.take_sourced(peer));
        for op in remains.ops {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }
}

impl Core {
    /// Returns whether a message to `peer` whose send has ended is not known to have arrived. Answers to
    /// requests for remote memory do not count. `P2.15`
    #[must_use]
    pub fn owes_messages(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.index()).and_then(Option::as_deref);
        state.is_some_and(|state| has_unheard(state.paths(), &self.sh.slots))
    }
}

/// Whether a message whose send has ended is not known to have arrived.
fn has_unheard(paths: &Paths, slots: &SlotPool) -> bool {
    let mut paths = paths.iter();
    paths.any(|path| path.has_unheard(slots, holds_message))
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
