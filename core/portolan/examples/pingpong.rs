// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures half a round trip between ranks 0 and 1: `portolan run -n 2 -- pingpong [BYTES
//! [ROUNDS]]`.

use portolan::{Error, Node, PortConfig, Target};
use std::time::Instant;

const PORT: u16 = 7;
const LEN: u32 = 64;
const WARM_UP: u32 = 10_000;
const ROUNDS: u32 = 200_000;

fn main() -> Result<(), Error> {
    let number = |index, default: u32| match std::env::args().nth(index) {
        Some(text) => text.parse().ok(),
        None => Some(default),
    };
    let (Some(len), Some(rounds @ 1..)) = (number(1, LEN), number(2, ROUNDS)) else {
        eprintln!("pingpong: BYTES is a number, and ROUNDS one from 1 on");
        std::process::exit(2);
    };
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    node.barrier()?;
    if node.rank() < 2 {
        play(&mut node, len as usize, rounds)?;
    }
    node.barrier()
}

fn play(node: &mut Node, len: usize, rounds: u32) -> Result<(), Error> {
    let other = 1 - node.rank();
    let mut buf = vec![0; len];
    let mut begin = Instant::now();
    for round in 0..WARM_UP.saturating_add(rounds) {
        if round == WARM_UP {
            begin = Instant::now();
        }
        if node.rank() == 0 {
            node.send(Target::new(other, PORT), &buf)?;
        }
        node.recv_from(other, PORT, &mut buf)?;
        if node.rank() == 1 {
            node.send(Target::new(other, PORT), &buf)?;
        }
    }
    if node.rank() == 0 {
        let half = begin.elapsed().as_secs_f64() * 1e6 / (2.0 * f64::from(rounds));
        println!("{len} bytes: {half:.3} µs");
        for path in node.paths(other) {
            println!("{path}");
        }
        println!(
            "drops: {:?}, retransmits: {}",
            node.drops(),
            node.counters().retransmits
        );
    }
    Ok(())
}
