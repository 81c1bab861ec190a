// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what operations have brought, when they end.

use super::calls::tag_of;
use super::{EndpointProgram, slot_of};
use crate::engine::oracle::Oracle;
use crate::engine::plan::{Flow, FlowKind};
use crate::payload;
use portolan::binding::{RawCompletion, RawError, RawKind};
use std::rc::Rc;

/// A message: the number of its flow, and its own.
type Id = (usize, u32);

impl EndpointProgram {
    pub(super) fn on_sent(
        &mut self,
        done: &RawCompletion,
        (index, seq): Id,
        mut bytes: Vec<u8>,
        oracle: &mut Oracle,
    ) {
        // The memory is the program's own again.
        bytes.fill(0xee);
        let flow = &self.plan.flows[index];
        if let Some(error) = done.error {
            return self.on_failed(flow.dst, "send", error, oracle);
        }
        oracle.done_count += 1;
        let state = &mut oracle.flows[index];
        state.promised[seq as usize] = true;
        let is_matched = matches!(flow.kind, FlowKind::Tagged | FlowKind::Masked);
        // An empty message has no bytes that could be in a buffer: it is never announced.
        let has_bytes = flow.len(index, seq) > 0;
        if flow.delivered && is_matched && has_bytes && state.posted <= seq {
            oracle.violate(format!(
                "message {seq} of flow {index} counts as delivered before its receive is posted"
            ));
        }
    }

    pub(super) fn on_received(
        &mut self,
        done: &RawCompletion,
        (index, seq): Id,
        bytes: &[u8],
        oracle: &mut Oracle,
    ) {
        if let Some(end) = self.incoming.get_mut(&index) {
            end.open -= 1;
        }
        let plan = Rc::clone(&self.plan);
        let flow = &plan.flows[index];
        if let Some(error) = done.error {
            self.silent.insert(flow.src);
            return self.on_failed(flow.src, "receive", error, oracle);
        }
        oracle.done_count += 1;
        let id = done.imm.unwrap_or(0);
        let got = u32::try_from(id & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        // Of a process that has ended, messages that it had announced only may be missing.
        let is_in_order = got == seq || got > seq && oracle.is_gone(flow.src);
        if id != Flow::id(index, got) || !is_in_order || got >= flow.count {
            return oracle.violate(format!(
                "receive {seq} of flow {index} has got message {got} ({id:x})"
            ));
        }
        let len = flow.len(index, got);
        let is_right = done.peer == Some(self.peers[flow.src as usize])
            && done.tag == tag_of(index, flow, got)
            && done.len == len as u64
            && payload::first_difference(id, &bytes[..len], false).is_none();
        if !is_right {
            let place = payload::first_difference(id, &bytes[..len], false);
            oracle.violate(format!(
                "message {got} of flow {index} is altered (first at {place:?}): {done:?}"
            ));
        }
        if bytes[len..].iter().any(|byte| *byte != 0xa5) {
            oracle.violate(format!(
                "message {got} of flow {index} has changed memory behind its end"
            ));
        }
        oracle.note_arrival(index, got);
    }

    pub(super) fn on_put(
        &mut self,
        done: &RawCompletion,
        (index, seq): Id,
        mut bytes: Vec<u8>,
        oracle: &mut Oracle,
    ) {
        bytes.fill(0xee);
        let dst = self.plan.flows[index].dst;
        match done.error {
            Some(error) => self.on_failed(dst, "put", error, oracle),
            None => {
                oracle.done_count += 1;
                oracle.flows[index].promised[seq as usize] = true;
            }
        }
    }

    pub(super) fn on_got(
        &mut self,
        done: &RawCompletion,
        (index, seq): Id,
        bytes: &[u8],
        oracle: &mut Oracle,
    ) {
        let dst = self.plan.flows[index].dst;
        if let Some(error) = done.error {
            return self.on_failed(dst, "get", error, oracle);
        }
        oracle.done_count += 1;
        if payload::first_difference(Flow::id(index, seq), bytes, false).is_some() {
            oracle.violate(format!("get {seq} of flow {index} has got other bytes"));
        }
        oracle.note_arrival(index, seq);
    }

    /// Handles the notice of a put into this process's memory. Its bytes are in place.
    pub(super) fn on_notice(&mut self, done: &RawCompletion, oracle: &mut Oracle) {
        let id = done.imm.unwrap_or(0);
        let index = usize::try_from((id >> 32).wrapping_sub(1)).unwrap_or(usize::MAX);
        let seq = u32::try_from(id & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let flow = self.plan.flows.get(index);
        let is_right = flow.is_some_and(|flow| {
            flow.kind == FlowKind::PutNotified && flow.dst == self.node && seq < flow.count
        });
        if done.kind != RawKind::RemotePut || !is_right {
            return oracle.violate(format!("{} got {done:?}", self.node));
        }
        oracle.note_arrival(index, seq);
        self.check_put(index, seq, oracle);
    }

    fn check_put(&self, index: usize, seq: u32, oracle: &mut Oracle) {
        let at = slot_of(&self.plan, index, seq);
        let flow = &self.plan.flows[index];
        let len = flow.len(index, seq);
        let slot = &self.region[at..at + flow.len_max];
        let is_right = payload::first_difference(Flow::id(index, seq), &slot[..len], false)
            .is_none()
            && slot[len..].iter().all(|byte| *byte == 0xa5);
        if !is_right {
            oracle.violate(format!("put {seq} of flow {index} has left other bytes"));
        }
    }

    /// Checks the bytes of all completed puts into this process's memory.
    pub(super) fn check_puts(&self, oracle: &mut Oracle) {
        for (index, flow) in self.plan.flows.iter().enumerate() {
            let is_put = matches!(flow.kind, FlowKind::Put | FlowKind::PutNotified);
            for seq in (0..flow.count).filter(|_| is_put && flow.dst == self.node) {
                if oracle.flows[index].promised[seq as usize] {
                    self.check_put(index, seq, oracle);
                    let is_notified = oracle.flows[index].arrived[seq as usize];
                    if flow.kind == FlowKind::PutNotified && !is_notified {
                        oracle.violate(format!("no notice of put {seq} of flow {index}"));
                    }
                }
            }
        }
    }

    fn on_failed(&mut self, peer: u32, what: &str, error: RawError, oracle: &mut Oracle) {
        oracle.note_failure(self.node, peer, what, error.to_string());
        if matches!(error, RawError::PeerGone(_)) {
            self.lost.insert(peer);
        }
    }
}
