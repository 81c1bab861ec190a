// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the core, and the methods that do not belong to one mechanism.

pub(crate) mod batch;
mod bulk;
pub(crate) mod closing;
mod dormant;
mod fault;
pub(crate) mod give_up;
mod receive;
mod remote;
mod send;
mod session;
mod shortage;
pub(crate) mod shortcut;
mod single;
mod stream;
mod tagged;
mod timer;
pub(crate) mod transmit;

use crate::base::credit::charge;
use crate::base::request::Request;
use crate::bulk::{FinishedRx, Origin};
use crate::matching::port::{
    HeldMessage, LateMessage, NotTaken, Posted, Served, ServedRequest, TakenHeld, Waiting,
};
use crate::path::outgoing::OutgoingKind;
use crate::peer::Peer;
use crate::peer::dormant::DormantPeer;
use crate::session::{Entropy, SessionState};
use crate::shared::Shared;
use crate::{
    Address, Choice, Config, Counters, CreditStatus, Data, Event, HeldId, Instant, LinkId,
    LinkParams, OpError, OpId, PathStatus, PeerId, PeerStatus, PendingWork, PortId, PortMode,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Protocol core of one process. See the crate's documentation for the contract.
#[derive(Debug)]
pub struct Core {
    /// `None` for peers never connected, and for dormant peers ([`Core::revive`]).
    peers: Vec<Option<Box<Peer>>>,
    dormant: BTreeMap<PeerId, Box<DormantPeer>>,
    /// Awake peers on networks, each with the time of the next check whether it can become dormant.
    awake: VecDeque<(Instant, PeerId)>,
    /// Per peer, one bit for each link that reaches it.
    allowed: Vec<u8>,
    ready: VecDeque<PeerId>,
    timed: Vec<PeerId>,
    sh: Shared,
    /// Last transmit returned. The engine's next call determines its outcome.
    sent: Option<(PeerId, LinkId, OutgoingKind)>,
    /// Number of peers with frames or acknowledgements left, as of their last check.
    pending_counts: PendingCounts,
    /// Set when a message was put into a frame that waits to be sent; cleared when nothing is ready.
    has_staged: bool,
}

/// Number of peers with work left, and of those with frames or records to send.
#[derive(Debug, Default)]
struct PendingCounts {
    any: usize,
    unsent: usize,
}

impl PendingCounts {
    /// Updates the counts after the work left for one peer changed.
    #[inline]
    fn update(&mut self, change: Option<(PendingWork, PendingWork)>) {
        let Some((was, now)) = change else {
            return;
        };
        let differ = |count: &mut usize, least: PendingWork| match (was >= least, now >= least) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        };
        differ(&mut self.any, PendingWork::Unacknowledged);
        differ(&mut self.unsent, PendingWork::Unsent);
    }
}

impl Core {
    /// Returns a core without links or peers.
    ///
    /// # Panics
    /// Panics if the limits contradict each other: credit beyond the range of 15-bit sequence
    /// numbers, or eager messages larger than credit or frame buffers.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let limits = &config.limits;
        // P4.8
        assert!(
            limits.credit_len / crate::base::credit::CHARGE_OVERHEAD < 1 << 15,
            "credit_len too large"
        );
        let eager_len_max = limits.eager_len_max.max(limits.eager_len_max_lossless);
        assert!(
            crate::base::credit::charge(eager_len_max) <= limits.credit_len / 2,
            "eager_len_max"
        );
        assert!(
            eager_len_max <= crate::mem::slot::FRAGMENTED_LEN_MAX,
            "eager messages must fit a frame buffer"
        );
        assert!(config.size <= 1 << 20, "a job has at most 2^20 processes");
        let _entropy = Entropy::new(config.seed, config.epoch);
        let _eager_bounds = [limits.eager_len_max, limits.eager_len_max_lossless];
        Core {
            peers: (0..config.size).map(|_| None).collect(),
            allowed: alloc::vec![0; config.size as usize],
            dormant: BTreeMap::new(),
            awake: VecDeque::new(),
            ready: VecDeque::new(),
            timed: Vec::new(),
            sh: Shared::new(config),
            sent: None,
            pending_counts: PendingCounts::default(),
            has_staged: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        &mut self.sh
    }

    #[cfg(test)]
    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> &mut Peer {
        self.peers[peer.index()].as_deref_mut().unwrap()
    }

    /// Moves frames of more than `len_max` bytes for `peer` from `link` to other paths.
    #[cfg(test)]
    pub(crate) fn move_frames(&mut self, peer: PeerId, link: LinkId, len_max: usize) {
        let state = self.peers[peer.index()].as_deref_mut().unwrap();
        state.move_frames(&mut self.sh, link, len_max);
    }

    /// Adds a link of this process. Must be called before any peer is connected by it.
    pub fn add_link(&mut self, link: LinkId, params: LinkParams) {
        self.set_buffer_len(link, params.rx_buffer_len);
        self.sh.ctx.add_link(link, params);
    }

    /// Sets the amount of bulk data that `link` buffers to `len` bytes, as measured since it was
    /// added. Grants adapt to it (`P5.3`). The windows of frames were sent to peers and do not
    /// change.
    pub fn set_buffer_len(&mut self, link: LinkId, len: usize) {
        let budget = grant_budget(self.sh.ctx.config(), len);
        self.sh.transfers.set_budget(link, budget);
    }

    /// Sets the links by which `peer` may be reached. A peer without links cannot be connected.
    pub fn allow(&mut self, peer: PeerId, links: &[LinkId]) {
        self.allowed[peer.index()] = links.iter().fold(0, |mask, link| mask | 1 << link.as_u8());
    }

    /// Opens a session with `peer` on all links by which it may be reached, unless one is open or
    /// being opened. After a failure, opens a new one. `P2.1`.
    pub fn connect(&mut self, now: Instant, peer: PeerId) {
        self.revive(peer);
        let Some(place) = self.peers.get(peer.index()) else {
            return;
        };
        if place
            .as_ref()
            .is_none_or(|old| old.session().failure().is_some())
        {
            self.renew(now, peer);
        }
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            state.session_mut().request();
        }
        self.touch(peer);
    }

    /// Resets the peer's state: a new session with new tokens and new packet numbers.
    pub(crate) fn renew(&mut self, now: Instant, peer: PeerId) {
        let session = SessionState::new(&mut self.sh.entropy, peer);
        let mut new = Box::new(Peer::new(peer, session, self.sh.ctx.credit_len()));
        let mask = self.allowed[peer.index()];
        for link in LinkId::ALL
            .into_iter()
            .filter(|link| mask >> link.as_u8() & 1 == 1)
        {
            if let Some(params) = self.sh.ctx.link(link) {
                new.paths_mut().add(&self.sh.ctx, link, params);
            }
        }
        new.open_session(now, &mut self.sh);
        if let Some(old) = self.peers[peer.index()].replace(new) {
            // The peer may still be in the queues; the new state inherits its place there.
            if let Some(Some(new)) = self.peers.get_mut(peer.index()) {
                new.inherit(&old);
            }
        }
        self.watch_quiet(now, peer);
        self.touch(peer);
    }

    /// Returns the status of `peer`.
    #[must_use]
    pub fn peer_status(&self, peer: PeerId) -> PeerStatus {
        match self.peers.get(peer.index()) {
            Some(Some(peer)) => peer.status(),
            _ if self.dormant.contains_key(&peer) => PeerStatus::Up,
            _ => PeerStatus::Unknown,
        }
    }

    /// Returns the status of a path to `peer`.
    #[must_use]
    pub fn path_status(&self, peer: PeerId, link: LinkId) -> Option<PathStatus> {
        match self.peers.get(peer.index())? {
            Some(peer) if link == LinkId::STREAM => peer.stream_status(),
            Some(peer) => peer.paths().status(link),
            None => self.dormant.get(&peer)?.path_status(link),
        }
    }

    /// Returns the time of the last frame from `peer`.
    #[must_use]
    pub fn last_seen(&self, peer: PeerId) -> Option<Instant> {
        match self.peers.get(peer.index())? {
            Some(peer) => Some(peer.last_seen()),
            None => Some(self.dormant.get(&peer)?.last_seen()),
        }
    }

    /// Probes a silent `peer` that is needed although nothing for it is in flight.
    /// [`Core::last_seen`] shows its reply. A peer that has given up the session replies with a
    /// reset.
    pub fn probe_peer(&mut self, peer: PeerId) {
        self.revive(peer);
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        state.paths_mut().send_keepalive();
        self.touch(peer);
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.sh.ctx.counters()
    }

    /// Returns true if an event is pending.
    #[inline]
    #[must_use]
    pub fn has_event(&self) -> bool {
        self.sh.ctx.has_event()
    }

    /// Returns the next event, in order.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.sh.ctx.next_event()
    }

    /// Returns the bytes of a held message.
    #[must_use]
    pub fn held(&self, id: HeldId) -> &[u8] {
        self.sh.held.bytes(id)
    }

    /// Returns the bytes of a held message, to be filled as directed by [`Event::Place`].
    #[must_use]
    pub fn held_mut(&mut self, id: HeldId) -> &mut [u8] {
        self.sh.held.bytes_mut(id)
    }

    /// Frees a held message after its [`Event::Deliver`] was handled.
    pub fn release(&mut self, id: HeldId) {
        self.sh.held.release(id);
    }

    /// Copies a held message to the beginning of `dst`, and frees it. Returns its length; `None` if
    /// `dst` is too short.
    #[inline]
    pub fn release_into(&mut self, id: HeldId, dst: &mut [u8]) -> Option<usize> {
        self.sh.held.release_into(id, dst)
    }

    /// Opens `port` for messages.
    pub fn open_port(&mut self, port: PortId, mode: PortMode) {
        let Shared { matching, ctx, .. } = &mut self.sh;
        matching.open_port(ctx, port, mode);
        self.serve(port);
    }

    /// Takes the message that [`Core::post_recv`] would deliver immediately, if it is complete and
    /// fits `dst`. Copies it there. This is the first branch of a receive; it needs neither an
    /// operation nor an event.
    ///
    /// # Errors
    /// [`NotTaken`].
    #[inline(always)]
    pub fn take_held(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        dst: &mut [u8],
    ) -> Result<HeldMessage, NotTaken> {
        let has_event = self.has_event();
        let Core {
            peers,
            ready,
            timed,
            sh,
            ..
        } = self;
        let Shared { matching, held, .. } = sh;
        let at_port = matching.port(port).ok_or(NotTaken::Other)?;
        if at_port.is_quiet() {
            return Err(NotTaken::Nothing);
        }
        // Messages with pending events arrived earlier.
        if has_event {
            return Err(NotTaken::Other);
        }
        let Some((place, taken)) = at_port.only_held(source) else {
            return self.take_held_of_many(port, source, dst);
        };
        let Some(Some(state)) = peers.get_mut(taken.peer.index()) else {
            return self.take_held_of_many(port, source, dst);
        };
        if state.has_undelivered(taken.lane, port) {
            return Err(NotTaken::Other);
        }
        let len = held.release_into(taken.held, dst);
        let len = len.ok_or(NotTaken::Other)?;
        at_port.drop_front(place);
        matching.note_taken();
        if return_credit(state, sh, &taken, len) {
            list(ready, timed, state);
        }
        sh.ctx.count_received(len as u64);
        let TakenHeld { peer, lane, .. } = taken;
        Ok(HeldMessage { peer, lane, len })
    }

    /// Takes a held message at a port where messages of several senders may wait, or of a dormant
    /// sender.
    #[inline(never)]
    fn take_held_of_many(
        &mut self,
        port: PortId,
        source: Option<PeerId>,
        dst: &mut [u8],
    ) -> Result<HeldMessage, NotTaken> {
        let Core { peers, sh, .. } = self;
        let Shared { matching, held, .. } = sh;
        let has_undelivered = |from: PeerId, lane| {
            let peer = peers.get(from.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.has_undelivered(lane, port))
        };
        let at_port = matching.port(port).ok_or(NotTaken::Other)?;
        let found = at_port.first_held(source, has_undelivered);
        let (place, taken) = found.ok_or(NotTaken::Other)?;
        let len = held.release_into(taken.held, dst);
        let len = len.ok_or(NotTaken::Other)?;
        at_port.drop_front(place);
        matching.note_taken();
        self.on_held_taken(&taken, len);
        self.sh.ctx.count_received(len as u64);
        let TakenHeld { peer, lane, .. } = taken;
        Ok(HeldMessage { peer, lane, len })
    }

    /// Returns sender and length of the message that [`Core::post_recv`] would deliver or request
    /// if no other receive were posted. The message stays available. `None` while events are
    /// pending, because their messages arrived earlier.
    pub fn peek_port(&mut self, port: PortId, source: Option<PeerId>) -> Option<(PeerId, u64)> {
        if self.has_event() {
            return None;
        }
        let Core { peers, sh, .. } = self;
        let Shared { matching, held, .. } = sh;
        let has_undelivered = |from: PeerId, lane| {
            let peer = peers.get(from.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.has_undelivered(lane, port))
        };
        match matching.peek_at_port(port, source, has_undelivered)? {
            (peer, Waiting::Held(id), _) => Some((peer, held.len(id) as u64)),
            (peer, Waiting::Request(_), len) => Some((peer, len)),
        }
    }

    /// Returns credit for a held message of `len` bytes taken by a receive or a handler.
    #[inline(always)]
    pub(crate) fn on_held_taken(&mut self, taken: &TakenHeld, len: usize) {
        // A message of an earlier session can be taken while its sender is dormant.
        if !self.is_live(taken.peer) {
            return;
        }
        let Some(Some(state)) = self.peers.get_mut(taken.peer.index()) else {
            return;
        };
        if return_credit(state, &mut self.sh, taken, len) {
            list(&mut self.ready, &mut self.timed, state);
        }
    }

    /// Posts a buffer of `len` bytes for the next message to `port` (only from `source`, if given).
    pub fn post_recv(&mut self, port: PortId, op: OpId, len: u64, source: Option<PeerId>) {
        if let Some(source) = source
            && let PeerStatus::Failed(cause) = self.peer_status(source)
            && !self.sh.matching.waits_at(port, source)
        {
            let error = OpError::PeerFailed(source, cause);
            self.sh.ctx.emit(Event::RecvFailed { op, error });
            return;
        }
        let posted = Posted {
            op,
            base: 0,
            len,
            source,
        };
        if self.sh.matching.post_at_port(port, posted) {
            self.serve(port);
        }
    }

    /// Cancels a posted receive. Returns `false` if a message has already matched it; the receive
    /// then completes normally.
    pub fn cancel_recv(&mut self, port: PortId, op: OpId) -> bool {
        self.sh.matching.cancel_at_port(port, op)
    }

    /// Returns the credit status of a lane shared with `peer`.
    #[must_use]
    pub fn credit(&self, peer: PeerId, lane: portolan_wire::LaneId) -> Option<CreditStatus> {
        match self.peers.get(peer.index())? {
            Some(peer) => Some(peer.credit(lane)),
            None => Some(self.dormant.get(&peer)?.credit(lane)),
        }
    }

    /// Returns the memory in use: frame buffers, bytes of unexpected messages, and the number of
    /// transfers in both directions and requests for remote memory. Tests check that all are zero
    /// at the end.
    #[must_use]
    pub fn usage(&self) -> (usize, usize, usize) {
        let transfers = self.sh.transfers.count() + self.sh.remote.outstanding_count();
        (self.sh.slots.used(), self.sh.unexpected_len(), transfers)
    }

    /// Gives the long messages of `peer` precedence. `None` ends this. `P5.13`
    pub fn set_precedence(&mut self, peer: Option<PeerId>) {
        self.sh.transfers.set_precedence(peer);
        self.schedule_grants();
    }

    /// Makes all pending acknowledgements due now, before the process leaves. `P2.9`
    pub fn flush_acks(&mut self, now: Instant) {
        for index in 0..self.timed.len() {
            let id = self.timed[index];
            if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
                for path in peer.paths_mut().iter_mut() {
                    path.flush_ack(now);
                }
                if peer.stream_mut().eager().owes_ack() {
                    peer.push_stream_ack();
                }
            }
            self.touch(id);
        }
    }

    /// Returns true if anything sent to a live peer may not have arrived.
    #[must_use]
    pub fn has_unfinished(&self) -> bool {
        self.sh.transfers.unfinished_tx().next().is_some()
            || self.unfinished_peers().next().is_some()
    }

    /// Returns the live peers with frames waiting or in flight, in no particular order.
    pub fn unfinished_peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        let timed = self.timed.iter();
        let timed = timed.filter_map(|id| self.peers[id.index()].as_deref());
        let unfinished = timed.filter(|peer| peer.has_unfinished());
        unfinished.map(|peer| peer.id())
    }

    /// Returns the incomplete outgoing transfers: peer, operation, and whether the receiver has
    /// started to accept it.
    pub fn unfinished_transfers(&self) -> impl Iterator<Item = (PeerId, OpId, bool)> + '_ {
        self.sh.transfers.unfinished_tx()
    }

    /// Returns true if a frame for `peer` has not been sent, or may not have arrived. Transfers
    /// that wait for a grant do not count. `P2.13`
    #[must_use]
    pub fn has_unfinished_with(&self, peer: PeerId) -> bool {
        let peer = self.peers.get(peer.index()).and_then(Option::as_deref);
        peer.is_some_and(Peer::has_unfinished)
    }

    /// Returns true if [`Core::poll_transmit`] may return a transmit.
    #[inline]
    #[must_use]
    pub fn needs_transmit(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Handles a report of the operating system that frames to `peer` by `link` may have at most
    /// `frame_len_max` bytes. The report can be forged, so probes must confirm it. `P6.2`
    pub fn shrink_path(&mut self, peer: PeerId, link: LinkId, frame_len_max: usize) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index())
            && let Some(path) = state.paths_mut().get_mut(link)
            && path.on_reported_frame_len(frame_len_max)
        {
            self.touch(peer);
        }
    }

    /// Makes small messages to every peer use `link` wherever it works, regardless of measurements.
    pub fn prefer(&mut self, link: LinkId) {
        self.sh.ctx.prefer(link);
    }

    /// Applies `choice` from now on. It may lower the configured eager limits but not raise them,
    /// because peers accept no more.
    pub fn choose(&mut self, choice: Choice) {
        self.sh.ctx.choose(choice);
    }

    /// Sets whether short messages pass, which wait for each part that leaves by a stream. If so,
    /// parts have at most [`PART_LEN_MAX_LATENCY_SENSITIVE`](crate::PART_LEN_MAX_LATENCY_SENSITIVE)
    /// bytes. `P15.4`
    #[inline]
    pub fn set_latency_sensitive(&mut self, is_latency_sensitive: bool) {
        self.sh.ctx.set_latency_sensitive(is_latency_sensitive);
    }

    /// Begins a poll gap: frames handled from now on may have waited for this process.
    pub fn begin_poll_gap(&mut self, now: Instant) {
        self.sh.ctx.begin_poll_gap(now);
    }

    /// Ends the poll gap: all frames that may have waited have been handled.
    pub fn end_poll_gap(&mut self, now: Instant) {
        self.sh.ctx.end_poll_gap(now);
    }

    /// Puts `peer` into the queue of peers with something to transmit, and into the list of timed
    /// peers.
    #[inline]
    pub(crate) fn touch(&mut self, peer: PeerId) {
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        list(&mut self.ready, &mut self.timed, state);
    }

    /// Matches messages that wait at `port` with posted buffers.
    pub(crate) fn serve(&mut self, id: PortId) {
        while self.sh.transfers.has_rx_room()
            && let Some(served) = self.sh.matching.next_served(id, |peer, lane| {
                let peer = self.peers.get(peer.index()).and_then(Option::as_deref);
                peer.is_some_and(|peer| peer.has_undelivered(lane, id))
            })
        {
            match served {
                Served::Held(taken, posted) => self.deliver_held(id, &taken, posted),
                Served::Request(announced) => self.begin_late(id, &announced),
            }
        }
        self.schedule_grants();
    }

    /// Delivers a held message to its buffer, or in place if it has none.
    fn deliver_held(&mut self, id: PortId, taken: &TakenHeld, posted: Option<Posted>) {
        let len = self.sh.held.len(taken.held);
        self.on_held_taken(taken, len);
        let len = len as u64;
        let error = posted.and_then(|posted| OpError::truncated(len, posted.len));
        let op = posted.map(|posted| posted.op);
        let Some(Some(peer)) = self.peers.get_mut(taken.peer.index()) else {
            return;
        };
        let (lanes, env) = &mut peer.lanes(&mut self.sh);
        let data = Data::Held(taken.held);
        lanes.deliver(env, taken.lane, &id.into(), op, len, data, error);
    }

    /// Starts the transfer of a request that waited at a port.
    fn begin_late(&mut self, id: PortId, served: &ServedRequest) {
        let &ServedRequest { peer, lane, .. } = served;
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        lanes.on_taken(env, lane, served.holds_credit, charge(0));
        let request = Request {
            peer,
            lane,
            to: id.into(),
            len: served.len,
            announced: served.announced,
        };
        let Shared {
            matching,
            transfers,
            ctx,
            ..
        } = &mut self.sh;
        let transfer = transfers.start(ctx, &request, served.posted, Origin::Port);
        matching.begin_transfer(id, (peer, lane), transfer);
        self.touch(peer);
    }

    /// Serves the ports with messages that waited for an earlier message of their lane, now
    /// delivered.
    pub(crate) fn serve_unblocked(&mut self) {
        while let Some(port) = self.sh.matching.next_unblocked() {
            self.serve(port);
        }
    }

    /// Handles a complete transfer into a buffer that was found late: delivers the messages of its
    /// lane that are complete now, in order, and serves its port.
    pub(crate) fn on_late_transferred(&mut self, done: &FinishedRx) {
        let Address::Port(id) = done.to else { return };
        let from = (done.peer, done.lane);
        let message = LateMessage {
            op: done.op,
            len: done.len,
            error: done.error,
        };
        (self.sh.matching).end_transfer(id, from, done.key, message);
        while let Some(message) = self.sh.matching.pop_transferred(id, from) {
            if let Some(Some(peer)) = self.peers.get_mut(done.peer.index()) {
                let (lanes, env) = &mut peer.lanes(&mut self.sh);
                let LateMessage { op, len, error } = message;
                lanes.deliver(env, done.lane, &done.to, Some(op), len, Data::Placed, error);
            }
        }
        self.serve(id);
    }
}

/// Returns the bytes of bulk data that may be in flight on a link: its buffer, less an eighth for
/// headers, small messages and retransmissions. `P5.3`
fn grant_budget(config: &Config, buffer_len: usize) -> usize {
    let most = buffer_len - buffer_len / 8;
    match config.limits.grant_len_max {
        0 => most,
        len => len.min(most),
    }
}

/// Returns credit to `peer` for its held message that a receive or a handler has taken. Returns
/// `true` if the new limit should be sent.
#[inline(always)]
fn return_credit(peer: &mut Peer, sh: &mut Shared, taken: &TakenHeld, len: usize) -> bool {
    let (lanes, env) = &mut peer.lanes(sh);
    lanes.on_taken(env, taken.lane, taken.holds_credit, charge(len));
    lanes.has_credit_due()
}

/// Puts a peer into the queue of peers with something to transmit, and into the list of timed
/// peers.
#[inline]
fn list(ready: &mut VecDeque<PeerId>, timed: &mut Vec<PeerId>, peer: &mut Peer) {
    if peer.mark_queued() {
        ready.push_back(peer.id());
    }
    if peer.mark_timed() {
        timed.push(peer.id());
    }
}
