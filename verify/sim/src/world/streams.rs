// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of streams: they are opened, carry parts from one process's memory to another's, and end.
//! The bytes of a part are read from its sender's memory as late as the system may.

use super::World;
use crate::node::{Node, Op};
use crate::queue::Happening;
use crate::stream::{Payload, StreamEvent};

impl World {
    pub(super) fn on_stream(&mut self, id: usize, what: StreamEvent) {
        match what {
            StreamEvent::Greeting => self.greet(id),
            StreamEvent::Reply { ok } => self.on_reply(id, ok),
            StreamEvent::AnswerTimeout => {
                if self.cx.streams.all[id].is_opening {
                    self.on_reply(id, false);
                }
            }
            StreamEvent::Landed { end } => self.land(id, end),
            StreamEvent::Read { end } => self.read(id, end),
            StreamEvent::Idle { end } => self.check_idle(id, end),
            StreamEvent::Break => self
                .cx
                .streams
                .break_up(&mut self.cx.queue, self.cx.now, id),
            StreamEvent::Ended { end } => self.on_peer_end(id, end),
        }
    }

    /// Returns the process at this end, if it is the incarnation that the connection is with.
    fn node_at(&self, id: usize, end: usize) -> Option<u32> {
        let connection = &self.cx.streams.all[id];
        let node = connection.ends[end];
        let is_there =
            self.cx.alive[node as usize] && self.nodes[node as usize].life == connection.lives[end];
        is_there.then_some(node)
    }

    /// Postpones the event if the process at this end does not run now; returns true if so.
    fn put_off(&mut self, node: u32, id: usize, what: StreamEvent) -> bool {
        let at = self.cx.paused_until[node as usize];
        let is_paused = self.cx.now < at;
        if is_paused {
            self.cx.queue.push(at, Happening::Stream { id, what });
        }
        is_paused
    }

    fn is_cut(&self, id: usize) -> bool {
        let [a, b] = self.cx.streams.all[id].ends;
        let mut active = self.cx.net.active.iter();
        active.any(|fault| fault.cuts(a, b) || fault.cuts(b, a))
    }

    /// Handles a greeting: the process it identifies accepts the connection, or the connection
    /// ends.
    fn greet(&mut self, id: usize) {
        if self.is_cut(id) {
            return;
        }
        let latency_ns = self.cx.plan.streams.unwrap_or_default().latency_ns;
        let at = self.cx.now + latency_ns;
        let on_reply = |ok| Happening::Stream {
            id,
            what: StreamEvent::Reply { ok },
        };
        let Some(node) = self.node_at(id, 1) else {
            return self.cx.queue.push(at, on_reply(false));
        };
        if self.put_off(node, id, StreamEvent::Greeting) {
            return;
        }
        let ok = self.owns(id, 1);
        self.cx.queue.push(at, on_reply(ok));
        if ok {
            self.open_end(id, 1);
        }
    }

    /// Returns true if the connection's session belongs to the process at this end.
    fn owns(&self, id: usize, end: usize) -> bool {
        let connection = &self.cx.streams.all[id];
        let [mine, theirs] = [connection.tokens[end], connection.tokens[1 - end]];
        let [node, peer] = [connection.ends[end], connection.ends[1 - end]];
        let owner = self.nodes[node as usize].core.stream_owner(mine, theirs);
        owner.is_some_and(|owner| owner.0 == peer)
    }

    fn on_reply(&mut self, id: usize, ok: bool) {
        let what = StreamEvent::Reply { ok };
        if ok && self.is_cut(id) {
            return self
                .cx
                .queue
                .push(self.cx.now + 1_000_000, Happening::Stream { id, what });
        }
        let node = self.node_at(id, 0);
        let is_wanted = self.cx.streams.all[id].is_opening;
        let Some(node) = node.filter(|_| is_wanted) else {
            return self
                .cx
                .streams
                .leave(&mut self.cx.queue, self.cx.now, id, 0);
        };
        if self.put_off(node, id, what) {
            return;
        }
        self.cx.streams.all[id].is_opening = false;
        let is_proven = ok && self.owns(id, 0) && !self.cx.streams.all[id].directions[1].is_ended;
        if is_proven {
            self.open_end(id, 0);
            self.cx.streams.on_open(&mut self.cx.queue, self.cx.now, id);
            let (now, queue) = (self.cx.now, &mut self.cx.queue);
            self.cx.streams.schedule_read(queue, now, (id, 0));
        } else {
            self.cx
                .streams
                .leave(&mut self.cx.queue, self.cx.now, id, 0);
            self.nodes[node as usize].on_stream_down(&mut self.cx, id, true);
        }
    }

    fn open_end(&mut self, id: usize, end: usize) {
        let connection = &mut self.cx.streams.all[id];
        connection.is_open[end] = true;
        let node = connection.ends[end];
        self.cx.watch_stream(id, end);
        self.nodes[node as usize].on_stream_up(&mut self.cx, id);
    }

    /// Handles a part that has reached the system of its receiver.
    fn land(&mut self, id: usize, end: usize) {
        let cut = self.is_cut(id);
        let before = self.cx.streams.all[id].directions[1 - end].landed;
        let (now, queue) = (self.cx.now, &mut self.cx.queue);
        let continues = self.cx.streams.land(queue, now, (id, end), cut);
        if !continues && let Some(sender) = self.node_at(id, 1 - end) {
            let what = StreamEvent::Ended { end: 1 - end };
            if !self.put_off(sender, id, what) {
                self.end_stream(id, 1 - end, true);
            }
            return;
        }
        if self.cx.streams.all[id].directions[1 - end].landed > before {
            let references_pages = self
                .cx
                .plan
                .streams
                .is_some_and(|plan| plan.references_pages);
            if !references_pages {
                self.copy_part(id, end, before);
            }
            let (now, queue) = (self.cx.now, &mut self.cx.queue);
            self.cx.streams.schedule_read(queue, now, (id, end));
        }
    }

    /// Copies a part to this end, so that its pages are no longer needed.
    fn copy_part(&mut self, id: usize, end: usize, place: usize) {
        let connection = &mut self.cx.streams.all[id];
        let sender = &self.nodes[connection.ends[1 - end] as usize];
        if let Some(part) = connection.directions[1 - end].parts.get_mut(place) {
            part.payload = Payload::Copied(bytes_of(sender, &part.payload, 0, part.len));
        }
    }

    /// Receives a piece of the landed parts at this end.
    fn read(&mut self, id: usize, end: usize) {
        if !self.cx.streams.takes_read(self.cx.now, (id, end)) {
            return;
        }
        let is_open = self.cx.streams.all[id].is_open[end];
        let Some(node) = self.node_at(id, end).filter(|_| is_open) else {
            return;
        };
        let busy_until = self.nodes[node as usize].busy_until();
        let at = self.cx.paused_until[node as usize].max(busy_until);
        if self.cx.now < at {
            return self
                .cx
                .streams
                .schedule_read(&mut self.cx.queue, at, (id, end));
        }
        let way = &self.cx.streams.all[id].directions[1 - end];
        if way.landed == 0 {
            if way.is_ended {
                self.end_stream(id, end, false);
            }
            return;
        }
        let left = way.parts[0].len - way.parts[0].taken;
        let most = self.cx.streams.piece_len(left);
        let part = &self.cx.streams.all[id].directions[1 - end].parts[0];
        let sender = &self.nodes[self.cx.streams.all[id].ends[1 - end] as usize];
        let mut bytes = bytes_of(sender, &part.payload, part.taken, most);
        self.cx.streams.corrupt(&mut bytes);
        let taken = self.nodes[node as usize].on_part(&mut self.cx, id, &bytes);
        let Some(taken) = taken else {
            return self.end_stream(id, end, true);
        };
        let at = self.cx.now + self.cx.plan.frame_cost_ns.max(1);
        self.cx
            .streams
            .schedule_read(&mut self.cx.queue, at, (id, end));
        // A stream outlives a sender that has crashed.
        if self.cx.streams.free_space(id, end, taken)
            && let Some(sender) = self.node_at(id, 1 - end)
        {
            self.nodes[sender as usize].on_stream_room(&mut self.cx);
        }
        self.nodes[node as usize].on_wake(&mut self.cx);
        self.pull(node);
    }

    fn check_idle(&mut self, id: usize, end: usize) {
        let connection = &self.cx.streams.all[id];
        if !connection.is_open[end] {
            return;
        }
        let Some(node) = self.node_at(id, end) else {
            return;
        };
        if self.put_off(node, id, StreamEvent::Idle { end }) {
            return;
        }
        let connection = &mut self.cx.streams.all[id];
        let buffer_len = self.cx.plan.streams.unwrap_or_default().buffer_len;
        let was_used = std::mem::take(&mut connection.is_used[end]);
        if was_used || !connection.is_between_parts(end, buffer_len) {
            return self.cx.watch_stream(id, end);
        }
        self.cx
            .streams
            .leave(&mut self.cx.queue, self.cx.now, id, end);
        self.nodes[node as usize].on_stream_down(&mut self.cx, id, false);
    }

    /// Handles the other end's close at this end's system: landed parts can still be received.
    fn on_peer_end(&mut self, id: usize, end: usize) {
        let what = StreamEvent::Ended { end };
        if self.is_cut(id) && !self.cx.streams.all[id].is_broken {
            let at = self.cx.now + 100_000_000;
            return self.cx.queue.push(at, Happening::Stream { id, what });
        }
        let Some(node) = self.node_at(id, end) else {
            return;
        };
        if self.put_off(node, id, what) {
            return;
        }
        let is_read_first = self.cx.streams.roll(0.5);
        let connection = &mut self.cx.streams.all[id];
        connection.directions[1 - end].is_ended = true;
        if !connection.is_open[end] {
            return;
        }
        if is_read_first && connection.directions[1 - end].landed > 0 {
            let (now, queue) = (self.cx.now, &mut self.cx.queue);
            return self.cx.streams.schedule_read(queue, now, (id, end));
        }
        self.end_stream(id, end, false);
    }

    /// Handles a connection that has ended, or is ended, by the process at this end. It counts as a
    /// fault if a part is in transit, or if `by_fault`.
    fn end_stream(&mut self, id: usize, end: usize, by_fault: bool) {
        let Some(node) = self.node_at(id, end) else {
            return;
        };
        if !self.cx.streams.all[id].is_open[end] {
            return;
        }
        let buffer_len = self.cx.plan.streams.unwrap_or_default().buffer_len;
        let is_between = self.cx.streams.all[id].is_between_parts(end, buffer_len);
        self.cx
            .streams
            .leave(&mut self.cx.queue, self.cx.now, id, end);
        self.nodes[node as usize].on_stream_down(&mut self.cx, id, by_fault || !is_between);
    }

    /// Handles the streams of a process that is about to exit: its system keeps the sent pages, and
    /// sends them or not.
    pub(super) fn end_streams(&mut self, gone: u32) {
        for id in 0..self.cx.streams.all.len() {
            let connection = &self.cx.streams.all[id];
            let end = connection.end_of(gone);
            let is_its = connection.ends[end] == gone
                && connection.lives[end] == self.nodes[gone as usize].life;
            let has_it = connection.is_open[end] || end == 0 && connection.is_opening;
            if !is_its || !has_it {
                continue;
            }
            for place in 0..connection.directions[end].parts.len() {
                self.copy_part(id, 1 - end, place);
            }
            let is_sent = self.cx.streams.roll(0.5);
            let (now, queue) = (self.cx.now, &mut self.cx.queue);
            if is_sent {
                self.cx.streams.fade(queue, now, id, end);
            } else {
                self.cx.streams.leave(queue, now, id, end);
            }
        }
    }
}

/// Returns bytes `from..from + len` of a part, as they are now. Bytes in memory that no longer
/// exists have been overwritten.
fn bytes_of(sender: &Node, payload: &Payload, from: usize, len: usize) -> Vec<u8> {
    match payload {
        Payload::Copied(bytes) => bytes[from..from + len].to_vec(),
        Payload::InPlace { op, off } => {
            let bytes = sender.memory.get(op).and_then(Op::outbound);
            let bytes = bytes.and_then(|bytes| bytes.get(off + from..off + from + len));
            bytes.map_or_else(|| vec![0x5a; len], <[u8]>::to_vec)
        }
    }
}
