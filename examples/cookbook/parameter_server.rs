// SPDX-License-Identifier: MIT OR Apache-2.0
//! A parameter server that outlives its workers:
//! `portolan run -n 4 --on-failure=continue -- parameter_server [STEPS [VICTIM]]`.
//!
//! A worker's call brings the gradient of its last step, and the reply the next step. The step of a
//! worker that dies is given to another one. Worker VICTIM kills itself at its first reply.

use portolan::{Error, Node, PeerEventKind, PortConfig, ReplyTo, Target};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const PORT: u16 = 1;
const NO_STEP: u16 = 1;

fn serve(node: &mut Node, steps: u64) -> Result<(), Error> {
    let mut queue: VecDeque<u64> = (0..steps).collect();
    let mut at = BTreeMap::new(); // step of each worker
    let mut idle: Vec<ReplyTo> = Vec::new();
    let (mut parameter, mut done, mut lost, mut workers) = (0, 0, 0, node.size() - 1);
    while workers > 0 {
        while let Some(event) = node.next_peer_event() {
            workers -= 1;
            lost += u32::from(event.kind == PeerEventKind::Lost);
            queue.extend(at.remove(&event.rank));
        }
        let call = match node.recv_call(PORT, Some(Duration::from_millis(10))) {
            Err(Error::NobodyLeft { .. }) => None,
            call => call?,
        };
        if let Some(call) = call {
            if at.remove(&call.source()).is_some() {
                parameter += call
                    .bytes()
                    .iter()
                    .rev()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                done += 1;
            }
            idle.push(call.reply_to());
        }
        while done == steps || !queue.is_empty() {
            let Some(worker) = idle.pop() else { break };
            let step = queue.pop_front();
            at.extend(step.map(|step| (worker.rank(), step)));
            let bytes = step.unwrap_or(0).to_le_bytes().to_vec();
            // The event of a worker that has died follows.
            let _ = node.reply(worker, if step.is_some() { 0 } else { NO_STEP }, bytes);
        }
    }
    println!("{steps} steps, parameter {parameter}, {lost} lost");
    Ok(())
}

fn work(node: &mut Node, is_victim: bool) -> Result<(), Error> {
    let mut gradient = Vec::new();
    loop {
        let reply = node.call(Target::new(0, PORT), &gradient).wait()?;
        if is_victim {
            std::process::abort();
        }
        if reply.status == NO_STEP {
            return Ok(());
        }
        let step = reply
            .bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        gradient = (step * step).to_le_bytes().to_vec();
    }
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().unwrap_or(0));
    let (steps, victim) = (args.next().unwrap_or(100), args.next());
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    match u64::from(node.rank()) {
        0 => serve(&mut node, steps)?,
        rank => work(&mut node, Some(rank) == victim)?,
    }
    node.close()
}
