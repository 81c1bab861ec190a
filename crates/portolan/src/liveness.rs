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

pub(crate) use life::Standing;

use crate::clock::Clock;
use crate::error::Error;
use life::Life;
use message::{Key, Kind, LEN, Message};
use portolan_proto::{Instant, PeerId};
use portolan_sys::net::{enable_error_queue, recv_error_quoting};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Attempts to send a question: the first may be told the error of an earlier one instead.
const SEND_ATTEMPTS: usize = 2;

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    key: Key,
    rank: u32,
    clock: Clock,
    stop: AtomicBool,
    /// By rank.
    addrs: Vec<Option<SocketAddr>>,
    by_addr: HashMap<SocketAddr, u32>,
    /// By rank.
    lives: Vec<Life>,
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
        let system = |source| Error::System { what, source };
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
        let shared = Arc::new(Shared {
            socket: self.socket,
            key: Key::derive(secret),
            rank,
            clock,
            stop: AtomicBool::new(false),
            by_addr: ranks
                .filter_map(|(rank, at)| Some(((*at)?, rank)))
                .collect(),
            lives: addrs.iter().map(|_| Life::default()).collect(),
            addrs,
        });
        let in_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("portolan-alive".to_owned())
            // It holds a datagram and an address or two.
            .stack_size(64 * 1024)
            .spawn(move || in_thread.run())
            .map_err(|source| Error::System {
                what: "starting a thread",
                source,
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

    /// When the newest question was asked that `peer` has answered.
    pub(crate) fn seen(&self, peer: PeerId) -> Instant {
        let life = self.shared.lives.get(peer.0 as usize);
        life.map_or(Instant::default(), Life::seen)
    }

    /// Somebody says that the process of `peer` is gone: asks it, if that is news.
    pub(crate) fn doubt(&self, peer: PeerId) {
        self.shared.doubt(peer.0);
    }

    pub(crate) fn standing(&self, peer: PeerId, now: Instant) -> Standing {
        let life = self.shared.lives.get(peer.0 as usize);
        life.map_or(Standing::Trusted, |life| life.standing(now))
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Ok(own) = self.shared.socket.local_addr() {
            // Wakes the thread.
            let _ = self.shared.socket.send_to(&[], own);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
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
            match self.socket.recv_from(&mut bytes) {
                Ok((len, from)) => self.on_message(&bytes[..len], from),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.read_errors(),
            }
        }
    }

    /// `P9.2`: a question is answered and proves nothing, since it may be a recorded one; an answer
    /// proves life at the time of its question.
    fn on_message(&self, bytes: &[u8], from: SocketAddr) {
        let message = Message::decode(bytes, &self.key).filter(|message| message.to == self.rank);
        let Some(message) = message else {
            return;
        };
        match message.kind {
            Kind::Question => {
                let answer = Message {
                    kind: Kind::Answer,
                    from: self.rank,
                    to: message.from,
                    nonce: message.nonce,
                };
                self.send(&answer, from);
            }
            Kind::Answer => {
                if let Some(life) = self.lives.get(message.from as usize) {
                    life.on_answer(message.nonce, self.clock.now());
                }
            }
        }
    }

    /// `P9.4`: a report that quotes a question of ours, hash and all, is about that question;
    /// another one is somebody's word.
    fn read_errors(&self) {
        let mut quoted = [0; LEN];
        while let Ok(Some((error, len))) = recv_error_quoting(self.socket.as_fd(), &mut quoted) {
            if error.errno != libc::ECONNREFUSED {
                continue;
            }
            let question = Message::decode(&quoted[..len], &self.key)
                .filter(|quoted| quoted.kind == Kind::Question && quoted.from == self.rank);
            let sent_to = error.destination.and_then(|at| self.by_addr.get(&at));
            if let Some(question) = question
                && let Some(life) = self.lives.get(question.to as usize)
            {
                life.on_refusal(question.nonce);
                self.doubt(question.to);
            } else if let Some(rank) = sent_to {
                self.doubt(*rank);
            }
        }
    }

    fn doubt(&self, rank: u32) {
        let life = self.lives.get(rank as usize);
        if life.is_some_and(|life| life.doubt(self.clock.now())) {
            self.ask(rank);
        }
    }

    /// `true` if a question is on its way.
    fn ask(&self, rank: u32) -> bool {
        let Some(Some(addr)) = self.addrs.get(rank as usize) else {
            return false;
        };
        let question = Message {
            kind: Kind::Question,
            from: self.rank,
            to: rank,
            nonce: self.clock.now().as_nanos(),
        };
        self.send(&question, *addr)
    }

    fn send(&self, message: &Message, to: SocketAddr) -> bool {
        let bytes = message.encode(&self.key);
        (0..SEND_ATTEMPTS).any(|_| match self.socket.send_to(&bytes, to) {
            Ok(_) => true,
            Err(error) => {
                log::debug!("{:?} to {}: {error}", message.kind, message.to);
                false
            }
        })
    }
}

#[cfg(test)]
mod tests;
