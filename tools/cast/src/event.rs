// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events from the processes of a cast to the command: one line of JSON each on standard error.
//! Standard output is reserved for data.

use crate::model::Rates;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// Current bottleneck of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The disk, or the program that reads the data.
    Disk,
    /// Receiving or sending blocks.
    Network,
    /// Hashing or compression.
    Processor,
}

/// Result of a process that has completed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Bytes of content.
    pub bytes: u64,
    /// Number of entries: files, directories, links and special files.
    pub entries: u64,
    /// Payload bytes received over the network; at the source, bytes sent for the first time.
    pub wire_bytes: u64,
    /// BLAKE3 over all blocks, in hexadecimal digits.
    pub hash: String,
    /// Seconds since joining the job.
    pub seconds: f64,
    /// Seconds of processor time.
    pub cpu_seconds: f64,
    /// Peak memory, in bytes.
    pub memory: u64,
    /// Result of a comparison, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Entries that differ, are missing, or do not exist in the source.
    pub differing: u64,
    /// Blocks of contents that were compared.
    pub blocks: u64,
    /// Compared blocks that differ or are missing.
    pub differing_blocks: u64,
}

/// An event, written as one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Size of the source.
    Size {
        /// Bytes.
        bytes: u64,
        /// Number of entries.
        entries: u64,
    },
    /// Progress of a process.
    Progress {
        /// Bytes of content stored so far; at the source, bytes read.
        bytes: u64,
        /// Entries that it has begun to store; 0 at the source.
        entries: u64,
        /// Bytes received over the network, or sent by the source.
        wire_bytes: u64,
        /// Current bottleneck.
        bound: Bound,
    },
    /// A parent has given up a process.
    Bypassed {
        /// Rank of the process.
        rank: u32,
        /// Reason.
        why: String,
    },
    /// A problem with a file that does not end the cast.
    Warning {
        /// Message for the user.
        text: String,
    },
    /// An entry that differs from the source. Only the first of very many are reported.
    Differs {
        /// Path on this host.
        path: String,
        /// Differences.
        why: String,
    },
    /// Measurements of a process, before a cast.
    Surveyed(Rates),
    /// A process has completed: its copy is in place, or has been compared.
    Done(Done),
    /// A process ends without a copy.
    Failed {
        /// Reason.
        why: String,
    },
}

impl Event {
    /// Writes the event as one line. Write errors are ignored, because the launcher notices the end
    /// of the process.
    pub(crate) fn emit(&self) {
        if let Ok(mut line) = serde_json::to_vec(self) {
            line.push(b'\n');
            let _ = std::io::stderr().lock().write_all(&line);
        }
    }
}
