// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of crowds: endpoints that send active messages, and ranks that make collective operations.
#![allow(
    unsafe_code,
    reason = "an endpoint sends the program's memory by address"
)]

use super::crowd::{Crowd, CrowdConfig, Member};
use super::{ScaleRow, overflowed};
use portolan::binding::simulated::{
    SimulatedConfig, SimulatedEndpoint, SimulatedJob, SimulatedNode, virtual_ns,
};
use portolan::binding::{ActiveMessage, Cookie, PeerIndex, RawPiece, Sent, SubmitError};
use portolan::{ReduceOp, Request};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tag of all active messages.
const TAG: u8 = 1;

/// Bits of a stamp for the sender.
const NODE_BITS: u32 = 13;

/// Traffic of one sender to each of its targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) count: u32,
    pub(super) len: usize,
    /// Time between two messages to one target.
    pub(super) gap_ns: u64,
}

#[derive(Debug, Default)]
struct Record {
    /// Times of messages from send to arrival.
    delays_ns: Vec<u64>,
    /// Time of the first arrival of all.
    first_ns: Option<u64>,
    /// Bytes received of each sender, and the time of the last.
    got: Vec<(u64, u64)>,
    /// Latest completion of each round.
    rounds_ns: Vec<u64>,
}

/// Record shared by all processes of a crowd.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Record>>);

impl Shared {
    pub(super) fn new(nodes: u32) -> Shared {
        Shared(Arc::new(Mutex::new(Record {
            got: vec![(0, 0); nodes as usize],
            ..Record::default()
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the arrival of a message.
    fn note_arrival(&self, bytes: &[u8]) {
        let now_ns = virtual_ns();
        let stamp = bytes
            .first_chunk()
            .map_or(0, |stamp| u64::from_le_bytes(*stamp));
        let node = usize::try_from(stamp & ((1 << NODE_BITS) - 1)).unwrap_or(0);
        let mut record = self.lock();
        record.delays_ns.push(now_ns - (stamp >> NODE_BITS));
        record.first_ns.get_or_insert(now_ns);
        let got = &mut record.got[node];
        *got = (got.0 + bytes.len() as u64, now_ns);
    }

    /// Records that a rank has completed a round.
    fn note_round(&self, round: u32) {
        let now_ns = virtual_ns();
        let rounds = &mut self.lock().rounds_ns;
        rounds.resize(rounds.len().max(round as usize + 1), 0);
        rounds[round as usize] = now_ns;
    }

    /// Returns the figures of a crowd that has ended its work.
    pub(super) fn row<M: Member>(&self, crowd: &Crowd<M>, ideal_ns: u64) -> ScaleRow {
        let mut record = self.lock();
        record.delays_ns.sort_unstable();
        let index = record.delays_ns.len() * 99 / 100;
        let p99_ns = record.delays_ns.get(index).copied().unwrap_or(0);
        let last_ns = record.got.iter().map(|(_, last)| *last).max();
        let rates = record.got.iter().filter(|(len, _)| *len > 0);
        let rates: Vec<f64> = rates
            .map(|(len, last)| *len as f64 / *last as f64)
            .collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let stats = crowd.stats();
        ScaleRow {
            what: String::new(),
            time_us: last_ns.unwrap_or(0) as f64 / 1000.0,
            ideal_us: ideal_ns as f64 / 1000.0,
            p99_us: p99_ns as f64 / 1000.0,
            fairness: match rates.is_empty() {
                true => 1.0,
                false => sum * sum / (squares * rates.len() as f64),
            },
            frames: stats.sent,
            overflowed: overflowed(&stats),
            memory_len: 0,
        }
    }

    /// Returns the median time from a send to its arrival, in microseconds.
    pub(super) fn delay_us(&self) -> f64 {
        let mut delays = self.lock().delays_ns.clone();
        delays.sort_unstable();
        delays
            .get(delays.len() / 2)
            .map_or(0.0, |ns| *ns as f64 / 1000.0)
    }

    /// Returns the mean time from one arrival to the next, in microseconds.
    pub(super) fn interval_us(&self) -> f64 {
        let record = self.lock();
        let last_ns = record.got.iter().map(|(_, last)| *last).max();
        let passed = last_ns.unwrap_or(0) - record.first_ns.unwrap_or(0);
        passed as f64 / 1000.0 / (record.delays_ns.len() as f64 - 1.0)
    }

    /// Returns the time of a round without the first, in microseconds.
    pub(super) fn round_us(&self, rounds: u32) -> f64 {
        let record = self.lock();
        let (first, last) = (record.rounds_ns.first(), record.rounds_ns.last());
        let passed = last.unwrap_or(&0) - first.unwrap_or(&0);
        passed as f64 / 1000.0 / f64::from(rounds - 1)
    }
}

/// An endpoint that sends its load to its targets.
pub(super) struct Sender {
    endpoint: SimulatedEndpoint,
    node: u32,
    targets: Vec<Course>,
    load: Load,
    /// Memory of sends that have not ended, by context. Dropped after the endpoint.
    open: BTreeMap<u64, Box<[u8]>>,
    next_context: u64,
    /// Messages that are still to come.
    left: Arc<AtomicI64>,
    acts_at: u64,
}

/// Progress of the messages to one target.
struct Course {
    peer: PeerIndex,
    sent: u32,
    next_at: u64,
}

impl Sender {
    /// Creates a crowd of which each member sends `load` to its targets.
    pub(super) fn crowd(
        nodes: u32,
        shared: &Shared,
        load: Load,
        crowd_config: &CrowdConfig,
        targets: impl Fn(u32) -> Vec<u32>,
    ) -> Crowd<Sender> {
        let mut expected = vec![0_i64; nodes as usize];
        for target in (0..nodes).flat_map(&targets) {
            expected[target as usize] += i64::from(load.count);
        }
        if load.gap_ns > 0 {
            // Some senders die, so that no number of messages is certain.
            expected.fill(0);
        }
        let mut addresses = Vec::new();
        let mut crowd = Crowd::new(nodes, crowd_config, |node, config| {
            let sender = Sender::new(node, config, load, expected[node as usize], shared);
            addresses.push(sender.endpoint.address());
            sender
        });
        for (node, member) in (0..nodes).zip(crowd.members()) {
            for target in targets(node) {
                let peer = member.endpoint.insert(&addresses[target as usize]);
                member.targets.push(Course {
                    peer: peer.unwrap_or_else(|error| panic!("{error}")),
                    sent: 0,
                    next_at: 0,
                });
            }
        }
        crowd
    }

    fn new(
        node: u32,
        config: SimulatedConfig,
        load: Load,
        expected: i64,
        shared: &Shared,
    ) -> Sender {
        let mut endpoint = SimulatedEndpoint::new(config).unwrap_or_else(|error| panic!("{error}"));
        let left = Arc::new(AtomicI64::new(expected));
        let (still, shared) = (Arc::clone(&left), shared.clone());
        let hook = move |message: ActiveMessage<'_>| {
            still.fetch_sub(1, Ordering::Relaxed);
            shared.note_arrival(message.bytes);
        };
        if let Err(error) = endpoint.on_active(hook) {
            panic!("{error}");
        }
        Sender {
            endpoint,
            node,
            targets: Vec::new(),
            load,
            open: BTreeMap::new(),
            next_context: 1,
            left,
            acts_at: 0,
        }
    }

    /// Sends what is due. Returns the number of messages.
    fn send(&mut self) -> usize {
        let now_ns = virtual_ns();
        let mut sent = 0;
        self.acts_at = u64::MAX;
        for index in 0..self.targets.len() {
            while self.targets[index].sent < self.load.count {
                let course = &mut self.targets[index];
                if course.next_at > now_ns {
                    self.acts_at = self.acts_at.min(course.next_at);
                    break;
                }
                course.next_at = now_ns + self.load.gap_ns;
                let peer = course.peer;
                match self.submit(peer) {
                    Ok(()) => {
                        sent += 1;
                        self.targets[index].sent += 1;
                    }
                    Err(SubmitError::Again) => break,
                    Err(_) => self.targets[index].sent = self.load.count,
                }
            }
        }
        sent
    }

    fn submit(&mut self, peer: PeerIndex) -> Result<(), SubmitError> {
        let stamp = stamp_of(self.node);
        let mut bytes = vec![0x5a; self.load.len].into_boxed_slice();
        bytes[..stamp.len()].copy_from_slice(&stamp);
        match self.endpoint.inject_active(peer, TAG, [&bytes, &[]]) {
            Err(SubmitError::Again | SubmitError::TooLong) => {}
            result => return result,
        }
        let context = self.next_context;
        let piece = RawPiece {
            ptr: bytes.as_mut_ptr(),
            len: bytes.len(),
        };
        // SAFETY: `open` keeps the memory until the completion, and is dropped after the endpoint.
        let sent = unsafe {
            self.endpoint
                .send_active(peer, TAG, piece, Cookie::new(context))
        }?;
        if sent == Sent::Pending {
            self.next_context += 1;
            self.open.insert(context, bytes);
        }
        Ok(())
    }
}

impl Member for Sender {
    fn turn(&mut self) -> usize {
        let open = &mut self.open;
        let (moved, _) = self.endpoint.poll_unyielding(&mut |done| {
            open.remove(&done.cookie.context);
        });
        moved + self.send()
    }

    fn acts_at(&self) -> u64 {
        self.acts_at
    }

    fn is_done(&self) -> bool {
        let is_sent = self
            .targets
            .iter()
            .all(|course| course.sent == self.load.count);
        is_sent && self.open.is_empty() && self.left.load(Ordering::Relaxed) <= 0
    }

    fn fall_asleep(&mut self) -> Option<Duration> {
        self.endpoint.fall_asleep()
    }

    /// The next poll ends the sleep.
    fn wake_up(&mut self) {}

    fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.endpoint.receive_probe(bytes, from);
    }

    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.endpoint.receive_refusal(quoted, destination);
    }
}

/// A rank that makes rounds of a collective operation.
pub(super) struct Rank {
    node: SimulatedNode,
    is_barrier: bool,
    rounds: u32,
    done: u32,
    request: Vec<Request>,
    shared: Shared,
}

impl Rank {
    pub(super) fn crowd(nodes: u32, shared: &Shared, is_barrier: bool, rounds: u32) -> Crowd<Rank> {
        Crowd::new(nodes, &CrowdConfig::default(), |node, config| {
            let place = SimulatedJob {
                rank: node,
                size: nodes,
                first_port: 0,
                seed: 1,
            };
            Rank {
                node: SimulatedNode::new(config, place).unwrap_or_else(|error| panic!("{error}")),
                is_barrier,
                rounds,
                done: 0,
                request: Vec::new(),
                shared: shared.clone(),
            }
        })
    }

    fn begin(&mut self) {
        let value = u64::from(self.node.rank());
        let request = match self.is_barrier {
            true => self.node.ibarrier(),
            false => self.node.iallreduce(ReduceOp::Sum, vec![value]),
        };
        self.request
            .push(request.unwrap_or_else(|error| panic!("{error}")));
    }
}

impl Member for Rank {
    fn turn(&mut self) -> usize {
        let mut moved = self.node.progress().unwrap_or(0);
        if self.done < self.rounds && self.request.is_empty() {
            self.begin();
            moved += 1;
        }
        while let Some(ended) = self.node.test_any(&mut self.request) {
            let done = ended.result.unwrap_or_else(|error| panic!("{error}"));
            let size = u64::from(self.node.size());
            let sum = (size * (size - 1) / 2).to_ne_bytes();
            if !self.is_barrier {
                assert_eq!(done.buffer.as_deref(), Some(&sum[..]), "a wrong sum");
            }
            self.shared.note_round(self.done);
            self.done += 1;
            moved += 1;
        }
        moved
    }

    fn acts_at(&self) -> u64 {
        u64::MAX
    }

    fn is_done(&self) -> bool {
        self.done == self.rounds
    }

    fn fall_asleep(&mut self) -> Option<Duration> {
        self.node.fall_asleep()
    }

    fn wake_up(&mut self) {
        self.node.wake_up();
    }

    fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.node.receive_probe(bytes, from);
    }

    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.node.receive_refusal(quoted, destination);
    }
}

/// Returns the stamp at the front of a message: its time, and its sender.
fn stamp_of(node: u32) -> [u8; 8] {
    (virtual_ns() << NODE_BITS | u64::from(node)).to_le_bytes()
}
