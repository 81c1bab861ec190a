// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the program has registered: other processes may access it if the port allows it.

use std::collections::BTreeMap;

/// Lengths by address, with the number of registrations of exactly these bytes.
#[derive(Default)]
pub(crate) struct Registered(BTreeMap<usize, Vec<(usize, u32)>>);

impl Registered {
    pub(crate) const fn new() -> Self {
        Registered(BTreeMap::new())
    }

    pub(crate) fn add(&mut self, at: usize, len: usize) {
        let pieces = self.0.entry(at).or_default();
        match pieces.iter_mut().find(|(other, _)| *other == len) {
            Some((_, count)) => *count += 1,
            None => pieces.push((len, 1)),
        }
    }

    /// Removes one registration. Returns `false` if exactly these bytes were not registered.
    pub(crate) fn remove(&mut self, at: usize, len: usize) -> bool {
        let Some(pieces) = self.0.get_mut(&at) else {
            return false;
        };
        let Some(index) = pieces.iter().position(|(other, _)| *other == len) else {
            return false;
        };
        pieces[index].1 -= 1;
        if pieces[index].1 == 0 {
            pieces.swap_remove(index);
        }
        if pieces.is_empty() {
            self.0.remove(&at);
        }
        true
    }

    /// Returns whether one registration contains all of the `len` bytes at `at`.
    pub(crate) fn has(&self, at: usize, len: usize) -> bool {
        let Some(end) = at.checked_add(len) else {
            return false;
        };
        let mut before = self.0.range(..=at).rev();
        before.any(|(&start, pieces)| {
            pieces
                .iter()
                .any(|(len, _)| start.saturating_add(*len) >= end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_registration_must_contain_all_bytes() {
        let mut registered = Registered::default();
        registered.add(100, 50);
        registered.add(120, 5);
        registered.add(100, 50);
        assert!(registered.has(100, 50) && registered.has(130, 20) && registered.has(150, 0));
        assert!(!registered.has(99, 1) && !registered.has(130, 21) && !registered.has(151, 0));
        assert!(!registered.has(usize::MAX, 2));
        assert!(registered.remove(100, 50) && registered.has(100, 50));
        assert!(registered.remove(100, 50) && !registered.has(100, 50));
        assert!(registered.has(120, 5) && !registered.remove(120, 4));
        assert!(registered.remove(120, 5) && !registered.remove(120, 5));
    }
}
