// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collective operations on blocks, scans and reductions, compared with a serial computation, in
//! groups of 1 to 17 members, and with loss.

use crate::common::ranks::{joined, role};
use portolan::{Bf16, Error, F16, Group, Node, Operator, ReduceOp, Reducible};

ranks_of_this_module!(run_ranks);

/// Elements of a block: in the message of the head, and longer.
const COUNTS: &[usize] = &[0, 1, 121, 122, 123, 5_000];

/// Returns what member `from` has for member `to`.
fn block(from: u32, to: u32, count: usize) -> Vec<u64> {
    let seed = u64::from(from) << 40 | u64::from(to) << 20;
    (0..count as u64).map(|index| seed + index).collect()
}

/// Returns the counts of the members' blocks, among them 0.
fn counts_of(size: u32, unit: usize) -> Vec<usize> {
    (0..size as usize)
        .map(|index| (index * 5 + 3) % 4 * unit)
        .collect()
}

fn gathers(node: &mut Node, group: &Group, count: usize) -> Result<(), Error> {
    let (own, size) = (group.rank(), group.size());
    let everything: Vec<u64> = (0..size).flat_map(|from| block(from, 0, count)).collect();
    let mine = block(own, 0, count);
    let mut all = vec![u64::MAX; everything.len()];
    group.allgather(node, &mine, &mut all)?;
    assert!(all == everything, "allgather of {count}");
    for root in [0, size - 1] {
        let is_root = own == root;
        let mut all = vec![u64::MAX; if is_root { everything.len() } else { 0 }];
        group.gather(node, root, &mine, &mut all)?;
        assert!(!is_root || all == everything, "gather of {count} to {root}");
        let mut part = vec![u64::MAX; count];
        group.scatter(node, root, &all, &mut part)?;
        assert!(part == mine, "scatter of {count} from {root}");
    }
    let counts = counts_of(size, count);
    let everything: Vec<u64> = (0..size)
        .flat_map(|from| block(from, 1, counts[from as usize]))
        .collect();
    let mine = block(own, 1, counts[own as usize]);
    let mut all = vec![u64::MAX; everything.len()];
    group.allgatherv(node, &mine, &mut all, &counts)?;
    assert!(all == everything, "allgatherv of {count}");
    let root = u32::try_from(count).unwrap() % size;
    let known = if own == root { &counts[..] } else { &[] };
    let mut all = vec![u64::MAX; if own == root { everything.len() } else { 0 }];
    group.gatherv(node, root, &mine, &mut all, known)?;
    assert!(own != root || all == everything, "gatherv of {count}");
    let mut part = vec![u64::MAX; mine.len()];
    group.scatterv(node, root, &all, known, &mut part)?;
    assert!(part == mine, "scatterv of {count}");
    Ok(())
}

fn exchanges(node: &mut Node, group: &Group, count: usize) -> Result<(), Error> {
    let (own, size) = (group.rank(), group.size());
    let mine: Vec<u64> = (0..size).flat_map(|to| block(own, to, count)).collect();
    let mut theirs = vec![u64::MAX; mine.len()];
    group.alltoall(node, &mine, &mut theirs)?;
    let expected: Vec<u64> = (0..size).flat_map(|from| block(from, own, count)).collect();
    assert!(theirs == expected, "alltoall of {count}");
    let len = |from: u32, to: u32| (from * 3 + to) as usize % 3 * count;
    let counts: Vec<usize> = (0..size).map(|to| len(own, to)).collect();
    let their_counts: Vec<usize> = (0..size).map(|from| len(from, own)).collect();
    let mine: Vec<u64> = (0..size)
        .flat_map(|to| block(own, to, len(own, to)))
        .collect();
    let expected: Vec<u64> = (0..size)
        .flat_map(|from| block(from, own, len(from, own)))
        .collect();
    let mut theirs = vec![u64::MAX; expected.len()];
    group.alltoallv(node, &mine, &counts, &mut theirs, &their_counts)?;
    assert!(theirs == expected, "alltoallv of {count}");
    Ok(())
}

/// Small numbers, whose sums are exact in all types.
fn values<T: From<u8>>(rank: u32, count: usize) -> Vec<T> {
    let value = |index: usize| {
        let small = (index * 7 + rank as usize * 3) % 3 + 1;
        T::from(u8::try_from(small).unwrap())
    };
    (0..count).map(value).collect()
}

/// Returns the combined values of the members before `end`.
fn serial<T>(end: u32, count: usize, combine: fn(T, T) -> T) -> Vec<T>
where
    T: From<u8> + Copy,
{
    let mut result = values::<T>(0, count);
    for rank in 1..end {
        for (own, other) in result.iter_mut().zip(values::<T>(rank, count)) {
            *own = combine(*own, other);
        }
    }
    result
}

fn reductions<T>(
    node: &mut Node,
    group: &Group,
    count: usize,
    (op, combine): (ReduceOp, fn(T, T) -> T),
) -> Result<(), Error>
where
    T: Reducible + From<u8> + PartialEq,
{
    let (own, size) = (group.rank(), group.size());
    let whole = size as usize * count;
    let expected = serial(size, whole, combine);
    let part = own as usize * count..(own as usize + 1) * count;
    let mut place = values::<T>(99, count);
    let mine = values::<T>(own, whole);
    group.reduce_scatter(node, Operator::new::<T>(op), &mine, &mut place)?;
    assert!(place == expected[part], "reduce_scatter of {count}");
    let mut all = mine.clone();
    group.allreduce(node, op, &mut all)?;
    assert!(all == expected, "allreduce of {whole}");
    let mut prefix = values::<T>(own, count);
    group.scan(node, Operator::new::<T>(op), &mut prefix)?;
    assert!(prefix == serial(own + 1, count, combine), "scan of {count}");
    let mut before = values::<T>(own, count);
    group.exscan(node, Operator::new::<T>(op), &mut before)?;
    let expected = match own {
        0 => values::<T>(0, count),
        own => serial(own, count, combine),
    };
    assert!(before == expected, "exscan of {count}");
    Ok(())
}

/// Broadcasts and reductions to one member, from and to several members.
fn rooted(node: &mut Node, group: &Group, count: usize) -> Result<(), Error> {
    let (own, size) = (group.rank(), group.size());
    for root in [0, size / 2, size - 1] {
        let words = block(root, 2, count).into_iter();
        let expected: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let mut copied = match own == root {
            true => expected.clone(),
            false => vec![0xa5; expected.len()],
        };
        group.broadcast(node, root, &mut copied)?;
        assert!(copied == expected, "broadcast of {count} from {root}");
        let mut sum = values::<u64>(own, count);
        group.reduce(node, root, ReduceOp::Sum, &mut sum)?;
        let expected = serial::<u64>(size, count, |one, other| one + other);
        assert!(
            own != root || sum == expected,
            "reduce of {count} to {root}"
        );
    }
    group.barrier(node)
}

/// Functions from a number to `f64` and back.
type Conversion<T> = (fn(T) -> f64, fn(f64) -> T);

/// A reduction, and the same with small numbers.
type Reduction = (ReduceOp, fn(u8, u8) -> u8);

/// Reductions of one type: short ones, those in one message of their own, and those in parts.
fn types_of<T>(
    node: &mut Node,
    group: &Group,
    (number, of): Conversion<T>,
    ops: &[Reduction],
) -> Result<(), Error>
where
    T: Reducible + PartialEq,
{
    let (own, size) = (group.rank(), group.size());
    for &(op, combine) in ops {
        for count in [1, 700, 70_000 / size_of::<T>()] {
            // Products stay small: only member 0 and the last one have numbers above 1.
            let small = |rank: u32, index: usize| match rank {
                0 => u8::try_from(index % 3 + 1).unwrap(),
                _ if rank == size - 1 => 2,
                _ => 1,
            };
            let mut values: Vec<T> = (0..count)
                .map(|index| of(f64::from(small(own, index))))
                .collect();
            group.allreduce(node, op, &mut values)?;
            for (index, value) in values.iter().enumerate() {
                let all = (0..size).map(|rank| small(rank, index));
                let expected = f64::from(all.reduce(combine).unwrap());
                let got = number(*value);
                assert!(got == expected, "{op:?} of {count}: {got}, not {expected}");
            }
        }
    }
    Ok(())
}

const ARITHMETIC: [Reduction; 4] = [
    (ReduceOp::Sum, |one, other| one + other),
    (ReduceOp::Product, |one, other| one * other),
    (ReduceOp::Min, Ord::min),
    (ReduceOp::Max, Ord::max),
];
const BITWISE: [Reduction; 3] = [
    (ReduceOp::And, |one, other| one & other),
    (ReduceOp::Or, |one, other| one | other),
    (ReduceOp::Xor, |one, other| one ^ other),
];

/// All operations of all types.
fn types(node: &mut Node, group: &Group) -> Result<(), Error> {
    macro_rules! integers {
        ($($type:ty)*) => {$(
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                clippy::cast_lossless,
                reason = "the numbers are small"
            )]
            let convert: Conversion<$type> =
                (|value| value as f64, |number| number as $type);
            types_of(node, group, convert, &ARITHMETIC)?;
            types_of(node, group, convert, &BITWISE)?;
        )*};
    }
    integers!(i8 u8 i16 u16 i32 u32 i64 u64);
    #[allow(clippy::cast_possible_truncation, reason = "the numbers are small")]
    types_of::<f32>(
        node,
        group,
        (f64::from, |number| number as f32),
        &ARITHMETIC,
    )?;
    types_of::<f64>(node, group, (|value| value, |number| number), &ARITHMETIC)?;
    #[allow(clippy::cast_possible_truncation, reason = "the numbers are small")]
    types_of::<F16>(
        node,
        group,
        (
            |value| value.to_f32().into(),
            |number| F16::from_f32(number as f32),
        ),
        &ARITHMETIC,
    )?;
    #[allow(clippy::cast_possible_truncation, reason = "the numbers are small")]
    types_of::<Bf16>(
        node,
        group,
        (
            |value| value.to_f32().into(),
            |number| Bf16::from_f32(number as f32),
        ),
        &ARITHMETIC,
    )
}

/// Products of matrices depend on the order of the operands.
fn ordered(node: &mut Node, group: &Group) -> Result<(), Error> {
    type Matrix = [u64; 4];
    fn product([a, b, c, d]: Matrix, [e, f, g, h]: Matrix) -> Matrix {
        let sum =
            |x: u64, y: u64, z: u64, w: u64| x.wrapping_mul(y).wrapping_add(z.wrapping_mul(w));
        [
            sum(a, e, b, g),
            sum(a, f, b, h),
            sum(c, e, d, g),
            sum(c, f, d, h),
        ]
    }
    let matrix = |rank: u32| -> Matrix { [u64::from(rank) + 1, 1, 2, u64::from(rank)] };
    let (own, size) = (group.rank(), group.size());
    let prefix = |end: u32| (1..end).fold(matrix(0), |result, rank| product(result, matrix(rank)));
    for root in [0, size - 1] {
        let mut values = [matrix(own); 3];
        group.reduce_by(node, root, Operator::by(product), &mut values)?;
        assert!(own != root || values == [prefix(size); 3], "root {root}");
    }
    let mut values = [matrix(own); 3];
    group.allreduce_by(node, Operator::by(product), &mut values)?;
    assert_eq!(values, [prefix(size); 3]);
    let mut values = vec![matrix(own); 500];
    group.scan(node, Operator::by(product), &mut values)?;
    assert_eq!(values, vec![prefix(own + 1); 500]);
    let values = vec![matrix(own); size as usize];
    let mut part = [matrix(99)];
    group.reduce_scatter(node, Operator::by(product), &values, &mut part)?;
    assert_eq!(part, [prefix(size)]);
    Ok(())
}

fn all_operations(node: &mut Node) -> Result<(), Error> {
    let backwards: Vec<u32> = (0..node.size()).rev().collect();
    for group in [Group::all(node), Group::new(node, 3, &backwards)?] {
        for &count in COUNTS {
            gathers(node, &group, count)?;
            exchanges(node, &group, count)?;
            rooted(node, &group, count)?;
            reductions::<u32>(node, &group, count, (ReduceOp::Product, u32::wrapping_mul))?;
            reductions::<f64>(
                node,
                &group,
                count,
                (ReduceOp::Sum, |one, other| one + other),
            )?;
            reductions::<i64>(node, &group, count, (ReduceOp::Max, i64::max))?;
        }
        ordered(node, &group)?;
    }
    Ok(())
}

/// Starts two operations on blocks, which complete in any order.
fn requests(node: &mut Node) -> Result<(), Error> {
    let all = Group::all(node);
    let (own, size) = (node.rank(), node.size() as usize);
    for len in [8, 40_000] {
        let byte = u8::try_from(own).unwrap();
        let gathered = all.iallgather(node, vec![byte; len], vec![0xa5; size * len])?;
        let scanned = all.iscan(
            node,
            Operator::by(|lower: u8, upper: u8| lower.wrapping_add(upper)),
            vec![1; len],
        )?;
        let scanned: Vec<u8> = node.wait(scanned)?.into_vec()?;
        assert_eq!(scanned, vec![byte + 1; len]);
        let gathered: Vec<u8> = node.wait(gathered)?.into_vec()?;
        let ranks = (0..size).map(|rank| u8::try_from(rank).unwrap());
        let expected: Vec<u8> = ranks.flat_map(|rank| vec![rank; len]).collect();
        assert!(gathered == expected);
    }
    // Lengths that do not fit are refused before anything is sent.
    let refused = all
        .allgather(node, &[1_u8], &mut vec![0; size + 1])
        .unwrap_err();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");
    let refused = all.iallgather(node, vec![1], std::sync::Arc::from(vec![0_u8; size]));
    assert!(matches!(refused, Err(Error::BufferShared)));
    node.barrier()
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[]) else {
        return;
    };
    match role().as_deref() {
        Some("operations") => all_operations(&mut node).unwrap(),
        Some("types") => {
            let all = Group::all(&node);
            types(&mut node, &all).unwrap();
        }
        Some("requests") => requests(&mut node).unwrap(),
        other => panic!("no role {other:?}"),
    }
    println!("\nall equal the serial results");
}

fn play(count: u32, role: &str, options: &[&str]) {
    let out = run_ranks(count, role, options).succeeded(role);
    let equal = out.matches("all equal the serial results").count();
    assert_eq!(equal, count as usize, "{out}");
}

#[test]
fn operations_on_blocks_equal_serial_results_in_groups_of_all_sizes() {
    for count in 1..=17 {
        play(count, "operations", &["--path", "shm"]);
    }
}

#[test]
fn operations_on_blocks_equal_serial_results_over_a_lossy_network() {
    let fault = "fault=drop=0.02,dup=0.02,seed=3";
    for count in [2, 3, 5, 17] {
        play(count, "operations", &["--path", "udp", "--option", fault]);
    }
}

#[test]
fn reductions_of_all_types_equal_serial_results() {
    for count in [1, 2, 3, 8, 13] {
        play(count, "types", &["--path", "shm"]);
    }
    let fault = "fault=drop=0.02,dup=0.02,seed=5";
    play(3, "types", &["--path", "udp", "--option", fault]);
}

#[test]
fn requests_on_blocks_complete_in_any_order() {
    for count in [1, 2, 5] {
        play(count, "requests", &["--path", "shm"]);
    }
    play(3, "requests", &["--path", "udp"]);
}
