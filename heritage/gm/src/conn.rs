// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: the messages between two ports with one priority, in both directions.

use crate::code::gm_status_t;
use crate::event::gm_recv_event;
use crate::port::gm_port;
use crate::wire::Header;
use crate::world::Borrowed;
use portolan::Request;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::time::Instant;

/// Function that is called when a send has ended.
pub type gm_send_completion_callback_t =
    Option<unsafe extern "C" fn(port: *mut gm_port, context: *mut c_void, status: gm_status_t)>;

/// Form in which the end of a send is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reporting {
    /// An event, for which gm_unknown() calls the function.
    Callback,
    /// An event with a list; the context is the address in it.
    List,
    /// The status is stored at the context, where a call of the program waits for it.
    Direct,
}

/// The program's function that is notified of the end of a send, with its context.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) callback: gm_send_completion_callback_t,
    pub(crate) context: *mut c_void,
    pub(crate) report: Reporting,
}

impl Completion {
    /// Creates the completion that gm_unknown() reports by calling `callback`.
    #[inline]
    pub(crate) fn new(callback: gm_send_completion_callback_t, context: *mut c_void) -> Completion {
        Completion {
            callback,
            context,
            report: Reporting::Callback,
        }
    }
}

/// Identifies a connection of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) rank: u32,
    pub(crate) own: u8,
    pub(crate) other: u8,
    pub(crate) high: bool,
}

/// A pending send.
pub(crate) struct Sending {
    pub(crate) completion: Completion,
    /// Separate transfer of the bytes, to the receiver or, for a get, to this process.
    pub(crate) request: Option<Request>,
    /// Address and length of the memory that the request uses.
    pub(crate) place: (usize, usize),
    pub(crate) is_get: bool,
    /// Set for a request to discard the messages sent before it.
    pub(crate) is_drop: bool,
    /// Set when its port was closed: the program is not notified of its end.
    pub(crate) is_orphan: bool,
}

/// A message that was accepted or has failed, queued behind messages whose bytes are still
/// arriving. Its memory accesses are made in this order.
pub(crate) enum Queued {
    /// Bytes for `at` that are still arriving, with the event for their end.
    Arriving {
        request: Option<Request>,
        tag: u32,
        at: *mut u8,
        len: usize,
        event: Option<gm_recv_event>,
    },
    Done(Option<gm_recv_event>),
    /// Bytes for the program's memory.
    Put {
        at: *mut u8,
        bytes: Box<[u8]>,
    },
    /// Requested memory.
    Get {
        tag: u32,
        at: *const u8,
        len: usize,
    },
    /// Message without an acknowledgement.
    Loose(Option<gm_recv_event>),
    /// Failed message. Its sender must be notified before a later message is accepted, because
    /// acknowledgements are counts.
    Failed(gm_status_t),
    /// Notice to the sender that the messages before its request were discarded.
    Dropped,
}

impl Queued {
    /// Returns the registered memory that it will access.
    pub(crate) fn borrowed(&self) -> Borrowed {
        match self {
            Queued::Arriving {
                at,
                len,
                event: None,
                ..
            } => Borrowed::Registered(at.addr(), *len),
            Queued::Put { at, bytes } => Borrowed::Registered(at.addr(), bytes.len()),
            Queued::Get { at, len, .. } => Borrowed::Registered(at.addr(), *len),
            _ => Borrowed::Nothing,
        }
    }
}

/// A message that waits for a buffer or for preceding messages.
pub(crate) struct Held {
    pub(crate) header: Header,
    pub(crate) bytes: Box<[u8]>,
    /// Time at which it arrived, or at which its sender resumed after a failure.
    pub(crate) since: Instant,
}

/// State of one connection.
#[derive(Default)]
pub(crate) struct Conn {
    pub(crate) sent: VecDeque<Sending>,
    /// Number of sent messages that were accepted.
    pub(crate) acked: u32,
    /// Set when a send has failed. Later sends wait for the program's decision.
    pub(crate) is_disabled: bool,
    /// Number of messages that were accepted here.
    pub(crate) accepted: u32,
    /// Value of `accepted` that was last acknowledged.
    pub(crate) acknowledged: u32,
    /// Values last acknowledged in each lane. Messages of one lane may overtake those of the other.
    acknowledged_in: [u32; 2],
    /// Set while it is in the list of connections with a due acknowledgement.
    pub(crate) is_due: bool,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) held: VecDeque<Held>,
    /// Set when a message has failed. Later messages wait for the sender's decision.
    pub(crate) is_stopped: bool,
}

impl Conn {
    /// Returns the number of accepted messages, and records that it is acknowledged in this lane.
    #[inline]
    pub(crate) fn mark_acknowledged(&mut self, high: bool) -> u32 {
        self.acknowledged = self.accepted;
        self.acknowledged_in[usize::from(high)] = self.accepted;
        self.accepted
    }
}

/// All connections with one process. They are few, so they are searched linearly.
#[derive(Default)]
pub(crate) struct Peer {
    conns: Vec<((u8, u8, bool), Conn)>,
    /// Request that ends when the process has failed. It is posted when the process is first
    /// awaited.
    pub(crate) canary: Option<Request>,
    pub(crate) has_failed: bool,
}

impl Peer {
    #[inline]
    pub(crate) fn conn(&mut self, own: u8, other: u8, high: bool) -> &mut Conn {
        let key = (own, other, high);
        let index = self.conns.iter().position(|(other, _)| *other == key);
        let index = index.unwrap_or_else(|| self.connect(key));
        &mut self.conns[index].1
    }

    #[cold]
    fn connect(&mut self, key: (u8, u8, bool)) -> usize {
        self.conns.push((key, Conn::default()));
        self.conns.len() - 1
    }

    /// Returns the connections with accepted messages that were not acknowledged in a lane.
    #[inline]
    pub(crate) fn unacknowledged_in(&self, high: bool) -> impl Iterator<Item = (u8, u8, bool)> {
        let is_owed =
            move |(_, conn): &&(_, Conn)| conn.acknowledged_in[usize::from(high)] != conn.accepted;
        self.conns.iter().filter(is_owed).map(|(key, _)| *key)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = ((u8, u8, bool), &mut Conn)> {
        self.conns.iter_mut().map(|(key, conn)| (*key, conn))
    }
}
