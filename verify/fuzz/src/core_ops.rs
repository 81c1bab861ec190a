// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two cores, and an arbitrary sequence of events. Their programs start operations. Frames arrive,
//! are lost, duplicated, corrupted or forged. Time passes, and peers fail.

use crate::input::Input;
use portolan_proto::{
    Cause, Config, Core, Data, Dest, Event, Instant, LaneId, Limits, LinkId, LinkParams, MatchBits,
    OpId, PeerId, PortId, PortMode, Selector, SendSpec, Space,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of steps per input, so that long inputs end soon.
const STEPS_MAX: usize = 2000;

/// Maximum number of frames in flight; more are lost, as in a full switch.
const WIRE_MAX: usize = 512;

/// Maximum memory of the programs, in operations; further operations are not started.
const OPS_MAX: usize = 64;

const LINKS: [LinkId; 2] = [LinkId::UDP, LinkId::PACKET];

/// Performs the steps that `data` encodes.
///
/// # Panics
/// Panics if a core refers to memory that it does not own, completes an operation twice, or exceeds
/// its limits.
pub fn core_ops(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(input.byte());
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        pair.step(&mut input);
    }
    pair.end();
}

struct End {
    core: Core,
    /// Buffers that the core may use, by operation.
    memory: BTreeMap<u64, Vec<u8>>,
    next_op: u64,
}

struct Pair {
    now: Instant,
    ends: [End; 2],
    /// Destination, link and bytes of each frame.
    wire: Vec<(usize, LinkId, Vec<u8>)>,
    limits: Limits,
}

fn limits(kind: u8) -> Limits {
    let credit_len = [64, 256][usize::from(kind & 1)] * 1024;
    Limits {
        credit_len,
        eager_len_max: [1000, 30_000][usize::from(kind >> 1 & 1)],
        eager_len_max_lossless: 4000,
        held_len_max: [20_000, 1 << 20][usize::from(kind >> 2 & 1)],
        window_frames_max: [16, 512][usize::from(kind >> 3 & 1)],
        ..Limits::default()
    }
}

impl End {
    fn new(rank: u32, limits: &Limits) -> End {
        let mut core = Core::new(Config {
            job_id: [9; 16],
            secret: [7; 32],
            rank,
            size: 2,
            epoch: 1,
            seed: [5 + u8::from(rank == 1); 32],
            limits: limits.clone(),
        });
        for link in LINKS {
            core.add_link(
                link,
                LinkParams {
                    frame_len_max: if link == LinkId::UDP { 1472 } else { 1496 },
                    segments_max: if link == LinkId::UDP { 8 } else { 1 },
                    lossless: false,
                    pull: false,
                    checksum: false,
                    sum: None,
                    rx_buffer_len: 100_000,
                },
            );
        }
        core.allow(PeerId(1 - rank), &LINKS);
        core.open_port(PortId::user(1), PortMode::Posted);
        core.open_port(PortId::user(2), PortMode::InPlace);
        End {
            core,
            memory: BTreeMap::new(),
            next_op: 0,
        }
    }

    fn make_op(&mut self, len: usize) -> Option<OpId> {
        (self.memory.len() < OPS_MAX).then(|| {
            self.next_op += 1;
            self.memory.insert(self.next_op, vec![0xa5; len]);
            OpId(self.next_op)
        })
    }

    fn finish(&mut self, op: OpId) {
        let was = self.memory.remove(&op.0);
        assert!(was.is_some(), "{op:?} completed but was not outstanding");
    }

    fn drain(&mut self, frame: &[u8]) {
        while let Some(event) = self.core.poll_event() {
            self.on_event(frame, event);
        }
    }

    fn on_event(&mut self, frame: &[u8], event: Event) {
        match event {
            Event::Place { dest, src } => {
                let from = &frame[src];
                match dest {
                    Dest::Held(held, at) => {
                        self.core.held_mut(held)[at..at + from.len()].copy_from_slice(from);
                    }
                    Dest::Op(op, at) => {
                        let at = usize::try_from(at).expect("an offset");
                        let into = self.memory.get_mut(&op.0).expect("a buffer");
                        into[at..at + from.len()].copy_from_slice(from);
                    }
                }
            }
            Event::Deliver { op, data, .. } => {
                self.check_data(frame, data);
                op.into_iter().for_each(|op| self.finish(op));
            }
            Event::Matched { op, data, .. } => {
                self.check_data(frame, data);
                self.finish(op);
            }
            Event::RecvFailed { op, .. }
            | Event::SendDone { op, .. }
            | Event::RemoteDone { op, .. } => self.finish(op),
            Event::Discard { held } => self.core.release(held),
            Event::Pull { transfer, .. } => self.core.pull_done(transfer, false),
            _ => {}
        }
    }

    fn check_data(&mut self, frame: &[u8], data: Data) {
        match data {
            Data::Frame(range) => assert!(frame.get(range).is_some()),
            Data::Held(held) => {
                assert!(self.core.held(held).len() <= 64 * 1024);
                self.core.release(held);
            }
            Data::Placed => {}
        }
    }
}

impl Pair {
    fn new(kind: u8) -> Pair {
        let limits = limits(kind);
        let now = Instant::from_nanos(1);
        let mut ends = [0, 1].map(|rank| End::new(rank, &limits));
        ends[0].core.connect(now, PeerId(1));
        let mut pair = Pair {
            now,
            ends,
            wire: Vec::new(),
            limits,
        };
        // Most inputs should test open sessions; bit 7 leaves the opening to the input.
        if kind < 128 {
            pair.calm(8);
        }
        pair
    }

    /// Delivers all frames for some rounds.
    fn calm(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.transmit(0, 64);
            self.transmit(1, 64);
            for (to, link, frame) in std::mem::take(&mut self.wire) {
                self.arrive(to, link, &frame);
            }
            self.pass(Duration::from_micros(100));
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let action = input.byte();
        let at = usize::from(action >> 7);
        match action & 0x1f {
            0..4 => self.send(at, input),
            4 => self.send_rendezvous(at, input),
            5 | 6 => self.post(at, input),
            7 => self.withdraw(at, input),
            8..12 => self.transmit(at, 1 + usize::from(input.byte() & 15)),
            12..20 => self.deliver(input),
            20 => self.lose(input),
            21 => self.double(input),
            22 | 23 => self.tamper(input),
            24 => self.invent(at, input),
            25..28 => self.pass(Duration::from_micros(u64::from(input.short()))),
            28 => self.pass(Duration::from_millis(u64::from(input.byte()))),
            29 => self.calm(2),
            30 => self.give_up(at, input),
            _ => {
                let (peer, len) = (PeerId(1 - u32::from(at == 1)), usize::from(input.short()));
                self.ends[at].core.shrink_path(peer, LINKS[at], len);
            }
        }
        self.check();
    }

    fn other(at: usize) -> PeerId {
        PeerId(u32::from(at == 0))
    }

    fn spec(input: &mut Input<'_>) -> SendSpec {
        let kind = input.byte();
        let match_bits = MatchBits {
            space: if kind & 1 == 0 {
                Space::Tagged
            } else {
                Space::Plain
            },
            tag: u64::from(kind >> 4 & 3) * u64::from(kind & 1 == 0),
            imm: (kind & 2 == 0).then_some(7),
        };
        SendSpec {
            to: match kind & 0xc {
                0 => match_bits.into(),
                _ => PortId::user(u16::from(kind >> 2 & 3)).into(),
            },
            lane: LaneId::ALL[usize::from(kind >> 6 & 1)],
            best_effort: kind >> 7 == 1,
        }
    }

    fn send(&mut self, at: usize, input: &mut Input<'_>) {
        let spec = Pair::spec(input);
        let len = usize::from(input.short()) % 20_000;
        let bytes = vec![1; len];
        if let Ok(mut staging) = self.ends[at].core.eager(Pair::other(at), &spec, len) {
            staging.push(&bytes);
        }
    }

    fn send_rendezvous(&mut self, at: usize, input: &mut Input<'_>) {
        let spec = Pair::spec(input);
        let len = 1 + usize::from(input.short());
        let end = &mut self.ends[at];
        let Some(op) = end.make_op(len) else { return };
        let sent = end.core.rendezvous(
            Instant::default(),
            Pair::other(at),
            &spec,
            op,
            len as u64,
            0,
        );
        if sent.is_err() {
            end.memory.remove(&op.0);
        }
    }

    fn post(&mut self, at: usize, input: &mut Input<'_>) {
        let kind = input.byte();
        let len = usize::from(input.short());
        let end = &mut self.ends[at];
        let Some(op) = end.make_op(len) else { return };
        let source = (kind & 1 == 0).then(|| Pair::other(at));
        if kind & 2 == 0 {
            let port = PortId::user(u16::from(kind >> 2 & 3));
            end.core.post_recv(port, op, len as u64, source);
        } else {
            let selector = Selector {
                space: if kind & 4 == 0 {
                    Space::Tagged
                } else {
                    Space::Plain
                },
                tag: u64::from(kind >> 4 & 3) * u64::from(kind & 4 == 0),
                ignore: u64::from(kind >> 6),
                source,
            };
            end.core.post_tagged(&selector, op, len as u64);
        }
        end.drain(&[]);
    }

    fn withdraw(&mut self, at: usize, input: &mut Input<'_>) {
        let end = &mut self.ends[at];
        let nth = input.below(end.memory.len());
        let Some(&op) = end.memory.keys().nth(nth) else {
            return;
        };
        let ports = [0, 1, 2, 3].map(PortId::user);
        let withdrawn = ports
            .iter()
            .any(|port| end.core.cancel_recv(*port, OpId(op)));
        if withdrawn || end.core.cancel_tagged(OpId(op)) {
            end.finish(OpId(op));
        }
    }

    fn transmit(&mut self, at: usize, count: usize) {
        for _ in 0..count {
            let End { core, memory, .. } = &mut self.ends[at];
            let Some(transmit) = core.poll_transmit(self.now) else {
                break;
            };
            let (_, link) = transmit.destination();
            let mut payload = Vec::new();
            for part in transmit.payload() {
                let off = usize::try_from(part.off).expect("an offset");
                payload.extend_from_slice(&memory[&part.op.0][off..off + part.len]);
            }
            let frames = transmit.frames(&payload);
            let room = WIRE_MAX.saturating_sub(self.wire.len());
            let frames = frames.into_iter().take(room);
            self.wire.extend(frames.map(|frame| (1 - at, link, frame)));
        }
        self.ends[at].drain(&[]);
    }

    fn arrive(&mut self, to: usize, link: LinkId, frame: &[u8]) {
        self.ends[to].core.handle_frame(self.now, link, frame);
        self.ends[to].drain(frame);
    }

    fn deliver(&mut self, input: &mut Input<'_>) {
        // Mostly in order.
        let how = input.byte();
        let at = match how {
            0..200 => 0,
            _ => input.below(self.wire.len()),
        };
        if at < self.wire.len() {
            let (to, link, frame) = self.wire.remove(at);
            self.arrive(to, link, &frame);
            if how & 3 == 3 {
                self.ends[to].core.note_marked(link, &frame, 1);
            }
        }
    }

    fn lose(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.wire.len());
        if at < self.wire.len() {
            self.wire.remove(at);
        }
    }

    fn double(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.wire.len());
        if let Some((to, link, frame)) = self.wire.get(at).cloned() {
            self.arrive(to, link, &frame);
        }
    }

    /// Changes bytes of a frame, mostly of its headers, before it arrives.
    fn tamper(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.wire.len());
        if at >= self.wire.len() {
            return;
        }
        let (to, link, mut frame) = self.wire.remove(at);
        // After the token, because a changed token would only be unknown.
        let place = 16 + input.below(frame.len().saturating_sub(16).min(64));
        let count = 1 + usize::from(input.byte() & 7);
        for (byte, with) in frame.iter_mut().skip(place).zip(input.take(count)) {
            *byte ^= with;
        }
        if input.byte() & 3 == 0 {
            let len = 1 + input.below(frame.len());
            frame.truncate(len);
            if len >= 4 {
                // Adjust the length field, or only the wrong length would be detected.
                frame[2..4].copy_from_slice(&u16::try_from(len).unwrap_or(0).to_le_bytes());
            }
        }
        self.arrive(to, link, &frame);
    }

    /// Forges a frame, with the header of a frame in flight if there is one.
    fn invent(&mut self, at: usize, input: &mut Input<'_>) {
        let len = usize::from(input.byte());
        let body = input.take(len);
        let link = LINKS[usize::from(input.byte() & 1)];
        let known = self.wire.iter().find(|(to, ..)| *to == at);
        let mut frame = known.map_or(Vec::new(), |(_, _, frame)| frame[..16].to_vec());
        frame.extend_from_slice(body);
        if frame.len() >= 4 {
            let len = u16::try_from(frame.len()).unwrap_or(0);
            frame[2..4].copy_from_slice(&len.to_le_bytes());
        }
        self.arrive(at, link, &frame);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for end in &mut self.ends {
            if end.core.poll_timeout() <= self.now {
                end.core.handle_timeout(self.now);
            }
            end.drain(&[]);
        }
    }

    fn give_up(&mut self, at: usize, input: &mut Input<'_>) {
        if input.byte() & 1 == 0 {
            self.ends[at].core.fail_peer(Pair::other(at), Cause::Closed);
        }
        self.ends[at].core.connect(self.now, Pair::other(at));
        self.ends[at].drain(&[]);
    }

    fn check(&self) {
        for end in &self.ends {
            let (slots, held_len, _) = end.core.usage();
            // As in the simulator: one credit's worth per lane, where an empty message is charged
            // 32 bytes and held in less than 128, plus messages waiting without their credit; per
            // path a window and the frames waiting behind it.
            let held_max = 2 * self.limits.credit_len as usize * 4 + self.limits.held_len_max;
            let per_path = self.limits.unacked_frames_max() + 3 * 64 + 16;
            assert!(held_len <= held_max, "{held_len} bytes held");
            assert!(slots <= LinkId::COUNT * per_path, "{slots} frame buffers");
        }
    }

    /// Checks that all memory is returned after the peers have failed.
    fn end(&mut self) {
        for at in [0, 1] {
            let end = &mut self.ends[at];
            end.core.fail_peer(Pair::other(at), Cause::Closed);
            end.drain(&[]);
            while end.core.poll_transmit(self.now).is_some() {}
            let (slots, _, transfers) = end.core.usage();
            assert_eq!(
                (slots, transfers),
                (0, 0),
                "frame buffers and transfers are left"
            );
        }
    }
}
