// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of messages: to a port, or to the receive found by match bits, regardless of earlier
//! messages in progress (`P11.4`).

use super::{Env, Lanes};
use crate::shared::Shared;
use crate::{Address, Data, Event, OpError, OpId, PeerId};
use portolan_wire::LaneId;

/// Divisor of the memory for early and unexpected messages: up to a quarter of it, waiting tagged
/// messages do not hold their lane's credit. Programs take them in another order than they were
/// sent, so a lane full of some must not block others. The rest of the memory is for messages that
/// credit bounds.
const WAITING_PART: usize = 4;

impl Lanes {
    /// Delivers a message to its destination.
    #[allow(
        clippy::too_many_arguments,
        reason = "one argument per field of the event"
    )]
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        to: &Address,
        op: Option<OpId>,
        len: u64,
        data: Data,
        error: Option<OpError>,
    ) {
        env.sh.ctx.count_received(len);
        let peer = env.peer;
        env.sh.ctx.emit(match (to, op) {
            (Address::Port(port), op) => Event::Deliver {
                peer,
                port: *port,
                lane,
                op,
                len,
                data,
                error,
            },
            (Address::MatchBits(match_bits), Some(op)) => {
                let event = Event::Matched {
                    peer,
                    op,
                    match_bits: *match_bits,
                    len,
                    data,
                    truncated: error.is_some(),
                };
                let from = (peer, lane);
                if env.sh.matching.must_wait(from, match_bits) {
                    return deliver_in_order(env.sh, from, op, event);
                }
                event
            }
            (Address::MatchBits(_), None) => {
                unreachable!("a receive takes each message with a match_bits")
            }
        });
    }
}

/// Delivers a complete message of the plain space, after those that were matched before it.
/// `P11.10`
#[cold]
fn deliver_in_order(sh: &mut Shared, from: (PeerId, LaneId), op: OpId, event: Event) {
    let order = sh.matching.plain_order();
    order.complete(from, op, event);
    while let Some(event) = order.pop_complete(from) {
        sh.ctx.emit(event);
    }
}

/// Returns true if a waiting message's credit is returned although no receive has taken it. That is
/// so while memory is ample. `P11.6`
pub(super) fn credit_comes_back(sh: &Shared, to: &Address) -> bool {
    let room = sh.ctx.limits().held_len_max / WAITING_PART;
    matches!(to, Address::MatchBits(_)) && sh.unexpected_len() <= room
}
