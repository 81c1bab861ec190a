// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine connects the protocol core with the links, and moves user memory for both.
//!
//! A turn of [`Engine::progress`] receives from the links, acts on the core's events while the
//! frame is still in memory, and sends what the core has ready. All work runs on the calling
//! thread. While the program makes no call, the helper thread ([`service`]) runs it instead. The
//! thread of [`crate::liveness`] does not touch the engine.

mod admission;
mod background;
mod blocking;
mod calls;
mod close;
mod collective;
mod completion;
mod delivery;
mod endpoint;
mod events;
mod explain;
mod fault;
mod gather;
mod handler;
mod help;
mod latency;
mod multicast;
mod notices;
mod pace;
mod peer;
mod peer_events;
mod pending;
mod place;
mod problems;
mod relations;
mod remote;
mod rest;
mod scout;
mod send;
mod service;
mod simulated;
mod status;
mod stream;
mod tagged;
mod transmit;
mod turn;
mod wait;
mod watch;

pub(crate) use background::Background;
pub(crate) use calls::{CALL_HEAD_LEN, reply_spec};
pub(crate) use close::Closing;
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
pub(crate) use problems::Unopened;
pub(crate) use relations::Relations;
pub(crate) use remote::{Call, RemoteState, atomic_spec};
pub(crate) use send::{BUFFERED_LEN_MAX, Submitted};
pub use simulated::InUse;
#[cfg(test)]
pub(crate) use turn::CLOCK_TURNS;
pub(crate) use wait::{Descriptor, Waiter};
pub use wait::{Interrupter, Interruption};

use calls::Calls;
use delivery::{Deferred, Handlers};
use pace::Pace;
use peer_events::PeerEvents;
use pending::Pending;

use crate::admission::Admissions;
use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::{Error, Reason};
use crate::launch::{Job, Launch, LossReporter};
use crate::links::{Links, RawBy};
use crate::liveness::{self, Liveness};
use crate::meeting::Meeting;
use crate::multicast::Multicasts;
use crate::ops::Ops;
use crate::pool::Pool;
use crate::seal::{Auth, Seals};
use crate::settings;
use crate::table::Table;
use portolan_proto::liveness::{Delays, SilenceLimits};
use portolan_proto::{Cause, Core, Instant, PeerId};
use portolan_sys::fork::Owner;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Time within which a session must open; after it, the session's operations fail. The launcher has
/// announced the peers, so they exist, but a loaded host takes a second to schedule them. Together
/// with the start of the job, the user sees the error within 10 s. `P9.5`
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Addition to [`CONNECT_TIMEOUT`] for each process of the job on this host per core that this
/// process may use. While a job starts, each of them joins, opens its links and answers all other
/// processes. 1,024 processes on two cores needed 19 s, or 37 ms for each process that shares a
/// core.
const CONNECT_SHARE: Duration = Duration::from_millis(80);

/// Returns the time within which the sessions of `job` must open.
fn connect_timeout(job: &Job) -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let sharing = (job.local_size.max(job.rivals) as usize).div_ceil(cores);
    CONNECT_TIMEOUT + CONNECT_SHARE * u32::try_from(sharing.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// State of the engine without the links and the handlers, so that both can be borrowed beside it.
pub(crate) struct Inner {
    pub(crate) core: Core,
    pub(crate) ops: Ops,
    clock: Clock,
    /// Counts clock reads (tests only).
    #[cfg(test)]
    clock_count: u64,
    /// Time of the last clock read.
    now: Instant,
    job: Job,
    /// Address book of the peers of an endpoint or of a standalone process; `None` in a job.
    directory: Option<Arc<Directory>>,
    /// Peers of a standalone process. Boxed, because most processes are in a job.
    relations: Option<Box<Relations>>,
    table: Table,
    peers: Vec<PeerInfo>,
    /// Peers that are awaited, suspected or doubted. Some may no longer be.
    watched: Vec<PeerId>,
    pending: Pending,
    /// Use of each opened port, by port number.
    port_uses: Vec<PortUse>,
    turn: u32,
    /// Turn by which all frames that queued during a poll gap have been received; `None` without a
    /// gap.
    poll_gap_end: Option<u32>,
    /// Number of short messages in the current run.
    shorts: u32,
    /// Turn of the last short message.
    short_turn: u32,
    /// Number of short messages since the last long one began that was alone.
    shorts_since_lone: u32,
    /// Set when a queued frame must be flushed before the call returns.
    flush_wanted: bool,
    /// Messages to pull from peers' memory once the link is no longer borrowed.
    pulls: Vec<events::Pull>,
    /// Long messages that peers on this host may pull.
    exposed: help::Exposed,
    /// Stream operations to perform once the link is no longer borrowed.
    stream_calls: Vec<stream::StreamCall>,
    /// Rest of the last frame, for the next receive.
    rest: rest::Rest,
    /// Peers to which a link must connect before their frames can leave.
    unreached: Vec<PeerId>,
    /// Peers that UDP has not reached yet.
    scouts: Vec<scout::Scout>,
    /// Copies of messages for handlers, if the message is not contiguous.
    scratch: Vec<u8>,
    /// Pool for long messages to handlers and for copies that are sent.
    pool: Pool,
    /// Frames that links dropped, by the links' names for the reasons.
    link_drops: BTreeMap<&'static str, u64>,
    faults: fault::Faults,
    /// State of remote memory outside the core. Boxed, because few programs use it.
    remote: Box<RemoteState>,
    /// Placement of bulk payload. Boxed, to keep the fields that every message uses close together.
    placement: Box<Placement>,
    /// Channel on which this process reports lost peers to the launcher.
    losses: Option<LossReporter>,
    /// Completions for the caller of an endpoint.
    completions: Completions,
    auth: Auth,
    /// Keys of a job that seals its frames on networks.
    seals: Option<Box<Seals>>,
    /// Time limits for silent peers.
    silence_limits: SilenceLimits,
    /// Delays of answers, and of this process's own wake-ups.
    delays: Delays,
    /// Live peers with undelivered messages.
    undelivered: Vec<close::Undelivered>,
    /// Bytes of copies that this process has sent to itself and not yet received.
    self_unread: usize,
    /// Set when a wait went to sleep without an event and none has arrived since.
    is_idle: bool,
    /// Lets other threads end waits of this process. `None` until the program creates one.
    interrupter: Option<Interrupter>,
    /// Condition that the current blocking call waits for, and the time at which its wait began.
    /// Set only for waits of more than a few turns.
    awaited: Option<(Awaited, Instant)>,
    /// Set while a liveness probe is unanswered.
    is_probing: bool,
    /// Set while the helper runs the engine. No call waits for a peer meanwhile.
    is_away: bool,
    /// Messages that arrived meanwhile and wait for their handlers to run.
    deferred: VecDeque<Deferred>,
    /// Number of turns made by the helper.
    carried_turns: u32,
    /// Number of processes of the job that have ended, according to the launcher.
    ended_count: u32,
    /// Process that owns the session.
    owner: Owner,
    /// Messages that wait at ports that the program may have forgotten to open.
    unopened: Vec<Unopened>,
    /// State of collective operations. Boxed, because few programs use it.
    collectives: Box<Collectives>,
    /// Calls of this process. Boxed, because few programs use it.
    calls: Box<Calls>,
    /// Broadcasts by multicast.
    multicasts: Box<Multicasts>,
    /// Bursts with precedence. Boxed, because few programs use them.
    admissions: Box<Admissions>,
    /// Events of peers, until the program takes them.
    peer_events: PeerEvents,
}

/// Engine of one process; see the module documentation.
pub(crate) struct Engine {
    pub(crate) inner: Inner,
    links: Links,
    handlers: Handlers,
    /// Set when every handler receives into posted buffers, so that handlers may run later.
    defers: bool,
    launch: Option<Launch>,
    liveness: Option<Liveness>,
    /// Connections of a standalone process. Boxed, because most processes are in a job.
    meeting: Option<Box<Meeting>>,
    slow_at: Instant,
    /// Time at which a program that only sends makes a turn and these checks.
    sending_at: Instant,
    pace: Pace,
    /// Links that had no room for a frame, one bit each.
    full_mask: u8,
    /// Set when the last flush left frames for the next turn, which polls for short messages first.
    has_more: bool,
    /// Descriptor on which the helper sleeps while the program computes; `None` unless
    /// `progress=thread`.
    guard: Option<Box<Descriptor>>,
    /// Set while the program sleeps, or is about to sleep, on a descriptor of its own.
    is_armed: bool,
    /// Operations of several messages.
    background: Vec<Box<dyn Background>>,
    /// State for tools.
    published: Option<Box<status::Published>>,
    #[cfg(test)]
    flush_count: u64,
}

impl Inner {
    /// Creates the engine's state for `job` without peers. `clock` gives its time.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn new(
        job: Job,
        auth: Auth,
        core: Core,
        table: Table,
        clock: Clock,
    ) -> Result<Inner, Error> {
        Ok(Inner {
            placement: Box::new(Placement::new(settings::PLACEMENT.of(&job), clock)?),
            remote: Box::default(),
            seals: auth.seals(&job),
            auth,
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
            shorts_since_lone: 0,
            short_turn: 0,
            flush_wanted: false,
            pulls: Vec::new(),
            exposed: help::Exposed::default(),
            stream_calls: Vec::new(),
            rest: rest::Rest::default(),
            unreached: Vec::new(),
            scouts: Vec::new(),
            scratch: Vec::new(),
            pool: Pool::default(),
            link_drops: BTreeMap::new(),
            faults: fault::Faults::default(),
            silence_limits: SilenceLimits {
                fixed: liveness::peer_timeout(&job)?,
                has_agents: false,
                opening: connect_timeout(&job),
            },
            delays: Delays::default(),
            undelivered: Vec::new(),
            self_unread: 0,
            is_idle: false,
            interrupter: None,
            awaited: None,
            is_probing: false,
            carried_turns: 0,
            is_away: false,
            deferred: VecDeque::new(),
            ended_count: 0,
            losses: None,
            unopened: Vec::new(),
            collectives: Box::default(),
            calls: Box::default(),
            multicasts: Box::new(Multicasts::new(&job)?),
            admissions: Box::default(),
            peer_events: PeerEvents::default(),
            owner: Owner::this_process(),
            completions: Completions::default(),
            directory: None,
            relations: None,
            job,
        })
    }

    /// Enters all processes of the job. Lost peers are reported to the launcher through `losses`.
    pub(crate) fn join(&mut self, losses: Option<LossReporter>) {
        self.peers
            .resize_with(self.job.size as usize, PeerInfo::default);
        self.open_notice_ports();
        self.losses = losses;
    }

    /// Serves the peers of `directory`. Their sessions must open within `opening`.
    pub(crate) fn set_directory(&mut self, directory: &Arc<Directory>, opening: Duration) {
        self.directory = Some(Arc::clone(directory));
        self.silence_limits.opening = opening;
    }

    /// Returns the number of turns made in the program's calls.
    pub(crate) fn turn_count(&self) -> u32 {
        self.turn.wrapping_sub(self.carried_turns)
    }

    /// Returns the time of the last clock read.
    #[inline]
    pub(crate) fn last_clock_read(&self) -> Instant {
        self.now
    }

    /// Returns the time at which a call with this `timeout` that begins now ends.
    pub(crate) fn deadline(&mut self, timeout: Duration) -> Instant {
        self.read_clock() + timeout
    }

    pub(crate) fn rank(&self) -> u32 {
        self.job.rank
    }

    pub(crate) fn size(&self) -> u32 {
        self.job.size
    }

    /// Tests whether all other processes of the job have ended, according to the launcher; in a
    /// standalone process, whether no peer is left and none can come.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        match &self.relations {
            None => self.ended_count + 1 >= self.job.size,
            Some(relations) => relations.is_without_peers(),
        }
    }

    #[inline]
    pub(crate) fn check_rank(&self, rank: u32) -> Result<PeerId, Error> {
        if rank >= self.job.size || self.owner.is_another() {
            return Err(self.refused_rank(rank));
        }
        Ok(PeerId(rank))
    }

    /// Returns the name of the peer's host, for errors.
    pub(crate) fn host_of(&self, peer: PeerId) -> String {
        self.table
            .of(peer)
            .map_or_else(String::new, |at| at.host_name.clone())
    }

    /// Reports the loss of `rank` to the launcher and returns the error. The cause is not this
    /// process's own connection but the report of another group member.
    pub(crate) fn lost(&self, rank: u32, cause: Cause, report: String) -> Error {
        let reason = Reason {
            cause,
            report: Some(report),
        };
        self.report_lost(rank, &reason);
        Error::PeerGone {
            rank,
            host: self.host_of(PeerId(rank)),
            reason,
        }
    }

    /// Reports a lost process to the launcher. A process never reports its own loss.
    fn report_lost(&self, rank: u32, reason: &Reason) {
        if let Some(losses) = &self.losses
            && rank != self.rank()
        {
            losses.report(rank, reason.to_string());
        }
    }

    /// Reports the loss of `peer` to the launcher and returns the error for the program.
    pub(crate) fn peer_error(&self, peer: PeerId, cause: Cause) -> Error {
        let report = self.peers[peer.0 as usize].report_text();
        let reason = Reason { cause, report };
        self.report_lost(peer.0, &reason);
        let host = self.host_of(peer);
        if cause == Cause::NoPath {
            return Error::NoAnswer {
                rank: peer.0,
                host,
                why: reason.report.unwrap_or_else(|| cause.to_string()),
            };
        }
        if let Cause::OutOfResource(_) = cause {
            return Error::OutOfResource {
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

    /// Returns the number of drops by reason, of the protocol and of the links.
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
        inner.silence_limits.has_agents = launch.as_ref().is_some_and(Launch::has_agents);
        Engine {
            inner,
            links,
            handlers: Handlers::OfPorts(Vec::new()),
            defers: true,
            launch,
            liveness,
            meeting: None,
            slow_at: Instant::default(),
            sending_at: Instant::default(),
            pace,
            full_mask: 0,
            has_more: false,
            guard: None,
            is_armed: false,
            background: Vec::new(),
            published: None,
            #[cfg(test)]
            flush_count: 0,
        }
    }

    /// Returns the result of [`Links::raw_by`].
    pub(crate) fn raw_by(&self) -> Option<RawBy> {
        self.links.raw_by()
    }

    /// Notifies the launcher that the links are open and that liveness probes are answered.
    pub(crate) fn announced(mut self) -> Self {
        if let Some(launch) = &mut self.launch {
            launch.ready();
        }
        self
    }

    /// Requests the launcher to end the job.
    pub(crate) fn abort(&mut self, status: i32, reason: &str) {
        if let Some(launch) = &mut self.launch
            && !self.inner.owner.is_another()
        {
            launch.abort(status, reason);
        }
    }

    /// Notifies the launcher that this process leaves the job in order.
    pub(crate) fn send_bye(&mut self) {
        if let Some(launch) = &mut self.launch {
            launch.bye();
        }
    }

    /// Handles events that a call, not a frame, has caused.
    #[inline]
    pub(crate) fn drain(&mut self) {
        self.inner.drain(&mut self.handlers, None);
    }
}

/// Counters for tests.
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
