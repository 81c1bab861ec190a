// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task farm: `portolan run -n 4 -- task_farm [LIMIT]`. Rank 0 gives out ranges of numbers, and the
//! others count the primes in them. Whoever is done gets the next range.

use portolan::{Error, Node, PortConfig, Target};

const TASKS: u16 = 1;
const RESULTS: u16 = 2;
const RANGE: u64 = 1000;
const END: u64 = u64::MAX;

fn give_out(node: &mut Node, limit: u64) -> Result<u64, Error> {
    let (mut next, mut primes, mut workers) = (0, 0, node.size() - 1);
    while workers > 0 {
        let (result, worker) = node.recv_vec::<u64>(RESULTS)?;
        primes += result.iter().sum::<u64>();
        let task = if next < limit { next } else { END };
        node.send(Target::new(worker, TASKS), &task.to_ne_bytes())?;
        workers -= u32::from(task == END);
        next += RANGE;
    }
    Ok(primes)
}

fn is_prime(number: &u64) -> bool {
    *number > 1
        && (2..)
            .take_while(|divisor| divisor * divisor <= *number)
            .all(|divisor| !number.is_multiple_of(divisor))
}

fn work(node: &mut Node, limit: u64) -> Result<(), Error> {
    // The first message has no result, and asks for a task only.
    node.send(Target::new(0, RESULTS), &[])?;
    loop {
        let task = node.recv_vec_from::<u64>(0, TASKS)?[0];
        if task == END {
            return Ok(());
        }
        let primes = (task..limit.min(task + RANGE)).filter(is_prime).count() as u64;
        node.send(Target::new(0, RESULTS), &primes.to_ne_bytes())?;
    }
}

fn main() -> Result<(), Error> {
    let limit = std::env::args()
        .nth(1)
        .map_or(100_000, |arg| arg.parse().unwrap_or(100_000));
    let mut node = Node::join()?;
    node.open(TASKS, PortConfig::default())?;
    node.open(RESULTS, PortConfig::default())?;
    if node.rank() == 0 {
        println!("{} primes below {limit}", give_out(&mut node, limit)?);
    } else {
        work(&mut node, limit)?;
    }
    node.close()
}
