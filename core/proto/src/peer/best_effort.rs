// SPDX-License-Identifier: MIT OR Apache-2.0
//! Best-effort messages of several frames (`P7.6`).

use super::Peer;
use crate::base::narrow::narrow;
use crate::mem::slot::FRAGMENTED_LEN_MAX;
use crate::path::stage::Parts;
use crate::shared::Shared;
use crate::{Address, PortId, Refused, SendSpec, Staging};
use portolan_wire::{BEST_EFFORT_PART_LEN, BestEffortPart};

impl Peer {
    /// Returns the destination port of a best-effort message that fits no shared frame, if it is
    /// sent without retransmission. `P7.5`
    pub(super) fn best_effort_port(&self, spec: &SendSpec, len: usize) -> Option<PortId> {
        let path = self.paths.small_path()?;
        let is_long = !path.is_lossless() && !path.fits_shared(spec.header_len() + len);
        match spec.to {
            Address::Port(port) if is_long && len <= FRAGMENTED_LEN_MAX => Some(port),
            _ => None,
        }
    }

    /// Accepts such a message of `len` bytes and returns the memory to copy it into.
    pub(super) fn best_effort<'a>(
        &mut self,
        sh: &'a mut Shared,
        spec: &SendSpec,
        port: PortId,
        len: usize,
    ) -> Result<Staging<'a>, Refused> {
        let path = self
            .paths
            .run_path_mut(&sh.ctx, len)
            .ok_or(Refused::NotUp)?;
        let tx = self.lanes.tx(spec.lane);
        let number = tx.next_best_effort_number(path.has_best_effort_room());
        let number = number.ok_or(Refused::Busy)?;
        sh.ctx.counters_mut().messages_sent += 1;
        let emit = |offset: usize, part: usize, out: &mut [u8]| {
            let part = BestEffortPart {
                lane: spec.lane,
                system: port.system,
                port: port.number,
                len: narrow(part),
                message_len: narrow(len),
                offset: narrow(offset),
                number,
            };
            part.emit(out);
        };
        let parts = Parts {
            lane: spec.lane,
            header_len: BEST_EFFORT_PART_LEN,
            len,
            emit: &emit,
        };
        Ok(path.stage_best_effort(&mut sh.slots, &parts))
    }
}
