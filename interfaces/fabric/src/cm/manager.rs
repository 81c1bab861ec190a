// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager of an event queue: its sockets and their state machines.

mod callers;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use portolan::binding::EndpointAddress;
use portolan_sys::epoll::Epoll;
use portolan_sys::fork::Owner;
use portolan_wire::ConnectionKind;
use slab::Slab;

use self::callers::{Caller, Listener};
use super::channel::{Channel, Frame, Received};
use super::conn::{Conn, Stage};
use super::drops::Drops;
use super::event::{Event, Events, Fidptr};
use super::permits::Alarm;
use super::request::Request;
use super::socket;
use crate::abi::{CONNECTED, SHUTDOWN};
use crate::errno::Errno;
use crate::provider_info::ProviderInfo;

/// Key of the alarm in the epoll set; no slot has it.
const ALARM: u64 = u64::MAX;

/// Manager of an event queue; see the module documentation.
///
/// A forked child inherits the sockets, but the kernel's epoll set is shared with the parent. The
/// child therefore touches none of them.
pub(crate) struct Manager {
    inner: Mutex<Inner>,
    owner: Owner,
}

struct Inner {
    slots: Slab<Slot>,
    /// Sockets of all slots, keyed by slot index.
    net: Epoll,
    /// Slots of silent callers, oldest first. Some may have sent something since.
    silent: VecDeque<usize>,
    /// Listeners that are not watched until the alarm fires or a resource is released.
    parked: Vec<usize>,
    alarm: Arc<Alarm>,
    drops: Drops,
    events: Events,
}

/// State of one socket.
enum Slot {
    Listener(Box<Listener>),
    Silent(Caller),
    Connection(Connection),
}

/// A connection of a local endpoint.
struct Connection {
    channel: Channel,
    party: Party,
    phase: Phase,
}

/// Next step of a connection.
enum Phase {
    /// The system is connecting; then this request is sent.
    Connecting(OwnRequest),
    /// The request was sent; the reply of the peer is pending.
    Requested,
    /// The connection is established.
    Connected,
}

/// Contents of a connection request.
struct OwnRequest {
    own: EndpointAddress,
    data: Box<[u8]>,
}

/// The endpoint that owns a connection.
#[derive(Clone)]
struct Party {
    conn: Arc<Conn>,
    fid: Fidptr,
}

impl AsFd for Slot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Slot::Listener(listener) => listener.as_fd(),
            Slot::Silent(caller) => caller.as_fd(),
            Slot::Connection(connection) => connection.channel.as_fd(),
        }
    }
}

/// A passive endpoint that listens. Dropping it stops the listener.
pub(crate) struct Listening {
    manager: Arc<Manager>,
    at: usize,
    fid: Fidptr,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.manager.forget(self.at, self.fid);
    }
}

impl Manager {
    pub(crate) fn new() -> io::Result<Manager> {
        let net = Epoll::new()?;
        let alarm = Arc::new(Alarm::new()?);
        net.add(&*alarm, ALARM)?;
        let events = Events::new(net.as_fd().as_raw_fd())?;
        let inner = Mutex::new(Inner {
            slots: Slab::new(),
            net,
            silent: VecDeque::new(),
            parked: Vec::new(),
            alarm,
            drops: Drops::default(),
            events,
        });
        let owner = Owner::this_process();
        Ok(Manager { inner, owner })
    }

    /// Makes progress and passes the events to `body`.
    ///
    /// # Errors
    /// `OPBADSTATE` in a forked child.
    pub(crate) fn with_events<T>(&self, body: impl FnOnce(&mut Events) -> T) -> Result<T, Errno> {
        let mut inner = self.lock()?;
        inner.progress();
        let was_full = inner.events.is_full();
        let done = body(&mut inner.events);
        if was_full && !inner.events.is_full() {
            inner.resume();
        }
        Ok(done)
    }

    /// Makes progress, unless another thread does.
    pub(crate) fn progress(&self) {
        if !self.owner.is_another()
            && let Some(mut inner) = self.inner.try_lock()
        {
            inner.progress();
        }
    }

    /// Listens at a bound socket for a passive endpoint. Requests are reported with the attributes
    /// of `template`.
    ///
    /// # Errors
    /// Errors of the system calls, with the socket, which is still bound.
    pub(crate) fn listen(
        self: &Arc<Manager>,
        bound: OwnedFd,
        backlog: i32,
        fid: Fidptr,
        template: ProviderInfo,
    ) -> Result<Listening, (OwnedFd, Errno)> {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(errno) => return Err((bound, errno)),
        };
        let listened = socket::listen(&bound, backlog);
        let at = match listened.and_then(|()| inner.watch(&bound, false)) {
            Ok(at) => at,
            Err(error) => return Err((bound, error.into())),
        };
        let listener = Listener::new(bound, backlog, fid, template, &inner.alarm);
        inner.put(at, Slot::Listener(Box::new(listener)));
        let manager = Arc::clone(self);
        Ok(Listening { manager, at, fid })
    }

    /// Requests a connection from the listener at `to`, for the local endpoint `own`. Returns the
    /// socket's slot.
    ///
    /// # Errors
    /// Immediate errors of the system calls, with the socket, which is still bound. Later errors
    /// are reported as events.
    pub(crate) fn connect(
        &self,
        (conn, fid): (&Arc<Conn>, Fidptr),
        socket: OwnedFd,
        to: &SocketAddr,
        own: EndpointAddress,
        data: &[u8],
    ) -> Result<usize, (OwnedFd, Errno)> {
        let mut inner = match self.lock() {
            Ok(inner) => inner,
            Err(errno) => return Err((socket, errno)),
        };
        // Watch the socket first: a connect that has started cannot be undone.
        let at = match inner.watch(&socket, true) {
            Ok(at) => at,
            Err(error) => return Err((socket, error.into())),
        };
        let watched = conn.watch(&socket);
        if let Err(error) = watched.and_then(|()| socket::connect(&socket, to)) {
            conn.forget(&socket);
            inner.net.remove(&socket);
            return Err((socket, error.into()));
        }
        let channel = Channel::new(TcpStream::from(socket));
        conn.set_local(channel.local());
        conn.set_remote(Some(*to));
        conn.advance(Stage::Requesting);
        let connection = Connection {
            channel,
            party: party(conn, fid),
            phase: Phase::Connecting(OwnRequest {
                own,
                data: data.into(),
            }),
        };
        inner.put(at, Slot::Connection(connection));
        Ok(at)
    }

    /// Accepts a request for the local endpoint `own`. Returns the socket's slot.
    ///
    /// # Errors
    /// `CONNABORTED` if the requester has disconnected.
    pub(crate) fn accept(
        &self,
        (conn, fid): (&Arc<Conn>, Fidptr),
        request: Request,
        own: &EndpointAddress,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let mut inner = self.lock()?;
        let (channel, peer) = request.accept(own, data)?;
        conn.watch(&channel)?;
        let at = inner.add(Slot::Connection(Connection {
            channel,
            party: party(conn, fid),
            phase: Phase::Connected,
        }))?;
        conn.connect(peer);
        inner.push_event(CONNECTED, fid, Box::default());
        // The peer may already have disconnected, or have sent more after its request.
        inner.serve_connection(at);
        Ok(at)
    }

    /// Returns a descriptor that wakes a sleeper when a connection advances beyond `seen`. `at` is
    /// the slot of its socket, if it has one.
    ///
    /// # Errors
    /// No descriptor is available; `OPBADSTATE` in a forked child.
    pub(crate) fn open_wake(
        &self,
        conn: &Arc<Conn>,
        at: Option<usize>,
        seen: Stage,
    ) -> Result<RawFd, Errno> {
        let inner = self.lock()?;
        let socket = match at.and_then(|at| inner.slots.get(at)) {
            Some(slot @ Slot::Connection(connection))
                if Arc::ptr_eq(&connection.party.conn, conn) =>
            {
                Some(slot.as_fd())
            }
            _ => None,
        };
        Ok(conn.open_wake(seen, socket)?)
    }

    /// Ends an established connection and reports the event.
    pub(crate) fn hang_up(&self, at: usize, conn: &Conn) {
        let Ok(mut inner) = self.lock() else { return };
        if conn.stage() == Stage::Connected {
            inner.end(at);
        }
    }

    /// Drops all events of a closed object, and closes its socket.
    pub(crate) fn forget(&self, at: usize, fid: Fidptr) {
        let Ok(mut inner) = self.lock() else { return };
        if inner.slots.get(at).is_some_and(|slot| is_of(slot, fid)) {
            inner.remove(at);
            inner.drop_callers(at);
        }
        inner.events.purge(fid);
        inner.resume();
    }

    /// Returns the number of callers dropped for this reason.
    #[cfg(test)]
    pub(crate) fn dropped(&self, reason: super::DropReason) -> u64 {
        self.inner.lock().drops.of(reason)
    }

    /// Locks the manager's state.
    ///
    /// # Errors
    /// `OPBADSTATE` in a forked child.
    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Errno> {
        match self.owner.is_another() {
            false => Ok(self.inner.lock()),
            true => Err(Errno::OPBADSTATE),
        }
    }
}

fn party(conn: &Arc<Conn>, fid: Fidptr) -> Party {
    let conn = Arc::clone(conn);
    Party { conn, fid }
}

fn is_of(slot: &Slot, object: Fidptr) -> bool {
    match slot {
        Slot::Listener(listener) => listener.is_of(object),
        Slot::Silent(_) => false,
        Slot::Connection(connection) => connection.party.fid == object,
    }
}

impl Inner {
    fn add(&mut self, slot: Slot) -> io::Result<usize> {
        let at = self.watch(&slot, false)?;
        self.put(at, slot);
        Ok(at)
    }

    /// Watches the socket that is put into a slot next, also for writability if `wants_writable` is set.
    /// Returns the index of that slot.
    fn watch(&self, socket: impl AsFd, wants_writable: bool) -> io::Result<usize> {
        let at = self.slots.vacant_key();
        self.net.add(&socket, at as u64)?;
        if wants_writable && let Err(error) = self.net.watch_writable(&socket, at as u64, true) {
            self.net.remove(&socket);
            return Err(error);
        }
        Ok(at)
    }

    /// Fills the slot that [`Inner::watch`] returned.
    fn put(&mut self, at: usize, slot: Slot) {
        let put_at = self.slots.insert(slot);
        debug_assert_eq!(put_at, at, "a slot was filled in between");
    }

    fn remove(&mut self, at: usize) -> Option<Slot> {
        let slot = self.slots.try_remove(at)?;
        self.net.remove(&slot);
        if let Slot::Connection(connection) = &slot {
            connection.party.conn.forget(&connection.channel);
        }
        self.parked.retain(|&other| other != at);
        // A descriptor is free now.
        self.resume();
        Some(slot)
    }

    fn push_event(&mut self, event: u32, fid: Fidptr, data: Box<[u8]>) {
        self.events.push(Event::Connection { event, fid, data });
    }

    fn progress(&mut self) {
        let mut ready = Vec::new();
        if let Err(error) = self.net.poll(&mut ready) {
            log::warn!("cannot poll the connection sockets: {error}");
        }
        for ready in ready {
            match usize::try_from(ready.token) {
                Ok(at) if ready.token != ALARM => self.serve(at),
                _ => {
                    self.alarm.clear();
                    self.resume();
                }
            }
        }
        self.drop_silent();
    }

    fn serve(&mut self, at: usize) {
        match self.slots.get(at) {
            Some(Slot::Listener(_)) => self.take_callers(at),
            Some(Slot::Silent(_)) => self.read_caller(at),
            Some(Slot::Connection(_)) => self.serve_connection(at),
            None => {}
        }
    }

    fn serve_connection(&mut self, at: usize) {
        let Some(Slot::Connection(connection)) = self.slots.get_mut(at) else {
            return;
        };
        match &connection.phase {
            Phase::Connecting(_) => self.send_request(at),
            Phase::Requested => match connection.channel.receive() {
                Received::Nothing => {}
                Received::Frame(frame) => self.on_reply(at, frame),
                Received::End(Some(error)) => self.fail(at, error.into(), Box::default()),
                Received::End(None) => self.fail(at, Errno(libc::ECONNRESET), Box::default()),
            },
            // Any data in this state violates the protocol and ends the connection, as a disconnect
            // does. `P16.2`
            Phase::Connected if connection.channel.is_idle() => {}
            Phase::Connected => self.end(at),
        }
    }

    /// Sends the request once the TCP connection is established.
    fn send_request(&mut self, at: usize) {
        let Some(Slot::Connection(connection)) = self.slots.get_mut(at) else {
            return;
        };
        let Phase::Connecting(OwnRequest { own, data }) = &connection.phase else {
            return;
        };
        let sent = match connection.channel.is_connected() {
            Ok(false) => return,
            Ok(true) => connection
                .channel
                .send(ConnectionKind::Request, *own.as_bytes(), data),
            Err(error) => Err(error),
        };
        connection.phase = Phase::Requested;
        connection.party.conn.set_local(connection.channel.local());
        let watched = |()| self.net.watch_writable(&self.slots[at], at as u64, false);
        if let Err(error) = sent.and_then(watched) {
            self.fail(at, error.into(), Box::default());
        }
    }

    fn on_reply(&mut self, at: usize, frame: Frame) {
        let peer = match frame.kind {
            ConnectionKind::Reject => return self.fail(at, Errno::CONNREFUSED, frame.data),
            ConnectionKind::Accept => EndpointAddress::from_bytes(&frame.endpoint_id).ok(),
            ConnectionKind::Request => None,
        };
        let (Some(peer), Some(Slot::Connection(connection))) = (peer, self.slots.get_mut(at))
        else {
            return self.fail(at, Errno(libc::EPROTO), Box::default());
        };
        connection.phase = Phase::Connected;
        connection.party.conn.connect(peer);
        let fid = connection.party.fid;
        self.push_event(CONNECTED, fid, frame.data);
        // The peer may already have disconnected.
        self.serve_connection(at);
    }

    /// Reports that a connection could not be established.
    fn fail(&mut self, at: usize, errno: Errno, data: Box<[u8]>) {
        if let Some(fid) = self.close(at) {
            self.events.push(Event::Failed { fid, errno, data });
        }
    }

    /// Reports that a connection has ended.
    fn end(&mut self, at: usize) {
        if let Some(fid) = self.close(at) {
            self.push_event(SHUTDOWN, fid, Box::default());
        }
    }

    fn close(&mut self, at: usize) -> Option<Fidptr> {
        let Some(Slot::Connection(connection)) = self.remove(at) else {
            return None;
        };
        connection.party.conn.advance(Stage::Closed);
        Some(connection.party.fid)
    }
}
