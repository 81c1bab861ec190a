// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: the messages between two ports with one priority, in both directions.

use crate::code::gm_status_t;
use crate::event::gm_recv_event;
use crate::port::gm_port;
use crate::wire::Header;
use crate::world::Lent;
use portolan::Request;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::time::Instant;

/// What the library calls when a send has ended.
pub type gm_send_completion_callback_t =
    Option<unsafe extern "C" fn(port: *mut gm_port, context: *mut c_void, status: gm_status_t)>;

/// Whom the end of a send is told.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) callback: gm_send_completion_callback_t,
    pub(crate) context: *mut c_void,
}

/// Names a connection of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) rank: u32,
    pub(crate) own: u8,
    pub(crate) other: u8,
    pub(crate) high: bool,
}

/// What was sent and has not ended.
pub(crate) struct Sending {
    pub(crate) told: Told,
    /// Bytes that travel by themselves, and whether they come here.
    pub(crate) request: Option<Request>,
    /// Address and length of the memory that the request uses.
    pub(crate) place: (usize, usize),
    pub(crate) is_get: bool,
    /// Asks the receiver to throw away what was sent before.
    pub(crate) is_drop: bool,
    /// Its port was closed: nobody is told of its end.
    pub(crate) is_orphan: bool,
}

/// A message that was accepted, or has failed, behind others whose bytes are on their way. What it does
/// to memory happens in its turn.
pub(crate) enum Line {
    /// Bytes that are to go to `at`, with what is told of them then.
    Coming {
        request: Option<Request>,
        tag: u32,
        at: *mut u8,
        len: usize,
        event: Option<gm_recv_event>,
    },
    Done(Option<gm_recv_event>),
    /// Bytes for memory of the program's.
    Put {
        at: *mut u8,
        bytes: Box<[u8]>,
    },
    /// Memory that was asked for.
    Get {
        tag: u32,
        at: *const u8,
        len: usize,
    },
    /// Of a message that is not acknowledged.
    Loose(Option<gm_recv_event>),
    /// Its sender is to be told before anything behind it is accepted: what is acknowledged are numbers.
    Failed(gm_status_t),
    /// As above; what was sent before a certain word was thrown away.
    Dropped,
}

impl Line {
    /// The registered memory that it will touch.
    pub(crate) fn lent(&self) -> Lent {
        match self {
            Line::Coming {
                at,
                len,
                event: None,
                ..
            } => Lent::Registered(at.addr(), *len),
            Line::Put { at, bytes } => Lent::Registered(at.addr(), bytes.len()),
            Line::Get { at, len, .. } => Lent::Registered(at.addr(), *len),
            _ => Lent::Nobodys,
        }
    }
}

/// A message that waits for a buffer, or for those before it.
pub(crate) struct Held {
    pub(crate) header: Header,
    pub(crate) bytes: Box<[u8]>,
    /// When it came, or its sender went on after a failure.
    pub(crate) since: Instant,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Conn {
    pub(crate) sent: VecDeque<Sending>,
    /// How many of those that were sent before are accepted.
    pub(crate) acked: u32,
    /// A send has failed; the next ones wait for the program's word.
    pub(crate) is_disabled: bool,
    /// How many messages were accepted here.
    pub(crate) accepted: u32,
    /// The same as the sender knows it.
    pub(crate) told: u32,
    /// The last number that was sent in each lane. What is sent in one lane may overtake the other.
    told_in: [u32; 2],
    /// It is among those that owe an acknowledgement.
    pub(crate) is_due: bool,
    pub(crate) line: VecDeque<Line>,
    pub(crate) held: VecDeque<Held>,
    /// A message has failed; the next ones wait for its sender's word.
    pub(crate) is_stopped: bool,
}

impl Conn {
    /// Returns the number of accepted messages, which the other side learns in this lane.
    #[inline]
    pub(crate) fn tell(&mut self, high: bool) -> u32 {
        self.told = self.accepted;
        self.told_in[usize::from(high)] = self.accepted;
        self.accepted
    }
}

/// All connections with one process; few, so they are looked through.
#[derive(Default)]
pub(crate) struct Peer {
    conns: Vec<((u8, u8, bool), Conn)>,
    /// Ends when the process is gone; posted when something is first waited for.
    pub(crate) canary: Option<Request>,
    pub(crate) is_gone: bool,
}

impl Peer {
    #[inline]
    pub(crate) fn conn(&mut self, own: u8, other: u8, high: bool) -> &mut Conn {
        let wanted = (own, other, high);
        let index = self.conns.iter().position(|(key, _)| *key == wanted);
        let index = index.unwrap_or_else(|| self.connect(wanted));
        &mut self.conns[index].1
    }

    #[cold]
    fn connect(&mut self, key: (u8, u8, bool)) -> usize {
        self.conns.push((key, Conn::default()));
        self.conns.len() - 1
    }

    /// Connections with accepted messages of which nothing was said in a lane.
    #[inline]
    pub(crate) fn owed_in(&self, high: bool) -> impl Iterator<Item = (u8, u8, bool)> {
        let is_owed =
            move |(_, conn): &&(_, Conn)| conn.told_in[usize::from(high)] != conn.accepted;
        self.conns.iter().filter(is_owed).map(|(key, _)| *key)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = ((u8, u8, bool), &mut Conn)> {
        self.conns.iter_mut().map(|(key, conn)| (*key, conn))
    }
}
