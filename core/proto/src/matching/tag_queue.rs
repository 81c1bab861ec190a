// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue that finds entries by tag without a search through all of them.
//!
//! Each entry is in one list, in the order of arrival: the list of its tag's bin, or one for all
//! tags. Entries never move, so removing one from the middle costs the same as from the front.

use crate::base::narrow::narrow;
use alloc::vec;
use alloc::vec::Vec;

/// Number of bins of a queue, one for each first byte of a hash. With thousands of tags, a list has
/// a few entries. The bins take 2 KiB once used.
const BIN_COUNT: usize = 256;
/// Fibonacci hashing: 2^64 divided by the golden ratio; the first byte depends on all bits of a
/// tag.
const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// End of a list.
const NONE: u32 = u32::MAX;

/// List that contains an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// List of its bin; the entry is found by its tag.
    ByTag,
    /// List for all tags.
    Among,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NONE,
    tail: NONE,
};

#[derive(Debug)]
struct Node<T> {
    tag: u64,
    /// Position in the order of arrival.
    stamp: u64,
    listed: Listed,
    link: Link,
    item: Option<T>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct TagQueue<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    /// Empty until the first entry.
    bins: Vec<List>,
    all: List,
    next_stamp: u64,
    len: usize,
}

impl<T> Default for TagQueue<T> {
    fn default() -> Self {
        TagQueue {
            nodes: Vec::new(),
            free: Vec::new(),
            bins: Vec::new(),
            all: EMPTY,
            next_stamp: 0,
            len: 0,
        }
    }
}

impl<T> TagQueue<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.nodes.get(index as usize)?.item.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.nodes.get_mut(index as usize)?.item.as_mut()
    }

    /// Returns an entry's position in the order of arrival.
    #[inline]
    pub(crate) fn stamp(&self, index: u32) -> u64 {
        self.nodes[index as usize].stamp
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, tag: u64, listed: Listed, item: T) {
        if self.bins.is_empty() {
            self.bins = vec![EMPTY; BIN_COUNT];
        }
        let unlinked = Link {
            prev: NONE,
            next: NONE,
        };
        let node = Node {
            tag,
            stamp: self.next_stamp,
            listed,
            link: unlinked,
            item: Some(item),
        };
        self.next_stamp += 1;
        self.len += 1;
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                narrow(self.nodes.len() - 1)
            }
        };
        self.link(index);
    }

    /// Removes an entry and returns it.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let item = self.nodes.get_mut(index as usize)?.item.take()?;
        self.vacate(index);
        Some(item)
    }

    /// Removes an entry that [`TagQueue::get`] has returned, without a copy.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32) {
        self.nodes[index as usize].item = None;
        self.vacate(index);
    }

    #[inline]
    fn vacate(&mut self, index: u32) {
        self.unlink(index);
        self.free.push(index);
        self.len -= 1;
    }

    /// Finds the first `is_selected` entry with this tag in its bin.
    #[inline]
    pub(crate) fn find_tag(&self, tag: u64, is_selected: impl Fn(&T) -> bool) -> Option<u32> {
        let head = self.bins.get(bin_of(tag))?.head;
        self.find(head, |node| node.tag == tag && is(node, &is_selected))
    }

    /// Finds the first `is_selected` entry in the list for all tags.
    #[inline]
    pub(crate) fn find_any(&self, is_selected: impl Fn(u64, &T) -> bool) -> Option<u32> {
        self.find(self.all.head, |node| {
            is(node, &|item: &T| is_selected(node.tag, item))
        })
    }

    /// Returns the places of all `is_selected` entries, in the order of arrival.
    pub(crate) fn places_where(&self, is_selected: impl Fn(&T) -> bool) -> Vec<u32> {
        let nodes = (0u32..).zip(&self.nodes);
        let mut places: Vec<u32> = nodes
            .filter(|(_, node)| is(node, &is_selected))
            .map(|(index, _)| index)
            .collect();
        places.sort_unstable_by_key(|&index| self.stamp(index));
        places
    }

    /// Returns true if any entry is `is_selected`.
    pub(crate) fn any(&self, is_selected: impl Fn(&T) -> bool) -> bool {
        self.len > 0 && self.nodes.iter().any(|node| is(node, &is_selected))
    }

    /// Returns the number of `is_selected` entries.
    pub(crate) fn count_where(&self, is_selected: impl Fn(u64, &T) -> bool) -> usize {
        let nodes = self.nodes.iter();
        nodes
            .filter(|node| is(node, &|item: &T| is_selected(node.tag, item)))
            .count()
    }

    #[inline]
    fn find(&self, head: u32, is_selected: impl Fn(&Node<T>) -> bool) -> Option<u32> {
        let mut index = head;
        while index != NONE {
            let node = &self.nodes[index as usize];
            if is_selected(node) {
                return Some(index);
            }
            index = node.link.next;
        }
        None
    }

    fn link(&mut self, index: u32) {
        let tail = core::mem::replace(&mut self.list_of(index).tail, index);
        self.nodes[index as usize].link.prev = tail;
        match tail {
            NONE => self.list_of(index).head = index,
            tail => self.nodes[tail as usize].link.next = index,
        }
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let Link { prev, next } = self.nodes[index as usize].link;
        match prev {
            NONE => self.list_of(index).head = next,
            prev => self.nodes[prev as usize].link.next = next,
        }
        match next {
            NONE => self.list_of(index).tail = prev,
            next => self.nodes[next as usize].link.prev = prev,
        }
    }

    #[inline]
    fn list_of(&mut self, index: u32) -> &mut List {
        match self.nodes[index as usize].listed {
            Listed::ByTag => &mut self.bins[bin_of(self.nodes[index as usize].tag)],
            Listed::Among => &mut self.all,
        }
    }
}

#[inline]
fn is<T>(node: &Node<T>, is_selected: &impl Fn(&T) -> bool) -> bool {
    node.item.as_ref().is_some_and(is_selected)
}

#[inline]
fn bin_of(tag: u64) -> usize {
    usize::from(tag.wrapping_mul(HASH_FACTOR).to_be_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Oracle: a plain list of (tag, listed, value), searched from the front.
    #[test]
    fn search_agrees_with_a_plain_list() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut queue = TagQueue::default();
        let mut oracle: Vec<(u64, Listed, u32)> = Vec::new();
        for value in 0..20_000u32 {
            let tag = rng.random_range(0..6) << 60;
            let found = match rng.random_range(0..4) {
                0 | 1 => {
                    let kinds = [Listed::ByTag, Listed::Among];
                    let listed = kinds[rng.random_range(0..2)];
                    queue.push(tag, listed, value);
                    oracle.push((tag, listed, value));
                    continue;
                }
                2 => {
                    let fits = |e: &&(u64, Listed, u32)| {
                        e.0 == tag && e.1 == Listed::ByTag && !e.2.is_multiple_of(3)
                    };
                    let expected = oracle.iter().find(fits).map(|entry| entry.2);
                    (
                        queue.find_tag(tag, |value| !value.is_multiple_of(3)),
                        expected,
                    )
                }
                _ => {
                    let fits = |e: &&(u64, Listed, u32)| e.0 >= tag && e.1 == Listed::Among;
                    let expected = oracle.iter().find(fits).map(|entry| entry.2);
                    (queue.find_any(|other, _| other >= tag), expected)
                }
            };
            let (index, expected) = found;
            let taken = index.and_then(|index| queue.remove(index));
            assert_eq!(taken, expected);
            oracle.retain(|entry| Some(entry.2) != expected);
            assert_eq!(queue.len(), oracle.len());
        }
        let left = queue.places_where(|_| true).into_iter();
        let left: Vec<u32> = left.filter_map(|index| queue.remove(index)).collect();
        assert_eq!(left, oracle.iter().map(|e| e.2).collect::<Vec<_>>());
    }
}
