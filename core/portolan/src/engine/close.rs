// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing: delivers everything that was sent before this process ends (`P2.9`).
//!
//! Invariant: a message with a completed send is acknowledged, or committed to a ring that its
//! receiver continues to read, before this process ends. Otherwise its peer is named in the result.

use super::{Awaited, Engine, Inner, Waiter};
use crate::error::{Error, Reason};
use crate::ops::{OpKind, Owner};
use crate::raw::RawWhat;
use portolan_proto::{Cause, Instant, OpId, PeerId, PeerStatus};
use std::time::Duration;

/// Time for which a closing process waits for the receivers of sends that are incomplete and that
/// no caller waited for. Such sends carry no guarantee.
const STARTED_LINGER: Duration = Duration::from_secs(1);

/// Time for which it waits for messages to peers in this same process. The program cannot let them
/// run meanwhile, unless it has threads for them.
const SELF_LINGER: Duration = Duration::from_secs(1);

/// Time for which a peer without a session is probed: twenty probes.
const UNCONNECTED_LINGER: Duration = Duration::from_secs(1);

/// Interval between polls of links that have not announced this process to a peer, because the
/// peer's backlog is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);

/// Peer that may not have received everything sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undelivered {
    peer: PeerId,
    cause: Cause,
}

/// A process that is closing.
#[derive(Debug)]
pub(crate) struct Closing {
    begin: Instant,
    /// Time at which peers that have not answered are checked.
    check_at: Instant,
    /// Peers with undelivered messages at the begin.
    about: Vec<PeerId>,
}

impl Closing {
    /// Tests whether [`Engine::continue_close`] has something to do.
    fn is_due(&self, inner: &Inner) -> bool {
        !inner.has_undelivered(self.begin) || inner.now >= self.check_at
    }
}

impl Engine {
    /// Waits until everything sent has arrived at the live peers, without a time limit. Meanwhile
    /// it discards messages that no receive here will take, so that peers that also close can
    /// finish.
    ///
    /// # Errors
    /// [`Error::Undelivered`] for a peer that may live and may not have received a guaranteed
    /// message.
    pub(crate) fn close(&mut self, waiter: &mut Waiter) -> Result<(), Error> {
        let mut closing = self.begin_close();
        loop {
            waiter.until(self, &closing.about, Awaited::Close, |inner| {
                closing.is_due(inner)
            });
            if !self.continue_close(&mut closing) {
                continue;
            }
            if !self.links.has_unsent() {
                return self.end_close();
            }
            std::thread::sleep(CONNECT_PAUSE);
            self.run_slow_checks();
        }
    }

    fn begin_close(&mut self) -> Closing {
        let begin = self.inner.read_clock();
        self.inner.core.discard_unread();
        self.drain();
        self.flush();
        Closing {
            begin,
            check_at: begin + UNCONNECTED_LINGER,
            about: self.inner.undelivered_peers(begin),
        }
    }

    /// Returns `true` if everything has arrived; otherwise gives up what cannot arrive.
    fn continue_close(&mut self, closing: &mut Closing) -> bool {
        let begin = closing.begin;
        closing.check_at = self.inner.now + UNCONNECTED_LINGER;
        if !self.inner.has_undelivered(begin) {
            return true;
        }
        self.give_up_silent(begin);
        if self.inner.only_replies_pending(begin) {
            self.inner.core.stop_serving();
        }
        false
    }

    fn end_close(&mut self) -> Result<(), Error> {
        let now = self.inner.read_clock();
        self.inner.core.flush_acks(now);
        self.flush();
        self.inner.check_delivered()
    }

    /// Begins to close without waiting, for a simulation, which then calls [`Engine::poll_close`]
    /// between its turns.
    pub(crate) fn start_close(&mut self) -> Closing {
        let closing = self.begin_close();
        for &peer in &closing.about {
            self.watch(peer, closing.begin);
        }
        closing
    }

    /// Continues to close. Returns the result once everything has arrived.
    pub(crate) fn poll_close(&mut self, closing: &mut Closing) -> Option<Result<(), Error>> {
        let is_over = closing.is_due(&self.inner) && self.continue_close(closing);
        is_over.then(|| self.end_close())
    }
}

impl Engine {
    /// Gives up peers that have no session and have not answered a probe since `begin`: there may
    /// never have been a process.
    fn give_up_silent(&mut self, begin: Instant) {
        // Their agents report their ends, and they may be starved until then.
        if self.inner.silence_limits.has_agents {
            return;
        }
        for peer in self.inner.undelivered_peers(begin) {
            let seen = self.liveness.as_ref().map(|liveness| liveness.seen(peer));
            let heard = seen.max(self.inner.core.last_seen(peer));
            let is_up = self.inner.core.peer_status(peer) == PeerStatus::Up;
            if !is_up && seen.is_some() && heard < Some(begin) {
                self.give_up(peer, Cause::NoPath);
                self.inner.note_undelivered(peer, Cause::NoPath);
            }
        }
    }
}

impl Inner {
    /// Returns the peer and operation of each incomplete send that delays closing. The process
    /// began to close at `begin`. Regions that peers read are among the operations.
    fn undelivered_sends(&self, begin: Instant) -> impl Iterator<Item = (PeerId, OpId)> + '_ {
        let begun = self.now.since(begin) < STARTED_LINGER;
        let delays_close = move |op: OpId| begun || self.is_promised(op);
        let pending = self.pending.iter().filter(move |&(_, op)| delays_close(op));
        let sending = self.core.unfinished_transfers();
        let sending = sending.filter(move |&(_, op, has_begun)| has_begun || delays_close(op));
        pending.chain(sending.map(|(peer, op, _)| (peer, op)))
    }

    /// Tests whether only replies to requests for remote memory delay closing. A peer that repeats
    /// such requests would delay it for as long as the peer lives.
    fn only_replies_pending(&self, begin: Instant) -> bool {
        let is_region = |op| matches!(self.ops.kind(op), Some(OpKind::Region));
        let mut peers = self.core.unfinished_peers();
        self.undelivered_sends(begin).all(|(_, op)| is_region(op))
            && !peers.any(|peer| self.core.has_unacked_messages(peer))
    }

    /// Returns the peers with undelivered messages that delay closing. The process began to close
    /// at `begin`.
    pub(crate) fn undelivered_peers(&self, begin: Instant) -> Vec<PeerId> {
        let own = self.now.since(begin) < SELF_LINGER;
        let mut peers: Vec<PeerId> = self
            .undelivered_sends(begin)
            .map(|(peer, _)| peer)
            .chain(self.core.unfinished_peers())
            .filter(|&peer| own || !self.table.is_in_this_process(peer))
            .collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn has_undelivered(&self, begin: Instant) -> bool {
        !self.undelivered_peers(begin).is_empty()
    }

    /// Tests whether delivery of an incomplete send is guaranteed, because no caller can wait for
    /// it: the library has made a copy.
    fn is_promised(&self, op: OpId) -> bool {
        match self.ops.owner(op) {
            Some(Owner::Caller(raw)) => matches!(raw.what, RawWhat::Silent),
            Some(Owner::None) => true,
            Some(Owner::Request(_)) | None => false,
        }
    }

    /// Records that `peer` was given up although it may live and may miss guaranteed messages.
    pub(crate) fn note_undelivered(&mut self, peer: PeerId, cause: Cause) {
        let is_known = self.undelivered.iter().any(|known| known.peer == peer);
        // No process is left there to receive them.
        let is_over = matches!(cause, Cause::ProcessExited | Cause::Closed);
        if !is_known && !is_over {
            self.undelivered.push(Undelivered { peer, cause });
        }
    }

    /// Returns an error if guaranteed messages were not delivered.
    fn check_delivered(&self) -> Result<(), Error> {
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
