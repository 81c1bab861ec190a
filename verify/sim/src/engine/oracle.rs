// SPDX-License-Identifier: MIT OR Apache-2.0
//! Knowledge of the whole run, with which programs check what they get.

use super::plan::{EnginePlan, Fault, FaultKind};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// State of one flow.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowState {
    /// Messages that the sender has submitted.
    pub(super) sent: u32,
    /// Leading messages that must arrive if the receiver lives: the library owns them, or their
    /// sends have completed.
    pub(super) promised: Vec<bool>,
    /// Receives posted.
    pub(super) posted: u32,
    /// Messages that have arrived.
    pub(super) arrived: Vec<bool>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) plan: Rc<EnginePlan>,
    pub(super) flows: Vec<FlowState>,
    /// Time at which each process has ended or has begun to close.
    gone: Vec<Option<u64>>,
    pub(super) now_ns: u64,
    violation: Option<(u64, String)>,
    hasher: DefaultHasher,
    is_traced: bool,
    pub(super) done_count: u64,
    pub(super) failed_count: u64,
    /// Collective operations that each process has begun and has completed.
    pub(super) begun: Vec<u32>,
}

impl Oracle {
    pub(super) fn new(plan: &Rc<EnginePlan>, is_traced: bool) -> Oracle {
        let state = |count: u32| FlowState {
            promised: vec![false; count as usize],
            arrived: vec![false; count as usize],
            ..FlowState::default()
        };
        Oracle {
            plan: Rc::clone(plan),
            flows: plan.flows.iter().map(|flow| state(flow.count)).collect(),
            gone: vec![None; plan.nodes as usize],
            now_ns: 0,
            violation: None,
            hasher: DefaultHasher::new(),
            is_traced,
            done_count: 0,
            failed_count: 0,
            begun: vec![0; plan.nodes as usize],
        }
    }

    /// Records an event.
    pub(super) fn trace(&mut self, node: u32, what: &'static str, detail: u64) {
        (self.now_ns, node, what, detail).hash(&mut self.hasher);
        if self.is_traced {
            println!("{:>14} {node} {what} {detail:x}", self.now_ns);
        }
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// Records a violation, of which the first counts.
    pub(super) fn violate(&mut self, what: String) {
        let now_ns = self.now_ns;
        self.violation.get_or_insert((now_ns, what));
    }

    pub(super) fn has_violation(&self) -> bool {
        self.violation.is_some()
    }

    pub(super) fn take_violation(&mut self) -> Option<(u64, String)> {
        self.violation.take()
    }

    pub(super) fn set_gone(&mut self, node: u32) {
        let now_ns = self.now_ns;
        self.gone[node as usize].get_or_insert(now_ns);
    }

    pub(super) fn is_gone(&self, node: u32) -> bool {
        self.gone[node as usize].is_some()
    }

    /// Returns the time at which a process has ended or has begun to close.
    pub(super) fn gone_at(&self, node: u32) -> Option<u64> {
        self.gone[node as usize]
    }

    pub(super) fn is_any_gone(&self) -> bool {
        self.gone.iter().any(Option::is_some)
    }

    /// Records the arrival of a message, which must be the first of its number.
    pub(super) fn note_arrival(&mut self, flow: usize, seq: u32) {
        let state = &mut self.flows[flow];
        if std::mem::replace(&mut state.arrived[seq as usize], true) {
            self.violate(format!("message {seq} of flow {flow} has arrived twice"));
        } else if seq >= state.sent {
            self.violate(format!("message {seq} of flow {flow} was never sent"));
        }
    }

    /// Checks the failure of an operation with `peer`, which only the end of a process explains.
    pub(super) fn note_failure(&mut self, node: u32, peer: u32, what: &str, why: String) {
        self.failed_count += 1;
        if !self.is_gone(peer) && !self.is_gone(node) {
            self.violate(format!(
                "{what} of {node} with {peer}, which lives, failed: {why}"
            ));
        }
    }

    /// Checks at the end that everything has arrived that must.
    pub(super) fn check_arrivals(&mut self) {
        let plan = Rc::clone(&self.plan);
        for (index, flow) in plan.flows.iter().enumerate() {
            // Messages of a killed process need not arrive.
            let is_killed = plan.faults.iter().any(|fault| kills(fault, flow.src));
            if flow.is_remote() || self.is_gone(flow.dst) || is_killed {
                continue;
            }
            let state = &self.flows[index];
            let is_missing = |seq: &u32| {
                let must = state.promised[*seq as usize] || !self.is_gone(flow.src);
                must && !state.arrived[*seq as usize]
            };
            if let Some(seq) = (0..flow.count).find(is_missing) {
                self.violate(format!("message {seq} of flow {index} has not arrived"));
            }
        }
    }
}

fn kills(fault: &Fault, node: u32) -> bool {
    fault.node == node && matches!(fault.kind, FaultKind::Kill { .. })
}
