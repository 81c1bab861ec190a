// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cast is to do: the same for all its processes.

use crate::shape::{Form, Shape};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a block: a hash, a message and a write cost little beside them, and a chain fills soon. Not
/// measured against other lengths.
pub const BLOCK_LEN: u32 = 1 << 20;

/// Memory for blocks of one process, in bytes: with threads, buffers of sockets and tables it stays
/// below 256 MiB.
const WINDOW_BYTES_MAX: u64 = 160 << 20;

/// Blocks beyond two a hop that a process may hold: what disks take in bursts.
const WINDOW_SLACK: u64 = 16;

/// Where the data comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A file, a directory or a block device, by its name in bytes.
    Path(#[serde(with = "hex::serde")] Vec<u8>),
    /// Standard input of this process, which runs beside the source.
    StandardInput {
        /// Its number.
        pid: u32,
    },
}

/// Where the data goes on each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A name in bytes, in which `%h` is the host's name and `%%` a percent sign.
    Path(#[serde(with = "hex::serde")] Vec<u8>),
    /// The standard output of the command on the only receiver, by the launcher.
    StandardOutput,
    /// The standard input of a shell command, in which `%h` and `%%` are as in a name.
    Command(String),
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// By zstd (RFC 8878).
    Zstd,
}

/// Which hashes travel before contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashes {
    /// None: each block has its own.
    None,
    /// One for each block; receivers say which they lack.
    Blocks,
    /// One for each [`BLOCK_LEN`] of each extent; no contents follow.
    Pieces,
}

/// What a cast is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Where the data comes from, on the host of rank 0.
    pub source: Source,
    /// Where it goes, on all others.
    pub target: Target,
    /// Names of the hosts, by rank.
    pub hosts: Vec<String>,
    /// How the data goes; by a chain where multicast is asked for and does not reach all.
    pub form: Form,
    /// Send only blocks that differ from what receivers have.
    pub resume: bool,
    /// Compare what is there with the source, and write nothing.
    pub verify: bool,
    /// How blocks are compressed where that makes the cast faster.
    pub compress: Option<Compression>,
    /// A directory that exists as the target is replaced by the copy.
    pub replace: bool,
    /// Write through to the disks before the end.
    pub sync: bool,
    /// What has come stays after an orderly failure, for `resume`.
    pub keep_partial: bool,
    /// Bytes a second that the source sends at most.
    pub rate_limit: Option<f64>,
    /// Seconds without progress after which a host is given up.
    pub stall_s: f64,
}

impl Spec {
    /// Who sends to whom.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let size = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        Shape::of(self.form, size)
    }

    /// Which hashes the source puts before contents.
    pub(crate) fn hashes(&self) -> Hashes {
        match (self.verify, self.resume) {
            (true, _) => Hashes::Pieces,
            (false, true) => Hashes::Blocks,
            (false, false) => Hashes::None,
        }
    }

    /// Blocks that each process may hold.
    #[must_use]
    pub fn window(&self) -> usize {
        let hops = u64::from(self.shape().depth());
        let most = WINDOW_BYTES_MAX / u64::from(BLOCK_LEN);
        usize::try_from((2 * hops + WINDOW_SLACK).min(most)).unwrap_or(1)
    }

    /// Time without progress after which a host is given up.
    #[must_use]
    pub fn stall(&self) -> Duration {
        Duration::try_from_secs_f64(self.stall_s).unwrap_or(Duration::MAX)
    }

    /// Name of the host of `rank`.
    #[must_use]
    pub fn host(&self, rank: u32) -> &str {
        let host = self.hosts.get(rank as usize);
        host.map_or("", String::as_str)
    }

    /// The target's name on the host of `rank`, if it has one.
    #[must_use]
    pub fn target_path(&self, rank: u32) -> Option<PathBuf> {
        let Target::Path(name) = &self.target else {
            return None;
        };
        let name = expand(name, self.host(rank));
        Some(PathBuf::from(OsStr::from_bytes(&name)))
    }
}

/// `text` with the host's name for `%h`.
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
    fn the_host_takes_its_place_in_names() {
        let expanded = |text: &[u8]| expand(text, "n7");
        assert_eq!(expanded(b"/x/%h.img"), b"/x/n7.img");
        assert_eq!(expanded(b"100%% %h%h %z %"), b"100% n7n7 %z %");
        assert_eq!(expanded(b"\xff%h"), b"\xffn7");
    }
}
