// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a source consists of, as it travels: entries, in the order in which they are made.
//!
//! Names, owners' numbers and attributes are bytes and numbers; nothing is interpreted on the way.

use crate::fault::Fault;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// One step in making the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Begin this entry; records that follow are about it, or about those in it.
    Entry(Entry),
    /// Bytes of the file that was begun last; they are in the data blocks of the batch.
    Extent { offset: u64, len: u64 },
    /// The file or directory that was begun last, and has not been ended, is complete.
    End,
}

/// A file, a directory or something else with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Below the source; empty for the source itself.
    pub(crate) path: Vec<u8>,
    pub(crate) what: What,
    pub(crate) meta: Meta,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A regular file of this length; what no extent covers is a hole.
    File {
        len: u64,
    },
    /// Bytes of a length that is not known, such as standard input.
    Stream,
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// Another name of an entry that has come before, by its path.
    HardLink {
        to: Vec<u8>,
    },
    /// A FIFO, socket or device: type bits of its mode, and its number.
    Special {
        file_type: u32,
        device: u64,
    },
}

/// Extended attributes: names and values.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Attributes of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Permission bits, with set-user-id and the like.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, u32),
    /// Extended attributes, which hold access control lists too.
    pub(crate) attributes: Attributes,
}

impl Meta {
    pub(crate) fn new(stat: &Stat, attributes: Attributes) -> Meta {
        Meta {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            modified: (
                stat.st_mtime,
                u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
            attributes,
        }
    }
}

/// The payload of a block of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) records: Vec<Record>,
    /// Bytes of each data block that follows, but for the last.
    pub(crate) block_len: u32,
    /// BLAKE3 of each data block, if receivers are to say what they lack; of each piece of each extent,
    /// as long as a block or shorter, if they are to compare.
    pub(crate) hashes: Vec<[u8; 32]>,
}

impl Batch {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Batch, Fault> {
        postcard::from_bytes(bytes).map_err(|_| Fault::Protocol("a block of entries that is none"))
    }
}

/// The payload of the last block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files, directories and the like.
    pub entries: u64,
    /// Bytes of all extents.
    pub bytes: u64,
    /// BLAKE3 over the hashes of all blocks, in order.
    pub hash: [u8; 32],
    /// Files that vanished between being listed and being read; each was reported.
    pub vanished: u64,
}

/// The name of an entry below `root`.
///
/// # Errors
/// [`Fault::Protocol`] for a name that would lead elsewhere.
pub(crate) fn below(root: &Path, path: &[u8]) -> Result<PathBuf, Fault> {
    let path = Path::new(OsStr::from_bytes(path));
    let is_plain = |component| matches!(component, Component::Normal(_));
    if !path.components().all(is_plain) {
        return Err(Fault::Protocol("the name of an entry that leads elsewhere"));
    }
    match path.as_os_str().is_empty() {
        true => Ok(root.to_owned()),
        false => Ok(root.join(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below() {
        let root = Path::new("/target");
        for bad in ["/etc/passwd", "../x", "a/../../x", "./x", "a/.."] {
            assert!(below(root, bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(below(root, b"").unwrap(), root);
        assert_eq!(
            below(root, b"a/b\n\xff").unwrap().parent().unwrap(),
            root.join("a")
        );
    }
}
