// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenes of remote memory between the ranks of a job.

use crate::common::payload::{check, mixed_len, payload};
use portolan::{
    Access, AtomicOp, Datatype, Error, Lane, Node, PortConfig, Region, Registration, RemoteFault,
    RemoteKey, RemoteTarget, Target,
};

pub(crate) type Scene = fn(&mut Node);

pub(crate) const ALL: &[(&str, Scene)] = &[
    ("every length", every_length),
    ("a message behind a put", message_behind),
    ("many at once", many_at_once),
    ("notices", notices),
    ("counters", counters),
    ("locks", locks),
    ("atomic arrays", atomic_arrays),
    ("what is not open", not_open),
];

/// Lengths around all limits: of frames, of eager operations, of chunks.
const LENS: &[usize] = &[
    0, 1, 8, 200, 1_400, 1_472, 4_096, 16_384, 16_385, 65_536, 65_537, 1_000_000,
];
const REGION_LEN: usize = 2 << 20;

fn next(node: &Node) -> u32 {
    (node.rank() + 1) % node.size()
}

fn previous(node: &Node) -> u32 {
    (node.rank() + node.size() - 1) % node.size()
}

fn index_of(index: usize) -> u32 {
    u32::try_from(index).unwrap()
}

/// Registers a region for the previous rank, and receives the key of the next rank's region.
fn exchange(node: &mut Node, port: u16, access: Access) -> (Registration, RemoteKey) {
    node.open(port, PortConfig::default()).unwrap();
    let region = node
        .register(Region::new(REGION_LEN).unwrap(), access)
        .unwrap();
    let key = region.key().to_bytes();
    node.send(Target::new(previous(node), port), &key).unwrap();
    let mut bytes = [0; 8];
    node.recv_from(next(node), port, &mut bytes).unwrap();
    (region, RemoteKey::from_bytes(bytes))
}

/// Deregisters a region that no rank uses, and returns its memory.
fn end(node: &mut Node, region: Registration) -> Vec<u8> {
    node.barrier().unwrap();
    node.deregister(region).into_vec()
}

/// Puts data and gets it back, blocking and non-blocking.
fn every_length(node: &mut Node) {
    let (region, key) = exchange(node, 10, Access::BOTH);
    let (own, to) = (node.rank(), next(node));
    for (index, &len) in LENS.iter().enumerate() {
        let (off, index) = (3 * index as u64, index_of(index));
        let bytes = payload(own, 0, index, len);
        let at = RemoteTarget::new(to, key, off);
        node.put(at, &bytes).unwrap();
        let mut back = vec![0xa5; len + 3];
        node.get(at, &mut back[..len]).unwrap();
        check(&back[..len], own, 0, index, len);
        assert_eq!(back[len..], [0xa5; 3], "bytes behind were touched");

        let put = node.iput(at, payload(own, 1, index, len)).unwrap();
        let get = node.iget(at.lane(Lane::Low), vec![0; len]).unwrap();
        let done = node.wait(put).unwrap();
        assert_eq!((done.len, done.source), (len, to));
        // Two transfers of the same bytes are not ordered; shorter operations are.
        let done = node.wait(get).unwrap();
        if len <= 16_384 {
            check(&done.buffer.unwrap(), own, 1, index, len);
        }
    }
    let memory = end(node, region);
    let (from, last) = (previous(node), LENS.len() - 1);
    let place = &memory[3 * last..][..LENS[last]];
    // The earlier puts lie within it, and were overwritten except for their first bytes.
    check(place, from, 1, index_of(last), LENS[last]);
}

/// A message after a put reports that the put is in place, without a wait for its completion.
fn message_behind(node: &mut Node) {
    let (region, key) = exchange(node, 11, Access::WRITE);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    for index in 0..100 {
        let len = mixed_len(index) + 1;
        let bytes = payload(own, 2, index, len);
        let put = node.iput(RemoteTarget::new(to, key, 5), bytes).unwrap();
        node.send(Target::new(to, 11), &index.to_le_bytes())
            .unwrap();
        let mut got = [0; 4];
        node.recv_from(from, 11, &mut got).unwrap();
        assert_eq!(u32::from_le_bytes(got), index);
        check(&node.registered(&region)[5..5 + len], from, 2, index, len);
        node.wait(put).unwrap();
        // The next put may arrive only after this one was checked.
        node.barrier().unwrap();
    }
    end(node, region);
}

/// Starts more operations than credit and frames allow, in both directions at once.
fn many_at_once(node: &mut Node) {
    const COUNT: u32 = 300;
    const SLOT: usize = 4_000;
    let (region, key) = exchange(node, 12, Access::BOTH);
    let (own, to) = (node.rank(), next(node));
    let at = |index: u32| RemoteTarget::new(to, key, u64::from(index) * SLOT as u64);
    let len = |index: u32| mixed_len(index) % SLOT;
    let puts: Vec<_> = (0..COUNT)
        .map(|index| {
            let bytes = payload(own, 3, index, len(index));
            node.iput(at(index), bytes).unwrap()
        })
        .collect();
    let gets: Vec<_> = (0..COUNT)
        .map(|index| node.iget(at(index), vec![0; len(index)]).unwrap())
        .collect();
    for put in puts {
        node.wait(put).unwrap();
    }
    for (index, get) in (0..COUNT).zip(gets) {
        let got = node.wait(get).unwrap().buffer.unwrap();
        check(&got, own, 3, index, len(index));
    }
    end(node, region);
}

/// The target is notified of puts that request it, in order.
fn notices(node: &mut Node) {
    let (region, key) = exchange(node, 13, Access::WRITE);
    let (own, to, from) = (node.rank(), next(node), previous(node));
    let lens = [0, 100, 100_000, 7];
    let mut puts = Vec::new();
    for (word, &len) in (70..).zip(&lens) {
        let at = RemoteTarget::new(to, key, word).notify(word);
        let bytes = payload(own, 4, 0, len);
        puts.push(node.iput(at, bytes).unwrap());
    }
    for (word, &len) in (70..).zip(&lens) {
        let notice = node.wait_notice().unwrap();
        assert_eq!((notice.source, notice.word), (from, word));
        assert_eq!((notice.offset, notice.len), (word, len as u64));
        assert_eq!(notice.key, region.key());
    }
    assert_eq!(node.next_notice().unwrap(), None);
    for put in puts {
        node.wait(put).unwrap();
    }
    end(node, region);
}

/// Sends rank 0's key to all ranks.
fn key_of_first(node: &mut Node, region: &Registration) -> RemoteKey {
    let mut bytes = region.key().to_bytes();
    node.broadcast(0, &mut bytes).unwrap();
    RemoteKey::from_bytes(bytes)
}

/// All ranks count at rank 0; each number is returned exactly once.
fn counters(node: &mut Node) {
    const COUNT: u64 = 200;
    let region = node.register(vec![0; 16], Access::BOTH).unwrap();
    let key = key_of_first(node, &region);
    let (at, sum) = (RemoteTarget::new(0, key, 0), RemoteTarget::new(0, key, 8));
    let mut last = None;
    for _ in 0..COUNT {
        let mut before = [0_u64];
        node.fetch_atomic(at, AtomicOp::Sum, &[1], &mut before)
            .unwrap();
        assert!(last < Some(before[0]), "{last:?}, then {before:?}");
        last = Some(before[0]);
        node.atomic(sum, AtomicOp::Sum, &[before[0]]).unwrap();
    }
    node.barrier().unwrap();
    let total = COUNT * u64::from(node.size());
    let mut now = [0_u64; 2];
    node.fetch_atomic(at, AtomicOp::Read, &[], &mut now)
        .unwrap();
    assert_eq!(now, [total, total * (total - 1) / 2]);
    end(node, region);
}

/// A lock by compare-and-swap protects a plain sum.
fn locks(node: &mut Node) {
    let region = node.register(vec![0; 12], Access::BOTH).unwrap();
    let key = key_of_first(node, &region);
    let (lock, sum) = (RemoteTarget::new(0, key, 0), RemoteTarget::new(0, key, 4));
    let own = node.rank() + 1;
    for _ in 0..20 {
        let mut before = [1_u32];
        while before[0] != 0 {
            let swap = [own, 0];
            node.fetch_atomic(lock, AtomicOp::SwapIfEqual, &swap, &mut before)
                .unwrap();
        }
        let mut bytes = [0; 8];
        node.get(sum, &mut bytes).unwrap();
        let next = u64::from_le_bytes(bytes) + 1;
        // Without a wait for the put, because the unlock is ordered after it.
        let put = node.iput(sum, next.to_le_bytes().to_vec()).unwrap();
        node.atomic(lock, AtomicOp::SwapIfEqual, &[0, own]).unwrap();
        node.wait(put).unwrap();
    }
    node.barrier().unwrap();
    let mut bytes = [0; 8];
    node.get(sum, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 20 * u64::from(node.size()));
    end(node, region);
}

/// Uses as many unaligned numbers as one call allows, and makes invalid calls.
fn atomic_arrays(node: &mut Node) {
    let (region, key) = exchange(node, 15, Access::BOTH);
    let at = RemoteTarget::new(next(node), key, 3);
    let ones = [1.5_f64; 512];
    for _ in 0..4 {
        node.atomic(at, AtomicOp::Sum, &ones).unwrap();
    }
    let mut before = [0.0; 512];
    node.fetch_atomic(at, AtomicOp::Max, &[7.0; 512], &mut before)
        .unwrap();
    assert_eq!(before, [6.0; 512]);
    let mut requests = Vec::new();
    for index in 0..100_i32 {
        let bytes = index.to_le_bytes();
        let place = RemoteTarget::new(next(node), key, 10_001);
        let before = Some(vec![0; 4].into());
        let sum = node.iatomic(place, AtomicOp::Sum, Datatype::I32, &bytes, before);
        requests.push(sum.unwrap());
    }
    let mut sum = 0;
    for (index, request) in (0..).zip(requests) {
        let got = node.wait(request).unwrap().buffer.unwrap().into_vec();
        assert_eq!(i32::from_le_bytes(got.try_into().unwrap()), sum, "in order");
        sum += index;
    }
    let refused = |result| matches!(result, Err(Error::Atomic { .. }));
    assert!(refused(node.atomic(at, AtomicOp::Sum, &[0_u64; 513])));
    assert!(refused(node.atomic(at, AtomicOp::BitOr, &[0.0_f32])));
    assert!(refused(node.atomic(at, AtomicOp::SwapIfEqual, &[1_u8; 3])));
    let short = node.fetch_atomic(at, AtomicOp::Sum, &[1, 2_i16], &mut [0; 1]);
    assert!(refused(short));
    let memory = end(node, region);
    assert_eq!(memory[3..11], 7.0_f64.to_le_bytes());
    assert_eq!(memory[10_001..10_005], sum.to_le_bytes());
}

fn fault(result: Result<(), Error>) -> RemoteFault {
    match result {
        Err(Error::RemoteRefused { fault, .. }) => fault,
        other => panic!("not refused: {other:?}"),
    }
}

/// Accesses with a wrong key, out of bounds, without the right, or to a closed region are refused.
fn not_open(node: &mut Node) {
    let (region, key) = exchange(node, 14, Access::READ);
    let to = next(node);
    let mut wrong = key.to_bytes();
    wrong[0] ^= 1;
    let wrong = RemoteTarget::new(to, RemoteKey::from_bytes(wrong), 0);
    let beyond = RemoteTarget::new(to, key, REGION_LEN as u64 - 7);
    for len in [8, 200_000] {
        let mut bytes = vec![1; len];
        assert_eq!(fault(node.put(wrong, &bytes)), RemoteFault::NoSuchKey);
        assert_eq!(fault(node.get(wrong, &mut bytes)), RemoteFault::NoSuchKey);
        assert_eq!(
            fault(node.get(beyond, &mut bytes)),
            RemoteFault::OutOfBounds
        );
        let closed = node.put(RemoteTarget::new(to, key, 0), &bytes);
        assert_eq!(fault(closed), RemoteFault::NotAllowed);
    }
    let drops = node.drops();
    let memory = end(node, region);
    assert!(memory.iter().all(|&byte| byte == 0), "{drops:?}");
    node.barrier().unwrap();
    let closed = node.get(RemoteTarget::new(to, key, 0), &mut [0; 8]);
    assert_eq!(fault(closed), RemoteFault::NoSuchKey);
    let shared: std::sync::Arc<[u8]> = [1; 4].into();
    assert!(matches!(
        node.register(shared, Access::BOTH),
        Err(Error::RegionShared)
    ));
    let nobody = node.put(RemoteTarget::new(node.size(), key, 0), &[]);
    assert!(matches!(nobody, Err(Error::NoSuchRank { .. })));
}
