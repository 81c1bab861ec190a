// SPDX-License-Identifier: MIT OR Apache-2.0
//! Survivors of a death continue in a new group:
//! `portolan run -n 4 --on-failure=continue -- survival VICTIM`.

use portolan::{Error, Group, Node, PeerEventKind, ReduceOp};
use std::time::Duration;

/// Waits for the event of a death.
fn dead(node: &mut Node) -> Result<u32, Error> {
    loop {
        match node.next_peer_event() {
            Some(event) if event.kind == PeerEventKind::Lost => return Ok(event.rank),
            _ => node.wait_until_timeout(|| false, Duration::from_millis(1))?,
        };
    }
}

fn main() -> Result<(), Error> {
    let victim = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    let mut node = Node::join()?;
    if Some(node.rank()) == victim {
        std::process::abort();
    }
    let own = [u64::from(node.rank())];
    let mut sum = own;
    if node.allreduce(ReduceOp::Sum, &mut sum).is_err() {
        let dead = dead(&mut node)?;
        // The survivors name the same members in the same order.
        let survivors: Vec<u32> = (0..node.size()).filter(|rank| *rank != dead).collect();
        let group = Group::new(&node, 1, &survivors)?;
        sum = own;
        group.allreduce(&mut node, ReduceOp::Sum, &mut sum)?;
    }
    println!("rank {}: sum {}", node.rank(), sum[0]);
    node.close()
}
