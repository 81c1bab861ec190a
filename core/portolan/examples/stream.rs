// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures a one-way stream from rank 0 to rank 1: `portolan run -n 2 -- stream [BYTES] [COUNT]`.

use portolan::{Error, Node, PortConfig, Target};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

const PORT: u16 = 7;
/// Messages in flight at a time on each side.
const WINDOW: usize = 4;

fn main() -> Result<(), Error> {
    let arg = |n| std::env::args().nth(n).and_then(|arg| arg.parse().ok());
    let (len, count) = (arg(1).unwrap_or(1 << 20), arg(2).unwrap_or(4000));
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    node.barrier()?;
    let begin = Instant::now();
    match node.rank() {
        0 => send(&mut node, len, count)?,
        1 => receive(&mut node, len, count)?,
        _ => {}
    }
    node.barrier()?;
    if node.rank() == 0 {
        let bytes = (len * count) as f64;
        println!("{:.2} GB/s", bytes / begin.elapsed().as_secs_f64() / 1e9);
    }
    println!("{:?} {:?}", node.counters(), node.drops());
    Ok(())
}

fn send(node: &mut Node, len: usize, count: usize) -> Result<(), Error> {
    let bytes: Arc<[u8]> = vec![7; len].into();
    let mut requests = VecDeque::new();
    for _ in 0..count {
        if requests.len() == WINDOW
            && let Some(request) = requests.pop_front()
        {
            node.wait(request)?;
        }
        requests.push_back(node.isend(Target::new(1, PORT), Arc::clone(&bytes))?);
    }
    requests
        .into_iter()
        .try_for_each(|request| node.wait(request).map(|_| ()).map_err(Error::from))
}

fn receive(node: &mut Node, len: usize, count: usize) -> Result<(), Error> {
    let mut requests = VecDeque::new();
    for _ in 0..WINDOW.min(count) {
        requests.push_back(node.post_recv_from(0, PORT, vec![0; len])?);
    }
    for done in 0..count {
        let Some(request) = requests.pop_front() else {
            break;
        };
        let completion = node.wait(request)?;
        if let Some(buffer) = completion.buffer
            && done + WINDOW < count
        {
            requests.push_back(node.post_recv_from(0, PORT, buffer)?);
        }
    }
    Ok(())
}
