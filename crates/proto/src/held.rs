// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for messages that cannot be delivered yet: they came before their turn, in fragments, or
//! to a port without a buffer. Bounded for the whole process; credits bound each peer's share.

use crate::HeldId;
use alloc::vec;
use alloc::vec::Vec;

/// Smallest buffer; sizes double from here. A cache line: most messages that nobody reads are tiny.
const CLASS_LEN_MIN: usize = 64;
/// Number of sizes: up to 64 << 11 = 128 KiB, above any eager message.
const CLASS_COUNT: usize = 12;
/// Counted per message beside its buffer: the entries here and in the queue of its lane or port.
const BOOKKEEPING_LEN: usize = 128;
/// Free buffers kept per size; more go back to the allocator, so that a burst leaves no lasting mark.
const FREE_MAX: usize = 256;

#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    len: usize,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct HeldPool {
    entries: Vec<Option<Held>>,
    free_ids: Vec<u32>,
    free_bytes: [Vec<Vec<u8>>; CLASS_COUNT],
    total_len: usize,
}

impl HeldPool {
    pub(crate) fn take(&mut self, len: usize) -> HeldId {
        let class = class_of(len);
        let bytes = self.free_bytes[class]
            .pop()
            .unwrap_or_else(|| vec![0; CLASS_LEN_MIN << class]);
        self.total_len += bytes.len() + BOOKKEEPING_LEN;
        let held = Some(Held { bytes, len });
        match self.free_ids.pop() {
            Some(id) => {
                self.entries[id as usize] = held;
                HeldId(id)
            }
            None => {
                self.entries.push(held);
                HeldId(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
            }
        }
    }

    pub(crate) fn bytes(&self, id: HeldId) -> &[u8] {
        self.entries[id.0 as usize]
            .as_ref()
            .map_or(&[], |held| &held.bytes[..held.len])
    }

    pub(crate) fn bytes_mut(&mut self, id: HeldId) -> &mut [u8] {
        self.entries[id.0 as usize]
            .as_mut()
            .map_or(&mut [], |held| &mut held.bytes[..held.len])
    }

    pub(crate) fn release(&mut self, id: HeldId) {
        let entry = self.entries[id.0 as usize].take();
        debug_assert!(entry.is_some(), "held memory was released twice");
        if let Some(held) = entry {
            self.total_len -= held.bytes.len() + BOOKKEEPING_LEN;
            self.free_ids.push(id.0);
            let class = &mut self.free_bytes[class_of(held.bytes.len())];
            if class.len() < FREE_MAX {
                class.push(held.bytes);
            }
        }
    }

    /// Bytes in use, bookkeeping included.
    pub(crate) fn total_len(&self) -> usize {
        self.total_len
    }
}

fn class_of(len: usize) -> usize {
    let units = len.div_ceil(CLASS_LEN_MIN).max(1).next_power_of_two();
    (units.trailing_zeros() as usize).min(CLASS_COUNT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_and_used_again() {
        let mut pool = HeldPool::default();
        let a = pool.take(0);
        let b = pool.take(257);
        assert_eq!(pool.total_len(), 64 + 512 + 2 * BOOKKEEPING_LEN);
        assert_eq!(pool.bytes(b).len(), 257);
        pool.release(a);
        pool.release(b);
        assert_eq!(pool.total_len(), 0);
        assert_eq!(pool.take(1), b);
    }
}
