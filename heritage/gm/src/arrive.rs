// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from other processes: acknowledgements, and messages that are placed in a buffer, wait
//! for one, or fail.

use crate::code::*;
use crate::conn::{Conn, Held, Key, Queued};
use crate::event::{gm_max_length_for_size, gm_recv_event, gm_recv_event_fields, kind_of};
use crate::order::Arrived;
use crate::wire::{Header, Kind};
use crate::world::{FAST_LEN_MAX, Fast, PORTS, Port, Provided, Todo, World, peer_of};
use std::ptr;
use std::time::Instant;

/// Maximum number of accepted messages without an acknowledgement, if no message is sent to the
/// peer and the program is busy: an eighth of the sender's tokens.
const UNACKED_MAX: u32 = 8;

/// Maximum number of waiting messages of a connection, above which unacknowledged ones are
/// discarded: as many as a port can have buffers.
const HELD_LOOSE_MAX: usize = 256;

/// Result of the check whether a message can be accepted.
enum Verdict {
    Accept,
    Wait,
    Fail(gm_status_t),
}

#[inline]
pub(crate) fn node_id(rank: u32) -> u16 {
    u16::try_from(rank + 1).unwrap_or(0)
}

fn address_of(addr: u64) -> usize {
    usize::try_from(addr).unwrap_or(usize::MAX)
}

impl World {
    /// Handles a message.
    #[inline]
    pub(crate) fn on_message(&mut self, rank: u32, bytes: &[u8]) {
        let Some((header, rest)) = Header::parse(bytes) else {
            self.dropped_count += 1;
            return;
        };
        let key = Key {
            rank,
            own: header.to_port,
            other: header.from_port,
            high: header.high,
        };
        if header.kind == Kind::Datagram {
            self.on_datagram(key, &header, rest);
            return;
        }
        self.on_ack(key, header.ack);
        match header.kind {
            Kind::Data | Kind::Loose if self.take_at_once(key, &header, rest) => {}
            kind if kind.is_ordered() => self.offer(key, &header, rest),
            Kind::Nack => self.on_nack(key, header.aux),
            Kind::Resume => {
                let conn = self.conn(key);
                conn.is_stopped = false;
                // While the connection was stopped, its messages did not wait for the receiver.
                let now = Instant::now();
                conn.held.iter_mut().for_each(|held| held.since = now);
                self.retry(key);
            }
            Kind::Drop => self.on_drop(key),
            Kind::Dropped => self.on_dropped(key),
            _ => {}
        }
    }

    #[inline]
    fn on_ack(&mut self, key: Key, ack: u32) {
        let conn = self.conn(key);
        let count = ack.wrapping_sub(conn.acked);
        // Ignores an acknowledgement of messages that were never sent.
        if count == 0 || count as usize > conn.sent.len() {
            return;
        }
        conn.acked = ack;
        for _ in 0..count {
            if let Some(sending) = self.conn(key).sent.pop_front() {
                self.end_send(key, sending, GM_SUCCESS);
            }
        }
    }

    /// Handles a notice that the first message that was not accepted has failed.
    fn on_nack(&mut self, key: Key, status: u32) {
        let conn = self.conn(key);
        conn.is_disabled = true;
        if let Some(sending) = conn.sent.pop_front() {
            let status = gm_status_t::try_from(status).unwrap_or(GM_FAILURE);
            self.end_send(key, sending, status);
        }
    }

    /// Handles a notice that the receiver has discarded all messages sent before the program's
    /// request.
    fn on_dropped(&mut self, key: Key) {
        self.conn(key).is_disabled = false;
        while let Some(sending) = self.conn(key).sent.pop_front() {
            let is_drop = sending.is_drop;
            let status = match is_drop {
                true => GM_SUCCESS,
                false => GM_SEND_DROPPED,
            };
            self.end_send(key, sending, status);
            if is_drop {
                break;
            }
        }
    }

    /// Handles a request to discard all messages that were not accepted.
    fn on_drop(&mut self, key: Key) {
        let held = std::mem::take(&mut self.conn(key).held);
        self.held_count -= held.len();
        for held in held {
            self.discard(key, &held.header);
        }
        self.conn(key).is_stopped = false;
        self.enqueue(key, Queued::Dropped);
    }

    /// Discards the separately sent bytes of a message.
    pub(crate) fn discard(&mut self, key: Key, header: &Header) {
        if matches!(header.kind, Kind::LongData | Kind::LongPut) {
            self.todo.push(Todo::Discard {
                rank: key.rank,
                tag: header.aux,
            });
        }
    }

    fn on_datagram(&mut self, key: Key, header: &Header, bytes: &[u8]) {
        match self.judge(key, header) {
            Verdict::Accept => {
                if let Some(event) = self.port(key.own).place(key, header, bytes) {
                    self.push_message(key, event);
                }
            }
            _ => self.dropped_count += 1,
        }
    }

    /// Accepts most messages on a fast path: no other message waits before it, and a buffer is
    /// free. Otherwise returns `false` without an effect.
    #[inline]
    fn take_at_once(&mut self, key: Key, header: &Header, bytes: &[u8]) -> bool {
        let World {
            ports,
            peers,
            todo,
            due,
            unfinished,
            ..
        } = self;
        let port = &mut ports[usize::from(key.own) % PORTS];
        let conn = peer_of(peers, key.rank).conn(key.own, key.other, key.high);
        let is_next = !conn.is_stopped && conn.held.is_empty() && conn.queue.is_empty();
        if !is_next || !port.is_open || !matches!(judge_message(port, header), Verdict::Accept) {
            return false;
        }
        let Some(event) = port.place(key, header, bytes) else {
            return false;
        };
        port.push_message(Arrived::new(event, unfinished.mark()), key.high);
        if header.kind == Kind::Data {
            conn.count_accepted(key, due, todo);
        }
        true
    }

    /// Accepts a message, or queues it behind others that wait.
    fn offer(&mut self, key: Key, header: &Header, bytes: &[u8]) {
        let conn = self.conn(key);
        let verdict = match conn.is_stopped || !conn.held.is_empty() {
            true => Verdict::Wait,
            false => self.judge(key, header),
        };
        match verdict {
            Verdict::Accept => self.accept(key, header, bytes),
            Verdict::Fail(status) => self.fail(key, header, status),
            Verdict::Wait => self.hold(key, header, bytes),
        }
    }

    fn hold(&mut self, key: Key, header: &Header, bytes: &[u8]) {
        let held = &mut self.conn(key).held;
        // The number of other messages is limited by the sender's tokens.
        if header.kind == Kind::Loose && held.len() >= HELD_LOOSE_MAX {
            self.dropped_count += 1;
            return;
        }
        held.push_back(Held {
            header: *header,
            bytes: bytes.into(),
            since: Instant::now(),
        });
        self.held_count += 1;
    }

    fn judge(&mut self, key: Key, header: &Header) -> Verdict {
        let port = &mut self.ports[usize::from(key.own)];
        if !port.is_open {
            return match port.was_open {
                true => Verdict::Fail(GM_SEND_TARGET_PORT_CLOSED),
                false => Verdict::Wait,
            };
        }
        match header.kind {
            Kind::Data | Kind::LongData | Kind::Datagram | Kind::Loose => {
                judge_message(port, header)
            }
            _ => {
                let (at, len) = (address_of(header.addr), header.len as usize);
                if !port.allows_remote {
                    return Verdict::Fail(GM_PERMISSION_DENIED);
                }
                match self.registered.has(at, len) {
                    true => Verdict::Accept,
                    false => Verdict::Fail(GM_MEMORY_FAULT),
                }
            }
        }
    }

    /// Accepts a message that `judge` has allowed.
    fn accept(&mut self, key: Key, header: &Header, bytes: &[u8]) {
        let at = ptr::with_exposed_provenance_mut::<u8>(address_of(header.addr));
        let len = header.len as usize;
        match header.kind {
            Kind::Data => {
                let event = self.port(key.own).place(key, header, bytes);
                self.enqueue(key, Queued::Done(event));
            }
            Kind::Loose => {
                let event = self.port(key.own).place(key, header, bytes);
                self.enqueue(key, Queued::Loose(event));
            }
            Kind::LongData => {
                let port = self.port(key.own);
                let buffers = port.buffers(key.high, header.size);
                let Some(buffer) = buffers.and_then(std::collections::VecDeque::pop_front) else {
                    return;
                };
                let event = event_of(key, header, buffer, ptr::null(), false);
                self.on_announced(key, header, buffer.at, Some(event));
            }
            Kind::Put if self.conn(key).queue.is_empty() => {
                // SAFETY: `judge` has checked that the bytes are registered.
                unsafe { put(at, bytes) };
                self.settle(key, Queued::Done(None));
            }
            Kind::Put => {
                let bytes = bytes.into();
                self.enqueue(key, Queued::Put { at, bytes });
            }
            Kind::LongPut => self.on_announced(key, header, at, None),
            _ => {
                let tag = header.aux;
                self.enqueue(key, Queued::Get { tag, at, len });
            }
        }
    }

    /// Prepares for the separately sent bytes of a message.
    fn on_announced(
        &mut self,
        key: Key,
        header: &Header,
        at: *mut u8,
        event: Option<gm_recv_event>,
    ) {
        self.enqueue(
            key,
            Queued::Arriving {
                request: None,
                tag: header.aux,
                at,
                len: header.len as usize,
                event,
            },
        );
    }

    fn fail(&mut self, key: Key, header: &Header, status: gm_status_t) {
        if header.kind == Kind::Loose {
            self.dropped_count += 1;
            return;
        }
        self.discard(key, header);
        self.conn(key).is_stopped = true;
        self.enqueue(key, Queued::Failed(status));
    }

    /// Ends a message now if possible. Otherwise queues it behind the preceding ones and their
    /// notices to the sender.
    fn enqueue(&mut self, key: Key, entry: Queued) {
        let needs_node = matches!(
            entry,
            Queued::Arriving { .. } | Queued::Failed(_) | Queued::Dropped
        );
        if self.conn(key).queue.is_empty() && !needs_node {
            self.settle(key, entry);
            return;
        }
        let conn = self.conn(key);
        conn.queue.push_back(entry);
        if conn.queue.len() == 1 {
            self.queues.push(key);
        }
    }

    /// Ends a message that needs no more bytes.
    pub(crate) fn settle(&mut self, key: Key, entry: Queued) {
        let event = match entry {
            // The notice is sent where the node is available.
            Queued::Failed(_) | Queued::Dropped => return,
            Queued::Loose(event) | Queued::Done(event) | Queued::Arriving { event, .. } => event,
            Queued::Put { at, ref bytes } => {
                // SAFETY: the bytes were registered when the message arrived, and deregistering
                // waits for it.
                unsafe { put(at, bytes) };
                None
            }
            Queued::Get { tag, at, len } => {
                self.todo.push(Todo::Reply { key, tag, at, len });
                None
            }
        };
        if let Some(event) = event {
            self.push_message(key, event);
        }
        if !matches!(entry, Queued::Loose(_)) {
            self.count_accepted(key);
        }
    }

    fn count_accepted(&mut self, key: Key) {
        let World {
            peers, todo, due, ..
        } = self;
        let conn = peer_of(peers, key.rank).conn(key.own, key.other, key.high);
        conn.count_accepted(key, due, todo);
    }

    /// Checks the waiting messages of a connection again.
    pub(crate) fn retry(&mut self, key: Key) {
        loop {
            let conn = self.conn(key);
            if conn.is_stopped {
                return;
            }
            let Some(first) = conn.held.front() else {
                return;
            };
            let header = first.header;
            let verdict = self.judge(key, &header);
            if let Verdict::Wait = verdict {
                return;
            }
            let Some(held) = self.take_held(key) else {
                return;
            };
            match verdict {
                Verdict::Fail(status) => self.fail(key, &header, status),
                _ => self.accept(key, &header, &held.bytes),
            }
        }
    }

    fn take_held(&mut self, key: Key) -> Option<Held> {
        let held = self.conn(key).held.pop_front()?;
        self.held_count -= 1;
        Some(held)
    }

    /// Checks the waiting messages of all connections of a port again, because the port has
    /// changed.
    pub(crate) fn retry_port(&mut self, own: u8) {
        if self.held_count == 0 {
            return;
        }
        for key in self.keys(|key, conn| key.own == own && !conn.held.is_empty()) {
            self.retry(key);
        }
    }

    /// Fails the messages that have waited too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        let patience = self.patience;
        let is_late = |held: &Held| now.saturating_duration_since(held.since) >= patience;
        let has_late = |conn: &Conn| !conn.is_stopped && conn.held.front().is_some_and(is_late);
        for key in self.keys(|_, conn| has_late(conn)) {
            let status = match self.port(key.own).was_open {
                true => GM_SEND_TIMED_OUT,
                false => GM_SEND_TARGET_PORT_CLOSED,
            };
            while has_late(self.conn(key)) {
                let Some(held) = self.take_held(key) else {
                    break;
                };
                self.fail(key, &held.header, status);
                // The messages behind it may have a free buffer.
                self.retry(key);
            }
        }
    }
}

/// Writes bytes of another process to memory of this one.
///
/// # Safety
/// The bytes must be registered. The program guarantees that registered memory is valid and may be
/// written by other processes.
unsafe fn put(at: *mut u8, bytes: &[u8]) {
    // SAFETY: guaranteed by the caller, see `# Safety`.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
}

#[inline]
fn judge_message(port: &mut Port, header: &Header) -> Verdict {
    let accepted = port.acceptable[usize::from(header.high)] >> header.size & 1 != 0;
    if !accepted || u64::from(header.len) > gm_max_length_for_size(header.size.into()) {
        return Verdict::Fail(GM_SEND_REJECTED);
    }
    match port.buffers(header.high, header.size) {
        Some(buffers) if !buffers.is_empty() => Verdict::Accept,
        _ => Verdict::Wait,
    }
}

#[inline]
fn event_of(
    key: Key,
    header: &Header,
    buffer: Provided,
    message: *const u8,
    is_fast: bool,
) -> gm_recv_event {
    gm_recv_event {
        recv: gm_recv_event_fields {
            message: (message.expose_provenance() as u64).to_be(),
            buffer: (buffer.at.expose_provenance() as u64).to_be(),
            length: header.len.to_be(),
            sender_node_id: node_id(key.rank).to_be(),
            tag: buffer.tag,
            size: header.size,
            sender_port_id: key.other,
            r#type: kind_of(is_fast, key.high, key.own == key.other),
        },
    }
}

#[cfg(test)]
mod tests;

impl Conn {
    /// Counts an accepted message. The acknowledgement is sent with the next message to the peer,
    /// when there is nothing else to do, or at once if many are due.
    #[inline]
    fn count_accepted(&mut self, key: Key, due: &mut Vec<Key>, todo: &mut Vec<Todo>) {
        self.accepted = self.accepted.wrapping_add(1);
        let pending = self.accepted.wrapping_sub(self.acknowledged);
        if !self.is_due {
            self.is_due = true;
            due.push(key);
        } else if pending >= UNACKED_MAX && pending.is_multiple_of(UNACKED_MAX) {
            todo.push(Todo::Ack(key));
        }
    }
}

impl Port {
    /// Assigns the next buffer to a message, and returns the event. The message is copied to a free
    /// slot if it is short, otherwise to the buffer.
    #[inline]
    fn place(&mut self, key: Key, header: &Header, bytes: &[u8]) -> Option<gm_recv_event> {
        let buffer = self.buffers(key.high, header.size)?.pop_front()?;
        let is_short = !bytes.is_empty() && bytes.len() <= FAST_LEN_MAX;
        let fast = if is_short {
            self.store_fast(bytes)
        } else {
            None
        };
        let message = match fast {
            Some(message) => message,
            None => {
                // SAFETY: the program provides buffers that are as long as their size requires, and
                // `judge` has checked that the message is not longer.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.at, bytes.len()) };
                ptr::null()
            }
        };
        Some(event_of(key, header, buffer, message, fast.is_some()))
    }

    /// Copies a short message to a free slot, if there is one. The slot stays reserved until the
    /// program requests the event after the message's event.
    #[inline]
    fn store_fast(&mut self, bytes: &[u8]) -> Option<*const u8> {
        let index = self.fast_free.pop_front()?;
        let place = &mut self.fast[index];
        place[..bytes.len()].copy_from_slice(bytes);
        Some(place.as_ptr())
    }

    /// Frees the slot of the last event, because the program requests the next event.
    #[inline]
    pub(crate) fn release_fast(&mut self) {
        if let Some(index) = self.fast_read.take() {
            self.fast_free.push_back(index);
        }
    }

    /// Marks the slot of an event that is passed to the program as being read.
    #[inline]
    pub(crate) fn read_fast(&mut self, event: &gm_recv_event) {
        // SAFETY: every bit pattern is valid for these integers.
        let message = u64::from_be(unsafe { event.recv.message });
        if message != 0 {
            let offset = address_of(message).wrapping_sub(self.fast.as_ptr().addr());
            self.fast_read = Some(offset / size_of::<Fast>()).filter(|at| *at < self.fast.len());
        }
    }
}
