// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program on an endpoint: sends, receives, active messages, puts and gets.

mod calls;
mod ends;

use super::oracle::Oracle;
use super::plan::{EnginePlan, Flow, FlowKind};
use super::process::Process;
use crate::payload;
use portolan::binding::simulated::{Pending, SimulatedConfig, SimulatedEndpoint};
use portolan::binding::{ActiveMessage, EndpointAddress, PeerIndex, RawCompletion};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Key of the region that each endpoint registers.
const KEY: u64 = 7;

/// Time after which a program that got no capacity tries again.
const AGAIN_NS: u64 = 10_000;

/// Time after the end of a process for which receives from any source wait for its messages.
const GRACE_NS: u64 = 500_000_000;

/// Operation that has not ended.
#[derive(Debug)]
enum Op {
    Send {
        flow: usize,
        seq: u32,
        bytes: Vec<u8>,
    },
    Recv {
        flow: usize,
        seq: u32,
        bytes: Vec<u8>,
    },
    Put {
        flow: usize,
        seq: u32,
        bytes: Vec<u8>,
    },
    Get {
        flow: usize,
        seq: u32,
        bytes: Vec<u8>,
    },
}

/// Progress of a flow at one of its ends.
#[derive(Debug, Default)]
struct End {
    /// Messages sent, or receives posted.
    begun: u32,
    /// Operations that have not ended.
    open: u32,
    next_at: u64,
}

/// An active message that the hook has received.
type Active = (PeerIndex, u8, Vec<u8>);

/// See the module documentation.
pub(super) struct EndpointProgram {
    node: u32,
    plan: Rc<EnginePlan>,
    endpoint: SimulatedEndpoint,
    /// Number of each process here.
    peers: Vec<PeerIndex>,
    /// Ends of the flows from and to this process.
    outgoing: BTreeMap<usize, End>,
    incoming: BTreeMap<usize, End>,
    ops: BTreeMap<u64, Op>,
    next_context: u64,
    active: Arc<Mutex<Vec<Active>>>,
    /// Registered memory: a slot for each remote operation of each flow to this process.
    region: Vec<u8>,
    /// Time of the next action of the program.
    acts_at: u64,
    is_leaving: bool,
    is_closing: bool,
    /// Peers with which an operation has failed: nothing more is sent to them.
    lost: BTreeSet<u32>,
    /// Peers from which a receive has failed: nothing more comes from them.
    silent: BTreeSet<u32>,
}

impl EndpointProgram {
    pub(super) fn new(node: u32, plan: &Rc<EnginePlan>, config: SimulatedConfig) -> Self {
        let endpoint = SimulatedEndpoint::new(config).unwrap_or_else(|error| panic!("{error}"));
        let end = |next_at| End {
            next_at,
            ..End::default()
        };
        let of = |is_mine: &dyn Fn(&Flow) -> bool, at: &dyn Fn(&Flow) -> u64| {
            let flows = plan.flows_of(node).filter(|(_, flow)| is_mine(flow));
            flows.map(|(index, flow)| (index, end(at(flow)))).collect()
        };
        let mut program = EndpointProgram {
            node,
            plan: Rc::clone(plan),
            endpoint,
            peers: Vec::new(),
            outgoing: of(&|flow| flow.src == node, &|flow| flow.start_ns),
            incoming: of(&|flow| flow.dst == node, &|flow| flow.post_ns),
            ops: BTreeMap::new(),
            next_context: 1,
            active: Arc::default(),
            region: Vec::new(),
            acts_at: 0,
            is_leaving: false,
            is_closing: false,
            lost: BTreeSet::new(),
            silent: BTreeSet::new(),
        };
        program.prepare();
        program
    }

    /// Opens what peers use: the hook of active messages, and a region.
    fn prepare(&mut self) {
        let active = Arc::clone(&self.active);
        let hook = move |message: ActiveMessage<'_>| {
            let got = (message.source, message.tag, message.bytes.to_vec());
            active
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(got);
        };
        if let Err(error) = self.endpoint.on_active(hook) {
            panic!("{error}");
        }
        // Its end is the begin of the slots of a flow behind the last one.
        self.region = vec![0xa5; begin_of(&self.plan, self.plan.flows.len(), self.node)];
        for (index, flow) in self.plan.flows.iter().enumerate() {
            for seq in 0..flow.count {
                if flow.kind == FlowKind::Get && flow.dst == self.node {
                    let at = slot_of(&self.plan, index, seq);
                    let bytes = payload::make(Flow::id(index, seq), flow.len_max, false);
                    self.region[at..at + flow.len_max].copy_from_slice(&bytes);
                }
            }
        }
        self.register();
    }

    /// Exchanges the addresses of all processes.
    pub(super) fn introduce(programs: Vec<&mut Box<dyn Process>>) {
        let addresses: Vec<_> = programs.iter().filter_map(|one| one.address()).collect();
        for program in programs {
            program.meet(&addresses);
        }
    }

    fn on_completion(&mut self, done: &RawCompletion, oracle: &mut Oracle) {
        let context = done.cookie.context;
        if context == 0 {
            return self.on_notice(done, oracle);
        }
        oracle.trace(self.node, "done", context);
        let Some(op) = self.ops.remove(&context) else {
            let node = self.node;
            return oracle.violate(format!("operation {context} of {node} has ended twice"));
        };
        match op {
            Op::Send { flow, seq, bytes } => self.on_sent(done, (flow, seq), bytes, oracle),
            Op::Recv { flow, seq, bytes } => self.on_received(done, (flow, seq), &bytes, oracle),
            Op::Put { flow, seq, bytes } => self.on_put(done, (flow, seq), bytes, oracle),
            Op::Get { flow, seq, bytes } => self.on_got(done, (flow, seq), &bytes, oracle),
        }
    }

    /// Handles the active messages that the hook has received.
    fn take_active(&mut self, oracle: &mut Oracle) -> usize {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *active);
        drop(active);
        for (source, tag, bytes) in &all {
            let index = usize::from(*tag);
            let id = payload::number(bytes).unwrap_or(u64::MAX);
            let seq = u32::try_from(id & u64::from(u32::MAX)).unwrap_or(u32::MAX);
            let flow = &self.plan.flows[index];
            let is_right = seq < flow.count
                && self.peers[flow.src as usize] == *source
                && bytes.len() == active_len(flow, index, seq)
                && payload::first_difference(Flow::id(index, seq), bytes, true).is_none();
            match is_right {
                true => oracle.note_arrival(index, seq),
                false => oracle.violate(format!("active message {seq} of flow {index} is altered")),
            }
            oracle.done_count += 1;
        }
        all.len()
    }
}

/// Returns the offset of a remote operation's slot in the region of its target.
fn slot_of(plan: &EnginePlan, index: usize, seq: u32) -> usize {
    let flow = &plan.flows[index];
    begin_of(plan, index, flow.dst) + seq as usize * flow.len_max
}

/// Returns the bytes of the slots in the region of `node` of all flows before the one with number
/// `index`.
fn begin_of(plan: &EnginePlan, index: usize, node: u32) -> usize {
    let before = plan.flows[..index].iter();
    let mine = before.filter(|flow| flow.is_remote() && flow.dst == node);
    mine.map(|flow| flow.count as usize * flow.len_max).sum()
}

/// Returns the length of an active message, which begins with its number.
fn active_len(flow: &Flow, index: usize, seq: u32) -> usize {
    flow.len(index, seq).max(payload::NUMBER_LEN)
}

impl Process for EndpointProgram {
    fn turn(&mut self, oracle: &mut Oracle) -> usize {
        let mut done = Vec::new();
        let (mut moved, _) = self.endpoint.poll_unyielding(&mut |one| done.push(one));
        for one in &done {
            self.on_completion(one, oracle);
        }
        moved += self.take_active(oracle);
        if self.is_closing {
            return moved;
        }
        // The next action is found below.
        self.acts_at = u64::MAX;
        moved += self.post(oracle);
        if !self.is_leaving {
            moved += self.send(oracle);
        }
        self.give_up_unsent(oracle);
        moved
    }

    fn acts_at(&self) -> u64 {
        self.acts_at
    }

    fn fall_asleep(&mut self) -> Option<Duration> {
        self.endpoint.fall_asleep()
    }

    /// The next poll ends the sleep.
    fn wake_up(&mut self) {}

    fn left_to_helper(&self) -> Pending {
        self.endpoint.left_to_helper()
    }

    fn run_helper(&mut self) -> bool {
        self.endpoint.run_helper()
    }

    fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        self.endpoint.receive_probe(bytes, from);
    }

    fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        self.endpoint.receive_refusal(quoted, destination);
    }

    fn address(&self) -> Option<EndpointAddress> {
        Some(self.endpoint.address())
    }

    fn meet(&mut self, addresses: &[EndpointAddress]) {
        for address in addresses {
            let peer = self.endpoint.insert(address);
            self.peers
                .push(peer.unwrap_or_else(|error| panic!("{error}")));
        }
    }

    fn leave(&mut self, _: &mut Oracle) {
        self.is_leaving = true;
    }

    fn unfinished(&self, _: &Oracle) -> Option<String> {
        if let Some((context, op)) = self
            .ops
            .iter()
            .find(|(_, op)| !self.is_leaving || !op.is_recv())
        {
            return Some(format!("operation {context}, {}", op.describe()));
        }
        if self.is_leaving {
            return None;
        }
        let flows = &self.plan.flows;
        let is_unsent = |(index, end): &(&usize, &End)| {
            end.begun < flows[**index].count && !self.lost.contains(&flows[**index].dst)
        };
        let unsent = self.outgoing.iter().find(is_unsent);
        unsent.map(|(index, end)| format!("flow {index}, of which it has sent {}", end.begun))
    }

    fn check_free(&self, oracle: &mut Oracle) {
        self.check_puts(oracle);
        let in_use = self.endpoint.in_use();
        // The end of a process may leave messages without a receiver.
        if in_use != Default::default() && !oracle.is_any_gone() {
            oracle.violate(format!("{} still uses {in_use:?}", self.node));
        }
    }

    fn begin_close(&mut self) {
        self.is_closing = true;
        self.endpoint.begin_close();
    }

    fn poll_close(&mut self) -> Option<Result<(), String>> {
        let result = self.endpoint.poll_close()?;
        Some(result.map_err(|error| error.to_string()))
    }
}

impl Op {
    fn is_recv(&self) -> bool {
        matches!(self, Op::Recv { .. })
    }

    fn describe(&self) -> String {
        let (what, flow, seq) = match self {
            Op::Send { flow, seq, .. } => ("send", flow, seq),
            Op::Recv { flow, seq, .. } => ("receive", flow, seq),
            Op::Put { flow, seq, .. } => ("put", flow, seq),
            Op::Get { flow, seq, .. } => ("get", flow, seq),
        };
        format!("{what} {seq} of flow {flow}")
    }
}
