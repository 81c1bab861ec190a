// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory between processes of one host: per ordered pair a ring of bounded bytes.

use crate::queue::{Happening, Queue};
use crate::trace::Trace;
use portolan_proto::LinkId;
use std::collections::{BTreeMap, VecDeque};

/// A frame becomes visible this late: one cache line between two cores, measured at 65 ns, and
/// the receiver's turn.
const VISIBLE_NS: u64 = 150;

/// Word in front of each entry.
const ENTRY_LEN: usize = 8;

/// The system tells of the end of a process that shared memory within this time.
const HANGUP_NS: u64 = 20_000;

#[derive(Debug)]
enum Entry {
    Frame(Vec<u8>),
    /// The writer's process has ended: nothing that it committed comes behind this.
    End,
}

/// What a process finds in its rings.
#[derive(Debug)]
pub(crate) enum Received {
    /// A frame and its sender.
    Frame(u32, Vec<u8>),
    /// All that this process had committed has been received: it has ended. `P8.8`
    End(u32),
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<(u64, Entry)>,
    used_len: usize,
    /// The sender was refused and waits for room.
    starved: bool,
    /// Lives of the reader that have ended, and of which the writer has not been told: the ring
    /// that it writes to is the first one's, and nobody reads it.
    ended_readers: u32,
}

impl Ring {
    fn clear(&mut self) {
        self.entries.clear();
        (self.used_len, self.starved) = (0, false);
    }
}

/// All rings of the cluster, by reader and writer.
#[derive(Debug)]
pub(crate) struct Shm {
    rings: BTreeMap<(u32, u32), Ring>,
    ring_len: usize,
}

impl Shm {
    pub(crate) fn new(ring_len: usize) -> Self {
        Shm {
            rings: BTreeMap::new(),
            ring_len,
        }
    }

    /// Puts a frame into the ring from `from` to `to`, if there is room.
    pub(crate) fn send(
        &mut self,
        (queue, trace): (&mut Queue, &mut Trace),
        now: u64,
        (from, to): (u32, u32),
        frame: Vec<u8>,
    ) -> bool {
        let ring = self.rings.entry((to, from)).or_default();
        let need = frame.len() + ENTRY_LEN;
        // An entry that is longer than half of the ring passes when the ring is empty.
        if ring.used_len > 0 && ring.used_len + need > self.ring_len {
            ring.starved = true;
            return false;
        }
        trace.push_frame(now, (from, to), LinkId::SHM, &frame);
        if ring.ended_readers > 0 {
            return true;
        }
        ring.used_len += need;
        let at = now + VISIBLE_NS;
        ring.entries.push_back((at, Entry::Frame(frame)));
        queue.push(at, Happening::Wake { node: to });
        true
    }

    /// What comes next for `to`. Wakes a sender that waits for room.
    pub(crate) fn receive(&mut self, queue: &mut Queue, now: u64, to: u32) -> Option<Received> {
        let mut mine = self.rings.range_mut((to, 0)..=(to, u32::MAX));
        let is_due = |ring: &Ring| ring.entries.front().is_some_and(|(at, _)| *at <= now);
        let (&(_, from), ring) = mine.find(|(_, ring)| is_due(ring))?;
        match ring.entries.pop_front()?.1 {
            Entry::Frame(frame) => {
                ring.used_len -= frame.len() + ENTRY_LEN;
                if ring.starved && ring.used_len * 2 <= self.ring_len {
                    ring.starved = false;
                    queue.push(now + VISIBLE_NS, Happening::Wake { node: from });
                }
                Some(Received::Frame(from, frame))
            }
            Entry::End => {
                // What is sent from now on goes to the next life, if there is one.
                let outbound = self.rings.entry((from, to)).or_default();
                outbound.ended_readers = outbound.ended_readers.saturating_sub(1);
                Some(Received::End(from))
            }
        }
    }

    /// The process `gone` has ended: nobody reads its ring from `other` any more. `other`, if it
    /// lives, goes on reading what `gone` has committed, and finds its end behind that.
    pub(crate) fn end(
        &mut self,
        queue: &mut Queue,
        now: u64,
        (gone, other): (u32, u32),
        other_lives: bool,
    ) {
        let inbound = self.rings.entry((gone, other)).or_default();
        inbound.clear();
        inbound.ended_readers = if other_lives {
            inbound.ended_readers + 1
        } else {
            0
        };
        // A new life of either will have a ring of its own.
        let outbound = self.rings.entry((other, gone)).or_default();
        (outbound.starved, outbound.ended_readers) = (false, 0);
        if other_lives {
            let at = now + HANGUP_NS;
            outbound.entries.push_back((at, Entry::End));
            queue.push(at, Happening::Wake { node: other });
        }
    }

    /// Loses what `to` has yet to receive from `from`.
    pub(crate) fn lose(&mut self, from: u32, to: u32) {
        self.rings.entry((to, from)).or_default().clear();
    }

    /// Lives of the reader `to` that have ended, and of which `from` has not been told yet.
    pub(crate) fn ended_readers(&self, from: u32, to: u32) -> u32 {
        let ring = self.rings.get(&(to, from));
        ring.map_or(0, |ring| ring.ended_readers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rings.values().all(|ring| ring.entries.is_empty())
    }
}
