// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an event queue holds, in the order in which it happened.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::os::fd::RawFd;

use super::request::Offered;
use crate::abi::Fid;
use crate::answer::OwnedInfo;
use crate::errno::Errno;
use crate::wake::Wake;

/// Events that are kept; the application ought to read them. Who asks for a connection beyond that
/// waits in the system's backlog.
const EVENTS_MAX: usize = 4096;

/// An object of the application's, which events name, and the context that it was opened with. Neither
/// is ever followed.
#[derive(Clone, Copy)]
pub(crate) struct Fidptr {
    at: usize,
    context: usize,
}

impl Fidptr {
    pub(crate) fn new(fid: *mut Fid, context: *mut c_void) -> Fidptr {
        Fidptr {
            at: fid as usize,
            context: context as usize,
        }
    }

    pub(crate) fn ptr(self) -> *mut Fid {
        self.at as *mut Fid
    }

    pub(crate) fn context(self) -> *mut c_void {
        self.context as *mut c_void
    }
}

impl PartialEq for Fidptr {
    /// An object is itself, whatever context the application has given it since.
    fn eq(&self, other: &Fidptr) -> bool {
        self.at == other.at
    }
}

/// An event.
pub(crate) enum Event {
    /// The application wrote it.
    Written { event: u32, bytes: Box<[u8]> },
    /// Of a connection, with data of the peer's program.
    Connection {
        event: u32,
        fid: Fidptr,
        data: Box<[u8]>,
    },
    /// Somebody asks for a connection.
    Request {
        fid: Fidptr,
        info: OwnedInfo,
        offered: Offered,
        data: Box<[u8]>,
    },
    /// A connection has not come to be.
    Failed {
        fid: Fidptr,
        errno: Errno,
        data: Box<[u8]>,
    },
}

impl Event {
    fn is_of(&self, object: Fidptr) -> bool {
        match self {
            Event::Written { .. } => false,
            Event::Connection { fid, .. }
            | Event::Request { fid, .. }
            | Event::Failed { fid, .. } => *fid == object,
        }
    }
}

/// The events of a queue, and what its reader sleeps on.
pub(crate) struct Events {
    queue: VecDeque<Event>,
    wake: Wake,
    /// Data of the failure that was read last, which `readerr` lent out.
    last_data: Box<[u8]>,
}

impl Events {
    /// The reader also wakes for `sockets`.
    pub(super) fn new(sockets: RawFd) -> io::Result<Events> {
        let wake = Wake::new()?;
        wake.watch(sockets)?;
        Ok(Events {
            queue: VecDeque::new(),
            wake,
            last_data: Box::default(),
        })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= EVENTS_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Descriptor that is readable while there are events, or sockets have news.
    pub(crate) fn fd(&self) -> RawFd {
        self.wake.fd()
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
        self.wake.ring_now();
    }

    /// The oldest.
    pub(crate) fn front(&self) -> Option<&Event> {
        self.queue.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front();
        self.calm();
        event
    }

    /// Drop what is told of an object that is closed.
    pub(super) fn purge(&mut self, object: Fidptr) {
        self.queue.retain(|event| !event.is_of(object));
        self.calm();
    }

    /// Keep data of a failure, to lend it until the next one.
    pub(crate) fn keep(&mut self, data: Box<[u8]>) -> &[u8] {
        self.last_data = data;
        &self.last_data
    }

    fn calm(&mut self) {
        if self.queue.is_empty() {
            self.wake.arm();
        }
    }
}
