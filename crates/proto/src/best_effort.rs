// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best effort: delivered if it arrives and finds a buffer; what is lost is counted, not repaired
//! (`P7.1`, `P7.4`).

use crate::DropReason;
use crate::core_state::Shared;
use crate::event::{Data, PortId};
use crate::lane::truncation;
use crate::peer::Peer;
use crate::port::Match;
use core::ops::Range;
use portolan_wire::Message;

impl Peer {
    pub(crate) fn on_best_effort(
        &mut self,
        sh: &mut Shared,
        message: &Message,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let rx = &mut self.lanes_rx[message.lane.index()];
        let ahead = message.seq.wrapping_sub(rx.best_effort_next);
        if ahead < 1 << 15 {
            rx.best_effort_next = message.seq.wrapping_add(1);
            sh.counters.best_effort_lost += u64::from(ahead);
        } else {
            // It was late, not lost.
            sh.counters.best_effort_lost = sh.counters.best_effort_lost.saturating_sub(1);
        }
        let port = PortId {
            number: message.port,
            system: message.system,
        };
        let found = match sh.ports.get_mut(port) {
            Some(found) => found.find(self.id, message.lane, true),
            None => Match::Nothing,
        };
        let len = payload.len() as u64;
        let (op, error) = match found {
            Match::InPlace => (None, None),
            Match::Posted(posted) => (Some(posted.op), truncation(len, posted.len)),
            // P7.3
            Match::Nothing => return Err(DropReason::BestEffortNoBuffer),
        };
        self.deliver(sh, message.lane, port, op, len, Data::Frame(payload), error);
        Ok(())
    }
}
