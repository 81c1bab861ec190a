// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of one peer: session, paths and lanes.

mod best_effort;
pub(crate) mod dormant;
pub(crate) mod eager_stream;
mod handshake;
mod piggyback;
pub(crate) mod single;
pub(crate) mod stream;
mod submit;
mod transmit;

use crate::base::config::Times;
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::bulk::part::PART_LEN_MAX;
use crate::bulk::send::SendQueue;
use crate::bulk::trial::Trial;
use crate::lane::{Env, Lanes};
use crate::path::control::ControlQueue;
use crate::path::{Path, Paths};
use crate::session::SessionState;
use crate::shared::Shared;
use crate::{Cause, CreditStatus, Event, Instant, LinkId, PathStatus, PeerId, PendingWork, PortId};
use core::time::Duration;
use portolan_wire::LaneId;
use stream::StreamState;

/// Status of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStatus {
    /// Never connected.
    Unknown,
    /// The session is being opened.
    Connecting,
    /// The session is open.
    Up,
    /// The peer has failed.
    Failed(Cause),
}

/// Knowledge of whether messages may be sent directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Direct {
    #[default]
    Unknown,
    Yes,
    /// Short messages use a network.
    No,
}

#[derive(Debug)]
pub(crate) struct Peer {
    id: PeerId,
    session: SessionState,
    paths: Paths,
    /// Set if a run was sent before credit or acknowledgements that are due.
    ack_waited: bool,
    lanes: Lanes,
    control: ControlQueue,
    /// Parts of transfers that wait to be sent.
    send_queue: SendQueue,
    stream: StreamState,
    last_seen: Instant,
    /// Set while in the queue of peers with something to transmit.
    queued: bool,
    /// Reset by whatever may queue a frame, change or block a path, or end the session; see
    /// [`Peer::direct`].
    direct: Direct,
    /// Set while in the list of peers with a timer.
    timed: bool,
    /// Set while in the queue of peers that may become dormant.
    watched: bool,
    /// Work left at the last check.
    pending_work: PendingWork,
}

impl Peer {
    pub(crate) fn new(id: PeerId, session: SessionState, credit_len: u32) -> Self {
        Peer {
            id,
            session,
            paths: Paths::new(),
            ack_waited: false,
            lanes: Lanes::new(credit_len),
            control: ControlQueue::default(),
            send_queue: SendQueue::default(),
            stream: StreamState::default(),
            last_seen: Instant::default(),
            queued: false,
            direct: Direct::Unknown,
            timed: false,
            watched: false,
            pending_work: PendingWork::None,
        }
    }

    /// Takes the place of `old` in the lists that contain it.
    pub(crate) fn inherit(&mut self, old: &Peer) {
        (self.queued, self.timed) = (old.queued, old.timed);
        self.watched = old.watched;
        self.pending_work = old.pending_work;
    }

    #[inline]
    pub(crate) fn id(&self) -> PeerId {
        self.id
    }

    #[inline]
    pub(crate) fn session(&self) -> &SessionState {
        &self.session
    }

    #[inline]
    pub(crate) fn session_mut(&mut self) -> &mut SessionState {
        self.direct = Direct::Unknown;
        &mut self.session
    }

    #[inline]
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    #[inline]
    pub(crate) fn paths_mut(&mut self) -> &mut Paths {
        self.direct = Direct::Unknown;
        &mut self.paths
    }

    pub(crate) fn control(&mut self) -> &mut ControlQueue {
        &mut self.control
    }

    /// Returns the queue of transfer parts, and the stream that may carry them.
    pub(crate) fn bulk_parts(&mut self) -> (&mut SendQueue, &mut StreamState) {
        (&mut self.send_queue, &mut self.stream)
    }

    /// Returns the paths, and the stream trial that records completed transfers.
    pub(crate) fn paths_and_trial(&mut self) -> (&mut Paths, Option<&mut Trial>) {
        self.direct = Direct::Unknown;
        (&mut self.paths, self.stream.trial())
    }

    pub(crate) fn stream(&self) -> &StreamState {
        &self.stream
    }

    pub(crate) fn stream_mut(&mut self) -> &mut StreamState {
        &mut self.stream
    }

    /// Returns the status of the stream to this peer, if there is one.
    pub(crate) fn stream_status(&self) -> Option<PathStatus> {
        self.stream.is_open().then(|| PathStatus {
            link: LinkId::STREAM,
            up: true,
            validated: true,
            small: false,
            bulk: true,
            frame_len: narrow(PART_LEN_MAX),
            rtt_min: None,
            rtt: Duration::ZERO,
            inflight_count: 0,
            window: None,
        })
    }

    /// Handles a closed stream; see [`Core::stream_closed`](crate::Core::stream_closed).
    pub(crate) fn on_stream_closed(&mut self, now: Instant, sh: &mut Shared, by_fault: bool) {
        self.stream.on_closed(now, by_fault);
        sh.transfers.end_push(self.id);
        if self.session.failure().is_none() {
            self.move_pushed_requests(sh);
        }
        sh.transfers.on_stream_closed(self.id, &mut self.send_queue);
        if self.session.failure().is_none() {
            self.move_stream_messages(sh);
        }
    }

    /// Returns the link that will carry data announced on `link`, and whether it is lossless. With
    /// an open stream, the data may come by the stream, which buffers more.
    pub(crate) fn data_link(&self, link: LinkId) -> (LinkId, bool) {
        match self.paths.data_link(link) {
            (_, false) if self.stream.is_open() => (LinkId::STREAM, false),
            link => link,
        }
    }

    /// Returns the lanes, and the state against which their messages are matched.
    #[inline]
    pub(crate) fn lanes<'a>(&'a mut self, sh: &'a mut Shared) -> (&'a mut Lanes, Env<'a>) {
        let env = Env {
            peer: self.id,
            session: self.session.token_mine(),
            is_open: self.session.failure().is_none(),
            control: &mut self.control,
            sh,
        };
        (&mut self.lanes, env)
    }

    /// Returns the lanes only.
    #[inline]
    pub(crate) fn lanes_mut(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    /// Returns true if a message to `port` has been matched but not delivered.
    #[inline]
    pub(crate) fn has_undelivered(&self, lane: LaneId, port: PortId) -> bool {
        self.lanes.has_undelivered(lane, port)
    }

    pub(crate) fn credit(&self, lane: LaneId) -> CreditStatus {
        self.lanes.credit(lane)
    }

    /// Returns true if frames of its session are accepted.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.session.is_up() && self.session.failure().is_none()
    }

    /// Returns true if frames with this session token are accepted.
    #[inline]
    pub(crate) fn is_open_as(&self, token: u64) -> bool {
        self.session.token_mine() == token && self.is_open()
    }

    /// Returns the time of the last frame from this peer.
    pub(crate) fn last_seen(&self) -> Instant {
        self.last_seen
    }

    /// Records the arrival of a frame from this peer.
    #[inline]
    pub(crate) fn on_activity(&mut self, now: Instant) {
        self.last_seen = now;
    }

    /// Marks the peer as queued for transmission; returns `false` if it already was.
    #[inline]
    pub(crate) fn mark_queued(&mut self) -> bool {
        self.direct = Direct::Unknown;
        !core::mem::replace(&mut self.queued, true)
    }

    #[inline]
    pub(crate) fn unmark_queued(&mut self) {
        self.queued = false;
    }

    /// Marks the peer as having a timer; returns `false` if it already was.
    #[inline]
    pub(crate) fn mark_timed(&mut self) -> bool {
        !core::mem::replace(&mut self.timed, true)
    }

    /// Removes the timer mark if the peer has no timer; returns true if so.
    pub(crate) fn unmark_timed(&mut self, times: &Times) -> bool {
        let is_idle = self.timer(times) == Instant::NEVER
            && !self.queued
            && !self.stream.is_blocked()
            && !self.stream.eager().has_kept()
            && !self.paths.iter().any(Path::is_blocked);
        self.timed &= !is_idle;
        is_idle
    }

    /// Marks the peer as watched for dormancy. Returns `false` if it already was, or if it cannot
    /// become dormant because it is on shared memory.
    pub(crate) fn mark_watched(&mut self) -> bool {
        let begins = !self.watched && !self.paths.iter().any(Path::is_lossless);
        self.watched |= begins;
        begins
    }

    pub(crate) fn unmark_watched(&mut self) {
        self.watched = false;
    }

    /// Updates the work left. Returns the old and the new value if it changed.
    #[inline]
    pub(crate) fn update_pending_work(&mut self) -> Option<(PendingWork, PendingWork)> {
        let left = match self.session.is_up() {
            true => self.pending_transmit(),
            false => PendingWork::None,
        };
        let was = core::mem::replace(&mut self.pending_work, left);
        (was != left).then_some((was, left))
    }

    #[inline]
    fn pending_transmit(&self) -> PendingWork {
        let least = match self.control.is_empty() && self.send_queue.is_empty() {
            true => PendingWork::None,
            false => PendingWork::Unsent,
        };
        self.paths.iter().map(Path::pending_work).fold(
            least.max(self.stream.eager().pending_work()),
            PendingWork::max,
        )
    }

    /// Checks whether the peer is held back by unexpected messages; see [`Lanes::check_held_back`].
    pub(crate) fn check_held_back(&mut self, now: Instant, ctx: &Context) -> bool {
        let is_up = self.session.is_up();
        self.lanes.check_held_back(now, ctx, is_up)
    }

    pub(crate) fn status(&self) -> PeerStatus {
        match self.session.failure() {
            Some(cause) => PeerStatus::Failed(cause),
            None if self.session.is_up() => PeerStatus::Up,
            None => PeerStatus::Connecting,
        }
    }

    /// Returns true if credit or control records wait for a frame.
    #[inline]
    fn has_control(&self) -> bool {
        !self.control.is_empty() || self.lanes.has_credit_due()
    }

    /// Returns true if anything must be sent in its session, or may not have arrived.
    pub(crate) fn has_unfinished(&self) -> bool {
        let unfinished = || self.paths.iter().any(Path::has_unfinished);
        let kept = || self.stream.eager().has_kept();
        self.session.is_up() && (self.has_control() || unfinished() || kept())
    }

    /// Returns true if a submission was refused.
    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.lanes.is_starved()
    }

    /// Emits [`Event::Writable`] if a submission was refused and would be accepted now.
    pub(crate) fn wake_starved(&mut self, sh: &mut Shared) {
        let is_roomy = self.paths.iter().all(Path::has_best_effort_room);
        // By default one eager message of full length, so that the engine does not retry in vain.
        let charge = sh.ctx.credit_len() / 8;
        for lane in LaneId::ALL {
            let room = self.paths.has_small_room(lane.index());
            if room && self.lanes.tx(lane).wake(charge, is_roomy) {
                sh.ctx.emit(Event::Writable(self.id));
            }
        }
    }

    /// Moves frames of more than `len_max` bytes from `link` to the paths that work.
    pub(crate) fn move_frames(&mut self, sh: &mut Shared, link: LinkId, len_max: usize) {
        self.direct = Direct::Unknown;
        let moved = self.paths.move_frames(&mut sh.slots, link, len_max);
        for control in moved.controls {
            self.control.push(control);
        }
        self.lanes.repeat_credit(moved.credit);
        self.send_queue.push_parts(moved.parts);
    }

    /// Returns the time of the next [`Peer::on_timer`].
    pub(crate) fn timer(&self, times: &Times) -> Instant {
        if self.session.failure().is_some() {
            return Instant::NEVER;
        }
        let paths = self.paths.timer(times, self.session.is_up());
        let acks = self.stream.eager().ack_timer();
        paths
            .min(self.session.timer())
            .min(self.lanes.timer())
            .min(acks)
    }

    pub(crate) fn on_timer(&mut self, now: Instant, sh: &mut Shared) {
        self.direct = Direct::Unknown;
        self.on_hello_timer(now);
        if let Some(left) = self.paths.on_round_timer(now, &mut sh.ctx) {
            self.move_frames(sh, left, 0);
        }
        self.paths.on_timer(now, self.id, &mut sh.ctx);
        if now >= self.stream.eager().ack_timer() {
            self.push_stream_ack();
        }
        let (lanes, mut env) = self.lanes(sh);
        lanes.drop_incomplete(now, &mut env);
    }

    /// Handles an answer to a probe on `link`.
    pub(crate) fn on_probe_reply(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
        nonce: u32,
    ) {
        self.direct = Direct::Unknown;
        let preferred = sh.ctx.preferred();
        let shorter = self.paths.on_probe_reply(now, link, nonce, preferred);
        if let Some(frame_len) = shorter {
            self.move_frames(sh, link, frame_len);
        }
    }
}
