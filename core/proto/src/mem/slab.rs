// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table with generational keys. Each key contains the generation of its place, so that a late or
//! forged key of a peer finds no entry (`P5.5`).

use crate::base::narrow::narrow;
use alloc::vec::Vec;

const INDEX_BITS: u32 = 16;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Maximum number of entries in a slab.
pub(crate) const SLAB_LEN_MAX: usize = 1 << INDEX_BITS;

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

/// See the module documentation. Key 0 is never returned.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores `value`, or returns it if the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < SLAB_LEN_MAX => {
                self.places.push(Place {
                    generation: 0,
                    value: None,
                });
                narrow(self.places.len() - 1)
            }
            None => return Err(value),
        };
        let place = &mut self.places[index as usize];
        // Generations start at 1 and skip 0, so that no key is 0.
        place.generation = (place.generation + 1) & INDEX_MASK;
        if place.generation == 0 {
            place.generation = 1;
        }
        place.value = Some(value);
        Ok(place.generation << INDEX_BITS | index)
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        let place = self.places.get((key & INDEX_MASK) as usize)?;
        if place.generation != key >> INDEX_BITS {
            return None;
        }
        place.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        let place = self.places.get_mut((key & INDEX_MASK) as usize)?;
        if place.generation != key >> INDEX_BITS {
            return None;
        }
        place.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let place = self.places.get_mut((key & INDEX_MASK) as usize)?;
        if place.generation != key >> INDEX_BITS {
            return None;
        }
        let value = place.value.take()?;
        self.free.push(key & INDEX_MASK);
        Some(value)
    }

    /// Returns the keys of the entries that satisfy `is_selected`.
    pub(crate) fn keys_where(&self, is_selected: impl Fn(&T) -> bool) -> Vec<u32> {
        let mut keys = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            if place.value.as_ref().is_some_and(&is_selected) {
                keys.push(place.generation << INDEX_BITS | narrow::<_, u32>(index));
            }
        }
        keys
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.value.as_ref())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P5.5
    #[test]
    fn removed_key_is_invalid_after_slot_reuse() {
        let mut slab = Slab::new();
        let first = slab.insert('a').unwrap();
        assert_ne!(first, 0);
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b').unwrap();
        assert_eq!(first & INDEX_MASK, second & INDEX_MASK);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.get(0), None);
        assert_eq!(slab.get(u32::MAX), None);
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.keys_where(|&c| c == 'b'), [second]);
    }
}
