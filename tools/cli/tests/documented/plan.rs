// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: the steps of each process of a job, and the possible results of a step.
//!
//! A program is data: it is drawn, predicted, sent to processes, shrunk and printed.

use crate::common::payload::{mix, payload};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Paths between the processes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Path {
    Shm,
    Udp,
    /// UDP, with every frame sealed.
    Aead,
    /// Two hosts of a lab, with raw Ethernet for short messages.
    Packet,
    /// Two hosts of a lab, with the best available path.
    Auto,
}

impl Path {
    pub(crate) const ALL: [Path; 5] = [Path::Shm, Path::Udp, Path::Aead, Path::Packet, Path::Auto];
}

/// A job: the steps of its processes, by rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) path: Path,
    pub(crate) processes: Vec<Vec<Step>>,
}

/// A message with a unique id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: u32,
    pub(crate) len: usize,
}

/// Destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Goal {
    pub(crate) rank: u32,
    pub(crate) place: Place,
    pub(crate) high: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    Port(u16),
    Tag { tag: u64, imm: Option<u64> },
}

/// Messages that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) source: Option<u32>,
    pub(crate) pick: Pick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pick {
    Port(u16),
    Tag { tag: u64, ignore: u64 },
}

impl Pick {
    /// Returns true if it accepts messages sent to `place`.
    pub(crate) fn takes(self, place: Place) -> bool {
        match (self, place) {
            (Pick::Port(own), Place::Port(port)) => own == port,
            (Pick::Tag { tag: own, ignore }, Place::Tag { tag, .. }) => (own ^ tag) & !ignore == 0,
            _ => false,
        }
    }
}

/// Variant of a blocking send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Plain,
    /// Sent in three pieces. Tagged messages are sent like `Plain`.
    Gathered,
    /// Sent by the call that copies and needs no wait.
    Copied,
}

/// Some ranks under a group id; 0 is the whole job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    pub(crate) id: u16,
    pub(crate) ranks: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reducer {
    Sum,
    Product,
    Min,
    Max,
}

/// An operation on the memory of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Remote {
    Put(Message),
    Get(usize),
    Add(u64),
    /// Adds, and returns the previous value.
    FetchAdd(u64),
}

impl Remote {
    /// Returns the number of bytes of the region that it accesses.
    pub(crate) fn len(self) -> usize {
        match self {
            Remote::Put(message) => message.len,
            Remote::Get(len) => len,
            Remote::Add(_) | Remote::FetchAdd(_) => 8,
        }
    }
}

/// One call, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    Open(u16),
    /// Opens a port with a handler: in place, or with this number of buffers of this length.
    OpenActive {
        port: u16,
        buffers: Option<(usize, usize)>,
    },
    Send {
        to: Goal,
        message: Message,
        how: How,
    },
    /// Starts a non-blocking send.
    Start {
        slot: u32,
        to: Goal,
        message: Message,
    },
    Recv {
        which: Wanted,
        buffer: usize,
    },
    Post {
        slot: u32,
        which: Wanted,
        buffer: usize,
    },
    /// Posts memory that is shared with other processes.
    PostShared(u16),
    Wait(u32),
    /// Tests until the request has completed.
    Test(u32),
    Cancel(u32),
    /// Probes until a message is there.
    Peek(Wanted),
    /// Probes once for a message that is never sent.
    PeekNothing(Wanted),
    /// Claims until a message is there, and starts to receive it.
    Claim {
        slot: u32,
        which: Wanted,
        buffer: usize,
    },
    /// Waits until the handler of a port has received this number of messages.
    Handled {
        port: u16,
        count: usize,
    },
    Barrier(Members),
    Broadcast {
        group: Members,
        root: u32,
        message: Message,
    },
    /// Reduces to a root, or to all.
    Reduce {
        group: Members,
        root: Option<u32>,
        op: Reducer,
        len: usize,
    },
    /// Creates a group; only its error is of interest.
    Group(Members),
    Register {
        region: u32,
        len: usize,
        read: bool,
        write: bool,
    },
    /// Registers shared memory for writing.
    RegisterShared,
    /// Sends the key of a region, as a message of 8 bytes.
    GiveKey {
        to: Goal,
        region: u32,
    },
    TakeKey {
        which: Wanted,
        region: u32,
    },
    /// Accesses a region by its received key, and waits.
    Access {
        rank: u32,
        region: u32,
        offset: u64,
        what: Remote,
        high: bool,
    },
    /// Starts an access without waiting.
    StartAccess {
        slot: u32,
        rank: u32,
        region: u32,
        offset: u64,
        what: Remote,
        high: bool,
    },
    /// Accesses memory by a key that no rank has sent.
    Trespass(u32),
    /// Reads the bytes of an own region.
    Look(u32),
    /// Closes an own region, and reads its bytes.
    Deregister(u32),
    /// Posts this number of receives at a port for best-effort messages.
    ExpectBursts {
        port: u16,
        count: usize,
    },
    /// Sends them, with ids that start at the message's.
    Burst {
        to: u32,
        port: u16,
        first: Message,
        count: usize,
    },
    /// Takes the messages that arrived, and cancels the other receives.
    TakeBursts(u16),
    Flush,
    Progress,
    SleepUs(u64),
    /// Leaves the job; the last step.
    Close,
    /// Ends the own process by SIGKILL; the last step.
    Kill,
}

/// Result of a call, as far as the documentation specifies it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done,
    /// A send has completed.
    Sent {
        len: usize,
        to: u32,
    },
    /// A message was received; `bytes` is a sum of the whole buffer.
    Got {
        len: usize,
        source: u32,
        label: Option<(u64, Option<u64>)>,
        bytes: u64,
    },
    /// A message was too long for a blocking receive; the buffer has its first bytes.
    Cut {
        fault: Fault,
        bytes: u64,
    },
    Seen {
        len: usize,
        source: u32,
        label: (u64, Option<u64>),
    },
    Nothing,
    Withdrawn(bool),
    /// Sum of numbers or memory.
    Bytes(u64),
    /// Messages of a handler: (source, length of the message, sum of the bytes).
    Handled(Vec<(u32, u64, u64)>),
    /// Sums of the received best-effort messages, and the number of lost or dropped ones that the
    /// process has counted so far, from all senders and for all ports.
    Bursts {
        got: Vec<u64>,
        counted: u64,
    },
    Fault(Fault),
    /// The call that should have started the request failed.
    NoRequest,
}

/// An error, by the objects that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    NoSuchRank {
        rank: u32,
        size: u32,
    },
    NoSuchMember {
        member: u32,
        size: u32,
    },
    NobodyLeft {
        others: u32,
    },
    PeerGone {
        rank: u32,
    },
    PortClosed(u16),
    PortInUse(u16),
    PortHandled(u16),
    Truncated {
        port: u16,
        message_len: u64,
        buffer_len: usize,
    },
    TruncatedTagged {
        source: u32,
        tag: u64,
        message_len: u64,
        buffer_len: usize,
    },
    BufferShared,
    RegionShared,
    StaleRequest,
    Cancelled,
    Setting(String),
    RemoteRefused {
        rank: u32,
        why: String,
    },
    /// Any other error, as displayed to users.
    Other(String),
}

impl Step {
    pub(crate) fn send(to: Goal, message: Message, how: How) -> Step {
        Step::Send { to, message, how }
    }

    pub(crate) fn start(slot: u32, to: Goal, message: Message) -> Step {
        Step::Start { slot, to, message }
    }

    pub(crate) fn recv(which: Wanted, buffer: usize) -> Step {
        Step::Recv { which, buffer }
    }

    pub(crate) fn post(slot: u32, which: Wanted, buffer: usize) -> Step {
        Step::Post {
            slot,
            which,
            buffer,
        }
    }

    /// Returns true if the step waits for the request in `slot`.
    pub(crate) fn waits_for(&self, slot: u32) -> bool {
        matches!(self, Step::Wait(own) | Step::Test(own) if *own == slot)
    }
}

impl Goal {
    pub(crate) fn new(rank: u32, place: Place, high: bool) -> Goal {
        Goal { rank, place, high }
    }

    pub(crate) fn port(rank: u32, port: u16, high: bool) -> Goal {
        Goal::new(rank, Place::Port(port), high)
    }
}

impl Wanted {
    pub(crate) fn from(source: u32, pick: Pick) -> Wanted {
        let source = Some(source);
        Wanted { source, pick }
    }

    pub(crate) fn from_port(source: u32, port: u16) -> Wanted {
        Wanted::from(source, Pick::Port(port))
    }

    pub(crate) fn from_anybody(pick: Pick) -> Wanted {
        Wanted { source: None, pick }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} processes by {:?}", self.processes.len(), self.path)?;
        for (rank, steps) in self.processes.iter().enumerate() {
            writeln!(f, "  rank {rank}:")?;
            for (index, step) in steps.iter().enumerate() {
                writeln!(f, "    {index:3}  {step:?}")?;
            }
        }
        Ok(())
    }
}

impl Message {
    pub(crate) fn bytes(self) -> Vec<u8> {
        payload(0, 0, self.id, self.len)
    }
}

/// Contents of a buffer before it is received into.
pub(crate) const UNTOUCHED: u8 = 0xa5;

/// Returns a sum of bytes that depends on every byte and its position.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(bytes.len() as u64, |sum, word| {
        mix(sum ^ word).wrapping_add(word)
    })
}

/// Returns the sum of a buffer of `len` bytes into which `message` was received.
pub(crate) fn sum_received(message: Message, len: usize) -> u64 {
    let mut buffer = vec![UNTOUCHED; len];
    let bytes = message.bytes();
    let fits = bytes.len().min(len);
    buffer[..fits].copy_from_slice(&bytes[..fits]);
    sum(&buffer)
}

/// Returns the values that member `rank` passes to a reduction.
pub(crate) fn values(rank: u32, len: usize) -> Vec<u64> {
    let values = 0..len as u64;
    values
        .map(|index| mix(index ^ u64::from(rank) << 32))
        .collect()
}

/// Returns the sum of numbers.
pub(crate) fn sum_values(values: &[u64]) -> u64 {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    sum(&bytes)
}

/// Names of the steps.
pub(crate) const STEPS: &[&str] = &[
    "Open(",
    "OpenActive",
    "Send {",
    "Start {",
    "Recv {",
    "Post {",
    "PostShared",
    "Wait(",
    "Test(",
    "Cancel(",
    "Peek(",
    "PeekNothing",
    "Claim {",
    "Handled {",
    "Barrier",
    "Broadcast",
    "Reduce",
    "Group(",
    "Register {",
    "RegisterShared",
    "GiveKey",
    "TakeKey",
    "Access {",
    "StartAccess",
    "Trespass",
    "Look(",
    "Deregister(",
    "ExpectBursts",
    "Burst {",
    "TakeBursts",
    "Flush",
    "Progress",
    "SleepUs",
    "Close",
    "Kill",
];
