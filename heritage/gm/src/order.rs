// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of a send's end and the messages that answer it: the end comes first.
//!
//! Programs free what they keep about a send when its answer comes. The receiver acknowledges before it
//! answers, but the node may use the memory of a long send for a moment after that. Messages of that
//! receiver are held back until the node is done.

use crate::arrive::node_id;
use crate::event::gm_recv_event;

/// A message, and the sends that were accepted before it came.
pub(crate) struct Arrived {
    pub(crate) event: gm_recv_event,
    /// See [`Unfinished::mark`].
    after: u64,
}

impl Arrived {
    pub(crate) fn new(event: gm_recv_event, after: u64) -> Arrived {
        Arrived { event, after }
    }
}

/// Accepted sends of all ports of which the program is told when the node is done with their memory.
pub(crate) struct Unfinished {
    /// Numbers, and the ranks of receivers.
    sends: Vec<(u64, u32)>,
    next: u64,
}

impl Unfinished {
    pub(crate) const fn new() -> Unfinished {
        Unfinished {
            sends: Vec::new(),
            next: 0,
        }
    }

    /// Notes a send to `rank` that has been accepted, and returns its number.
    pub(crate) fn begin(&mut self, rank: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        self.sends.push((number, rank));
        number
    }

    /// Forgets a send: the node is done with its memory.
    pub(crate) fn finish(&mut self, number: u64) {
        self.sends.retain(|send| send.0 != number);
    }

    /// The number that is above those of all sends until now.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.next
    }

    /// Returns true if the sender of a message has accepted a send before it that is unfinished.
    #[inline]
    pub(crate) fn holds(&self, arrived: &Arrived) -> bool {
        !self.sends.is_empty() && self.holds_back(arrived)
    }

    #[cold]
    fn holds_back(&self, arrived: &Arrived) -> bool {
        // SAFETY: any bits are numbers.
        let node = u16::from_be(unsafe { arrived.event.recv }.sender_node_id);
        let mut before = self.sends.iter().filter(|send| send.0 < arrived.after);
        before.any(|send| node_id(send.1) == node)
    }
}
