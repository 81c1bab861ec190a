// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order of a send's end and of messages that reply to it: the end comes first.
//!
//! Programs free the state of a send when its reply arrives. The receiver acknowledges before it
//! replies, but the node may use the memory of a long send for a moment after that. Messages of
//! that receiver are withheld until the node no longer uses the memory.

use crate::arrive::node_id;
use crate::event::gm_recv_event;

/// A message, and the position of its arrival among the accepted sends.
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

/// Accepted sends of all ports whose memory the node still uses. The program is notified of their
/// end afterwards.
pub(crate) struct Unfinished {
    /// Numbers of the sends, and the ranks of their receivers.
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

    /// Adds an accepted send to `rank`, and returns its number.
    pub(crate) fn begin(&mut self, rank: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        self.sends.push((number, rank));
        number
    }

    /// Removes a send whose memory the node no longer uses.
    pub(crate) fn finish(&mut self, number: u64) {
        self.sends.retain(|send| send.0 != number);
    }

    /// Returns a number above those of all sends until now.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.next
    }

    /// Returns whether an accepted send to the sender of a message, from before that message, is
    /// unfinished.
    #[inline]
    pub(crate) fn holds(&self, arrived: &Arrived) -> bool {
        !self.sends.is_empty() && self.holds_back(arrived)
    }

    #[cold]
    fn holds_back(&self, arrived: &Arrived) -> bool {
        // SAFETY: every bit pattern is valid for these integers.
        let node = u16::from_be(unsafe { arrived.event.recv }.sender_node_id);
        let mut before = self.sends.iter().filter(|send| send.0 < arrived.after);
        before.any(|send| node_id(send.1) == node)
    }
}
