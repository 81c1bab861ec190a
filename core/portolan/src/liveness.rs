// SPDX-License-Identifier: MIT OR Apache-2.0
//! Liveness of peers: distinguishes a process that has exited from one that is busy.
//!
//! A process that computes does not answer frames, and must not be declared dead. So each process
//! has a thread that sleeps on its own socket and answers probes by echo, whatever the program
//! does. If the process has exited, its kernel answers instead ("port unreachable"). If the host is
//! disconnected or the process is stopped, no answer arrives.
//!
//! A probe and its answer carry a keyed hash and the time of the probe. No process outside the job
//! can therefore fake answers of a dead peer, nor replay recorded ones. A "port unreachable" can be
//! forged. It only makes the peer doubted and sends another probe at once; the result of that probe
//! decides: [`life`].
//!
//! A peer can have several addresses, and some may lead to other hosts. Probes find the right one:
//! [`addresses`].

mod addresses;
mod life;
mod message;
mod peer_timeout;
mod wire;

pub(crate) use addresses::{Outcome, is_same_place};
pub(crate) use life::{Answer, PeerState};
pub(crate) use peer_timeout::peer_timeout;
pub use wire::ProbeWire;

use crate::clock::Clock;
use crate::error::Error;
use addresses::PeerAddresses;
use life::Life;
use message::{Key, Kind, LEN, Message};
use portolan_proto::{Instant, PeerId};
use portolan_sys::net::{PortRange, bind_datagram, enable_error_queue, recv_error_quoting};
use portolan_sys::process::spawn_quiet;
use portolan_sys::shortage::Shortage;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recvfrom, shutdown};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{Socket, Wire};

#[derive(Debug)]
struct Shared {
    wire: Wire,
    /// Key of probes to this process, and of its answers.
    key: Key,
    /// `None` for an endpoint, which has no number known to its peers.
    rank: Option<u32>,
    clock: Clock,
    stop: AtomicBool,
    /// Time at which the program last polled its links.
    last_poll_at: AtomicU64,
    /// Number of probes and answers sent.
    sent: AtomicU64,
    members: RwLock<Members>,
}

/// Peers that can be probed.
#[derive(Debug, Default)]
struct Members {
    /// Indexed by rank, or by the endpoint's own number.
    lives: Vec<Life>,
    /// Addresses of the peers that this process has contacted: few in a large job.
    addresses: HashMap<u32, PeerAddresses>,
    /// Endpoints only: the key of probes to each peer, and of its answers.
    keys: Vec<Option<Key>>,
}

/// Liveness probes of this process, with the thread that answers those of peers.
#[derive(Debug)]
pub(crate) struct Liveness {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The socket before the addresses of peers are known.
#[derive(Debug)]
pub(crate) struct Unstarted {
    socket: UdpSocket,
}

impl Unstarted {
    /// Binds to `addr` and one of `ports`. The unspecified address of IPv6 stands for all addresses
    /// of both families.
    pub(crate) fn bind(addr: IpAddr, ports: PortRange) -> Result<Unstarted, Error> {
        let what = "opening the liveness socket";
        let system = |errno| Error::System { what, errno };
        let bound = ports.open(|port| bind_datagram((addr, port).into(), true));
        let socket = bound.map_err(system)?;
        if addr.is_ipv6() {
            enable_error_queue(socket.as_fd(), true).map_err(system)?;
        }
        if addr.is_ipv4() || addr.is_unspecified() {
            enable_error_queue(socket.as_fd(), false).map_err(system)?;
        }
        Ok(Unstarted { socket })
    }

    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Starts as `rank` of `size`. [`Liveness::set_addresses`] adds the addresses.
    pub(crate) fn start(
        self,
        rank: u32,
        size: u32,
        secret: &[u8; 32],
        clock: Clock,
    ) -> Result<Liveness, Error> {
        let members = Members {
            lives: (0..size).map(|_| Life::default()).collect(),
            ..Members::default()
        };
        self.run(Some(rank), secret, clock, members)
    }

    /// Starts without peers; [`Liveness::add`] adds them.
    pub(crate) fn start_open(self, secret: &[u8; 32], clock: Clock) -> Result<Liveness, Error> {
        self.run(None, secret, clock, Members::default())
    }

    fn run(
        self,
        rank: Option<u32>,
        secret: &[u8; 32],
        clock: Clock,
        members: Members,
    ) -> Result<Liveness, Error> {
        let wire = Wire::Socket(Socket::new(self.socket));
        let shared = Shared::new(wire, rank, secret, clock, members);
        let in_thread = Arc::clone(&shared);
        let started = spawn_quiet("portolan-alive", move || in_thread.run());
        let thread = started.map_err(|errno| Error::System {
            what: "starting a thread",
            errno: match Shortage::of_thread(&errno) {
                Some(lack) => io::Error::other(format!("{errno}; {lack}")),
                None => errno,
            },
        })?;
        Ok(Liveness {
            shared,
            thread: Some(thread),
        })
    }
}

/// A simulation, in which no thread receives.
impl Liveness {
    /// Starts like [`Unstarted::start`] for a rank of a job, and like [`Unstarted::start_open`]
    /// without one. The simulation passes datagrams to [`Liveness::receive`].
    pub(crate) fn simulated(
        wire: Arc<dyn ProbeWire>,
        rank: Option<(u32, u32)>,
        secret: &[u8; 32],
        clock: Clock,
    ) -> Liveness {
        let size = rank.map_or(0, |(_, size)| size);
        let members = Members {
            lives: (0..size).map(|_| Life::default()).collect(),
            ..Members::default()
        };
        let (wire, rank) = (Wire::Simulated(wire), rank.map(|(rank, _)| rank));
        Liveness {
            shared: Shared::new(wire, rank, secret, clock, members),
            thread: None,
        }
    }

    /// Handles a probe or an answer, as the thread does.
    pub(crate) fn receive(&self, bytes: &[u8], from: SocketAddr) {
        self.shared.on_message(bytes, from);
    }

    /// Handles an ICMP error that quotes the datagram `quoted` to `destination`, as the thread does.
    pub(crate) fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        if let Some(rank) = self.shared.on_refusal(quoted, Some(destination)) {
            self.shared.doubt(rank);
        }
    }
}

impl Liveness {
    /// Probes `peer`. [`Liveness::seen`] and [`Liveness::answer`] then report the answer.
    pub(crate) fn probe(&self, peer: PeerId) {
        if !self.shared.probe(peer.0) {
            // The failed attempts may have consumed the error that would wake the thread.
            self.shared.read_errors();
        }
    }

    /// Returns the number of probes and answers that this process has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Adds a peer of an endpoint, with the secret in its address.
    pub(crate) fn add(&self, peer: PeerId, secret: &[u8; 32]) {
        let mut members = self.shared.members_mut();
        let index = peer.0 as usize;
        if index >= members.lives.len() {
            members.lives.resize_with(index + 1, Life::default);
            members.keys.resize_with(index + 1, || None);
        }
        // Another peer may have had the number before.
        members.lives[index] = Life::default();
        members.keys[index] = Some(Key::derive(secret));
        members.addresses.remove(&peer.0);
    }

    /// Sets the addresses of `peer`, the most likely one first. Without them it is never probed.
    pub(crate) fn set_addresses(&self, peer: PeerId, addrs: impl IntoIterator<Item = SocketAddr>) {
        let mut members = self.shared.members_mut();
        members
            .addresses
            .entry(peer.0)
            .or_insert_with(|| PeerAddresses::new(addrs));
    }

    /// Tests whether [`Liveness::set_addresses`] was called for `peer`.
    pub(crate) fn has_addresses(&self, peer: PeerId) -> bool {
        self.shared.members().addresses.contains_key(&peer.0)
    }

    /// Records that a session proved the host of `addr` for `peer`. `P9.11`
    pub(crate) fn prove(&self, peer: PeerId, addr: SocketAddr) {
        if let Some(addresses) = self.shared.members_mut().addresses.get_mut(&peer.0) {
            addresses.prove(addr);
        }
    }

    /// Records that a frame to the host of `addr` was returned as undeliverable. This is no
    /// evidence of death.
    pub(crate) fn note_refused(&self, peer: PeerId, addr: SocketAddr) {
        if let Some(addresses) = self.shared.members_mut().addresses.get_mut(&peer.0) {
            addresses.note_refused(addr);
        }
    }

    pub(crate) fn proven(&self, peer: PeerId) -> Option<SocketAddr> {
        self.shared.members().addresses.get(&peer.0)?.proven()
    }

    /// Returns the addresses of `peer` with the results of the probes.
    pub(crate) fn outcomes(&self, peer: PeerId) -> Vec<(SocketAddr, Outcome)> {
        let members = self.shared.members();
        let addresses = members.addresses.get(&peer.0);
        addresses.map_or_else(Vec::new, |addresses| addresses.outcomes().to_vec())
    }

    /// Returns the time of the newest probe that `peer` has answered.
    pub(crate) fn seen(&self, peer: PeerId) -> Instant {
        let members = self.shared.members();
        let life = members.lives.get(peer.0 as usize);
        life.map_or(Instant::default(), Life::seen)
    }

    /// Records a report that the process of `peer` has exited, and probes the peer if the report is
    /// new.
    pub(crate) fn doubt(&self, peer: PeerId) {
        self.shared.doubt(peer.0);
    }

    pub(crate) fn state(&self, peer: PeerId) -> PeerState {
        let members = self.shared.members();
        let life = members.lives.get(peer.0 as usize);
        life.map_or(PeerState::Trusted, Life::state)
    }

    /// Returns the newest answer of `peer`.
    pub(crate) fn answer(&self, peer: PeerId) -> Answer {
        let members = self.shared.members();
        let life = members.lives.get(peer.0 as usize);
        life.map_or(Answer::default(), Life::answer)
    }

    /// Records that the program polls its links at `now`. Answers to probes contain the time since
    /// then.
    pub(crate) fn note_poll(&self, now: Instant) {
        self.shared
            .last_poll_at
            .store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, even if the host has lost the address at which a datagram would arrive.
        // The kernel wakes it first and then returns ENOTCONN (inet_shutdown of
        // net/ipv4/af_inet.c).
        if let Some(socket) = self.shared.wire.socket() {
            let _ = shutdown(socket, Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for a datagram. Returns `None` if the socket was shut down. [`UdpSocket::recv_from`]
/// panics in that case, because the result has no sender.
fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, Errno> {
    let (len, _, from) = recvfrom(socket, bytes, RecvFlags::empty())?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    Ok(from.map(|from| (len, from)))
}

impl Shared {
    fn new(
        wire: Wire,
        rank: Option<u32>,
        secret: &[u8; 32],
        clock: Clock,
        members: Members,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            wire,
            key: Key::derive(secret),
            rank,
            clock,
            stop: AtomicBool::new(false),
            last_poll_at: AtomicU64::new(clock.now().as_nanos()),
            sent: AtomicU64::new(0),
            members: RwLock::new(members),
        })
    }

    fn run(&self) {
        let Some(socket) = self.wire.socket() else {
            return;
        };
        // A shared descriptor table would slow down every system call of the program.
        if let Err(error) = portolan_sys::descriptors::unshare_except(socket.as_fd()) {
            log::debug!("a descriptor table for the liveness thread: {error}");
        }
        // One byte more than a message, to detect longer datagrams.
        let mut bytes = [0; LEN + 1];
        while !self.stop.load(Ordering::Relaxed) {
            match receive(socket, &mut bytes) {
                Ok(Some((len, from))) => self.on_message(&bytes[..len], from),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => self.read_errors(),
            }
        }
    }

    /// Handles a probe or an answer. `P9.2`: a probe is answered, but proves nothing, because it
    /// may be a recorded one. An answer proves that the peer was alive at the time of its probe.
    fn on_message(&self, bytes: &[u8], from: SocketAddr) {
        let Some(message) = self.read(bytes) else {
            return;
        };
        match message.kind {
            Kind::Question => {
                let answer = Message {
                    kind: Kind::Answer,
                    from: self.rank.unwrap_or(message.from),
                    to: message.from,
                    nonce: message.nonce,
                    idle: self.idle(),
                };
                let _ = self.send(&answer.encode(&self.key), from);
            }
            Kind::Answer => {
                let mut members = self.members_mut();
                if let Some(life) = members.lives.get(message.from as usize) {
                    life.on_answer(message.nonce, message.idle, self.clock.now());
                }
                if let Some(addresses) = members.addresses.get_mut(&message.from) {
                    addresses.on_answer(message.nonce);
                }
            }
        }
    }

    /// Parses a probe to this process, or an answer from a process that it may have probed. `P9.8`:
    /// between endpoints, both use the key of the probed endpoint, and both numbers are the
    /// prober's number for it.
    fn read(&self, bytes: &[u8]) -> Option<Message> {
        if let Some(rank) = self.rank {
            return Message::decode(bytes, &self.key).filter(|message| message.to == rank);
        }
        let question = Message::decode(bytes, &self.key);
        if let Some(question) = question.filter(|message| message.kind == Kind::Question) {
            return Some(question);
        }
        let members = self.members();
        let key = members.keys.get(message::addressee(bytes)? as usize)?;
        Message::decode(bytes, key.as_ref()?)
            .filter(|message| message.kind == Kind::Answer && message.from == message.to)
    }

    /// Returns the time since the program last polled its links.
    fn idle(&self) -> Duration {
        let last_poll_at = Instant::from_nanos(self.last_poll_at.load(Ordering::Relaxed));
        self.clock.now().since(last_poll_at)
    }

    /// Returns the key of probes to `peer`.
    fn key_to<'a>(&'a self, members: &'a Members, peer: u32) -> &'a Key {
        let key = members.keys.get(peer as usize);
        key.and_then(Option::as_ref).unwrap_or(&self.key)
    }

    fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn members_mut(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles ICMP errors. `P9.4`: an error that quotes a probe of this process, including its
    /// hash, concerns that probe. Any other error is unverified.
    fn read_errors(&self) {
        let Some(socket) = self.wire.socket() else {
            return;
        };
        let mut quoted = [0; LEN];
        while let Ok(Some((error, len))) = recv_error_quoting(socket.as_fd(), &mut quoted) {
            if error.errno != libc::ECONNREFUSED {
                continue;
            }
            let rank = self.on_refusal(&quoted[..len], error.destination);
            if let Some(rank) = rank {
                self.doubt(rank);
            }
        }
    }

    /// Records an ICMP error. Returns the peer that it concerns if it came from the proven address
    /// of that peer; any other address may belong to another host. `P9.11`
    fn on_refusal(&self, quoted: &[u8], destination: Option<SocketAddr>) -> Option<u32> {
        let mut members = self.members_mut();
        let key = self.key_to(&members, message::addressee(quoted).unwrap_or(u32::MAX));
        let question = Message::decode(quoted, key).filter(|quoted| {
            quoted.kind == Kind::Question && quoted.from == self.rank.unwrap_or(quoted.to)
        });
        if let Some(question) = question
            && let Some(addresses) = members.addresses.get_mut(&question.to)
        {
            if !addresses.on_refusal(question.nonce) {
                return None;
            }
            members
                .lives
                .get(question.to as usize)?
                .on_refusal(question.nonce);
            return Some(question.to);
        }
        let destination = canonical(destination?);
        let mut addresses = members.addresses.iter();
        let (peer, _) = addresses.find(|(_, addresses)| addresses.is_proven(destination))?;
        Some(*peer)
    }

    fn doubt(&self, rank: u32) {
        let is_news = {
            let members = self.members();
            let is_proven = members
                .addresses
                .get(&rank)
                .is_some_and(|addresses| addresses.proven().is_some());
            let life = members.lives.get(rank as usize).filter(|_| is_proven);
            life.is_some_and(|life| life.doubt(self.clock.now()))
        };
        if is_news {
            self.probe(rank);
        }
    }

    /// Probes the proven address of a peer, or all its addresses. Returns `true` if a probe was
    /// sent.
    fn probe(&self, rank: u32) -> bool {
        let mut members = self.members_mut();
        let Some(mut addresses) = members.addresses.remove(&rank) else {
            return false;
        };
        let key = self.key_to(&members, rank);
        let has_sent = addresses.probe(self.clock.now(), |addr, nonce| {
            let question = Message {
                kind: Kind::Question,
                from: self.rank.unwrap_or(rank),
                to: rank,
                nonce,
                idle: Duration::ZERO,
            };
            self.send(&question.encode(key), addr)
        });
        members.addresses.insert(rank, addresses);
        has_sent
    }

    fn send(&self, bytes: &[u8; LEN], to: SocketAddr) -> io::Result<()> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.wire.send(bytes, to)
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests;
