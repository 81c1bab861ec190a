// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, each naming the thing, the cause and, where there is one, the remedy.
//!
//! The sentence is whole: no error has a `source()` that its text contains already, so a program
//! that prints the chain of causes says nothing twice.

use crate::atomic::{AtomicOp, Datatype};
use crate::collective::CollectiveMismatch;
use crate::launch::LaunchError;
use portolan_link::LinkError;
use portolan_proto::{Cause, RemoteFault};
use portolan_sys::lack::{Explained, Lack};
use std::fmt;
use std::io;
use thiserror::Error;

/// Why a peer is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What this process found out by itself.
    pub cause: Cause,
    /// What the launcher said, such as "killed by signal 9 (SIGKILL)", or the process itself.
    pub report: Option<String>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.report, self.cause) {
            (Some(report), Cause::Starved(_)) => write!(f, "its process says: {report}"),
            (Some(report), cause) => write!(f, "{cause} ({report})"),
            (None, cause) => cause.fmt(f),
        }
    }
}

/// Why an operation or a call failed.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// The launcher, or the connection to it.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A link could not be opened or a peer not be reached by it.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system refused something that has no link.
    #[error("{what}: {}", Explained(errno, None))]
    System {
        /// What was tried.
        what: &'static str,
        /// The errno.
        errno: io::Error,
    },
    /// A rank outside the job.
    #[error("rank {rank} does not exist: this job has {}, numbered from 0", processes(*.size))]
    NoSuchRank {
        /// What was asked for.
        rank: u32,
        /// Processes in the job.
        size: u32,
    },
    /// A place outside of the group.
    #[error("member {member} does not exist: this group has {}, numbered from 0", members(*.size))]
    NoSuchMember {
        /// What was asked for.
        member: u32,
        /// Members of the group.
        size: u32,
    },
    /// The peer is gone, and with it the operation.
    #[error("rank {rank} on {host} is gone: {reason}")]
    PeerGone {
        /// Which.
        rank: u32,
        /// Where it ran.
        host: String,
        /// Why.
        reason: Reason,
    },
    /// The peer may live, and may not have got all that was sent to it before this process closed.
    #[error(
        "not all that was sent to rank {rank} on {host}{} has arrived: {reason}",
        and_others(*.others)
    )]
    Undelivered {
        /// Which.
        rank: u32,
        /// Where it ran.
        host: String,
        /// Why.
        reason: Reason,
        /// Processes of which the same is true.
        others: usize,
    },
    /// A wait for anybody, in a job whose other processes have all ended.
    #[error("what is waited for is not here, and nothing can come any more: {}", all_ended(*.others))]
    NobodyLeft {
        /// How many others there were.
        others: u32,
    },
    /// A message to this process itself, which has not received those before it.
    #[error(
        "a message of {len} bytes to this process itself: {unread} bytes that it has sent to itself \
         wait to be received, and {limit} are the most; receive some of them first"
    )]
    SelfFull {
        /// Bytes of the message.
        len: usize,
        /// Bytes that wait.
        unread: usize,
        /// Bytes that may wait.
        limit: usize,
    },
    /// This process has run out of something that it needs to reach the peer.
    #[error("no connection with rank {rank} on {host}: {what}")]
    Lacking {
        /// Which.
        rank: u32,
        /// Where it runs.
        host: String,
        /// What was tried, what is missing, the limit, and the remedy.
        what: String,
    },
    /// The system has no memory left for something whose length the program chose.
    #[error("{what} of {len} bytes: {lack}")]
    NoMemory {
        /// What it was for.
        what: &'static str,
        /// Bytes.
        len: usize,
        /// The limit and the remedy.
        lack: Lack,
    },
    /// No link leads to the peer.
    #[error("no path to rank {rank} on {host}: {why}")]
    NoPath {
        /// Which.
        rank: u32,
        /// Where it runs.
        host: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// The peer did not answer when a session was to be opened.
    #[error(
        "rank {rank} on {host} did not answer within {seconds} s by {paths}; is traffic between \
         the hosts filtered? `portolan doctor` on both tells more"
    )]
    NoAnswer {
        /// Which.
        rank: u32,
        /// Where it runs.
        host: String,
        /// How long was waited.
        seconds: u64,
        /// Links that were tried.
        paths: String,
    },
    /// What was waited for is behind messages that nobody has received, and the memory for those is
    /// full, or the system has none left for more of them.
    #[error("{}", memory_full(*.held_len, *.limit))]
    UnexpectedMemoryFull {
        /// Bytes that they take.
        held_len: u64,
        /// Bytes that they may take.
        limit: u64,
    },
    /// The message was longer than the buffer; the first bytes are in the buffer.
    #[error(
        "message of {message_len} bytes from rank {source_rank} on port {port} does not fit a buffer \
         of {buffer_len}"
    )]
    Truncated {
        /// Rank of the sender.
        source_rank: u32,
        /// Port.
        port: u16,
        /// Bytes of the message.
        message_len: u64,
        /// Bytes of the buffer.
        buffer_len: usize,
    },
    /// The same for a tagged message.
    #[error(
        "message of {message_len} bytes from rank {source_rank} with tag {tag:#x} does not fit a \
         buffer of {buffer_len}"
    )]
    TruncatedTagged {
        /// Rank of the sender.
        source_rank: u32,
        /// Its tag.
        tag: u64,
        /// Its immediate data.
        imm: Option<u64>,
        /// Bytes of the message.
        message_len: u64,
        /// Bytes of the buffer.
        buffer_len: usize,
    },
    /// Members of a group called different collective operations, or gave different numbers of
    /// bytes. The group cannot be used any more.
    #[error("{0}")]
    CollectiveMismatch(Box<CollectiveMismatch>),
    /// A group has as many collective operations under way as it can have.
    #[error(
        "group {group} has two collective operations under way; end one before the next begins"
    )]
    GroupBusy {
        /// Its number.
        group: u16,
    },
    /// The receiver gave the message up.
    #[error("rank {rank} refused the message: it withdrew the buffer it had matched")]
    Refused {
        /// Receiver.
        rank: u32,
    },
    /// The target did not let the operation happen to its memory.
    #[error("rank {rank} on {host} refused access to its memory: {fault}")]
    RemoteRefused {
        /// Target.
        rank: u32,
        /// Where it runs.
        host: String,
        /// Why.
        fault: RemoteFault,
    },
    /// An atomic operation that cannot be asked for.
    #[error("atomic operation {op:?} on {datatype:?}: {why}")]
    Atomic {
        /// Operation.
        op: AtomicOp,
        /// Kind of number.
        datatype: Datatype,
        /// What is wrong and what would be right.
        why: &'static str,
    },
    /// The port was not opened.
    #[error("port {port} is not open; call `open` before receiving on it")]
    PortClosed {
        /// Port.
        port: u16,
    },
    /// The port is open already.
    #[error("port {port} is open already")]
    PortInUse {
        /// Port.
        port: u16,
    },
    /// A receive at a port whose messages go to a handler.
    #[error(
        "port {port} has a handler, which gets its messages; receive on a port that was opened with \
         `open`"
    )]
    PortHandled {
        /// Port.
        port: u16,
    },
    /// A buffer that others share cannot be received into.
    #[error("a shared buffer cannot be posted for receiving; post a `Vec<u8>`")]
    BufferShared,
    /// Memory that others share cannot be opened for writing.
    #[error(
        "a shared buffer can be registered for reading only; register a `Vec<u8>` or a `Region`"
    )]
    RegionShared,
    /// This process is a child of the one that has joined.
    #[error(
        "this process was forked after its parent had joined the job, and has no part in it; leave \
         the library to the parent, or start the child as a program of its own"
    )]
    Forked,
    /// The request was waited for already, or never was one.
    #[error("this request has been completed already, or never was one")]
    StaleRequest,
    /// The operation was withdrawn.
    #[error("the operation was cancelled")]
    Cancelled,
    /// Bytes that should have been the address of an endpoint.
    #[error("not the address of an endpoint: {why}")]
    BadAddress {
        /// What is wrong, and what to do.
        why: &'static str,
    },
    /// Another region has the key.
    #[error("key {key:#x} is that of another region; choose another, or deregister that one first")]
    KeyInUse {
        /// The key.
        key: u64,
    },
    /// A region that no program can have.
    #[error("a region of {len} bytes is beyond half the address space; register what is used")]
    RegionTooLong {
        /// Bytes.
        len: usize,
    },
    /// An endpoint knows as many peers as it can.
    #[error("an endpoint knows at most 2^20 peers; open another one")]
    TooManyPeers,
    /// A setting has a value that cannot be.
    #[error("setting {name}: `{value}`: {why}")]
    Setting {
        /// Which.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

fn processes(count: u32) -> String {
    match count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

fn members(count: u32) -> String {
    match count {
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    }
}

fn all_ended(others: u32) -> String {
    match others {
        0 => "this process is the only one of its job".to_owned(),
        1 => "the other process of the job has ended".to_owned(),
        others => format!("all {others} other processes of the job have ended"),
    }
}

fn and_others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " and to another".to_owned(),
        count => format!(" and to {count} others"),
    }
}

/// Reads as the sentence does: a program that returns the error from `main` shows it in this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is full, by how much, and what to do.
pub(crate) fn memory_full(held_len: u64, limit: u64) -> String {
    if held_len < limit {
        return format!(
            "{held_len} bytes of messages that no receive was posted for wait, and for more {}; or \
             receive what has come before waiting for what is behind it",
            Lack::memory()
        );
    }
    format!(
        "the memory for messages that no receive was posted for is full: {held_len} bytes of {limit}; \
         receive what has come before waiting for what is behind it, or raise unexpected_memory \
         (PORTOLAN_UNEXPECTED_MEMORY)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_link::LinkKind;
    use std::error::Error as _;

    /// What `fn main() -> Result<(), portolan::Error>` shows a person.
    #[test]
    fn an_error_reads_the_same_from_main() {
        let gone = Error::PeerGone {
            rank: 3,
            host: "node7".into(),
            reason: Reason {
                cause: Cause::ProcessGone,
                report: None,
            },
        };
        let launch = LaunchError::Malformed("column 3".into());
        let link = LinkError::Unreachable {
            kind: LinkKind::Shm,
            peer: 1,
            why: "it is on another host",
        };
        assert_eq!(format!("{launch:?}"), launch.to_string());
        assert_eq!(format!("{link:?}"), link.to_string());
        for error in [gone, launch.into(), link.into(), Error::BufferShared] {
            assert_eq!(format!("{error:?}"), error.to_string());
            assert_eq!(format!("{error:#?}"), error.to_string());
        }
    }

    #[test]
    fn counts_of_one_read_well() {
        let alone = Error::NoSuchRank { rank: 1, size: 1 }.to_string();
        assert!(alone.contains("this job has 1 process,"), "{alone}");
        let group = Error::NoSuchMember { member: 1, size: 1 }.to_string();
        assert!(group.contains("this group has 1 member,"), "{group}");
        let left = |others| Error::NobodyLeft { others }.to_string();
        assert!(left(0).ends_with("the only one of its job"), "{}", left(0));
        assert!(
            left(1).ends_with("the other process of the job has ended"),
            "{}",
            left(1)
        );
    }

    #[test]
    fn no_cause_is_told_twice() {
        let errno = || io::Error::from_raw_os_error(1);
        let link = LinkError::System {
            kind: LinkKind::Packet,
            what: "open".into(),
            errno: errno(),
            remedy: "ask",
        };
        let system = Error::System {
            what: "open",
            errno: errno(),
        };
        let launch = LaunchError::from(errno());
        for error in [Error::from(link), system, Error::from(launch)] {
            assert!(error.to_string().contains("os error 1"), "{error}");
            assert!(error.source().is_none(), "{error:?}");
        }
    }
}
