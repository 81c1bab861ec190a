// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link for long messages: a kernel TCP connection with each peer that wants one, to which pages are
//! lent and from which payload is received at its final place. One copy in all.
//!
//! It carries frames of a head and much payload, behind one another. A frame's payload may be lent: its
//! pages are referenced by the kernel until the peer has taken the bytes, and a copy is nowhere made.
//! The caller sees to it that they stay as they are until then.
//!
//! A connection is opened for one who sends ([`Stream::open_to`]) and carries frames both ways. Its two
//! ends prove by a greeting that they know the tokens of one session; who owns a token, the caller
//! says ([`Stream::service`]). It ends by itself when anything is wrong with it, which is told as
//! [`Notice::StreamDown`], and with it goes what it had not carried to the end.
//!
//! Control path: this file and `greeting`. Data path: `connection`.
//!
//! The one invariant: until its greeting is proven a connection costs a descriptor and a few bytes, is
//! one of few, and ends soon; and at no time does this link hold more than a frame's head and a pipe's
//! worth of one frame for a connection.

mod connection;
mod greeting;

pub use connection::{Landing, Part, PartReceiver, Place};
pub use greeting::Tokens;

use crate::{LinkCaps, LinkKind, Notice, PeerId, TxError, TxFrame, WakeSet};
use connection::Connection;
use greeting::{Greeter, Heard};
use portolan_sys::descriptors;
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::net::{self, PortRange};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Bytes of a frame's payload at most: what takes 50 µs to receive at 5 GB/s, for which short messages
/// wait.
pub const PAYLOAD_LEN_MAX: usize = 256 * 1024;

/// Bytes in front of each frame's payload. A payload that begins at a page, or 16 bytes behind one as long memory from
/// `malloc` does, is then copied to and from the kernel's pages at a distance that does no harm: AMD's of
/// family 25 copy a sixteenth as fast to where is 1 to 31 bytes behind the source modulo 4 KiB, which 24 and 32 bytes
/// lead to.
const FRONT_LEN: usize = 64;

/// Bytes of a front's two lengths.
const LENGTHS_LEN: usize = 8;

/// Bytes of a frame's head at most.
pub const HEAD_LEN_MAX: usize = FRONT_LEN - LENGTHS_LEN;

/// Pieces of a frame's payload at most.
const GATHER_MAX: usize = 2;

/// Bytes of TCP's own buffer that are counted on.
const RX_BUFFER_LEN: usize = 4 << 20;

/// Connections whose greeting is awaited, or that are being opened: strangers take no more of this
/// process's descriptors.
const GREETERS_MAX: usize = 16;

/// Connections at most. Each that something may come by is looked at by a call of its own, a third of a
/// microsecond; whoever has none goes by a path.
pub const CONNECTIONS_MAX: usize = 32;

/// Descriptors of a connection: its socket, and the ends of its pipe.
const DESCRIPTORS: usize = 3;

/// Of the descriptors that this process may have, connections take one in so many at most.
const DESCRIPTORS_SHARE: usize = 8;

/// How long a greeting, or a connection, is waited for. A SYN that was lost is repeated after a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a connection is congestion-controlled by, if the system has it: the one that fills the wire by
/// what it loses, and waits for no timer that paces it.
const CONGESTION: &str = "cubic";

/// Numbers of descriptors in the epoll set: the listener, then greeters, then connections.
const LISTENER: u64 = 0;
const GREETER: u64 = 1 << 32;
const CONNECTION: u64 = 2 << 32;

/// The link of one process.
pub struct Stream {
    caps: LinkCaps,
    lends: bool,
    local: SocketAddr,
    ports: PortRange,
    listener: TcpListener,
    epoll: Epoll,
    ready: Vec<Ready>,
    greeters: Vec<Greeter>,
    connections: Vec<Connection>,
    connections_max: usize,
    next_number: u32,
    /// The listener is not watched, for want of descriptors, or because strangers have taken all places.
    is_deaf: bool,
    notices: VecDeque<Notice>,
}

impl Stream {
    /// Listens at `at`, and connects from `ports`. With `lends` it passes pages to the kernel by reference
    /// instead of copying them.
    ///
    /// # Errors
    /// When the port is taken, or for want of descriptors.
    pub fn open(at: SocketAddr, ports: PortRange, lends: bool) -> io::Result<Stream> {
        let listener = net::listen_stream(at)?;
        let local = listener.local_addr()?;
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER)?;
        Ok(Stream {
            caps: LinkCaps {
                kind: LinkKind::Stream,
                frame_len_max: HEAD_LEN_MAX + PAYLOAD_LEN_MAX,
                segments_max: 1,
                gather_max: GATHER_MAX,
                lossless: true,
                pull: false,
                placement: true,
                looks_at_memory: false,
                rx_buffer_len: RX_BUFFER_LEN,
            },
            lends,
            ports,
            local,
            listener,
            epoll,
            ready: Vec::new(),
            greeters: Vec::new(),
            connections: Vec::new(),
            connections_max: CONNECTIONS_MAX
                .min(descriptors::most() / DESCRIPTORS_SHARE / DESCRIPTORS),
            next_number: 0,
            is_deaf: false,
            notices: VecDeque::new(),
        })
    }

    /// What this link can do.
    #[must_use]
    pub fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    /// Where peers reach it.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Begins to open a connection with `peer` at `to`, in the session of `tokens`. What becomes of it
    /// is told as [`Notice::StreamUp`] or [`Notice::StreamDown`].
    pub fn open_to(&mut self, peer: PeerId, to: SocketAddr, tokens: Tokens) {
        if self.is_open(peer) || self.greeters.iter().any(|one| one.opens(peer)) {
            return;
        }
        let is_room = self.connections.len() < self.connections_max;
        let begun = match is_room && self.greeters.len() < GREETERS_MAX {
            true => net::begin_connect(self.local.ip(), to, self.ports),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let greeter = |socket| Greeter::opening(socket, peer, tokens, Instant::now() + PATIENCE);
        if let Err(error) = begun.and_then(|socket| self.add_greeter(greeter(socket), true)) {
            log::debug!("stream link: connect to peer {peer} at {to}: {error}");
            self.notices.push_back(fault(peer));
        }
    }

    /// Whether frames can be sent to `peer`.
    #[must_use]
    pub fn is_open(&self, peer: PeerId) -> bool {
        self.connections.iter().any(|one| one.peer() == peer)
    }

    /// Connections that stand, and connections that are being opened or have not proven themselves.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.greeters.len())
    }

    /// Closes all connections with `peer`; nothing is told of it.
    pub fn close(&mut self, peer: PeerId) {
        self.end_where(|one| one.peer() == peer, |one| one.opens(peer));
    }

    /// Ends all connections that have neither sent nor received since this was called last; whom
    /// they were with is told.
    pub fn close_idle(&mut self) {
        for index in (0..self.connections.len()).rev() {
            if !self.connections[index].take_used() {
                self.end(index, idle, "idle");
            }
        }
    }

    /// Ends connections that have had to send again, so many times in a row, what is not acknowledged;
    /// whom they were with is told.
    pub fn give_up_stalled(&mut self, timeouts_max: u8) {
        for index in (0..self.connections.len()).rev() {
            if self.connections[index].timeouts() >= timeouts_max {
                self.end(index, fault, "nothing gets through");
            }
        }
    }

    /// Whether a frame to `peer` would be refused for want of room.
    pub fn is_full(&mut self, peer: PeerId) -> bool {
        let mut connections = self.connections.iter_mut();
        let connection = connections.find(|one| one.peer() == peer);
        connection.is_some_and(|one| one.has_unsent() && matches!(one.push(), Ok(false)))
    }

    /// Sends one frame to `peer`: a head of up to [`HEAD_LEN_MAX`] bytes, and payload, which is lent if it can
    /// be.
    ///
    /// # Panics
    /// When the payload lies in more pieces than [`LinkCaps::gather_max`] says.
    ///
    /// # Errors
    /// [`TxError::Full`] while the one before has not left; [`TxError::NotConnected`] when there is no
    /// connection, or none any more: then it is not known what of earlier frames has arrived.
    pub fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        let payload_len = frame.payload_len();
        if frame.head.len() + payload_len > self.caps.frame_len_max {
            return Err(TxError::TooLong {
                frame_len_max: self.caps.frame_len_max,
            });
        }
        // The one that was opened first: what follows comes behind it.
        let Some(index) = self.connections.iter().position(|one| one.peer() == peer) else {
            return Err(TxError::NotConnected(peer));
        };
        let connection = &mut self.connections[index];
        match connection.send(frame, self.lends) {
            Ok(true) => {
                self.watch_room(index);
                Ok(())
            }
            Ok(false) => {
                self.watch_room(index);
                Err(TxError::Full)
            }
            Err(error) => {
                log::debug!("stream link: peer {peer}: {error}");
                self.end(index, fault, "send failed");
                Err(TxError::NotConnected(peer))
            }
        }
    }

    /// Whether something that was accepted for sending has not left.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.connections.iter().any(Connection::has_unsent)
    }

    /// Sends on what had no room.
    pub fn push(&mut self) {
        for index in (0..self.connections.len()).rev() {
            if self.connections[index].has_unsent() {
                match self.connections[index].push() {
                    Ok(_) => self.watch_room(index),
                    Err(error) => {
                        log::debug!("stream link: {error}");
                        self.end(index, fault, "send failed");
                    }
                }
            }
        }
    }

    /// Receives what has arrived, each frame's payload to where `receiver` says, about `budget` calls'
    /// worth from each connection, of `call_len_max` bytes of payload at most; and sends on what had no
    /// room. Returns how many calls brought something.
    pub fn receive(
        &mut self,
        (budget, call_len_max): (usize, usize),
        receiver: &mut dyn PartReceiver,
    ) -> usize {
        self.push();
        let mut moved = 0;
        for index in (0..self.connections.len()).rev() {
            let connection = &mut self.connections[index];
            match connection.receive((budget, call_len_max), receiver) {
                Ok(count) => moved += count,
                Err(error) => {
                    log::debug!("stream link: peer {}: {error}", connection.peer());
                    let is_idle = connection.is_between_frames();
                    let notice = if is_idle { idle } else { fault };
                    self.end(index, notice, "connection lost");
                }
            }
        }
        moved
    }

    /// Accepts, greets, and ends what has taken too long. `owner` says which peer's session has these
    /// tokens. A system call when nothing has happened. Returns whether a connection has something to
    /// be received.
    pub fn service(&mut self, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) -> bool {
        let mut has_news = false;
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        if self.epoll.look(&mut ready).is_ok() {
            for event in &ready {
                match event.token & !0xffff_ffff {
                    LISTENER => self.accept(),
                    GREETER => self.hear(event.token, owner),
                    _ => has_news = true,
                }
            }
        }
        self.ready = ready;
        if !self.greeters.is_empty() {
            let now = Instant::now();
            while let Some(index) = self.greeters.iter().position(|one| one.until <= now) {
                self.end_greeter(index);
            }
        }
        has_news
    }

    /// What happened since.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Prepares to sleep: adds the descriptor to wait for. `false` if something waits already.
    pub fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let looked = self.epoll.look(&mut ready);
        let quiet = looked.is_ok() && ready.is_empty() && self.notices.is_empty();
        self.ready = ready;
        wake.fds.push(self.epoll.as_fd().as_raw_fd());
        quiet
    }

    fn accept(&mut self) {
        while self.greeters.len() < GREETERS_MAX {
            let accepted = self.listener.accept();
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It gave up waiting, or there are no descriptors.
                Err(error) => {
                    log::debug!("stream link: accept: {error}");
                    break;
                }
            };
            let greeter = Greeter::accepted(socket, Instant::now() + PATIENCE);
            if let Err(error) = self.add_greeter(greeter, false) {
                log::debug!("stream link: accept: {error}");
            }
        }
        self.listen(false);
    }

    /// Watches the listener, or not: strangers that wait would keep this process awake.
    fn listen(&mut self, wanted: bool) {
        if self.is_deaf == wanted {
            self.is_deaf = !wanted;
            match wanted {
                true => drop(self.epoll.add(&self.listener, LISTENER)),
                false => self.epoll.remove(&self.listener),
            }
        }
    }

    fn add_greeter(&mut self, mut greeter: Greeter, opening: bool) -> io::Result<()> {
        greeter.socket.set_nonblocking(true)?;
        greeter.number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let token = GREETER | u64::from(greeter.number);
        self.epoll.add(&greeter.socket, token)?;
        if opening {
            self.epoll.watch_room(&greeter.socket, token, true)?;
        }
        self.greeters.push(greeter);
        Ok(())
    }

    fn hear(&mut self, token: u64, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) {
        let of = |one: &Greeter| GREETER | u64::from(one.number) == token;
        let Some(index) = self.greeters.iter().position(of) else {
            return;
        };
        match self.greeters[index].hear(owner) {
            Heard::Nothing => {}
            Heard::Connected => {
                // Its answer is waited for.
                let socket = &self.greeters[index].socket;
                if self.epoll.watch_room(socket, token, false).is_err() {
                    self.end_greeter(index);
                }
            }
            Heard::Proven(_) if self.connections.len() >= self.connections_max => {
                log::debug!(
                    "stream link: there are {} connections",
                    self.connections_max
                );
                self.end_greeter(index);
            }
            Heard::Proven(peer) => {
                let greeter = self.greeters.swap_remove(index);
                self.epoll.remove(&greeter.socket);
                self.listen(true);
                if let Err(error) = self.begin(peer, greeter.socket) {
                    log::debug!("stream link: peer {peer}: {error}");
                    self.notices.push_back(fault(peer));
                }
            }
            Heard::Ended => self.end_greeter(index),
        }
    }

    fn begin(&mut self, peer: PeerId, socket: TcpStream) -> io::Result<()> {
        net::prepare_stream(socket.as_fd(), CONGESTION);
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        self.epoll.add(&socket, CONNECTION | u64::from(number))?;
        self.connections.push(Connection::new(peer, number, socket));
        self.notices.push_back(Notice::StreamUp(peer));
        Ok(())
    }

    fn end_greeter(&mut self, index: usize) {
        let greeter = self.greeters.swap_remove(index);
        self.epoll.remove(&greeter.socket);
        self.listen(true);
        match greeter.peer() {
            Some(peer) => self.notices.push_back(fault(peer)),
            None if self.notices.len() < NOTICES_MAX => {
                self.notices.push_back(Notice::Dropped("stream_stranger"));
            }
            None => {}
        }
        net::abort_stream(greeter.socket);
    }

    fn end(&mut self, index: usize, notice: fn(PeerId) -> Notice, why: &'static str) {
        let connection = self.connections.remove(index);
        let peer = connection.peer();
        log::debug!("stream link: the connection with peer {peer} ends: {why}");
        self.epoll.remove(connection.socket());
        connection.abort();
        self.notices.push_back(notice(peer));
    }

    fn end_where(
        &mut self,
        is_ended: impl Fn(&Connection) -> bool,
        is_unwanted: impl Fn(&Greeter) -> bool,
    ) {
        while let Some(index) = self.connections.iter().position(&is_ended) {
            let connection = self.connections.remove(index);
            self.epoll.remove(connection.socket());
            connection.abort();
        }
        while let Some(index) = self.greeters.iter().position(&is_unwanted) {
            let greeter = self.greeters.swap_remove(index);
            self.epoll.remove(&greeter.socket);
            net::abort_stream(greeter.socket);
        }
    }

    /// A sleeper is woken when there is room again for what has not left.
    fn watch_room(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if let Some(wanted) = connection.room_wanted() {
            let token = CONNECTION | u64::from(connection.number());
            // Without it, what waits is tried again when the caller comes back by itself.
            let _ = self.epoll.watch_room(connection.socket(), token, wanted);
        }
    }
}

fn fault(peer: PeerId) -> Notice {
    Notice::StreamDown {
        peer,
        is_idle: false,
    }
}

fn idle(peer: PeerId) -> Notice {
    Notice::StreamDown {
        peer,
        is_idle: true,
    }
}

/// Notices of strangers that wait for `poll_notice`; they come as fast as somebody connects.
const NOTICES_MAX: usize = 256;

#[cfg(test)]
mod tests;
