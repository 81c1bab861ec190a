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

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<(u64, Vec<u8>)>,
    used_len: usize,
    /// The sender was refused and waits for room.
    starved: bool,
}

/// All rings of the cluster.
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
        ring.used_len += need;
        ring.entries.push_back((now + VISIBLE_NS, frame));
        queue.push(now + VISIBLE_NS, Happening::Wake { node: to });
        true
    }

    /// The next frame for `to`, with its sender. Wakes a sender that waits for room.
    pub(crate) fn receive(
        &mut self,
        queue: &mut Queue,
        now: u64,
        to: u32,
    ) -> Option<(u32, Vec<u8>)> {
        let mine = self.rings.range_mut((to, 0)..=(to, u32::MAX));
        for (&(_, from), ring) in mine {
            if ring.entries.front().is_none_or(|(at, _)| *at > now) {
                continue;
            }
            let (_, frame) = ring.entries.pop_front()?;
            ring.used_len -= frame.len() + ENTRY_LEN;
            if ring.starved && ring.used_len * 2 <= self.ring_len {
                ring.starved = false;
                queue.push(now + VISIBLE_NS, Happening::Wake { node: from });
            }
            return Some((from, frame));
        }
        None
    }

    /// Forgets both rings between two processes: one of them is gone.
    pub(crate) fn cut(&mut self, a: u32, b: u32) {
        self.rings.remove(&(a, b));
        self.rings.remove(&(b, a));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rings.values().all(|ring| ring.entries.is_empty())
    }
}
