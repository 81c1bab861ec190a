// SPDX-License-Identifier: MIT OR Apache-2.0
//! All state except the node: ports, connections, and pending operations of the node.
//!
//! It is changed by calls of the program and by the handler of arriving messages. The handler runs
//! inside calls of the node, so the world must not be borrowed while the node is called.

use crate::alarm::Alarms;
use crate::code::*;
use crate::conn::{Completion, Conn, Key, Peer, Queued, Reporting, Sending};
use crate::event::{
    GM_ALARM_EVENT, GM_NO_RECV_EVENT, GM_SENDS_FAILED_EVENT, GM_SENT_EVENT, gm_recv_event, type_of,
};
use crate::memory::Retired;
use crate::order::{Arrived, Unfinished};
use crate::table::Registered;
use portolan::Request;
use std::collections::VecDeque;
use std::ffi::c_uint;
use std::ptr;
use std::time::Duration;

/// Number of ports of a node, as in GM.
pub(crate) const PORTS: usize = 8;
/// Number of sizes of messages: lengths are at most 2^31 - 1.
pub(crate) const SIZES: usize = 32;
/// Number of send tokens of a port: GM had some sixty.
pub(crate) const SEND_TOKENS: u32 = 64;
/// Number of receive tokens of a port: more than two buffers of each size and priority need.
pub(crate) const RECV_TOKENS: u32 = 256;
/// Longest message that is received as a FAST event, in bytes: two cache lines.
pub(crate) const FAST_LEN_MAX: usize = 128;

/// A buffer that the program has provided.
#[derive(Clone, Copy)]
pub(crate) struct Provided {
    pub(crate) at: *mut u8,
    pub(crate) tag: u8,
}

/// A send that has ended, and of which the program was not notified yet.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) completion: Completion,
    pub(crate) status: gm_status_t,
}

impl Ended {
    /// Returns the type of its event.
    pub(crate) fn kind(&self) -> c_uint {
        let is_failed = self.completion.report == Reporting::List && self.status != GM_SUCCESS;
        match is_failed {
            true => GM_SENDS_FAILED_EVENT,
            false => GM_SENT_EVENT,
        }
    }
}

/// Event of a port.
pub(crate) enum Item {
    Message(Arrived),
    Sent(Ended),
    /// An alarm that is due, by its number.
    Alarm(u64),
    Violation(u8),
}

/// Slot for a short message. There is one more slot than there can be queued events: the one that
/// the program reads.
pub(crate) type Fast = [u8; FAST_LEN_MAX];

/// A port of this node.
pub(crate) struct Port {
    pub(crate) is_open: bool,
    pub(crate) was_open: bool,
    pub(crate) options: u32,
    pub(crate) allows_remote: bool,
    pub(crate) send_tokens: u32,
    pub(crate) recv_tokens: u32,
    /// Number of send tokens that the program has put in the bank, by priority.
    pub(crate) banked: [u32; 2],
    pub(crate) acceptable: [gm_size_t; 2],
    /// Provided buffers, by priority and size.
    pub(crate) buffers: Vec<VecDeque<Provided>>,
    /// Ended sends. They come first, because a message may be a reply to one of them.
    pub(crate) sent: VecDeque<Ended>,
    /// Messages with high priority (`high`), and all other events (`low`).
    pub(crate) high: VecDeque<Item>,
    pub(crate) low: VecDeque<Item>,
    /// Passed to the program as events, but not yet returned through `gm_unknown`.
    pub(crate) ended: VecDeque<Ended>,
    pub(crate) alarmed: VecDeque<u64>,
    pub(crate) alarms: Alarms,
    pub(crate) fast: Vec<Fast>,
    /// Free slots, in the order in which they were freed.
    pub(crate) fast_free: VecDeque<usize>,
    /// Slot that the program reads.
    pub(crate) fast_read: Option<usize>,
}

impl Port {
    pub(crate) const fn closed() -> Port {
        Port {
            is_open: false,
            was_open: false,
            options: 0,
            allows_remote: false,
            send_tokens: 0,
            recv_tokens: 0,
            banked: [0; 2],
            acceptable: [gm_size_t::MAX; 2],
            buffers: Vec::new(),
            sent: VecDeque::new(),
            high: VecDeque::new(),
            low: VecDeque::new(),
            ended: VecDeque::new(),
            alarmed: VecDeque::new(),
            alarms: Alarms::new(),
            fast: Vec::new(),
            fast_free: VecDeque::new(),
            fast_read: None,
        }
    }

    pub(crate) fn opened(options: u32) -> Port {
        Port {
            is_open: true,
            was_open: true,
            options,
            send_tokens: SEND_TOKENS,
            recv_tokens: RECV_TOKENS,
            buffers: (0..2 * SIZES).map(|_| VecDeque::new()).collect(),
            fast: vec![[0; FAST_LEN_MAX]; RECV_TOKENS as usize + 1],
            fast_free: (0..=RECV_TOKENS as usize).collect(),
            ..Port::closed()
        }
    }

    #[inline]
    pub(crate) fn buffers(&mut self, high: bool, size: u8) -> Option<&mut VecDeque<Provided>> {
        let index = usize::from(high) * SIZES + usize::from(size);
        self.buffers.get_mut(index)
    }

    #[inline]
    pub(crate) fn push_message(&mut self, arrived: Arrived, high: bool) {
        match high {
            true => self.high.push_back(Item::Message(arrived)),
            false => self.low.push_back(Item::Message(arrived)),
        }
    }

    #[inline]
    pub(crate) fn push_ended(&mut self, completion: Completion, status: gm_status_t) {
        if completion.report == Reporting::Direct {
            self.send_tokens += 1;
            // SAFETY: the call of the program that waits for the status owns this memory.
            unsafe {
                completion
                    .context
                    .cast::<gm_status_t>()
                    .write_volatile(status)
            };
            return;
        }
        self.sent.push_back(Ended { completion, status });
    }

    /// Returns the queue that has the next event, of messages and others.
    #[inline]
    fn next_queue(&self, unfinished: &Unfinished) -> Option<&VecDeque<Item>> {
        let is_ready = |item: &Item| match item {
            Item::Message(arrived) => !unfinished.holds(arrived),
            _ => true,
        };
        [&self.high, &self.low]
            .into_iter()
            .find(|queue| queue.front().is_some_and(is_ready))
    }

    /// Takes the next event: ended sends first, then messages with high priority.
    #[inline]
    fn next_event(&mut self, unfinished: &Unfinished) -> Option<Item> {
        if let Some(ended) = self.sent.pop_front() {
            return Some(Item::Sent(ended));
        }
        let is_high = ptr::eq(self.next_queue(unfinished)?, &raw const self.high);
        match is_high {
            true => self.high.pop_front(),
            false => self.low.pop_front(),
        }
    }

    /// Returns the type of the next event, and the node that sent it; 0 if it is not a message.
    fn peek_event(&self, unfinished: &Unfinished) -> (u8, u16) {
        if let Some(ended) = self.sent.front() {
            return (type_of(ended.kind()), 0);
        }
        match self.next_queue(unfinished).and_then(VecDeque::front) {
            None => (type_of(GM_NO_RECV_EVENT), 0),
            Some(Item::Message(arrived)) => {
                // SAFETY: every bit pattern is valid for these integers.
                let fields = unsafe { arrived.event.recv };
                (fields.r#type, u16::from_be(fields.sender_node_id))
            }
            Some(Item::Sent(ended)) => (type_of(ended.kind()), 0),
            Some(Item::Alarm(_)) => (type_of(GM_ALARM_EVENT), 0),
            Some(Item::Violation(kind)) => (*kind, 0),
        }
    }

    /// Discards all events, because the port is closed.
    pub(crate) fn clear_events(&mut self) {
        self.sent.clear();
        self.low.clear();
        self.high.clear();
    }
}

/// Pending operation of the node.
pub(crate) enum Todo {
    /// Send an acknowledgement.
    Ack(Key),
    /// Send requested bytes.
    Reply {
        key: Key,
        tag: u32,
        at: *const u8,
        len: usize,
    },
    /// Discard separately sent bytes.
    Discard { rank: u32, tag: u32 },
    /// Cancel a receive whose message will not arrive.
    Cancel(Request),
}

/// An operation of the node that completes in the background.
pub(crate) struct Finishing {
    pub(crate) request: Request,
    pub(crate) report: Option<Report>,
    pub(crate) borrowed: Borrowed,
}

/// Notice to the program of a send's end.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) own: u8,
    /// See [`Unfinished::begin`].
    pub(crate) number: u64,
    /// Its status is valid if the operation completes without an error.
    pub(crate) ended: Ended,
}

/// Memory that an operation uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Borrowed {
    Nothing,
    /// Memory of a send or a get of a port: port, address and length.
    Send(u8, usize, usize),
    /// Registered memory: address and length.
    Registered(usize, usize),
}

/// Returns whether two pieces of memory, each with its address and length, overlap.
fn overlaps((at, len): (usize, usize), (other, other_len): (usize, usize)) -> bool {
    other < at + len && at < other + other_len
}

impl Borrowed {
    /// Returns whether it uses any of `len` registered bytes at `at`.
    pub(crate) fn touches(self, at: usize, len: usize) -> bool {
        match self {
            Borrowed::Registered(other, other_len) => overlaps((at, len), (other, other_len)),
            _ => false,
        }
    }

    /// Returns whether it uses any of `len` bytes at `at`, for any purpose.
    fn uses(self, at: usize, len: usize) -> bool {
        match self {
            Borrowed::Send(_, other, other_len) => overlaps((at, len), (other, other_len)),
            _ => self.touches(at, len),
        }
    }
}

/// All state except the node.
pub(crate) struct World {
    pub(crate) size: u32,
    pub(crate) ports: [Port; PORTS],
    pub(crate) peers: Vec<Peer>,
    pub(crate) todo: Vec<Todo>,
    pub(crate) finishing: Vec<Finishing>,
    pub(crate) unfinished: Unfinished,
    /// Connections with a due acknowledgement.
    pub(crate) due: Vec<Key>,
    /// Connections that wait for bytes.
    pub(crate) queues: Vec<Key>,
    /// Number of messages that wait for buffers.
    pub(crate) held_count: usize,
    pub(crate) tag_count: u32,
    pub(crate) registered: Registered,
    /// Memory that the program has freed while operations still use it.
    pub(crate) retired: Vec<Retired>,
    pub(crate) patience: Duration,
    /// Number of messages that were not GM's, or that were dropped for lack of a buffer.
    pub(crate) dropped_count: u64,
}

impl World {
    pub(crate) const fn new() -> World {
        World {
            size: 0,
            ports: [const { Port::closed() }; PORTS],
            peers: Vec::new(),
            todo: Vec::new(),
            finishing: Vec::new(),
            unfinished: Unfinished::new(),
            due: Vec::new(),
            queues: Vec::new(),
            held_count: 0,
            tag_count: 0,
            registered: Registered::new(),
            retired: Vec::new(),
            patience: Duration::ZERO,
            dropped_count: 0,
        }
    }

    #[inline]
    pub(crate) fn port(&mut self, own: u8) -> &mut Port {
        &mut self.ports[usize::from(own) % PORTS]
    }

    #[inline]
    pub(crate) fn peer(&mut self, rank: u32) -> &mut Peer {
        peer_of(&mut self.peers, rank)
    }

    #[inline]
    pub(crate) fn conn(&mut self, key: Key) -> &mut Conn {
        self.peer(key.rank).conn(key.own, key.other, key.high)
    }

    #[inline]
    pub(crate) fn has_events(&mut self, own: u8) -> bool {
        c_uint::from(self.peek_event(own).0) != GM_NO_RECV_EVENT
    }

    /// Returns the type of a port's next event, and the node that sent it; 0 if it is not a
    /// message.
    #[inline]
    pub(crate) fn peek_event(&mut self, own: u8) -> (u8, u16) {
        self.ports[usize::from(own) % PORTS].peek_event(&self.unfinished)
    }

    #[inline]
    pub(crate) fn next_event(&mut self, own: u8) -> Option<Item> {
        self.ports[usize::from(own) % PORTS].next_event(&self.unfinished)
    }

    /// Adds a message to the events of a port.
    #[inline]
    pub(crate) fn push_message(&mut self, key: Key, event: gm_recv_event) {
        let arrived = Arrived::new(event, self.unfinished.mark());
        self.port(key.own).push_message(arrived, key.high);
    }

    /// Ends an accepted send, whose memory the node no longer uses.
    pub(crate) fn finish(&mut self, report: &Report) {
        self.unfinished.finish(report.number);
        let Ended { completion, status } = report.ended;
        self.port(report.own).push_ended(completion, status);
    }

    pub(crate) fn keys(&mut self, matches: impl Fn(&Key, &Conn) -> bool) -> Vec<Key> {
        let mut found = Vec::new();
        for (rank, peer) in (0..).zip(&mut self.peers) {
            for ((own, other, high), conn) in peer.iter_mut() {
                let key = Key {
                    rank,
                    own,
                    other,
                    high,
                };
                if matches(&key, conn) {
                    found.push(key);
                }
            }
        }
        found
    }

    /// Returns a new tag for separately sent bytes.
    pub(crate) fn new_tag(&mut self) -> u32 {
        self.tag_count = self.tag_count.wrapping_add(1);
        self.tag_count
    }

    /// Ends a send. Its separate bytes may still be in flight.
    pub(crate) fn end_send(&mut self, key: Key, sending: Sending, status: gm_status_t) {
        let Some(request) = sending.request else {
            if !sending.is_orphan {
                self.port(key.own).push_ended(sending.completion, status);
            }
            return;
        };
        if sending.is_get && status != GM_SUCCESS {
            self.todo.push(Todo::Cancel(request));
        }
        let ended = Ended {
            completion: sending.completion,
            status,
        };
        let report = (!sending.is_orphan).then(|| Report {
            own: key.own,
            number: self.unfinished.begin(key.rank),
            ended,
        });
        let (at, len) = sending.place;
        self.finishing.push(Finishing {
            request,
            report,
            borrowed: Borrowed::Send(key.own, at, len),
        });
    }

    /// Returns whether the node still uses memory of sends of a port, or holds buffers of it.
    pub(crate) fn borrows(&mut self, own: u8) -> bool {
        let is_long = |sending: &Sending| sending.request.is_some();
        let conns = self.keys(|key, conn| {
            key.own == own && (!conn.queue.is_empty() || conn.sent.iter().any(is_long))
        });
        let is_own =
            |one: &Finishing| matches!(one.borrowed, Borrowed::Send(port, ..) if port == own);
        !conns.is_empty() || self.finishing.iter().any(is_own)
    }

    /// Returns whether operations of other processes still use any of `len` registered bytes at
    /// `at`.
    pub(crate) fn borrows_registered(&mut self, at: usize, len: usize) -> bool {
        let touches = |borrowed: Borrowed| borrowed.touches(at, len);
        let conns = self.keys(|_, conn| conn.queue.iter().any(|entry| touches(entry.borrowed())));
        let is_requested = |todo: &Todo| match todo {
            Todo::Reply { at, len, .. } => touches(Borrowed::Registered(at.addr(), *len)),
            _ => false,
        };
        !conns.is_empty()
            || self.todo.iter().any(is_requested)
            || self.finishing.iter().any(|one| touches(one.borrowed))
    }

    /// Returns whether an operation of any process still uses a part of the `len` bytes at `at`.
    fn uses(&mut self, at: usize, len: usize) -> bool {
        let is_sent = |one: &Sending| one.request.is_some() && overlaps((at, len), one.place);
        let is_buffer = |entry: &Queued| {
            matches!(entry, Queued::Arriving { at: other, len: other_len, .. }
                if overlaps((at, len), (other.addr(), *other_len)))
        };
        let conns =
            self.keys(|_, conn| conn.sent.iter().any(is_sent) || conn.queue.iter().any(is_buffer));
        !conns.is_empty()
            || self.finishing.iter().any(|one| one.borrowed.uses(at, len))
            || self.borrows_registered(at, len)
    }

    /// Frees memory now, or when the last operation that uses it has ended.
    pub(crate) fn retire_memory(&mut self, memory: Retired) {
        if self.uses(memory.at, memory.len) {
            self.retired.push(memory);
        }
    }

    /// Frees retired memory that no operation uses.
    pub(crate) fn release_retired(&mut self) {
        let retired = std::mem::take(&mut self.retired);
        for memory in retired {
            self.retire_memory(memory);
        }
    }

    /// Returns a buffer to its port, because its message will not arrive.
    pub(crate) fn return_buffer(&mut self, key: Key, event: &gm_recv_event) {
        // SAFETY: every bit pattern is valid for these integers.
        let fields = unsafe { event.recv };
        let provided = Provided {
            at: crate::event::gm_ntohp(fields.buffer).cast(),
            tag: fields.tag,
        };
        if let Some(buffers) = self.port(key.own).buffers(key.high, fields.size) {
            buffers.push_front(provided);
        }
    }

    /// Records that a process has failed, and fails all sends to it.
    pub(crate) fn fail_peer(&mut self, rank: u32) {
        self.peer(rank).has_failed = true;
        for key in self.keys(|key, _| key.rank == rank) {
            let conn = self.conn(key);
            conn.is_disabled |= !conn.sent.is_empty();
            for sending in std::mem::take(&mut self.conn(key).sent) {
                self.end_send(key, sending, GM_SEND_TARGET_NODE_UNREACHABLE);
            }
        }
    }

    /// Prepares for the exit of the process: memory that the program has exposed may become
    /// invalid. No further message is received. Returns the posted requests, which must be
    /// cancelled.
    pub(crate) fn retire(&mut self) -> Vec<Request> {
        for port in &mut self.ports {
            *port = Port {
                was_open: port.was_open,
                ..Port::closed()
            };
        }
        self.registered = Registered::new();
        let mut posted = Vec::new();
        for conn in self
            .peers
            .iter_mut()
            .flat_map(Peer::iter_mut)
            .map(|(_, conn)| conn)
        {
            posted.extend(conn.queue.drain(..).filter_map(|entry| match entry {
                Queued::Arriving { request, .. } => request,
                _ => None,
            }));
            let gets = conn.sent.iter().filter(|sending| sending.is_get);
            posted.extend(gets.filter_map(|sending| sending.request));
        }
        posted
    }

    /// Returns whether the node has pending operations that its own passes do not perform.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.todo.is_empty()
            && self.finishing.is_empty()
            && self.queues.is_empty()
            && self.retired.is_empty())
    }
}

/// Returns the state of a process in the table of all processes.
#[inline]
pub(crate) fn peer_of(peers: &mut Vec<Peer>, rank: u32) -> &mut Peer {
    let index = rank as usize;
    if index >= peers.len() {
        grow(peers, index);
    }
    &mut peers[index]
}

#[cold]
fn grow(peers: &mut Vec<Peer>, index: usize) {
    peers.resize_with(index + 1, Peer::default);
}
