// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors. Each message names the subject, the cause and, if there is one, the remedy.
//!
//! A message is complete: its text already contains the cause, so `source()` returns `None`, and a
//! program that prints the chain of causes prints nothing twice.

use crate::atomic::{AtomicOp, Datatype};
use crate::collective::CollectiveMismatch;
use crate::launch::LaunchError;
use portolan_link::LinkError;
use portolan_proto::{Cause, RemoteFault};
use portolan_sys::shortage::{Explained, Shortage};
use std::fmt;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Reason why a peer was declared dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Cause that this process detected.
    pub cause: Cause,
    /// Evidence for the loss, such as "its host's agent reports: killed by signal 9 (SIGKILL)".
    pub report: Option<String>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.report, self.cause) {
            (Some(report), Cause::PeerOutOfResource(_)) => {
                write!(f, "its process reports: {report}")
            }
            (
                Some(report),
                Cause::ProcessExited | Cause::Silent(_) | Cause::Closed | Cause::Reported,
            ) => f.write_str(report),
            (Some(report), cause) => write!(f, "{cause} ({report})"),
            (None, cause) => cause.fmt(f),
        }
    }
}

/// Reason why an operation or a call failed.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// Failure of the launcher, or of the connection to it.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A link could not be opened, or could not reach a peer.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system refused a request that belongs to no link.
    #[error("{what}: {}", Explained(errno, None))]
    System {
        /// Attempted action.
        what: &'static str,
        /// Error code of the system.
        errno: io::Error,
    },
    /// Rank outside the job.
    #[error("rank {rank} does not exist: this job has {}, numbered from 0", processes(*.size))]
    NoSuchRank {
        /// Requested rank.
        rank: u32,
        /// Processes in the job.
        size: u32,
    },
    /// Member outside the group.
    #[error("member {member} does not exist: this group has {}, numbered from 0", members(*.size))]
    NoSuchMember {
        /// Requested member.
        member: u32,
        /// Members of the group.
        size: u32,
    },
    /// The peer has failed, and so do its operations.
    #[error("rank {rank} on {host} failed: {reason}")]
    PeerGone {
        /// Rank of the peer.
        rank: u32,
        /// Host of the peer.
        host: String,
        /// Reason.
        reason: Reason,
    },
    /// The peer may be alive, and may have missed messages that were sent before this process
    /// closed.
    #[error(
        "rank {rank} on {host}{} may not have received all messages: {reason}",
        and_others(*.others)
    )]
    Undelivered {
        /// Rank of the peer.
        rank: u32,
        /// Host of the peer.
        host: String,
        /// Reason.
        reason: Reason,
        /// Number of further processes that may have missed messages.
        others: usize,
    },
    /// Wait for a message from any source in a job after all other processes have ended.
    #[error("no matching message is pending and none can arrive: {}", all_ended(*.others))]
    NobodyLeft {
        /// Number of the other processes.
        others: u32,
    },
    /// A message to this process itself does not fit beside its unread messages to itself.
    #[error(
        "a message of {len} bytes to this process itself exceeds the limit: {unread} of {limit} bytes \
         hold unread messages to itself; receive some of them first"
    )]
    SelfFull {
        /// Length of the message, in bytes.
        len: usize,
        /// Bytes of unread messages.
        unread: usize,
        /// Limit of unread bytes.
        limit: usize,
    },
    /// This process has run out of a resource that it needs to reach the peer.
    #[error("no connection to rank {rank} on {host}: {what}")]
    OutOfResource {
        /// Rank of the peer.
        rank: u32,
        /// Host of the peer.
        host: String,
        /// Attempted action, the missing resource, the limit, and the remedy.
        what: String,
    },
    /// The system has no memory left for an allocation of a length that the program chose.
    #[error("cannot allocate {what} of {len} bytes: {lack}")]
    NoMemory {
        /// Purpose of the memory.
        what: &'static str,
        /// Requested length, in bytes.
        len: usize,
        /// The limit and the remedy.
        lack: Shortage,
    },
    /// No link reaches the peer.
    #[error("no path to rank {rank} on {host}: {why}")]
    NoPath {
        /// Rank of the peer.
        rank: u32,
        /// Host of the peer.
        host: String,
        /// Cause and remedy.
        why: String,
    },
    /// The peer did not answer the handshake of a new session.
    #[error("rank {rank} on {host} cannot be reached: {why}")]
    NoAnswer {
        /// Rank of the peer.
        rank: u32,
        /// Host of the peer.
        host: String,
        /// Addresses that were tried, the result for each, and the remedy.
        why: String,
    },
    /// The awaited message is behind unread messages, and the memory for those has reached its
    /// limit, or the system has no more of it.
    #[error("{}", memory_full(*.held_len, *.limit))]
    UnexpectedMemoryFull {
        /// Bytes of the unread messages.
        held_len: u64,
        /// Limit of these bytes.
        limit: u64,
    },
    /// The message was longer than the buffer, which holds its first bytes.
    #[error(
        "message of {message_len} bytes from rank {source_rank} on port {port} does not fit the \
         buffer of {buffer_len} bytes"
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
    /// A tagged message was longer than the buffer, which holds its first bytes.
    #[error(
        "message of {message_len} bytes from rank {source_rank} with tag {tag:#x} does not fit the \
         buffer of {buffer_len} bytes"
    )]
    TruncatedTagged {
        /// Rank of the sender.
        source_rank: u32,
        /// Tag of the message.
        tag: u64,
        /// Its immediate data.
        imm: Option<u64>,
        /// Bytes of the message.
        message_len: u64,
        /// Bytes of the buffer.
        buffer_len: usize,
    },
    /// Members of a group called different collective operations, or passed different numbers of
    /// bytes. The group can no longer be used.
    #[error("{0}")]
    CollectiveMismatch(Box<CollectiveMismatch>),
    /// A group has two or more pending collective operations, so that a blocking one cannot begin.
    #[error(
        "group {group} has two or more pending collective operations; complete them before you start \
         a blocking one"
    )]
    GroupBusy {
        /// Number of the group.
        group: u16,
    },
    /// The receiver cancelled the matching receive.
    #[error("rank {rank} refused the message: it cancelled the matching receive")]
    Refused {
        /// Receiver.
        rank: u32,
    },
    /// The target refused the operation on its memory.
    #[error("rank {rank} on {host} refused access to its memory: {fault}")]
    RemoteRefused {
        /// Target.
        rank: u32,
        /// Host of the target.
        host: String,
        /// Reason.
        fault: RemoteFault,
    },
    /// The memory of the operation is unmapped, or its pages forbid the access.
    #[error(
        "the memory of a {operation} cannot be {access}: it is unmapped or protected; keep it mapped \
         until the operation has completed"
    )]
    Fault {
        /// Kind of the operation.
        operation: &'static str,
        /// Access that failed: "read" or "written".
        access: &'static str,
    },
    /// The peer cannot access the memory of its side of the operation.
    #[error("rank {rank} on {host} cannot {access} the memory of its {operation}")]
    PeerFault {
        /// Owner of the memory.
        rank: u32,
        /// Host of the owner.
        host: String,
        /// Kind of the owner's operation.
        operation: &'static str,
        /// Access that failed: "read" or "write".
        access: &'static str,
    },
    /// Invalid atomic operation.
    #[error("atomic operation {op:?} on {datatype:?}: {why}")]
    Atomic {
        /// Operation.
        op: AtomicOp,
        /// Kind of number.
        datatype: Datatype,
        /// The error and a valid alternative.
        why: &'static str,
    },
    /// The port was not opened.
    #[error("port {port} is not open; call `open` before receiving on it")]
    PortClosed {
        /// Port.
        port: u16,
    },
    /// The port is open already.
    #[error("port {port} is already open; choose another port")]
    PortInUse {
        /// Port.
        port: u16,
    },
    /// Receive at a port that passes its messages to a handler.
    #[error(
        "port {port} has a handler, which gets its messages; receive on a port that was opened with \
         `open`"
    )]
    PortHandled {
        /// Port.
        port: u16,
    },
    /// A shared buffer cannot be received into.
    #[error("a shared buffer cannot be posted for receiving; post a `Vec<u8>`")]
    BufferShared,
    /// A message is not a whole number of elements of the type that the program expects.
    #[error(
        "{len} bytes are not a whole number of elements of {element_len} bytes; receive bytes, or send the same type"
    )]
    PartialElement {
        /// Length of the message.
        len: usize,
        /// Length of an element.
        element_len: usize,
    },
    /// Shared memory cannot be registered for writing.
    #[error(
        "a shared buffer can be registered for reading only; register a `Vec<u8>` or a `Region`"
    )]
    RegionShared,
    /// This process is a forked child of the process that joined.
    #[error(
        "this process was forked after its parent joined the job, and is not a member; use the \
         library in the parent only, or start the child as a program of its own"
    )]
    Forked,
    /// A call had no reply before its timeout.
    #[error("rank {rank} has not replied within {timeout:?}")]
    TimedOut {
        /// Rank of the callee.
        rank: u32,
        /// The timeout.
        timeout: Duration,
    },
    /// The request was completed before, or never existed.
    #[error("this request has already completed, or never existed")]
    StaleRequest,
    /// The operation was cancelled.
    #[error("the operation was cancelled")]
    Cancelled,
    /// Bytes that are not a valid address of an endpoint.
    #[error("not the address of an endpoint: {why}")]
    BadAddress {
        /// Cause and remedy.
        why: &'static str,
    },
    /// Another region has the same key.
    #[error(
        "key {key:#x} belongs to another region; choose another key, or deregister that region first"
    )]
    KeyInUse {
        /// The key.
        key: u64,
    },
    /// Region longer than any program can have.
    #[error(
        "a region of {len} bytes exceeds half the address space; register only the memory in use"
    )]
    RegionTooLong {
        /// Bytes.
        len: usize,
    },
    /// An endpoint has the maximum number of peers.
    #[error("an endpoint has at most 2^20 peers; open another endpoint")]
    TooManyPeers,
    /// No process that listens there has answered in time.
    #[error("no server at {address} within {timeout:?}: {why}; start it, or check the address")]
    NoServer {
        /// Address as the program gave it.
        address: String,
        /// The timeout.
        timeout: Duration,
        /// Result of the last attempt.
        why: String,
    },
    /// The process that listens there refuses this one.
    #[error("the server at {address} refuses this process: {why}")]
    ServerRefused {
        /// Address as the program gave it.
        address: String,
        /// Set if the secrets differ.
        is_wrong_secret: bool,
        /// Cause and remedy.
        why: &'static str,
    },
    /// An address to listen at or to connect to cannot be used.
    #[error("address {address}: {why}; write HOST:PORT, with a host and a port that are free")]
    Address {
        /// Address as the program gave it.
        address: String,
        /// Cause.
        why: String,
    },
    /// The process is in a job, and its peers are the other processes of the job.
    #[error(
        "this process is in a job and cannot listen or connect; create it with `Node::standalone`"
    )]
    NotStandalone,
    /// A setting has an invalid value.
    #[error("setting {name}: `{value}`: {why}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The error and a valid alternative.
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
        1 => " and 1 other".to_owned(),
        count => format!(" and {count} others"),
    }
}

/// Formats like `Display`, because a program that returns the error from `main` prints this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the error text for full memory of unexpected messages, with the amount and the remedy.
pub(crate) fn memory_full(held_len: u64, limit: u64) -> String {
    if held_len < limit {
        return format!(
            "cannot hold more than {held_len} bytes of unread messages: {}; or receive them before you \
             wait for a later message",
            Shortage::memory()
        );
    }
    format!(
        "the memory for unexpected messages is full: {held_len} bytes of {limit}; receive them \
         before you wait for a later message, or raise unexpected_memory \
         (PORTOLAN_UNEXPECTED_MEMORY)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_link::LinkKind;
    use std::error::Error as _;

    /// `fn main() -> Result<(), portolan::Error>` prints the sentence.
    #[test]
    fn debug_equals_display() {
        let gone = Error::PeerGone {
            rank: 3,
            host: "node7".into(),
            reason: Reason {
                cause: Cause::ProcessExited,
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
    fn singular_counts_are_worded() {
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
    fn cause_appears_once() {
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
