// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes of a cast tell the command: one line of JSON each on standard
//! error. Standard output is for data.

use crate::model::Rates;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// What bounds a host now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It waits for its disk, or for the program that takes the data.
    Disk,
    /// It waits for blocks to come, or to leave.
    Network,
    /// It waits for hashing or compression.
    Processor,
}

/// How a process that is done has fared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Bytes of content.
    pub bytes: u64,
    /// Files, directories and the like.
    pub entries: u64,
    /// Bytes of payload that came over the network; at the source, that it sent for the first time.
    pub wire_bytes: u64,
    /// BLAKE3 over all blocks, as hexadecimal digits.
    pub hash: String,
    /// Seconds from joining the job.
    pub seconds: f64,
    /// Seconds of processor time.
    pub cpu_seconds: f64,
    /// Most memory that it held, in bytes.
    pub memory: u64,
    /// What it found, if it was to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

/// What a comparison has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Entries that differ, are missing, or are not in the source.
    pub differing: u64,
    /// Blocks of contents that were compared.
    pub blocks: u64,
    /// Those of them that differ, or are missing.
    pub differing_blocks: u64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The source knows how much there is.
    Size {
        /// Bytes.
        bytes: u64,
        /// Files, directories and the like.
        entries: u64,
    },
    /// How far a process is.
    Progress {
        /// Bytes of content that it has stored; at the source, read.
        bytes: u64,
        /// Entries that it has begun to store; 0 at the source.
        entries: u64,
        /// Bytes that came over the network, or left the source for it.
        wire_bytes: u64,
        /// What it waits for most.
        bound: Bound,
    },
    /// A process was given up by its parent, and why.
    Bypassed {
        /// Which.
        rank: u32,
        /// Why.
        why: String,
    },
    /// Something about a file that is no reason to end.
    Warning {
        /// A sentence.
        text: String,
    },
    /// An entry that is not as in the source. Of very many, only the first are told.
    Differs {
        /// Its name on this host.
        path: String,
        /// In what.
        why: String,
    },
    /// What a process has measured, before a cast.
    Surveyed(Rates),
    /// A process is done, and its copy is in place, or compared.
    Done(Done),
    /// A process ends without a copy, and why.
    Failed {
        /// A sentence.
        why: String,
    },
}

impl Event {
    /// Writes the line. Where nobody reads it, the launcher notices the end of the process.
    pub(crate) fn tell(&self) {
        if let Ok(mut line) = serde_json::to_vec(self) {
            line.push(b'\n');
            let _ = std::io::stderr().lock().write_all(&line);
        }
    }
}
