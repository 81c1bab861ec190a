// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of an event queue, in order of occurrence.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::os::fd::RawFd;

use super::request::Offered;
use crate::abi::Fid;
use crate::errno::Errno;
use crate::provider_info::OwnedInfo;
use crate::wake::Wake;

/// Maximum number of queued events. Further connection requests wait in the system's backlog.
const EVENTS_MAX: usize = 4096;

/// Address of an application object that events refer to, with the context it was opened with.
/// Neither pointer is ever dereferenced.
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
    /// Compares the object only. The application may have changed its context.
    fn eq(&self, other: &Fidptr) -> bool {
        self.at == other.at
    }
}

pub(crate) enum Event {
    /// An event that the application wrote.
    Written { event: u32, bytes: Box<[u8]> },
    /// A connection event, with data of the peer's program.
    Connection {
        event: u32,
        fid: Fidptr,
        data: Box<[u8]>,
    },
    /// A request for a connection.
    Request {
        fid: Fidptr,
        info: OwnedInfo,
        offered: Offered,
        data: Box<[u8]>,
    },
    /// A connection could not be established.
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

/// Events of a queue, and the descriptor that its reader sleeps on.
pub(crate) struct Events {
    queue: VecDeque<Event>,
    wake: Wake,
    /// Data of the most recently read failure, to which `readerr` returned a pointer.
    last_data: Box<[u8]>,
}

impl Events {
    /// Creates an empty queue whose reader also wakes for `sockets`.
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

    /// Returns a descriptor that is readable while events are queued or sockets are ready.
    pub(crate) fn fd(&self) -> RawFd {
        self.wake.fd()
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
        self.wake.notify_now();
    }

    /// Returns the oldest event.
    pub(crate) fn front(&self) -> Option<&Event> {
        self.queue.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front();
        self.clear_wake();
        event
    }

    /// Drops all events of an object that is closed.
    pub(super) fn purge(&mut self, object: Fidptr) {
        self.queue.retain(|event| !event.is_of(object));
        self.clear_wake();
    }

    /// Stores data of a failure. The pointer to it stays valid until the next failure is read.
    pub(crate) fn store_data(&mut self, data: Box<[u8]>) -> &[u8] {
        self.last_data = data;
        &self.last_data
    }

    fn clear_wake(&mut self) {
        if self.queue.is_empty() {
            self.wake.arm();
        }
    }
}
