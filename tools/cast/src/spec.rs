// SPDX-License-Identifier: MIT OR Apache-2.0
//! Specification of a cast, the same for all its processes.

use crate::shape::{Form, Shape};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a block. The cost of a hash, a message and a write is small in comparison, and a chain
/// fills quickly. Other lengths were not measured.
pub const BLOCK_LEN: u32 = 1 << 20;

/// Memory for blocks in one process, in bytes. With threads, socket buffers and tables the process
/// stays below 256 MiB.
const WINDOW_BYTES_MAX: u64 = 160 << 20;

/// Blocks that a process may hold in addition to two per hop, for the bursts of disks.
const WINDOW_SLACK: u64 = 16;

/// Origin of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Path of a file, a directory or a block device, in bytes.
    Path(#[serde(with = "hex::serde")] Vec<u8>),
    /// Standard input of another process on the host of rank 0.
    StandardInput {
        /// Process id.
        pid: u32,
    },
}

/// Destination of the data on each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Path in bytes. `%h` stands for the host's name and `%%` for a percent sign.
    Path(#[serde(with = "hex::serde")] Vec<u8>),
    /// Standard output of the command, forwarded by the launcher from the only receiver.
    StandardOutput,
    /// Standard input of a shell command. `%h` and `%%` are as in a path.
    Command(String),
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Compression by zstd (RFC 8878).
    Zstd,
}

/// Hashes that precede the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashes {
    /// None; each block carries its own hash.
    None,
    /// One hash per block. Receivers report the blocks that they lack.
    Blocks,
    /// One hash per [`BLOCK_LEN`] of each extent. No contents follow.
    Pieces,
}

/// Specification of a cast.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Origin of the data, on the host of rank 0.
    pub source: Source,
    /// Destination on all other hosts.
    pub target: Target,
    /// Names of the hosts, by rank.
    pub hosts: Vec<String>,
    /// Form of the distribution. A chain replaces multicast if multicast does not reach all hosts.
    pub form: Form,
    /// Send only blocks that receivers lack.
    pub resume: bool,
    /// Compare the target with the source and write nothing.
    pub verify: bool,
    /// Compression, used only while it makes the cast faster.
    pub compress: Option<Compression>,
    /// Replace an existing directory at the target by the copy.
    pub replace: bool,
    /// Flush the data to the disks before the end.
    pub sync: bool,
    /// Keep received data after an orderly failure, for `resume`.
    pub keep_partial: bool,
    /// Maximum bytes per second that the source sends.
    pub rate_limit: Option<f64>,
    /// Seconds without progress after which a host is given up.
    pub stall_s: f64,
}

impl Spec {
    /// Returns the tree of parents and children.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let size = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        Shape::of(self.form, size)
    }

    /// Returns the hashes that the source sends before contents.
    pub(crate) fn hashes(&self) -> Hashes {
        match (self.verify, self.resume) {
            (true, _) => Hashes::Pieces,
            (false, true) => Hashes::Blocks,
            (false, false) => Hashes::None,
        }
    }

    /// Returns the number of blocks that each process may hold.
    #[must_use]
    pub fn window(&self) -> usize {
        let hops = u64::from(self.shape().depth());
        let most = WINDOW_BYTES_MAX / u64::from(BLOCK_LEN);
        usize::try_from((2 * hops + WINDOW_SLACK).min(most)).unwrap_or(1)
    }

    /// Returns the time without progress after which a host is given up.
    #[must_use]
    pub fn stall(&self) -> Duration {
        Duration::try_from_secs_f64(self.stall_s).unwrap_or(Duration::MAX)
    }

    /// Returns the name of the host of `rank`.
    #[must_use]
    pub fn host(&self, rank: u32) -> &str {
        let host = self.hosts.get(rank as usize);
        host.map_or("", String::as_str)
    }

    /// Returns the path of the target on the host of `rank`, if it is a path.
    #[must_use]
    pub fn target_path(&self, rank: u32) -> Option<PathBuf> {
        let Target::Path(name) = &self.target else {
            return None;
        };
        let name = expand(name, self.host(rank));
        Some(PathBuf::from(OsStr::from_bytes(&name)))
    }
}

/// Replaces `%h` in `text` by the host's name and `%%` by a percent sign.
#[must_use]
pub fn expand(text: &[u8], host: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match (byte, rest.peek()) {
            (b'%', Some(b'h')) => {
                out.extend_from_slice(host.as_bytes());
                rest.next();
            }
            (b'%', Some(b'%')) => {
                out.push(b'%');
                rest.next();
            }
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_placeholder_is_replaced() {
        let expanded = |text: &[u8]| expand(text, "n7");
        assert_eq!(expanded(b"/x/%h.img"), b"/x/n7.img");
        assert_eq!(expanded(b"100%% %h%h %z %"), b"100% n7n7 %z %");
        assert_eq!(expanded(b"\xff%h"), b"\xffn7");
    }
}
