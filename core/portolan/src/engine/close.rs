// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing: what was sent arrives first (`P2.9`).
//!
//! The one invariant: a message whose send has ended is acknowledged, or committed to a ring that its
//! receiver reads on, before this process ends; or its peer is named in the result.

use super::{Awaited, Engine, Inner, Waiter};
use crate::error::{Error, Reason};
use crate::ops::{OpKind, Owner};
use crate::raw::RawWhat;
use portolan_proto::{Cause, Instant, OpId, PeerId, PeerStatus};
use std::time::Duration;

/// How long a closing process waits for receivers to ask for what was begun to be sent and nobody
/// has waited for: such a send has not ended, and nothing was promised of it.
const BEGUN_LINGER: Duration = Duration::from_secs(1);

/// The same for what peers in this very process have not received: its program cannot let them work
/// meanwhile, unless it has threads for them.
const SELF_LINGER: Duration = Duration::from_secs(1);

/// How long a peer that no session was opened with is asked whether it lives: twenty questions.
const STRANGER_LINGER: Duration = Duration::from_secs(1);

/// Between looks at links that have not told a peer of this process yet, for want of room in its
/// backlog.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);

/// A peer that may not have got all that was sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undelivered {
    peer: PeerId,
    cause: Cause,
}

impl Engine {
    /// Waits until everything that was sent has arrived at the peers that live, however long they
    /// take; what nobody here will receive any more is thrown away meanwhile, so that peers which
    /// close as well can end.
    ///
    /// # Errors
    /// [`Error::Undelivered`] for a peer that may live and may not have got what was promised.
    pub(crate) fn close(&mut self, waiter: &mut Waiter) -> Result<(), Error> {
        let begin = self.inner.read_clock();
        self.inner.core.discard_unread();
        self.drain();
        self.flush();
        let about = self.inner.owed_peers(begin);
        loop {
            let look_at = self.inner.now + STRANGER_LINGER;
            waiter.until(self, &about, Awaited::Close, |inner| {
                !inner.owes(begin) || inner.now >= look_at
            });
            if self.inner.owes(begin) {
                self.give_up_the_unheard(begin);
                if self.inner.owes_answers_only(begin) {
                    self.inner.core.stop_serving();
                }
                continue;
            }
            if !self.links.has_unsaid() {
                break;
            }
            std::thread::sleep(CONNECT_PAUSE);
            self.look_around();
        }
        let now = self.inner.read_clock();
        self.inner.core.flush_acks(now);
        self.flush();
        self.inner.promise_kept()
    }
}

impl Engine {
    /// Gives up peers that no session was opened with, and that have not answered since `begin`
    /// whether they live: nobody may ever have been there.
    fn give_up_the_unheard(&mut self, begin: Instant) {
        // Their agents tell of their ends, and they may be starved until then.
        if self.inner.patience.has_agents {
            return;
        }
        for peer in self.inner.owed_peers(begin) {
            let seen = self.liveness.as_ref().map(|liveness| liveness.seen(peer));
            let heard = seen.max(self.inner.core.last_heard(peer));
            let is_up = self.inner.core.peer_status(peer) == PeerStatus::Up;
            if !is_up && seen.is_some() && heard < Some(begin) {
                self.give_up(peer, Cause::NoPath);
                self.inner.note_undelivered(peer, Cause::NoPath);
            }
        }
    }
}

impl Inner {
    /// Sends that have not ended and that a process that closes waits for since `begin`: the peer and the
    /// operation. Among the operations are regions that peers read.
    fn owed_sends(&self, begin: Instant) -> impl Iterator<Item = (PeerId, OpId)> + '_ {
        let begun = self.now.since(begin) < BEGUN_LINGER;
        let is_owed = move |op: OpId| begun || self.is_promised(op);
        let pending = self.pending.iter().filter(move |&(_, op)| is_owed(op));
        let sending = self.core.unfinished_transfers();
        let sending = sending.filter(move |&(_, op, has_begun)| has_begun || is_owed(op));
        pending.chain(sending.map(|(peer, op, _)| (peer, op)))
    }

    /// Tests whether only answers to requests for remote memory keep this process. A peer that repeats
    /// such requests would keep it for as long as the peer lives.
    fn owes_answers_only(&self, begin: Instant) -> bool {
        let is_region = |op| matches!(self.ops.kind(op), Some(OpKind::Region));
        let mut peers = self.core.unfinished_peers();
        self.owed_sends(begin).all(|(_, op)| is_region(op))
            && !peers.any(|peer| self.core.owes_messages(peer))
    }

    /// Peers that have not got everything yet for which a process that closes waits since `begin`.
    pub(super) fn owed_peers(&self, begin: Instant) -> Vec<PeerId> {
        let own = self.now.since(begin) < SELF_LINGER;
        let mut peers: Vec<PeerId> = self
            .owed_sends(begin)
            .map(|(peer, _)| peer)
            .chain(self.core.unfinished_peers())
            .filter(|&peer| own || !self.table.is_in_this_process(peer))
            .collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn owes(&self, begin: Instant) -> bool {
        !self.owed_peers(begin).is_empty()
    }

    /// Whether a send that has not ended was promised all the same, since nobody can wait for it: a
    /// copy that the library has made.
    fn is_promised(&self, op: OpId) -> bool {
        match self.ops.owner(op) {
            Some(Owner::Caller(raw)) => matches!(raw.what, RawWhat::Silent),
            Some(Owner::Nobody) => true,
            Some(Owner::Request(_)) | None => false,
        }
    }

    /// Notes that `peer` was given up although it may live, and may miss what it was promised.
    pub(crate) fn note_undelivered(&mut self, peer: PeerId, cause: Cause) {
        let is_known = self.undelivered.iter().any(|known| known.peer == peer);
        // Nobody is left there to ask for it.
        let is_over = matches!(cause, Cause::ProcessGone | Cause::Closed);
        if !is_known && !is_over {
            self.undelivered.push(Undelivered { peer, cause });
        }
    }

    /// What became of the promise.
    fn promise_kept(&self) -> Result<(), Error> {
        let Some(&Undelivered { peer, cause }) = self.undelivered.first() else {
            return Ok(());
        };
        Err(Error::Undelivered {
            rank: peer.0,
            host: self.host_of(peer),
            reason: Reason {
                cause,
                report: self.peers[peer.0 as usize].report_text(),
            },
            others: self.undelivered.len() - 1,
        })
    }
}
