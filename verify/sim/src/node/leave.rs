// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orderly exit of a process, and the checks of the messages of exited processes (`P2.9`).

use super::{Node, Op};
use crate::Canary;
use crate::context::Context;
use portolan_proto::OpId;
use std::collections::{BTreeSet, VecDeque};

impl Node {
    /// Starts the exit: the program creates no more work, and the process exits when its messages
    /// have arrived.
    pub(crate) fn begin_leaving(&mut self, cx: &mut Context) {
        self.program.finish();
        self.on_wake(cx);
    }

    /// Continues the exit: waits for sends to complete, closes, then waits for acknowledgements.
    pub(super) fn continue_leaving(&mut self, cx: &mut Context) {
        if !self.program.is_leaving() || self.has_open_sends() {
            return;
        }
        if !self.program.is_closing() {
            self.program.close();
            cx.note_closing(self.id);
            // No process should wait for a program that makes no more requests.
            self.core.discard_unread();
            self.drain(cx, &[]);
            self.check_withdrawn(cx);
        }
        if self.core.has_unfinished() && !cx.has(Canary::EarlyLeave) {
            return;
        }
        self.core.flush_acks(self.clock.local(cx.now));
        self.transmit(cx);
        self.drain(cx, &[]);
        cx.left.push(self.id);
    }

    /// Checks that no receive waits in a process that has closed: each was matched or cancelled.
    fn check_withdrawn(&mut self, cx: &mut Context) {
        let receives = self.memory.iter().filter_map(|(&op, what)| match what {
            Op::Recv { port, .. } => Some((OpId(op), *port)),
            _ => None,
        });
        let receives = receives.filter(|(_, port)| !self.takes_in_place(cx, *port));
        for (op, port) in receives.collect::<Vec<_>>() {
            if self.core.cancel_recv(port, op) || self.core.cancel_tagged(op) {
                let id = self.id;
                cx.violate(format!(
                    "node {id} has closed, but its receive {op:?} at {port:?} still waits"
                ));
            }
        }
    }

    fn has_open_sends(&self) -> bool {
        let open = self.peers.iter().any(|remote| remote.send_count > 0);
        open || !self.with_outbox.is_empty() || !self.pulls.is_empty()
    }

    /// Ends a process that has closed: all its messages in open sessions have arrived.
    pub(crate) fn depart(&mut self, cx: &mut Context) {
        for session in self.peers.iter().filter_map(|remote| remote.session) {
            cx.ledger.settle(session);
        }
        self.crash(cx);
    }

    /// Records the sessions of which all messages have arrived, as known to the core.
    pub(super) fn settle(&mut self, cx: &mut Context) {
        if self.unsettled.is_empty() {
            return;
        }
        let transfers = self.core.unfinished_transfers().map(|(peer, ..)| peer);
        let busy = self.core.unfinished_peers().chain(transfers);
        let busy: BTreeSet<u32> = busy.map(|peer| peer.0).collect();
        let settled: Vec<u32> = self.unsettled.difference(&busy).copied().collect();
        for peer in settled {
            self.unsettled.remove(&peer);
            if let Some(session) = self.peers[peer as usize].session {
                cx.ledger.settle(session);
            }
        }
    }

    /// Drops the outbox to a failed peer: a program that is about to exit does not send to its next
    /// incarnation.
    pub(super) fn drop_outbox(&mut self, peer: u32) {
        let remote = &mut self.peers[peer as usize];
        let dropped = remote.outbox.iter().map(|outbox| outbox.len() as u64);
        self.failed_count += dropped.sum::<u64>();
        remote.outbox.iter_mut().for_each(VecDeque::clear);
        remote.reconnect_at = None;
        self.with_outbox.remove(&peer);
    }

    pub(super) fn describe_leaving(&self) -> String {
        let sends: usize = self.peers.iter().map(|remote| remote.send_count).sum();
        match self.with_outbox.first() {
            Some(&peer) => self.describe_outbox(peer),
            None if sends > 0 => format!("is leaving, and {sends} sends have not ended"),
            None => "is leaving, and frames are not acknowledged".to_owned(),
        }
    }

    /// Checks what this process, which has exited, left in the memory of `target`, as far as it is
    /// known. Returns a description of an error.
    pub(crate) fn check_area(&self, cx: &Context, target: &Node) -> Option<String> {
        let (peer, remote) = (target.id, &self.peers[target.id as usize]);
        let at = peer as usize;
        let is_known = remote.session.is_some() && remote.send_count == 0;
        if !is_known || !cx.alive[at] || cx.lives[at] != remote.life {
            return None;
        }
        let bytes = target.memory.values().find_map(|op| match op {
            Op::Region { bytes } => Some(bytes),
            _ => None,
        })?;
        let mut there = self.requests.iter().filter(|one| one.is_for(peer));
        there.find_map(|requests| requests.check_area(bytes))
    }
}
