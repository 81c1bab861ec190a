// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a process of a cast cannot go on.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use thiserror::Error;

/// Why a process of a cast cannot go on. Each sentence names the thing, the cause and, where there is
/// one, the remedy; the host is named by whoever prints it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The system refused something about a file.
    #[error("{path} cannot be {what}: {errno}{}", remedy(.errno))]
    File {
        /// Its name, with what is not text escaped.
        path: String,
        /// What was tried, as a participle.
        what: &'static str,
        /// The errno.
        errno: io::Error,
    },
    /// Something about a file or a request that is no errno.
    #[error("{path}: {why}")]
    Refused {
        /// Its name.
        path: String,
        /// Why, and what to do.
        why: String,
    },
    /// The source changed while it was read.
    #[error(
        "{path} became shorter while it was read: cast a snapshot, or when nobody writes to it"
    )]
    Shrunk {
        /// Its name.
        path: String,
    },
    /// The library of messages.
    #[error(transparent)]
    Message(#[from] portolan::Error),
    /// The system refused something that has no name.
    #[error("{what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The errno.
        errno: io::Error,
    },
    /// Something came that a peer of this version does not send.
    #[error("{0}: is portolan of the same version on all hosts?")]
    Protocol(&'static str),
    /// A block is not what its sender hashed.
    #[error("block {seq} is not what was sent: memory or network here is faulty")]
    Corrupt {
        /// Its number.
        seq: u64,
    },
    /// What was stored is not what the source read.
    #[error("the copy has another hash than the source: memory here is faulty")]
    TotalDiffers,
    /// Everybody who could send is gone.
    #[error("the source and all hosts before this one are gone")]
    SourceGone,
    /// Others went on without this process.
    #[error("the others went on without this host: {0}")]
    Dismissed(String),
    /// A signal asked for the end.
    #[error("ended by signal {0}")]
    Signal(i32),
    /// A command of `--pipe` failed.
    #[error("the command {command:?} ended with {status}")]
    Command {
        /// What was run.
        command: String,
        /// Its end.
        status: String,
    },
}

impl Fault {
    /// A refusal by the system, about `path`.
    pub(crate) fn file(path: &Path, what: &'static str, errno: impl Into<io::Error>) -> Fault {
        Fault::File {
            path: shown(path),
            what,
            errno: errno.into(),
        }
    }

    /// What is wrong with `path`, and what to do.
    pub(crate) fn refused(path: &Path, why: impl Into<String>) -> Fault {
        Fault::Refused {
            path: shown(path),
            why: why.into(),
        }
    }
}

/// A name for people: what is not printable text is escaped.
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
        io::ErrorKind::StorageFull => "; make room there, or cast to another disk",
        io::ErrorKind::QuotaExceeded => "; raise the quota, or remove something",
        io::ErrorKind::ReadOnlyFilesystem => "; cast to a place that can be written",
        io::ErrorKind::ResourceBusy => "; unmount it, or end what uses it",
        io::ErrorKind::PermissionDenied => "; run as a user that may, or cast elsewhere",
        _ => "",
    }
}
