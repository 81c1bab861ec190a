// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes of a cast tell one another beside the blocks: short messages, mostly to the parent.

use crate::fault::Fault;
use crate::multicast::Word;
use serde::{Deserialize, Serialize};

/// A short message. Numbers of blocks are one past the last that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Control {
    /// To the parent: how far this process and those behind it are.
    Progress(Progress),
    /// To a new parent: send to me, from `next` on.
    Attach { next: u64, progress: Progress },
    /// To the parent: which data blocks of a batch are missing here or behind; a bit each, lowest first.
    Needs { batch: u32, bits: Vec<u8> },
    /// To a process that stalls: the others go on without you.
    Dismiss { why: String },
    /// To those behind one that stalls: `old` is out, ask me from now on.
    Adopt { old: u32 },
    /// About multicast.
    Multicast(Word),
}

/// How far a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// It and all behind it have stored everything below.
    pub(crate) acked: u64,
    /// It has stored everything below.
    pub(crate) stored: u64,
    /// Its memory is full of what somebody behind it has not stored.
    pub(crate) is_held_up: bool,
    /// Its disk or its processor, or that of somebody behind it, is busy nearly all the time.
    pub(crate) is_busy: bool,
}

impl Control {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Nothing in it has a form that postcard refuses.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Control, Fault> {
        postcard::from_bytes(bytes).map_err(|_| Fault::Protocol("a control message that is none"))
    }
}
