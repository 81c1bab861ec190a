// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks to all hosts of one Ethernet by UDP multicast, with repair of losses.
//!
//! The source sends each block in pieces, one datagram each, to a group that the hosts have joined
//! ([`probe`]). All other information travels in the job's own messages: received pieces, sent
//! pieces, failures. UDP is used instead of raw Ethernet for three reasons. It needs no privilege,
//! the kernel segments and joins runs of datagrams, and bridges and switches handle it in a known
//! way.
//!
//! `portolan_multicast` implements the protocol, with datagrams sealed by a key of the cast. The
//! state in [`crate::relay`] ensures that a host is never sent more blocks than it may hold.
//!
//! Invariant: a datagram is not trusted. It counts only with a valid seal and for an expected
//! block, and the block only with a valid hash.

mod part;
mod probe;

pub(crate) use part::{Part, Polled};
pub(crate) use probe::{Job, ProbeResult, probe};

use portolan_multicast::{Front, Keys, Report, Terms};
use serde::{Deserialize, Serialize};

/// Control messages about multicast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// From the source: invitation to a group.
    Invite {
        group: [u8; 4],
        port: u16,
        keys: Keys,
    },
    /// To the source: joined, with the bytes of the socket's buffer and the interface's MTU.
    Ready { buffer_len: u64, mtu: u32 },
    /// To the source: not joined.
    Refused { why: String },
    /// From the source: total number of trial datagrams sent so far.
    Trial { count: u64 },
    /// To the source: total number of trial datagrams received.
    Received { count: u64 },
    /// From the source: start with multicast, or, with `None`, with a chain.
    Begin(Option<Terms>),
    /// To the source: received and missing pieces.
    Report(Report),
    /// From the source: position up to which pieces were sent, so that losses at the end are
    /// noticed.
    Sent { serial: u64, front: Front },
}
