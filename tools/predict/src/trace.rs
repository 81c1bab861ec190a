// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes of a program did, in the order in which each did it.

/// A program's run. Process i is rank i of `MPI_COMM_WORLD`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Calls of each process.
    pub processes: Vec<Process>,
}

/// A process's run, from the end of `MPI_Init` to the beginning of `MPI_Finalize`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// In the order of their beginnings. What one call did has the same times in all of its events.
    pub events: Vec<Event>,
    /// How long the process ran, in nanoseconds; events' times are counted from its beginning.
    pub end_ns: u64,
}

/// A call of MPI, or a part of what it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When the call began.
    pub start_ns: u64,
    /// When it returned.
    pub end_ns: u64,
    /// What it did.
    pub action: Action,
}

/// What a send and its receive have in common, beside the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Matching {
    /// The communicator's processes: a number that only the same ones have.
    pub group: u32,
    /// The message's tag.
    pub tag: i32,
}

/// A message that has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The process that sent it.
    pub from: usize,
    /// Whereby it was matched.
    pub matching: Matching,
}

/// What a call did. Without a request it blocked until that was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Sent a message.
    Send {
        /// The receiver.
        to: usize,
        /// Whereby it is matched.
        matching: Matching,
        /// Its length.
        bytes: u64,
        /// What it completes by.
        request: Option<u32>,
    },
    /// Received a message.
    Receive(Received),
    /// Began to receive.
    Post {
        /// What it completes by.
        request: u32,
    },
    /// Waited for a request, or found it completed.
    Complete {
        /// Which one.
        request: u32,
        /// What a receive brought.
        received: Option<Received>,
    },
    /// Took part in a collective operation.
    Collective {
        /// Which way data went.
        shape: Shape,
        /// As in [`Matching`].
        group: u32,
        /// Processes that take part.
        members: usize,
        /// The root, if the operation has one.
        root: Option<usize>,
        /// What this process gave.
        bytes: u64,
        /// What it completes by.
        request: Option<u32>,
    },
    /// Wrote or read another process's memory; done when memory is next synchronized.
    Remote {
        /// Whose memory.
        to: usize,
        /// How much.
        bytes: u64,
        /// Whether data, or a value, came back.
        returns: bool,
    },
    /// Waited until its operations on others' memory were done.
    Flush,
    /// The same, and for all other processes that did it with this one.
    Fence,
    /// Looked whether something had come, in vain; or anything else that moves no data.
    Look,
}

/// How a collective operation moves its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nobody goes on before all have come.
    Barrier,
    /// From the root to all.
    Broadcast,
    /// From all to the root, the length of one.
    Reduce,
    /// From all to all, the length of one.
    Allreduce,
    /// A different part from all to the root.
    Gather,
    /// A different part from the root to each.
    Scatter,
    /// A part of each to all.
    Allgather,
    /// A different part from each to each.
    Alltoall,
    /// Reduced, and a part of the result to each.
    ReduceScatter,
    /// From each to the one behind it.
    Scan,
}
