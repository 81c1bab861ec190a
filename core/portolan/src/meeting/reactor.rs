// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that serves the connections: sockets and time limits of [`super::visit`].

use super::keys::random_u64;
use super::record::RECORD_LEN;
use super::visit::{Host, Secret, Step, Visit};
use super::{Command, Parting, Queues, Refusal, Report, Unconnected, Wanted, locked};
use crate::clock::Clock;
use crate::directory::{Directory, EndpointAddress};
use portolan_proto::{Instant, PeerId};
use portolan_sys::doorbell::{self, Drained};
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::net::{PortRange, begin_connect, listen_server};
use portolan_sys::wait::wait_readable;
use rustix::net::sockopt;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time in which a connection must prove the secret. It takes two round trips; a loaded host takes
/// seconds to schedule a process. `P18.4`
const PROOF_MAX: Duration = Duration::from_secs(10);

/// Maximum number of connections that have not proved the secret; beyond it the oldest is closed.
/// `P18.4`
const UNPROVED_MAX: usize = 1024;

/// Maximum number of connections accepted in one pass, so that open ones are served in between.
const ACCEPT_MAX: usize = 64;

/// Pause after all addresses of a server have failed. It doubles up to the maximum.
const RETRY: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(200);

/// Time after which the next address of a server is tried, if there is one.
const ADDRESS_MAX: Duration = Duration::from_secs(1);

/// Pause of accepting while no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Silence after which the kernel probes a connection, the pause between the probes, and their
/// number. A host that has failed is noticed after a minute even if no operation needs the peer.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Token of the engine's end of the pair.
const BELL: u64 = 0;

struct Listener {
    socket: TcpListener,
    secret: Secret,
}

struct Connection {
    socket: TcpStream,
    visit: Visit,
    since: Instant,
    /// Set until the socket has connected.
    is_connecting: bool,
    peer: Option<PeerId>,
    /// Number of the attempt to which it belongs, if this process has connected.
    attempt: Option<u64>,
}

/// An attempt to connect to a server.
struct Attempt {
    wanted: Wanted,
    /// Index of the next address.
    next: usize,
    retry_at: Instant,
    pause: Duration,
    /// Its connection, if there is one.
    token: Option<u64>,
    last_failure: String,
}

/// See the module documentation.
pub(super) struct Reactor {
    queues: Arc<Queues>,
    bell: OwnedFd,
    directory: Arc<Directory>,
    auth: u8,
    ports: PortRange,
    epoll: Epoll,
    clock: Clock,
    listeners: HashMap<u64, Listener>,
    connections: HashMap<u64, Connection>,
    by_peer: HashMap<PeerId, u64>,
    /// Tokens of the connections that have not proved the secret, the oldest first.
    unproved: Vec<u64>,
    attempts: Vec<Attempt>,
    next_token: u64,
    /// Time from which listeners are watched again.
    paused_until: Option<Instant>,
    /// Descriptors with the numbers of standard input, output and error. If a connection had one of
    /// these numbers, a message of this thread to the user would go to a peer.
    _standard: Vec<Epoll>,
}

impl Reactor {
    pub(super) fn new(
        queues: Arc<Queues>,
        bell: OwnedFd,
        directory: Arc<Directory>,
        auth: u8,
        ports: PortRange,
    ) -> io::Result<Reactor> {
        // A shared descriptor table would slow down every system call of the program. A forked
        // child also gets none of the connections.
        let _ = portolan_sys::descriptors::unshare_except(bell.as_fd());
        let (epoll, standard) = new_epoll()?;
        epoll.add(&bell, BELL)?;
        Ok(Reactor {
            _standard: standard,
            queues,
            bell,
            directory,
            auth,
            ports,
            epoll,
            clock: Clock::new(),
            listeners: HashMap::new(),
            connections: HashMap::new(),
            by_peer: HashMap::new(),
            unproved: Vec::new(),
            attempts: Vec::new(),
            next_token: BELL + 1,
            paused_until: None,
        })
    }

    /// Serves the connections until the engine ends.
    pub(super) fn run(&mut self) {
        let mut ready = Vec::new();
        loop {
            let timeout = self.timeout();
            if wait_readable(&[self.epoll.as_fd().as_raw_fd()], timeout).is_err() {
                std::thread::sleep(ACCEPT_PAUSE);
            }
            ready.clear();
            if self.epoll.poll(&mut ready).is_err() {
                return;
            }
            for event in &ready {
                self.on_ready(event);
            }
            // The bell first: a command that comes after it rings again.
            let is_abandoned = self.is_abandoned(&ready);
            if !self.obey() || is_abandoned {
                return;
            }
            self.on_time();
        }
    }

    fn is_abandoned(&self, ready: &[Ready]) -> bool {
        let mut bells = ready.iter().filter(|event| event.token == BELL);
        bells.any(|_| doorbell::drain(&self.bell) == Drained::HungUp)
    }

    /// Returns the time until the next limit is reached.
    fn timeout(&self) -> Option<Duration> {
        let attempts = self.attempts.iter().map(Attempt::due_at);
        let oldest = self.unproved.first();
        let oldest = oldest.and_then(|token| self.connections.get(token));
        let proof = oldest.map(|connection| connection.since + PROOF_MAX);
        let due = attempts.chain(proof).chain(self.paused_until).min()?;
        Some(due.since(self.clock.now()))
    }

    /// Obeys the commands. Returns `false` for the last one.
    fn obey(&mut self) -> bool {
        let commands = std::mem::take(&mut *locked(&self.queues.commands));
        for command in commands {
            match command {
                Command::Listen { at, secret, reply } => {
                    let _ = reply.send(self.listen(at, secret));
                }
                Command::Connect(wanted) => self.begin(wanted),
                Command::Abandon(id) => self.abandon(id),
                Command::Close { peer, in_order } => self.close_peer(peer, in_order),
                Command::End => {
                    self.end();
                    return false;
                }
            }
        }
        true
    }

    fn report(&self, report: Report) {
        locked(&self.queues.reports).push(report);
        self.queues.has_reports.store(true, Ordering::Release);
        doorbell::ring(&self.bell);
    }

    fn next_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn listen(&mut self, at: SocketAddr, secret: Secret) -> io::Result<SocketAddr> {
        let socket = listen_server(at)?;
        let bound = socket.local_addr()?;
        let token = self.next_token();
        self.epoll.add(&socket, token)?;
        self.listeners.insert(token, Listener { socket, secret });
        Ok(bound)
    }

    fn on_ready(&mut self, event: &Ready) {
        let token = event.token;
        if self.listeners.contains_key(&token) {
            self.accept(token);
        } else if self.connections.contains_key(&token) {
            self.serve(token);
        }
    }

    fn accept(&mut self, token: u64) {
        for _ in 0..ACCEPT_MAX {
            let Some(listener) = self.listeners.get(&token) else {
                return;
            };
            match listener.socket.accept() {
                Ok((socket, _)) => {
                    let visit = Visit::new(false, Arc::clone(&listener.secret));
                    self.take_in(socket, visit, None);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client has left already.
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => {}
                Err(_) => return self.pause_accepting(),
            }
        }
    }

    /// Stops accepting for a moment. The clients wait in the kernel's queue.
    fn pause_accepting(&mut self) {
        for listener in self.listeners.values() {
            self.epoll.remove(&listener.socket);
        }
        self.paused_until = Some(self.clock.now() + ACCEPT_PAUSE);
    }

    /// Starts to serve a connection. Returns its token.
    fn take_in(
        &mut self,
        socket: TcpStream,
        visit: Option<Visit>,
        attempt: Option<u64>,
    ) -> Option<u64> {
        let visit = visit?;
        prepare(&socket).ok()?;
        let token = self.next_token();
        self.epoll.add(&socket, token).ok()?;
        let is_connecting = attempt.is_some();
        if is_connecting {
            self.epoll.watch_writable(&socket, token, true).ok()?;
        }
        let connection = Connection {
            socket,
            visit,
            since: self.clock.now(),
            is_connecting,
            peer: None,
            attempt,
        };
        self.connections.insert(token, connection);
        self.unproved.push(token);
        if self.unproved.len() > UNPROVED_MAX {
            self.fail(self.unproved[0], "too many connections are silent");
        }
        Some(token)
    }

    /// Reads what has arrived on a connection, and answers.
    fn serve(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        if connection.is_connecting {
            return self.on_connected(token);
        }
        let mut bytes = [0; 4 * RECORD_LEN];
        match connection.socket.read(&mut bytes) {
            Ok(0) => self.fail(token, "the connection was closed"),
            Ok(len) => self.on_bytes(token, &bytes[..len]),
            Err(error) if is_passing(&error) => {}
            Err(error) => self.fail(token, &error.to_string()),
        }
    }

    fn on_connected(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let failure = match connection.socket.take_error() {
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = failure {
            return self.fail(token, &error.to_string());
        }
        let Ok(other_end) = connection.socket.peer_addr() else {
            return;
        };
        // TCP connects a socket with itself if it got the port of a server that is not there.
        if connection
            .socket
            .local_addr()
            .is_ok_and(|own| own == other_end)
        {
            return self.fail(token, "no process listens there");
        }
        connection.is_connecting = false;
        // Without this the socket, which is always writable now, would wake the thread for ever.
        let _ = self.epoll.watch_writable(&connection.socket, token, false);
        self.write(token);
    }

    fn on_bytes(&mut self, token: u64, bytes: &[u8]) {
        let beginning: Vec<EndpointAddress> = self
            .unproved
            .iter()
            .filter(|other| **other != token)
            .filter_map(|other| self.connections.get(other)?.visit.beginning())
            .collect();
        let Some(relation) = random_u64() else {
            return self.fail(token, "the system has no randomness");
        };
        let host = Host {
            directory: &self.directory,
            auth: self.auth,
            beginning: &beginning,
            // Zero stands for no relation.
            relation: relation | 1,
        };
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let step = connection.visit.on_bytes(bytes, &host);
        let is_written = self.write(token);
        match step {
            Step::More => {}
            Step::Joined { peer, replaced } => {
                self.on_joined(token, peer, replaced);
                if !is_written {
                    self.fail(token, "the connection was closed");
                }
            }
            Step::Known(peer) => self.finish(token, Ok(peer)),
            Step::Left => self.part(token, Parting::InOrder),
            Step::Refused(refusal) => self.on_refused(token, refusal),
        }
    }

    fn on_refused(&mut self, token: u64, refusal: Refusal) {
        match refusal {
            Refusal::WrongSecret | Refusal::OtherVersion | Refusal::OtherAuth => {
                self.finish(token, Err(Unconnected::Refused(refusal)));
            }
            Refusal::Full | Refusal::Busy | Refusal::Malformed => self.fail(token, refusal.text()),
        }
    }

    fn on_joined(&mut self, token: u64, peer: PeerId, replaced: Option<PeerId>) {
        self.unproved.retain(|other| *other != token);
        if let Some(old) = replaced.and_then(|old| self.by_peer.get(&old)) {
            self.part(*old, Parting::InOrder);
        }
        self.by_peer.insert(peer, token);
        let mut attempt = None;
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.peer = Some(peer);
            attempt = connection.attempt.take();
        }
        self.report(Report::Joined(peer));
        if let Some(id) = attempt {
            self.attempts.retain(|attempt| attempt.wanted.id != id);
            let result = Ok(peer);
            self.report(Report::Connected { id, result });
        }
    }

    /// Writes what the connection has to send. The buffer of the socket always has room for it,
    /// because an exchange is shorter than any buffer. Returns `false` if the connection is broken.
    fn write(&mut self, token: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else {
            return false;
        };
        let bytes = connection.visit.take_output();
        // An error is also found by the next read, which may first find a refusal.
        connection.socket.write_all(&bytes).is_ok()
    }

    /// Ends an exchange of this process's own attempt with its result.
    fn finish(&mut self, token: u64, result: Result<PeerId, Unconnected>) {
        let attempt = self.drop_connection(token).and_then(|it| it.attempt);
        let Some(id) = attempt else { return };
        self.attempts.retain(|attempt| attempt.wanted.id != id);
        self.report(Report::Connected { id, result });
    }

    /// Handles the end of a connection, which is the loss of its peer if it had one. An attempt
    /// tries its next address.
    fn fail(&mut self, token: u64, why: &str) {
        let Some(connection) = self.connections.get(&token) else {
            return;
        };
        if connection.peer.is_some() {
            return self.part(token, Parting::Lost);
        }
        let id = connection.attempt;
        self.drop_connection(token);
        let now = self.clock.now();
        let mut attempts = self.attempts.iter_mut();
        if let Some(attempt) = attempts.find(|attempt| Some(attempt.wanted.id) == id) {
            attempt.on_failure(now, why);
        }
    }

    /// Ends the relation of a connection.
    fn part(&mut self, token: u64, parting: Parting) {
        let Some(peer) = self.drop_connection(token).and_then(|it| it.peer) else {
            return;
        };
        let generation = self.directory.generation_of(peer);
        self.directory.close(peer);
        self.report(Report::Parted {
            peer,
            generation,
            parting,
        });
    }

    fn drop_connection(&mut self, token: u64) -> Option<Connection> {
        let connection = self.connections.remove(&token)?;
        self.unproved.retain(|other| *other != token);
        self.epoll.remove(&connection.socket);
        if let Some(peer) = connection.peer {
            self.by_peer.remove(&peer);
        } else if let Some(peer) = connection.visit.expected() {
            self.directory.close(peer);
            self.report(Report::Unwelcome(peer));
        }
        Some(connection)
    }

    fn close_peer(&mut self, peer: PeerId, in_order: bool) {
        self.directory.close(peer);
        if let Some(&token) = self.by_peer.get(&peer) {
            if in_order {
                self.bid_farewell(token);
            }
            self.drop_connection(token);
        }
    }

    fn bid_farewell(&mut self, token: u64) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.visit.bid_farewell();
            self.write(token);
        }
    }

    fn end(&mut self) {
        let tokens: Vec<u64> = self.by_peer.values().copied().collect();
        tokens
            .into_iter()
            .for_each(|token| self.bid_farewell(token));
    }

    fn begin(&mut self, wanted: Wanted) {
        self.attempts.push(Attempt {
            wanted,
            next: 0,
            retry_at: self.clock.now(),
            pause: RETRY,
            token: None,
            last_failure: "no attempt was made".to_owned(),
        });
    }

    fn abandon(&mut self, id: u64) {
        let attempts = &mut self.attempts;
        if let Some(index) = attempts.iter().position(|it| it.wanted.id == id)
            && let Some(token) = attempts.swap_remove(index).token
        {
            self.drop_connection(token);
        }
    }

    /// Acts on the limits that have been reached.
    fn on_time(&mut self) {
        let now = self.clock.now();
        while let Some(&token) = self.unproved.first()
            && let Some(oldest) = self.connections.get(&token)
            && now >= oldest.since + PROOF_MAX
        {
            self.fail(token, "no reply");
        }
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            for (token, listener) in &self.listeners {
                let _ = self.epoll.add(&listener.socket, *token);
            }
        }
        for mut attempt in std::mem::take(&mut self.attempts) {
            if self.advance(&mut attempt, now) {
                self.attempts.push(attempt);
            }
        }
    }

    /// Continues an attempt; returns `false` if it has ended.
    fn advance(&mut self, attempt: &mut Attempt, now: Instant) -> bool {
        if now >= attempt.wanted.deadline {
            if let Some(token) = attempt.token {
                self.drop_connection(token);
            }
            let why = std::mem::take(&mut attempt.last_failure);
            self.report(Report::Connected {
                id: attempt.wanted.id,
                result: Err(Unconnected::TimedOut(why)),
            });
            return false;
        }
        if attempt
            .token
            .is_some_and(|it| !self.connections.contains_key(&it))
        {
            // It was the oldest of too many.
            attempt.on_failure(now, "too many connections are silent");
        }
        if attempt.token.is_some() {
            let is_slow = attempt.wanted.addresses.len() > 1 && now >= attempt.retry_at;
            if !is_slow {
                return true;
            }
            if let Some(token) = attempt.token.take() {
                self.drop_connection(token);
            }
            attempt.on_failure(now, "no reply");
        }
        if now >= attempt.retry_at {
            self.try_next(attempt, now);
        }
        true
    }

    fn try_next(&mut self, attempt: &mut Attempt, now: Instant) {
        let to = attempt.wanted.addresses[attempt.next];
        attempt.retry_at = now + ADDRESS_MAX;
        attempt.last_failure = "no reply".to_owned();
        let visit = Visit::new(true, Arc::clone(&attempt.wanted.secret));
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let id = Some(attempt.wanted.id);
        match begin_connect(any, to, self.ports) {
            Ok(socket) => attempt.token = self.take_in(socket, visit, id),
            Err(error) => attempt.on_failure(now, &error.to_string()),
        }
    }
}

impl Attempt {
    fn due_at(&self) -> Instant {
        match self.token {
            Some(_) if self.wanted.addresses.len() == 1 => self.wanted.deadline,
            _ => self.retry_at.min(self.wanted.deadline),
        }
    }

    /// Records a failure at one address. The next is tried at once, or after a pause if all have
    /// failed.
    fn on_failure(&mut self, now: Instant, why: &str) {
        why.clone_into(&mut self.last_failure);
        self.token = None;
        self.next += 1;
        self.retry_at = now;
        if self.next >= self.wanted.addresses.len() {
            self.next = 0;
            self.retry_at = now + self.pause;
            self.pause = (self.pause * 2).min(RETRY_MAX);
        }
    }
}

/// Makes the kernel send at once, and notice a host that has failed.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let (idle, interval, count) = KEEPALIVE;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    Ok(())
}

/// Creates an epoll set with a descriptor above the standard ones. Also returns the sets that
/// occupy closed standard descriptors.
fn new_epoll() -> io::Result<(Epoll, Vec<Epoll>)> {
    let mut standard = Vec::new();
    loop {
        let epoll = Epoll::new()?;
        if epoll.as_fd().as_raw_fd() > libc::STDERR_FILENO {
            return Ok((epoll, standard));
        }
        standard.push(epoll);
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
