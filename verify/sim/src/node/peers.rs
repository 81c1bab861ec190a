// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers of one process: outboxes, liveness, reconnecting.

use super::{Node, Op};
use crate::context::Context;
use crate::ledger::{Entry, GREETING_PORT, Note};
use crate::payload;
use crate::program::Outgoing;
use crate::trace::Item;
use portolan_proto::{
    Address, Cause, LaneId, LinkId, PeerId, PeerStatus, PortId, Refused, SendSpec,
};
use std::collections::{BTreeMap, VecDeque};

/// Silence after a suspicion, or time without an answer to the first hello, after which a peer is
/// given up.
const SILENCE_NS: u64 = 1_000_000_000;

/// Silence of a peer from which something is awaited, in nanoseconds, after which it is queried.
const QUERY_AFTER_NS: u64 = 200_000_000;

/// Number of sessions that two processes may open with each other, in addition to some for each
/// fault.
const SESSIONS_MAX: u64 = 4;

/// Peer, as the engine sees it.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    /// Number of this side's session, while the peer is up.
    pub(crate) session: Option<u64>,
    /// Peer's session, from its greeting, per lane.
    pub(crate) bound: [Option<u64>; 2],
    /// Newest session of the peer that this incarnation has received.
    pub(crate) newest_bound: Option<u64>,
    /// Waiting messages of ended sessions at each port, the oldest session first.
    pub(crate) left: BTreeMap<(PortId, LaneId), VecDeque<(u64, usize)>>,
    /// Time since which, and path on which, the peer is suspected to have failed.
    pub(crate) suspect: Option<(u64, LinkId)>,
    pub(crate) connecting_since: Option<u64>,
    pub(crate) reconnect_at: Option<u64>,
    /// Time of the next query, and the time since which it has not answered.
    pub(crate) query_at: Option<u64>,
    pub(crate) unanswered_since: Option<u64>,
    /// Incarnation of the peer that the session is with.
    pub(crate) life: u32,
    /// Number of incomplete rendezvous sends.
    pub(crate) send_count: usize,
    pub(crate) outbox: [VecDeque<Outgoing>; 2],
    /// Set after the core refused; an event reports when to retry.
    pub(crate) blocked: [bool; 2],
}

impl Remote {
    /// Returns the time of the next check of the peer's silence.
    pub(crate) fn next_ns(&self) -> u64 {
        let suspect = self.suspect.map(|(since, _)| since + SILENCE_NS);
        let connecting = self.connecting_since.map(|since| since + SILENCE_NS);
        let all = [suspect, connecting, self.reconnect_at, self.query_at];
        all.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Records the unread messages of the session that ends; those beyond earlier leftovers belong
    /// to it.
    fn record_leftovers(&mut self, unread: Vec<(PortId, LaneId, usize)>) {
        for (port, lane, count) in unread {
            let left = self.left.entry((port, lane)).or_default();
            let earlier: usize = left.iter().map(|(_, count)| count).sum();
            if let Some(session) = self.bound[lane.index()]
                && count > earlier
            {
                left.push_back((session, count - earlier));
            }
        }
    }

    /// Returns the session of the next message from a port and lane.
    pub(crate) fn session_of_next(&self, port: PortId, lane: LaneId) -> Option<u64> {
        let left = self.left.get(&(port, lane)).and_then(VecDeque::front);
        left.map(|(session, _)| *session)
            .or(self.bound[lane.index()])
    }

    /// Returns true if the next message from a port and lane is of an ended session.
    pub(crate) fn has_left(&self, port: PortId, lane: LaneId) -> bool {
        let left = self.left.get(&(port, lane));
        left.is_some_and(|left| !left.is_empty())
    }

    /// Records the delivery of a message from a port and lane.
    pub(crate) fn take_left(&mut self, port: PortId, lane: LaneId) {
        let Some(left) = self.left.get_mut(&(port, lane)) else {
            return;
        };
        if let Some((_, count)) = left.front_mut() {
            *count -= 1;
            if *count == 0 {
                left.pop_front();
            }
        }
    }

    fn outbox_is_empty(&self) -> bool {
        self.outbox.iter().all(VecDeque::is_empty)
    }
}

impl Node {
    /// Declares peers failed that were silent for too long, reconnects, and queries silent peers.
    pub(super) fn check_peers(&mut self, cx: &mut Context) {
        let watched: Vec<u32> = self.watched.iter().copied().collect();
        for peer in watched {
            self.judge(cx, peer);
            if self.peers[peer as usize].next_ns() == u64::MAX {
                self.watched.remove(&peer);
            }
        }
    }

    fn judge(&mut self, cx: &mut Context, peer: u32) {
        let (now, id) = (cx.now, PeerId(peer));
        let last_seen = self
            .core
            .last_seen(id)
            .map_or(0, |at| self.clock.global(at));
        let remote = &mut self.peers[peer as usize];
        if let Some((since, link)) = remote.suspect {
            if last_seen > since {
                remote.suspect = None;
            } else if now >= since + SILENCE_NS {
                self.core.fail_peer(id, Cause::Silent(link));
                self.drain(cx, &[]);
                return;
            }
        }
        if remote
            .connecting_since
            .is_some_and(|since| now >= since + SILENCE_NS)
        {
            remote.connecting_since = None;
            if self.core.peer_status(id) == PeerStatus::Connecting {
                self.core.fail_peer(id, Cause::NoPath);
                self.drain(cx, &[]);
                return;
            }
        }
        if remote.reconnect_at.is_some_and(|at| now >= at) {
            remote.reconnect_at = None;
            self.connect(cx, peer);
        }
        self.query(cx, peer, last_seen);
    }

    /// Queries a silent peer from which something is awaited.
    fn query(&mut self, cx: &mut Context, peer: u32, last_seen: u64) {
        // Near the end no receive waits for a peer; receives are cancelled.
        let sourced = cx
            .plan
            .ports
            .iter()
            .any(|port| port.node == self.id && port.sourced);
        let remote = &mut self.peers[peer as usize];
        if remote.query_at.is_none_or(|at| cx.now < at) {
            return;
        }
        remote.query_at = Some(cx.now + QUERY_AFTER_NS);
        let wants = remote.send_count > 0 || !remote.outbox_is_empty();
        let is_waited_for = wants || sourced && cx.now < cx.quiet_ns;
        // On shared memory silence means nothing: the system reports the exit of its process.
        let is_far = !cx.plan.share_memory(self.id, peer);
        let is_silent = is_far && cx.now >= last_seen.saturating_add(QUERY_AFTER_NS);
        if is_waited_for && is_silent {
            // Only the other end can determine whether the session is open there too.
            self.core.probe_peer(PeerId(peer));
        }
        let remote = &mut self.peers[peer as usize];
        if !is_waited_for || !is_silent || cx.would_reply(self.id, peer, remote.life) {
            remote.unanswered_since = None;
            return;
        }
        let since = *remote.unanswered_since.get_or_insert(cx.now);
        if cx.now >= since + SILENCE_NS {
            self.core
                .fail_peer(PeerId(peer), Cause::Silent(LinkId::UDP));
            self.drain(cx, &[]);
        }
    }

    fn connect(&mut self, cx: &mut Context, peer: u32) {
        cx.trace.push(cx.now, self.id, Item::Connect { peer });
        self.peers[peer as usize].connecting_since = Some(cx.now);
        self.watched.insert(peer);
        self.core.connect(self.clock.local(cx.now), PeerId(peer));
        self.drain(cx, &[]);
    }

    /// Starts a new session with a peer that is up. Its first messages contain the session's
    /// number.
    pub(super) fn on_peer_up(&mut self, cx: &mut Context, peer: u32) {
        let life = cx.life_met(self.id, peer);
        let session = cx.ledger.open(self.id, peer, life);
        cx.trace.push(cx.now, self.id, Item::Up { peer, session });
        self.check_session_count(cx, peer);
        let remote = &mut self.peers[peer as usize];
        remote.session = Some(session);
        remote.life = life;
        remote.bound = [None; 2];
        remote.blocked = [false; 2];
        (remote.connecting_since, remote.reconnect_at) = (None, None);
        if !cx.plan.faults.is_empty() {
            remote.query_at = Some(cx.now + QUERY_AFTER_NS);
        }
        for outbox in &mut remote.outbox {
            outbox.push_front(Outgoing {
                port: GREETING_PORT,
                best_effort: false,
                rendezvous: false,
                len: payload::NUMBER_LEN,
                note: Note::Greeting(session),
            });
        }
        self.with_outbox.insert(peer);
        self.watched.insert(peer);
    }

    fn check_session_count(&self, cx: &mut Context, peer: u32) {
        let opened = cx.ledger.session_count(self.id, peer);
        let faults = cx
            .plan
            .faults
            .iter()
            .filter(|fault| fault.touches(self.id, peer));
        // Some for each fault, and one attempt per pause between attempts while it lasts.
        let attempts = faults.map(|fault| {
            let end_ns = if fault.is_forever() {
                cx.now.max(fault.begin_ns)
            } else {
                fault.end_ns
            };
            16 + (end_ns - fault.begin_ns) / cx.plan.reconnect_ns
        });
        if opened as u64 > SESSIONS_MAX + attempts.sum::<u64>() {
            let id = self.id;
            cx.violate(format!(
                "nodes {id} and {peer} have opened {opened} sessions without settling"
            ));
        }
    }

    /// Handles the failure of a peer, declared by the core.
    pub(super) fn on_peer_failed(&mut self, cx: &mut Context, peer: u32, cause: Cause) {
        cx.trace.push(cx.now, self.id, Item::Failed { peer, cause });
        self.check_cause(cx, peer, cause, "gave up");
        let again_at = cx.now + cx.plan.reconnect_ns;
        self.close_streams(cx, peer);
        self.forget_area(peer);
        let remote = &mut self.peers[peer as usize];
        if let Some(session) = remote.session.take() {
            cx.ledger.end(session);
        }
        remote.record_leftovers(self.core.unread(PeerId(peer)));
        remote.bound = [None; 2];
        remote.blocked = [false; 2];
        (remote.suspect, remote.connecting_since) = (None, None);
        (remote.query_at, remote.unanswered_since) = (None, None);
        for outbox in &mut remote.outbox {
            outbox.retain(|out| out.note == Note::Nothing);
        }
        if self.program.is_leaving() {
            return self.drop_outbox(peer);
        }
        let remote = &mut self.peers[peer as usize];
        if !remote.outbox_is_empty() {
            remote.reconnect_at = Some(again_at);
            self.watched.insert(peer);
        }
    }

    /// Handles the report of the launcher or the system that the peer's process has exited.
    pub(crate) fn on_exit_reported(&mut self, cx: &mut Context, peer: u32) {
        self.core.fail_peer(PeerId(peer), Cause::ProcessExited);
        self.drain(cx, &[]);
        self.on_wake(cx);
    }

    /// Closes, at the end of the job, a session with an exited process at the other end, unless
    /// something waits for it.
    pub(crate) fn close_session(&mut self, cx: &mut Context, peer: u32) {
        let remote = &self.peers[peer as usize];
        if remote.session.is_some() && remote.outbox_is_empty() && remote.send_count == 0 {
            self.core.fail_peer(PeerId(peer), Cause::Closed);
            self.drain(cx, &[]);
        }
    }

    /// Checks that a fault explains the reason of a failure.
    pub(super) fn check_cause(&self, cx: &mut Context, peer: u32, cause: Cause, what: &str) {
        let explained = match cause {
            // The peer may have given up this side for a reason, and come back much later.
            Cause::Restarted | Cause::Closed => cx.was_disturbed(self.id, peer),
            Cause::Silent(_) | Cause::NoPath | Cause::ProcessExited => {
                // The exit of an incarnation may be detected only when something waits for it
                // again.
                let is_over = cx.lives[peer as usize] != self.peers[peer as usize].life;
                is_over || cx.excused(self.id, peer)
            }
            _ => false,
        };
        if !explained {
            let id = self.id;
            cx.violate(format!(
                "node {id} {what} {peer} although no fault explains it: {cause}"
            ));
        }
    }

    pub(super) fn flush_outboxes(&mut self, cx: &mut Context) {
        let peers: Vec<u32> = self.with_outbox.iter().copied().collect();
        for peer in peers {
            for lane in [LaneId::High, LaneId::Low] {
                self.flush(cx, peer, lane);
            }
            if self.peers[peer as usize].outbox_is_empty() {
                self.with_outbox.remove(&peer);
            }
        }
    }

    fn flush(&mut self, cx: &mut Context, peer: u32, lane: LaneId) {
        while let Some(&out) = self.peers[peer as usize].outbox[lane.index()].front() {
            if self.peers[peer as usize].blocked[lane.index()] {
                return;
            }
            match self.submit(cx, peer, lane, &out) {
                Ok(()) => {
                    self.peers[peer as usize].outbox[lane.index()].pop_front();
                }
                Err(Refused::Busy) => self.peers[peer as usize].blocked[lane.index()] = true,
                // Shared memory is up at once, networks later.
                Err(Refused::Unknown) => self.connect(cx, peer),
                Err(Refused::PeerFailed(_)) => return self.on_send_refused(cx, peer, lane),
                Err(_) => {
                    // Not up yet. If it never comes up, this side must detect that, regardless of
                    // which side started.
                    let since = &mut self.peers[peer as usize].connecting_since;
                    if since.is_none() {
                        *since = Some(cx.now);
                        self.watched.insert(peer);
                    }
                    return;
                }
            }
        }
    }

    /// Handles a message that was refused because its peer has failed. It fails; later messages are
    /// tried again.
    fn on_send_refused(&mut self, cx: &mut Context, peer: u32, lane: LaneId) {
        if cx.ending || self.program.is_leaving() {
            return self.drop_outbox(peer);
        }
        let remote = &mut self.peers[peer as usize];
        if remote.reconnect_at.is_none() {
            remote.outbox[lane.index()].pop_front();
            self.failed_count += 1;
            remote.reconnect_at = Some(cx.now + cx.plan.reconnect_ns);
            self.watched.insert(peer);
            self.retry_one_shots(cx.now, peer);
        }
    }

    fn submit(
        &mut self,
        cx: &mut Context,
        peer: u32,
        lane: LaneId,
        out: &Outgoing,
    ) -> Result<(), Refused> {
        if let Note::OneShot(index) = out.note {
            return self.submit_one_shot(cx, peer, lane, index);
        }
        if let Note::Request(index) = out.note {
            return self.submit_request(cx, peer, lane, index);
        }
        let id = cx.ledger.take_id();
        let bytes = match out.note {
            Note::Greeting(session) => session.to_le_bytes().to_vec(),
            _ => payload::make(id, out.len, out.best_effort),
        };
        let spec = SendSpec {
            to: cx.plan.address(peer, out.port, id),
            lane,
            best_effort: out.best_effort,
        };
        let result = match out.rendezvous && out.len > 0 {
            true => Err(Refused::TooLong),
            false => self.submit_eager(cx, peer, &spec, &bytes),
        };
        match result {
            Err(Refused::TooLong) => self.submit_rendezvous(cx.now, peer, &spec, bytes)?,
            other => other?,
        }
        let Some(session) = self.peers[peer as usize].session else {
            cx.violate(format!(
                "node {} sends to {peer} before it became writable",
                self.id
            ));
            return Ok(());
        };
        let (port, len) = (out.port.number, out.len);
        cx.trace.push(
            cx.now,
            self.id,
            Item::Submitted {
                to: peer,
                lane,
                port,
                id,
                len,
            },
        );
        self.unsettled.insert(peer);
        let (note, at_ns) = (out.note, cx.now);
        let entry = Entry {
            id,
            len,
            note,
            at_ns,
            best_effort: out.best_effort,
        };
        if out.best_effort {
            cx.ledger
                .accept_best_effort(session, (lane, out.port), entry);
        } else if matches!(spec.to, Address::MatchBits(_)) {
            cx.ledger.accept_tagged(session, lane, out.port, entry);
        } else {
            cx.ledger.accept(session, lane, out.port, entry);
        }
        Ok(())
    }

    fn submit_eager(
        &mut self,
        cx: &mut Context,
        peer: u32,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        if self.send_shortly(cx, peer, spec, bytes) {
            return Ok(());
        }
        let mut staging = self.core.eager(PeerId(peer), spec, bytes.len())?;
        // In two pieces, like a gather list.
        let (first, second) = bytes.split_at(bytes.len() / 3);
        staging.push(first);
        staging.push(second);
        Ok(())
    }

    /// Sends by a shortcut: into an open frame, or at once over shared memory. Returns `false` if
    /// none applies.
    fn send_shortly(&mut self, cx: &mut Context, peer: u32, spec: &SendSpec, bytes: &[u8]) -> bool {
        if cx.plan.shortcuts && self.core.append(PeerId(peer), spec, [bytes, &[]]).is_some() {
            return true;
        }
        let is_open = cx.plan.shortcuts && cx.alive[peer as usize];
        let header = match spec.to {
            _ if !is_open => None,
            Address::Port(_) => self.direct_header::<8>(peer, spec, bytes.len()),
            Address::MatchBits(_) => self.direct_header::<24>(peer, spec, bytes.len()),
        };
        let Some(header) = header else {
            return cx.plan.shortcuts && self.send_single(cx, peer, spec, bytes);
        };
        let frame = [&header, bytes].concat();
        let sent = self.send_shared(cx, peer, vec![frame]);
        if !sent {
            self.core
                .direct_refused(PeerId(peer), spec.lane, bytes.len());
        }
        sent
    }

    fn direct_header<const N: usize>(
        &mut self,
        peer: u32,
        spec: &SendSpec,
        len: usize,
    ) -> Option<Vec<u8>> {
        let header = self.core.direct::<N>(PeerId(peer), spec, len)?;
        Some(header.to_vec())
    }

    fn submit_rendezvous(
        &mut self,
        now: u64,
        peer: u32,
        spec: &SendSpec,
        bytes: Vec<u8>,
    ) -> Result<(), Refused> {
        let len = bytes.len() as u64;
        let op = self.make_op(Op::Send { bytes, peer });
        // The operation's number stands for the buffer's address.
        let local = self.clock.local(now);
        let result = self
            .core
            .rendezvous(local, PeerId(peer), spec, op, len, op.0);
        match result {
            Ok(_) => self.peers[peer as usize].send_count += 1,
            Err(_) => drop(self.memory.remove(&op.0)),
        }
        result.map(|_| ())
    }

    pub(super) fn describe_outbox(&self, peer: u32) -> String {
        let remote = &self.peers[peer as usize];
        let status = self.core.peer_status(PeerId(peer));
        let (low, high) = (remote.outbox[0].len(), remote.outbox[1].len());
        let blocked = remote.blocked;
        format!(
            "{low} and {high} messages wait for {peer}, which is {status:?}, blocked {blocked:?}"
        )
    }

    /// Returns this side's and the peer's session, once both lanes have received a greeting.
    pub(crate) fn binding(&self, peer: u32) -> Option<(u64, u64)> {
        let remote = &self.peers[peer as usize];
        Some((
            remote.session?,
            remote.bound[0].filter(|low| remote.bound[1] == Some(*low))?,
        ))
    }
}
