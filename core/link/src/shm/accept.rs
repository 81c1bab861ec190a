// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepting connections: checks of a peer's identity and of its hello.

use super::Shm;
use super::hello::{Hello, OPEN_HELLO_LEN};
use super::peer::{Inbound, Life, Returning, Token};
use crate::{Notice, PeerId};
use portolan_sys::seqpacket::{Record, Seqpacket};
use portolan_sys::shortage::{Explained, Shortage};
use portolan_sys::{doorbell, ring};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connections of our own user without a hello; beyond this the oldest is closed. A hello follows
/// its connection within microseconds, so more than a few indicate a broken program.
const GREETINGS_MAX: usize = 256;

/// Connections accepted in one call: as many as the kernel queues.
const ACCEPT_MAX: usize = 4096;

/// Time at which a connection is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Now,
    /// Admitted once the caller has removed the peer's earlier, ended connection.
    AfterRemoval,
}

/// Time that connections wait for descriptors that a program may use briefly. It is well within the
/// 10 s that a connecting process waits for a session (P9.5).
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pause of accepting.
pub(super) struct Pause {
    since: Instant,
    shortage: Option<Shortage>,
}

/// A connection that has not identified itself.
pub(super) struct Greeting {
    id: u32,
    socket: Seqpacket,
}

impl Shm {
    /// Accepts waiting connections and reads the hellos that have arrived.
    pub(super) fn accept_waiting(&mut self) {
        for _ in 0..ACCEPT_MAX {
            match self.listener.accept() {
                Ok(Some(socket)) => self.welcome(socket),
                Ok(None) => return self.resume_accepting(),
                Err(err) => return self.pause_accepting(&err),
            }
        }
    }

    /// Retries accepting after a shortage of descriptors. If it lasts, the waiting processes are
    /// informed.
    pub(super) fn retry_accepting(&mut self) {
        if self.accept_pause.is_some() {
            self.accept_waiting();
        }
        let is_over = |pause: &Pause| pause.since.elapsed() >= PAUSE_MAX;
        if self.accept_pause.as_ref().is_some_and(is_over) {
            self.refuse_waiting();
        }
    }

    /// Accepts waiting processes, or reports the reason for a refusal to them.
    pub(super) fn accept_or_refuse_waiting(&mut self) {
        self.accept_waiting();
        if self.accept_pause.is_some() {
            self.refuse_waiting();
        }
    }

    /// Stops watching the listener, which would keep waking a sleeper that cannot accept.
    fn pause_accepting(&mut self, err: &io::Error) {
        if self.accept_pause.is_none() {
            log::warn!("shm link: accept: {}", Explained(err, None));
            self.refuse("shm: cannot accept a connection");
            self.epoll.remove(&self.listener);
            self.accept_pause = Some(Pause {
                since: Instant::now(),
                shortage: Shortage::of(err),
            });
        }
    }

    fn resume_accepting(&mut self) {
        if self.accept_pause.is_some() {
            let watched = self.epoll.add(&self.listener, Token::Listener.encode());
            if watched.is_ok() {
                self.accept_pause = None;
            }
        }
    }

    /// Informs the processes waiting to be accepted that no descriptor is free. `P8.13`
    fn refuse_waiting(&mut self) {
        let Some(shortage) = self.accept_pause.as_ref().and_then(|pause| pause.shortage) else {
            return;
        };
        for _ in 0..ACCEPT_MAX {
            let Shm {
                reserve,
                listener,
                key,
                name,
                config,
                uid,
                ..
            } = self;
            let is_open = config.open.is_some();
            let hello = reserve.accept_with(listener, |socket| {
                let mut buffer = [0; OPEN_HELLO_LEN + 1];
                let is_ours = socket.peer_cred().is_ok_and(|cred| cred.uid == *uid);
                let record = socket.receive_with_fd(&mut buffer).ok().flatten();
                decline(&socket, &shortage);
                let len = record.filter(|_| is_ours)?.len;
                Hello::decode(&buffer[..len], key, name, is_open).ok()
            });
            let Some(hello) = hello else { break };
            if let Some(peer) = hello.and_then(|hello| self.check_hello(&hello).ok()) {
                self.notify_shortage(peer, shortage);
            }
        }
        self.announce_shortage(shortage);
    }

    /// Closes the connection of `peer` because this process lacks a resource for it. `P8.13`
    fn refuse_connection(&mut self, socket: Seqpacket, peer: PeerId, shortage: Shortage) {
        decline(&socket, &shortage);
        drop(socket);
        self.notify_shortage(peer, shortage);
        self.announce_shortage(shortage);
    }

    fn notify_shortage(&mut self, peer: PeerId, shortage: Shortage) {
        let what = format!("shm link: accept a connection of peer {peer}: {shortage}");
        self.notices.push_back(Notice::Shortage {
            peer,
            shortage,
            what,
        });
    }

    /// Reads the hello of an accepted connection that had not sent it before.
    pub(super) fn read_greeting(&mut self, id: u32) {
        let Some(index) = self.greetings.iter().position(|greeting| greeting.id == id) else {
            return;
        };
        let greeting = self.greetings.remove(index);
        self.epoll.remove(&greeting.socket);
        self.welcome(greeting.socket);
    }

    fn welcome(&mut self, socket: Seqpacket) {
        // Room for the hello and one byte, to detect longer records.
        let mut buffer = [0; OPEN_HELLO_LEN + 1];
        let result = match socket.receive_with_fd(&mut buffer) {
            Ok(None) => self.wait_for_hello(socket),
            Ok(Some(Record {
                len: 0, fd: None, ..
            }))
            | Err(_) => Err("shm: connection closed before its hello"),
            Ok(Some(Record {
                len,
                fd: None,
                fd_lost: true,
                ..
            })) => self.on_lost_memory_file(socket, &buffer[..len]),
            Ok(Some(Record { fd: None, .. })) => Err("shm: hello without a memory file"),
            Ok(Some(Record {
                len,
                fd: Some(memory),
                ..
            })) => {
                let is_open = self.config.open.is_some();
                let hello = Hello::decode(&buffer[..len], &self.key, &self.name, is_open);
                hello.and_then(|hello| self.admit(socket, &hello, &memory))
            }
        };
        if let Err(reason) = result {
            self.refuse(reason);
        }
    }

    fn wait_for_hello(&mut self, socket: Seqpacket) -> Result<(), &'static str> {
        self.check_user(&socket)?;
        let id = self.greeting_next;
        self.greeting_next = self.greeting_next.wrapping_add(1);
        self.epoll
            .add(&socket, Token::Greeting(id).encode())
            .map_err(|_| "shm: cannot watch a connection")?;
        self.greetings.push(Greeting { id, socket });
        if self.greetings.len() > GREETINGS_MAX {
            let oldest = self.greetings.remove(0);
            self.epoll.remove(&oldest.socket);
            return Err("shm: connection without a hello");
        }
        Ok(())
    }

    /// Handles a hello that lost its memory file because no descriptor was free.
    fn on_lost_memory_file(
        &mut self,
        socket: Seqpacket,
        record: &[u8],
    ) -> Result<(), &'static str> {
        self.check_user(&socket)?;
        let is_open = self.config.open.is_some();
        let hello = Hello::decode(record, &self.key, &self.name, is_open)?;
        let peer = self.check_hello(&hello)?;
        let shortage = Shortage::of(&io::Error::from_raw_os_error(libc::EMFILE));
        if let Some(shortage) = shortage {
            self.refuse_connection(socket, peer, shortage);
        }
        Err("shm: no descriptor for a connection")
    }

    /// Makes the sender of a hello a peer, if all checks pass. `P8.6`
    fn admit(
        &mut self,
        socket: Seqpacket,
        hello: &Hello,
        memory: &OwnedFd,
    ) -> Result<(), &'static str> {
        let pid = self.check_user(&socket)?;
        let peer = self.check_hello(hello)?;
        let admission = self.admission(peer, &socket)?;
        let ring_len = usize::try_from(hello.ring_len).map_err(|_| "shm: unusable ring")?;
        let ring = match ring::open(memory, ring_len) {
            Ok(ring) => ring,
            Err(err) => {
                log::warn!("shm link: hello of peer {peer}: {}", Explained(&err, None));
                if let Some(shortage) = Shortage::of(&err) {
                    self.refuse_connection(socket, peer, shortage);
                }
                return Err("shm: unusable ring");
            }
        };
        let inbound = Inbound { ring, peer, socket };
        match admission {
            Admission::Now => self.take_in(inbound, pid),
            Admission::AfterRemoval => {
                // Only its newest connection can still be valid.
                self.returning.retain(|other| other.inbound.peer != peer);
                self.returning.push(Returning { inbound, pid });
                Ok(())
            }
        }
    }

    /// Starts receiving from the peer's ring.
    pub(super) fn take_in(
        &mut self,
        inbound: Inbound,
        pid: Option<u32>,
    ) -> Result<(), &'static str> {
        self.epoll
            .add(&inbound.socket, Token::Inbound(inbound.peer).encode())
            .map_err(|_| "shm: cannot watch a connection")?;
        let state = self.peers.entry(inbound.peer).or_default();
        state.pid = state.pid.or(pid);
        self.inbound.push(inbound);
        Ok(())
    }

    /// `P8.6`: checks what the hash does not cover, and returns the sender's number.
    fn check_hello(&self, hello: &Hello) -> Result<PeerId, &'static str> {
        if let (Some(open), Some(endpoint_id)) = (&self.config.open, &hello.endpoint_id) {
            // P8.10
            let number = open.directory.number_of(endpoint_id);
            return number.ok_or("shm: hello of a process without a place");
        }
        if hello.job_id != self.config.job_id {
            return Err("shm: hello of another job");
        }
        if hello.to != self.config.rank {
            return Err("shm: hello for another rank");
        }
        if hello.from >= self.config.rank_count_max {
            return Err("shm: hello of a rank above the limit");
        }
        Ok(hello.from)
    }

    /// Decides when `peer`, which sent a hello by `socket`, is admitted. One connection exists at a
    /// time; a new one is admitted after the end of the old one was reported and handled. `P8.8`
    fn admission(&mut self, peer: PeerId, socket: &Seqpacket) -> Result<Admission, &'static str> {
        self.check_departure(peer);
        let is_known = self.inbound.iter().any(|inbound| inbound.peer == peer);
        let is_over = doorbell::is_hung_up(socket);
        match self.life_of(peer).unwrap_or_default() {
            Life::Live if is_known => Err("shm: second hello of a peer"),
            Life::Live => Ok(Admission::Now),
            Life::Leaving | Life::Departed if !is_over => Ok(Admission::AfterRemoval),
            // Its hello may be accepted after its hang-up was seen.
            Life::Leaving if !is_known => Ok(Admission::Now),
            Life::Leaving | Life::Departed => Err("shm: hello of a peer that has left"),
        }
    }

    /// Returns the pid of the connected process, if it belongs to our user. `P8.6`
    fn check_user(&self, socket: &Seqpacket) -> Result<Option<u32>, &'static str> {
        match socket.peer_cred() {
            Ok(cred) if cred.uid == self.uid => Ok(cred.pid),
            _ => Err("shm: connection of another user"),
        }
    }
}

/// Reports why a connection is refused, and that this process is alive.
fn decline(socket: &Seqpacket, shortage: &Shortage) {
    doorbell::report_shortage(socket, shortage);
    doorbell::bid_farewell(socket);
}

impl Drop for Shm {
    /// Informs processes still waiting to be accepted if this process lacks a resource. Otherwise
    /// they would only see the end of this process.
    fn drop(&mut self) {
        if self.shortage.is_some() {
            self.accept_or_refuse_waiting();
        }
    }
}
