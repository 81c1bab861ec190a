// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for messages that cannot be delivered yet, because they arrived out of order, in
//! fragments, or before a receive was posted. Many small messages share a chunk, so that an
//! eight-byte message costs 20 bytes here. The memory is bounded for the whole process; credits
//! bound each peer's share.
//!
//! Invariant: a chunk is in its class's list exactly while one of its slots is free.

use crate::HeldId;
use crate::base::narrow::narrow;
use crate::mem::copy::copy;
use alloc::vec;
use alloc::vec::Vec;

/// Length of the smallest slot in bytes; each class doubles it. Most unread messages are tiny.
const SLOT_LEN_MIN: usize = 16;
/// Number of classes: up to 16 << 13 = 128 KiB, above any eager message.
const CLASS_COUNT: usize = 14;
/// Chunk length in bytes for slots of up to that length: four pages, so that one remaining message
/// keeps little memory allocated. Longer slots have a chunk of their own.
const CHUNK_LEN: usize = 16 * 1024;
/// Bits of a [`HeldId`] with the slot index in its chunk; the other bits address up to 64 GiB of
/// chunks.
const SLOT_BITS: u32 = (CHUNK_LEN / SLOT_LEN_MIN).trailing_zeros();
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const CHUNKS_MAX: usize = 1 << (u32::BITS - SLOT_BITS);
/// Bytes of empty chunks kept for the next messages: two windows of long messages. More is returned
/// to the allocator, so that a burst has no lasting effect.
const FREE_CHUNKS_LEN_MAX: usize = 4 * 1024 * 1024;
/// Memory in bytes reserved for when the allocator fails, and not touched until then. It covers the
/// messages that peers may still send with the credit they have (`crate::Limits::credit_len`).
const RESERVE_LEN: usize = 1024 * 1024;
/// Bytes counted for each message waiting at a port in addition to its held memory: its queue
/// entry, twice, because queues double.
pub(crate) const WAITING_LEN: usize = 48;
/// Bytes that must remain available beyond a chunk and doubled tables, for a few other allocations.
/// It is unpredictable which allocation fails first, and only this one may fail.
const MARGIN_LEN: usize = 64 * 1024;
/// Flag in the length of a free slot; the other bits are the index of the next free slot.
const FREE_BIT: u32 = 1 << 31;
/// Flag in the length of a message from a session that has ended; no credit bounds it.
const ORPHANED_BIT: u32 = 1 << 30;
const LEN_MASK: u32 = ORPHANED_BIT - 1;
/// Absent slot, or absent position in a list.
const NONE: u32 = FREE_BIT - 1;

#[derive(Debug)]
struct Chunk {
    class: u8,
    /// Position among the chunks of its class with free slots.
    open_at: u32,
    used: u32,
    free_slot: u32,
    bytes: Vec<u8>,
    /// Length of the message in each slot, or the next free slot.
    lens: Vec<u32>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct HeldPool {
    chunks: Vec<Option<Chunk>>,
    free_chunks: Vec<u32>,
    /// Empty vector with a capacity of [`RESERVE_LEN`] bytes, once anything was held and while
    /// memory lasts.
    reserve: Vec<u8>,
    /// Set if the allocator has failed and the reserve was used instead.
    is_exhausted: bool,
    /// Simulated limit of the allocator, in tests.
    #[cfg(test)]
    allowed: Option<usize>,
    /// Chunks with free slots, per class.
    open: [Vec<u32>; CLASS_COUNT],
    /// Bytes of the chunks that contain messages.
    total_len: usize,
    /// Bytes of the empty chunks.
    free_chunks_len: usize,
    /// Number of held messages.
    count: usize,
    /// Bytes of messages from sessions that have ended, including their queue entries.
    orphaned_len: usize,
}

impl HeldPool {
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> HeldId {
        let class = class_of(len);
        let index = match self.open[class].last() {
            Some(&index) => index,
            None => self.add_chunk(class),
        };
        let Some(Some(chunk)) = self.chunks.get_mut(index as usize) else {
            unreachable!("a listed chunk exists");
        };
        if chunk.used == 0 {
            self.free_chunks_len -= chunk.cost();
            self.total_len += chunk.cost();
        }
        let slot = chunk.free_slot;
        chunk.free_slot = chunk.lens[slot as usize] & !FREE_BIT;
        chunk.lens[slot as usize] = narrow(len);
        chunk.used += 1;
        self.count += 1;
        if chunk.free_slot == NONE {
            chunk.open_at = NONE;
            self.open[class].pop();
        }
        HeldId(index << SLOT_BITS | slot)
    }

    /// Returns the length of a message.
    #[inline]
    pub(crate) fn len(&self, id: HeldId) -> usize {
        let chunk = self.chunks[(id.0 >> SLOT_BITS) as usize].as_ref();
        chunk.map_or(0, |chunk| chunk.len(id))
    }

    /// Copies a message to the beginning of `dst`, and frees it. Returns its length; `None` if `dst`
    /// is too short.
    #[inline(always)]
    pub(crate) fn release_into(&mut self, id: HeldId, dst: &mut [u8]) -> Option<usize> {
        let index = id.0 >> SLOT_BITS;
        let chunk = self.chunks.get_mut(index as usize)?.as_mut()?;
        let range = chunk.range(id);
        let len = range.len();
        copy(dst.get_mut(..len)?, &chunk.bytes[range]);
        let change = chunk.release(id);
        self.count_released(index, change);
        Some(len)
    }

    #[inline]
    pub(crate) fn bytes(&self, id: HeldId) -> &[u8] {
        let chunk = self.chunks[(id.0 >> SLOT_BITS) as usize].as_ref();
        chunk.map_or(&[], |chunk| &chunk.bytes[chunk.range(id)])
    }

    pub(crate) fn bytes_mut(&mut self, id: HeldId) -> &mut [u8] {
        let chunk = self.chunks[(id.0 >> SLOT_BITS) as usize].as_mut();
        chunk.map_or(&mut [], |chunk| {
            let range = chunk.range(id);
            &mut chunk.bytes[range]
        })
    }

    #[inline(always)]
    pub(crate) fn release(&mut self, id: HeldId) {
        let index = id.0 >> SLOT_BITS;
        if let Some(Some(chunk)) = self.chunks.get_mut(index as usize) {
            let change = chunk.release(id);
            self.count_released(index, change);
        }
    }

    #[inline(always)]
    fn count_released(&mut self, index: u32, change: Change) {
        match change {
            Change::Nothing => return,
            Change::Slot => {}
            Change::Chunk { was_orphaned } => self.on_released(index, was_orphaned),
        }
        self.count -= 1;
    }

    /// Updates what depends on more than the released slot of a chunk.
    #[cold]
    fn on_released(&mut self, index: u32, was_orphaned: bool) {
        let Some(Some(chunk)) = self.chunks.get_mut(index as usize) else {
            return;
        };
        if was_orphaned {
            self.orphaned_len -= chunk.orphaned_cost();
        }
        let open = &mut self.open[usize::from(chunk.class)];
        if chunk.open_at == NONE {
            chunk.open_at = narrow(open.len());
            open.push(index);
        }
        if chunk.used == 0 {
            self.total_len -= chunk.cost();
            self.free_chunks_len += chunk.cost();
            if self.free_chunks_len > FREE_CHUNKS_LEN_MAX || self.is_exhausted {
                self.free_chunk(index);
            }
        }
    }

    /// Marks a kept message as left over from a session that has ended. `P9.7`
    pub(crate) fn mark_orphaned(&mut self, id: HeldId) {
        let Some(chunk) = &mut self.chunks[(id.0 >> SLOT_BITS) as usize] else {
            return;
        };
        let len = &mut chunk.lens[(id.0 & SLOT_MASK) as usize];
        debug_assert!(
            *len & FREE_BIT == 0,
            "held memory is marked after its release"
        );
        if *len & ORPHANED_BIT == 0 {
            *len |= ORPHANED_BIT;
            self.orphaned_len += chunk.orphaned_cost();
        }
    }

    /// Returns the bytes used by messages from sessions that have ended.
    pub(crate) fn orphaned_len(&self) -> usize {
        self.orphaned_len
    }

    /// Returns true if no further message should be held because the allocator has failed,
    /// regardless of the limits.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns the allocated bytes that are in use.
    pub(crate) fn total_len(&self) -> usize {
        self.total_len
    }

    /// Allocates `len` bytes; `None` if the allocator fails.
    fn room_for(&self, len: usize) -> Option<Vec<u8>> {
        #[cfg(test)]
        {
            let used = self.total_len + self.free_chunks_len;
            if self.allowed.is_some_and(|allowed| used + len > allowed) {
                return None;
            }
        }
        let mut room = Vec::new();
        room.try_reserve_exact(len).ok()?;
        Some(room)
    }

    /// Ensures that `len` bytes can be allocated and that all tables that grow with the messages
    /// can double. Uses the reserve if necessary.
    fn ensure(&mut self, len: usize) {
        let tables = self.count * WAITING_LEN + self.chunks.len() * 2 * size_of::<Option<Chunk>>();
        if self.room_for(len + tables + MARGIN_LEN).is_none() {
            self.reserve = Vec::new();
            self.is_exhausted = true;
        }
        self.fill_reserve();
    }

    /// Allocates the reserve if it was used or never allocated.
    fn fill_reserve(&mut self) {
        if !self.is_exhausted && self.reserve.capacity() == 0 {
            self.reserve = self.room_for(RESERVE_LEN).unwrap_or_default();
            self.is_exhausted = self.reserve.capacity() == 0;
        }
    }

    #[cold]
    fn add_chunk(&mut self, class: usize) -> u32 {
        let slot_len = SLOT_LEN_MIN << class;
        let count = (CHUNK_LEN / slot_len).max(1);
        self.ensure((slot_len + size_of::<u32>()) * count);
        let last: u32 = narrow(count - 1);
        let next = |slot| if slot == last { NONE } else { slot + 1 };
        let chunk = Chunk {
            class: narrow(class),
            open_at: narrow(self.open[class].len()),
            used: 0,
            free_slot: 0,
            bytes: vec![0; slot_len * count],
            lens: (0..=last).map(|slot| next(slot) | FREE_BIT).collect(),
        };
        self.free_chunks_len += chunk.cost();
        let index = match self.free_chunks.pop() {
            Some(index) => {
                self.chunks[index as usize] = Some(chunk);
                index
            }
            None => {
                assert!(self.chunks.len() < CHUNKS_MAX, "64 GiB of held messages");
                self.chunks.push(Some(chunk));
                narrow(self.chunks.len() - 1)
            }
        };
        self.open[class].push(index);
        index
    }

    #[cold]
    fn free_chunk(&mut self, index: u32) {
        let Some(chunk) = self.chunks[index as usize].take() else {
            return;
        };
        self.free_chunks_len -= chunk.cost();
        self.free_chunks.push(index);
        let open = &mut self.open[usize::from(chunk.class)];
        open.swap_remove(chunk.open_at as usize);
        if let Some(&moved) = open.get(chunk.open_at as usize)
            && let Some(moved) = &mut self.chunks[moved as usize]
        {
            moved.open_at = chunk.open_at;
        }
        drop(chunk);
        if self.is_exhausted {
            self.is_exhausted = false;
            self.fill_reserve();
        }
    }
}

/// Effect of the release of a slot.
enum Change {
    /// None: the slot was free.
    Nothing,
    /// The slot is free.
    Slot,
    /// The chunk has become empty, or has a free slot again, or its orphaned bytes have changed.
    Chunk { was_orphaned: bool },
}

impl Chunk {
    /// Frees a slot.
    #[inline(always)]
    fn release(&mut self, id: HeldId) -> Change {
        let slot = id.0 & SLOT_MASK;
        let len = &mut self.lens[slot as usize];
        debug_assert!(*len & FREE_BIT == 0, "held memory was released twice");
        if *len & FREE_BIT != 0 {
            return Change::Nothing;
        }
        let was_orphaned = *len & ORPHANED_BIT != 0;
        *len = self.free_slot | FREE_BIT;
        self.free_slot = slot;
        self.used -= 1;
        match was_orphaned || self.open_at == NONE || self.used == 0 {
            true => Change::Chunk { was_orphaned },
            false => Change::Slot,
        }
    }

    /// Returns the memory in bytes that the chunk uses.
    fn cost(&self) -> usize {
        self.bytes.len() + size_of::<u32>() * self.lens.len()
    }

    /// Returns the memory in bytes of a message that outlives its session.
    fn orphaned_cost(&self) -> usize {
        (SLOT_LEN_MIN << self.class) + size_of::<u32>() + WAITING_LEN
    }

    #[inline]
    fn len(&self, id: HeldId) -> usize {
        let len = self.lens[(id.0 & SLOT_MASK) as usize];
        debug_assert!(len & FREE_BIT == 0, "held memory is used after its release");
        (len & LEN_MASK) as usize
    }

    #[inline]
    fn range(&self, id: HeldId) -> core::ops::Range<usize> {
        let start = (id.0 & SLOT_MASK) as usize * (SLOT_LEN_MIN << self.class);
        start..start + self.len(id)
    }
}

fn class_of(len: usize) -> usize {
    let units = len.div_ceil(SLOT_LEN_MIN).max(1).next_power_of_two();
    (units.trailing_zeros() as usize).min(CLASS_COUNT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn memory_is_counted_and_reused() {
        let mut pool = HeldPool::default();
        let a = pool.take(0);
        let b = pool.take(70_000);
        assert_eq!(pool.total_len(), CHUNK_LEN + 4 * 1024 + 128 * 1024 + 4);
        pool.mark_orphaned(b);
        pool.mark_orphaned(b);
        assert_eq!(pool.orphaned_len(), 128 * 1024 + 4 + WAITING_LEN);
        assert_eq!(pool.bytes(b).len(), 70_000);
        pool.release(a);
        pool.release(b);
        assert_eq!((pool.total_len(), pool.orphaned_len()), (0, 0));
        assert_eq!(pool.take(100_000), b);
    }

    #[test]
    fn tiny_messages_cost_twenty_bytes_and_burst_memory_is_freed() {
        let mut pool = HeldPool::default();
        let ids: Vec<_> = (0..100_000).map(|_| pool.take(8)).collect();
        assert_eq!(pool.total_len().div_ceil(100_000), 21);
        for id in ids {
            pool.release(id);
        }
        assert_eq!(pool.total_len(), 0);
        assert!(pool.free_chunks_len <= FREE_CHUNKS_LEN_MAX);
    }

    #[test]
    fn failed_allocation_uses_and_refills_the_reserve() {
        let mut pool = HeldPool {
            allowed: Some(RESERVE_LEN + 3 * 128 * 1024),
            ..HeldPool::default()
        };
        let mut held = Vec::new();
        while !pool.is_exhausted() {
            held.push(pool.take(70_000));
        }
        assert!(held.len() > 8, "the reserve comes first: {}", held.len());
        // Messages that arrive later are still held.
        held.push(pool.take(70_000));
        for id in held.drain(..) {
            assert_eq!(pool.bytes(id).len(), 70_000);
            pool.release(id);
        }
        assert!(!pool.is_exhausted());
        assert_eq!(pool.reserve.capacity(), RESERVE_LEN);
        let id = pool.take(70_000);
        assert!(!pool.is_exhausted());
        pool.release(id);
    }

    /// A queue that doubles allocates all its memory at once, and a failure there cannot be
    /// reported.
    #[test]
    fn memory_is_full_before_queues_cannot_double() {
        const ALLOWED: usize = 16 * 1024 * 1024;
        for len in [0, 8, 100, 16_000] {
            let mut pool = HeldPool {
                allowed: Some(ALLOWED),
                ..HeldPool::default()
            };
            while !pool.is_exhausted() {
                pool.take(len);
            }
            let queues = pool.count * WAITING_LEN;
            let needed = pool.total_len + queues + MARGIN_LEN;
            // The chunk that detected exhaustion exists too, and the reserve is free for it.
            assert!(needed <= ALLOWED + RESERVE_LEN / 2, "{len}: too late");
            assert!(needed > ALLOWED - RESERVE_LEN, "{len}: too early");
        }
    }

    #[test]
    fn messages_do_not_overwrite_each_other() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut pool = HeldPool::default();
        let mut held: Vec<(HeldId, u8, usize)> = Vec::new();
        for _ in 0..30_000 {
            if held.len() > 600 || !held.is_empty() && rng.random_bool(0.45) {
                let (id, mark, len) = held.swap_remove(rng.random_range(0..held.len()));
                assert_eq!(pool.bytes(id), vec![mark; len]);
                pool.release(id);
            } else {
                let order = rng.random_range(0..17);
                let len = rng.random_range(0..1 << order);
                let (id, mark) = (pool.take(len), rng.random());
                pool.bytes_mut(id).fill(mark);
                held.push((id, mark, len));
            }
        }
        for (id, ..) in held {
            pool.release(id);
        }
        assert_eq!(pool.total_len(), 0);
    }
}
