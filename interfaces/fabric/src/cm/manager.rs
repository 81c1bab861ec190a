// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager of an event queue: its sockets and their state machines.

mod callers;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use portolan::EndpointAddress;
use portolan_sys::epoll::Epoll;
use portolan_sys::fork::Owner;
use portolan_wire::ConnectionWord;
use slab::Slab;

use self::callers::{Caller, Listener};
use super::conn::{Conn, Stage};
use super::drops::Drops;
use super::event::{Event, Events, Fidptr};
use super::request::Request;
use super::seats::Alarm;
use super::socket;
use super::talk::{Heard, Said, Talk};
use crate::abi::{CONNECTED, SHUTDOWN};
use crate::answer::Answer;
use crate::errno::Errno;

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
    /// Listeners that are not watched until the alarm rings or a resource is released.
    parked: Vec<usize>,
    alarm: Arc<Alarm>,
    drops: Drops,
    events: Events,
}

/// State of one socket.
enum Slot {
    Listener(Box<Listener>),
    Silent(Caller),
    Line(Line),
}

/// A connection of a local endpoint.
struct Line {
    talk: Talk,
    party: Party,
    phase: Phase,
}

/// Next step of a connection.
enum Phase {
    /// The system is connecting; then this request is sent.
    Connecting(Ask),
    /// The request was sent; the peer's answer is pending.
    Asked,
    /// The connection is established.
    Connected,
}

/// Contents of a connection request.
struct Ask {
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
            Slot::Line(line) => line.talk.as_fd(),
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
        template: Answer,
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
        let talk = Talk::new(TcpStream::from(socket));
        conn.set_local(talk.local());
        conn.set_remote(Some(*to));
        conn.advance(Stage::Asking);
        let line = Line {
            talk,
            party: party(conn, fid),
            phase: Phase::Connecting(Ask {
                own,
                data: data.into(),
            }),
        };
        inner.put(at, Slot::Line(line));
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
        let (talk, peer) = request.accept(own, data)?;
        conn.watch(&talk)?;
        let at = inner.add(Slot::Line(Line {
            talk,
            party: party(conn, fid),
            phase: Phase::Connected,
        }))?;
        conn.connect(peer);
        inner.tell(CONNECTED, fid, Box::default());
        // The peer may already have disconnected, or have sent more after its request.
        inner.serve_line(at);
        Ok(at)
    }

    /// Returns a descriptor that wakes a sleeper when a connection advances beyond `seen`. `at` is
    /// the slot of its socket, if it has one.
    ///
    /// # Errors
    /// No descriptor is available; `OPBADSTATE` in a forked child.
    pub(crate) fn wake_of(
        &self,
        conn: &Arc<Conn>,
        at: Option<usize>,
        seen: Stage,
    ) -> Result<RawFd, Errno> {
        let inner = self.lock()?;
        let socket = match at.and_then(|at| inner.slots.get(at)) {
            Some(slot @ Slot::Line(line)) if Arc::ptr_eq(&line.party.conn, conn) => {
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
        Slot::Line(line) => line.party.fid == object,
    }
}

impl Inner {
    fn add(&mut self, slot: Slot) -> io::Result<usize> {
        let at = self.watch(&slot, false)?;
        self.put(at, slot);
        Ok(at)
    }

    /// Watches the socket that is put into a slot next, also for writability if `room` is set.
    /// Returns the index of that slot.
    fn watch(&self, socket: impl AsFd, room: bool) -> io::Result<usize> {
        let at = self.slots.vacant_key();
        self.net.add(&socket, at as u64)?;
        if room && let Err(error) = self.net.watch_room(&socket, at as u64, true) {
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
        if let Slot::Line(line) = &slot {
            line.party.conn.forget(&line.talk);
        }
        self.parked.retain(|&other| other != at);
        // A descriptor is free now.
        self.resume();
        Some(slot)
    }

    fn tell(&mut self, event: u32, fid: Fidptr, data: Box<[u8]>) {
        self.events.push(Event::Connection { event, fid, data });
    }

    fn progress(&mut self) {
        let mut ready = Vec::new();
        if let Err(error) = self.net.look(&mut ready) {
            log::warn!("looking at connections: {error}");
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
            Some(Slot::Silent(_)) => self.hear_silent(at),
            Some(Slot::Line(_)) => self.serve_line(at),
            None => {}
        }
    }

    fn serve_line(&mut self, at: usize) {
        let Some(Slot::Line(line)) = self.slots.get_mut(at) else {
            return;
        };
        match &line.phase {
            Phase::Connecting(_) => self.ask(at),
            Phase::Asked => match line.talk.hear() {
                Heard::Nothing => {}
                Heard::Said(said) => self.on_answer(at, said),
                Heard::End(Some(error)) => self.fail(at, error.into(), Box::default()),
                Heard::End(None) => self.fail(at, Errno(libc::ECONNRESET), Box::default()),
            },
            // Any data in this state violates the protocol and ends the connection, as a disconnect
            // does. `P16.2`
            Phase::Connected if line.talk.is_silent() => {}
            Phase::Connected => self.end(at),
        }
    }

    /// Sends the request once the TCP connection is established.
    fn ask(&mut self, at: usize) {
        let Some(Slot::Line(line)) = self.slots.get_mut(at) else {
            return;
        };
        let Phase::Connecting(Ask { own, data }) = &line.phase else {
            return;
        };
        let asked = match line.talk.is_connected() {
            Ok(false) => return,
            Ok(true) => line
                .talk
                .say(ConnectionWord::Request, *own.as_bytes(), data),
            Err(error) => Err(error),
        };
        line.phase = Phase::Asked;
        line.party.conn.set_local(line.talk.local());
        let watched = |()| self.net.watch_room(&self.slots[at], at as u64, false);
        if let Err(error) = asked.and_then(watched) {
            self.fail(at, error.into(), Box::default());
        }
    }

    fn on_answer(&mut self, at: usize, said: Said) {
        let peer = match said.word {
            ConnectionWord::Reject => return self.fail(at, Errno::CONNREFUSED, said.data),
            ConnectionWord::Accept => EndpointAddress::from_bytes(&said.endpoint_id).ok(),
            ConnectionWord::Request => None,
        };
        let (Some(peer), Some(Slot::Line(line))) = (peer, self.slots.get_mut(at)) else {
            return self.fail(at, Errno(libc::EPROTO), Box::default());
        };
        line.phase = Phase::Connected;
        line.party.conn.connect(peer);
        let fid = line.party.fid;
        self.tell(CONNECTED, fid, said.data);
        // The peer may already have disconnected.
        self.serve_line(at);
    }

    /// Reports that a connection could not be established.
    fn fail(&mut self, at: usize, errno: Errno, data: Box<[u8]>) {
        if let Some(fid) = self.part(at) {
            self.events.push(Event::Failed { fid, errno, data });
        }
    }

    /// Reports that a connection has ended.
    fn end(&mut self, at: usize) {
        if let Some(fid) = self.part(at) {
            self.tell(SHUTDOWN, fid, Box::default());
        }
    }

    fn part(&mut self, at: usize) -> Option<Fidptr> {
        let Some(Slot::Line(line)) = self.remove(at) else {
            return None;
        };
        line.party.conn.advance(Stage::Over);
        Some(line.party.fid)
    }
}
