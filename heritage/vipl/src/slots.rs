// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of objects that programs refer to by handles. A stale handle is detected, and no handle
//! is ever dereferenced.
//!
//! When an index is reused, its handle contains the next generation. An index whose generations are
//! used up stays unused until the table has no other free index. A handle is therefore repeated
//! only after all handles of the table were used.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;

/// Kind of the object, in the highest byte of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Nic = 1,
    Vi = 2,
    Cq = 3,
    Conn = 4,
    Ptag = 5,
    /// Memory. Its handles have 32 bits and contain no kind.
    Mem = 6,
}

/// Bits of a generation: enough that a stale handle is not mistaken for a new one.
const GENERATION_BITS: u32 = 24;
/// Bits of an index in a 32-bit handle. The other bits are the generation.
const SHORT_INDEX_BITS: u32 = 20;
/// Maximum number of objects with 32-bit handles.
pub(crate) const SHORT_MAX: usize = 1 << SHORT_INDEX_BITS;
/// Mask of the index in a 32-bit handle.
const SHORT_INDEX_MASK: u32 = (1 << SHORT_INDEX_BITS) - 1;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table; see the module documentation.
pub(crate) struct Slots<T> {
    kind: Kind,
    slots_max: usize,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Free indices whose generations are used up, the oldest first.
    spent: VecDeque<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new(kind: Kind, slots_max: usize) -> Self {
        Slots {
            kind,
            slots_max,
            slots: Vec::new(),
            free: Vec::new(),
            spent: VecDeque::new(),
        }
    }

    /// Returns the last generation of an index. The first is 1.
    fn generation_max(&self) -> u32 {
        let bits = match self.kind {
            Kind::Mem => u32::BITS - SHORT_INDEX_BITS,
            _ => GENERATION_BITS,
        };
        (1 << bits) - 1
    }

    /// Adds an object. Returns its index, or `None` if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.generation += 1;
            slot.value = Some(value);
            return Some(index);
        }
        if self.slots.len() >= self.slots_max {
            let index = self.spent.pop_front()?;
            let slot = &mut self.slots[index as usize];
            (slot.generation, slot.value) = (1, Some(value));
            return Some(index);
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        let value = Some(value);
        self.slots.push(Slot {
            generation: 1,
            value,
        });
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let last = self.generation_max();
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        match slot.generation < last {
            true => self.free.push(index),
            false => self.spent.push_back(index),
        }
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = (0..).zip(&self.slots);
        all.filter_map(|(index, slot)| Some((index, slot.value.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let all = (0..).zip(&mut self.slots);
        all.filter_map(|(index, slot)| Some((index, slot.value.as_mut()?)))
    }

    /// Returns the handle of the object at an index.
    pub(crate) fn handle(&self, index: u32) -> *mut c_void {
        let generation = self
            .slots
            .get(index as usize)
            .map_or(0, |slot| slot.generation);
        let word = u64::from(self.kind as u8) << 56
            | u64::from(generation) << u32::BITS
            | u64::from(index);
        ptr::without_provenance_mut(usize::try_from(word).unwrap_or(0))
    }

    /// Returns the index of a handle, if it is of this kind and not stale.
    #[inline]
    pub(crate) fn index_of(&self, handle: *const c_void) -> Option<u32> {
        let word = handle.addr() as u64;
        let index = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get(index as usize)?;
        let expected = u64::from(self.kind as u8) << 24 | u64::from(slot.generation);
        (word >> u32::BITS == expected && slot.value.is_some()).then_some(index)
    }

    /// Returns the 32-bit handle of the object at an index.
    pub(crate) fn short_handle(&self, index: u32) -> u32 {
        let slot = self.slots.get(index as usize);
        slot.map_or(0, |slot| slot.generation << SHORT_INDEX_BITS | index)
    }

    /// Returns the object of a 32-bit handle.
    #[inline]
    pub(crate) fn by_short(&self, handle: u32) -> Option<&T> {
        let index = handle & SHORT_INDEX_MASK;
        let slot = self.slots.get(index as usize)?;
        match slot.generation == handle >> SHORT_INDEX_BITS {
            true => slot.value.as_ref(),
            false => None,
        }
    }

    /// Returns the index of a 32-bit handle.
    pub(crate) fn short_index(&self, handle: u32) -> Option<u32> {
        self.by_short(handle).map(|_| handle & SHORT_INDEX_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn removed_handle_is_stale() {
        let mut slots = Slots::new(Kind::Vi, 2);
        let one = slots.insert("one").unwrap();
        let first = slots.handle(one);
        assert_eq!(slots.index_of(first), Some(one));
        assert_eq!(slots.index_of(ptr::null_mut()), None);
        assert_eq!(slots.remove(one), Some("one"));
        assert_eq!((slots.index_of(first), slots.remove(one)), (None, None));
        assert_eq!(slots.insert("two"), Some(one));
        assert_eq!(slots.index_of(first), None);
        assert_ne!(slots.handle(one), first);
        let other = Slots::<u8>::new(Kind::Cq, 2);
        assert_eq!(other.index_of(slots.handle(one)), None);
    }

    #[test]
    fn insertion_fails_when_full() {
        let mut slots = Slots::new(Kind::Mem, 2);
        let made: Vec<_> = (0..3).map(|value| slots.insert(value)).collect();
        assert_eq!(made, [Some(0), Some(1), None]);
        let handle = slots.short_handle(1);
        assert_eq!(slots.by_short(handle), Some(&1));
        assert_eq!(slots.short_index(handle), Some(1));
        for other in [0, handle + 1, handle + (1 << SHORT_INDEX_BITS)] {
            assert_eq!(slots.by_short(other), None);
        }
    }

    #[test]
    fn handles_are_reused_last() {
        let places = 3;
        let mut slots = Slots::new(Kind::Mem, places);
        let all = places * slots.generation_max() as usize;
        let mut seen = HashSet::new();
        for number in 0..all {
            let index = slots.insert(number).unwrap();
            let handle = slots.short_handle(index);
            assert_eq!(slots.by_short(handle), Some(&number));
            assert!(seen.insert(handle), "{handle:#x} after {number}");
            slots.remove(index);
            assert_eq!(slots.by_short(handle), None);
        }
        let index = slots.insert(all).unwrap();
        assert!(seen.contains(&slots.short_handle(index)));
    }
}
