// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors that end a process of a cast.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use thiserror::Error;

/// Error that ends a process of a cast. Each message names the object, the cause and, if there is
/// one, the remedy. The caller that prints it adds the host.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A system call for a file failed.
    #[error("{path} cannot be {what}: {errno}{}", remedy(.errno))]
    File {
        /// Path, with non-printable characters escaped.
        path: String,
        /// Attempted action, as a participle.
        what: &'static str,
        /// Error of the system call.
        errno: io::Error,
    },
    /// A file or a request was refused for a reason without an errno.
    #[error("{path}: {why}")]
    Refused {
        /// Path.
        path: String,
        /// Reason and remedy.
        why: String,
    },
    /// The source became shorter while it was read.
    #[error(
        "{path} became shorter while it was read: cast a snapshot, or stop the program that writes \
         to it"
    )]
    Shrunk {
        /// Path.
        path: String,
    },
    /// Error of the messaging library.
    #[error(transparent)]
    Message(#[from] portolan::Error),
    /// A system call without a path failed.
    #[error("{what}: {errno}")]
    System {
        /// Attempted action.
        what: &'static str,
        /// Error of the system call.
        errno: io::Error,
    },
    /// A message that no peer of this version sends.
    #[error("protocol error: {0}; install the same version of portolan on all hosts")]
    Protocol(&'static str),
    /// A block does not have the hash of its sender.
    #[error("block {seq} was corrupted: check the memory and the network of this host")]
    Corrupt {
        /// Number of the block.
        seq: u64,
    },
    /// The stored data does not have the hash of the source's data.
    #[error("the copy does not have the hash of the source: check the memory of this host")]
    TotalDiffers,
    /// All possible senders have failed.
    #[error("the source and all hosts between it and this one have failed")]
    SourceGone,
    /// The cast continues without this process.
    #[error("the other hosts continued without this one: {0}")]
    Dismissed(String),
    /// A signal ended the process.
    #[error("ended by signal {0}")]
    Signal(i32),
    /// A command of `--pipe` failed.
    #[error("the command {command:?} failed: {status}")]
    Command {
        /// The command.
        command: String,
        /// Exit status.
        status: String,
    },
}

impl Fault {
    /// Creates an error of a system call for `path`.
    pub(crate) fn file(path: &Path, what: &'static str, errno: impl Into<io::Error>) -> Fault {
        Fault::File {
            path: shown(path),
            what,
            errno: errno.into(),
        }
    }

    /// Creates an error for `path` from a reason and a remedy.
    pub(crate) fn refused(path: &Path, why: impl Into<String>) -> Fault {
        Fault::Refused {
            path: shown(path),
            why: why.into(),
        }
    }
}

/// Returns a printable path; anything that is not printable text is escaped.
pub(crate) fn shown(path: &Path) -> String {
    shown_bytes(path.as_os_str().as_bytes())
}

fn shown_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("{:?}", OsStr::from_bytes(bytes)),
    }
}

fn remedy(errno: &io::Error) -> &'static str {
    match errno.kind() {
        io::ErrorKind::StorageFull => "; free space on it, or cast to another disk",
        io::ErrorKind::QuotaExceeded => "; raise the quota, or remove files",
        io::ErrorKind::ReadOnlyFilesystem => "; cast to a writable file system",
        io::ErrorKind::ResourceBusy => "; unmount it, or stop the program that uses it",
        io::ErrorKind::PermissionDenied => {
            "; run as a user with permission, or cast to another path"
        }
        _ => "",
    }
}

impl From<portolan::Failed> for Fault {
    fn from(failed: portolan::Failed) -> Fault {
        Fault::Message(failed.into())
    }
}
