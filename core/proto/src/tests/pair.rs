// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test harness: a pair of cores, their user memory, and a faulty wire in virtual time.

use crate::*;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use portolan_wire::{CHECK_LEN, CheckedFrame, Sum};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

mod runs;
mod streams;

pub(super) use runs::submit;

pub(super) const A: PeerId = PeerId(0);
pub(super) const B: PeerId = PeerId(1);

/// Probabilities of the wire's faults, per frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) drop: f64,
    pub(super) duplicate: f64,
    pub(super) reorder: f64,
    pub(super) corrupt: f64,
}

/// Delivered message, as the program would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) port: PortId,
    pub(super) lane: LaneId,
    pub(super) bytes: Vec<u8>,
    pub(super) error: Option<OpError>,
}

/// Message delivered by match bits, as the program would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GotLabelled {
    pub(super) op: OpId,
    pub(super) from: PeerId,
    pub(super) match_bits: MatchBits,
    pub(super) len: usize,
    /// Contents of the buffer, as far as it reached.
    pub(super) bytes: Vec<u8>,
    pub(super) truncated: bool,
}

pub(super) struct End {
    pub(super) core: Core,
    pub(super) memory: BTreeMap<u64, Vec<u8>>,
    next_op: u64,
    pub(super) got: Vec<Got>,
    pub(super) got_tagged: Vec<GotLabelled>,
    /// (receive, part, offset, last) of multi-receives.
    pub(super) portions: Vec<(OpId, OpId, u64, bool)>,
    pub(super) sent: BTreeMap<u64, Result<(), OpError>>,
    pub(super) failed: Vec<Event>,
    /// Set if requested buffers are posted at once.
    pub(super) provides_buffers: bool,
    /// Completed requests for remote memory; their buffers are kept for the test.
    pub(super) ended: BTreeMap<u64, Result<(), OpError>>,
    pub(super) notices: Vec<PutNotice>,
    /// Unopened ports at which a message waits, with its sender.
    pub(super) unopened: Vec<(PortId, PeerId)>,
    /// Number of requests for a stream.
    pub(super) streams_wanted: usize,
    /// Receives that got a message: its bytes, and whether it was truncated.
    pub(super) received: BTreeMap<u64, (Vec<u8>, bool)>,
    /// Set if short puts find memory that cannot be written.
    pub(super) refuses_puts: bool,
}

struct Wire {
    at: Instant,
    order: u64,
    to: usize,
    link: LinkId,
    frame: Vec<u8>,
}

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [End; 2],
    pub(super) faults: Faults,
    pub(super) latency: Duration,
    /// Additional latency of raw Ethernet.
    pub(super) raw_extra: Duration,
    /// Additional latency of UDP on the second network.
    pub(super) second_extra: Duration,
    /// Number of bulk frames sent by each link.
    pub(super) bulk_by_link: [usize; LinkId::COUNT],
    /// Frames on this link are lost.
    pub(super) dead: Option<LinkId>,
    /// Frames on this link to this end are lost.
    pub(super) deaf: Option<(usize, LinkId)>,
    /// Frames on this link of more than this length are lost.
    pub(super) narrow: Option<(LinkId, usize)>,
    /// Numbered frames that contain these bytes are lost.
    pub(super) swallow: Option<Vec<u8>>,
    /// Bulk data is received in place where the core expects it.
    pub(super) speculates: bool,
    /// Number of parts that the stream refuses.
    pub(super) streams_refused: usize,
    /// Bytes of an eager message by stream after which nothing more arrives by the stream.
    pub(super) cut_after: Option<usize>,
    /// Set per end once that has happened.
    is_cut: [bool; 2],
    /// Set while the program computes. Only urgent frames are sent then; the rest waits for the next
    /// timer.
    pub(super) computes: bool,
    /// Number of calls with bulk data that a network refuses.
    pub(super) bulk_refused: usize,
    /// Number of frames that were taken as parts of runs.
    pub(super) runs_taken: usize,
    /// Messages in frames of the lossless link are taken one by one, as in the library.
    pub(super) takes: bool,
    /// Bytes of a frame that corruption may change.
    pub(super) spoilt_len: usize,
    /// Number of frames in each call with several frames of eager messages.
    pub(super) calls: Vec<usize>,
    /// Number of frames in each call with bulk data.
    pub(super) bulk_calls: Vec<usize>,
    /// Length of each frame to the second end.
    pub(super) lens_sent: Vec<usize>,
    /// Number of frames sent with their checksum in front.
    pub(super) summed: usize,
    /// Number of acknowledgements taken as acknowledging everything in flight.
    pub(super) single_acks: usize,
    wires: Vec<Wire>,
    order: u64,
    rng: ChaCha8Rng,
}

pub(super) fn params(lossless: bool) -> LinkParams {
    LinkParams {
        frame_len_max: if lossless { 65_536 } else { 1472 },
        segments_max: if lossless { 1 } else { 44 },
        lossless,
        pull: false,
        checksum: false,
        sum: None,
        rx_buffer_len: 400_000,
    }
}

/// Returns a checksum that depends on every byte and its position.
fn sum_of(frame: &[u8]) -> Sum {
    let value = (1..)
        .zip(frame)
        .map(|(at, byte)| at * u64::from(*byte))
        .sum::<u64>();
    Sum {
        head_len: 0,
        value: value & Sum::MASK,
    }
}

pub(super) fn config(rank: u32, epoch: u64) -> Config {
    Config {
        job_id: [9; 16],
        secret: [7; 32],
        rank,
        size: 2,
        epoch,
        seed: [u8::try_from(rank).unwrap() + 1; 32],
        limits: Limits::default(),
    }
}

fn is_numbered_with(frame: &[u8], bytes: &[u8]) -> bool {
    let header = portolan_wire::FrameHeader::parse_head(frame, frame.len());
    let is_data = header.is_ok_and(|header| header.kind == portolan_wire::FrameKind::Data);
    is_data && frame.windows(bytes.len()).any(|part| part == bytes)
}

impl End {
    pub(super) fn new(rank: u32, links: &[LinkId], epoch: u64) -> End {
        End::wanting(false, rank, links, epoch)
    }

    /// Returns an end that requests checksums on its networks, or none.
    pub(super) fn wanting(checksum: bool, rank: u32, links: &[LinkId], epoch: u64) -> End {
        let mut core = Core::new(config(rank, epoch));
        for &link in links {
            let mut params = params(link == LinkId::SHM);
            params.checksum = checksum && !params.lossless;
            // One end leaves its checksums to the transmitting link.
            params.sum = (rank == 0).then_some(sum_of);
            if link == LinkId::PACKET {
                params.segments_max = 1;
                params.frame_len_max = 1496;
            }
            core.add_link(link, params);
        }
        core.allow(PeerId(1 - rank), links);
        End {
            core,
            memory: BTreeMap::new(),
            next_op: 1,
            got: Vec::new(),
            got_tagged: Vec::new(),
            portions: Vec::new(),
            sent: BTreeMap::new(),
            failed: Vec::new(),
            provides_buffers: false,
            ended: BTreeMap::new(),
            notices: Vec::new(),
            unopened: Vec::new(),
            streams_wanted: 0,
            received: BTreeMap::new(),
            refuses_puts: false,
        }
    }

    fn region_mut(&mut self, region: OpId, off: u64, len: usize) -> &mut [u8] {
        let off = usize::try_from(off).unwrap();
        &mut self.memory.get_mut(&region.0).unwrap()[off..off + len]
    }

    /// Performs the only atomic operation of the harness: wrapping addition of bytes.
    fn add(&mut self, reply: &Reply, atomic: &AtomicSpec, operands: &[u8]) {
        let place = self.region_mut(reply.region, reply.off, atomic.span as usize);
        let before = place.to_vec();
        for (byte, operand) in place.iter_mut().zip(operands) {
            *byte = byte.wrapping_add(*operand);
        }
        let back: &[u8] = if atomic.fetch { &before } else { &[] };
        if let Some(mut staging) = self.core.reply(reply, back.len()) {
            staging.push(back);
        }
    }

    pub(super) fn op(&mut self, bytes: Vec<u8>) -> OpId {
        let id = self.next_op;
        self.next_op += 1;
        self.memory.insert(id, bytes);
        OpId(id)
    }

    pub(super) fn post(&mut self, port: PortId, len: usize, source: Option<PeerId>) -> OpId {
        let op = self.op(vec![0xa5; len]);
        self.core.post_recv(port, op, len as u64, source);
        op
    }

    pub(super) fn post_tagged(&mut self, selector: &Selector, len: usize) -> OpId {
        let op = self.op(vec![0xa5; len]);
        self.core.post_tagged(selector, op, len as u64);
        op
    }

    /// Sends eagerly or by rendezvous, depending on the length.
    pub(super) fn send(
        &mut self,
        to: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        match self.core.eager(to, spec, bytes.len()) {
            Ok(mut staging) => {
                // In two pieces, like a gather list.
                let (first, second) = bytes.split_at(bytes.len() / 3);
                staging.push(first);
                staging.push(second);
                Ok(())
            }
            Err(Refused::TooLong) => self.send_rendezvous(to, spec, bytes),
            Err(refused) => Err(refused),
        }
    }

    /// Sends by rendezvous, even a short message.
    pub(super) fn send_rendezvous(
        &mut self,
        to: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let op = self.op(bytes.to_vec());
        let result = self
            .core
            .rendezvous(Instant::default(), to, spec, op, bytes.len() as u64, 0);
        if result.is_err() {
            self.memory.remove(&op.0);
        }
        result.map(|_| ())
    }

    pub(super) fn drain(&mut self, frame: &[u8]) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Place { dest, src } => self.place(dest, &frame[src]),
                Event::Deliver { .. } => self.on_deliver(frame, event),
                Event::Matched { .. } => self.on_matched(frame, event),
                Event::MultiRecvSegment {
                    op,
                    part,
                    off,
                    len,
                    is_last,
                } => {
                    let len = usize::try_from(len).unwrap();
                    self.memory.insert(part.0, vec![0xa5; len]);
                    self.portions.push((op, part, off, is_last));
                }
                Event::SendDone { op, result } => {
                    self.memory.remove(&op.0);
                    self.sent.insert(op.0, result);
                }
                Event::RecvFailed { op, .. } => {
                    self.memory.remove(&op.0);
                    self.failed.push(event);
                }
                Event::PeerFailed { .. } | Event::Suspect { .. } => self.failed.push(event),
                Event::Pull { transfer, .. } => self.core.pull_done(transfer, false),
                Event::PutNotice(notice) => self.notices.push(notice),
                Event::BufferNeeded { port, peer, len } if self.provides_buffers => {
                    self.post(port, usize::try_from(len).unwrap(), Some(peer));
                }
                Event::PortUnopened { port, peer } => self.unopened.push((port, peer)),
                Event::Discard { held } => self.core.release(held),
                Event::StreamNeeded(_) => self.streams_wanted += 1,
                Event::PeerUp(_)
                | Event::Writable(_)
                | Event::BufferNeeded { .. }
                | Event::MemoryFull { .. }
                | Event::Unsolicited { .. } => {}
                other => self.on_remote(frame, other),
            }
        }
    }

    fn place(&mut self, dest: Dest, bytes: &[u8]) {
        match dest {
            Dest::Op(op, off) => {
                let off = usize::try_from(off).unwrap();
                let memory = self.memory.get_mut(&op.0).unwrap();
                memory[off..off + bytes.len()].copy_from_slice(bytes);
            }
            Dest::Held(id, off) => {
                self.core.held_mut(id)[off..off + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Returns the bytes that `data` refers to, unless they are in place already.
    fn take(&mut self, frame: &[u8], data: Data) -> Option<Vec<u8>> {
        match data {
            Data::Frame(range) => Some(frame[range].to_vec()),
            Data::Held(id) => {
                let bytes = self.core.held(id).to_vec();
                self.core.release(id);
                Some(bytes)
            }
            Data::Placed => None,
        }
    }

    fn on_deliver(&mut self, frame: &[u8], event: Event) {
        let Event::Deliver {
            port,
            lane,
            op,
            len,
            data,
            error,
            ..
        } = event
        else {
            return;
        };
        let total = usize::try_from(len).unwrap();
        let bytes = self.take(frame, data).unwrap_or_else(|| {
            let memory = &self.memory[&op.unwrap().0];
            let beyond = memory.get(total..).unwrap_or_default();
            assert!(beyond.iter().all(|&byte| byte == 0xa5));
            memory[..total.min(memory.len())].to_vec()
        });
        if let Some(op) = op {
            self.memory.remove(&op.0);
            self.received.insert(op.0, (bytes.clone(), error.is_some()));
        }
        self.got.push(Got {
            port,
            lane,
            bytes,
            error,
        });
    }

    fn on_matched(&mut self, frame: &[u8], event: Event) {
        let Event::Matched {
            peer,
            op,
            match_bits,
            len,
            data,
            truncated,
        } = event
        else {
            return;
        };
        let len = usize::try_from(len).unwrap();
        let mut bytes = self.memory.remove(&op.0).unwrap();
        let room = len.min(bytes.len());
        if let Some(data) = self.take(frame, data) {
            bytes[..room].copy_from_slice(&data[..room]);
        }
        assert!(bytes[room..].iter().all(|&byte| byte == 0xa5));
        bytes.truncate(room);
        self.received.insert(op.0, (bytes.clone(), truncated));
        self.got_tagged.push(GotLabelled {
            op,
            from: peer,
            match_bits,
            len,
            bytes,
            truncated,
        });
    }

    fn on_remote(&mut self, frame: &[u8], event: Event) {
        match event {
            Event::RemoteDone { op, result } => {
                self.ended.insert(op.0, result);
            }
            Event::RemoteWrite { reply, data, .. } if self.refuses_puts => {
                self.take(frame, data);
                self.core.refuse_put(&reply);
            }
            Event::RemoteWrite { reply, data, .. } => {
                let bytes = self.take(frame, data).unwrap_or_default();
                self.region_mut(reply.region, reply.off, bytes.len())
                    .copy_from_slice(&bytes);
            }
            Event::SourceFault { op, peer } => {
                self.ended.insert(op.0, Err(OpError::PeerFault(peer)));
            }
            Event::RemoteRead { reply, len } => {
                let len = usize::try_from(len).unwrap();
                let bytes = self.region_mut(reply.region, reply.off, len).to_vec();
                if let Some(mut staging) =
                    self.core
                        .reply_read(Instant::default(), &reply, len as u64, 0)
                {
                    staging.push(&bytes);
                }
            }
            Event::RemoteAtomic {
                reply,
                atomic,
                data,
            } => {
                let operands = self.take(frame, data).unwrap_or_default();
                self.add(&reply, &atomic, &operands);
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Pair {
    pub(super) fn new(links: &[LinkId], seed: u64) -> Pair {
        let mut pair = Pair {
            now: Instant::from_nanos(1),
            ends: [End::new(0, links, 100), End::new(1, links, 200)],
            faults: Faults::default(),
            latency: Duration::from_micros(5),
            raw_extra: Duration::ZERO,
            second_extra: Duration::ZERO,
            bulk_by_link: [0; LinkId::COUNT],
            dead: None,
            deaf: None,
            narrow: None,
            swallow: None,
            speculates: false,
            streams_refused: 0,
            cut_after: None,
            is_cut: [false; 2],
            computes: false,
            bulk_refused: 0,
            runs_taken: 0,
            takes: false,
            spoilt_len: 16,
            calls: Vec::new(),
            bulk_calls: Vec::new(),
            lens_sent: Vec::new(),
            summed: 0,
            single_acks: 0,
            wires: Vec::new(),
            order: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        pair.ends[0].core.connect(pair.now, B);
        pair
    }

    /// Returns a pair with ends that request checksums according to `wants`.
    pub(super) fn checked(links: &[LinkId], seed: u64, wants: [bool; 2]) -> Pair {
        let mut pair = Pair::new(links, seed);
        pair.ends = [
            End::wanting(wants[0], 0, links, 100),
            End::wanting(wants[1], 1, links, 200),
        ];
        pair.ends[0].core.connect(pair.now, B);
        pair
    }

    /// Runs until no event is left, for at most `limit`.
    pub(super) fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            for index in 0..2 {
                let core = &self.ends[index].core;
                if !self.computes || core.has_urgent_tx() || core.poll_timeout() <= self.now {
                    self.transmit(index);
                }
            }
            let arrival = self
                .wires
                .iter()
                .map(|wire| wire.at)
                .min()
                .unwrap_or(Instant::NEVER);
            let timer = self.ends.iter().map(|end| end.core.poll_timeout()).min();
            let next = arrival.min(timer.unwrap_or(Instant::NEVER));
            if next == Instant::NEVER || next > end {
                return;
            }
            self.now = self.now.max(next);
            self.deliver();
            for end in &mut self.ends {
                end.core.handle_timeout(self.now);
                end.drain(&[]);
            }
        }
    }

    fn transmit(&mut self, index: usize) {
        let mut frames: VecDeque<(LinkId, Vec<u8>)> = VecDeque::new();
        let end = &mut self.ends[index];
        end.drain(&[]);
        end.core.link_ready(LinkId::STREAM);
        while let Some(transmit) = end.core.poll_transmit(self.now) {
            if self.streams_refused > 0 && transmit.destination().1 == LinkId::STREAM {
                self.streams_refused -= 1;
                end.core.transmit_refused();
                continue;
            }
            if let Transmit::Run {
                bytes,
                more,
                segment_len,
                ..
            } = transmit
            {
                assert!(more.is_empty() || bytes.len().is_multiple_of(segment_len));
                let count = bytes.len().div_ceil(segment_len) + more.len().div_ceil(segment_len);
                self.calls.push(count);
            }
            if let Transmit::Bulk {
                headers,
                header_len,
                ..
            } = transmit
            {
                if self.bulk_refused > 0 {
                    self.bulk_refused -= 1;
                    let link = transmit.destination().1;
                    end.core.transmit_refused();
                    end.core.link_ready(link);
                    continue;
                }
                let count = headers.len() / header_len;
                self.bulk_calls.push(count);
                self.bulk_by_link[transmit.destination().1.index()] += count;
            }
            let mut payload = Vec::new();
            for part in transmit.payload() {
                let off = usize::try_from(part.off).unwrap();
                payload.extend_from_slice(&end.memory[&part.op.0][off..off + part.len]);
            }
            let link = transmit.destination().1;
            let sent = transmit.frames(&payload).into_iter();
            frames.extend(sent.map(|frame| (link, frame)));
        }
        for (link, frame) in frames {
            let params = self.ends[index].core.shared_mut().ctx.link(link);
            let limit = match link {
                LinkId::STREAM => usize::MAX,
                _ => params.unwrap().frame_len_max,
            };
            let (sum_len, frame) = match CheckedFrame::needs_sum(&frame) {
                true => (CHECK_LEN, frame),
                false => (0, self.take_sum(link, frame)),
            };
            let len = frame.len() + sum_len;
            assert!(len <= limit, "{len} bytes by {link}");
            if !matches!(link, LinkId::SHM | LinkId::STREAM) {
                // P1.3
                assert_eq!(CheckedFrame::datagram_len(&frame), Some(frame.len()));
            }
            self.put(1 - index, link, frame);
        }
    }

    /// Returns a frame without the checksum that the core put in front of it, after verifying it.
    fn take_sum(&mut self, link: LinkId, frame: Vec<u8>) -> Vec<u8> {
        if link == LinkId::STREAM || !CheckedFrame::has_sum(&frame) {
            return frame;
        }
        let checked = CheckedFrame::parse(&frame).unwrap();
        assert_eq!(checked.sum, sum_of(checked.frame));
        assert_eq!(frame.len(), CHECK_LEN + checked.frame.len());
        self.summed += 1;
        checked.frame.to_vec()
    }

    fn put(&mut self, to: usize, link: LinkId, mut frame: Vec<u8>) {
        if to == 1 {
            self.lens_sent.push(frame.len());
        }
        let is_long = |(narrow, len)| narrow == link && frame.len() > len;
        if self.dead == Some(link)
            || self.deaf == Some((to, link))
            || self.narrow.is_some_and(is_long)
            || self
                .swallow
                .as_ref()
                .is_some_and(|bytes| is_numbered_with(&frame, bytes))
        {
            return;
        }
        let lossless = matches!(link, LinkId::SHM | LinkId::STREAM);
        let roll = |rng: &mut ChaCha8Rng, p: f64| !lossless && p > 0.0 && rng.random_bool(p);
        if roll(&mut self.rng, self.faults.drop) {
            return;
        }
        if roll(&mut self.rng, self.faults.duplicate) {
            let copy = frame.clone();
            self.push(to, link, copy, Duration::from_micros(30));
        }
        if roll(&mut self.rng, self.faults.corrupt) {
            // A network drops frames with a wrong checksum; only errors in headers may go
            // undetected.
            let at = self.rng.random_range(0..self.spoilt_len.min(frame.len()));
            frame[at] ^= 1 << self.rng.random_range(0..8);
        }
        let late = roll(&mut self.rng, self.faults.reorder);
        let extra = if late {
            self.rng.random_range(1..200)
        } else {
            0
        };
        self.push(to, link, frame, Duration::from_micros(extra));
    }

    fn push(&mut self, to: usize, link: LinkId, frame: Vec<u8>, extra: Duration) {
        self.order += 1;
        let raw_extra = match link {
            LinkId::PACKET => self.raw_extra,
            LinkId::UDP2 => self.second_extra,
            _ => Duration::ZERO,
        };
        let at = self.now + self.latency + raw_extra + extra;
        self.wires.push(Wire {
            at,
            order: self.order,
            to,
            link,
            frame,
        });
    }

    /// Delivers what is due, without sending anything.
    pub(super) fn deliver(&mut self) {
        self.wires.sort_by_key(|wire| (wire.at, wire.order));
        let due = self.wires.partition_point(|wire| wire.at <= self.now);
        let mut due = VecDeque::from_iter(self.wires.drain(..due));
        while let Some(first) = due.front() {
            if first.link == LinkId::STREAM {
                let wire = due.pop_front().unwrap();
                self.deliver_part(&wire);
                continue;
            }
            if first.link != LinkId::SHM {
                match self.speculates {
                    true => self.deliver_batch(&mut due),
                    false => self.deliver_run(&mut due),
                }
            }
            // A part of a stream can follow the frames that were taken.
            if due.front().is_none_or(|wire| wire.link == LinkId::STREAM) {
                continue;
            }
            let Some(wire) = due.pop_front() else { return };
            let end = &mut self.ends[wire.to];
            if wire.link == LinkId::SHM {
                let from = PeerId(u32::try_from(1 - wire.to).unwrap());
                let head = &wire.frame[..wire.frame.len().min(4096)];
                let (now, len) = (self.now, wire.frame.len());
                if !self.takes {
                    end.core.handle_lossless(now, wire.link, from, head, len);
                } else if let Some(mut frame) = end.core.admit_lossless(now, wire.link, from, len) {
                    end.take_messages(&mut frame, head);
                    if !frame.is_done() {
                        end.core.handle_rest(now, &frame, head);
                    }
                }
            } else if let Some(mut frame) = end.core.admit(self.now, wire.link, &wire.frame) {
                // As in the library.
                let taken = end.core.take_ack(self.now, &mut frame, &wire.frame);
                self.single_acks += usize::from(taken);
                if !frame.is_done() {
                    end.core.handle_rest(self.now, &frame, &wire.frame);
                }
            }
            end.drain(&wire.frame);
        }
    }

    /// Sends a single message by the shortcut, which must apply, over the faulty wire.
    pub(super) fn send_single(&mut self, from: usize, spec: &SendSpec, bytes: &[u8]) {
        assert!(self.try_send_single(from, spec, bytes), "nothing waits");
    }

    /// Sends a single message if the shortcut applies; returns whether it does.
    pub(super) fn try_send_single(&mut self, from: usize, spec: &SendSpec, bytes: &[u8]) -> bool {
        let to = [B, A][from];
        let Ok((link, frames)) = submit(&mut self.ends[from].core, self.now, to, spec, bytes)
        else {
            return false;
        };
        for frame in frames {
            let frame = self.take_sum(link, frame);
            self.put(1 - from, link, frame);
        }
        true
    }

    /// Receives frames of one end and link like a link with speculative placement. The predicted
    /// place is overwritten first, as other frames might do.
    fn deliver_batch(&mut self, due: &mut VecDeque<Wire>) {
        let (to, link) = (due[0].to, due[0].link);
        let end = &mut self.ends[to];
        let Some(run) = end.core.expected_run(link) else {
            return;
        };
        let off = usize::try_from(run.off()).unwrap();
        let len = usize::try_from(run.len()).unwrap();
        let place = &mut end.memory.get_mut(&run.op().0).unwrap()[off..off + len];
        self.rng.fill(place);
        for index in 0.. {
            let is_expected = due.front().is_some_and(|wire| {
                let head = wire.frame.get(..ExpectedRun::HEADER_LEN);
                let payload_len = wire.frame.len() - head.map_or(0, <[u8]>::len);
                let matches = head.is_some_and(|head| run.matches(index, head, payload_len));
                wire.to == to && wire.link == link && matches
            });
            if !is_expected {
                return;
            }
            let Some(wire) = due.pop_front() else { return };
            let (head, payload) = wire.frame.split_at(ExpectedRun::HEADER_LEN);
            let at = off + index * run.fragment_len();
            end.memory.get_mut(&run.op().0).unwrap()[at..at + payload.len()]
                .copy_from_slice(payload);
            end.core.handle_placed(self.now, link, head, payload.len());
            end.drain(&[]);
        }
    }

    /// Checks that nothing is in flight, no buffer is in use, no transfer is open, and no user
    /// memory is kept.
    pub(super) fn assert_clean(&self) {
        for (rank, end) in self.ends.iter().enumerate() {
            assert_eq!(end.core.usage(), (0, 0, 0), "rank {rank} leaks");
            assert!(
                end.memory.is_empty(),
                "rank {rank} still holds {:?}",
                end.memory.keys()
            );
        }
    }
}
