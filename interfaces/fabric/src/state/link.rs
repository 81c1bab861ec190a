// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that only a connected endpoint has: its connection and its one peer.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::binding::{Endpoint, EndpointAddress, PeerIndex};

use crate::cm::{Conn, Fidptr, Manager, Request, Stage, socket};
use crate::errno::Errno;

/// Turns between polls of the connection's socket by a polling endpoint, because a poll is a system
/// call.
const TURNS_PER_POLL: u32 = 256;

/// Time in which sent data may still arrive when a connection ends. `P16.3`
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// Time in which data that a peer sent before it disconnected is accepted, unless the session ends
/// first. Over a network, all such data has been acknowledged. Over shared memory, it is in the
/// rings and is found when the peer's rings are mapped.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// Minimum number of turns in addition to [`DRAIN_TIME`], in case this process was not scheduled.
const DRAIN_TURNS_MIN: u32 = 1000;

/// Connection of an endpoint; see the module documentation.
#[derive(Default)]
pub(crate) struct Link {
    conn: Arc<Conn>,
    manager: Option<Arc<Manager>>,
    /// The request it was created from, until the reply was sent.
    request: Option<Request>,
    /// A bound socket to connect from, if the application named an address.
    bound: Option<OwnedFd>,
    /// Slot of its socket in the manager, and the object that events name.
    socket: Option<(usize, Fidptr)>,
    /// Stage of the connection at the last turn.
    seen: Stage,
    peer: Option<PeerIndex>,
    turns: u32,
    /// Time at which the end of the connection was noticed, and the number of turns since.
    end: Option<(Instant, u32)>,
}

/// Creation.
impl Link {
    /// Creates a connection that is to be accepted.
    pub(crate) fn of_request(request: Request) -> Link {
        let link = Link::default();
        let (local, remote) = request.ends();
        link.conn.set_local(local);
        link.conn.set_remote(remote);
        Link {
            request: Some(request),
            ..link
        }
    }

    /// Creates a connection that starts from a bound socket.
    pub(crate) fn of_socket(bound: OwnedFd) -> Link {
        let mut link = Link::default();
        link.set_socket(bound);
        link
    }

    fn set_socket(&mut self, bound: OwnedFd) {
        self.conn.set_local(socket::name(&bound));
        self.bound = Some(bound);
    }

    /// Binds a socket to this address to connect from it.
    pub(crate) fn bind(&mut self, addr: &SocketAddr) -> Result<(), Errno> {
        self.check_idle()?;
        // On failure the previous socket stays bound, possibly to this very address.
        self.set_socket(socket::bind(addr)?);
        Ok(())
    }

    /// Sets the manager of the event queue to report to.
    pub(crate) fn set_manager(&mut self, manager: Arc<Manager>) -> Result<(), Errno> {
        if self.manager.is_some() {
            return Err(Errno::OPBADSTATE);
        }
        self.manager = Some(manager);
        Ok(())
    }

    pub(crate) fn has_manager(&self) -> bool {
        self.manager.is_some()
    }
}

/// Connecting.
impl Link {
    /// Requests a connection for the local endpoint `own`. Events name it `fid`.
    pub(crate) fn connect(
        &mut self,
        fid: Fidptr,
        own: EndpointAddress,
        to: &SocketAddr,
        data: &[u8],
    ) -> Result<(), Errno> {
        let manager = self.manager.as_ref().ok_or(Errno::NOEQ)?;
        self.check_idle()?;
        let (socket, is_bound) = match self.bound.take() {
            Some(bound) => (bound, true),
            None => (socket::open_to(to)?, false),
        };
        match manager.connect((&self.conn, fid), socket, to, own, data) {
            Ok(at) => self.socket = Some((at, fid)),
            Err((socket, errno)) => {
                self.bound = is_bound.then_some(socket);
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Accepts the request from which this connection was created.
    pub(crate) fn accept(
        &mut self,
        fid: Fidptr,
        own: &EndpointAddress,
        data: &[u8],
    ) -> Result<(), Errno> {
        let manager = self.manager.as_ref().ok_or(Errno::NOEQ)?;
        let request = self.request.take().ok_or(Errno::OPBADSTATE)?;
        let at = manager.accept((&self.conn, fid), request, own, data)?;
        self.socket = Some((at, fid));
        Ok(())
    }

    fn check_idle(&self) -> Result<(), Errno> {
        match self.conn.stage() {
            _ if self.request.is_some() => Err(Errno::OPBADSTATE),
            Stage::Idle => Ok(()),
            Stage::Requesting => Err(Errno(libc::EALREADY)),
            Stage::Connected => Err(Errno(libc::EISCONN)),
            Stage::Closed => Err(Errno::OPBADSTATE),
        }
    }

    /// Ends the connection and reports the event.
    pub(crate) fn hang_up(&self) {
        if let (Some(manager), Some((at, _))) = (&self.manager, self.socket) {
            manager.hang_up(at, &self.conn);
        }
    }

    /// Closes the connection without an event, because the endpoint is closed.
    pub(super) fn close(&mut self) {
        drop(self.request.take());
        if let (Some(manager), Some((at, fid))) = (&self.manager, self.socket.take()) {
            manager.forget(at, fid);
        }
    }
}

/// State queries.
impl Link {
    pub(crate) fn stage(&self) -> Stage {
        self.conn.stage()
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.conn.local()
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.conn.remote()
    }

    /// Returns the peer, while connected.
    pub(super) fn peer(&self) -> Option<PeerIndex> {
        self.peer.filter(|_| self.conn.stage() == Stage::Connected)
    }

    /// Returns a descriptor that is readable when the stage has changed, or the socket is ready.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(super) fn wake_fd(&self) -> Result<RawFd, Errno> {
        if let Some(fd) = self.conn.wake_fd() {
            return Ok(fd);
        }
        let socket = self.socket.map(|(at, _)| at);
        match &self.manager {
            Some(manager) => manager.open_wake(&self.conn, socket, self.seen),
            None => Ok(self.conn.open_wake(self.seen, None)?),
        }
    }

    /// Polls the socket, and returns the stage if it has changed since the last turn handled it.
    pub(super) fn poll_stage(&mut self) -> Option<Stage> {
        if let Some(manager) = &self.manager {
            manager.progress();
        }
        self.change()
    }

    /// Returns the stage if it has changed, but polls the socket only once in [`TURNS_PER_POLL`] turns.
    pub(super) fn poll_stage_sometimes(&mut self) -> Option<Stage> {
        self.turns = self.turns.wrapping_add(1);
        match self.turns % TURNS_PER_POLL {
            0 => self.poll_stage(),
            _ => self.change(),
        }
    }

    /// Returns a stage to handle. While a request is pending there is none, so the endpoint may
    /// sleep.
    fn change(&self) -> Option<Stage> {
        let stage = self.conn.stage();
        let has_changed = stage != self.seen && matches!(stage, Stage::Connected | Stage::Closed);
        has_changed.then_some(stage)
    }

    /// Returns true if the session was ended after the connection.
    pub(super) fn has_ended_session(&self) -> bool {
        self.seen == Stage::Closed
    }

    /// Registers the peer with the engine, if the connection is established. Returns the peer with
    /// its address the first time.
    pub(super) fn add_peer(
        &mut self,
        engine: &mut Endpoint,
    ) -> Result<Option<(PeerIndex, EndpointAddress)>, Errno> {
        if self.conn.stage() == Stage::Connected && self.seen != Stage::Connected {
            self.seen = Stage::Connected;
            self.conn.clear_wake(self.seen);
        }
        let (None, Some(address)) = (self.peer, self.conn.peer()) else {
            return Ok(None);
        };
        let peer = engine.insert(&address).map_err(|_| Errno::NOMEM)?;
        self.peer = Some(peer);
        Ok(Some((peer, address)))
    }

    /// Returns true if all sent data has arrived, or can no longer arrive.
    pub(super) fn is_settled(&self, engine: &Endpoint) -> bool {
        self.peer().is_none_or(|peer| engine.is_settled(peer))
    }

    /// Waits until the sent data has arrived, the peer disconnects, or [`LINGER`] expires. Returns
    /// true if nothing is left to wait for.
    pub(super) fn linger(&mut self, engine: &mut Endpoint) -> bool {
        let end = Instant::now() + LINGER;
        // Poll the connection first: it shows that a peer was killed long before the session times
        // out.
        self.poll_stage();
        while !self.is_settled(engine) {
            if Instant::now() >= end {
                return false;
            }
            if engine.poll(&mut |_| {}) == 0 {
                std::thread::yield_now();
            }
            self.poll_stage_sometimes();
        }
        true
    }

    /// Counts a turn after the connection has ended. Returns true if all data that the peer sent
    /// before has arrived.
    pub(super) fn has_drained(&mut self, engine: &Endpoint) -> bool {
        let Some(peer) = self.peer else {
            return true;
        };
        let (since, turns) = self.end.get_or_insert_with(|| (Instant::now(), 0));
        *turns += 1;
        engine.is_gone(peer) || *turns > DRAIN_TURNS_MIN && since.elapsed() > DRAIN_TIME
    }

    /// Ends the session, and cancels all pending operations.
    pub(super) fn end_session(&mut self, engine: &mut Endpoint) {
        self.seen = Stage::Closed;
        self.conn.clear_wake(self.seen);
        if let Some(peer) = self.peer {
            engine.sever(peer);
        }
        engine.cancel_all();
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "passes memory of the test to the engine")]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::ptr::null_mut;

    use portolan::EndpointConfig;
    use portolan::binding::{Cookie, RawPiece, RawSend, RawSpace, Sent};
    use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionKind};

    use super::*;
    use crate::tests::harness::{PATIENCE, is_readable};

    /// Connects to a local listener, accepts as the endpoint at `address`, and waits for the event.
    fn connected(link: &mut Link, engine: &mut Endpoint, address: EndpointAddress) -> TcpStream {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let fid = Fidptr::new(null_mut(), null_mut());
        link.set_manager(Arc::new(Manager::new().unwrap())).unwrap();
        link.connect(fid, engine.address(), &to, b"").unwrap();
        let (mut stream, _) = server.accept().unwrap();
        let mut bytes = [0; CONNECTION_LEN_MAX];
        let reply = ConnectionFrame {
            kind: ConnectionKind::Accept,
            endpoint_id: *address.as_bytes(),
            data: b"",
        };
        let len = reply.emit(&mut bytes);
        stream.write_all(&bytes[..len]).unwrap();
        let begun = Instant::now();
        while link.poll_stage() != Some(Stage::Connected) {
            assert!(begun.elapsed() < PATIENCE, "no reply");
        }
        link.add_peer(engine).unwrap();
        stream
    }

    #[test]
    fn linger_ends_when_the_peer_disconnects() {
        // Too long to be copied before a receive is posted.
        let mut data = vec![7; 1 << 20];
        let open = || Endpoint::open(&EndpointConfig::default()).unwrap();
        // The other endpoint makes no progress, like a killed process.
        let (mut engine, other) = (open(), open());
        let mut link = Link::default();
        let stream = connected(&mut link, &mut engine, other.address());
        let send = RawSend {
            space: RawSpace::Plain,
            imm: None,
            delivered: false,
        };
        let piece = RawPiece {
            ptr: data.as_mut_ptr(),
            len: data.len(),
        };
        let peer = link.peer().unwrap();
        // SAFETY: the data outlives the engine.
        let sent = unsafe { engine.send(peer, &send, &[piece], Cookie::new(1)) };
        assert!(matches!(sent, Ok(Sent::Pending)));
        assert!(!link.is_settled(&engine), "not received yet");
        drop(stream);
        assert!(link.linger(&mut engine), "linger did not end early");
        link.close();
    }

    /// Disconnects a peer and waits for the wake-up. If `early` is set, the descriptor is opened
    /// before there is a socket.
    fn wakes(early: bool) {
        let patience_ms = i32::try_from(PATIENCE.as_millis()).unwrap();
        let open = || Endpoint::open(&EndpointConfig::default()).unwrap();
        let (mut engine, other) = (open(), open());
        let mut link = Link::default();
        let early = early.then(|| link.wake_fd().unwrap());
        let stream = connected(&mut link, &mut engine, other.address());
        let fd = link.wake_fd().unwrap();
        assert_eq!(early.unwrap_or(fd), fd);
        assert!(!is_readable(fd, 0), "the connection was handled");
        drop(stream);
        assert!(
            is_readable(fd, patience_ms),
            "the disconnect was not polled yet"
        );
        while link.poll_stage() != Some(Stage::Closed) {}
        assert!(is_readable(fd, 0), "the disconnect was not handled yet");
        link.end_session(&mut engine);
        assert!(!is_readable(fd, 0), "the disconnect was handled");
        link.close();
    }

    #[test]
    fn sleeper_wakes_until_disconnect_is_handled() {
        wakes(false);
        wakes(true);
    }
}
