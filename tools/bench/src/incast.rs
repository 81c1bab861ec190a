// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several senders to one receiver.
//!
//! Rank 0 receives and measures. A pass begins with a control message to the senders. Each sends
//! one message, and the receiver records when each was complete. Before that, one sender alone
//! sends as many bytes per pass in the same run, to measure the receiver's capacity.

use crate::extra::Extra;
use crate::loaded::halved;
use crate::measure::{Pass, Sample, drive};
use crate::pattern::{stamp, verify};
use crate::portolan_account;
use crate::rounds::median;
use crate::rows::pass_flags;
use crate::spec::Spec;
use anyhow::{Context, Result, bail, ensure};
use portolan::{Buffer, Lane, Node, PortConfig, Region, Target};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Ports of the messages, of accounts, and of the receiver's control messages.
const DATA: u16 = 1;
const ACCOUNTS: u16 = 2;
const COMMANDS: u16 = 5;

/// Maximum bytes of a control message as JSON.
const COMMAND_LEN_MAX: usize = 128;

/// Control message from the receiver to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Command {
    /// Request to send `messages` messages of pass `seq`.
    Send {
        messages: u32,
        seq: u64,
        last: bool,
    },
    Stop,
}

/// A received message.
struct Arrival {
    source: u32,
    at: Instant,
    /// Posted region that contains the message.
    message: Option<Region>,
}

/// Received messages of the current pass. Only one thread uses it; the lock is needed because
/// handlers must be `Send`.
#[derive(Default)]
struct Arrivals {
    count: AtomicUsize,
    list: Mutex<Vec<Arrival>>,
}

/// Runs rank 0.
///
/// # Errors
/// A payload was wrong, or a sender has failed.
pub(crate) fn receive(node: &mut Node, spec: &Spec) -> Result<Sample> {
    let arrivals = Arc::new(Arrivals::default());
    let noted = Arc::clone(&arrivals);
    node.open_active(DATA, PortConfig::default(), move |_, mut message| {
        let (source, at) = (message.source(), Instant::now());
        let buffer = message
            .take_buffer()
            .and_then(|buffer| buffer.into_region().ok());
        if let Ok(mut list) = noted.list.lock() {
            list.push(Arrival {
                source,
                at,
                message: buffer,
            });
        }
        noted.count.fetch_add(1, Relaxed);
    })?;
    node.open(ACCOUNTS, PortConfig::default())?;
    node.barrier()?;
    let senders = node.size() - 1;
    let shape = Pass::one_way(u64::from(senders));
    let buffers = (0..senders)
        .map(|_| Region::new(spec.size))
        .collect::<Result<_, _>>()?;
    let mut receiver = Receiver {
        node,
        arrivals,
        buffers,
        seqs: vec![0; senders as usize + 1],
        finish_us: Vec::new(),
    };
    let single = drive(halved(spec.pace), shape, |last| {
        receiver.pass(&[1], senders, last)
    })?;
    let all: Vec<u32> = (1..=senders).collect();
    receiver.finish_us.clear();
    let sample = drive(halved(spec.pace), shape, |last| {
        receiver.pass(&all, 1, last)
    })?;
    receiver.finish(spec, &single, sample)
}

struct Receiver<'a> {
    node: &'a mut Node,
    arrivals: Arc<Arrivals>,
    buffers: Vec<Region>,
    /// Number of passes of each rank so far.
    seqs: Vec<u64>,
    /// Completion times of each pass so far, by sender.
    finish_us: Vec<Vec<f64>>,
}

impl Receiver<'_> {
    /// Requests `messages` from each of `ranks` and waits for all of them.
    fn pass(&mut self, ranks: &[u32], messages: u32, last: bool) -> Result<()> {
        for buffer in self.buffers.drain(..) {
            // The handler receives the message, so the request is not awaited.
            let _ = self.node.post_recv(DATA, buffer)?;
        }
        self.arrivals.count.store(0, Relaxed);
        let began = Instant::now();
        for &rank in ranks {
            let seq = self.seqs[rank as usize];
            send_command(
                self.node,
                rank,
                Command::Send {
                    messages,
                    seq,
                    last,
                },
            )?;
        }
        let expected = ranks.len() * messages as usize;
        let arrivals = Arc::clone(&self.arrivals);
        self.node
            .wait_until(|| arrivals.count.load(Relaxed) >= expected)?;
        self.take(ranks, began)
    }

    fn take(&mut self, ranks: &[u32], began: Instant) -> Result<()> {
        let list = self
            .arrivals
            .list
            .lock()
            .map(|mut list| std::mem::take(&mut *list));
        let Ok(list) = list else {
            bail!("a handler panicked");
        };
        let mut finish = vec![0.0; ranks.len()];
        for arrival in list {
            let message = arrival
                .message
                .context("a message arrived outside the posted buffers")?;
            verify(&message, self.seqs[arrival.source as usize])
                .with_context(|| format!("from rank {}", arrival.source))?;
            if let Some(place) = ranks.iter().position(|rank| *rank == arrival.source) {
                finish[place] = arrival.at.duration_since(began).as_secs_f64() * 1e6;
            }
            self.buffers.push(message);
        }
        for rank in ranks {
            self.seqs[*rank as usize] += 1;
        }
        self.finish_us.push(finish);
        Ok(())
    }

    /// Stops the senders and combines the figures.
    fn finish(self, spec: &Spec, single: &Sample, mut sample: Sample) -> Result<Sample> {
        let senders = self.node.size() - 1;
        for rank in 1..=senders {
            send_command(self.node, rank, Command::Stop)?;
        }
        for rank in 1..=senders {
            let account = portolan_account::receive(self.node, rank, ACCOUNTS)?;
            sample.add("senders", account.counters);
        }
        #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
        let megabytes = spec.size as f64 / 1e6;
        // The last pass is excluded, as in all figures.
        let measured = self.finish_us.len().saturating_sub(1);
        let of = |sender: usize| {
            median(
                self.finish_us[..measured]
                    .iter()
                    .map(|pass| pass[sender])
                    .collect(),
            )
        };
        sample.extra = Extra {
            single_mbytes_per_s: Some(single.msgs_per_s * megabytes),
            finish_us: (0..senders as usize).map(of).collect(),
            ..sample.extra
        };
        Ok(sample)
    }
}

/// Runs any other rank.
///
/// # Errors
/// The receiver has failed.
pub(crate) fn send(node: &mut Node, spec: &Spec) -> Result<()> {
    node.open(COMMANDS, PortConfig::default())?;
    node.barrier()?;
    let mut message = Arc::new(Region::new(spec.size)?);
    loop {
        let Command::Send {
            messages,
            seq,
            last,
        } = receive_command(node)?
        else {
            break;
        };
        let bytes =
            Arc::get_mut(&mut message).context("a completed send still holds its buffer")?;
        stamp(bytes, seq, pass_flags(seq, last));
        let requests: Vec<_> = (0..messages)
            .map(|_| Buffer::shared_region(Arc::clone(&message)))
            .map(|message| node.isend(Target::new(0, DATA), message))
            .collect::<Result<_, _>>()?;
        for request in requests {
            node.wait(request)?;
        }
    }
    let account = portolan_account::of(node, &crate::cpu::Meter::default());
    portolan_account::send(node, Target::new(0, ACCOUNTS), &account)
}

fn send_command(node: &mut Node, rank: u32, command: Command) -> Result<()> {
    let to = Target::new(rank, COMMANDS).lane(Lane::High);
    Ok(node.send(to, &serde_json::to_vec(&command)?)?)
}

fn receive_command(node: &mut Node) -> Result<Command> {
    let mut bytes = [0; COMMAND_LEN_MAX];
    let received = node.recv(COMMANDS, &mut bytes)?;
    ensure!(
        received.source == 0,
        "a command from rank {}",
        received.source
    );
    serde_json::from_slice(&bytes[..received.len]).context("not a command of the receiver")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_command_fits() {
        let command = Command::Send {
            messages: u32::MAX,
            seq: u64::MAX,
            last: false,
        };
        assert!(serde_json::to_vec(&command).expect("serializes").len() <= COMMAND_LEN_MAX);
    }
}
