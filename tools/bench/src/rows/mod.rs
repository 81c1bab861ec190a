// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bare rows: the machine without a protocol, the kernel's TCP, and a link of Portolan alone; also
//! the rows of other libraries.
//!
//! A limit must be as fast as possible. If two variants of the work are plausible, both are
//! measured and the faster is reported. No row retransmits: a row that loses a message fails.

pub(crate) mod competitor;
pub(crate) mod flow;
pub(crate) mod logp;
mod payload;
pub(crate) mod pingpong;
pub(crate) mod shm_pingpong;
pub(crate) mod shm_rate;
pub(crate) mod shm_stream;
pub(crate) mod tcp;
pub(crate) mod tcp_bidir;
pub(crate) mod tcp_goodput;
pub(crate) mod tcp_loaded;
pub(crate) mod tcp_zero_copy;
pub(crate) mod udp_stream;
pub(crate) mod xdp_link;

use crate::pattern::Flags;

/// Returns the flags of the messages of pass `pass`.
pub(crate) fn pass_flags(pass: u64, last: bool) -> Flags {
    match (pass, last) {
        (_, true) => Flags::LAST,
        (0, false) => Flags::FIRST,
        _ => Flags::NONE,
    }
}
