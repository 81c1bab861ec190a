// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a peer's process lives, told apart from whether it is busy.
//!
//! A process that computes does not answer frames, and must not be taken for dead. So each process
//! has a thread that sleeps on a socket of its own and answers questions by echo, whatever the
//! program does. Where the process is gone, the kernel answers in its place ("port unreachable");
//! where the host is cut off or the process is stopped, nobody does.
//!
//! A question and its answer carry a keyed hash, so that nobody outside the job can keep a dead
//! peer alive. A forged "port unreachable" is the one thing that is believed; the threat model in
//! `docs/protocol.md` says so.

use crate::clock::Clock;
use crate::error::Error;
use portolan_proto::{Instant, PeerId};
use portolan_sys::net::{enable_error_queue, recv_error};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// First bytes of every question and answer.
const MAGIC: &[u8; 4] = b"PtL1";
const ASK: u8 = 1;
const ANSWER: u8 = 2;
/// Magic, kind and padding, from, to, nonce, keyed hash.
const LEN: usize = 4 + 4 + 4 + 4 + 8 + 16;

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    key: [u8; 32],
    rank: u32,
    clock: Clock,
    stop: AtomicBool,
    /// Per rank: nanoseconds of the last sign of life, and whether the kernel spoke for it.
    seen: Vec<AtomicU64>,
    refused: Vec<AtomicBool>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Liveness {
    shared: Arc<Shared>,
    addrs: Arc<Vec<Option<SocketAddr>>>,
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
        let shared = Arc::new(Shared {
            socket: self.socket,
            key: blake3::derive_key("portolan 2026 liveness", secret),
            rank,
            clock,
            stop: AtomicBool::new(false),
            seen: addrs.iter().map(|_| AtomicU64::new(0)).collect(),
            refused: addrs.iter().map(|_| AtomicBool::new(false)).collect(),
        });
        let addrs = Arc::new(addrs);
        let (in_thread, table) = (Arc::clone(&shared), Arc::clone(&addrs));
        let thread = std::thread::Builder::new()
            .name("portolan-alive".to_owned())
            // It holds a datagram and an address or two.
            .stack_size(64 * 1024)
            .spawn(move || in_thread.run(&table))
            .map_err(|source| Error::System {
                what: "starting a thread",
                source,
            })?;
        Ok(Liveness {
            shared,
            addrs,
            thread: Some(thread),
        })
    }
}

impl Liveness {
    /// Asks `peer`; the answer shows in [`Liveness::seen`] or [`Liveness::is_refused`].
    pub(crate) fn ask(&self, peer: PeerId) {
        let Some(Some(addr)) = self.addrs.get(peer.0 as usize) else {
            return;
        };
        let nonce = self.shared.clock.now().as_nanos();
        let question = self.shared.message(ASK, self.shared.rank, peer.0, nonce);
        if let Err(error) = self.shared.socket.send_to(&question, addr) {
            // An error of an earlier question may be reported here; the thread reads the queue.
            log::debug!("asking {peer}: {error}");
        }
    }

    pub(crate) fn seen(&self, peer: PeerId) -> Instant {
        let seen = self.shared.seen.get(peer.0 as usize);
        Instant::from_nanos(seen.map_or(0, |seen| seen.load(Ordering::Relaxed)))
    }

    pub(crate) fn is_refused(&self, peer: PeerId) -> bool {
        let refused = self.shared.refused.get(peer.0 as usize);
        refused.is_some_and(|refused| refused.load(Ordering::Relaxed))
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
    fn run(&self, addrs: &[Option<SocketAddr>]) {
        // Else every system call of the program would pay for this thread.
        if let Err(error) = portolan_sys::descriptors::keep_only(self.socket.as_fd()) {
            log::debug!("a descriptor table for the liveness thread: {error}");
        }
        let by_addr: HashMap<SocketAddr, usize> = addrs
            .iter()
            .enumerate()
            .filter_map(|(rank, addr)| Some(((*addr)?, rank)))
            .collect();
        let mut bytes = [0; LEN + 1];
        while !self.stop.load(Ordering::Relaxed) {
            match self.socket.recv_from(&mut bytes) {
                Ok((len, from)) => self.on_message(&bytes[..len], from),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.read_errors(&by_addr),
            }
        }
    }

    fn on_message(&self, bytes: &[u8], from: SocketAddr) {
        let Some((kind, sender, nonce)) = self.parse(bytes) else {
            return;
        };
        if let Some(seen) = self.seen.get(sender as usize) {
            seen.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        }
        if kind == ASK {
            let answer = self.message(ANSWER, self.rank, sender, nonce);
            let _ = self.socket.send_to(&answer, from);
        }
    }

    fn read_errors(&self, by_addr: &HashMap<SocketAddr, usize>) {
        while let Ok(Some(error)) = recv_error(self.socket.as_fd()) {
            if error.errno == libc::ECONNREFUSED
                && let Some(rank) = error.destination.and_then(|addr| by_addr.get(&addr))
            {
                self.refused[*rank].store(true, Ordering::Relaxed);
            }
        }
    }

    fn message(&self, kind: u8, from: u32, to: u32, nonce: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = kind;
        bytes[8..12].copy_from_slice(&from.to_le_bytes());
        bytes[12..16].copy_from_slice(&to.to_le_bytes());
        bytes[16..24].copy_from_slice(&nonce.to_le_bytes());
        let mac = blake3::keyed_hash(&self.key, &bytes[..24]);
        bytes[24..].copy_from_slice(&mac.as_bytes()[..16]);
        bytes
    }

    /// Kind, sender and nonce of a genuine message to this process.
    fn parse(&self, bytes: &[u8]) -> Option<(u8, u32, u64)> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let word = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let (kind, from, to) = (bytes[4], word(8)?, word(12)?);
        let nonce = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
        let genuine = &self.message(kind, from, to, nonce) == bytes && to == self.rank;
        genuine.then_some((kind, from, nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant as Time};

    fn wait_for(what: impl Fn() -> bool) -> bool {
        let end = Time::now() + Duration::from_secs(5);
        while Time::now() < end {
            if what() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    #[test]
    fn the_living_answer_and_the_kernel_answers_for_the_dead() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ends: Vec<_> = (0..3).map(|_| Unstarted::bind(local).unwrap()).collect();
        let addrs: Vec<_> = ends.iter().map(Unstarted::addr).collect();
        let mut ends = ends.into_iter();
        let start = |end: Unstarted, rank| {
            end.start(rank, &[7; 32], Clock::new(), addrs.clone())
                .unwrap()
        };
        let asking = start(ends.next().unwrap(), 0);
        let _living = start(ends.next().unwrap(), 1);
        drop(ends.next());
        asking.ask(PeerId(1));
        assert!(wait_for(|| asking.seen(PeerId(1)) > Instant::default()));
        asking.ask(PeerId(2));
        assert!(wait_for(|| asking.is_refused(PeerId(2))));
        assert!(!asking.is_refused(PeerId(1)));
    }

    #[test]
    fn a_message_of_another_job_is_no_sign_of_life() {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (a, b) = (
            Unstarted::bind(local).unwrap(),
            Unstarted::bind(local).unwrap(),
        );
        let addrs = vec![a.addr(), b.addr()];
        let a = a.start(0, &[1; 32], Clock::new(), addrs.clone()).unwrap();
        let _b = b.start(1, &[2; 32], Clock::new(), addrs).unwrap();
        a.ask(PeerId(1));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(a.seen(PeerId(1)), Instant::default());
    }
}
