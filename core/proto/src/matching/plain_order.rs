// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery order of the messages of the plain space (`P11.10`).
//!
//! A message that arrives in parts or by a transfer can be complete after messages that were
//! matched later. The later messages wait here until it has been delivered.
//!
//! Invariant: the first message of each queue is incomplete.

use crate::{Event, OpId, PeerId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use portolan_wire::{LaneId, MatchBits, Space};

/// Matched messages of one peer and lane, oldest first.
#[derive(Debug, Default)]
struct Queue {
    /// Number of the first message of `messages`.
    first: u64,
    /// The event that delivers a complete message; `None` while the message is incomplete.
    messages: VecDeque<Option<Event>>,
    /// Numbers of the incomplete messages. A search of `messages` would take time for each complete
    /// one.
    incomplete: BTreeMap<OpId, u64>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct PlainOrder {
    queues: BTreeMap<(PeerId, LaneId), Queue>,
}

impl PlainOrder {
    /// Returns whether a complete message must wait for an earlier one.
    #[inline]
    pub(crate) fn must_wait(&self, from: (PeerId, LaneId), match_bits: &MatchBits) -> bool {
        !self.queues.is_empty()
            && match_bits.space == Space::Plain
            && self.queues.contains_key(&from)
    }

    /// Appends a message that was matched with the receive `op` and will be delivered later.
    pub(crate) fn begin(&mut self, from: (PeerId, LaneId), match_bits: &MatchBits, op: OpId) {
        if match_bits.space == Space::Plain {
            self.queues.entry(from).or_default().begin(op);
        }
    }

    /// Completes the message of the receive `op`, which `event` delivers; appends it if it never
    /// was incomplete. The caller then emits what [`PlainOrder::pop_complete`] returns.
    pub(crate) fn complete(&mut self, from: (PeerId, LaneId), op: OpId, event: Event) {
        self.queues.entry(from).or_default().complete(op, event);
    }

    /// Removes the first message if it is complete; returns the event that delivers it.
    pub(crate) fn pop_complete(&mut self, from: (PeerId, LaneId)) -> Option<Event> {
        let queue = self.queues.get_mut(&from)?;
        let event = queue.pop_complete();
        if queue.messages.is_empty() {
            self.queues.remove(&from);
        }
        event
    }

    /// Removes all messages of a failed peer; returns the events that deliver the complete ones.
    pub(crate) fn abandon(&mut self, peer: PeerId) -> Vec<Event> {
        let queues = LaneId::ALL.map(|lane| self.queues.remove(&(peer, lane)));
        let messages = queues
            .into_iter()
            .flatten()
            .flat_map(|queue| queue.messages);
        messages.flatten().collect()
    }
}

impl Queue {
    fn begin(&mut self, op: OpId) {
        self.incomplete
            .insert(op, self.first + self.messages.len() as u64);
        self.messages.push_back(None);
    }

    fn complete(&mut self, op: OpId, event: Event) {
        let number = self.incomplete.remove(&op);
        let index = number.and_then(|number| usize::try_from(number - self.first).ok());
        match index.and_then(|index| self.messages.get_mut(index)) {
            Some(message) => *message = Some(event),
            None => self.messages.push_back(Some(event)),
        }
    }

    fn pop_complete(&mut self) -> Option<Event> {
        let event = self.messages.front_mut()?.take()?;
        self.messages.pop_front();
        self.first += 1;
        Some(event)
    }
}
