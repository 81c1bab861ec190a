// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connected endpoint has beside the others: its connection, and one peer.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::{Endpoint, EndpointAddress, PeerIndex};

use crate::cm::{Conn, Fidptr, Manager, Request, Stage, socket};
use crate::errno::Errno;

/// Between looks at the connection by an endpoint that is polled: a look is a system call.
const LOOK_TURNS: u32 = 256;

/// What was sent is waited for so long when a connection ends. `P16.3`
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// What a peer has sent before it hung up is taken for so long, unless its session ends before. By a
/// network all of it has been acknowledged; by shared memory it lies there, and is found when the
/// peer's rings are mapped.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// And for so many turns that bring nothing, however long this process was kept from them.
const LAST_TURNS: u32 = 1000;

/// A connection of an endpoint. See the module documentation.
#[derive(Default)]
pub(crate) struct Link {
    conn: Arc<Conn>,
    manager: Option<Arc<Manager>>,
    /// The request that it was made from, until that is answered.
    request: Option<Request>,
    /// Where it connects from, if the application has said so.
    bound: Option<OwnedFd>,
    /// Its socket at the manager, and what events call it.
    socket: Option<(usize, Fidptr)>,
    /// How far the connection was at the last turn.
    seen: Stage,
    peer: Option<PeerIndex>,
    turns: u32,
    /// When the end of the connection was seen, and the turns since then.
    end: Option<(Instant, u32)>,
}

/// Making one.
impl Link {
    /// To be accepted.
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

    /// To be connected from a bound socket.
    pub(crate) fn of_socket(bound: OwnedFd) -> Link {
        let mut link = Link::default();
        link.set_socket(bound);
        link
    }

    fn set_socket(&mut self, bound: OwnedFd) {
        self.conn.set_local(socket::name(&bound));
        self.bound = Some(bound);
    }

    /// Connect from this address.
    pub(crate) fn bind(&mut self, addr: &SocketAddr) -> Result<(), Errno> {
        self.check_idle()?;
        // One that cannot be had leaves what there is. It may be this very address.
        self.set_socket(socket::bind(addr)?);
        Ok(())
    }

    /// Report to an event queue.
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
    /// The connection is for an endpoint of this address, which events call `fid`.
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

    /// The same for one that was made from a request.
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
            Stage::Asking => Err(Errno(libc::EALREADY)),
            Stage::Connected => Err(Errno(libc::EISCONN)),
            Stage::Over => Err(Errno::OPBADSTATE),
        }
    }

    /// End the connection, and tell of it.
    pub(crate) fn hang_up(&self) {
        if let (Some(manager), Some((at, _))) = (&self.manager, self.socket) {
            manager.hang_up(at, &self.conn);
        }
    }

    /// The endpoint is closed: nobody is told any more.
    pub(super) fn close(&mut self) {
        drop(self.request.take());
        if let (Some(manager), Some((at, fid))) = (&self.manager, self.socket.take()) {
            manager.forget(at, fid);
        }
    }
}

/// What is known of it.
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

    /// The peer, while connected.
    pub(super) fn peer(&self) -> Option<PeerIndex> {
        self.peer.filter(|_| self.conn.stage() == Stage::Connected)
    }

    /// A descriptor that is readable when there is something to follow, or news by the socket.
    ///
    /// # Errors
    /// For want of descriptors.
    pub(super) fn wake_fd(&self) -> Result<RawFd, Errno> {
        if let Some(fd) = self.conn.wake_fd() {
            return Ok(fd);
        }
        let socket = self.socket.map(|(at, _)| at);
        match &self.manager {
            Some(manager) => manager.wake_of(&self.conn, socket, self.seen),
            None => Ok(self.conn.open_wake(self.seen, None)?),
        }
    }

    /// Look at the socket, and tell what has changed since the last time.
    pub(super) fn look(&mut self) -> Option<Stage> {
        if let Some(manager) = &self.manager {
            manager.progress();
        }
        self.change()
    }

    /// The same, with a look now and then only.
    pub(super) fn look_sometimes(&mut self) -> Option<Stage> {
        self.turns = self.turns.wrapping_add(1);
        match self.turns % LOOK_TURNS {
            0 => self.look(),
            _ => self.change(),
        }
    }

    /// What there is to follow: who asks waits, and sleeps.
    fn change(&self) -> Option<Stage> {
        let stage = self.conn.stage();
        let is_news = stage != self.seen && matches!(stage, Stage::Connected | Stage::Over);
        is_news.then_some(stage)
    }

    /// Whether the session has ended after the connection.
    pub(super) fn has_parted(&self) -> bool {
        self.seen == Stage::Over
    }

    /// Learn who the peer is, if there is one by now. Returns it with its address the first time.
    pub(super) fn meet(
        &mut self,
        engine: &mut Endpoint,
    ) -> Result<Option<(PeerIndex, EndpointAddress)>, Errno> {
        if self.conn.stage() == Stage::Connected && self.seen != Stage::Connected {
            self.seen = Stage::Connected;
            self.conn.calm(self.seen);
        }
        let (None, Some(address)) = (self.peer, self.conn.peer()) else {
            return Ok(None);
        };
        let peer = engine.insert(&address).map_err(|_| Errno::NOMEM)?;
        self.peer = Some(peer);
        Ok(Some((peer, address)))
    }

    /// Whether all that was sent has arrived, or cannot any more.
    pub(super) fn is_settled(&self, engine: &Endpoint) -> bool {
        self.peer().is_none_or(|peer| engine.is_settled(peer))
    }

    /// Let what was sent arrive, for a while, unless the peer hangs up. Returns whether there is nothing
    /// left to wait for.
    pub(super) fn linger(&mut self, engine: &mut Endpoint) -> bool {
        let end = Instant::now() + LINGER;
        // By the connection, where a peer that was killed shows long before its session notices.
        self.look();
        while !self.is_settled(engine) {
            if Instant::now() >= end {
                return false;
            }
            if engine.poll(&mut |_| {}) == 0 {
                std::thread::yield_now();
            }
            self.look_sometimes();
        }
        true
    }

    /// The connection is over, and this is a turn after that: whether all has come that the peer has
    /// sent before.
    pub(super) fn has_all(&mut self, engine: &Endpoint) -> bool {
        let Some(peer) = self.peer else {
            return true;
        };
        let (since, turns) = self.end.get_or_insert_with(|| (Instant::now(), 0));
        *turns += 1;
        engine.is_gone(peer) || *turns > LAST_TURNS && since.elapsed() > LAST_LOOK
    }

    /// End the session, and all that waits for it.
    pub(super) fn part(&mut self, engine: &mut Endpoint) {
        self.seen = Stage::Over;
        self.conn.calm(self.seen);
        if let Some(peer) = self.peer {
            engine.sever(peer);
        }
        engine.cancel_all();
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "lends memory of the test to the engine")]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::ptr::null_mut;

    use portolan::{Cookie, EndpointConfig, RawPiece, RawSend, RawSpace, Sent};
    use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionWord};

    use super::*;
    use crate::tests::harness::{PATIENCE, is_readable};

    /// Ask who listens there, be accepted as the endpoint of this address, and hear of it.
    fn connected(link: &mut Link, engine: &mut Endpoint, address: EndpointAddress) -> TcpStream {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let fid = Fidptr::new(null_mut(), null_mut());
        link.set_manager(Arc::new(Manager::new().unwrap())).unwrap();
        link.connect(fid, engine.address(), &to, b"").unwrap();
        let (mut stream, _) = server.accept().unwrap();
        let mut bytes = [0; CONNECTION_LEN_MAX];
        let answer = ConnectionFrame {
            word: ConnectionWord::Accept,
            endpoint_id: *address.as_bytes(),
            data: b"",
        };
        let len = answer.emit(&mut bytes);
        stream.write_all(&bytes[..len]).unwrap();
        let begun = Instant::now();
        while link.look() != Some(Stage::Connected) {
            assert!(begun.elapsed() < PATIENCE, "no answer");
        }
        link.meet(engine).unwrap();
        stream
    }

    #[test]
    fn nothing_is_waited_for_once_the_peer_has_hung_up() {
        // Too long to be taken before it is wanted.
        let mut data = vec![7; 1 << 20];
        let open = || Endpoint::open(&EndpointConfig::default()).unwrap();
        // The other never works, as one that was killed.
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
        // SAFETY: the data outlive the engine.
        let sent = unsafe { engine.send(peer, &send, &[piece], Cookie::new(1)) };
        assert!(matches!(sent, Ok(Sent::Pending)));
        assert!(!link.is_settled(&engine), "nobody has taken it");
        drop(stream);
        assert!(link.linger(&mut engine), "it waited all the while");
        link.close();
    }

    /// Have a peer hang up, and follow it. The descriptor is asked for before there is a socket if
    /// `early`.
    fn wakes(early: bool) {
        let patience_ms = i32::try_from(PATIENCE.as_millis()).unwrap();
        let open = || Endpoint::open(&EndpointConfig::default()).unwrap();
        let (mut engine, other) = (open(), open());
        let mut link = Link::default();
        let early = early.then(|| link.wake_fd().unwrap());
        let stream = connected(&mut link, &mut engine, other.address());
        let fd = link.wake_fd().unwrap();
        assert_eq!(early.unwrap_or(fd), fd);
        assert!(!is_readable(fd, 0), "the connection was seen");
        drop(stream);
        assert!(is_readable(fd, patience_ms), "nobody else has looked");
        while link.look() != Some(Stage::Over) {}
        assert!(is_readable(fd, 0), "another may have looked");
        link.part(&mut engine);
        assert!(!is_readable(fd, 0), "all was followed");
        link.close();
    }

    #[test]
    fn a_sleeper_wakes_for_the_socket_and_for_the_end_until_that_is_followed() {
        wakes(false);
        wakes(true);
    }
}
