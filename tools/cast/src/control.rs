// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control messages between the processes of a cast: short messages, mostly to the parent.

use crate::fault::Fault;
use crate::multicast::Message;
use serde::{Deserialize, Serialize};

/// A control message. Block numbers are exclusive upper bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Control {
    /// To the parent: progress of this process and its downstream processes.
    Progress(Progress),
    /// To a new parent: request to send blocks starting at `next`.
    Attach { next: u64, progress: Progress },
    /// To the parent: data blocks of a batch that are missing here or downstream, one bit each,
    /// lowest first.
    Needs { batch: u32, bits: Vec<u8> },
    /// To a stalled process: the cast continues without it.
    Dismiss { why: String },
    /// To the children of a stalled process: `old` has been given up, and the sender is the new
    /// parent.
    Adopt { old: u32 },
    /// A message about multicast.
    Multicast(Message),
}

/// Progress of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// All blocks below this number are stored by the process and all its downstream processes.
    pub(crate) acked: u64,
    /// All blocks below this number are stored by the process.
    pub(crate) stored: u64,
    /// Set if its memory is full of blocks that a downstream process has not stored.
    pub(crate) is_held_up: bool,
    /// Set if the disk or processor of this or a downstream process is nearly always busy.
    pub(crate) is_busy: bool,
}

impl Control {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Serialization cannot fail: postcard supports all types in it.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Control, Fault> {
        postcard::from_bytes(bytes).map_err(|_| Fault::Protocol("an invalid control message"))
    }
}
