// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a peer's process lives, told apart from whether it is busy.
//!
//! A process that computes does not answer frames, and must not be taken for dead. So each process
//! has a thread that sleeps on a socket of its own and answers questions by echo, whatever the
//! program does. Where the process is gone, the kernel answers in its place ("port unreachable");
//! where the host is cut off or the process is stopped, nobody does.
//!
//! A question and its answer carry a keyed hash and the time of the question, so that nobody
//! outside the job can keep a dead peer alive, with recorded answers neither. A "port unreachable"
//! can be forged; so it makes the peer doubted, and asked at once, and what became of that question
//! decides: [`life`].

mod life;
mod message;
mod patience;

pub(crate) use life::Standing;
pub(crate) use patience::{PEER_TIMEOUT, PEER_TIMEOUT_ENDPOINT, Silence, peer_timeout};

use crate::clock::Clock;
use crate::error::Error;
use life::Life;
use message::{Key, Kind, LEN, Message};
use portolan_proto::{Instant, PeerId};
use portolan_sys::lack::Lack;
use portolan_sys::net::{enable_error_queue, recv_error_quoting};
use portolan_sys::process::spawn_quiet;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recvfrom, shutdown};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

/// Attempts to send a question: the first may be told the error of an earlier one instead.
const SEND_ATTEMPTS: usize = 2;

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    /// What questions to this process are keyed with, and its answers.
    key: Key,
    /// `None` for an endpoint: it has no number that others know.
    rank: Option<u32>,
    clock: Clock,
    stop: AtomicBool,
    /// Questions and answers that were sent.
    sent: AtomicU64,
    members: RwLock<Members>,
}

/// Who may be asked. Of a job complete from the start; an endpoint adds whom it meets.
#[derive(Debug, Default)]
struct Members {
    /// By rank, or by the endpoint's own number.
    addrs: Vec<Option<SocketAddr>>,
    by_addr: HashMap<SocketAddr, u32>,
    lives: Vec<Life>,
    /// Of an endpoint: what questions to each are keyed with, and its answers.
    keys: Vec<Option<Key>>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Liveness {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The socket before the addresses of the others are known.
#[derive(Debug)]
pub(crate) struct Unstarted {
    socket: UdpSocket,
}

impl Unstarted {
    pub(crate) fn bind(addr: IpAddr) -> Result<Unstarted, Error> {
        let what = "opening the socket that tells whether peers live";
        let system = |errno| Error::System { what, errno };
        let socket = UdpSocket::bind((addr, 0)).map_err(system)?;
        enable_error_queue(socket.as_fd(), addr.is_ipv6()).map_err(system)?;
        Ok(Unstarted { socket })
    }

    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    pub(crate) fn start(
        self,
        rank: u32,
        secret: &[u8; 32],
        clock: Clock,
        addrs: Vec<Option<SocketAddr>>,
    ) -> Result<Liveness, Error> {
        let ranks = (0..).zip(&addrs);
        let members = Members {
            by_addr: ranks
                .filter_map(|(rank, at)| Some(((*at)?, rank)))
                .collect(),
            lives: addrs.iter().map(|_| Life::default()).collect(),
            addrs,
            keys: Vec::new(),
        };
        self.run(Some(rank), secret, clock, members)
    }

    /// Starts without anybody to ask; [`Liveness::add`] tells of peers.
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
        let shared = Arc::new(Shared {
            socket: self.socket,
            key: Key::derive(secret),
            rank,
            clock,
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            members: RwLock::new(members),
        });
        let in_thread = Arc::clone(&shared);
        let started = spawn_quiet("portolan-alive", move || in_thread.run());
        let thread = started.map_err(|errno| Error::System {
            what: "starting a thread",
            errno: match Lack::of_thread(&errno) {
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

impl Liveness {
    /// Asks `peer`; the answer shows in [`Liveness::seen`] and [`Liveness::standing`].
    pub(crate) fn ask(&self, peer: PeerId) {
        if !self.shared.ask(peer.0) {
            // The thread's wake-up may have been spent on the attempts.
            self.shared.read_errors();
        }
    }

    /// Questions and answers that this process has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Tells of a peer of an endpoint, and of the secret in its address.
    pub(crate) fn add(&self, peer: PeerId, addr: Option<SocketAddr>, secret: &[u8; 32]) {
        let members = self.shared.members.write();
        let mut members = members.unwrap_or_else(PoisonError::into_inner);
        let members = &mut *members;
        let index = peer.0 as usize;
        if index >= members.addrs.len() {
            members.addrs.resize(index + 1, None);
            members.lives.resize_with(index + 1, Life::default);
            members.keys.resize_with(index + 1, || None);
        }
        members.addrs[index] = addr;
        members.keys[index] = Some(Key::derive(secret));
        if let Some(addr) = addr {
            members.by_addr.insert(addr, peer.0);
        }
    }

    /// When the newest question was asked that `peer` has answered.
    pub(crate) fn seen(&self, peer: PeerId) -> Instant {
        let members = self.shared.members();
        let life = members.lives.get(peer.0 as usize);
        life.map_or(Instant::default(), Life::seen)
    }

    /// Somebody says that the process of `peer` is gone: asks it, if that is news.
    pub(crate) fn doubt(&self, peer: PeerId) {
        self.shared.doubt(peer.0);
    }

    pub(crate) fn standing(&self, peer: PeerId, now: Instant) -> Standing {
        let members = self.shared.members();
        let life = members.lives.get(peer.0 as usize);
        life.map_or(Standing::Trusted, |life| life.standing(now))
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the thread, also where the host has lost the address by which a datagram would come.
        // The kernel does so first and then says that the socket is not connected (inet_shutdown of
        // net/ipv4/af_inet.c).
        let _ = shutdown(&self.shared.socket, Shutdown::Read);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for a datagram. `None` is the end of a socket that was shut down: a reading without a sender, at
/// which [`UdpSocket::recv_from`] panics.
fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, Errno> {
    let (len, _, from) = recvfrom(socket, bytes, RecvFlags::empty())?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    Ok(from.map(|from| (len, from)))
}

impl Shared {
    fn run(&self) {
        // Else every system call of the program would pay for this thread.
        if let Err(error) = portolan_sys::descriptors::keep_only(self.socket.as_fd()) {
            log::debug!("a descriptor table for the liveness thread: {error}");
        }
        // One byte more, to notice that a datagram is longer.
        let mut bytes = [0; LEN + 1];
        while !self.stop.load(Ordering::Relaxed) {
            match receive(&self.socket, &mut bytes) {
                Ok(Some((len, from))) => self.on_message(&bytes[..len], from),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => self.read_errors(),
            }
        }
    }

    /// `P9.2`: a question is answered and proves nothing, since it may be a recorded one; an answer
    /// proves life at the time of its question.
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
                };
                self.send(&answer.encode(&self.key), from);
            }
            Kind::Answer => {
                if let Some(life) = self.members().lives.get(message.from as usize) {
                    life.on_answer(message.nonce, self.clock.now());
                }
            }
        }
    }

    /// A question to this process, or an answer from one that it may have asked. `P9.8`: between
    /// endpoints both are keyed with the secret of the one that is asked, and both numbers are the
    /// asker's for it.
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

    /// What a question to `peer` is keyed with.
    fn key_to<'a>(&'a self, members: &'a Members, peer: u32) -> &'a Key {
        let key = members.keys.get(peer as usize);
        key.and_then(Option::as_ref).unwrap_or(&self.key)
    }

    fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// `P9.4`: a report that quotes a question of ours, hash and all, is about that question;
    /// another one is somebody's word.
    fn read_errors(&self) {
        let mut quoted = [0; LEN];
        while let Ok(Some((error, len))) = recv_error_quoting(self.socket.as_fd(), &mut quoted) {
            if error.errno != libc::ECONNREFUSED {
                continue;
            }
            let rank = self.on_refusal(&quoted[..len], error.destination);
            if let Some(rank) = rank {
                self.doubt(rank);
            }
        }
    }

    /// Notes a report that something could not be delivered, and says whom it is about.
    fn on_refusal(&self, quoted: &[u8], destination: Option<SocketAddr>) -> Option<u32> {
        let members = self.members();
        let key = self.key_to(&members, message::addressee(quoted).unwrap_or(u32::MAX));
        let question = Message::decode(quoted, key).filter(|quoted| {
            quoted.kind == Kind::Question && quoted.from == self.rank.unwrap_or(quoted.to)
        });
        if let Some(question) = question
            && let Some(life) = members.lives.get(question.to as usize)
        {
            life.on_refusal(question.nonce);
            return Some(question.to);
        }
        members.by_addr.get(&destination?).copied()
    }

    fn doubt(&self, rank: u32) {
        let is_news = {
            let members = self.members();
            let life = members.lives.get(rank as usize);
            life.is_some_and(|life| life.doubt(self.clock.now()))
        };
        if is_news {
            self.ask(rank);
        }
    }

    /// `true` if a question is on its way.
    fn ask(&self, rank: u32) -> bool {
        let members = self.members();
        let Some(Some(addr)) = members.addrs.get(rank as usize) else {
            return false;
        };
        let question = Message {
            kind: Kind::Question,
            from: self.rank.unwrap_or(rank),
            to: rank,
            nonce: self.clock.now().as_nanos(),
        };
        self.send(&question.encode(self.key_to(&members, rank)), *addr)
    }

    fn send(&self, bytes: &[u8; LEN], to: SocketAddr) -> bool {
        self.sent.fetch_add(1, Ordering::Relaxed);
        (0..SEND_ATTEMPTS).any(|_| match self.socket.send_to(bytes, to) {
            Ok(_) => true,
            Err(error) => {
                log::debug!("a question or an answer to {to}: {error}");
                false
            }
        })
    }
}

#[cfg(test)]
mod tests;
