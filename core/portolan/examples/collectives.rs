// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures collective operations: `portolan run -n N -- collectives NAME LEN ROUNDS`. LEN is the
//! number of bytes of one rank's part. Prints the time per operation of the slowest rank. If some
//! ranks do not wait in an operation, a barrier follows it, and the time includes it.
//! `bench/mpi/collbench.c` measures an MPI library in the same way.

use portolan::{Error, Group, Node, Operator, PortConfig, ReduceOp, Target};
use std::time::Instant;

const PORT: u16 = 7;

/// Rounds that are not counted.
const WARM_UP: u32 = 50;

/// Memory of this rank: its part, and one part for each rank.
struct Memory {
    part: Vec<f32>,
    all: Vec<f32>,
    others: Vec<f32>,
}

/// Operations that are followed by a barrier.
const WITH_BARRIER: [&str; 5] = ["bcast", "reduce", "gather", "scatter", "scan"];

type Round = fn(&mut Node, &Group, &mut Memory) -> Result<(), Error>;

const ROUNDS: [(&str, Round); 12] = [
    ("barrier", |node, _, _| node.barrier()),
    ("bcast", |node, _, memory| {
        node.broadcast(0, bytemuck::cast_slice_mut(&mut memory.part))
    }),
    ("allreduce", |node, _, memory| {
        node.allreduce(ReduceOp::Sum, &mut memory.part)
    }),
    ("reduce", |node, _, memory| {
        node.reduce(0, ReduceOp::Sum, &mut memory.part)
    }),
    ("allgather", |node, group, memory| {
        group.allgather(node, &memory.part, &mut memory.all)
    }),
    ("gather", |node, group, memory| {
        let all = match node.rank() {
            0 => &mut memory.all[..],
            _ => &mut [],
        };
        group.gather(node, 0, &memory.part, all)
    }),
    ("scatter", |node, group, memory| {
        let all = match node.rank() {
            0 => &memory.all[..],
            _ => &[],
        };
        group.scatter(node, 0, all, &mut memory.part)
    }),
    ("alltoall", |node, group, memory| {
        group.alltoall(node, &memory.all, &mut memory.others)
    }),
    ("reduce_scatter", |node, group, memory| {
        let sum = Operator::new::<f32>(ReduceOp::Sum);
        group.reduce_scatter(node, sum, &memory.all, &mut memory.part)
    }),
    ("scan", |node, group, memory| {
        group.scan(node, Operator::new::<f32>(ReduceOp::Sum), &mut memory.part)
    }),
    ("iallreduce", |node, _, memory| {
        let request = node.iallreduce(ReduceOp::Sum, std::mem::take(&mut memory.part))?;
        memory.part = node.wait(request)?.into_vec()?;
        Ok(())
    }),
    ("pingpong", |node, _, memory| {
        let bytes = bytemuck::cast_slice_mut(&mut memory.part);
        let rank = node.rank();
        let to = Target::new(1 - rank.min(1), PORT);
        if rank == 0 {
            node.send(to, bytes)?;
        }
        if rank < 2 {
            node.recv_from(to.rank(), PORT, bytes)?;
        }
        if rank == 1 {
            node.send(to, bytes)?;
        }
        Ok(())
    }),
];

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [name, len, rounds] => ROUNDS
            .iter()
            .find(|(listed, _)| listed == name)
            .zip(len.parse().ok())
            .zip(rounds.parse().ok().filter(|rounds| *rounds > 0)),
        _ => None,
    };
    let Some((((name, round), len), rounds)) = parsed else {
        let names = ROUNDS.map(|(name, _)| name).join(", ");
        eprintln!("usage: collectives NAME LEN ROUNDS; NAME is one of {names}");
        std::process::exit(2);
    };
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    measure(&mut node, name, *round, len, rounds)
}

fn measure(
    node: &mut Node,
    name: &str,
    round: Round,
    len: usize,
    rounds: u32,
) -> Result<(), Error> {
    let (group, count) = (Group::all(node), len / size_of::<f32>());
    let size = group.size() as usize;
    let mut memory = Memory {
        part: vec![0.0; count],
        all: vec![0.0; count * size],
        others: vec![0.0; count * size],
    };
    let has_barrier = WITH_BARRIER.contains(&name);
    let mut perform = |node: &mut Node| {
        round(node, &group, &mut memory)?;
        match has_barrier {
            true => node.barrier(),
            false => Ok(()),
        }
    };
    for _ in 0..WARM_UP.min(rounds) {
        perform(node)?;
    }
    node.barrier()?;
    let begin = Instant::now();
    for _ in 0..rounds {
        perform(node)?;
    }
    let mut longest = [begin.elapsed().as_secs_f64()];
    node.reduce(0, ReduceOp::Max, &mut longest)?;
    if node.rank() == 0 {
        let us = longest[0] * 1e6 / f64::from(rounds);
        println!("{name:<15}{len:>10}{size:>6}{us:>14.2}");
    }
    node.barrier()
}
