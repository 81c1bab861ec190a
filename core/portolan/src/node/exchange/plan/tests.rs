// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performs the plans of all members of a group, and compares with a serial computation.
//!
//! Reductions append the operand's bytes: the result shows which values were combined, and in which
//! order. A value is a set of members, one bit each; members that are combined twice, or out of
//! order, are found.

use super::*;
use std::collections::{BTreeMap, VecDeque};

/// Largest group of the tests.
const SIZE_MAX: usize = 17;

/// Memory of one member.
struct Memory {
    input: Vec<u8>,
    output: Vec<u8>,
    scratch: Vec<u8>,
}

impl Memory {
    fn new(input: Vec<u8>, output: Vec<u8>, plan: &Plan) -> Memory {
        Memory {
            input,
            output,
            scratch: vec![0xa5; plan.scratch_len],
        }
    }

    fn bytes(&mut self, span: Span) -> &mut [u8] {
        let memory = match span.place {
            Place::Input => &mut self.input,
            Place::Output => &mut self.output,
            Place::Scratch => &mut self.scratch,
        };
        &mut memory[span.off..span.off + span.len]
    }

    fn act(&mut self, action: Action, combine: fn(Side, u8, u8) -> u8) {
        let (from, to) = match action {
            Action::Copy { from, to } | Action::Combine { from, to, .. } => (from, to),
        };
        assert_eq!(from.len, to.len);
        assert_ne!(to.place, Place::Input);
        let overlaps = from.off < to.off + to.len && to.off < from.off + from.len;
        assert!(from.place != to.place || !overlaps, "{action:?}");
        let other = self.bytes(from).to_vec();
        for (own, other) in self.bytes(to).iter_mut().zip(other) {
            *own = match action {
                Action::Copy { .. } => other,
                Action::Combine { side, .. } => combine(side, *own, other),
            };
        }
    }
}

/// Progress of one member: round, and whether its messages were sent.
#[derive(Default)]
struct Progress {
    round: usize,
    has_sent: bool,
}

/// Performs all plans. Messages are received in the order in which they were sent.
fn perform(plans: &[Plan], memories: &mut [Memory], combine: fn(Side, u8, u8) -> u8) {
    let mut flying: BTreeMap<(usize, usize), VecDeque<Vec<u8>>> = BTreeMap::new();
    let mut progress: Vec<Progress> = plans.iter().map(|_| Progress::default()).collect();
    loop {
        let mut has_moved = false;
        for (own, plan) in plans.iter().enumerate() {
            let at = &mut progress[own];
            let Some(round) = plan.rounds.get(at.round) else {
                continue;
            };
            if !at.has_sent {
                for (to, span) in &round.sends {
                    let message = memories[own].bytes(*span).to_vec();
                    let queue = flying.entry((own, *to as usize)).or_default();
                    queue.push_back(message);
                }
                at.has_sent = true;
                has_moved = true;
            }
            let is_here = |(from, _): &(u32, Span)| {
                flying
                    .get(&(*from as usize, own))
                    .is_some_and(|queue| !queue.is_empty())
            };
            if !round.receives.iter().all(is_here) {
                continue;
            }
            for (from, span) in &round.receives {
                let queue = flying.get_mut(&(*from as usize, own)).unwrap();
                let message = queue.pop_front().unwrap();
                assert_eq!(message.len(), span.len, "from {from} to {own}");
                memories[own].bytes(*span).copy_from_slice(&message);
            }
            for action in &round.after {
                memories[own].act(*action, combine);
            }
            *at = Progress {
                round: at.round + 1,
                has_sent: false,
            };
            has_moved = true;
        }
        if !has_moved {
            break;
        }
    }
    let ended = |(at, plan): (&Progress, &Plan)| at.round == plan.rounds.len();
    assert!(progress.iter().zip(plans).all(ended), "a member waits");
    assert!(flying.values().all(VecDeque::is_empty), "a message is left");
}

fn unused(_: Side, _: u8, _: u8) -> u8 {
    unreachable!("nothing is combined")
}

/// Returns the bytes that member `from` has for member `to`.
fn block(from: usize, to: usize, len: usize) -> Vec<u8> {
    let byte = |index: usize| u8::try_from((from * 89 + to * 31 + index * 7) % 251).unwrap();
    (0..len).map(byte).collect()
}

/// Returns lengths of blocks, among them 0.
fn uneven(size: usize, unit: usize) -> Vec<usize> {
    (0..size).map(|index| (index * 5 + 3) % 4 * unit).collect()
}

fn positions(size: usize) -> impl Iterator<Item = Position> {
    (0..size).map(move |own| Position { own, size })
}

/// Performs an operation in which member `own` has `input(own)` and gets `expected(own)`.
fn check(
    plans: &[Plan],
    input: impl Fn(usize) -> Vec<u8>,
    expected: impl Fn(usize) -> Vec<u8>,
    what: &str,
) {
    let memory = |(own, plan): (usize, &Plan)| {
        Memory::new(input(own), vec![0xa5; expected(own).len()], plan)
    };
    let mut memories: Vec<Memory> = plans.iter().enumerate().map(memory).collect();
    perform(plans, &mut memories, unused);
    for (own, memory) in memories.iter().enumerate() {
        assert_eq!(memory.output, expected(own), "{what}, member {own}");
    }
}

#[test]
fn allgather_collects_all_blocks() {
    for size in 1..=SIZE_MAX {
        for lens in [
            vec![8; size],
            uneven(size, 3),
            uneven(size, 10_000),
            vec![0; size],
        ] {
            let plans: Vec<Plan> = positions(size)
                .map(|position| allgather(position, &lens))
                .collect();
            let all: Vec<u8> = (0..size)
                .flat_map(|from| block(from, 0, lens[from]))
                .collect();
            let input = |own: usize| block(own, 0, lens[own]);
            check(&plans, input, |_| all.clone(), &format!("{size}: {lens:?}"));
        }
    }
}

#[test]
fn gather_and_scatter_are_inverse() {
    for size in 1..=SIZE_MAX {
        for root in 0..size {
            for lens in [vec![8; size], vec![2000; size], uneven(size, 5)] {
                let is_even = lens.iter().all(|len| *len == lens[0]);
                let (down, up): (Vec<Plan>, Vec<Plan>) = positions(size)
                    .map(|position| match is_even {
                        true => (
                            scatter(position, root, lens[0]),
                            gather(position, root, lens[0]),
                        ),
                        false => {
                            let own_len = lens[position.own];
                            let known = if position.own == root { &lens[..] } else { &[] };
                            (
                                scatterv(position, root, own_len, known),
                                gatherv(position, root, own_len, known),
                            )
                        }
                    })
                    .unzip();
                let all: Vec<u8> = (0..size).flat_map(|to| block(root, to, lens[to])).collect();
                let at_root = |own: usize| if own == root { all.clone() } else { Vec::new() };
                let part = |own: usize| block(root, own, lens[own]);
                check(&down, at_root, part, &format!("scatter {size} {root}"));
                check(&up, part, at_root, &format!("gather {size} {root}"));
            }
        }
    }
}

#[test]
fn alltoall_delivers_each_block() {
    for size in 1..=SIZE_MAX {
        for len in [0, 8, 300] {
            let plans: Vec<Plan> = positions(size)
                .map(|position| alltoall(position, len))
                .collect();
            let input = |own| (0..size).flat_map(|to| block(own, to, len)).collect();
            let output = |own| (0..size).flat_map(|from| block(from, own, len)).collect();
            check(&plans, input, output, &format!("{size}: {len}"));
        }
        let len = |from: usize, to: usize| (from * 3 + to) % 5;
        let plans = positions(size).map(|position| {
            let lens: Vec<usize> = (0..size).map(|to| len(position.own, to)).collect();
            let theirs: Vec<usize> = (0..size).map(|from| len(from, position.own)).collect();
            alltoallv(position, &lens, &theirs)
        });
        let plans: Vec<Plan> = plans.collect();
        let input = |own| {
            (0..size)
                .flat_map(|to| block(own, to, len(own, to)))
                .collect()
        };
        let output = |own| {
            (0..size)
                .flat_map(|from| block(from, own, len(from, own)))
                .collect()
        };
        check(&plans, input, output, &format!("uneven, {size}"));
    }
}

/// A byte counts members: sums detect values that are missing or combined twice.
fn sum(_: Side, own: u8, other: u8) -> u8 {
    own.wrapping_add(other)
}

/// A byte is an interval of members, first and last in four bits each. Operands must be adjacent.
fn join(side: Side, own: u8, other: u8) -> u8 {
    let (lower, upper) = match side {
        Side::Lower => (other, own),
        Side::Upper => (own, other),
    };
    assert_eq!((lower & 15) + 1, upper >> 4, "operands are not adjacent");
    lower & 0xf0 | upper & 15
}

/// Returns the interval of one member.
fn single(own: usize) -> u8 {
    u8::try_from(own << 4 | own).unwrap()
}

/// Performs reductions in place, and returns all outputs.
fn reduce_by(
    plans: &[Plan],
    len: usize,
    value: impl Fn(usize) -> u8,
    combine: fn(Side, u8, u8) -> u8,
) -> Vec<Vec<u8>> {
    let memory = |(own, plan): (usize, &Plan)| Memory::new(Vec::new(), vec![value(own); len], plan);
    let mut memories: Vec<Memory> = plans.iter().enumerate().map(memory).collect();
    perform(plans, &mut memories, combine);
    memories.into_iter().map(|memory| memory.output).collect()
}

#[test]
fn reductions_in_order_combine_adjacent_members() {
    // Four bits name a member.
    for size in 1..=16 {
        let plans: Vec<Plan> = positions(size)
            .map(|position| allreduce(position, 3))
            .collect();
        let whole = single(0) & 0xf0 | single(size - 1) & 15;
        for output in reduce_by(&plans, 3, single, join) {
            assert_eq!(output, [whole; 3], "{size}");
        }
        for root in 0..size {
            let plans: Vec<Plan> = positions(size)
                .map(|position| reduce(position, root, 3, true))
                .collect();
            let outputs = reduce_by(&plans, 3, single, join);
            assert_eq!(outputs[root], [whole; 3], "{size}, root {root}");
            let plans = positions(size).map(|position| reduce(position, root, 3, false));
            let plans: Vec<Plan> = plans.collect();
            let value = |own: usize| u8::try_from(own + 1).unwrap();
            let total = u8::try_from(size * (size + 1) / 2).unwrap();
            assert_eq!(reduce_by(&plans, 3, value, sum)[root], [total; 3]);
        }
        let plans: Vec<Plan> = positions(size).map(|position| scan(position, 3)).collect();
        for (own, output) in reduce_by(&plans, 3, single, join).iter().enumerate() {
            assert_eq!(output[..], [single(own) & 15; 3], "{size}, member {own}");
        }
        let plans: Vec<Plan> = positions(size)
            .map(|position| exscan(position, 3))
            .collect();
        for (own, output) in reduce_by(&plans, 3, single, join).iter().enumerate() {
            let before = own.checked_sub(1).map_or(0, |last| single(last) & 15);
            assert_eq!(output[..], [before; 3], "{size}, member {own}");
        }
    }
}

#[test]
fn long_reductions_combine_each_member_once() {
    for size in 1..=SIZE_MAX {
        let value = |own: usize| u8::try_from(own * own + 1).unwrap_or(255);
        let expected = (0..size).map(value).fold(0, u8::wrapping_add);
        for count in [0, 1, 5, 100] {
            let plans: Vec<Plan> = positions(size)
                .map(|position| allreduce_long(position, count * 4, 4))
                .collect();
            for output in reduce_by(&plans, count * 4, value, sum) {
                assert_eq!(output, vec![expected; count * 4], "{size}, {count}");
            }
        }
    }
}

#[test]
fn long_blocks_are_combined_in_segments() {
    for size in [2, 4, 6] {
        // The last segments of the members' blocks differ in length.
        let len = size * SEGMENT_LEN_MAX * 3 / 2 + 8;
        let plans: Vec<Plan> = positions(size)
            .map(|position| allreduce_long(position, len, 8))
            .collect();
        assert!(plans.iter().all(|plan| plan.scratch_len <= SEGMENT_LEN_MAX));
        let expected = vec![u8::try_from(size * (size + 1) / 2).unwrap(); len];
        let value = |own: usize| u8::try_from(own + 1).unwrap();
        for output in reduce_by(&plans, len, value, sum) {
            assert!(output == expected, "{size}");
        }
    }
}

#[test]
fn reduce_scatter_gives_each_member_its_part() {
    for size in 1..=SIZE_MAX {
        for (lens, is_ordered) in [
            (vec![8; size], false),
            (uneven(size, 4), true),
            (uneven(size, 2000), false),
        ] {
            let plans: Vec<Plan> = positions(size)
                .map(|position| reduce_scatter(position, &lens, is_ordered))
                .collect();
            let total: usize = lens.iter().sum();
            let value = |own: usize, index: usize| u8::try_from((own * 7 + index) % 256).unwrap();
            let memory = |(own, plan): (usize, &Plan)| {
                let input = (0..total).map(|index| value(own, index)).collect();
                Memory::new(input, vec![0xa5; lens[own]], plan)
            };
            let mut memories: Vec<Memory> = plans.iter().enumerate().map(memory).collect();
            perform(&plans, &mut memories, sum);
            let (offs, _) = offsets(&lens);
            for (own, memory) in memories.iter().enumerate() {
                let serial = |index: usize| {
                    let values = (0..size).map(|other| value(other, offs[own] + index));
                    values.fold(0, u8::wrapping_add)
                };
                let expected: Vec<u8> = (0..lens[own]).map(serial).collect();
                assert_eq!(memory.output, expected, "{size}: {lens:?}, member {own}");
            }
        }
    }
}
