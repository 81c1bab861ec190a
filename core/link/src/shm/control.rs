// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control path: opening, connecting, and detecting departed peers. Accepting is in `accept`.
//!
//! All sockets are in one epoll set. A poll without events is one system call, for any number of
//! peers.

use super::Shm;
use super::config::ShmConfig;
use super::data::{BURST_MAX, Scratch};
use super::hello::{Hello, HelloKey};
use super::peer::{Channel, Departure, Life, Outbound, Reports, Token};
use crate::{HostId, LinkAddr, LinkCaps, LinkError, LinkKind, Notice, PeerId};
use portolan_sys::doorbell;
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::ring::{self, RingBroken};
use portolan_sys::seqpacket::{PeerCred, ReserveFd, Seqpacket, SeqpacketListener, effective_uid};
use portolan_sys::shortage::Shortage;
use portolan_sys::vm_read;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Refusals queued for reporting. Departures are always queued: there is one per peer.
const REFUSALS_MAX: usize = 256;

/// Maximum number of slices in a gather list. The ring accepts any number; this is the limit of the
/// system calls that other links use (IOV_MAX).
const GATHER_MAX: usize = 1024;

const RAISE_LIMITS: &str = "raise the limits of open files (ulimit -n) and of memory";

/// Time that a connection waits for the limit on descriptors in flight: the time in which a session
/// may open (P9.5).
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(10);

impl Shm {
    /// Opens the link of one process. Peers can connect from now on.
    ///
    /// # Errors
    /// [`LinkError::System`] if the system refuses the socket, or `/proc` is missing.
    ///
    /// # Panics
    /// Panics if `ring_len` is not a power of two between 16 KiB and 64 MiB.
    pub fn open(config: ShmConfig) -> Result<Self, LinkError> {
        assert!(
            ring::is_valid_ring_len(config.ring_len),
            "ring length {}",
            config.ring_len
        );
        let host = HostId::current().map_err(system(
            "read the host's identity in /proc",
            "mount /proc for this process",
        ))?;
        let name = socket_name(&config);
        let what = format!("listen on the abstract unix socket {name}");
        let listener =
            SeqpacketListener::bind(name.as_bytes()).map_err(system(what, RAISE_LIMITS))?;
        let reserve = ReserveFd::new(&listener);
        let epoll = Epoll::new().map_err(system("create an epoll set", RAISE_LIMITS))?;
        epoll
            .add(&listener, Token::Listener.encode())
            .map_err(system("watch the listening socket", RAISE_LIMITS))?;
        if config.allow_pull {
            vm_read::permit_readers();
        }
        Ok(Shm {
            caps: caps(&config),
            outbound: Vec::new(),
            inbound: Vec::new(),
            cursor: 0,
            burst_left: BURST_MAX,
            scratch: Scratch::new(),
            key: HelloKey::derive(&config.secret),
            can_pull: config.allow_pull,
            config,
            host,
            uid: effective_uid(),
            name,
            listener,
            epoll,
            ready: Vec::new(),
            greetings: Vec::new(),
            greeting_next: 0,
            accept_pause: None,
            reserve,
            shortage: None,
            peers: HashMap::new(),
            returning: Vec::new(),
            leaving: Vec::new(),
            pending: Vec::new(),
            notices: VecDeque::new(),
        })
    }

    pub(super) fn connect_peer(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        let connected = self.try_connect(peer, addr);
        if let Err(error) = &connected
            && let Some(shortage) = error.shortage()
        {
            self.announce_shortage(shortage);
        }
        connected
    }

    fn try_connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        // Otherwise the hang-up of the old connection, once seen, would also end the new one.
        self.check_departure(peer);
        let name = self.check_addr(peer, addr)?;
        if self
            .outbound
            .get(peer as usize)
            .is_some_and(Option::is_some)
        {
            return Ok(());
        }
        let what = format!(
            "create a ring of {} bytes to peer {peer}",
            self.config.ring_len
        );
        let (ring, memory) =
            ring::create(self.config.ring_len).map_err(system(what, RAISE_LIMITS))?;
        let channel = Channel::Pending {
            name: name.to_owned(),
            memory,
            since: Instant::now(),
        };
        let mut outbound = Outbound {
            ring,
            blocked_len: None,
            channel,
        };
        if !self.establish(peer, &mut outbound)? {
            self.pending.push(peer);
        }
        let index = peer as usize;
        if self.outbound.len() <= index {
            self.outbound.resize_with(index + 1, || None);
        }
        self.outbound[index] = Some(outbound);
        self.peers.entry(peer).or_default();
        Ok(())
    }

    /// Removes the peer: sends a farewell if it is alive, and closes all sockets with it. `P8.8`
    pub(super) fn forget(&mut self, peer: PeerId) {
        if self.life_of(peer) == Some(Life::Live) {
            // Connections that it has made so far end with the rest.
            self.accept_waiting();
        }
        let has_left = self.life_of(peer).is_some_and(|life| life != Life::Live);
        self.bid_farewell(peer);
        self.close(peer);
        self.remove_inbound(peer);
        self.leaving.retain(|&other| other != peer);
        self.peers.remove(&peer);
        let returning = self
            .returning
            .iter()
            .position(|returning| returning.inbound.peer == peer);
        if let Some(index) = returning {
            let returning = self.returning.swap_remove(index);
            if has_left && let Err(reason) = self.take_in(returning.inbound, returning.pid) {
                self.refuse(reason);
            }
        }
    }

    pub(super) fn life_of(&self, peer: PeerId) -> Option<Life> {
        self.peers.get(&peer).map(|state| state.life)
    }

    fn bid_farewell(&self, peer: PeerId) {
        for socket in self.sockets_of(peer) {
            doorbell::bid_farewell(socket);
        }
    }

    fn sockets_of(&self, peer: PeerId) -> impl Iterator<Item = &Seqpacket> {
        let outbound = self.outbound.get(peer as usize).and_then(Option::as_ref);
        let inbound = self.inbound.iter().find(|inbound| inbound.peer == peer);
        let socket_out = outbound.and_then(Outbound::socket);
        socket_out
            .into_iter()
            .chain(inbound.map(|inbound| &inbound.socket))
    }

    /// Reports to all peers which resource this process lacks, because it may exit for that reason.
    /// `P8.13`
    pub(super) fn announce_shortage(&mut self, shortage: Shortage) {
        if self.shortage.replace(shortage) == Some(shortage) {
            return;
        }
        let outbound = self.outbound.iter().flatten().filter_map(Outbound::socket);
        let inbound = self.inbound.iter().map(|inbound| &inbound.socket);
        for socket in outbound.chain(inbound) {
            doorbell::report_shortage(socket, &shortage);
        }
        // Otherwise processes that wait to be accepted would only see the end of this process.
        self.accept_or_refuse_waiting();
    }

    /// Checks if a connection with `peer` has hung up, before the epoll set reports it.
    pub(super) fn check_departure(&mut self, peer: PeerId) {
        let mut all = Reports::default();
        for socket in self.sockets_of(peer) {
            let reports = Reports::read(socket);
            all.shortage = all.shortage.or(reports.shortage);
            all.departure = reports.departure;
            if all.departure.is_some() {
                break;
            }
        }
        self.on_reports(peer, &all);
    }

    /// Handles what `peer` reported on its socket.
    fn on_reports(&mut self, peer: PeerId, reports: &Reports) {
        if let Some(shortage) = reports.shortage
            && let Some(state) = self.peers.get_mut(&peer)
            && !std::mem::replace(&mut state.has_shortage, true)
        {
            self.notices
                .push_back(Notice::PeerShortage { peer, shortage });
        }
        if let Some(departure) = reports.departure {
            self.leave(peer, departure);
        }
    }

    /// Handles all events of the epoll set.
    pub(super) fn service(&mut self) {
        self.retry_pending();
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        if self.epoll.poll(&mut ready).is_err() {
            self.refuse("shm: cannot look at sockets");
        }
        for event in &ready {
            self.handle(*event);
        }
        self.ready = ready;
        self.retry_accepting();
        if !self.leaving.is_empty() {
            // Connections that a peer made before it died may still wait to be accepted, with
            // frames.
            self.accept_waiting();
            self.report_departed();
        }
    }

    /// Reports a refusal under a fixed name.
    pub(super) fn refuse(&mut self, reason: &'static str) {
        if self.notices.len() < REFUSALS_MAX {
            self.notices.push_back(Notice::Dropped(reason));
        }
    }

    /// Closes the connection with a peer that has a corrupt ring. `P8.7`
    pub(super) fn break_off(&mut self, peer: PeerId, broken: RingBroken) {
        log::warn!("shm link: peer {peer}: {broken}; its connection is closed");
        self.refuse("shm: corrupt ring");
        self.leave(peer, Departure::Died);
        self.remove_inbound(peer);
        self.report_departed();
    }

    /// First step of a departure: sending stops; frames that have arrived may still be received.
    pub(super) fn leave(&mut self, peer: PeerId, departure: Departure) {
        self.close(peer);
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        state.farewell |= departure == Departure::Closed;
        if state.life == Life::Live {
            state.life = Life::Leaving;
            self.leaving.push(peer);
        }
    }

    fn handle(&mut self, event: Ready) {
        match Token::decode(event.token) {
            Token::Listener => self.accept_waiting(),
            Token::Greeting(id) => self.read_greeting(id),
            Token::Outbound(peer) => {
                let outbound = self.outbound.get(peer as usize).and_then(Option::as_ref);
                if let Some(socket) = outbound.and_then(Outbound::socket) {
                    let reports = read_reports(socket, event);
                    self.on_reports(peer, &reports);
                }
            }
            Token::Inbound(peer) => {
                let inbound = self.inbound.iter().find(|inbound| inbound.peer == peer);
                if let Some(inbound) = inbound {
                    let reports = read_reports(&inbound.socket, event);
                    self.on_reports(peer, &reports);
                }
            }
        }
    }

    /// Second step of a departure, after all frames of the peer were received. `P8.8`
    fn report_departed(&mut self) {
        for peer in std::mem::take(&mut self.leaving) {
            let inbound = self.inbound.iter().find(|inbound| inbound.peer == peer);
            if inbound.is_some_and(|inbound| inbound.ring.has_entry()) {
                self.leaving.push(peer);
                continue;
            }
            self.remove_inbound(peer);
            let mut farewell = false;
            if let Some(state) = self.peers.get_mut(&peer) {
                state.life = Life::Departed;
                farewell = state.farewell;
            }
            self.notices.push_back(match farewell {
                true => Notice::PeerClosed(peer),
                false => Notice::PeerDied(peer),
            });
        }
    }

    /// Closes the ring to a peer, and stops watching the socket of the ring from it, which would
    /// report the hang-up forever.
    fn close(&mut self, peer: PeerId) {
        self.pending.retain(|&other| other != peer);
        let outbound = self.outbound.get_mut(peer as usize).and_then(Option::take);
        if let Some(socket) = outbound.as_ref().and_then(Outbound::socket) {
            self.epoll.remove(socket);
        }
        if let Some(inbound) = self.inbound.iter().find(|inbound| inbound.peer == peer) {
            self.epoll.remove(&inbound.socket);
        }
    }

    fn remove_inbound(&mut self, peer: PeerId) {
        if let Some(index) = self.inbound.iter().position(|inbound| inbound.peer == peer) {
            let inbound = self.inbound.swap_remove(index);
            self.epoll.remove(&inbound.socket);
        }
    }

    fn check_addr<'a>(&self, peer: PeerId, addr: &'a LinkAddr) -> Result<&'a str, LinkError> {
        let no = |why| Err(unreachable(peer, why));
        let LinkAddr::Shm {
            host, uid, name, ..
        } = addr
        else {
            return no("its address is of another kind of link");
        };
        if *host != self.host {
            return no("it is on another host or in another network namespace; use a network link");
        }
        if *uid != self.uid {
            return no("it belongs to another user; start all processes of a job as one user");
        }
        if peer >= self.config.rank_count_max {
            return no("its rank is above the limit of this link; raise rank_count_max");
        }
        match self.peers.get(&peer).map(|state| state.life) {
            Some(Life::Leaving | Life::Departed) => no("it has left; disconnect it first"),
            Some(Life::Live) | None => Ok(name),
        }
    }

    /// Connects and sends the hello. Returns `false` if this must be retried later.
    fn establish(&mut self, peer: PeerId, outbound: &mut Outbound) -> Result<bool, LinkError> {
        let Channel::Pending {
            name,
            memory,
            since,
        } = &outbound.channel
        else {
            return Ok(true);
        };
        let mut hello = Hello {
            job_id: self.config.job_id,
            from: self.config.rank,
            to: peer,
            ring_len: self.config.ring_len as u64,
            nonce: fresh_nonce()?,
            endpoint_id: None,
        };
        let record = match &self.config.open {
            None => hello.encode(&self.key, name),
            Some(open) => {
                // P8.10: the key comes from the peer's address only.
                let key = open.directory.key_of(peer);
                let key = key.ok_or_else(|| {
                    unreachable(peer, "its endpoint id is not known to this process")
                })?;
                (hello.from, hello.to) = (0, 0);
                hello.endpoint_id = Some(open.directory.own_endpoint_id());
                hello.encode(&HelloKey::derive(&key), name)
            }
        };
        let attempt = connect_as(self.uid, name, &record, memory.as_fd());
        let (socket, cred) = match attempt {
            Ok(Some(connection)) => connection,
            Ok(None) => {
                return Err(unreachable(
                    peer,
                    "a process of another user listens at its address",
                ));
            }
            Err(err) if is_temporary(&err, *since) => return Ok(false),
            Err(err) => {
                let what = format!("connect to the socket {name} of peer {peer}");
                return Err(system(what, "check if that process has ended")(err));
            }
        };
        let what = format!("watch the connection to peer {peer}");
        self.epoll
            .add(&socket, Token::Outbound(peer).encode())
            .map_err(system(what, RAISE_LIMITS))?;
        outbound.channel = Channel::Open(socket);
        // The pid comes from the kernel, not from the address, because pids differ between pid
        // namespaces.
        let state = self.peers.entry(peer).or_default();
        state.pid = state.pid.or(cred.pid);
        Ok(true)
    }

    /// Handles the failure of a pending connection.
    fn fail_pending(&mut self, peer: PeerId, error: &LinkError) {
        let Some(shortage) = error.shortage() else {
            log::warn!("{error}");
            return self.leave(peer, Departure::Died);
        };
        self.close(peer);
        self.announce_shortage(shortage);
        self.notices.push_back(Notice::Shortage {
            peer,
            shortage,
            what: error.to_string(),
        });
    }

    fn retry_pending(&mut self) {
        for peer in std::mem::take(&mut self.pending) {
            let Some(mut outbound) = self.outbound.get_mut(peer as usize).and_then(Option::take)
            else {
                continue;
            };
            let established = self.establish(peer, &mut outbound);
            self.outbound[peer as usize] = Some(outbound);
            match established {
                Ok(true) => {}
                Ok(false) => self.pending.push(peer),
                Err(err) => self.fail_pending(peer, &err),
            }
        }
    }
}

/// Connects to `name`, checks that a process of user `uid` listens there, and sends the hello:
/// `P8.6`. Returns `None` if it is another user's process, because any process may take a name
/// after its owner has died.
fn connect_as(
    uid: u32,
    name: &str,
    record: &[u8],
    memory: BorrowedFd<'_>,
) -> io::Result<Option<(Seqpacket, PeerCred)>> {
    let socket = Seqpacket::connect(name.as_bytes())?;
    let cred = socket.peer_cred()?;
    if cred.uid != uid {
        return Ok(None);
    }
    socket.send_with_fd(record, memory)?;
    Ok(Some((socket, cred)))
}

/// Reads what the other end has sent. A hang-up counts as death unless an explanation was read
/// before it.
fn read_reports(socket: &Seqpacket, event: Ready) -> Reports {
    let mut reports = Reports::read(socket);
    if event.hung_up {
        reports.departure.get_or_insert(Departure::Died);
    }
    reports
}

/// Returns `true` for a full backlog or too many descriptors of this user in flight: both pass when
/// peers accept. Descriptors in flight between other processes may stay so; they are awaited only
/// as long as `since` allows.
fn is_temporary(err: &io::Error, since: Instant) -> bool {
    match err.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS) => true,
        Some(libc::ETOOMANYREFS) => since.elapsed() < IN_FLIGHT_TIMEOUT,
        _ => false,
    }
}

fn caps(config: &ShmConfig) -> LinkCaps {
    LinkCaps {
        kind: LinkKind::Shm,
        frame_len_max: ring::frame_len_max(config.ring_len),
        segments_max: 1,
        gather_max: GATHER_MAX,
        lossless: true,
        pull: config.allow_pull,
        // The rest of the ring may be padding, or consumed space that was not returned yet.
        placement: false,
        polls_memory: true,
        rx_buffer_len: config.ring_len / 2,
    }
}

/// Returns a name with the job and the rank, for readers of /proc/net/unix. The random part makes
/// it unguessable and different for each incarnation of a rank.
fn socket_name(config: &ShmConfig) -> String {
    if let Some(open) = &config.open {
        return open.name.clone();
    }
    let job = u128::from_be_bytes(config.job_id);
    let random: u64 = rand::random();
    format!("portolan/{job:032x}/{}/{random:016x}", config.rank)
}

/// Returns random bytes from the system, not from a thread-local generator. An exiting program may
/// connect to a peer for the first time after its thread-local variables were dropped.
fn fresh_nonce() -> Result<[u8; 16], LinkError> {
    let mut nonce = [0; 16];
    let filled = OsRng.try_fill_bytes(&mut nonce).map_err(io::Error::other);
    filled.map_err(system("read random bytes from the system", RAISE_LIMITS))?;
    Ok(nonce)
}

fn unreachable(peer: PeerId, why: &'static str) -> LinkError {
    LinkError::Unreachable {
        kind: LinkKind::Shm,
        peer,
        why,
    }
}

fn system(what: impl Into<String>, remedy: &'static str) -> impl FnOnce(io::Error) -> LinkError {
    let what = what.into();
    move |errno| LinkError::System {
        kind: LinkKind::Shm,
        what,
        errno,
        remedy,
    }
}
