// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: stands between the protocol core and the links, and moves user memory for both.
//!
//! A turn of [`Engine::progress`] receives from the links, acts on the core's events while the
//! frame is still at hand, and sends what the core has ready. Everything happens on the thread that
//! calls, or, while that makes no call, on its helper's ([`carry`]); the thread of [`crate::liveness`] does
//! not touch the engine.

mod blocking;
mod carry;
mod close;
mod collective;
mod completion;
mod delivery;
mod endpoint;
mod events;
mod explain;
mod gather;
mod handler;
mod help;
mod hurry;
mod multicast;
mod notices;
mod pace;
mod peer;
mod peer_events;
mod pending;
mod place;
mod remote;
mod scout;
mod send;
mod stream;
mod tagged;
mod transmit;
mod trouble;
mod turn;
mod wait;
mod watch;

pub(crate) use collective::{Collectives, system_spec};
pub(crate) use completion::Completions;
pub(crate) use delivery::{Inbox, Taken};
pub(crate) use explain::Awaited;
pub use handler::Context;
pub(crate) use handler::{Handler, PortUse};
pub(crate) use multicast::multicast_id;
pub(crate) use peer::PeerInfo;
pub use peer_events::{PeerEvent, PeerEventKind};
pub(crate) use place::Placement;
pub(crate) use remote::{Call, RemoteState, atomic_spec};
pub(crate) use send::{BUFFERED_LEN_MAX, Submitted};
pub(crate) use trouble::Unopened;
#[cfg(test)]
pub(crate) use turn::CLOCK_TURNS;
pub(crate) use wait::{Descriptor, Waiter};

use delivery::Deferred;
use pace::Pace;
use peer_events::PeerEvents;
use pending::Pending;

use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::{Error, Reason};
use crate::launch::{Job, Launch, LossReporter};
use crate::links::{Links, RawBy};
use crate::liveness::{self, Liveness};
use crate::multicast::Multicasts;
use crate::ops::Ops;
use crate::seal::{Auth, Seals};
use crate::settings;
use crate::spare::Spare;
use crate::table::Table;
use portolan_proto::liveness::{Delays, Patience};
use portolan_proto::{Cause, Core, Instant, PeerId};
use portolan_sys::fork::Owner;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A session that does not open within this fails its operations. Peers have been told of by the
/// launcher, so they exist; a loaded host takes a second to schedule them. With the start of the job, a
/// person has the error within 10 s. `P9.5`
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Everything but the links and the handlers, so that both can be borrowed beside it.
pub(crate) struct Inner {
    pub(crate) core: Core,
    pub(crate) ops: Ops,
    clock: Clock,
    /// Looks at it.
    #[cfg(test)]
    clock_count: u64,
    /// Time of the last look at the clock.
    now: Instant,
    job: Job,
    /// Whom an endpoint knows.
    directory: Option<Arc<Directory>>,
    table: Table,
    peers: Vec<PeerInfo>,
    /// Those that are waited for, suspected or doubted, and some that were until now.
    watched: Vec<PeerId>,
    pending: Pending,
    /// By port number, as far as ports were opened.
    port_uses: Vec<PortUse>,
    turn: u32,
    /// Turn by which what came in a gap between polls has been received, after one.
    poll_gap_end: Option<u32>,
    /// Short messages that have passed one after another, and the turn of the last.
    shorts: u32,
    short_turn: u32,
    /// A queued frame should leave at the end of this call.
    flush_wanted: bool,
    /// Messages to fetch from peers' memory, after the link has been left.
    pulls: Vec<events::Pull>,
    /// Long messages that peers on this host may pull.
    lent: help::Lent,
    /// What is to be done about streams, after the link has been left.
    stream_calls: Vec<stream::StreamCall>,
    /// Peers whose links must be told before their frames can leave.
    unreached: Vec<PeerId>,
    /// Peers that UDP has not reached yet.
    scouts: Vec<scout::Scout>,
    /// Copies of messages for handlers, where the message does not lie in one piece.
    scratch: Vec<u8>,
    /// Memory of long messages for handlers, and of copies that are sent.
    spare: Spare,
    /// What links dropped, by their names for it.
    link_drops: BTreeMap<&'static str, u64>,
    /// What remote memory needs beside the core; apart, as it is not used by every program.
    remote: Box<RemoteState>,
    /// How bulk payload is received; apart, to keep what every message touches together.
    placement: Box<Placement>,
    /// Where the launcher is told of peers that this process has lost.
    losses: Option<LossReporter>,
    /// Ends of operations that an endpoint's caller is to be told of.
    completions: Completions,
    /// For jobs whose frames are sealed on networks.
    seals: Option<Box<Seals>>,
    /// How long silent peers are waited for.
    patience: Patience,
    /// How late answers come, and this process's own waking.
    delays: Delays,
    /// Peers that may live and may miss what they were promised.
    undelivered: Vec<close::Undelivered>,
    /// Bytes of copies that this process has sent to itself and not received.
    self_unread: usize,
    /// Nothing was there when this wait went to sleep, and nothing has come since.
    is_idle: bool,
    /// The program waits in a call for longer than some turns: for what, and since when.
    awaited: Option<(Awaited, Instant)>,
    /// A question to a peer is not answered yet.
    is_asking: bool,
    /// The program makes no call, and its helper has the engine: nobody waits for peers.
    is_away: bool,
    /// Messages that came meanwhile and whose handlers have not run.
    deferred: VecDeque<Deferred>,
    /// Turns that the helper has made.
    carried_turns: u32,
    /// Processes of the job that have ended, as the launcher tells.
    ended_count: u32,
    /// The process whose session this is.
    owner: Owner,
    /// Messages that wait at ports which the program may have forgotten to open.
    unopened: Vec<Unopened>,
    /// What is known of groups' operations; apart, as it is not used by every program.
    collectives: Box<Collectives>,
    /// Broadcasts by multicast.
    multicasts: Box<Multicasts>,
    /// What has happened to peers, for the program.
    peer_events: PeerEvents,
}

/// See the module documentation.
pub(crate) struct Engine {
    pub(crate) inner: Inner,
    links: Links,
    handlers: Vec<Option<Handler>>,
    /// All handlers get their messages in buffers that were posted: they may run later.
    defers: bool,
    launch: Option<Launch>,
    liveness: Option<Liveness>,
    slow_at: Instant,
    pace: Pace,
    /// Links that had no room for a frame, a bit each.
    full_mask: u8,
    /// The last flush has left something for the next turn, for short messages to be looked for before.
    has_more: bool,
    /// What the helper sleeps on while the program computes, if it serves what comes then.
    guard: Option<Box<Descriptor>>,
    /// The program is about to sleep, or sleeps, on a descriptor of its own.
    is_armed: bool,
    #[cfg(test)]
    flush_count: u64,
}

impl Inner {
    /// What the engine of `job` keeps beside its links; no peer is known yet.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn new(job: Job, auth: Auth, core: Core, table: Table) -> Result<Inner, Error> {
        let clock = Clock::new();
        Ok(Inner {
            placement: Box::new(Placement::new(settings::PLACEMENT.of(&job), clock)?),
            remote: Box::default(),
            seals: auth.seals(&job),
            core,
            ops: Ops::default(),
            clock,
            now: Instant::default(),
            peers: Vec::new(),
            table,
            watched: Vec::new(),
            #[cfg(test)]
            clock_count: 0,
            pending: Default::default(),
            port_uses: Vec::new(),
            turn: 0,
            poll_gap_end: None,
            shorts: 0,
            short_turn: 0,
            flush_wanted: false,
            pulls: Vec::new(),
            lent: help::Lent::default(),
            stream_calls: Vec::new(),
            unreached: Vec::new(),
            scouts: Vec::new(),
            scratch: Vec::new(),
            spare: Spare::default(),
            link_drops: BTreeMap::new(),
            patience: Patience {
                fixed: liveness::peer_timeout(&job)?,
                has_agents: false,
                opening: CONNECT_TIMEOUT,
            },
            delays: Delays::default(),
            undelivered: Vec::new(),
            self_unread: 0,
            is_idle: false,
            awaited: None,
            is_asking: false,
            carried_turns: 0,
            is_away: false,
            deferred: VecDeque::new(),
            ended_count: 0,
            losses: None,
            unopened: Vec::new(),
            collectives: Box::default(),
            multicasts: Box::new(Multicasts::new(&job)?),
            peer_events: PeerEvents::default(),
            owner: Owner::this_process(),
            completions: Completions::default(),
            directory: None,
            job,
        })
    }

    /// Knows the processes of a job from the start, and tells its launcher whom it loses.
    pub(crate) fn join(&mut self, losses: Option<LossReporter>) {
        self.peers
            .resize_with(self.job.size as usize, PeerInfo::default);
        self.open_news();
        self.losses = losses;
    }

    /// Meets the peers of `directory`. Their sessions must open within `opening`.
    pub(crate) fn stand_alone(&mut self, directory: &Arc<Directory>, opening: Duration) {
        self.directory = Some(Arc::clone(directory));
        self.patience.opening = opening;
    }

    /// Turns in calls of the program.
    pub(crate) fn turn_count(&self) -> u32 {
        self.turn.wrapping_sub(self.carried_turns)
    }

    /// Time of the last look at the clock.
    #[inline]
    pub(crate) fn last_look(&self) -> Instant {
        self.now
    }

    pub(crate) fn rank(&self) -> u32 {
        self.job.rank
    }

    pub(crate) fn size(&self) -> u32 {
        self.job.size
    }

    /// Whether every other process of the job has ended, as far as the launcher tells.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.ended_count + 1 >= self.job.size
    }

    #[inline]
    pub(crate) fn check_rank(&self, rank: u32) -> Result<PeerId, Error> {
        if rank >= self.job.size || self.owner.is_another() {
            return Err(self.refused_rank(rank));
        }
        Ok(PeerId(rank))
    }

    /// Name of a peer's host, for errors.
    pub(crate) fn host_of(&self, peer: PeerId) -> String {
        self.table
            .of(peer)
            .map_or_else(String::new, |at| at.host_name.clone())
    }

    /// What a program is told whose group has lost `rank`, for a reason that is not this process's own
    /// connection; the launcher hears it first.
    pub(crate) fn lost(&self, rank: u32, cause: Cause, report: String) -> Error {
        let reason = Reason {
            cause,
            report: Some(report),
        };
        self.tell_lost(rank, &reason);
        Error::PeerGone {
            rank,
            host: self.host_of(PeerId(rank)),
            reason,
        }
    }

    /// A process never reports its own loss.
    fn tell_lost(&self, rank: u32, reason: &Reason) {
        if let Some(losses) = &self.losses
            && rank != self.rank()
        {
            losses.tell(rank, reason.to_string());
        }
    }

    /// What a program is told that needs a peer which is gone; the launcher hears it first.
    pub(crate) fn gone_error(&self, peer: PeerId, cause: Cause) -> Error {
        let report = self.peers[peer.0 as usize].report_text();
        let reason = Reason { cause, report };
        self.tell_lost(peer.0, &reason);
        let host = self.host_of(peer);
        if cause == Cause::NoPath {
            return Error::NoAnswer {
                rank: peer.0,
                host,
                why: reason.report.unwrap_or_else(|| cause.to_string()),
            };
        }
        if let Cause::Lacking(_) = cause {
            return Error::Lacking {
                rank: peer.0,
                host,
                what: reason.report.unwrap_or_else(|| cause.to_string()),
            };
        }
        Error::PeerGone {
            rank: peer.0,
            host,
            reason,
        }
    }

    /// Everything that was dropped here, by reason, by the protocol and by the links.
    pub(crate) fn drops(&self) -> BTreeMap<&'static str, u64> {
        let mut drops = self.link_drops.clone();
        let counted = self.core.counters().iter_drops();
        drops.extend(counted.map(|(reason, n)| (reason.name(), n)));
        let unknown = self.multicasts.unknown_count();
        drops.extend((unknown > 0).then_some(("multicast_unknown", unknown)));
        drops
    }
}

impl Engine {
    pub(crate) fn new(
        mut inner: Inner,
        links: Links,
        launch: Option<Launch>,
        liveness: Option<Liveness>,
    ) -> Self {
        let pace = Pace::new(inner.turn);
        inner.patience.has_agents = launch.as_ref().is_some_and(Launch::has_agents);
        Engine {
            inner,
            links,
            handlers: Vec::new(),
            defers: true,
            launch,
            liveness,
            slow_at: Instant::default(),
            pace,
            full_mask: 0,
            has_more: false,
            guard: None,
            is_armed: false,
            #[cfg(test)]
            flush_count: 0,
        }
    }

    /// As [`Links::raw_by`].
    pub(crate) fn raw_by(&self) -> Option<RawBy> {
        self.links.raw_by()
    }

    /// Tells the launcher that the links are open and that questions are answered.
    pub(crate) fn announced(mut self) -> Self {
        if let Some(launch) = &mut self.launch {
            launch.ready();
        }
        self
    }

    /// Has the launcher end the job.
    pub(crate) fn abort(&mut self, status: i32, reason: &str) {
        if let Some(launch) = &mut self.launch
            && !self.inner.owner.is_another()
        {
            launch.abort(status, reason);
        }
    }

    /// Tells the launcher that this process leaves the job well.
    pub(crate) fn say_bye(&mut self) {
        if let Some(launch) = &mut self.launch {
            launch.bye();
        }
    }

    /// Acts on events that a call, not a frame, has caused.
    #[inline]
    pub(crate) fn drain(&mut self) {
        self.inner.drain(&mut self.handlers, None);
    }
}

/// What tests count.
#[cfg(test)]
impl Engine {
    pub(crate) fn flush_count(&self) -> u64 {
        self.flush_count
    }
}

#[cfg(test)]
impl Inner {
    pub(crate) fn clock_count(&self) -> u64 {
        self.clock_count
    }

    pub(crate) fn has_no_pending(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn tried_count(&self) -> u64 {
        self.pending.tried_count()
    }
}
