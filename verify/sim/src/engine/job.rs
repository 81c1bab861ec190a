// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program of a rank of a job: rounds of collective operations, and messages beside them.

use super::oracle::Oracle;
use super::plan::{EnginePlan, Flow};
use super::process::Process;
use crate::payload;
use portolan::binding::simulated::{Pending, SimulatedConfig, SimulatedJob, SimulatedNode};
use portolan::{Completion, Failed, Group, PortConfig, ReduceOp, Request, Target};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Time after the end of a process for which receives from any source wait for its messages.
const GRACE_NS: u64 = 500_000_000;

/// Distinguishes the randomness of rounds from that of the plan.
const ROUNDS_STREAM: u64 = 0x5151_0000;

/// Collective operation of one round, the same for all ranks.
#[derive(Clone, Copy, Debug)]
enum Round {
    Barrier,
    Allreduce { count: usize },
    Broadcast { root: u32, len: usize },
    Alltoall { len: usize },
    Allgather { len: usize },
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug)]
enum What {
    Round(u32),
    Send { flow: usize, seq: u32 },
    Recv { flow: usize, seq: u32 },
}

/// See the module documentation.
pub(super) struct JobProgram {
    node: u32,
    plan: Rc<EnginePlan>,
    rank: SimulatedNode,
    rounds: Vec<Round>,
    next_round: u32,
    /// Rounds that may be in flight at a time.
    window: u32,
    open_rounds: u32,
    /// Set when a collective operation has failed.
    is_broken: bool,
    requests: Vec<Request>,
    whats: Vec<What>,
    /// Messages sent, and receives posted, of each flow.
    begun: Vec<u32>,
    open: Vec<u32>,
    acts_at: u64,
    is_closing: bool,
}

impl JobProgram {
    pub(super) fn new(
        node: u32,
        rounds: u32,
        plan: &Rc<EnginePlan>,
        config: SimulatedConfig,
    ) -> Self {
        let place = SimulatedJob {
            rank: node,
            size: plan.nodes,
            first_port: 0,
            seed: plan.seed,
        };
        let mut rank = SimulatedNode::new(config, place).unwrap_or_else(|error| panic!("{error}"));
        for (index, _) in plan.flows_of(node).filter(|(_, flow)| flow.dst == node) {
            let port = u16::try_from(index).unwrap_or(u16::MAX);
            rank.open(port, PortConfig::default())
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ ROUNDS_STREAM);
        JobProgram {
            node,
            rounds: (0..rounds)
                .map(|_| draw_round(&mut rng, plan.nodes))
                .collect(),
            window: rng.random_range(1..=4),
            next_round: 0,
            open_rounds: 0,
            is_broken: false,
            rank,
            requests: Vec::new(),
            whats: Vec::new(),
            begun: vec![0; plan.flows.len()],
            open: vec![0; plan.flows.len()],
            acts_at: 0,
            is_closing: false,
            plan: Rc::clone(plan),
        }
    }

    fn add(&mut self, request: Request, what: What) {
        self.requests.push(request);
        self.whats.push(what);
    }

    /// Begins the rounds that the window allows. Returns their number.
    fn begin_rounds(&mut self, oracle: &mut Oracle) -> usize {
        let mut begun = 0;
        while self.open_rounds < self.window && !self.is_broken {
            let Some(round) = self.rounds.get(self.next_round as usize).copied() else {
                break;
            };
            let number = self.next_round;
            oracle.trace(self.node, "round", number.into());
            oracle.begun[self.node as usize] = number + 1;
            match self.begin(round, number) {
                Ok(request) => self.add(request, What::Round(number)),
                Err(error) => {
                    self.on_broken(number, error.to_string(), oracle);
                    break;
                }
            }
            self.next_round += 1;
            self.open_rounds += 1;
            begun += 1;
        }
        begun
    }

    fn begin(&mut self, round: Round, number: u32) -> Result<Request, portolan::Error> {
        let (own, size) = (self.node, self.plan.nodes);
        let block = |from: u32, to: u32, len| payload::make(block_id(number, from, to), len, false);
        let all = Group::all(&self.rank);
        match round {
            Round::Barrier => self.rank.ibarrier(),
            Round::Allreduce { count } => {
                let values = values_of(number, own, count);
                self.rank.iallreduce(ReduceOp::Sum, values)
            }
            Round::Broadcast { root, len } => {
                let bytes = match root == own {
                    true => block(root, root, len),
                    false => vec![0xa5; len],
                };
                self.rank.ibroadcast(root, bytes)
            }
            Round::Alltoall { len } => {
                let mine: Vec<u8> = (0..size).flat_map(|to| block(own, to, len)).collect();
                let theirs = vec![0xa5; mine.len()];
                all.ialltoall(&mut self.rank, mine, theirs)
            }
            Round::Allgather { len } => {
                let theirs = vec![0xa5; len * size as usize];
                all.iallgather(&mut self.rank, block(own, own, len), theirs)
            }
        }
    }

    fn on_broken(&mut self, number: u32, why: String, oracle: &mut Oracle) {
        self.is_broken = true;
        oracle.failed_count += 1;
        oracle.trace(self.node, "broken", number.into());
        if !oracle.is_any_gone() {
            oracle.violate(format!("round {number} at {} failed: {why}", self.node));
        }
    }

    fn on_round(&mut self, number: u32, result: Result<Completion, Failed>, oracle: &mut Oracle) {
        self.open_rounds -= 1;
        let completion = match result {
            Ok(completion) => completion,
            Err(failed) => return self.on_broken(number, failed.to_string(), oracle),
        };
        oracle.done_count += 1;
        oracle.trace(self.node, "round done", number.into());
        let round = self.rounds[number as usize];
        let needed = match round {
            Round::Broadcast { root, .. } => root..root + 1,
            _ => 0..self.plan.nodes,
        };
        for other in needed {
            if oracle.begun[other as usize] <= number {
                oracle.violate(format!(
                    "{} completes round {number} ({round:?}) before {other} has begun it",
                    self.node
                ));
            }
        }
        let bytes = completion.buffer.as_deref().unwrap_or(&[]);
        if !self.is_right(round, number, bytes) {
            oracle.violate(format!(
                "round {number} ({round:?}) at {}: wrong result",
                self.node
            ));
        }
    }

    /// Tests the result of a round.
    fn is_right(&self, round: Round, number: u32, bytes: &[u8]) -> bool {
        let (own, size) = (self.node, self.plan.nodes);
        let block = |from: u32, to: u32, len| payload::make(block_id(number, from, to), len, false);
        match round {
            Round::Barrier => bytes.is_empty(),
            Round::Allreduce { count } => {
                let mut sums = vec![0_u64; count];
                for rank in 0..size {
                    let values = values_of(number, rank, count);
                    sums.iter_mut()
                        .zip(values)
                        .for_each(|(sum, value)| *sum += value);
                }
                bytes.chunks(8).eq(sums.iter().map(|sum| sum.to_ne_bytes()))
            }
            Round::Broadcast { root, len } => bytes == block(root, root, len),
            Round::Alltoall { len } => {
                bytes
                    == (0..size)
                        .flat_map(|from| block(from, own, len))
                        .collect::<Vec<_>>()
            }
            Round::Allgather { len } => {
                bytes
                    == (0..size)
                        .flat_map(|from| block(from, from, len))
                        .collect::<Vec<_>>()
            }
        }
    }

    /// Posts receives and sends messages that are due. Returns their number.
    fn exchange(&mut self, oracle: &mut Oracle) -> usize {
        let plan = Rc::clone(&self.plan);
        let mut moved = 0;
        for (index, flow) in plan.flows_of(self.node) {
            let is_sender = flow.src == self.node;
            let peer = if is_sender { flow.dst } else { flow.src };
            while self.begun[index] < flow.count && self.open[index] < flow.depth {
                let seq = self.begun[index];
                let at = match is_sender {
                    true => flow.start_ns + u64::from(seq / flow.burst) * flow.gap_ns,
                    false => flow.post_ns,
                };
                if at > oracle.now_ns {
                    self.acts_at = self.acts_at.min(at);
                    break;
                }
                let begun = match is_sender {
                    true => self.send(index, flow, seq),
                    false => self.receive(index, flow, seq),
                };
                self.begun[index] += 1;
                let state = &mut oracle.flows[index];
                match is_sender {
                    true => state.sent = seq + 1,
                    false => state.posted = seq + 1,
                }
                if let Err(error) = begun {
                    oracle.note_failure(self.node, peer, "message", error.to_string());
                    self.begun[index] = flow.count;
                }
                moved += 1;
            }
        }
        moved
    }

    fn send(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<(), portolan::Error> {
        let to = Target::new(flow.dst, u16::try_from(index).unwrap_or(u16::MAX));
        let bytes = payload::make(Flow::id(index, seq), flow.len(index, seq), false);
        let request = self.rank.isend(to, bytes)?;
        self.open[index] += 1;
        self.add(request, What::Send { flow: index, seq });
        Ok(())
    }

    fn receive(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<(), portolan::Error> {
        let port = u16::try_from(index).unwrap_or(u16::MAX);
        let bytes = vec![0xa5; flow.len_max];
        let request = match flow.is_sourced {
            true => self.rank.post_recv_from(flow.src, port, bytes)?,
            false => self.rank.post_recv(port, bytes)?,
        };
        self.open[index] += 1;
        self.add(request, What::Recv { flow: index, seq });
        Ok(())
    }

    fn on_message(
        &mut self,
        index: usize,
        seq: u32,
        is_send: bool,
        result: Result<Completion, Failed>,
        oracle: &mut Oracle,
    ) {
        self.open[index] -= 1;
        let plan = Rc::clone(&self.plan);
        let flow = &plan.flows[index];
        let completion = match result {
            Ok(completion) => completion,
            Err(failed) => {
                let (what, peer) = match is_send {
                    true => ("send", flow.dst),
                    false => ("receive", flow.src),
                };
                self.begun[index] = flow.count;
                return oracle.note_failure(self.node, peer, what, failed.to_string());
            }
        };
        oracle.done_count += 1;
        if is_send {
            oracle.flows[index].promised[seq as usize] = true;
            return;
        }
        let bytes = completion.buffer.as_deref().unwrap_or(&[]);
        let bytes = bytes.get(..completion.len).unwrap_or(&[]);
        let is_message = |seq: &u32| {
            bytes.len() == flow.len(index, *seq)
                && payload::first_difference(Flow::id(index, *seq), bytes, false).is_none()
        };
        // Of a process that has ended, messages that it had announced only may be missing.
        let last = if oracle.is_gone(flow.src) {
            flow.count
        } else {
            seq + 1
        };
        match (seq..last).find(is_message) {
            Some(got) if completion.source == flow.src => oracle.note_arrival(index, got),
            _ => oracle.violate(format!("receive {seq} of flow {index} got another message")),
        }
    }

    /// Cancels receives from any source if their messages can no longer arrive.
    fn give_up_unsent(&mut self, oracle: &mut Oracle) {
        if !oracle.is_any_gone() {
            return;
        }
        let mut index = 0;
        while let Some(what) = self.whats.get(index).copied() {
            let is_orphan = matches!(what, What::Recv { flow, .. } if {
                let flow = &self.plan.flows[flow];
                let gone_at = oracle.gone_at(flow.src);
                !flow.is_sourced && gone_at.is_some_and(|at| oracle.now_ns >= at + GRACE_NS)
            });
            if let (true, What::Recv { flow, .. }) = (is_orphan, what) {
                self.rank.cancel(self.requests.remove(index));
                self.whats.remove(index);
                self.open[flow] -= 1;
                self.begun[flow] = self.plan.flows[flow].count;
            } else {
                index += 1;
            }
        }
    }
}

/// Returns the number that determines the bytes of a block of a round.
fn block_id(number: u32, from: u32, to: u32) -> u64 {
    1 << 63 | u64::from(number) << 40 | u64::from(from) << 20 | u64::from(to)
}

fn values_of(number: u32, rank: u32, count: usize) -> Vec<u64> {
    let first = u64::from(number * 1000 + rank);
    (0..count as u64).map(|index| first * 7 + index).collect()
}

fn draw_round(rng: &mut ChaCha8Rng, nodes: u32) -> Round {
    let len = *[0, 8, 200, 3000, 70_000].choose(rng).unwrap_or(&8);
    match rng.random_range(0..5) {
        0 => Round::Barrier,
        1 => Round::Allreduce { count: 1 + len / 8 },
        2 => Round::Broadcast {
            root: rng.random_range(0..nodes),
            len,
        },
        3 => Round::Alltoall { len: len.min(3000) },
        _ => Round::Allgather { len: len.min(3000) },
    }
}

impl Process for JobProgram {
    fn turn(&mut self, oracle: &mut Oracle) -> usize {
        let mut moved = self.rank.progress().unwrap_or(0);
        while let Some(ended) = self.rank.test_any(&mut self.requests) {
            moved += 1;
            let what = self.whats.remove(ended.index);
            oracle.trace(self.node, "done", ended.index as u64);
            match what {
                What::Round(number) => self.on_round(number, ended.result, oracle),
                What::Send { flow, seq } => self.on_message(flow, seq, true, ended.result, oracle),
                What::Recv { flow, seq } => self.on_message(flow, seq, false, ended.result, oracle),
            }
        }
        if self.is_closing {
            return moved;
        }
        // The next action is found below.
        self.acts_at = u64::MAX;
        moved += self.begin_rounds(oracle) + self.exchange(oracle);
        self.give_up_unsent(oracle);
        moved
    }

    fn acts_at(&self) -> u64 {
        self.acts_at
    }

    fn fall_asleep(&mut self) -> Option<Duration> {
        self.rank.fall_asleep()
    }

    fn wake_up(&mut self) {
        self.rank.wake_up();
    }

    fn left_to_helper(&self) -> Pending {
        self.rank.left_to_helper()
    }

    fn run_helper(&mut self) -> bool {
        self.rank.run_helper()
    }

    fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.rank.receive_probe(bytes, from);
    }

    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.rank.receive_refusal(quoted, destination);
    }

    fn leave(&mut self, _: &mut Oracle) {}

    fn unfinished(&self, oracle: &Oracle) -> Option<String> {
        if let Some(what) = self.whats.first() {
            return Some(format!("{what:?}"));
        }
        if !self.is_broken && (self.next_round as usize) < self.rounds.len() {
            return Some(format!("round {}", self.next_round));
        }
        let mut flows = self.plan.flows_of(self.node);
        let unfinished = flows.find(|(index, flow)| {
            let peer = if flow.src == self.node {
                flow.dst
            } else {
                flow.src
            };
            self.begun[*index] < flow.count && !oracle.is_gone(peer)
        });
        unfinished.map(|(index, _)| format!("flow {index} after {}", self.begun[index]))
    }

    fn check_free(&self, oracle: &mut Oracle) {
        let in_use = self.rank.in_use();
        if in_use != Default::default() && !oracle.is_any_gone() {
            oracle.violate(format!("{} still uses {in_use:?}", self.node));
        }
    }

    fn begin_close(&mut self) {
        self.is_closing = true;
        self.rank.begin_close();
    }

    fn poll_close(&mut self) -> Option<Result<(), String>> {
        let result = self.rank.poll_close()?;
        Some(result.map_err(|error| error.to_string()))
    }
}
