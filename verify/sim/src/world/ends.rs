// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits of processes, killed or orderly, and the check of what must have arrived nevertheless.

use super::World;
use crate::Canary;
use crate::faults::{Fault, FaultKind};
use crate::queue::Happening;
use std::time::Duration;

impl World {
    /// Kills the process.
    pub(super) fn crash(&mut self, exited: u32) {
        if self.cx.alive[exited as usize] {
            self.end_streams(exited);
            self.nodes[exited as usize].crash(&mut self.cx);
            self.end(exited, self.cx.plan.reported_after_ns);
        }
    }

    /// Ends a process that has closed.
    pub(super) fn leave(&mut self, exited: u32) {
        let left = |fault: &Fault| match fault.kind {
            FaultKind::Leave {
                node,
                reported_after_ns,
                again_after_ns,
            } if node == exited => Some((reported_after_ns, again_after_ns)),
            _ => None,
        };
        let mut faults = self.cx.plan.faults.iter().enumerate();
        let found = faults.find_map(|(index, fault)| Some((index, left(fault)?)));
        let Some((index, (reported_after_ns, again_after_ns))) = found else {
            return;
        };
        self.trace_fault(exited, index, "left");
        self.end_streams(exited);
        self.nodes[exited as usize].depart(&mut self.cx);
        self.end(exited, reported_after_ns);
        if let Some(after_ns) = again_after_ns {
            let at = self.cx.now + after_ns;
            self.cx.queue.push(at, Happening::FaultEnds { index });
            self.cx.quiet_ns = self.cx.quiet_ns.max(at);
        }
    }

    /// Ends the process. Peers that share memory with it are notified by the system, other peers by
    /// the launcher after `reported_after_ns`, if it is set.
    fn end(&mut self, exited: u32, reported_after_ns: Option<u64>) {
        self.cx.alive[exited as usize] = false;
        self.check_area(exited);
        let life = self.nodes[exited as usize].life;
        let cx = &mut self.cx;
        for node in (0..cx.plan.nodes).filter(|node| *node != exited) {
            if cx.plan.share_memory(node, exited) {
                if cx.has(Canary::RingDies) {
                    cx.shm.lose(exited, node);
                }
                let lives = cx.alive[node as usize];
                cx.shm.end(&mut cx.queue, cx.now, (exited, node), lives);
            } else if let Some(after_ns) = reported_after_ns {
                let at = cx.now + after_ns;
                cx.queue.push(at, Happening::Exited { node, exited, life });
            }
        }
    }

    /// Checks that the requests of `exited` have taken permanent effect in the memory of other
    /// processes. `P12.5`
    fn check_area(&mut self, exited: u32) {
        let source = &self.nodes[exited as usize];
        let mut targets = self.nodes.iter().filter(|target| target.id != exited);
        let wrong = targets.find_map(|target| {
            let what = source.check_area(&self.cx, target)?;
            Some((target.id, what))
        });
        if let Some((target, what)) = wrong {
            self.cx.violate(format!(
                "what ended requests of {exited} left in the memory of {target} is not there: {what}"
            ));
        }
    }

    /// Checks that acknowledged messages, and frames committed to a ring, were delivered. That
    /// holds also if their sender has exited, as long as their receiver lives. `P2.9`, `P9.7`
    pub(super) fn check_settled(&mut self) {
        let cx = &self.cx;
        let life_of = |node: u32| cx.alive[node as usize].then(|| cx.lives[node as usize]);
        let withheld = cx.ledger.withheld(life_of).next();
        if let Some((session, src, dst, (count, lane, port, oldest))) = withheld {
            self.cx.violate(format!(
                "session {session} from {src} to {dst}: {count} messages that had arrived were never \
                 delivered, first message {} ({} bytes, sent at {:?}) to {port:?} {lane:?}",
                oldest.id,
                oldest.len,
                Duration::from_nanos(oldest.at_ns)
            ));
        }
        for node in 0..self.cx.plan.nodes {
            if !self.cx.alive[node as usize] {
                self.check_area(node);
            }
        }
    }
}
