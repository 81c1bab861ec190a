// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages of several senders to one receiver, with and without admission control:
//! `portolan run -n 4 --path udp --option placement=speculative --option stream=off -- admission MODE
//! COUNT`. MODE is `none` or `burst`: each sender requests a burst for every message. Prints the share
//! of frames that arrived at their predicted place, and how many bursts were refused.

use portolan::{Error, Node, PortConfig, Target};
use std::time::Instant;

const PORT: u16 = 7;
const LEN: usize = 4 << 20;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (by_burst, count) = match &arguments[..] {
        [mode, count] if matches!(mode.as_str(), "none" | "burst") => {
            (mode == "burst", count.parse::<u32>().unwrap_or(0))
        }
        _ => (false, 0),
    };
    if count == 0 {
        eprintln!("usage: admission none|burst COUNT");
        std::process::exit(2);
    }
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    node.barrier()?;
    match node.rank() {
        0 => receive(&mut node, count)?,
        _ => send(&mut node, by_burst, count)?,
    }
    node.barrier()
}

fn receive(node: &mut Node, count: u32) -> Result<(), Error> {
    let mut buffer = vec![0; LEN];
    let total = count * (node.size() - 1);
    let begin = Instant::now();
    for _ in 0..total {
        node.recv(PORT, &mut buffer)?;
    }
    let rate = f64::from(total) * LEN as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let counters = node.counters();
    let (hits, misses) = (counters.placement_hits, counters.placement_misses);
    println!(
        "{:.1} % of {} predicted frames in place, {rate:.0} MB/s, {} bursts refused",
        100.0 * hits as f64 / (hits + misses).max(1) as f64,
        hits + misses,
        node.refused_burst_count(),
    );
    Ok(())
}

fn send(node: &mut Node, by_burst: bool, count: u32) -> Result<(), Error> {
    let bytes = vec![7; LEN];
    for _ in 0..count {
        if by_burst {
            // The message does not wait for the answer: a refused one has low priority.
            node.request_burst(0)?;
        }
        node.send(Target::new(0, PORT), &bytes)?;
        node.end_burst(0)?;
    }
    Ok(())
}
