// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sorts random numbers by samples: `portolan run -n 4 -- sample_sort [COUNT]`, with COUNT numbers at
//! each process.

use portolan::{Error, Node, Operator, ReduceOp};

fn random(seed: u64) -> impl Iterator<Item = u64> {
    // xorshift64 (Marsaglia, Xorshift RNGs, 2003)
    std::iter::successors(Some(seed), |&last| {
        let x = last ^ (last << 13);
        let x = x ^ (x >> 7);
        Some(x ^ (x << 17))
    })
}

fn checks(numbers: &[u64]) -> [u64; 2] {
    let sum = |sum: u64, number: &u64| sum.wrapping_add(*number);
    [numbers.len() as u64, numbers.iter().fold(0, sum)]
}

fn main() -> Result<(), Error> {
    let count = std::env::args().nth(1);
    let count = count.map_or(10_000, |arg| arg.parse().unwrap_or(10_000));
    let mut node = Node::join()?;
    let (rank, size) = (u64::from(node.rank()), node.size() as usize);
    let numbers = random(0x9e37_79b9_7f4a_7c15 ^ (rank + 1));
    let mut own: Vec<u64> = numbers.take(count).collect();
    own.sort_unstable();
    let mut before = checks(&own);
    // Each process gives some samples; every size-th of them divides the numbers.
    let samples: Vec<u64> = (0..size).map(|at| own[at * count / size]).collect();
    let mut all = vec![0; size * size];
    node.allgather(&samples, &mut all)?;
    all.sort_unstable();
    let below = |place: usize| own.partition_point(|one| *one < all[place * size]);
    let mut starts: Vec<usize> = (0..size).map(below).collect();
    starts[0] = 0;
    starts.push(count);
    let counts: Vec<usize> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut their_counts = vec![0_usize; size];
    node.alltoall(&counts, &mut their_counts)?;
    let mut sorted = vec![0; their_counts.iter().sum()];
    node.alltoallv(&own, &counts, &mut sorted, &their_counts)?;
    sorted.sort_unstable();
    // Nothing is lost, and nothing here is less than anything at the processes before.
    let (mut after, mut highest) = (checks(&sorted), [sorted.last().copied().unwrap_or(0)]);
    let last = highest[0];
    node.scan(Operator::new::<u64>(ReduceOp::Max), &mut highest)?;
    let mut is_ordered = [u64::from(sorted.is_empty() || last == highest[0])];
    node.allreduce(ReduceOp::Sum, &mut before)?;
    node.allreduce(ReduceOp::Sum, &mut after)?;
    node.allreduce(ReduceOp::Min, &mut is_ordered)?;
    if rank == 0 {
        assert_eq!((before, is_ordered), (after, [1]), "not sorted");
        println!("{} numbers are sorted", after[0]);
    }
    node.close()
}
