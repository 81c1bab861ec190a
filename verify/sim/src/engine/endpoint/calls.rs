// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the program, with the memory that they use.
//!
//! Invariant: memory of an operation stays in `EndpointProgram::ops` until its completion, and the
//! endpoint is dropped before it.
#![allow(
    unsafe_code,
    reason = "an endpoint uses the program's memory by address"
)]

use super::{AGAIN_NS, End, EndpointProgram, GRACE_NS, KEY, Op, active_len, slot_of};
use crate::engine::oracle::Oracle;
use crate::engine::plan::{Flow, FlowKind};
use crate::payload;
use portolan::binding::{
    Cookie, RawAccess, RawPiece, RawRecv, RawRemote, RawSend, RawSpace, Sent, SubmitError,
};
use std::rc::Rc;

/// Bits of a tag that receives of a masked flow ignore.
const IGNORED: u64 = u64::MAX << 32;

impl EndpointProgram {
    pub(super) fn register(&mut self) {
        let access = RawAccess {
            read: true,
            write: true,
        };
        // SAFETY: the region is dropped after the endpoint, and never reallocated.
        let registered = unsafe {
            self.endpoint
                .register(piece_of(&mut self.region), access, KEY, 0)
        };
        if let Err(error) = registered {
            panic!("{error}");
        }
    }

    /// Posts the receives that are due. Returns their number.
    pub(super) fn post(&mut self, oracle: &mut Oracle) -> usize {
        let plan = Rc::clone(&self.plan);
        let mut posted = 0;
        for (index, flow) in plan.flows_of(self.node) {
            let is_matched = matches!(flow.kind, FlowKind::Tagged | FlowKind::Masked);
            if flow.dst != self.node || !is_matched || self.silent.contains(&flow.src) {
                continue;
            }
            while let Some(seq) = self.next_receive(index, flow, oracle.now_ns) {
                match self.receive(index, flow, seq) {
                    Ok(()) => oracle.flows[index].posted += 1,
                    Err(error) => {
                        oracle.note_failure(self.node, flow.src, "receive", error.to_string());
                        self.silent.insert(flow.src);
                        break;
                    }
                }
                posted += 1;
            }
        }
        posted
    }

    /// Returns the number of the receive to post now.
    fn next_receive(&mut self, index: usize, flow: &Flow, now_ns: u64) -> Option<u32> {
        let end = self.incoming.get_mut(&index)?;
        if end.begun == flow.count || end.open == flow.depth {
            return None;
        }
        if end.next_at > now_ns {
            self.acts_at = self.acts_at.min(end.next_at);
            return None;
        }
        end.begun += 1;
        end.open += 1;
        Some(end.begun - 1)
    }

    fn receive(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<(), SubmitError> {
        let mut bytes = vec![0xa5; flow.len_max];
        let spec = RawRecv {
            space: RawSpace::Tagged(index as u64),
            ignore: match flow.kind {
                FlowKind::Masked => IGNORED,
                _ => 0,
            },
            source: flow.is_sourced.then(|| self.peers[flow.src as usize]),
        };
        let context = self.new_context();
        let piece = piece_of(&mut bytes);
        let op = Op::Recv {
            flow: index,
            seq,
            bytes,
        };
        // Entered first, because a message that waits completes the receive at once.
        self.ops.insert(context, op);
        // SAFETY: see the module documentation.
        let posted = unsafe { self.endpoint.recv(&spec, &[piece], Cookie::new(context)) };
        if posted.is_err() {
            self.ops.remove(&context);
        }
        posted
    }

    fn new_context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context - 1
    }

    /// Sends what is due. Returns the number of messages.
    pub(super) fn send(&mut self, oracle: &mut Oracle) -> usize {
        let plan = Rc::clone(&self.plan);
        let mut sent = 0;
        for (index, flow) in plan.flows_of(self.node) {
            if flow.src != self.node || self.lost.contains(&flow.dst) {
                continue;
            }
            let mut end = self.outgoing.remove(&index).unwrap_or_default();
            sent += self.send_burst(index, flow, &mut end, oracle);
            if end.begun < flow.count {
                self.acts_at = self.acts_at.min(end.next_at.max(oracle.now_ns + 1));
            }
            self.outgoing.insert(index, end);
        }
        sent
    }

    fn send_burst(
        &mut self,
        index: usize,
        flow: &Flow,
        end: &mut End,
        oracle: &mut Oracle,
    ) -> usize {
        let first = end.begun;
        if end.next_at > oracle.now_ns {
            return 0;
        }
        end.next_at = oracle.now_ns + flow.gap_ns;
        while end.begun < flow.count && end.begun < first + flow.burst {
            let seq = end.begun;
            oracle.trace(self.node, "send", Flow::id(index, seq));
            match self.submit(index, flow, seq) {
                Ok(sent) => {
                    end.begun += 1;
                    let state = &mut oracle.flows[index];
                    state.sent = end.begun;
                    state.promised[seq as usize] = sent == Sent::Done && !flow.is_remote();
                }
                Err(SubmitError::Again) => {
                    end.next_at = oracle.now_ns + AGAIN_NS;
                    break;
                }
                Err(error) => {
                    oracle.note_failure(self.node, flow.dst, "send", error.to_string());
                    self.lost.insert(flow.dst);
                    break;
                }
            }
        }
        (end.begun - first) as usize
    }

    fn submit(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<Sent, SubmitError> {
        match flow.kind {
            FlowKind::Tagged | FlowKind::Masked => self.submit_message(index, flow, seq),
            FlowKind::Active => self.submit_active(index, flow, seq),
            FlowKind::Put | FlowKind::PutNotified => self.submit_put(index, flow, seq),
            FlowKind::Get => self.submit_get(index, flow, seq),
        }
    }

    fn submit_message(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<Sent, SubmitError> {
        let (id, to) = (Flow::id(index, seq), self.peers[flow.dst as usize]);
        let mut bytes = payload::make(id, flow.len(index, seq), false);
        let spec = RawSend {
            space: RawSpace::Tagged(tag_of(index, flow, seq)),
            imm: Some(id),
            delivered: flow.delivered,
        };
        if flow.injects && !flow.delivered && bytes.len() <= self.endpoint.limits().inject_len_max {
            self.endpoint.inject(to, &spec, &bytes)?;
            return Ok(Sent::Done);
        }
        let context = self.new_context();
        let (piece, cookie) = (piece_of(&mut bytes), Cookie::new(context));
        let op = Op::Send {
            flow: index,
            seq,
            bytes,
        };
        self.ops.insert(context, op);
        // SAFETY: see the module documentation.
        let sent = unsafe { self.endpoint.send(to, &spec, &[piece], cookie) };
        self.keep_if_pending(context, sent)
    }

    fn submit_active(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<Sent, SubmitError> {
        let (id, to) = (Flow::id(index, seq), self.peers[flow.dst as usize]);
        let tag = u8::try_from(index).unwrap_or(u8::MAX);
        let mut bytes = payload::make(id, active_len(flow, index, seq), true);
        if flow.injects {
            let (head, body) = bytes.split_at(bytes.len() / 2);
            match self.endpoint.inject_active(to, tag, [head, body]) {
                Ok(()) => return Ok(Sent::Done),
                Err(SubmitError::Again | SubmitError::TooLong) => {}
                Err(error) => return Err(error),
            }
        }
        let context = self.new_context();
        let (piece, cookie) = (piece_of(&mut bytes), Cookie::new(context));
        let op = Op::Send {
            flow: index,
            seq,
            bytes,
        };
        self.ops.insert(context, op);
        // SAFETY: see the module documentation.
        let sent = unsafe { self.endpoint.send_active(to, tag, piece, cookie) };
        self.keep_if_pending(context, sent)
    }

    fn submit_put(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<Sent, SubmitError> {
        let (id, to) = (Flow::id(index, seq), self.peers[flow.dst as usize]);
        let mut bytes = payload::make(id, flow.len(index, seq), false);
        let at = self.remote(index, seq);
        let imm = (flow.kind == FlowKind::PutNotified).then_some(id);
        let context = self.new_context();
        let (piece, cookie) = (piece_of(&mut bytes), Cookie::new(context));
        let op = Op::Put {
            flow: index,
            seq,
            bytes,
        };
        self.ops.insert(context, op);
        // SAFETY: see the module documentation.
        let put = unsafe { self.endpoint.put(to, at, &[piece], imm, cookie) };
        self.keep_if_pending(context, put.map(|()| Sent::Pending))
    }

    fn submit_get(&mut self, index: usize, flow: &Flow, seq: u32) -> Result<Sent, SubmitError> {
        let to = self.peers[flow.dst as usize];
        let mut bytes = vec![0xa5; flow.len(index, seq)];
        let at = self.remote(index, seq);
        let context = self.new_context();
        let (piece, cookie) = (piece_of(&mut bytes), Cookie::new(context));
        let op = Op::Get {
            flow: index,
            seq,
            bytes,
        };
        self.ops.insert(context, op);
        // SAFETY: see the module documentation.
        let got = unsafe { self.endpoint.get(to, at, &[piece], cookie) };
        self.keep_if_pending(context, got.map(|()| Sent::Pending))
    }

    fn remote(&self, index: usize, seq: u32) -> RawRemote {
        RawRemote {
            addr: slot_of(&self.plan, index, seq) as u64,
            key: KEY,
        }
    }

    /// Frees the memory of an operation that has no completion.
    fn keep_if_pending(
        &mut self,
        context: u64,
        sent: Result<Sent, SubmitError>,
    ) -> Result<Sent, SubmitError> {
        if sent != Ok(Sent::Pending) {
            self.ops.remove(&context);
        }
        sent
    }

    /// Cancels receives from any source if their messages can no longer arrive.
    pub(super) fn give_up_unsent(&mut self, oracle: &Oracle) {
        if !oracle.is_any_gone() {
            return;
        }
        let is_orphan = |op: &Op| match op {
            Op::Recv { flow, .. } => {
                let flow = &self.plan.flows[*flow];
                let gone_at = oracle.gone_at(flow.src);
                !flow.is_sourced && gone_at.is_some_and(|at| oracle.now_ns >= at + GRACE_NS)
            }
            _ => false,
        };
        let orphans = self.ops.iter().filter(|(_, op)| is_orphan(op));
        let contexts: Vec<u64> = orphans.map(|(context, _)| *context).collect();
        for context in contexts {
            self.endpoint.cancel(context);
        }
    }
}

fn piece_of(bytes: &mut [u8]) -> RawPiece {
    RawPiece {
        ptr: bytes.as_mut_ptr(),
        len: bytes.len(),
    }
}

/// Returns the tag of a message. That of a masked flow has bits that differ between messages.
pub(super) fn tag_of(index: usize, flow: &Flow, seq: u32) -> u64 {
    match flow.kind {
        FlowKind::Masked => index as u64 | u64::from(seq) << 32,
        _ => index as u64,
    }
}
