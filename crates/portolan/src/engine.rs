// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: stands between the protocol core and the links, and moves user memory for both.
//!
//! A turn of [`Engine::progress`] receives from the links, acts on the core's events while the
//! frame is still at hand, and sends what the core has ready. Everything happens on the thread that
//! calls; the only other thread of the process is that of [`crate::liveness`].

mod blocking;
mod carry;
mod close;
mod completion;
mod events;
mod pending;
mod place;
mod remote;
mod send;
mod tagged;
mod transmit;
mod trouble;
mod watch;

pub(crate) use carry::HELPER_NAME;
pub(crate) use completion::Completions;
pub(crate) use events::Inbox;
pub(crate) use place::Placement;
pub(crate) use remote::{Call, RemoteState};
pub(crate) use send::{BUFFERED_LEN_MAX, Submitted};
pub(crate) use trouble::Unopened;

use pending::Pending;
use place::Intake;

use crate::clock::Clock;
use crate::endpoint::Directory;
use crate::error::{Error, Reason};
use crate::launch::{Job, Launch, LossReporter};
use crate::links::Links;
use crate::liveness::{Liveness, Silence};
use crate::ops::Ops;
use crate::port::Handler;
use crate::seal::Seals;
use crate::table::Table;
use portolan_link::{Notice, TxError, TxFrame};
use portolan_proto::{
    Address, Cause, Core, Instant, Label, LinkId, PeerId, PeerStatus, PortId, SendSpec,
};
use portolan_sys::fork::Owner;
use portolan_wire::SEAL_LEN;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// Frames taken from one link per turn: a burst is worked off, and other links wait microseconds.
const RECEIVE_BUDGET: usize = 64;

/// The same from a network: fewer than a call of segmentation offload brings, so that what is to be
/// said of one leaves before the next is looked at. A sender's window is a few calls.
const NETWORK_BUDGET: usize = 32;

/// Turns between looks at the clock: 25 ns in some 32 × 20 ns.
pub(crate) const CLOCK_TURNS: u32 = 32;

/// Time without a look at the clock after which frames may have waited here: what is shorter does not
/// shrink a window (the delay target of P3.13).
const LAPSE: Duration = Duration::from_micros(150);

/// Looks at the clock after which what waited has been received: a whole round of turns, each of which
/// takes a budget's worth from each link.
const LAPSE_LOOKS: u8 = 2;

/// Turns for which a link that moved a frame is looked at every time. A system call on a silent
/// link costs as much as ten looks at shared memory.
pub(crate) const HOT_TURNS: u32 = 4096;

/// Turns in which what a process had sent before it ended is received: a ring of the shortest frames
/// takes 256, and sockets hold less.
const TAKE_IN_TURNS: u32 = 1024;

/// Between looks at notices, new connections and the launcher: three system calls or so.
const SLOW_INTERVAL: Duration = Duration::from_micros(200);

/// Without any sign of life for so long, a peer that is waited for is asked. Each question wakes both
/// sides' threads: a process that waits for one peer is woken some 20 times a second. `P9.3`
const ASK_AFTER_MAX: Duration = Duration::from_millis(200);

/// A question without an answer is repeated after this: longer than a loaded host takes to answer, and
/// many times within a peer's time to be silent, since questions and answers may be lost. `P9.3`
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A session that does not open within this fails its operations. Peers have been told of by the
/// launcher, so they exist; a loaded host takes a second to schedule them. `P9.5`
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the engine knows of a peer beside the core.
#[derive(Debug, Default)]
pub(crate) struct PeerInfo {
    /// What the launcher said of its end, or it has said itself; what this process lacks for it.
    pub(crate) report: Option<String>,
    /// What it has said that it lacks.
    pub(super) lacks: Option<&'static str>,
    /// The launcher has told that its process has ended.
    pub(crate) has_ended: bool,
    /// When a session was asked for.
    pub(crate) connecting_since: Option<Instant>,
    /// Turn in which something was last sent without waiting for company.
    pub(crate) sent_turn: u32,
    /// Messages in that turn of which waiting might be asked, and whether those of the turn before
    /// came in a burst.
    sent_count: u32,
    sends_bursts: bool,
    /// Since when it is waited for, or suspected by the core.
    pub(crate) watched_since: Option<Instant>,
    /// It is watched only because a program looks for something of it, the last time then.
    pub(super) looked_for_at: Option<Instant>,
    /// Operations of an endpoint's caller that it alone can end.
    pub(crate) awaited_count: u32,
    /// When it was last asked whether it lives.
    asked_at: Instant,
    /// How long it has been silent.
    silence: Silence,
    /// The network has said that it is gone, and it has not answered since.
    is_doubted: bool,
    /// Stands in the list of those that are watched or doubted.
    is_listed: bool,
    /// Of an endpoint: its program has removed it.
    pub(crate) is_removed: bool,
}

/// Messages of an endpoint, or of several frames, to one peer that leave one by one, although no
/// progress is made between them: a program that sends a few and then computes does not come back to
/// send what would wait.
/// Those behind them travel together, and so do all but the first of a turn that follows a burst.
pub(crate) const ALONE_MAX: u32 = 8;

impl PeerInfo {
    /// Whether nothing was sent in this turn before.
    #[inline]
    pub(crate) fn is_first(&mut self, turn: u32) -> bool {
        if self.sent_turn == turn {
            return false;
        }
        self.sends_bursts = self.sent_count > ALONE_MAX;
        (self.sent_turn, self.sent_count) = (turn, 1);
        true
    }

    /// Notes that a message is sent; `true` if it may wait for others to share a frame or a call with.
    #[inline]
    pub(crate) fn waits_for_company(&mut self, turn: u32) -> bool {
        if !self.is_first(turn) {
            self.sent_count = self.sent_count.wrapping_add(1);
        }
        self.sent_count > if self.sends_bursts { 1 } else { ALONE_MAX }
    }
}

/// What a port is open for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PortUse {
    #[default]
    Closed,
    /// Receives that are waited for.
    Open,
    /// A handler.
    Handled,
}

/// Everything but the links and the handlers, so that both can be borrowed beside it.
pub(crate) struct Inner {
    pub(crate) core: Core,
    pub(crate) ops: Ops,
    pub(crate) clock: Clock,
    /// Looks at it.
    #[cfg(test)]
    pub(crate) clock_count: u64,
    /// Time of the last look at the clock.
    pub(crate) now: Instant,
    pub(crate) job: Job,
    /// Whom an endpoint knows.
    pub(crate) directory: Option<Arc<Directory>>,
    pub(crate) table: Table,
    pub(crate) peers: Vec<PeerInfo>,
    /// Those that are waited for, suspected or doubted, and some that were until now.
    pub(crate) watched: Vec<PeerId>,
    pub(crate) pending: Pending,
    /// By port number, as far as ports were opened.
    pub(crate) port_uses: Vec<PortUse>,
    pub(crate) turn: u32,
    /// Looks at the clock until what came in a lapse has been received; 0 without one.
    pub(crate) lapse_looks: u8,
    /// A queued frame should leave at the end of this call.
    pub(crate) flush_wanted: bool,
    /// Messages to fetch from peers' memory, after the link has been left.
    pub(crate) pulls: Vec<events::Pull>,
    /// Peers whose links must be told before their frames can leave.
    pub(crate) unreached: Vec<PeerId>,
    /// Copies of messages for handlers, where the message does not lie in one piece.
    pub(crate) scratch: Vec<u8>,
    /// What links dropped, by their names for it.
    pub(crate) link_drops: BTreeMap<&'static str, u64>,
    /// What remote memory needs beside the core; apart, as it is not used by every program.
    pub(crate) remote: Box<RemoteState>,
    /// How bulk payload is received; apart, to keep what every message touches together.
    pub(crate) placement: Box<Placement>,
    /// Where the launcher is told of peers that this process has lost.
    pub(crate) losses: Option<LossReporter>,
    /// Ends of operations that an endpoint's caller is to be told of.
    pub(crate) completions: Completions,
    /// For jobs whose frames are sealed on networks.
    pub(crate) seals: Option<Box<Seals>>,
    /// A session that does not open within this fails its operations.
    pub(crate) connect_timeout: Duration,
    /// Silence after which a peer that is waited for is given up.
    pub(crate) peer_timeout: Duration,
    /// Peers that may live and may miss what they were promised.
    pub(crate) undelivered: Vec<close::Undelivered>,
    /// Bytes of copies that this process has sent to itself and not received.
    pub(crate) self_unread: usize,
    /// Nothing was there when this wait went to sleep, and nothing has come since.
    pub(crate) is_idle: bool,
    /// A question to a peer is not answered yet.
    pub(crate) is_asking: bool,
    /// Processes of the job that have ended, as the launcher tells.
    pub(crate) ended_count: u32,
    /// The process whose session this is.
    pub(crate) owner: Owner,
    /// Messages that wait at ports which the program may have forgotten to open.
    pub(crate) unopened: Vec<Unopened>,
}

/// See the module documentation.
pub(crate) struct Engine {
    pub(crate) inner: Inner,
    pub(crate) links: Links,
    pub(crate) handlers: Vec<Option<Handler>>,
    pub(crate) launch: Option<Launch>,
    pub(crate) liveness: Option<Liveness>,
    slow_at: Instant,
    /// Links that had no room for a frame, a bit each.
    pub(crate) full_mask: u8,
    #[cfg(test)]
    pub(crate) flush_count: u64,
}

impl Inner {
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

    /// What a program is told that needs a peer which is gone; the launcher hears it first.
    pub(crate) fn gone_error(&self, peer: PeerId, cause: Cause) -> Error {
        if let Some(losses) = &self.losses {
            losses.tell(peer.0, cause.to_string());
        }
        let host = self.host_of(peer);
        if cause == Cause::NoPath {
            let links = self.table.links_to(peer);
            let paths: Vec<_> = links.iter().map(LinkId::to_string).collect();
            let seconds = self.connect_timeout.as_secs();
            return Error::NoAnswer {
                rank: peer.0,
                host,
                seconds,
                paths: paths.join(" and "),
            };
        }
        let report = self.peers[peer.0 as usize].report.clone();
        if let Cause::Lacking(_) = cause {
            return Error::Lacking {
                rank: peer.0,
                host,
                what: report.unwrap_or_else(|| cause.to_string()),
            };
        }
        Error::PeerGone {
            rank: peer.0,
            host,
            reason: Reason { cause, report },
        }
    }

    /// Everything that was dropped here, by reason, by the protocol and by the links.
    pub(crate) fn drops(&self) -> BTreeMap<&'static str, u64> {
        let mut drops = self.link_drops.clone();
        let counted = self.core.counters().iter_drops();
        drops.extend(counted.map(|(reason, n)| (reason.name(), n)));
        drops
    }

    /// What `port` is open for; the library's own ports always are.
    pub(crate) fn port_use(&self, port: PortId) -> PortUse {
        if port.system {
            return PortUse::Open;
        }
        self.port_uses
            .get(usize::from(port.number))
            .copied()
            .unwrap_or_default()
    }

    /// From `since` on, silence of `peer` counts.
    pub(crate) fn watch_since(&mut self, peer: PeerId, since: Instant) {
        let info = &mut self.peers[peer.0 as usize];
        info.looked_for_at = None;
        info.watched_since.get_or_insert(since);
        self.list(peer);
    }

    fn list(&mut self, peer: PeerId) {
        let info = &mut self.peers[peer.0 as usize];
        if !info.is_listed {
            info.is_listed = true;
            self.watched.push(peer);
        }
    }

    #[inline]
    pub(crate) fn read_clock(&mut self) -> Instant {
        let before = self.now;
        self.now = self.clock.now();
        #[cfg(test)]
        {
            self.clock_count += 1;
        }
        if self.now.since(before) > LAPSE {
            self.begin_lapse();
        }
        self.now
    }

    /// Frames that are received now may have waited, since the links were not looked at.
    #[cold]
    fn begin_lapse(&mut self) {
        self.lapse_looks = LAPSE_LOOKS;
        self.core.begin_lapse(self.now);
    }

    /// The clock is looked at once more; by then the links have been emptied.
    #[cold]
    fn end_lapse(&mut self) {
        self.lapse_looks -= 1;
        if self.lapse_looks == 0 {
            self.core.end_lapse(self.now);
        }
    }
}

impl Engine {
    pub(crate) fn new(
        inner: Inner,
        links: Links,
        launch: Option<Launch>,
        liveness: Option<Liveness>,
    ) -> Self {
        Engine {
            inner,
            links,
            handlers: Vec::new(),
            launch,
            liveness,
            slow_at: Instant::default(),
            full_mask: 0,
            #[cfg(test)]
            flush_count: 0,
        }
    }

    /// One turn; returns how many frames moved.
    #[inline]
    pub(crate) fn progress(&mut self) -> usize {
        self.progress_into(None)
    }

    /// One turn, with a receive that waits for its message.
    #[inline]
    pub(crate) fn progress_into(&mut self, inbox: Option<&mut Inbox<'_>>) -> usize {
        self.work(inbox) + self.leave()
    }

    /// The first half of a turn: receives, and acts on what has come.
    #[inline]
    pub(crate) fn work(&mut self, inbox: Option<&mut Inbox<'_>>) -> usize {
        if self.inner.owner.is_another() {
            return self.abandon();
        }
        let turn = self.inner.turn.wrapping_add(1);
        self.inner.turn = turn;
        let moved = self.receive(turn, inbox);
        if turn.is_multiple_of(CLOCK_TURNS) {
            self.look_at_clock();
        }
        if !self.inner.pulls.is_empty() {
            self.pull();
        }
        if !self.inner.pending.is_empty() {
            // Says for whom.
            self.drain();
            self.inner.retry_pending();
        }
        moved
    }

    /// The second half of a turn: sends what is ready.
    #[inline]
    pub(crate) fn leave(&mut self) -> usize {
        if self.inner.core.wants_transmit() || self.full_mask != 0 {
            return self.flush();
        }
        0
    }

    /// Instead of the second half where a wait has ended: leaves acknowledgements of short messages to
    /// the program's next call. Most programs answer now, and an acknowledgement
    /// that rides on the answer saves its own system calls at both ends.
    #[inline]
    pub(crate) fn leave_to_caller(&mut self) {
        if self.inner.core.has_urgent_tx() {
            self.flush();
        }
    }

    #[inline]
    fn receive(&mut self, turn: u32, mut inbox: Option<&mut Inbox<'_>>) -> usize {
        let mut moved = 0;
        let any_hot = self.links.any_hot(turn);
        for index in 0..self.links.len() {
            let open = self.links.at(index);
            if !open.is_hot(turn) && !turn.is_multiple_of(open.interval(any_hot)) {
                continue;
            }
            let (inner, handlers) = (&mut self.inner, &mut self.handlers);
            let id = open.id;
            let count = if open.lossless {
                open.link.receive(RECEIVE_BUDGET, |frame| {
                    inner.on_frame(handlers, id, true, &frame, inbox.as_deref_mut());
                })
            } else {
                let mut intake = Intake::new(inner, handlers, id, inbox.as_deref_mut());
                let count = open.link.receive_placed(NETWORK_BUDGET, &mut intake);
                inner.placement.end_batch();
                count
            };
            if count > 0 {
                open.heat(turn, HOT_TURNS);
                moved += count;
            }
        }
        moved
    }

    /// Sends a message by the short way, if it is open.
    #[inline]
    pub(crate) fn send_direct(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        match spec.to {
            Address::Port(_) => self.send_direct_as::<8>(peer, spec, bytes),
            Address::Label(Label { imm: None, .. }) => self.send_direct_as::<16>(peer, spec, bytes),
            Address::Label(_) => self.send_direct_as::<24>(peer, spec, bytes),
        }
    }

    /// The same for a message whose header has `N` bytes.
    #[inline]
    fn send_direct_as<const N: usize>(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> bool {
        if self.inner.pending.has(peer, spec) {
            return false;
        }
        let Some(direct) = self.inner.core.direct::<N>(peer, spec, bytes.len()) else {
            return false;
        };
        let payload = [IoSlice::new(bytes)];
        let frame = TxFrame {
            head: &direct.header,
            payload: &payload,
            segments: None,
        };
        if self
            .links
            .send(self.inner.turn, peer, direct.link, &frame)
            .is_err()
        {
            self.inner.core.direct_refused(peer, spec, bytes.len());
            return false;
        }
        if self.inner.core.wants_transmit() {
            self.flush();
        }
        true
    }

    /// Acts on events that a call, not a frame, has caused.
    #[inline]
    pub(crate) fn drain(&mut self) {
        self.inner.drain(&mut self.handlers, None);
    }

    /// Sends what has gathered if it should leave before the next call.
    #[inline]
    pub(crate) fn flush_if_wanted(&mut self) {
        if self.inner.flush_wanted {
            self.flush();
        }
    }

    /// Sends everything that the core has ready; returns how many frames or runs left.
    pub(crate) fn flush(&mut self) -> usize {
        #[cfg(test)]
        {
            self.flush_count += 1;
        }
        if self.inner.owner.is_another() {
            return self.abandon();
        }
        self.inner.flush_wanted = false;
        if self.full_mask != 0 {
            for link in LinkId::ALL
                .into_iter()
                .filter(|l| self.full_mask >> l.as_u8() & 1 == 1)
            {
                self.inner.core.link_ready(link);
            }
            self.full_mask = 0;
        }
        // Shared memory needs no time stamps.
        let now = if self.links.has_lossy {
            self.inner.read_clock()
        } else {
            self.inner.now
        };
        let turn = self.inner.turn;
        let mut count = 0;
        loop {
            if !self.inner.unreached.is_empty() {
                self.reach();
            }
            let Inner {
                core,
                ops,
                seals,
                link_drops,
                ..
            } = &mut self.inner;
            let Some(transmit) = core.poll_transmit(now) else {
                break;
            };
            let (peer, link, result) = match seals {
                None => self.links.transmit(turn, ops, &transmit),
                Some(seals) => self.links.transmit_sealed(turn, ops, seals, &transmit),
            };
            match result {
                Ok(()) => count += 1,
                Err(TxError::Full) => {
                    core.transmit_refused();
                    self.full_mask |= 1 << link.as_u8();
                }
                Err(TxError::NotConnected(_)) if !self.links.is_connected(peer, link) => {
                    core.transmit_refused();
                    core.link_ready(link);
                    self.inner.unreached.push(peer);
                }
                // Like a lost frame: the core repairs it, or finds out that the path is dead.
                Err(error) => {
                    *link_drops.entry("transmit_failed").or_default() += 1;
                    log::debug!("{link} to {peer}: {error}");
                }
            }
        }
        count
    }

    /// Tells the links the addresses of peers that were never sent to.
    #[cold]
    fn reach(&mut self) {
        for peer in std::mem::take(&mut self.inner.unreached) {
            self.reach_peer(peer);
        }
    }

    pub(crate) fn reach_peer(&mut self, peer: PeerId) {
        let Inner { table, .. } = &self.inner;
        let Some(other) = table.of(peer) else { return };
        let mut has_left = false;
        let mut lacking = None;
        for link in table.own().common_links(&other) {
            let Some(addr) = other.on(link) else { continue };
            if self.links.is_connected(peer, link) {
                continue;
            }
            if let Err(error) = self.links.connect(peer, link, addr) {
                log::debug!("{link} to {peer}: {error}");
                match error.lack() {
                    Some(lack) => lacking = Some((lack, error.to_string())),
                    None => has_left |= link == LinkId::SHM,
                }
            }
        }
        if let Some((lack, what)) = lacking {
            return self.on_lacking(peer, &lack, what);
        }
        if has_left {
            // Nobody listens there any more, or the link has just seen the peer leave, and knows
            // how. What it sent before still counts, also by a connection of its own that is younger
            // than the last look. `P8.11`
            self.take_in();
            self.await_report(peer);
            self.inner.core.fail_peer(peer, Cause::ProcessGone);
        }
    }

    fn pull(&mut self) {
        for job in std::mem::take(&mut self.inner.pulls) {
            let len = usize::try_from(job.len).unwrap_or(usize::MAX);
            let off = usize::try_from(job.off).unwrap_or(usize::MAX);
            let dst = self.inner.ops.bytes_mut(job.op).get_mut(off..);
            let dst = dst.and_then(|dst| dst.get_mut(..len));
            let ok = dst.is_some_and(|dst| self.links.pull(job.peer, job.remote_addr, dst));
            self.inner.core.pull_done(job.transfer, ok);
            self.inner.drain(&mut self.handlers, None);
        }
    }

    #[inline]
    fn look_at_clock(&mut self) {
        let now = self.inner.read_clock();
        if self.inner.lapse_looks > 0 {
            self.inner.end_lapse();
        }
        if now >= self.inner.core.poll_timeout() {
            self.inner.core.handle_timeout(now);
            self.inner.drain(&mut self.handlers, None);
        }
        if now >= self.slow_at {
            self.slow_at = now + SLOW_INTERVAL;
            self.look_around();
        }
    }

    /// What needs system calls and seldom has news.
    pub(crate) fn look_around(&mut self) {
        self.hear();
        if !self.inner.unopened.is_empty() {
            self.inner.tell_unopened();
        }
        self.check_watched();
        self.inner.pending.on_time(self.inner.now);
        self.inner.drain(&mut self.handlers, None);
    }

    /// What links and the launcher tell.
    fn hear(&mut self) {
        self.hear_notices();
        self.hear_launcher();
    }

    fn hear_launcher(&mut self) {
        while let Some(gone) = self.launch.as_mut().and_then(Launch::poll) {
            let Some(info) = self.inner.peers.get_mut(gone.rank as usize) else {
                continue;
            };
            info.report = (!gone.well).then_some(gone.cause);
            info.has_ended = true;
            self.inner.ended_count += 1;
            self.take_in();
            let peer = PeerId(gone.rank);
            if self.inner.core.peer_status(peer) == PeerStatus::Unknown {
                // What is asked of it from now on ends like what was asked before.
                self.inner.core.connect(self.inner.now, peer);
            }
            self.give_up(peer, Cause::ProcessGone);
        }
    }

    /// Receives what has come so far: what a process sent before it ended still counts.
    fn take_in(&mut self) {
        // Its connection may not even have been accepted.
        self.hear_notices();
        for _ in 0..TAKE_IN_TURNS {
            self.links.heat(self.inner.turn);
            if self.receive(self.inner.turn, None) == 0 {
                return;
            }
        }
    }

    fn hear_notices(&mut self) {
        while let Some((link, notice)) = self.links.poll_notice() {
            self.on_notice(link, notice);
        }
    }

    fn on_notice(&mut self, link: LinkId, notice: Notice) {
        match notice {
            Notice::PeerGone(rank) => self.on_departure(PeerId(rank), link, Cause::ProcessGone),
            Notice::PeerClosed(rank) => self.on_departure(PeerId(rank), link, Cause::Closed),
            Notice::PeerLacks { peer, lack } => {
                if let Some(info) = self.inner.peers.get_mut(peer as usize) {
                    info.lacks = Some(lack.resource.summary());
                    info.report = Some(lack.to_string());
                }
            }
            Notice::Lacking { peer, lack, what } => self.on_lacking(PeerId(peer), &lack, what),
            Notice::Refused(rank) => self.doubt(PeerId(rank)),
            Notice::MtuShrunk {
                peer,
                frame_len_max,
            } => {
                let seal_len = self.inner.seals.as_ref().map_or(0, |_| SEAL_LEN);
                let frame_len_max = frame_len_max.saturating_sub(seal_len);
                self.inner
                    .core
                    .shrink_path(PeerId(peer), link, frame_len_max);
            }
            Notice::Capacity(len) => self.inner.core.set_buffer_len(link, len),
            Notice::Dropped(name) => *self.inner.link_drops.entry(name).or_default() += 1,
            Notice::Down(error) => log::warn!("{link} link does not work now: {error}"),
            _ => {}
        }
    }
}
