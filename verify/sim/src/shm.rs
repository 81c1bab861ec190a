// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory between processes of one host: one ring of bounded length per ordered pair.

use crate::queue::{Happening, Queue};
use crate::trace::Trace;
use portolan_proto::LinkId;
use std::collections::{BTreeMap, VecDeque};

/// Delay until a frame is visible: one cache line between two cores, measured at 65 ns, and the
/// receiver's turn.
const VISIBLE_NS: u64 = 150;

/// Length in bytes of the word before each entry.
const ENTRY_LEN: usize = 8;

/// Time within which the system reports the exit of a process that shared memory.
const HANGUP_NS: u64 = 20_000;

#[derive(Debug)]
enum Entry {
    Frame(Vec<u8>),
    /// The writer's process has ended: nothing that it committed follows.
    End,
}

/// Entry that a process receives from its rings.
#[derive(Debug)]
pub(crate) enum Received {
    /// Frame and its sender.
    Frame(u32, Vec<u8>),
    /// End of this process; everything it had committed was received. `P8.8`
    End(u32),
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<(u64, Entry)>,
    used_len: usize,
    /// Set if the sender was refused and waits for room.
    starved: bool,
    /// Ended incarnations of the reader that were not reported to the writer yet. The writer still
    /// uses the ring of the first one, which no process reads.
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

    /// Returns the next entry for `to`, and wakes a sender that waits for room.
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
                // Frames sent from now on go to the next incarnation, if there is one.
                let outbound = self.rings.entry((from, to)).or_default();
                outbound.ended_readers = outbound.ended_readers.saturating_sub(1);
                Some(Received::End(from))
            }
        }
    }

    /// Handles the exit of process `gone`: no process reads its ring from `other`. If `other` is
    /// alive, it still reads what `gone` has committed, followed by the end.
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
        // A new incarnation of either will have a ring of its own.
        let outbound = self.rings.entry((other, gone)).or_default();
        (outbound.starved, outbound.ended_readers) = (false, 0);
        if other_lives {
            let at = now + HANGUP_NS;
            outbound.entries.push_back((at, Entry::End));
            queue.push(at, Happening::Wake { node: other });
        }
    }

    /// Discards what `to` has not received from `from` yet.
    pub(crate) fn lose(&mut self, from: u32, to: u32) {
        self.rings.entry((to, from)).or_default().clear();
    }

    /// Returns the number of ended incarnations of the reader `to` not yet reported to `from`.
    pub(crate) fn ended_readers(&self, from: u32, to: u32) -> u32 {
        let ring = self.rings.get(&(to, from));
        ring.map_or(0, |ring| ring.ended_readers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rings.values().all(|ring| ring.entries.is_empty())
    }
}
