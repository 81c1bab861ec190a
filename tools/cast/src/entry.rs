// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire format of a source: entries, in the order in which receivers create them.
//!
//! Names, owner ids and attributes are transferred as bytes and numbers without interpretation.

use crate::fault::Fault;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// One step in the creation of the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Start of an entry. The records that follow belong to this entry or to entries in it.
    Entry(Entry),
    /// Bytes of the most recent file. Their contents are in the data blocks of the batch.
    Extent { offset: u64, len: u64 },
    /// End of the most recent file or directory that is still open.
    End,
}

/// A file, a directory or another named object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Path below the source; empty for the source itself.
    pub(crate) path: Vec<u8>,
    pub(crate) what: What,
    pub(crate) meta: Meta,
}

/// Type of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A regular file of this length. Ranges that no extent covers are holes.
    File {
        len: u64,
    },
    /// Data of unknown length, such as standard input.
    Stream,
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// Another name of an earlier entry, given by its path.
    HardLink {
        to: Vec<u8>,
    },
    /// A FIFO, socket or device: type bits of the mode, and the device number.
    Special {
        file_type: u32,
        device: u64,
    },
}

/// Names and values of extended attributes.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Metadata of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Permission bits, including the set-user-id, set-group-id and sticky bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Modification time: seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, u32),
    /// Extended attributes, including access control lists.
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

/// Payload of a block of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) records: Vec<Record>,
    /// Bytes of each data block that follows, except the last.
    pub(crate) block_len: u32,
    /// BLAKE3 hashes. For `resume` there is one per data block; for `verify` one per
    /// [`BLOCK_LEN`](crate::spec::BLOCK_LEN) of each extent, or a shorter rest.
    pub(crate) hashes: Vec<[u8; 32]>,
}

impl Batch {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Batch, Fault> {
        postcard::from_bytes(bytes).map_err(|_| Fault::Protocol("an invalid block of entries"))
    }
}

/// Payload of the last block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of all extents.
    pub bytes: u64,
    /// BLAKE3 over the hashes of all blocks, in order.
    pub hash: [u8; 32],
    /// Files that disappeared between listing and reading. Each was reported.
    pub vanished: u64,
}

/// Returns the path of an entry below `root`.
///
/// # Errors
/// [`Fault::Protocol`] if the path could leave `root`.
pub(crate) fn below(root: &Path, path: &[u8]) -> Result<PathBuf, Fault> {
    let path = Path::new(OsStr::from_bytes(path));
    let is_plain = |component| matches!(component, Component::Normal(_));
    if !path.components().all(is_plain) {
        return Err(Fault::Protocol("an entry path that leaves the target"));
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
    fn names_cannot_leave_the_directory() {
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
