// SPDX-License-Identifier: MIT OR Apache-2.0
//! State shared by all processes of a run: plan, wires, oracle, trace.

use crate::faults::{Fault, FaultKind};
use crate::ledger::Ledger;
use crate::net::Net;
use crate::node::RegionCall;
use crate::queue::Queue;
use crate::shm::Shm;
use crate::stream::Streams;
use crate::trace::Trace;
use crate::{Canary, Plan};
use portolan_proto::DropReason;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) plan: Plan,
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    pub(crate) net: Net,
    pub(crate) shm: Shm,
    pub(crate) streams: Streams,
    pub(crate) ledger: Ledger,
    /// Calls to make at the targets of one-shot regions.
    pub(crate) region_calls: Vec<RegionCall>,
    pub(crate) trace: Trace,
    /// Processes that exist (paused ones included).
    pub(crate) alive: Vec<bool>,
    /// Number of restarts of each process.
    pub(crate) lives: Vec<u32>,
    pub(crate) paused_until: Vec<u64>,
    /// Number of processes that have entered each collective operation.
    pub(crate) entered: Vec<u32>,
    /// Time by which the last work and the last fault are over, and every port is open.
    pub(crate) quiet_ns: u64,
    /// Processes that have closed and exit now.
    pub(crate) left: Vec<u32>,
    /// Set when the programs create no more work.
    pub(crate) ending: bool,
    /// Times of frame losses at full receive buffers.
    pub(crate) socket_losses: Vec<std::time::Duration>,
    pub(crate) deliveries: Vec<crate::Arrival>,
    canary: Option<(Canary, u32)>,
    violation: Option<String>,
}

impl Context {
    pub(crate) fn new(plan: Plan, canary: Option<(Canary, u32)>, trace: Trace) -> Self {
        let faults_end = plan
            .faults
            .iter()
            .map(Fault::planned_end_ns)
            .max()
            .unwrap_or(0);
        let opened = plan.ports.iter().map(|port| port.open_ns).max();
        Context {
            now: 0,
            quiet_ns: plan.traffic_ns.max(faults_end).max(opened.unwrap_or(0)),
            queue: Queue::default(),
            net: Net::new(&plan),
            shm: Shm::new(plan.shm.map_or(0, |params| params.rx_buffer_len)),
            streams: Streams::new(&plan),
            ledger: Ledger::default(),
            region_calls: Vec::new(),
            trace,
            alive: vec![true; plan.nodes as usize],
            lives: vec![0; plan.nodes as usize],
            paused_until: vec![0; plan.nodes as usize],
            entered: vec![0; plan.groups.len()],
            left: Vec::new(),
            ending: false,
            socket_losses: Vec::new(),
            deliveries: Vec::new(),
            canary,
            violation: None,
            plan,
        }
    }

    /// Records a violation; only the first one is kept.
    pub(crate) fn violate(&mut self, what: String) {
        // Frames with altered headers may mean anything.
        if !self.plan.header_corruption {
            self.violation.get_or_insert(what);
        }
    }

    /// Records a violation that no frame may cause, whatever its bytes.
    pub(crate) fn violate_always(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Returns the incarnation of `to` with which `from` opens a session now. Over shared memory it
    /// is that of the current ring, which may have ended.
    pub(crate) fn life_met(&self, from: u32, to: u32) -> u32 {
        let newest = self.lives[to as usize];
        let has_ended = u32::from(!self.alive[to as usize]);
        let ended = self.shm.ended_readers(from, to);
        newest - ended.saturating_sub(has_ended)
    }

    /// Starts the fault of a closing process, and what it excuses.
    pub(crate) fn note_closing(&mut self, id: u32) {
        let now = self.now;
        for fault in &mut self.plan.faults {
            if matches!(fault.kind, FaultKind::Leave { node, .. } if node == id) {
                fault.begin_ns = now;
            }
        }
    }

    /// Returns true if a fault may have caused a failure between two processes now.
    pub(crate) fn excused(&self, a: u32, b: u32) -> bool {
        self.plan
            .faults
            .iter()
            .any(|fault| fault.excuses(self.now, a, b))
    }

    /// Returns true if a fault ever affected two processes.
    pub(crate) fn was_disturbed(&self, a: u32, b: u32) -> bool {
        let begun = |fault: &&Fault| fault.begin_ns <= self.now;
        self.plan
            .faults
            .iter()
            .filter(begun)
            .any(|fault| fault.touches(a, b))
    }

    /// Returns true if incarnation `life` of process `to` would answer a query of `from` now. Such
    /// queries are sent outside the protocol, as in the library's engine.
    pub(crate) fn would_reply(&self, from: u32, to: u32, life: u32) -> bool {
        let at = to as usize;
        let is_there =
            self.alive[at] && self.lives[at] == life && self.now >= self.paused_until[at];
        let cut = |fault: &Fault| fault.cuts(from, to) || fault.cuts(to, from);
        is_there && !self.net.active.iter().any(cut)
    }

    /// Schedules a check whether an end of a stream is idle.
    pub(crate) fn watch_stream(&mut self, id: usize, end: usize) {
        self.streams.watch(&mut self.queue, self.now, id, end);
    }

    /// Returns true if the deliberate bug applies here; it does once.
    pub(crate) fn strikes(&mut self, canary: Canary) -> bool {
        let Some((chosen, countdown)) = &mut self.canary else {
            return false;
        };
        if *chosen != canary || *countdown == 0 {
            return false;
        }
        *countdown -= 1;
        *countdown == 0
    }

    /// Returns true if this deliberate bug is active at every opportunity, because few runs offer
    /// any.
    pub(crate) fn has(&self, canary: Canary) -> bool {
        self.canary.is_some_and(|(chosen, _)| chosen == canary)
    }

    /// Returns true if the active faults explain that a process dropped something for `reason`.
    pub(crate) fn explains(&self, reason: DropReason) -> bool {
        match reason {
            // Duplicates, late frames, needless retransmissions, overtaking answers.
            DropReason::Duplicate | DropReason::StaleSession => true,
            // A grant overtaken by a later one, and by the end of its transfer.
            DropReason::StaleTransfer => true,
            DropReason::BestEffortNoBuffer | DropReason::BestEffortIncomplete => {
                self.plan.flows.iter().any(|flow| flow.best_effort)
            }
            DropReason::OldIncarnation => !self.plan.faults.is_empty(),
            _ => self.plan.header_corruption,
        }
    }
}
