// SPDX-License-Identifier: MIT OR Apache-2.0
//! One peer: its session, its paths, its lanes.

mod piggyback;
pub(crate) mod transmit;

use crate::lane::{LaneRx, LaneTx};
use crate::path::Path;
use crate::path::congestion::Congestion;
use crate::session::SessionState;
use crate::shared::Shared;
use crate::{Cause, Instant, LinkId, PathStatus, PeerId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use portolan_wire::{Done, Grant, LaneId, RemoteAnswer, RemoteSource};

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

/// Records that wait for a frame to the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Grant(Grant),
    Done(Done),
    Answer(RemoteAnswer),
    Source(RemoteSource),
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) session: SessionState,
    pub(crate) paths: [Option<Box<Path>>; LinkId::COUNT],
    /// A run went ahead of credit or acknowledgements that are due.
    pub(crate) ack_waited: bool,
    /// Paths for small messages and for bulk data.
    pub(crate) small: Option<LinkId>,
    pub(crate) bulk: Option<LinkId>,
    pub(crate) lanes_tx: [LaneTx; 2],
    pub(crate) lanes_rx: [LaneRx; 2],
    pub(crate) credit_due: [bool; 2],
    pub(crate) control: VecDeque<Control>,
    /// The grant that was sent last, while its transfer may wait for it. `P5.11`
    pub(crate) last_grant: Option<Grant>,
    /// Transfers to this peer that have been granted bytes which are not sent yet.
    pub(crate) bulk_ready: VecDeque<u32>,
    /// Parts of transfers that are to be sent again, by whichever path carries bulk data.
    pub(crate) pieces: VecDeque<crate::path::refragment::Piece>,
    pub(crate) doubt: crate::path::failover::Doubt,
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
            paths: [const { None }; LinkId::COUNT],
            ack_waited: false,
            small: None,
            bulk: None,
            lanes_tx: Default::default(),
            lanes_rx: [LaneRx::new(credit_len), LaneRx::new(credit_len)],
            credit_due: [false; 2],
            control: VecDeque::new(),
            last_grant: None,
            bulk_ready: VecDeque::new(),
            pieces: VecDeque::new(),
            doubt: crate::path::failover::Doubt::default(),
            last_heard: Instant::default(),
            queued: false,
            timed: false,
            watched: false,
            is_outstanding: false,
            held_back: crate::lane::shortage::HeldBack::default(),
        }
    }

    #[inline]
    pub(crate) fn path_mut(&mut self, link: LinkId) -> Option<&mut Path> {
        self.paths[link.index()].as_deref_mut()
    }

    /// The path that small messages take now.
    #[inline]
    pub(crate) fn small_path(&mut self) -> Option<&mut Path> {
        let link = self.small?;
        self.path_mut(link)
    }

    pub(crate) fn status(&self) -> PeerStatus {
        match self.session.failed {
            Some(cause) => PeerStatus::Failed(cause),
            None if self.session.up => PeerStatus::Up,
            None => PeerStatus::Connecting,
        }
    }

    pub(crate) fn path_status(&self, link: LinkId) -> Option<PathStatus> {
        let path = self.paths[link.index()].as_deref()?;
        Some(PathStatus {
            link,
            up: path.is_usable(),
            small: self.small == Some(link),
            bulk: self.bulk == Some(link),
            frame_len: path.frame_len,
            rtt_min: path.probe.best.or(path.rtt.min()).map(Into::into),
            rtt: path.rtt.smoothed().into(),
            inflight_count: path.inflight.len(),
            window: path.congestion.as_ref().map(Congestion::window),
        })
    }

    /// Chooses the paths by what was measured: small messages take the shortest round trip, bulk
    /// data the most bytes per call. `P6.5`
    pub(crate) fn choose_paths(&mut self, preferred: Option<LinkId>) {
        let up = || self.paths.iter().flatten().filter(|path| path.is_usable());
        let small = up().min_by_key(|path| {
            // Shared memory is chosen before its first round trip: it is lossless.
            if path.params.lossless || preferred == Some(path.link) {
                crate::base::time::Span::ZERO
            } else {
                // Acknowledgements of data may come by another path: only probes compare paths.
                path.probe.best.unwrap_or(crate::base::time::Span::MAX)
            }
        });
        let bulk = up().max_by_key(|path| {
            (
                path.params.lossless,
                path.params.segments_max.max(1) * path.frame_len,
            )
        });
        (self.small, self.bulk) = (small.map(|path| path.link), bulk.map(|path| path.link));
    }

    /// Tells the peer of consumed credit, acknowledgements and control records: whether any wait.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty() || self.credit_due.iter().any(|due| *due)
    }

    /// Something is to be sent in its session, or not known to have arrived.
    pub(crate) fn has_unfinished(&self) -> bool {
        let paths = || self.paths.iter().flatten();
        self.session.up && (self.has_control() || paths().any(|path| path.has_unfinished()))
    }

    /// Some submission was refused.
    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.lanes_tx.iter().any(|lane| lane.starved)
    }

    /// Some submission was refused and would not be now.
    pub(crate) fn wake_starved(&mut self, sh: &mut Shared) {
        for lane in LaneId::ALL {
            let room = self
                .small_path()
                .is_some_and(|path| path.has_room(lane.index()));
            let tx = &mut self.lanes_tx[lane.index()];
            // Half of an eager message at least, so that the engine does not try in vain each time.
            if tx.starved && room && tx.has_credit(sh.ctx.credit_len() / 8) {
                tx.starved = false;
                sh.ctx.emit(crate::Event::Writable(self.id));
            }
        }
    }
}
