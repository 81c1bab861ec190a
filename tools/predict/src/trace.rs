// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorded calls of a program's processes, in the order of each process.

/// A run of a program. Process i is rank i of `MPI_COMM_WORLD`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Calls of each process.
    pub processes: Vec<Process>,
}

/// A process's run, from the end of `MPI_Init` to the start of `MPI_Finalize`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Events in the order of their start. All events of one call have the same times.
    pub events: Vec<Event>,
    /// Duration of the run in nanoseconds. Events' times are relative to its start.
    pub end_ns: u64,
}

/// A call of MPI, or a part of its effects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Start of the call.
    pub start_ns: u64,
    /// End of the call.
    pub end_ns: u64,
    /// Effect of the call.
    pub action: Action,
}

/// Properties that a send and its receive share, in addition to the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Matching {
    /// Number that identifies the set of the communicator's processes.
    pub group: u32,
    /// Tag of the message.
    pub tag: i32,
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Sender of the message.
    pub from: usize,
    /// Properties that matched it.
    pub matching: Matching,
}

/// Effect of a call. Without a request the call blocks until completion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Send of a message.
    Send {
        /// Receiver of the message.
        to: usize,
        /// Properties that match it.
        matching: Matching,
        /// Length of the message.
        bytes: u64,
        /// Request that completes with the send.
        request: Option<u32>,
    },
    /// Receive of a message.
    Receive(Received),
    /// Start of a non-blocking receive.
    Post {
        /// Request that completes with the receive.
        request: u32,
    },
    /// Completion of a request by a wait or test.
    Complete {
        /// The completed request.
        request: u32,
        /// Message of a completed receive.
        received: Option<Received>,
    },
    /// Participation in a collective operation.
    Collective {
        /// Data flow of the operation.
        shape: Shape,
        /// Group, as in [`Matching`].
        group: u32,
        /// Number of participating processes.
        members: usize,
        /// Root, if the operation has one.
        root: Option<usize>,
        /// Bytes contributed by this process.
        bytes: u64,
        /// Request that completes with the operation.
        request: Option<u32>,
    },
    /// Write or read of another process's memory. It completes at the next synchronization of that
    /// memory.
    Remote {
        /// Process that owns the memory.
        to: usize,
        /// Bytes written or read.
        bytes: u64,
        /// Set if data or a value is returned.
        returns: bool,
    },
    /// Wait for the completion of the process's own operations on remote memory.
    Flush,
    /// Wait like `Flush`, but for the operations of all participating processes.
    Fence,
    /// Unsuccessful poll, or another call that moves no data.
    Poll,
}

/// Data flow of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// No process continues before all have arrived.
    Barrier,
    /// From the root to all.
    Broadcast,
    /// Combined from all to the root, with the length of one contribution.
    Reduce,
    /// Combined from all to all, with the length of one contribution.
    Allreduce,
    /// A different part from each process to the root.
    Gather,
    /// A different part from the root to each process.
    Scatter,
    /// A part of each process to all.
    Allgather,
    /// A different part from each process to each.
    Alltoall,
    /// Combined from all, with a part of the result to each.
    ReduceScatter,
    /// From each process to the next.
    Scan,
}
