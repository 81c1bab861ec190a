// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bare rows: what this machine does without a protocol, what its TCP does, what a link of
//! Portolan's does alone; and other libraries' rows.
//!
//! A limit that is slower than it could be is a lie, so where two ways of doing the work are
//! plausible both are here, both are measured, and the faster is reported. No row retransmits: one
//! that loses a message fails.

mod cargo;
pub(crate) mod competitor;
pub(crate) mod flow;
pub(crate) mod logp;
pub(crate) mod pingpong;
pub(crate) mod shm_pingpong;
pub(crate) mod shm_rate;
pub(crate) mod shm_stream;
pub(crate) mod tcp;
pub(crate) mod tcp_bidir;
pub(crate) mod tcp_goodput;
pub(crate) mod tcp_lent;
pub(crate) mod tcp_loaded;
pub(crate) mod udp_stream;
pub(crate) mod xdp_link;

use crate::pattern::Flags;

/// The flags of turn `turn`'s messages.
pub(crate) fn turn_flags(turn: u64, last: bool) -> Flags {
    match (turn, last) {
        (_, true) => Flags::LAST,
        (0, false) => Flags::FIRST,
        _ => Flags::NONE,
    }
}
