// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue of future events in the order of virtual time, and of creation for equal times.

use crate::stream::StreamEvent;
use portolan_proto::LinkId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Frame between two processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) link: LinkId,
    pub(crate) frame: Vec<u8>,
    /// Set if a switch has marked it because of a long queue.
    pub(crate) marked: bool,
}

/// Future event.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// A frame reaches a process's socket.
    Arrive(Flight),
    /// A frame reaches the switch at the end of this leg of its path.
    Switch {
        leg: usize,
        flight: Flight,
    },
    Stream {
        id: usize,
        what: StreamEvent,
    },
    /// A process has work: a timer, shared memory, its program.
    Wake {
        node: u32,
    },
    FaultBegins {
        index: usize,
    },
    FaultEnds {
        index: usize,
    },
    /// The system notifies `node` that the process `exited` (in its incarnation `life`) has exited.
    Exited {
        node: u32,
        exited: u32,
        life: u32,
    },
    /// Check whether everything has completed.
    Check,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    made: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at_ns: u64, what: Happening) {
        self.made += 1;
        self.heap.push(Reverse((at_ns, self.made, what)));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Happening)> {
        let Reverse((at_ns, _, what)) = self.heap.pop()?;
        Some((at_ns, what))
    }
}
