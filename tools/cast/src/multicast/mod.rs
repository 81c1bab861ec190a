// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks to all hosts of one Ethernet at once, by UDP multicast, with repair of what hosts lack.
//!
//! The source sends each block in pieces, a datagram each, to a group that the hosts have joined
//! ([`muster`]). Everything else goes by the job's own messages from process to process: who has which
//! pieces, what the source has sent, who is gone. UDP and not raw Ethernet: it needs no privilege, the
//! kernel cuts and joins runs of datagrams, and what bridges and switches do with it is known.
//!
//! How that works, with datagrams that are sealed by a key of the cast, is `portolan_multicast`'s. A host
//! is never sent more blocks than it may hold, by what [`crate::relay`] keeps.
//!
//! The one invariant: no byte of a datagram is believed for itself. It counts only with its seal, for a
//! block that is due, and the block only with its hash.

mod muster;
mod part;

pub(crate) use muster::{Desks, Muster, muster};
pub(crate) use part::{Part, Turn};

use portolan_multicast::{Front, Keys, Report, Terms};
use serde::{Deserialize, Serialize};

/// What processes tell one another about multicast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// From the source: join this group.
    Invite {
        group: [u8; 4],
        port: u16,
        keys: Keys,
    },
    /// To the source: joined; the socket buffers that many bytes, and the interface's packets have at
    /// most that many.
    Ready { buffer_len: u64, mtu: u32 },
    /// To the source: not joined.
    Refused { why: String },
    /// From the source: datagrams were sent for trial, so many before and now.
    Trial { count: u64 },
    /// To the source: so many of all datagrams for trial have come.
    Heard { count: u64 },
    /// From the source: the data comes by multicast, or, with `None`, by a chain.
    Begin(Option<Terms>),
    /// To the source: what has come, and what has not.
    Report(Report),
    /// From the source: this was sent, in case that it has not come.
    Sent { serial: u64, front: Front },
}
