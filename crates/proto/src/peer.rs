// SPDX-License-Identifier: MIT OR Apache-2.0
//! One peer: its session, its paths, its lanes.

mod piggyback;
mod transmit;

use crate::base::config::Times;
use crate::bulk::send::SendQueue;
use crate::lane::LaneRx;
use crate::lane::tx::LaneTx;
use crate::path::control::ControlQueue;
use crate::path::{Path, Paths};
use crate::session::SessionState;
use crate::shared::Shared;
use crate::{Cause, Event, Instant, LinkId, PeerId};
use portolan_wire::LaneId;

/// How things stand with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStatus {
    /// Never connected.
    Unknown,
    /// The session is being opened.
    Connecting,
    /// Messages flow.
    Up,
    /// Given up.
    Failed(Cause),
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) session: SessionState,
    pub(crate) paths: Paths,
    /// A run went ahead of credit or acknowledgements that are due.
    pub(crate) ack_waited: bool,
    pub(crate) lanes_tx: [LaneTx; 2],
    pub(crate) lanes_rx: [LaneRx; 2],
    pub(crate) credit_due: [bool; 2],
    pub(crate) control: ControlQueue,
    /// What of transfers waits to be sent.
    pub(crate) send_queue: SendQueue,
    pub(crate) last_heard: Instant,
    /// Stands in the queue of peers with something to transmit.
    pub(crate) queued: bool,
    /// Stands in the list of peers with a timer.
    pub(crate) timed: bool,
    /// Stands in the queue of those that may rest soon.
    pub(crate) watched: bool,
    /// Counted among those with [`Core::has_outstanding`](crate::Core::has_outstanding).
    pub(crate) is_outstanding: bool,
    /// By what waits here.
    pub(crate) held_back: crate::lane::shortage::HeldBack,
}

impl Peer {
    pub(crate) fn new(id: PeerId, session: SessionState, credit_len: u32) -> Self {
        Peer {
            id,
            session,
            paths: Paths::new(),
            ack_waited: false,
            lanes_tx: Default::default(),
            lanes_rx: [LaneRx::new(credit_len), LaneRx::new(credit_len)],
            credit_due: [false; 2],
            control: ControlQueue::default(),
            send_queue: SendQueue::default(),
            last_heard: Instant::default(),
            queued: false,
            timed: false,
            watched: false,
            is_outstanding: false,
            held_back: crate::lane::shortage::HeldBack::default(),
        }
    }

    pub(crate) fn status(&self) -> PeerStatus {
        match self.session.failed {
            Some(cause) => PeerStatus::Failed(cause),
            None if self.session.up => PeerStatus::Up,
            None => PeerStatus::Connecting,
        }
    }

    /// Tells the peer of consumed credit, acknowledgements and control records: whether any wait.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty() || self.credit_due.iter().any(|due| *due)
    }

    /// Something is to be sent in its session, or not known to have arrived.
    pub(crate) fn has_unfinished(&self) -> bool {
        let unfinished = || self.paths.iter().any(Path::has_unfinished);
        self.session.up && (self.has_control() || unfinished())
    }

    /// Some submission was refused.
    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.lanes_tx.iter().any(LaneTx::is_starved)
    }

    /// Some submission was refused and would not be now.
    pub(crate) fn wake_starved(&mut self, sh: &mut Shared) {
        for lane in LaneId::ALL {
            let room = self.paths.has_small_room(lane.index());
            // Half of an eager message at least, so that the engine does not try in vain each time.
            let tx = &mut self.lanes_tx[lane.index()];
            if room && tx.wake(sh.ctx.credit_len() / 8) {
                sh.ctx.emit(Event::Writable(self.id));
            }
        }
    }

    /// Moves what `link` carries in frames of more than `len_max` bytes to the paths that work.
    pub(crate) fn move_frames(&mut self, sh: &mut Shared, link: LinkId, len_max: usize) {
        let moved = self.paths.move_frames(&mut sh.slots, link, len_max);
        for control in moved.controls {
            self.control.push(control);
        }
        for (due, moved) in self.credit_due.iter_mut().zip(moved.credit) {
            *due |= moved;
        }
        self.send_queue.push_parts(moved.parts);
    }

    /// When [`Peer::on_timer`] has something to do.
    pub(crate) fn timer(&self, times: &Times) -> Instant {
        if self.session.failed.is_some() {
            return Instant::NEVER;
        }
        let paths = self.paths.timer(times, self.session.up);
        paths.min(self.session.timer())
    }

    pub(crate) fn on_timer(&mut self, now: Instant, sh: &mut Shared) {
        self.on_hello_timer(now);
        if let Some(left) = self.paths.on_round_timer(now, &mut sh.ctx) {
            self.move_frames(sh, left, 0);
        }
        self.paths.on_timer(now, self.id, &mut sh.ctx);
    }

    /// An answer to a probe came by `link`.
    pub(crate) fn on_probe_answered(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
        nonce: u32,
    ) {
        let preferred = sh.ctx.preferred();
        let shorter = self.paths.on_probe_answered(now, link, nonce, preferred);
        if let Some(frame_len) = shorter {
            self.move_frames(sh, link, frame_len);
        }
    }
}
