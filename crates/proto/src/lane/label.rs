// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages with labels in their lane: matched in their turn, like those to ports, but by their
//! label, and delivered when they are whole, whatever is under way before them (`P11.4`).

use super::{Env, Lanes};
use crate::base::credit::charge;
use crate::shared::Shared;
use crate::{Address, Data, DropReason, Event, OpError, OpId};
use core::ops::Range;
use portolan_wire::{Label, LaneId};

/// Of the memory for early and unexpected messages, up to which part messages with labels wait
/// without holding up their lane: a quarter. Programs take them in another order than they were
/// sent in, so a lane full of the one must not keep the other from coming; the rest of the memory
/// is for what credit bounds.
const WAITING_PART: usize = 4;

impl Lanes {
    /// A whole eager message with a label, at `payload` of the frame being handled.
    pub(crate) fn on_labelled(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        label: Label,
        seq: u16,
        payload: Range<usize>,
    ) -> Result<(), DropReason> {
        let rx = &mut self.rx[lane.index()];
        let charge = charge(payload.len());
        let len = payload.len() as u64;
        // P3.12: what has come by another path costs nothing a second time.
        let index = rx.fresh(seq)?;
        rx.admit(charge)?;
        if !rx.is_next(seq) {
            return self.keep_whole(env, lane, label.into(), index, payload);
        }
        let Some(posted) =
            env.sh
                .matching
                .lists()
                .take_posted(env.peer, &label, len, &mut env.sh.ctx)
        else {
            return self.keep_whole(env, lane, label.into(), index, payload);
        };
        rx.next_seq = rx.next_seq.wrapping_add(1);
        let error = OpError::truncated(len, posted.len);
        let (to, data) = (label.into(), Data::Frame(payload));
        self.deliver_to(env, lane, &to, Some(posted.op), len, data, error);
        self.consume(env, lane, charge);
        Ok(())
    }

    /// Delivers a message to wherever it goes.
    #[allow(
        clippy::too_many_arguments,
        reason = "one argument per field of the event"
    )]
    pub(crate) fn deliver_to(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        to: &Address,
        op: Option<OpId>,
        len: u64,
        data: Data,
        error: Option<OpError>,
    ) {
        match (to, op) {
            (Address::Port(port), op) => self.deliver(env, lane, *port, op, len, data, error),
            (Address::Label(label), Some(op)) => {
                env.sh.ctx.count_received(len);
                env.sh.ctx.emit(Event::Matched {
                    peer: env.peer,
                    op,
                    label: *label,
                    len,
                    data,
                    truncated: error.is_some(),
                });
            }
            (Address::Label(_), None) => debug_assert!(false, "delivered to no receive"),
        }
    }
}

/// Whether the credit of a message that waits comes back although nothing has taken it: while memory
/// is ample. `P11.6`
pub(super) fn credit_comes_back(sh: &Shared, to: &Address) -> bool {
    let room = sh.ctx.limits().held_len_max / WAITING_PART;
    matches!(to, Address::Label(_)) && sh.unexpected_len() <= room
}
