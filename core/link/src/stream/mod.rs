// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link for long messages: a kernel TCP connection with each peer that needs one. Pages are
//! passed to it by reference, and payload is received at its final destination. There is one copy
//! in all.
//!
//! It carries frames with a head and much payload, one after another. A frame's payload may be
//! passed by reference: the kernel then holds its pages until the peer has received the bytes, and
//! makes no copy. The caller must keep the pages unchanged until then.
//!
//! A connection is opened by a sender ([`Stream::open_to`]) and carries frames in both directions.
//! In a greeting, each end proves that it has the tokens of one session; the caller maps tokens to
//! peers ([`Stream::service`]). The connection ends on any error, which is reported as
//! [`Notice::StreamDown`]. Frames that it had not fully carried are lost.
//!
//! Control path: this file and `greeting`. Data path: `connection`, and `lending`, which chooses
//! between copying and passing pages.
//!
//! Invariant: before its greeting is verified, a connection costs one descriptor and a few bytes,
//! their number is small, and they end soon. For a connection this link never holds more than a
//! frame's head and a pipe's worth of one frame.

mod connection;
mod greeting;
mod lending;

pub use connection::{Landing, Part, PartReceiver, Place};
pub use greeting::Tokens;

use crate::{LinkCaps, LinkKind, Notice, PeerId, TxError, TxFrame, WakeSet};
use connection::{Connection, Way};
use greeting::{Greeter, Progress};
use portolan_sys::descriptors;
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::net::{self, PortRange};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Maximum number of bytes of a frame's payload. At 5 GB/s they take 50 µs to receive, for which
/// short messages wait.
pub const PAYLOAD_LEN_MAX: usize = 256 * 1024;

/// Bytes before each frame's payload. Payload often begins at a page, or 16 bytes behind one, as
/// long memory from `malloc` does. With 64 bytes it is copied to and from the kernel's pages at a
/// harmless distance. AMD processors of family 25 copy at a sixteenth of the speed if the
/// destination is 1 to 31 bytes behind the source modulo 4 KiB. A front of 24 or 32 bytes leads to
/// that.
const FRONT_LEN: usize = 64;

/// Bytes of the two lengths in a front.
const LENGTHS_LEN: usize = 8;

/// Maximum number of bytes of a frame's head.
pub const HEAD_LEN_MAX: usize = FRONT_LEN - LENGTHS_LEN;

/// Maximum number of pieces of a frame's payload.
const GATHER_MAX: usize = 2;

/// Bytes of TCP's own buffer that the link assumes.
const RX_BUFFER_LEN: usize = 4 << 20;

/// Maximum number of connections that are being opened or have not sent their greeting. Bounds the
/// descriptors that unverified connections can occupy.
const GREETERS_MAX: usize = 16;

/// Maximum number of connections. Each one with possible data costs a poll of a third of a
/// microsecond. Further peers use a path instead.
pub const CONNECTIONS_MAX: usize = 32;

/// Descriptors of a connection: its socket, and both ends of its pipe.
const DESCRIPTORS: usize = 3;

/// Divisor of this process's descriptor limit; connections use at most this share.
const DESCRIPTORS_SHARE: usize = 8;

/// Time limit for a greeting or for connecting. A lost SYN is repeated after 1 s.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

/// Congestion control, which every Linux kernel has. It fills the wire based on losses, without a
/// pacing timer. `cubic` ends slow start when acknowledgements come closely spaced, as on a network
/// with a round trip of microseconds: its window is then too small for a long message for many
/// round trips.
const CONGESTION: &str = "reno";

/// Kinds of tokens in the epoll set: the listener, greeters, connections.
const LISTENER: u64 = 0;
const GREETER: u64 = 1 << 32;
const CONNECTION: u64 = 2 << 32;

/// The stream link of one process.
pub struct Stream {
    caps: LinkCaps,
    zero_copy: bool,
    local: SocketAddr,
    ports: PortRange,
    listener: TcpListener,
    epoll: Epoll,
    ready: Vec<Ready>,
    greeters: Vec<Greeter>,
    connections: Vec<Connection>,
    connections_max: usize,
    next_number: u32,
    /// Set while the listener is not watched, because descriptors are exhausted or the limit of
    /// greeters is reached.
    is_accept_paused: bool,
    notices: VecDeque<Notice>,
}

impl Stream {
    /// Opens a link that listens at `at` and connects from `ports`. With `zero_copy` it passes pages
    /// to the kernel by reference where that is cheaper than copying them.
    ///
    /// # Errors
    /// Fails if the port is taken, or descriptors are exhausted.
    pub fn open(at: SocketAddr, ports: PortRange, zero_copy: bool) -> io::Result<Stream> {
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
                polls_memory: false,
                rx_buffer_len: RX_BUFFER_LEN,
            },
            zero_copy,
            ports,
            local,
            listener,
            epoll,
            ready: Vec::new(),
            greeters: Vec::new(),
            connections: Vec::new(),
            connections_max: CONNECTIONS_MAX
                .min(descriptors::limit() / DESCRIPTORS_SHARE / DESCRIPTORS),
            next_number: 0,
            is_accept_paused: false,
            notices: VecDeque::new(),
        })
    }

    /// Returns the capabilities of this link.
    #[must_use]
    pub fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    /// Returns the address at which peers reach it.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Starts to open a connection with `peer` at `to`, in the session of `tokens`. The result is
    /// reported as [`Notice::StreamUp`] or [`Notice::StreamDown`].
    pub fn open_to(&mut self, peer: PeerId, to: SocketAddr, tokens: Tokens) {
        if self.is_open(peer) || self.greeters.iter().any(|one| one.opens(peer)) {
            return;
        }
        let has_capacity = self.connections.len() < self.connections_max;
        let begun = match has_capacity && self.greeters.len() < GREETERS_MAX {
            true => net::begin_connect(self.local.ip(), to, self.ports),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        let greeter =
            |socket| Greeter::opening(socket, peer, tokens, Instant::now() + GREETING_TIMEOUT);
        if let Err(error) = begun.and_then(|socket| self.add_greeter(greeter(socket), true)) {
            log::debug!("stream link: connect to peer {peer} at {to}: {error}");
            self.notices.push_back(fault(peer));
        }
    }

    /// Returns `true` if frames can be sent to `peer`.
    #[must_use]
    pub fn is_open(&self, peer: PeerId) -> bool {
        self.connections.iter().any(|one| one.peer() == peer)
    }

    /// Returns the number of established connections, and of those being opened or not verified
    /// yet.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.greeters.len())
    }

    /// Closes all connections with `peer` without a notice.
    pub fn close(&mut self, peer: PeerId) {
        self.end_where(|one| one.peer() == peer, |one| one.opens(peer));
    }

    /// Closes all connections that have neither sent nor received since the previous call, and
    /// reports each.
    pub fn close_idle(&mut self) {
        for index in (0..self.connections.len()).rev() {
            if !self.connections[index].take_used() {
                self.end(index, idle, "idle");
            }
        }
    }

    /// Closes connections with `timeouts_max` consecutive retransmission timeouts, and reports
    /// each.
    pub fn give_up_stalled(&mut self, timeouts_max: u8) {
        for index in (0..self.connections.len()).rev() {
            if self.connections[index].timeouts() >= timeouts_max {
                self.end(index, fault, "retransmission timeouts");
            }
        }
    }

    /// Returns `true` if a frame to `peer` would be refused as [`TxError::Full`].
    pub fn is_full(&mut self, peer: PeerId) -> bool {
        let mut connections = self.connections.iter_mut();
        let connection = connections.find(|one| one.peer() == peer);
        connection.is_some_and(|one| one.has_unsent() && matches!(one.push(), Ok(false)))
    }

    /// Sends one frame to `peer`: a head of up to [`HEAD_LEN_MAX`] bytes, and payload, by reference
    /// if possible. If the payload is in one piece, [`Stream::owed_len`] bytes at its end must be
    /// provided by [`Stream::resume`].
    ///
    /// # Panics
    /// Panics if the payload has more pieces than [`LinkCaps::gather_max`].
    ///
    /// # Errors
    /// [`TxError::Full`] while the previous frame has not left. [`TxError::NotConnected`] if there
    /// is no connection, or it has just failed; it is then unknown which earlier frames arrived.
    pub fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        let way = match self.zero_copy {
            true => Way::Cheaper,
            false => Way::Lent,
        };
        self.transmit_frame(peer, frame, way)
    }

    /// Sends one frame like [`Stream::transmit`], but copies it: its memory is free when the call
    /// returns, even if the connection fails later.
    ///
    /// # Panics
    /// As [`Stream::transmit`].
    ///
    /// # Errors
    /// As [`Stream::transmit`].
    pub fn transmit_copied(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.transmit_frame(peer, frame, Way::Copied)
    }

    fn transmit_frame(
        &mut self,
        peer: PeerId,
        frame: &TxFrame<'_>,
        way: Way,
    ) -> Result<(), TxError> {
        let payload_len = frame.payload_len();
        if frame.head.len() + payload_len > self.caps.frame_len_max {
            return Err(TxError::TooLong {
                frame_len_max: self.caps.frame_len_max,
            });
        }
        // Use the connection opened first, so that frames keep their order.
        let Some(index) = self.connections.iter().position(|one| one.peer() == peer) else {
            return Err(TxError::NotConnected(peer));
        };
        let connection = &mut self.connections[index];
        match connection.send(frame, way) {
            Ok(true) => {
                self.watch_writable(index);
                Ok(())
            }
            Ok(false) => {
                self.watch_writable(index);
                Err(TxError::Full)
            }
            Err(error) => {
                log::debug!("stream link: peer {peer}: {error}");
                self.end(index, fault, "send failed");
                Err(TxError::NotConnected(peer))
            }
        }
    }

    /// Returns the number of bytes at the end of the last frame to `peer` that the socket has not
    /// accepted and that must be provided.
    #[must_use]
    pub fn owed_len(&self, peer: PeerId) -> usize {
        let mut connections = self.connections.iter().filter(|one| one.peer() == peer);
        connections.next().map_or(0, Connection::owed_len)
    }

    /// Sends more of the last frame to `peer`: `bytes` are the [`Stream::owed_len`] bytes at its end.
    /// The connection fails without them, if `None`.
    pub fn resume(&mut self, peer: PeerId, bytes: Option<&[u8]>) {
        let Some(index) = self.connections.iter().position(|one| one.peer() == peer) else {
            return;
        };
        let connection = &mut self.connections[index];
        let bytes = bytes.filter(|bytes| bytes.len() == connection.owed_len());
        let resumed = match bytes {
            Some(bytes) => connection.resume(bytes),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        match resumed {
            Ok(()) => self.watch_writable(index),
            Err(error) => {
                log::debug!("stream link: peer {peer}: {error}");
                self.end(index, fault, "send failed");
            }
        }
    }

    /// Returns `true` if accepted data has not left yet.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.connections.iter().any(Connection::has_unsent)
    }

    /// Continues to send data that the socket has not accepted.
    pub fn push(&mut self) {
        for index in (0..self.connections.len()).rev() {
            if self.connections[index].has_unsent() {
                match self.connections[index].push() {
                    Ok(_) => self.watch_writable(index),
                    Err(error) => {
                        log::debug!("stream link: {error}");
                        self.end(index, fault, "send failed");
                    }
                }
            }
        }
    }

    /// Receives from each connection, with about `budget` calls of at most `call_len_max` bytes of
    /// payload each. Payload goes to the destination given by `receiver`. Also continues to send
    /// data that the socket has not accepted. Returns how many calls received data.
    pub fn receive(
        &mut self,
        (budget, call_len_max): (usize, usize),
        receiver: &mut dyn PartReceiver,
    ) -> usize {
        self.push();
        let mut receive_count = 0;
        for index in (0..self.connections.len()).rev() {
            let connection = &mut self.connections[index];
            match connection.receive((budget, call_len_max), receiver) {
                Ok(count) => receive_count += count,
                Err(error) => {
                    log::debug!("stream link: peer {}: {error}", connection.peer());
                    let is_idle = connection.is_between_frames();
                    let notice = if is_idle { idle } else { fault };
                    self.end(index, notice, "connection lost");
                }
            }
        }
        receive_count
    }

    /// Accepts connections, handles greetings, and closes greeters that have timed out. `owner`
    /// returns the peer of the session with the given tokens. Makes one system call if there are no
    /// events. Returns `true` if a connection may have data to receive.
    pub fn service(&mut self, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) -> bool {
        let mut has_data = false;
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        if self.epoll.poll(&mut ready).is_ok() {
            for event in &ready {
                match event.token & !0xffff_ffff {
                    LISTENER => self.accept(),
                    GREETER => self.on_greeter_event(event.token, owner),
                    _ => has_data = true,
                }
            }
        }
        self.ready = ready;
        if !self.greeters.is_empty() {
            let now = Instant::now();
            while let Some(index) = self.greeters.iter().position(|one| one.deadline <= now) {
                self.end_greeter(index);
            }
        }
        has_data
    }

    /// Returns the next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Prepares to sleep: adds the descriptor to wait for. Returns `false` if an event is already
    /// waiting.
    pub fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let polled = self.epoll.poll(&mut ready);
        let quiet = polled.is_ok() && ready.is_empty() && self.notices.is_empty();
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
                // The peer gave up waiting, or descriptors are exhausted.
                Err(error) => {
                    log::debug!("stream link: accept: {error}");
                    break;
                }
            };
            let greeter = Greeter::accepted(socket, Instant::now() + GREETING_TIMEOUT);
            if let Err(error) = self.add_greeter(greeter, false) {
                log::debug!("stream link: accept: {error}");
            }
        }
        self.listen(false);
    }

    /// Starts or stops watching the listener. Waiting connections would prevent sleep.
    fn listen(&mut self, enabled: bool) {
        if self.is_accept_paused == enabled {
            self.is_accept_paused = !enabled;
            match enabled {
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
            self.epoll.watch_writable(&greeter.socket, token, true)?;
        }
        self.greeters.push(greeter);
        Ok(())
    }

    fn on_greeter_event(&mut self, token: u64, owner: &mut dyn FnMut(&Tokens) -> Option<PeerId>) {
        let of = |one: &Greeter| GREETER | u64::from(one.number) == token;
        let Some(index) = self.greeters.iter().position(of) else {
            return;
        };
        match self.greeters[index].advance(owner) {
            Progress::Nothing => {}
            Progress::Connected => {
                // From now on the reply is awaited.
                let socket = &self.greeters[index].socket;
                if self.epoll.watch_writable(socket, token, false).is_err() {
                    self.end_greeter(index);
                }
            }
            Progress::Verified(_) if self.connections.len() >= self.connections_max => {
                log::debug!(
                    "stream link: there are {} connections",
                    self.connections_max
                );
                self.end_greeter(index);
            }
            Progress::Verified(peer) => {
                let greeter = self.greeters.swap_remove(index);
                self.epoll.remove(&greeter.socket);
                self.listen(true);
                if let Err(error) = self.begin(peer, greeter.socket) {
                    log::debug!("stream link: peer {peer}: {error}");
                    self.notices.push_back(fault(peer));
                }
            }
            Progress::Ended => self.end_greeter(index),
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
        is_obsolete: impl Fn(&Greeter) -> bool,
    ) {
        while let Some(index) = self.connections.iter().position(&is_ended) {
            let connection = self.connections.remove(index);
            self.epoll.remove(connection.socket());
            connection.abort();
        }
        while let Some(index) = self.greeters.iter().position(&is_obsolete) {
            let greeter = self.greeters.swap_remove(index);
            self.epoll.remove(&greeter.socket);
            net::abort_stream(greeter.socket);
        }
    }

    /// Wakes a sleeper when the socket accepts unsent data again.
    fn watch_writable(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if let Some(enabled) = connection.take_watch_change() {
            let token = CONNECTION | u64::from(connection.number());
            // On an error, the unsent data is retried when the caller next polls.
            let _ = self
                .epoll
                .watch_writable(connection.socket(), token, enabled);
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

/// Maximum number of notices about unverified connections that wait for `poll_notice`. Any process
/// could create them without bound.
const NOTICES_MAX: usize = 256;

#[cfg(test)]
mod tests;
