// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory: puts take effect and gets return current bytes, in order, whatever the wire does.
//! Memory outside open regions is never accessed.

use super::hostile::FrameProbe;
use super::pair::*;
use crate::*;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};
const REGION_LEN: usize = 400_000;
const MS: Duration = Duration::from_millis(1);

/// Lengths around the limits of frames and of operations without a transfer.
const LENS: &[usize] = &[
    0, 1, 64, 200, 1_300, 1_376, 1_440, 4_000, 16_384, 16_385, 65_536, 65_537, 300_000,
];

struct Scene {
    pair: Pair,
    key: u64,
    region: OpId,
}

impl Scene {
    fn new(links: &[LinkId], access: Access) -> Scene {
        Scene::seeded(links, access, 7)
    }

    fn seeded(links: &[LinkId], access: Access, seed: u64) -> Scene {
        let mut pair = Pair::new(links, seed);
        pair.run(50 * MS);
        let region = pair.ends[1].op(vec![0xee; REGION_LEN]);
        let spec = RegionSpec {
            key: None,
            base: 1000,
            len: REGION_LEN as u64,
            access,
        };
        let key = pair.ends[1].core.register(region, &spec).unwrap();
        Scene { pair, key, region }
    }

    fn at(&self, off: usize) -> RemoteSpec {
        RemoteSpec {
            lane: LaneId::Low,
            key: self.key,
            addr: 1000 + off as u64,
            imm: None,
        }
    }

    /// Advances time until something happens.
    fn step(&mut self) {
        let begin = self.pair.now;
        for doubled in 0..16 {
            self.pair.run(MS / 20 * (1 << doubled));
            if self.pair.now > begin {
                return;
            }
        }
    }

    /// Submits until the core accepts.
    fn submit(&mut self, mut submit: impl FnMut(&mut End) -> Result<(), Refused>) {
        for _ in 0..20_000 {
            match submit(&mut self.pair.ends[0]) {
                Err(Refused::Busy) => self.step(),
                result => return result.unwrap(),
            }
        }
        panic!("there was never room");
    }

    fn put(&mut self, spec: &RemoteSpec, bytes: &[u8]) -> OpId {
        let op = self.pair.ends[0].op(bytes.to_vec());
        self.submit(|end| {
            let staging = end.core.put(B, spec, op, bytes.len() as u64, 0)?;
            if let Some(mut staging) = staging {
                staging.push(bytes);
            }
            Ok(())
        });
        op
    }

    fn get(&mut self, spec: &RemoteSpec, len: usize) -> OpId {
        let op = self.pair.ends[0].op(vec![0xa5; len]);
        self.submit(|end| end.core.get(B, spec, op, len as u64));
        op
    }

    fn add(&mut self, spec: &RemoteSpec, operands: &[u8], fetch: bool) -> OpId {
        let op = self.pair.ends[0].op(vec![0xa5; operands.len()]);
        let atomic = AtomicSpec {
            code: 1,
            datatype: 0,
            fetch,
            span: u32::try_from(operands.len()).unwrap(),
        };
        self.submit(|end| {
            let staging = end.core.atomic(B, spec, op, &atomic, operands.len());
            staging.map(|mut staging| staging.push(operands))
        });
        op
    }

    /// Runs until `op` has completed; returns its buffer and its result.
    fn end(&mut self, op: OpId) -> (Vec<u8>, Result<(), OpError>) {
        for _ in 0..20_000 {
            self.step();
            if let Some(result) = self.pair.ends[0].ended.remove(&op.0) {
                return (self.pair.ends[0].memory.remove(&op.0).unwrap(), result);
            }
        }
        panic!("an operation never ended");
    }

    fn fault(&mut self, op: OpId) -> RemoteFault {
        match self.end(op).1 {
            Err(OpError::Remote(B, fault)) => fault,
            other => panic!("{other:?}"),
        }
    }

    fn region(&self) -> &[u8] {
        &self.pair.ends[1].memory[&self.region.0]
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.pair.ends[1].core.counters().drops(reason)
    }

    fn finish(mut self) {
        assert_eq!(
            self.pair.ends[1].core.deregister(self.key),
            Some(self.region)
        );
        self.pair.ends[1].memory.remove(&self.region.0);
        self.pair.run(200 * MS);
        self.pair.assert_clean();
    }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    let byte = |at| u8::try_from((at * 31 + at / 251 + seed) % 251).unwrap();
    (0..len).map(byte).collect()
}

const LINKS: [&[LinkId]; 4] = [
    &[LinkId::SHM],
    &[LinkId::UDP],
    &[LinkId::PACKET],
    &[LinkId::UDP, LinkId::PACKET],
];

#[test]
fn every_length_is_put_and_got() {
    for links in LINKS {
        let mut scene = Scene::new(links, Access::BOTH);
        for (seed, &len) in LENS.iter().enumerate() {
            let (expected, at) = (bytes(len, seed), scene.at(seed));
            let op = scene.put(&at, &expected);
            assert_eq!(scene.end(op).1, Ok(()), "{links:?}: put of {len}");
            assert_eq!(scene.region()[seed..seed + len], expected);
            assert_eq!(scene.region()[seed + len], 0xee, "behind {len} bytes");
            let op = scene.get(&at, len);
            assert_eq!(scene.end(op), (expected, Ok(())), "{links:?}: get of {len}");
            scene.pair.ends[1]
                .memory
                .get_mut(&scene.region.0)
                .unwrap()
                .fill(0xee);
        }
        scene.finish();
    }
}

/// Returns a scene with an open stream.
fn streaming_scene(seed: u64) -> Scene {
    let mut scene = Scene::seeded(&[LinkId::UDP], Access::BOTH, seed);
    for end in &mut scene.pair.ends {
        end.core.shared_mut().ctx.limits_mut().stream = StreamUse::On;
        end.core.set_buffer_len(LinkId::STREAM, 4 << 20);
    }
    scene.pair.open_stream();
    scene
}

// P15.13
#[test]
fn answer_of_a_lone_get_is_pushed() {
    let mut scene = streaming_scene(7);
    let frames = |scene: &Scene| scene.pair.ends[1].core.counters().frames_sent;
    let content = bytes(REGION_LEN, 3);
    scene.pair.ends[1]
        .memory
        .insert(scene.region.0, content.clone());
    for (round, len) in [65_537, 131_072, 262_144, 399_000].into_iter().enumerate() {
        let before = frames(&scene);
        let op = scene.get(&scene.at(round), len);
        assert_eq!(
            scene.end(op),
            (content[round..round + len].to_vec(), Ok(()))
        );
        let counters = scene.pair.ends[0].core.counters();
        assert_eq!(counters.pushes_placed, round as u64 + 1);
        // The parts, and an acknowledgement of the request, of the grant and of the completion.
        let most = if len > 256 << 10 { 6 } else { 3 };
        assert!(
            frames(&scene) <= before + most,
            "{}",
            frames(&scene) - before
        );
    }
    scene.finish();
}

// P15.15
#[test]
fn pushed_answers_survive_the_end_of_their_stream() {
    for seed in 0..100 {
        let mut scene = streaming_scene(seed);
        if seed % 3 == 1 {
            scene.pair.faults.drop = 0.05;
            scene.pair.faults.reorder = 0.05;
        }
        let content = bytes(REGION_LEN, 5);
        scene.pair.ends[1]
            .memory
            .insert(scene.region.0, content.clone());
        let len = [70_000, 262_144, 399_000][usize::try_from(seed % 3).unwrap()];
        let op = scene.get(&scene.at(1), len);
        scene.pair.run(Duration::from_micros(seed % 50));
        scene.pair.leave_stream();
        if seed % 4 == 0 {
            // The other end notices later.
            scene.pair.run(MS);
        }
        let now = scene.pair.now;
        scene.pair.ends[1].core.stream_closed(now, A, true);
        let name = format!("seed {seed}");
        assert_eq!(scene.end(op), (content[1..=len].to_vec(), Ok(())), "{name}");
        scene.pair.faults = Faults::default();
        scene.finish();
    }
}

// P12.7
#[test]
fn region_can_close_while_its_bytes_are_pushed() {
    for delay in 0..40 {
        let mut scene = streaming_scene(delay);
        let op = scene.get(&scene.at(0), 300_000);
        scene.pair.run(Duration::from_micros(delay));
        assert!(scene.pair.ends[1].core.deregister(scene.key).is_some());
        match scene.end(op).1 {
            Ok(()) | Err(OpError::Remote(B, RemoteFault::Closed | RemoteFault::NoSuchKey)) => {}
            other => panic!("after {delay} us: {other:?}"),
        }
        scene.pair.ends[1].memory.remove(&scene.region.0);
        scene.pair.run(200 * MS);
        scene.pair.assert_clean();
    }
}

// P12.2, P12.9
#[test]
fn message_after_a_put_finds_its_data() {
    for links in LINKS {
        for faults in [0.0, 0.05] {
            let mut scene = Scene::new(links, Access::BOTH);
            scene.pair.faults = Faults {
                drop: faults,
                duplicate: faults,
                reorder: faults * 2.0,
                corrupt: 0.0,
            };
            for (round, &len) in LENS.iter().enumerate().skip(1) {
                let (expected, at) = (bytes(len, round), scene.at(0));
                let put = scene.put(&at, &expected);
                let read = scene.get(&at, len.min(16_000));
                let tail = scene.at(len - 1);
                let add = scene.add(&tail, &[1], true);
                scene.pair.ends[0].send(B, &LOW, &[1; 32]).unwrap();
                // After the message the put is visible, also if the message is received late.
                let late = round % 4;
                for step in 0..20_000 {
                    if step == late {
                        scene.pair.ends[1].core.open_port(PORT, PortMode::InPlace);
                    }
                    scene.step();
                    if !scene.pair.ends[1].got.is_empty() {
                        break;
                    }
                }
                let name = format!("{links:?}: the message behind a put of {len}");
                assert_eq!(scene.pair.ends[1].got.len(), 1, "{name}");
                let (last, rest) = scene.region()[..len].split_last().unwrap();
                assert_eq!(rest, &expected[..len - 1], "{name}");
                assert_eq!(*last, expected[len - 1].wrapping_add(1), "{name}");
                scene.pair.ends[1].got.clear();
                scene.pair.ends[1].core.open_port(PORT, PortMode::Posted);
                assert_eq!(scene.end(put).1, Ok(()));
                let (got, result) = scene.end(read);
                assert_eq!((&got[..], result), (&expected[..len.min(16_000)], Ok(())));
                assert_eq!(scene.end(add), (expected[len - 1..].to_vec(), Ok(())));
            }
            scene.pair.faults = Faults::default();
            scene.finish();
        }
    }
}

// P12.3
#[test]
fn unregistered_memory_is_not_accessed() {
    let mut scene = Scene::new(&[LinkId::UDP], Access::BOTH);
    let mut wrong = scene.at(0);
    wrong.key ^= 1;
    for len in [8, 200_000] {
        let op = scene.put(&wrong, &vec![1; len]);
        assert_eq!(scene.fault(op), RemoteFault::NoSuchKey);
        let op = scene.get(&wrong, len);
        assert_eq!(scene.fault(op), RemoteFault::NoSuchKey);
        for at in [scene.at(REGION_LEN - len + 1), scene.at(REGION_LEN)] {
            let op = scene.put(&at, &vec![1; len]);
            assert_eq!(scene.fault(op), RemoteFault::OutOfBounds);
            let op = scene.get(&at, len);
            assert_eq!(scene.fault(op), RemoteFault::OutOfBounds);
        }
        // Below the base, and near the highest address.
        for addr in [0, 999, u64::MAX, u64::MAX - 7] {
            let at = RemoteSpec {
                addr,
                ..scene.at(0)
            };
            let op = scene.put(&at, &vec![1; len]);
            assert_eq!(scene.fault(op), RemoteFault::OutOfBounds);
        }
    }
    let op = scene.add(&wrong, &[1; 8], true);
    assert_eq!(scene.fault(op), RemoteFault::NoSuchKey);
    assert!(scene.region().iter().all(|&byte| byte == 0xee));
    assert_eq!(scene.drops(DropReason::RemoteKey), 5);
    assert_eq!(scene.drops(DropReason::RemoteBounds), 16);
    scene.finish();
}

// P12.3
#[test]
fn access_rights_are_enforced() {
    for (access, may_write, may_read) in [(Access::READ, false, true), (Access::WRITE, true, false)]
    {
        let mut scene = Scene::new(&[LinkId::SHM], access);
        let at = scene.at(3);
        let expected = |may: bool| {
            if may {
                None
            } else {
                Some(RemoteFault::NotAllowed)
            }
        };
        let fault = |result: Result<(), OpError>| match result {
            Err(OpError::Remote(_, fault)) => Some(fault),
            _ => None,
        };
        let put = scene.put(&at, &[1; 100]);
        assert_eq!(fault(scene.end(put).1), expected(may_write));
        let put = scene.put(&at, &vec![1; 100_000]);
        assert_eq!(fault(scene.end(put).1), expected(may_write));
        let get = scene.get(&at, 100);
        assert_eq!(fault(scene.end(get).1), expected(may_read));
        let add = scene.add(&at, &[1; 4], false);
        assert_eq!(fault(scene.end(add).1), expected(may_write));
        let add = scene.add(&at, &[1; 4], true);
        assert_eq!(fault(scene.end(add).1), expected(may_write && may_read));
        let touched = scene.region().iter().any(|&byte| byte != 0xee);
        assert_eq!(touched, may_write);
        scene.finish();
    }
}

#[test]
fn lossy_link_applies_requests_once() {
    for links in &LINKS[1..] {
        let mut scene = Scene::new(links, Access::BOTH);
        scene.pair.faults = Faults {
            drop: 0.1,
            duplicate: 0.1,
            reorder: 0.2,
            corrupt: 0.0,
        };
        let at = scene.at(10);
        let far = scene.at(5_000);
        let mut ops = Vec::new();
        for round in 0..60 {
            ops.push(scene.add(&at, &[1; 100], round % 2 == 0));
            ops.push(scene.put(&far, &bytes(round * 700, round)));
            scene.pair.run(MS / 10);
        }
        for op in ops {
            assert_eq!(scene.end(op).1, Ok(()));
        }
        let sum = 0xee_u8.wrapping_add(60);
        assert!(scene.region()[10..110].iter().all(|&byte| byte == sum));
        assert_eq!(scene.region()[5_000..5_000 + 59 * 700], bytes(59 * 700, 59));
        scene.pair.faults = Faults::default();
        scene.finish();
    }
}

// P12.8
#[test]
fn put_notice_holds_credit_until_taken() {
    for len in [8, 100_000] {
        let mut scene = Scene::new(&[LinkId::UDP], Access::WRITE);
        let mut at = scene.at(1);
        at.imm = Some(0xfeed);
        let op = scene.put(&at, &vec![1; len]);
        scene.end(op).1.unwrap();
        let notice = scene.pair.ends[1].notices.pop().unwrap();
        assert_eq!(
            (notice.peer, notice.imm, notice.len),
            (A, 0xfeed, len as u64)
        );
        assert_eq!((notice.key, notice.addr), (scene.key, at.addr));
        let consumed = |scene: &Scene| {
            let credit = scene.pair.ends[1].core.credit(A, LaneId::Low);
            credit.unwrap().consumed
        };
        assert_eq!(consumed(&scene), 0);
        scene.pair.ends[1].core.notice_taken(&notice);
        assert_eq!(consumed(&scene), if len == 8 { 40 } else { 32 });
        scene.finish();
    }
}

// P12.7
#[test]
fn deregistering_ends_requests_in_flight() {
    for links in [&[LinkId::UDP][..], &[LinkId::SHM]] {
        for gets in [false, true] {
            let mut scene = Scene::new(links, Access::BOTH);
            let at = scene.at(0);
            scene.pair.latency = MS;
            let op = match gets {
                true => scene.get(&at, REGION_LEN),
                false => scene.put(&at, &bytes(REGION_LEN, 1)),
            };
            // The request has arrived, and the first bytes are in flight.
            scene.pair.run(MS * 5 / 2);
            assert!(!scene.pair.ends[0].ended.contains_key(&op.0));
            assert_eq!(
                scene.pair.ends[1].core.deregister(scene.key),
                Some(scene.region)
            );
            scene.pair.ends[1].memory.remove(&scene.region.0);
            assert_eq!(scene.fault(op), RemoteFault::Closed);
            assert_eq!(scene.pair.ends[1].core.deregister(scene.key), None);
            let late = scene.put(&at, &[1; 8]);
            assert_eq!(scene.fault(late), RemoteFault::NoSuchKey);
            // The lane continues.
            scene.pair.ends[1].core.open_port(PORT, PortMode::InPlace);
            scene.pair.ends[0].send(B, &LOW, &[7; 7]).unwrap();
            scene.pair.run(500 * MS);
            assert_eq!(scene.pair.ends[1].got.len(), 1);
            scene.pair.assert_clean();
        }
    }
}

// P5.12, P12.10
#[test]
fn inaccessible_memory_ends_requests_in_flight() {
    for links in [&[LinkId::UDP][..], &[LinkId::SHM]] {
        for (owner, gets) in [(0, false), (0, true), (1, false), (1, true)] {
            let mut scene = Scene::new(links, Access::BOTH);
            let at = scene.at(0);
            scene.pair.latency = MS;
            let op = match gets {
                true => scene.get(&at, REGION_LEN),
                false => scene.put(&at, &bytes(REGION_LEN, 1)),
            };
            // The bytes of a put are read from 2 ms on, those of a get from 3 ms on.
            let is_read_here = owner == 0 && !gets;
            scene
                .pair
                .run(if is_read_here { MS * 3 / 2 } else { MS * 5 / 2 });
            assert!(!scene.pair.ends[0].ended.contains_key(&op.0));
            let memory = [op, scene.region][owner];
            let core = &mut scene.pair.ends[owner].core;
            match gets == (owner == 0) {
                true => assert_eq!(core.fail_writes(memory, &(0..1)), 1),
                false => core.fail_reads(memory, &(0..1)),
            }
            match (owner, gets) {
                // Complete for the core; the engine knows the error.
                (0, true) => assert_eq!(scene.end(op).1, Ok(())),
                _ => assert_eq!(scene.fault(op), RemoteFault::Inaccessible),
            }
            // The lane continues.
            let last = scene.put(&at, &[1; 8]);
            assert_eq!(scene.end(last).1, Ok(()));
            scene.finish();
        }
    }
}

// P12.10
#[test]
fn short_put_into_inaccessible_memory_is_refused() {
    let mut scene = Scene::new(&[LinkId::UDP], Access::BOTH);
    let at = scene.at(0);
    scene.pair.ends[1].refuses_puts = true;
    let op = scene.put(&at, &[1; 8]);
    assert_eq!(scene.fault(op), RemoteFault::Inaccessible);
    scene.pair.ends[1].refuses_puts = false;
    let op = scene.put(&at, &[1; 8]);
    assert_eq!(scene.end(op).1, Ok(()));
    scene.finish();
}

// P9.6
#[test]
fn failed_peer_cancels_its_requests() {
    for (links, len) in [
        (&[LinkId::UDP][..], 100),
        (&[LinkId::UDP], 300_000),
        (&[LinkId::SHM], 300_000),
    ] {
        let mut scene = Scene::new(links, Access::BOTH);
        let at = scene.at(0);
        scene.pair.latency = MS;
        let put = scene.put(&at, &vec![1; len]);
        let get = scene.get(&at, len);
        scene.pair.run(MS * 3 / 2);
        scene.pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
        scene.pair.ends[0].core.fail_peer(B, Cause::ProcessExited);
        let gone = Err(OpError::PeerFailed(B, Cause::ProcessExited));
        assert_eq!(scene.end(put).1, gone);
        assert_eq!(scene.end(get).1, gone);
        let refused = scene.pair.ends[0].core.get(B, &at, OpId(99), 8);
        assert_eq!(refused, Err(Refused::PeerFailed(Cause::ProcessExited)));
        scene.finish();
    }
}

// P3.12
#[test]
fn requests_move_when_their_path_fails_or_narrows() {
    for narrow in [false, true] {
        let mut scene = Scene::new(&[LinkId::UDP, LinkId::PACKET], Access::BOTH);
        let at = scene.at(0);
        let small = scene.pair.ends[0]
            .core
            .path_status(B, LinkId::PACKET)
            .unwrap();
        let by = if small.small {
            LinkId::PACKET
        } else {
            LinkId::UDP
        };
        match narrow {
            true => scene.pair.narrow = Some((by, 700)),
            false => scene.pair.dead = Some(by),
        }
        let mut ops = vec![
            scene.put(&at, &bytes(1_300, 1)),
            scene.put(&at, &bytes(20_000, 2)),
            scene.get(&at, 1_300),
            scene.add(&at, &[1; 1_300], true),
            scene.get(&at, 20_000),
        ];
        let last = ops.pop().unwrap();
        for op in ops {
            assert_eq!(scene.end(op).1, Ok(()), "narrow: {narrow}");
        }
        let (got, result) = scene.end(last);
        let mut expected = bytes(20_000, 2);
        expected[..1_300]
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(1));
        assert_eq!((got, result), (expected, Ok(())));
        scene.pair.narrow = None;
        scene.finish();
    }
}

#[test]
fn region_key_is_unique() {
    let mut scene = Scene::new(&[LinkId::SHM], Access::BOTH);
    let other = scene.pair.ends[1].op(vec![0; 8]);
    let spec = RegionSpec {
        key: Some(42),
        base: 0,
        len: 8,
        access: Access::BOTH,
    };
    let core = &mut scene.pair.ends[1].core;
    assert_eq!(core.register(other, &spec), Some(42));
    assert_eq!(core.register(scene.region, &spec), None);
    assert_eq!(core.deregister(42), Some(other));
    scene.pair.ends[1].memory.remove(&other.0);
    scene.finish();
}

/// Returns a malformed request or answer, often nearly valid; `seq` is its number.
fn mad_record(rng: &mut ChaCha8Rng, seq: u16, late: bool) -> Vec<u8> {
    let len = rng.random_range(0..120_u16);
    let mut record = vec![0; 48 + usize::from(len)];
    rng.fill(&mut record[..]);
    // Transfers and parts that never become complete block their lane forever.
    let kinds: &[u8] = match late {
        true => &[32, 33, 34, 35, 36],
        false => &[32, 32, 34, 35, 36],
    };
    record[0] = kinds[rng.random_range(0..kinds.len())];
    record[1] &= 15;
    record[2] &= 1;
    record[4..6].copy_from_slice(&len.to_le_bytes());
    record[6..8].copy_from_slice(&seq.to_le_bytes());
    if rng.random_bool(0.8) {
        record[1] &= if record[0] == 34 { 9 } else { 7 };
    }
    if !late || rng.random_bool(0.8) {
        let cut = u32::from(late) * rng.random_range(0..3_u32);
        let total = u32::from(len) + cut;
        let span = total + u32::from(rng.random_bool(0.1));
        record[12..16].copy_from_slice(&total.to_le_bytes());
        record[16..20].copy_from_slice(&cut.min(1).to_le_bytes());
        record[20..24].copy_from_slice(&span.to_le_bytes());
        if record[0] == 34 {
            record[16..24].copy_from_slice(&rng.random_range(0..1_100_u64).to_le_bytes());
        }
    }
    if rng.random_bool(0.9) {
        record[24..32].copy_from_slice(&7_u64.to_le_bytes());
    }
    if rng.random_bool(0.9) {
        let addr = (1_u64 << 40) + rng.random_range(0..1_100) - 50;
        record[32..40].copy_from_slice(&addr.to_le_bytes());
    }
    record
}

// P1.7, P12.3
#[test]
fn invalid_requests_stay_within_bounds() {
    let mut pair = Pair::new(&[LinkId::UDP], 3);
    pair.run(50 * MS);
    let region = pair.ends[0].op(vec![0xee; 3_000]);
    let spec = RegionSpec {
        key: Some(7),
        base: 1 << 40,
        len: 1_000,
        access: Access::BOTH,
    };
    pair.ends[0].core.register(region, &spec).unwrap();
    let mut probe = FrameProbe::new(&mut pair);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for round in 0..40_000_u32 {
        // Each number of each lane comes four times, the last time as a request to read nothing.
        // Otherwise a dropped request would leave a gap.
        let seq = u16::try_from(round / 8).unwrap();
        let mut record = mad_record(&mut rng, seq, round > 30_000);
        record[1] = record[1] & 14 | u8::from(round / 4 % 2 == 1);
        if round % 4 == 3 {
            record.truncate(40);
            record[0] = 34;
            record[1] &= 1;
            record[16..24].fill(0);
        }
        let frame = probe.next(&record);
        let now = pair.now;
        let end = &mut pair.ends[0];
        end.core.handle_frame(now, LinkId::UDP, &frame);
        end.drain(&frame);
        for notice in core::mem::take(&mut end.notices) {
            end.core.notice_taken(&notice);
        }
        if round % 16 == 0 {
            pair.run(MS);
        }
    }
    let end = &pair.ends[0];
    assert!(
        end.memory[&region.0][1_000..]
            .iter()
            .all(|&byte| byte == 0xee)
    );
    assert!(
        end.memory[&region.0][..1_000]
            .iter()
            .any(|&byte| byte != 0xee)
    );
    let counters = end.core.counters();
    assert!(counters.remote_requests > 1_000, "{counters:?}");
    for reason in [
        DropReason::RemoteKey,
        DropReason::RemoteBounds,
        DropReason::BadFragment,
        DropReason::StaleTransfer,
    ] {
        assert!(counters.drops(reason) > 0, "{}", reason.name());
    }
    let (slots, held_len, transfers) = end.core.usage();
    assert!(held_len <= 2 * 256 * 1024 * 8, "{held_len} bytes held");
    assert!(slots < 1_000 && transfers < 70_000, "{slots} {transfers}");
    assert_eq!(end.core.peer_status(B), PeerStatus::Up);
}

// P2.15
#[test]
fn closing_process_serves_no_requests_and_waits_for_no_replies() {
    for links in LINKS {
        for len in [8, 1_300, 70_000] {
            let mut scene = Scene::new(links, Access::BOTH);
            let at = scene.at(0);
            scene.pair.ends[1].core.stop_serving();
            let ops = [
                scene.put(&at, &bytes(len, 1)),
                scene.get(&at, len),
                scene.add(&at, &[1; 8], true),
            ];
            scene.pair.run(200 * MS);
            let what = format!("{links:?}, {len} bytes");
            assert!(scene.pair.ends[0].ended.is_empty(), "{what}");
            assert!(scene.region().iter().all(|&byte| byte == 0xee), "{what}");
            assert!(!scene.pair.ends[1].core.has_unfinished(), "{what}");
            scene.pair.ends[0].core.fail_peer(B, Cause::ProcessExited);
            scene.pair.ends[0].drain(&[]);
            for op in ops {
                let ended = scene.pair.ends[0].ended.remove(&op.0);
                assert_eq!(
                    ended,
                    Some(Err(OpError::PeerFailed(B, Cause::ProcessExited))),
                    "{what}"
                );
            }
        }
    }
}
