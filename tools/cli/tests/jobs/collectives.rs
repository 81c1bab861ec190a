// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of failing collective operations: every member's call ends with an error that names the
//! cause.

use crate::common::ranks::{joined, role};
use portolan::{Error, Group, Lane, Node, Operator, ReduceOp, Target};

ranks_of_this_module!(run_ranks);

/// Collective calls of a member.
#[derive(Clone, Copy, Debug)]
enum Call {
    Barrier,
    BeginBarrier,
    Broadcast(u32, usize),
    BeginBroadcast(u32, usize),
    Allreduce(ReduceOp, usize),
    AllreduceSigned(usize),
    Reduce(u32, usize),
    Allgather(usize),
    Gather(u32, usize),
    Alltoall(usize),
    Scan(usize),
}

use Call::*;

const PORT: u16 = 1;

/// Longer than any eager message.
const LONG: usize = 300_000;

/// Several blocks of a chain and one byte.
const MUCH: usize = 7_000_001;

/// Call of rank 0, call of all other ranks, and words that every member's error must contain.
const PAIRS: &[(Call, Call, [&str; 2])] = &[
    (
        Allreduce(ReduceOp::Sum, 1),
        Allreduce(ReduceOp::Sum, 2),
        ["rank 0 allreduce (Sum of u64) of 8 bytes", "of 16 bytes"],
    ),
    (
        Allreduce(ReduceOp::Sum, LONG),
        Allreduce(ReduceOp::Sum, 2),
        ["rank 0", "of 16 bytes"],
    ),
    (
        Allreduce(ReduceOp::Sum, 1),
        Allreduce(ReduceOp::Max, 1),
        ["Sum of u64", "Max of u64"],
    ),
    (
        Allreduce(ReduceOp::Sum, 1),
        AllreduceSigned(1),
        ["Sum of u64", "Sum of i64"],
    ),
    (
        Barrier,
        Allreduce(ReduceOp::Sum, 1),
        ["rank 0 barrier", "allreduce"],
    ),
    (
        Allreduce(ReduceOp::Sum, LONG),
        Barrier,
        ["rank 0 allreduce", "barrier"],
    ),
    (
        BeginBarrier,
        Broadcast(1, 8),
        ["rank 0 barrier", "broadcast"],
    ),
    (
        Broadcast(0, 8),
        Broadcast(0, 4),
        ["rank 0 broadcast of 8 bytes", "of 4 bytes"],
    ),
    (
        Broadcast(0, LONG),
        Broadcast(0, 4),
        ["of 300000 bytes", "of 4 bytes"],
    ),
    (
        Broadcast(0, 4),
        Broadcast(0, LONG),
        ["of 300000 bytes", "of 4 bytes"],
    ),
    (
        BeginBroadcast(0, LONG),
        BeginBroadcast(0, 8),
        ["of 300000 bytes", "of 8 bytes"],
    ),
    (
        BeginBroadcast(0, 8),
        BeginBroadcast(0, LONG),
        ["of 300000 bytes", "of 8 bytes"],
    ),
    // Each of these waits for the other, or sends to it.
    (
        Broadcast(1, 8),
        Broadcast(0, 8),
        ["from member 1", "from member 0"],
    ),
    (
        Broadcast(0, 8),
        Broadcast(1, 8),
        ["from member 0", "from member 1"],
    ),
    (
        Broadcast(0, LONG),
        Broadcast(1, LONG),
        ["from member 0", "from member 1"],
    ),
    (
        BeginBroadcast(1, 8),
        BeginBroadcast(0, LONG),
        ["from member 1", "from member 0"],
    ),
    (Reduce(0, 2), Reduce(1, 2), ["to member 0", "to member 1"]),
    (
        Reduce(0, 2),
        Reduce(0, LONG),
        ["of 16 bytes", "of 2400000 bytes"],
    ),
    (
        Broadcast(0, MUCH),
        Broadcast(0, 4),
        ["rank 0 broadcast of 7000001 bytes", "of 4 bytes"],
    ),
    (
        Broadcast(0, MUCH),
        Broadcast(1, MUCH),
        ["from member 0", "from member 1"],
    ),
    (
        Broadcast(0, MUCH),
        Broadcast(0, MUCH - 1),
        ["of 7000001 bytes", "of 7000000 bytes"],
    ),
    (
        Allgather(1),
        Allgather(2),
        ["rank 0 allgather", "allgather"],
    ),
    (
        Allgather(LONG),
        Allgather(1),
        ["rank 0 allgather", "allgather"],
    ),
    (Allgather(1), Alltoall(1), ["rank 0 allgather", "alltoall"]),
    (Gather(0, 1), Gather(1, 1), ["to member 0", "to member 1"]),
    (
        Gather(1, LONG),
        Gather(1, 1),
        ["of 2400000 bytes", "gather of 8 bytes"],
    ),
    (
        Scan(2),
        Scan(3),
        ["scan (Sum of u64) of 16 bytes", "of 24 bytes"],
    ),
    (Scan(LONG), Barrier, ["rank 0 scan", "barrier"]),
];

fn make(node: &mut Node, group: &Group, call: Call) -> Result<(), Error> {
    let size = group.size() as usize;
    match call {
        Barrier => group.barrier(node),
        BeginBarrier => {
            let barrier = group.ibarrier(node)?;
            while node.test(barrier)?.is_none() {}
            Ok(())
        }
        Broadcast(root, len) => group.broadcast(node, root, &mut vec![0; len]),
        BeginBroadcast(root, len) => {
            let broadcast = group.ibroadcast(node, root, vec![0; len])?;
            while node.test(broadcast)?.is_none() {}
            Ok(())
        }
        Allreduce(op, len) => group.allreduce(node, op, &mut vec![1_u64; len]),
        AllreduceSigned(len) => group.allreduce(node, ReduceOp::Sum, &mut vec![1_i64; len]),
        Reduce(root, len) => group.reduce(node, root, ReduceOp::Sum, &mut vec![1_u64; len]),
        Allgather(len) => group.allgather(node, &vec![1_u64; len], &mut vec![0; size * len]),
        Alltoall(len) => group.alltoall(node, &vec![1_u64; size * len], &mut vec![0; size * len]),
        Gather(root, len) => {
            let mut all = vec![0; if group.rank() == root { size * len } else { 0 }];
            group.gather(node, root, &vec![1_u64; len], &mut all)
        }
        Scan(len) => {
            let sum = Operator::new::<u64>(ReduceOp::Sum);
            group.scan(node, sum, &mut vec![1_u64; len])
        }
    }
}

/// Calls `call` and then barriers, because a member that does not wait gets the error later.
/// Returns the error.
fn until_refused(node: &mut Node, group: &Group, call: Call) -> Error {
    let calls = std::iter::once(call).chain([Barrier; 4]);
    let mut failures = calls.filter_map(|call| make(node, group, call).err());
    failures
        .next()
        .unwrap_or_else(|| panic!("{call:?} was never refused"))
}

fn mismatches(node: &mut Node) {
    let all: Vec<u32> = (0..node.size()).collect();
    for (id, &(first, others, words)) in (1..).zip(PAIRS) {
        let group = Group::new(node, id, &all).unwrap();
        let call = if node.rank() == 0 { first } else { others };
        println!("\n{id}: {call:?}");
        let error = until_refused(node, &group, call);
        let message = error.to_string();
        assert!(matches!(error, Error::CollectiveMismatch(_)), "{message}");
        assert!(
            words.iter().all(|word| message.contains(word)),
            "{words:?}: {message}"
        );
        let again = group.barrier(node).unwrap_err().to_string();
        assert_eq!(again, message, "the group can be used again");
        // Other groups are not affected.
        node.barrier().unwrap();
    }
}

/// One member calls a broadcast with a different root, and the members then exchange plain
/// messages. The member that waits in the broadcast queries those that have already left it.
fn roots(node: &mut Node) {
    let (own, size) = (node.rank(), node.size());
    let all: Vec<u32> = (0..size).collect();
    for (id, len) in [(1, 8), (2, 5_000), (3, LONG)] {
        // All but the last member agree. The last one waits for a message that is never sent.
        let group = Group::new(node, id, &all).unwrap();
        let call = Broadcast(u32::from(own == size - 1), len);
        let failed = make(node, &group, call).err();
        if own == size - 1 {
            let message = failed.expect("it cannot end well").to_string();
            assert!(
                message.contains("from member 0") && message.contains("from member 1"),
                "{message}"
            );
            for rank in 0..size - 1 {
                node.send(Target::new(rank, PORT), b"told").unwrap();
            }
        } else {
            node.recv_from(size - 1, PORT, &mut [0; 4]).unwrap();
            let error = until_refused(node, &group, Barrier);
            assert!(matches!(error, Error::CollectiveMismatch(_)), "{error}");
        }
        node.barrier().unwrap();
    }
}

/// Makes every member the root of a broadcast, so that none waits; each closes with its error.
fn all_roots(mut node: Node) {
    let (own, size) = (node.rank(), node.size());
    // Messages of other members may have arrived by then.
    let at_once = node.broadcast(own, &mut [1; 8]).err();
    // These messages follow the members' broadcasts in the same lane.
    for rank in (0..size).filter(|rank| *rank != own) {
        let target = Target::new(rank, PORT).lane(Lane::High);
        node.send(target, b"done").unwrap();
    }
    for rank in (0..size).filter(|rank| *rank != own) {
        node.recv_from(rank, PORT, &mut [0; 4]).unwrap();
    }
    let late = node.close().err();
    let error = at_once.or(late).expect("nobody took what was broadcast");
    assert!(matches!(error, Error::CollectiveMismatch(_)), "{error}");
}

/// Creates groups with equal ids but another order of members, or other members, at one rank.
fn orders(node: &mut Node) {
    let own: u32 = node.rank();
    let all: Vec<u32> = (0..node.size()).collect();
    let mut other = all.clone();
    other.swap(0, 1);
    let calls = [
        Barrier,
        Broadcast(0, 8),
        Broadcast(0, LONG),
        BeginBroadcast(1, LONG),
        Allreduce(ReduceOp::Sum, 1),
        Reduce(0, 1),
    ];
    for (id, call) in (1..).zip(calls) {
        println!("\n{id}: {call:?}");
        let ranks = if own == 0 { &other } else { &all };
        let group = Group::new(node, id, ranks).unwrap();
        let error = until_refused(node, &group, call);
        let message = error.to_string();
        assert!(matches!(error, Error::CollectiveMismatch(_)), "{message}");
        let words = ["rank 0", "other members, or the same in another order"];
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        node.barrier().unwrap();
    }
    if node.size() > 2 {
        // The first two members, and all: a rank that is no member for other ranks must be
        // reported, too.
        let ranks = if own < 2 { &all[..2] } else { &all };
        let group = Group::new(node, 100, ranks).unwrap();
        let call = if own < 2 {
            Broadcast(0, 8)
        } else {
            Broadcast(1, 8)
        };
        let failed = match own {
            0 | 1 => make(node, &group, call).and_then(|()| node.barrier()).err(),
            _ => Some(until_refused(node, &group, call)),
        };
        assert_eq!(failed.is_some(), own > 1, "{failed:?}");
        if own > 1 {
            node.barrier().unwrap();
        }
        let error = until_refused(node, &group, Barrier);
        assert!(matches!(error, Error::CollectiveMismatch(_)), "{error}");
    }
}

/// Runs two operations at once in one group, started in the same order and completed in the reverse
/// one; a third one is refused if it blocks, and queued otherwise.
fn two_at_once(node: &mut Node) {
    let all = Group::all(node);
    for len in [8, LONG] {
        let bytes = vec![u8::from(node.rank() == 0); len];
        let broadcast = all.ibroadcast(node, 0, bytes).unwrap();
        let barrier = all.ibarrier(node).unwrap();
        node.wait(barrier).unwrap();
        let done = node.wait(broadcast).unwrap();
        assert!(done.buffer.unwrap().iter().all(|&byte| byte == 1));
    }
    // All other ranks begin nothing before the last operation is refused.
    if node.rank() > 0 {
        node.recv_from(0, PORT, &mut []).unwrap();
    }
    let mut requests = vec![node.ibarrier().unwrap(), node.ibarrier().unwrap()];
    for number in 0..6_u64 {
        // Half of them are short. All are begun in order, and completed in any.
        let len = if number % 2 == 0 { 1 } else { LONG };
        requests.push(node.iallreduce(ReduceOp::Max, vec![number; len]).unwrap());
    }
    if node.rank() == 0 {
        let refused = node.barrier().unwrap_err();
        assert!(
            matches!(refused, Error::GroupBusy { group: 0 }),
            "{refused}"
        );
        for rank in 1..node.size() {
            node.send(Target::new(rank, PORT), &[]).unwrap();
        }
    }
    for number in (0..6_u64).rev() {
        let maxima = node.wait(requests.pop().unwrap()).unwrap();
        let maxima: Vec<u64> = maxima.into_vec().unwrap();
        assert!(maxima.iter().all(|maximum| *maximum == number));
    }
    for result in node.wait_all(requests) {
        result.unwrap();
    }
}

/// Runs all non-blocking collectives. They advance while the process waits for a message that the
/// other processes send after their own end.
fn advance_in_other_calls(node: &mut Node) {
    let (own, size) = (node.rank(), node.size());
    for len in [0, 8, LONG] {
        let sums = node
            .iallreduce(ReduceOp::Sum, vec![f64::from(own); len])
            .unwrap();
        let bytes = vec![u8::from(own == size - 1); len];
        let broadcast = node.ibroadcast(size - 1, bytes).unwrap();
        let mut requests = vec![sums, broadcast];
        if own == 0 {
            for rank in 1..size {
                node.recv_from(rank, PORT, &mut []).unwrap();
            }
        }
        while let Some(ended) = node.wait_any(&mut requests) {
            let completion = ended.result.unwrap();
            if ended.request == sums {
                let expected = f64::from(size * (size - 1) / 2);
                let sums: Vec<f64> = completion.into_vec().unwrap();
                assert_eq!(sums, vec![expected; len]);
            } else {
                assert!(completion.buffer.unwrap().iter().all(|&byte| byte == 1));
            }
        }
        if own > 0 {
            node.send(Target::new(0, PORT), &[]).unwrap();
        }
        let max = node.ireduce(0, ReduceOp::Max, vec![own; len]).unwrap();
        let max: Vec<u32> = node.wait(max).unwrap().into_vec().unwrap();
        if own == 0 {
            assert_eq!(max, vec![size - 1; len]);
        }
        let barrier = node.ibarrier().unwrap();
        let ended = loop {
            let timeout = std::time::Duration::from_micros(10);
            if let Some(ended) = node.wait_any_timeout(&mut vec![barrier], timeout) {
                break ended;
            }
        };
        assert_eq!(ended.index, 0);
        ended.result.unwrap();
    }
}

/// Broadcasts all lengths from all members, in groups of any order.
fn casts(node: &mut Node) {
    let size = node.size();
    let backwards: Vec<u32> = (0..size).rev().collect();
    let groups = [Group::all(node), Group::new(node, 3, &backwards).unwrap()];
    for (group, root) in groups
        .iter()
        .flat_map(|it| (0..size).map(move |root| (it, root)))
    {
        // Empty, within the head, exactly a block, and slightly more.
        for len in [0, 1, 992, 993, 1 << 20, (1 << 20) + 1, MUCH] {
            let fill = |seed: u32| -> Vec<u8> {
                let words = (0..).map(|at: u32| (at ^ seed).wrapping_mul(0x9e37_79b1));
                words.flat_map(u32::to_be_bytes).take(len).collect()
            };
            let seed = root + 77 * u32::try_from(len).unwrap();
            let is_root = group.rank() == root;
            let mut bytes = if is_root { fill(seed) } else { vec![0xa5; len] };
            group.broadcast(node, root, &mut bytes).unwrap();
            assert!(bytes == fill(seed), "{len} bytes from {root}");
        }
    }
    node.barrier().unwrap();
}

/// Lets rank 1 die while other ranks are in an operation; some of them wait for other ranks.
fn death(node: &mut Node) {
    node.barrier().unwrap();
    // No rank may still be in the barrier at the death, or the barrier would report it, too.
    if node.rank() == 1 {
        for _ in 1..node.size() {
            node.recv(PORT, &mut [0]).unwrap();
        }
        std::process::abort();
    }
    node.send(Target::new(1, PORT), b"x").unwrap();
    let all: Vec<u32> = (0..node.size()).collect();
    let group = Group::new(node, 7, &all).unwrap();
    for group in [Group::all(node), group] {
        let error = until_refused(node, &group, Allreduce(ReduceOp::Sum, 4));
        assert!(matches!(error, Error::PeerGone { rank: 1, .. }), "{error}");
        let again = until_refused(node, &group, BeginBroadcast(1, LONG));
        assert!(matches!(again, Error::PeerGone { rank: 1, .. }), "{again}");
        let again = until_refused(node, &group, Allgather(LONG));
        assert!(matches!(again, Error::PeerGone { rank: 1, .. }), "{again}");
        let again = until_refused(node, &group, Broadcast(0, MUCH));
        assert!(matches!(again, Error::PeerGone { rank: 1, .. }), "{again}");
    }
    println!("\ntold of the death");
}

/// Lets rank 1 die in the middle of a broadcast that it forwards.
fn death_in_a_cast(node: &mut Node) {
    node.barrier().unwrap();
    let all = Group::all(node);
    let mut bytes = vec![7; 40 * MUCH];
    if node.rank() == 1 {
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            std::process::abort();
        });
    }
    let error = all.broadcast(node, 0, &mut bytes).err();
    let error = error.unwrap_or_else(|| until_refused(node, &all, Barrier));
    assert!(matches!(error, Error::PeerGone { rank: 1, .. }), "{error}");
    println!("\ntold of the death");
}

/// Lets rank 1 lose its node by a panic, and end some time later, like a process that first writes
/// a backtrace. Rank 0 ends at once because of the loss.
fn late_panic(mut node: Node) {
    node.barrier().unwrap();
    if node.rank() == 0 {
        println!("\n{}", node.barrier().unwrap_err());
        std::process::exit(1);
    }
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _node = node;
        panic!("on purpose");
    }));
    assert!(unwound.is_err());
    std::thread::sleep(std::time::Duration::from_millis(300));
    std::process::exit(101);
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    match role().as_deref() {
        Some("mismatches") => mismatches(&mut node),
        Some("casts") => casts(&mut node),
        Some("two at once") => two_at_once(&mut node),
        Some("advance") => advance_in_other_calls(&mut node),
        Some("death") => return death(&mut node),
        Some("death in a cast") => return death_in_a_cast(&mut node),
        Some("panics") => return late_panic(node),
        Some("roots") => roots(&mut node),
        Some("orders") => orders(&mut node),
        Some("all roots") => all_roots(node),
        other => panic!("no role {other:?}"),
    }
    println!("\nall was told");
}

fn play(count: u32, role: &str, path: &str) {
    let out = run_ranks(count, role, &["--path", path]).succeeded(role);
    let message = out.matches("all was told").count();
    assert_eq!(message, count as usize, "{out}");
}

#[test]
fn calls_that_differ_end_at_every_member_with_what_each_called() {
    play(2, "mismatches", "shm");
    play(3, "mismatches", "shm");
    play(2, "mismatches", "udp");
}

#[test]
fn mismatched_broadcast_roots_are_reported_to_all_members() {
    play(3, "roots", "shm");
    play(4, "roots", "udp");
}

#[test]
fn roots_without_a_pending_wait_get_mismatches_at_close() {
    for (count, path) in [(2, "shm"), (3, "udp")] {
        let ended = run_ranks(count, "all roots", &["--path", path]);
        let message = ended.out.matches("all was told").count();
        assert_eq!(message, count as usize, "{}{}", ended.out, ended.err);
    }
}

#[test]
fn groups_with_equal_numbers_and_different_members_are_distinguished() {
    play(2, "orders", "shm");
    play(3, "orders", "shm");
    play(4, "orders", "udp");
}

#[test]
fn a_cast_brings_any_number_of_bytes_along_any_chain() {
    play(1, "casts", "shm");
    play(2, "casts", "shm");
    play(4, "casts", "udp");
}

#[test]
fn two_operations_of_a_group_may_be_under_way() {
    play(2, "two at once", "shm");
    play(3, "two at once", "udp");
}

#[test]
fn non_blocking_collectives_advance_in_calls_that_wait_for_something_else() {
    play(1, "advance", "shm");
    play(3, "advance", "shm");
    play(4, "advance", "udp");
}

#[test]
fn the_death_of_a_member_ends_the_calls_of_all_others() {
    for (role, path) in [
        ("death", "shm"),
        ("death", "udp"),
        ("death in a cast", "shm"),
        ("death in a cast", "udp"),
    ] {
        let ended = run_ranks(4, role, &["--path", path]);
        let message = ended.out.matches("told of the death").count();
        assert_eq!(message, 3, "{}{}", ended.out, ended.err);
        assert!(ended.err.contains("rank 1 on"), "{}", ended.err);
        assert_eq!(ended.status, 134, "{}", ended.err);
    }
}

#[test]
fn launcher_reports_the_first_failed_rank() {
    let ended = run_ranks(2, "panics", &["--path", "shm"]);
    assert!(
        ended.out.contains("rank 1 on"),
        "{}{}",
        ended.out,
        ended.err
    );
    assert_eq!(ended.status, 101, "{}", ended.err);
    assert!(ended.err.contains("rank 1 on"), "{}", ended.err);
    assert!(!ended.err.contains("rank 0 on"), "{}", ended.err);
}
