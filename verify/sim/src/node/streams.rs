// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams as used by the engine. They are opened when the core requests it and closed with the
//! session. Parts are sent from the program's memory, and are received piece by piece. Also handles
//! bulk frames received at predicted places.

use super::{Node, Op};
use crate::Canary;
use crate::context::Context;
use crate::stream::{self, Contents, Part, Payload, Sent};
use crate::trace::Item;
use portolan_proto::{
    DropReason, ExpectedRun, LinkId, MessagePlace, OpId, PartHead, PartPlace, PeerId, PushPlace,
    StreamMessage, Transmit,
};

/// Initial value of a checksum (FNV-1a's offset basis).
const SUM: u64 = 0xcbf2_9ce4_8422_2325;

/// Part that is to be sent.
pub(super) struct PartOut {
    contents: Contents,
    payload: Payload,
    len: usize,
}

/// Returns the part of a transmit for a stream; `None` if it is not a part.
pub(super) fn part_of(transmit: &Transmit<'_>) -> Option<PartOut> {
    let headers = match *transmit {
        Transmit::Bulk { headers, .. } => headers,
        Transmit::Message { head, payload, .. } => {
            let message = StreamMessage::parse(head, payload.len())?;
            return Some(PartOut {
                contents: Contents::Message(message),
                payload: Payload::Copied(payload.to_vec()),
                len: payload.len(),
            });
        }
        _ => return None,
    };
    let part = transmit.payload().first()?;
    let (op, off, len) = (part.op, part.off, part.len);
    let contents = match PartHead::parse(headers, len)? {
        PartHead::Chunk(chunk) => Contents::Chunk(chunk),
        PartHead::Push(request, done) => Contents::Push(request, done),
    };
    Some(PartOut {
        contents,
        payload: Payload::InPlace {
            op: op.0,
            off: usize::try_from(off).ok()?,
        },
        len,
    })
}

impl Node {
    /// Handles the core's request for a stream.
    pub(super) fn on_stream_needed(&mut self, cx: &mut Context, peer: u32) {
        let all = &cx.streams.all;
        let opens = all
            .iter()
            .any(|one| one.is_opening && one.ends == [self.id, peer] && one.lives[0] == self.life);
        if opens || self.stream_to(cx, peer).is_some() {
            return;
        }
        let Some(ids) = self.core.session_ids(PeerId(peer)) else {
            let local = self.clock.local(cx.now);
            return self.core.stream_closed(local, PeerId(peer), true);
        };
        let lives = [self.life, cx.lives[peer as usize]];
        let tokens = [ids.mine.1, ids.theirs.1];
        let (queue, now) = (&mut cx.queue, cx.now);
        cx.streams.begin(queue, now, [self.id, peer], lives, tokens);
    }

    fn stream_to(&self, cx: &Context, peer: u32) -> Option<usize> {
        let mut streams = self.streams.iter().copied();
        streams.find(|&id| cx.streams.all[id].ends.contains(&peer))
    }

    fn peer_of(&self, cx: &Context, id: usize) -> u32 {
        let connection = &cx.streams.all[id];
        connection.ends[1 - connection.end_of(self.id)]
    }

    /// Handles a connection that is open.
    pub(crate) fn on_stream_up(&mut self, cx: &mut Context, id: usize) {
        let peer = self.peer_of(cx, id);
        cx.trace.push(cx.now, self.id, Item::StreamUp { peer });
        self.streams.push(id);
        self.core.stream_opened(PeerId(peer));
        self.drain(cx, &[]);
        self.on_wake(cx);
    }

    /// Handles a connection that has ended, or could not be opened.
    pub(crate) fn on_stream_down(&mut self, cx: &mut Context, id: usize, by_fault: bool) {
        let peer = self.peer_of(cx, id);
        self.forget_stream(cx, id, by_fault);
        let local = self.clock.local(cx.now);
        self.core.stream_closed(local, PeerId(peer), by_fault);
        if self.stream_to(cx, peer).is_some() {
            // There were two, opened by both sides at the same time.
            self.core.stream_opened(PeerId(peer));
        }
        self.drain(cx, &[]);
        self.on_wake(cx);
    }

    fn forget_stream(&mut self, cx: &mut Context, id: usize, by_fault: bool) {
        let peer = self.peer_of(cx, id);
        self.streams.retain(|one| *one != id);
        let item = Item::StreamDown { peer, by_fault };
        cx.trace.push(cx.now, self.id, item);
    }

    /// Closes the streams of a session that has ended.
    pub(super) fn close_streams(&mut self, cx: &mut Context, peer: u32) {
        for id in 0..cx.streams.all.len() {
            let connection = &cx.streams.all[id];
            let end = connection.end_of(self.id);
            let is_its = connection.ends[end] == self.id
                && connection.lives[end] == self.life
                && connection.ends[1 - end] == peer;
            if is_its && (connection.is_open[end] || end == 0 && connection.is_opening) {
                self.forget_stream(cx, id, true);
                cx.streams.leave(&mut cx.queue, cx.now, id, end);
            }
        }
    }

    /// Handles a connection that was full and has room.
    pub(crate) fn on_stream_room(&mut self, cx: &mut Context) {
        self.has_stream_room = true;
        self.on_wake(cx);
    }

    pub(super) fn send_part(&mut self, cx: &mut Context, peer: u32, out: PartOut) {
        let id = self.id;
        let has_sums = cx.plan.streams.is_some_and(|plan| plan.has_sums);
        let sum = {
            let bytes = match &out.payload {
                Payload::Copied(bytes) => Some(&bytes[..]),
                Payload::InPlace { op, off } => {
                    let bytes = self.memory.get(op).and_then(Op::outbound);
                    bytes.and_then(|bytes| bytes.get(*off..off + out.len))
                }
            };
            let Some(bytes) = bytes else {
                return cx.violate_always(format!(
                    "node {id} passes memory that the core does not own"
                ));
            };
            has_sums.then(|| stream::sum(SUM, bytes))
        };
        let part = Part {
            contents: out.contents,
            payload: out.payload.clone(),
            len: out.len,
            taken: 0,
            sum,
            sum_taken: SUM,
        };
        let local = self.clock.local(cx.now);
        let Some(stream) = self.stream_to(cx, peer) else {
            return self.core.stream_refused(local, PeerId(peer));
        };
        let end = cx.streams.all[stream].end_of(id);
        match cx.streams.send(&mut cx.queue, cx.now, stream, end, part) {
            Sent::Full => self.refuse(LinkId::STREAM),
            Sent::Ended => {
                self.forget_stream(cx, stream, true);
                cx.streams.leave(&mut cx.queue, cx.now, stream, end);
                self.core.stream_refused(local, PeerId(peer));
            }
            Sent::Taken => {
                let Payload::InPlace { op, off } = out.payload else {
                    return;
                };
                let (to, len) = (peer, out.len);
                cx.trace
                    .push(cx.now, id, Item::InPlace { to, op, off, len });
                if cx.strikes(Canary::EarlyReturn)
                    && let Some(Op::Send { bytes, .. }) = self.memory.get_mut(&op)
                {
                    bytes.fill(0x5a);
                }
            }
        }
    }

    /// Receives `bytes` of the next part of a connection, or the first of them. Returns how many,
    /// or `None` if the connection must be closed.
    pub(crate) fn on_part(&mut self, cx: &mut Context, id: usize, bytes: &[u8]) -> Option<usize> {
        let from = PeerId(self.peer_of(cx, id));
        let connection = &mut cx.streams.all[id];
        let end = connection.end_of(self.id);
        connection.is_used[end] = true;
        let part = connection.directions[1 - end].parts.front()?;
        let (contents, len, off) = (part.contents, part.len, part.taken);
        let (sum, before) = (part.sum, part.sum_taken);
        let contents = self.open_part(cx, from, contents, (off, len))?;
        let count = self.place_piece(cx, from, &contents, off, bytes)?;
        let after = match sum {
            Some(_) => stream::sum(before, &bytes[..count]),
            None => before,
        };
        let begin = match contents {
            Contents::Chunk(chunk) => chunk.offset,
            Contents::Message(_) | Contents::Push(..) => 0,
        };
        let item = Item::Taken {
            from: from.0,
            off: begin + off as u64,
            len: count,
        };
        cx.trace.push(cx.now, self.id, item);
        let is_complete = off + count == len;
        let direction = &mut cx.streams.all[id].directions[1 - end];
        match direction.parts.front_mut() {
            Some(part) if !is_complete => (part.taken, part.sum_taken) = (off + count, after),
            _ => {
                direction.parts.pop_front();
                direction.landed -= 1;
            }
        }
        // With a checksum a part counts only when it is complete.
        let counted = match sum {
            None => Some((off, count)),
            Some(sum) if is_complete && self.must_be_right(from, &contents) => {
                Some((0, len)).filter(|_| sum == after)
            }
            Some(_) => return Some(count),
        };
        let (off, counted_len) = counted?;
        self.count_piece(cx, from, &contents, (off, counted_len, len));
        Some(count)
    }

    /// Handles the head of a part of which nothing was taken. Returns the contents; a pushed part is
    /// one of its transfer, or discarded if its buffer is not posted.
    fn open_part(
        &mut self,
        cx: &mut Context,
        from: PeerId,
        contents: Contents,
        (off, len): (usize, usize),
    ) -> Option<Contents> {
        let Contents::Push(request, done) = contents else {
            return Some(contents);
        };
        let local = self.clock.local(cx.now);
        if off == 0 {
            let request = (&request, done);
            self.core.open_push(local, from, request, len as u64).ok()?;
            self.drain(cx, &[]);
        }
        loop {
            if let PushPlace::Part(chunk) = self.core.place_push(from, &request) {
                return Some(Contents::Chunk(chunk));
            }
        }
    }

    /// Returns true if the checksum of a complete part must be right.
    fn must_be_right(&self, from: PeerId, contents: &Contents) -> bool {
        match contents {
            Contents::Chunk(chunk) => self.core.needs_part(from, chunk),
            Contents::Message(_) | Contents::Push(..) => true,
        }
    }

    /// Notifies the core of `len` bytes starting at `off` of a part of `total` bytes.
    fn count_piece(
        &mut self,
        cx: &mut Context,
        from: PeerId,
        contents: &Contents,
        (off, mut len, total): (usize, usize, usize),
    ) {
        let local = self.clock.local(cx.now);
        match contents {
            Contents::Chunk(chunk) => {
                (self.core).handle_part(local, from, chunk, off as u64, len as u64);
            }
            Contents::Message(message) => {
                if off + len < total && cx.has(Canary::HalfMessage) {
                    len = total - off;
                }
                let range = (off as u64, len as u64);
                self.core.handle_message(local, from, message, range);
            }
            Contents::Push(..) => {}
        }
        self.drain(cx, &[]);
    }

    /// Writes bytes of a part, from offset `off` of the part on, to the place given by the core.
    /// Returns how many, or `None` if the core rejects them.
    fn place_piece(
        &mut self,
        cx: &mut Context,
        from: PeerId,
        contents: &Contents,
        off: usize,
        bytes: &[u8],
    ) -> Option<usize> {
        let (node, most) = (self.id, bytes.len());
        let range = (off as u64, most as u64);
        let place = match contents {
            Contents::Chunk(chunk) => self.core.place_part(from, chunk, range.0, range.1),
            Contents::Message(message) => return self.place_message(cx, from, message, off, bytes),
            Contents::Push(..) => return None,
        };
        match place {
            PartPlace::Nowhere => Some(most),
            PartPlace::Wrong => {
                cx.violate(format!(
                    "node {node}: {most} bytes, {off} behind the begin of {contents:?} from {from}, \
                     contradict their transfer"
                ));
                None
            }
            PartPlace::At { op, off, len } => self.write_piece(cx, op, (off, len), bytes),
        }
    }

    /// Writes bytes of an eager message to the place given by the core.
    fn place_message(
        &mut self,
        cx: &mut Context,
        from: PeerId,
        message: &StreamMessage,
        off: usize,
        bytes: &[u8],
    ) -> Option<usize> {
        let (node, most) = (self.id, bytes.len());
        let range = (off as u64, most as u64);
        let opened = match off {
            0 => self.core.open_message(from, message),
            _ => Ok(()),
        };
        let placed = opened.and_then(|()| self.core.place_message(from, message, range));
        self.drain(cx, &[]);
        match placed {
            Err(DropReason::NoMemory) => {
                let local = self.clock.local(cx.now);
                self.core.note_no_memory(local, from);
                None
            }
            // The session has ended; the stream is about to be closed.
            Err(DropReason::StaleSession) => None,
            Err(reason) => {
                cx.violate(format!(
                    "node {node} rejects {message:?} from {from}: {reason:?}"
                ));
                None
            }
            Ok(MessagePlace::Nowhere) => Some(most),
            Ok(MessagePlace::Held(held)) => {
                self.core.held_mut(held)[off..off + most].copy_from_slice(bytes);
                Some(most)
            }
            Ok(MessagePlace::Op { op, off, len }) => self.write_piece(cx, op, (off, len), bytes),
        }
    }

    /// Writes the first `len` bytes to the memory of an operation. Returns how many.
    fn write_piece(
        &mut self,
        cx: &mut Context,
        op: OpId,
        (off, len): (u64, u64),
        bytes: &[u8],
    ) -> Option<usize> {
        let (at, len) = (usize::try_from(off).ok()?, usize::try_from(len).ok()?);
        let into = self.memory.get_mut(&op.0).and_then(Op::inbound);
        match into.and_then(|into| into.get_mut(at..at + len)) {
            Some(into) => into.copy_from_slice(&bytes[..len]),
            None => cx.violate_always(format!(
                "node {}: {len} bytes of a part at {at} of {op:?}, which is not the core's to write",
                self.id
            )),
        }
        Some(len)
    }

    /// Receives frames of a link where the core expects bulk data, like a link that predicts the
    /// next frames. The place is overwritten first, as after a wrong prediction. Returns the number
    /// of frames.
    pub(super) fn on_predicted(&mut self, cx: &mut Context, most: usize) -> usize {
        let link = self.inbox.front().map(|next| next.link);
        let Some(link) = link.filter(|_| cx.plan.predicts) else {
            return 0;
        };
        let Some(run) = self.core.expected_run(link) else {
            return 0;
        };
        let (Ok(off), Ok(len)) = (usize::try_from(run.off()), usize::try_from(run.len())) else {
            return 0;
        };
        let place = self.memory.get_mut(&run.op().0).and_then(Op::inbound);
        match place.and_then(|place| place.get_mut(off..off + len)) {
            Some(place) => place.fill(0xbd),
            None => cx.violate_always(format!(
                "node {}: bulk data is expected at {:?}, which is not the core's to write",
                self.id,
                run.op()
            )),
        }
        for index in 0..most {
            let is_next = self.inbox.front().is_some_and(|flight| {
                let head = flight.frame.get(..ExpectedRun::HEADER_LEN);
                let payload_len = flight.frame.len() - head.map_or(0, <[u8]>::len);
                let matches = head.is_some_and(|head| run.matches(index, head, payload_len));
                flight.link == link && !flight.marked && matches
            });
            if !is_next {
                return index;
            }
            let Some(flight) = self.inbox.pop_front() else {
                return index;
            };
            self.note_arrival(cx, &flight);
            let (head, payload) = flight.frame.split_at(ExpectedRun::HEADER_LEN);
            let at = off + index * run.fragment_len();
            let place = self.memory.get_mut(&run.op().0).and_then(Op::inbound);
            if let Some(place) = place.and_then(|place| place.get_mut(at..at + payload.len())) {
                place.copy_from_slice(payload);
            }
            let local = self.clock.local(cx.now);
            self.core.handle_placed(local, link, head, payload.len());
            self.drain(cx, &[]);
        }
        most
    }
}
