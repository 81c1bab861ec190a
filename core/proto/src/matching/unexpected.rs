// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unexpected messages of one space, found by tag, or by tag and sender, without a search through
//! the table. This holds as long as receives ignore the same few bits of the tag. The table is
//! designed for a million messages: entries are compact, and their number is the only bound.
//!
//! Each entry is in several lists, all in the order of arrival: the list of all entries and the bin
//! of its tag and sender. After the first receive for a tag from any sender, it is also in the bin
//! of its tag.

use super::match_list::Arrived;
use super::port::Waiting;
use crate::base::narrow::narrow;
use crate::base::request::Announced;
use crate::{PeerId, Selector};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use portolan_wire::{LaneId, MatchBits, Space};

/// Entries per piece of the table. Pieces never move, so a long queue grows without copies and
/// without double memory.
const PIECE_LEN: usize = 256;
const PIECE_BITS: u32 = PIECE_LEN.trailing_zeros();
/// Number of bins of a short queue. Longer queues have as many bins as entries, or half as many.
const BINS_MIN: usize = 16;
/// Number of entries below which an oversized table is not shrunk.
const SHRINK_LEN_MIN: usize = 4096;
/// Tag bits that receives may ignore while bins are still chosen by the remaining ones. MPI
/// libraries reserve up to nine for their own protocols; a wildcard source or tag has sixteen or
/// more.
const IGNORED_BITS_MAX: u32 = 12;
/// Fibonacci hashing: 2^64 divided by the golden ratio; the high bits depend on all bits of a key.
const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// End of a list.
const NONE: u32 = u32::MAX;

const BY_SENDER: usize = 0;
const ALL: usize = 1;
const BY_TAG: usize = 2;
/// Lists of an entry before the first receive for a tag from any sender.
const WITHOUT_TAGS: [usize; 2] = [BY_SENDER, ALL];
const WITH_TAGS: [usize; 3] = [BY_SENDER, ALL, BY_TAG];

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

const UNLINKED: Link = Link {
    prev: NONE,
    next: NONE,
};

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NONE,
    tail: NONE,
};

/// Compact form of a message, since there may be a million.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    imm: u64,
    links: [Link; 3],
    peer: u32,
    /// Index in held memory, or among the requests.
    what: u32,
    /// Length of the message in bytes, if it is held.
    len: u32,
    flags: u8,
}

const HAS_IMM: u8 = 1;
const HIGH_LANE: u8 = 2;
const HOLDS_CREDIT: u8 = 4;
const IS_REQUEST: u8 = 8;
const IS_FREE: u8 = 16;

/// A message costs its entry, and at most two list heads in the bins.
const _: () = assert!(size_of::<Entry>() == 56);

const FREE: Entry = Entry {
    tag: 0,
    imm: 0,
    links: [UNLINKED; 3],
    peer: 0,
    what: 0,
    len: 0,
    flags: IS_FREE,
};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct UnexpectedList {
    space: Space,
    pieces: Vec<Box<[Entry]>>,
    /// Head of the list of free entries.
    free: u32,
    /// Bins by tag and sender; empty until the first entry.
    by_sender: Vec<List>,
    /// Bins by tag: as many, or none before the first receive for a tag from any sender.
    by_tag: Vec<List>,
    /// Set at the first receive for a tag from any sender.
    has_tags: bool,
    all: List,
    /// Tag bits by which bins are chosen.
    key_mask: u64,
    requests: Vec<(Announced, u64)>,
    free_requests: Vec<u32>,
    len: usize,
}

impl UnexpectedList {
    pub(crate) fn new(space: Space) -> Self {
        UnexpectedList {
            space,
            pieces: Vec::new(),
            free: NONE,
            by_sender: Vec::new(),
            by_tag: Vec::new(),
            has_tags: false,
            all: EMPTY,
            key_mask: u64::MAX,
            requests: Vec::new(),
            free_requests: Vec::new(),
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of the table, or 0 for an empty one, which stays short.
    pub(crate) fn table_len(&self) -> usize {
        if self.len == 0 {
            return 0;
        }
        self.capacity() * size_of::<Entry>()
            + (self.by_sender.len() + self.by_tag.len()) * size_of::<List>()
            + self.requests.len() * size_of::<(Announced, u64)>()
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, arrived: &Arrived) {
        if self.len >= 2 * self.by_sender.len() {
            self.rebin((2 * self.by_sender.len()).max(BINS_MIN));
        }
        let index = self.free_place();
        let (what, is_request) = match arrived.what {
            Waiting::Held(held) => (held.0, 0),
            Waiting::Request(announced) => (self.hold_request(announced, arrived.len), IS_REQUEST),
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        *self.at_mut(index) = Entry {
            tag: arrived.match_bits.tag,
            imm: arrived.match_bits.imm.unwrap_or(0),
            links: [UNLINKED; 3],
            peer: arrived.peer.0,
            what,
            len: u32::try_from(arrived.len).unwrap_or(u32::MAX),
            flags: is_request
                | flag(arrived.match_bits.imm.is_some(), HAS_IMM)
                | flag(arrived.lane == LaneId::High, HIGH_LANE)
                | flag(arrived.holds_credit, HOLDS_CREDIT),
        };
        self.len += 1;
        for &kind in self.kinds() {
            self.link(kind, index);
        }
    }

    /// Returns the lists that each entry is in.
    #[inline]
    fn kinds(&self) -> &'static [usize] {
        match self.has_tags {
            true => &WITH_TAGS,
            false => &WITHOUT_TAGS,
        }
    }

    /// Returns the message at this place.
    pub(crate) fn get(&self, index: u32) -> Arrived {
        let entry = self.at(index);
        let (what, len) = if entry.flags & IS_REQUEST != 0 {
            let (announced, len) = self.requests[entry.what as usize];
            (Waiting::Request(announced), len)
        } else {
            let held = crate::HeldId(entry.what);
            (Waiting::Held(held), u64::from(entry.len))
        };
        let lane = match entry.flags & HIGH_LANE {
            0 => LaneId::Low,
            _ => LaneId::High,
        };
        Arrived {
            peer: PeerId(entry.peer),
            lane,
            match_bits: MatchBits {
                space: self.space,
                tag: entry.tag,
                imm: (entry.flags & HAS_IMM != 0).then_some(entry.imm),
            },
            len,
            holds_credit: entry.flags & HOLDS_CREDIT != 0,
            what,
        }
    }

    /// Clears the credit mark of a message from a session that has ended.
    pub(crate) fn forget_credit(&mut self, index: u32) {
        self.at_mut(index).flags &= !HOLDS_CREDIT;
    }

    /// Removes a message and returns it. Other messages may move to other places.
    pub(crate) fn remove(&mut self, index: u32) -> Arrived {
        let arrived = self.get(index);
        self.discard(index);
        arrived
    }

    /// Removes a message without a copy.
    pub(crate) fn discard(&mut self, index: u32) {
        self.take_out(index);
        self.shrink_if_free();
    }

    /// Removes messages.
    pub(crate) fn remove_all(&mut self, places: &[u32]) {
        for &index in places {
            self.take_out(index);
        }
        self.shrink_if_free();
    }

    /// Shrinks the table if most of it is free.
    #[inline]
    fn shrink_if_free(&mut self) {
        if self.capacity() > SHRINK_LEN_MIN && self.len * 4 < self.capacity() {
            self.shrink();
        }
    }

    /// Takes all messages, in the order of arrival.
    pub(crate) fn take_all(&mut self) -> Vec<Arrived> {
        let mut all = Vec::with_capacity(self.len);
        let mut index = self.all.head;
        while index != NONE {
            all.push(self.get(index));
            index = self.at(index).links[ALL].next;
        }
        *self = UnexpectedList::new(self.space);
        all
    }

    fn take_out(&mut self, index: u32) {
        for &kind in self.kinds() {
            self.unlink(kind, index);
        }
        let entry = *self.at(index);
        if entry.flags & IS_REQUEST != 0 {
            self.free_requests.push(entry.what);
        }
        self.len -= 1;
        self.put_free(index);
    }

    /// Finds the first message that the receive matches.
    pub(crate) fn find(&mut self, selector: &Selector) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        self.narrow(selector.ignore);
        let takes = |entry: &Entry| selector.takes(PeerId(entry.peer), entry.tag);
        let key = selector.tag & self.key_mask;
        if selector.ignore & self.key_mask != 0 {
            return self.search(ALL, self.all.head, takes);
        }
        match selector.source {
            None => {
                self.bin_tags();
                let head = self.by_tag.get(self.bin_of(key))?.head;
                self.search(BY_TAG, head, takes)
            }
            Some(source) => {
                let bin = self.bin_of(sender_key(key, source.0));
                let head = self.by_sender.get(bin)?.head;
                self.search(BY_SENDER, head, takes)
            }
        }
    }

    /// Returns the places of the messages from `peer`, in the order of arrival.
    pub(crate) fn places_from(&self, peer: PeerId) -> Vec<u32> {
        let mut places = Vec::new();
        let mut index = self.all.head;
        while index != NONE {
            let entry = self.at(index);
            if entry.peer == peer.0 {
                places.push(index);
            }
            index = entry.links[ALL].next;
        }
        places
    }

    /// Removes tag bits that receives ignore from the key of the bins, while enough others are
    /// left.
    #[inline]
    fn narrow(&mut self, ignore: u64) {
        let key_mask = self.key_mask & !ignore;
        if key_mask != self.key_mask && key_mask.count_zeros() <= IGNORED_BITS_MAX {
            self.key_mask = key_mask;
            self.rebin(self.by_sender.len());
        }
    }

    /// Enables bins by tag.
    #[inline]
    fn bin_tags(&mut self) {
        if !self.has_tags {
            self.has_tags = true;
            self.rebin(self.by_sender.len());
        }
    }

    /// Sorts all messages into this number of bins.
    #[cold]
    fn rebin(&mut self, count: usize) {
        // Free the old bins first.
        (self.by_sender, self.by_tag) = (Vec::new(), Vec::new());
        self.by_sender = vec![EMPTY; count];
        if self.has_tags {
            self.by_tag = vec![EMPTY; count];
        }
        let mut index = self.all.head;
        while index != NONE {
            let next = self.at(index).links[ALL].next;
            for &kind in self.kinds().iter().filter(|kind| **kind != ALL) {
                self.at_mut(index).links[kind] = UNLINKED;
                self.link(kind, index);
            }
            index = next;
        }
    }

    /// Replaces the table, which is mostly free, by a shorter one.
    #[cold]
    fn shrink(&mut self) {
        let mut shorter = UnexpectedList {
            key_mask: self.key_mask,
            has_tags: self.has_tags,
            ..UnexpectedList::new(self.space)
        };
        let mut index = self.all.head;
        while index != NONE {
            shorter.push(&self.get(index));
            index = self.at(index).links[ALL].next;
        }
        *self = shorter;
    }

    fn capacity(&self) -> usize {
        self.pieces.len() * PIECE_LEN
    }

    #[inline]
    fn at(&self, index: u32) -> &Entry {
        &self.pieces[(index >> PIECE_BITS) as usize][index as usize % PIECE_LEN]
    }

    #[inline]
    fn at_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.pieces[(index >> PIECE_BITS) as usize][index as usize % PIECE_LEN]
    }

    fn free_place(&mut self) -> u32 {
        if self.free == NONE {
            let first = narrow(self.capacity());
            self.pieces.push(vec![FREE; PIECE_LEN].into_boxed_slice());
            let end = narrow(self.capacity());
            (first..end).rev().for_each(|index| self.put_free(index));
        }
        let index = self.free;
        self.free = self.at(index).links[ALL].next;
        index
    }

    fn put_free(&mut self, index: u32) {
        let next = core::mem::replace(&mut self.free, index);
        let entry = self.at_mut(index);
        debug_assert!(next != index, "a slot was freed twice");
        *entry = FREE;
        entry.links[ALL].next = next;
    }

    fn hold_request(&mut self, announced: Announced, len: u64) -> u32 {
        if let Some(index) = self.free_requests.pop() {
            self.requests[index as usize] = (announced, len);
            return index;
        }
        self.requests.push((announced, len));
        narrow(self.requests.len() - 1)
    }

    #[inline]
    fn search(&self, kind: usize, head: u32, is_selected: impl Fn(&Entry) -> bool) -> Option<u32> {
        let mut index = head;
        while index != NONE {
            let entry = self.at(index);
            if is_selected(entry) {
                return Some(index);
            }
            index = entry.links[kind].next;
        }
        None
    }

    fn link(&mut self, kind: usize, index: u32) {
        let tail = core::mem::replace(&mut self.list_of(kind, index).tail, index);
        self.at_mut(index).links[kind].prev = tail;
        match tail {
            NONE => self.list_of(kind, index).head = index,
            tail => self.at_mut(tail).links[kind].next = index,
        }
    }

    fn unlink(&mut self, kind: usize, index: u32) {
        let Link { prev, next } = self.at(index).links[kind];
        match prev {
            NONE => self.list_of(kind, index).head = next,
            prev => self.at_mut(prev).links[kind].next = next,
        }
        match next {
            NONE => self.list_of(kind, index).tail = prev,
            next => self.at_mut(next).links[kind].prev = prev,
        }
    }

    #[inline]
    fn list_of(&mut self, kind: usize, index: u32) -> &mut List {
        let Entry { tag, peer, .. } = *self.at(index);
        let key = tag & self.key_mask;
        match kind {
            BY_SENDER => {
                let bin = self.bin_of(sender_key(key, peer));
                &mut self.by_sender[bin]
            }
            BY_TAG => {
                let bin = self.bin_of(key);
                &mut self.by_tag[bin]
            }
            _ => &mut self.all,
        }
    }

    /// Returns the bin of a key. There are 2^n bins, chosen by the high bits of the hash.
    #[inline]
    fn bin_of(&self, key: u64) -> usize {
        let bits = self.by_sender.len().max(2).trailing_zeros();
        let bin = key.wrapping_mul(HASH_FACTOR) >> (u64::BITS - bits);
        narrow(bin)
    }
}

/// Combines tag and sender. The sender has a factor of its own, so that neighbouring tags of
/// neighbouring ranks differ.
#[inline]
fn sender_key(key: u64, peer: u32) -> u64 {
    key ^ u64::from(peer)
        .wrapping_add(1)
        .wrapping_mul(0xC2B2_AE3D_27D4_EB4F)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeldId;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn message(peer: u32, tag: u64, number: u32) -> Arrived {
        Arrived {
            peer: PeerId(peer),
            lane: LaneId::Low,
            match_bits: MatchBits {
                space: Space::Tagged,
                tag,
                imm: None,
            },
            len: 8,
            holds_credit: true,
            what: Waiting::Held(HeldId(number)),
        }
    }

    fn number(arrived: &Arrived) -> u32 {
        match arrived.what {
            Waiting::Held(held) => held.0,
            Waiting::Request(announced) => announced.sender_transfer,
        }
    }

    fn selector(tag: u64, ignore: u64, source: Option<u32>) -> Selector {
        Selector {
            space: Space::Tagged,
            tag,
            ignore,
            source: source.map(PeerId),
        }
    }

    /// Oracle: a plain list, searched from the front.
    // P11.3
    #[test]
    fn search_agrees_with_a_plain_list() {
        for seed in 0..4 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut queue = UnexpectedList::new(Space::Tagged);
            let mut oracle: Vec<Arrived> = Vec::new();
            let growth = [0.7, 0.3];
            for value in 0..30_000u32 {
                if rng.random_bool(growth[value as usize / 10_000 % 2]) {
                    let tag = rng.random_range(0..40) | rng.random_range(0..2) << 60;
                    let mut new = message(rng.random_range(0..3), tag, value);
                    new.match_bits.imm = rng.random_bool(0.5).then_some(u64::from(value));
                    if rng.random_bool(0.1) {
                        new.what = Waiting::Request(Announced {
                            sender_transfer: value,
                            remote_addr: 0,
                            fragment_len: 0,
                            link: crate::LinkId::UDP,
                        });
                        new.len = 1 << 40;
                    }
                    queue.push(&new);
                    oracle.push(new);
                    continue;
                }
                let ignores = [0, 1 << 60, 1 << 60, 3, u64::MAX];
                let selector = selector(
                    rng.random_range(0..40),
                    ignores[rng.random_range(0..ignores.len())],
                    [None, Some(0), Some(2)][rng.random_range(0..3)],
                );
                let takes = |item: &Arrived| {
                    (item.match_bits.tag | selector.ignore) == (selector.tag | selector.ignore)
                        && selector.source.is_none_or(|source| source == item.peer)
                };
                let expected = oracle.iter().position(takes);
                let expected = expected.map(|at| oracle.remove(at));
                let found = queue.find(&selector).map(|index| queue.remove(index));
                assert_eq!(
                    found.map(|item| number(&item)),
                    expected.map(|e| number(&e))
                );
                assert_eq!(
                    found.map(|item| item.match_bits),
                    expected.map(|e| e.match_bits)
                );
                assert_eq!(found.map(|item| item.len), expected.map(|e| e.len));
                assert_eq!(queue.len(), oracle.len());
            }
            for peer in 0..3 {
                let places = queue.places_from(PeerId(peer));
                let left: Vec<_> = places.iter().map(|&at| number(&queue.get(at))).collect();
                queue.remove_all(&places);
                let from = oracle.iter().filter(|item| item.peer == PeerId(peer));
                assert_eq!(left, from.map(number).collect::<Vec<_>>());
            }
            assert_eq!((queue.len(), queue.table_len()), (0, 0));
        }
    }

    /// Number of entries that a receive visits before it finds its message.
    fn steps_of(queue: &mut UnexpectedList, selector: &Selector) -> usize {
        let index = queue.find(selector).unwrap();
        let kind = if selector.source.is_some() {
            BY_SENDER
        } else {
            BY_TAG
        };
        let (mut count, mut at) = (1, index);
        while queue.at(at).links[kind].prev != NONE {
            at = queue.at(at).links[kind].prev;
            count += 1;
        }
        count
    }

    // P11.3
    #[test]
    fn one_of_a_million_is_found_in_few_steps() {
        const COUNT: u64 = 1_000_000;
        // Bits that MPI libraries reserve for themselves are in front of the tag.
        for ignore in [0, 0b11 << 60] {
            let mut queue = UnexpectedList::new(Space::Tagged);
            for tag in 0..COUNT {
                queue.push(&message(1, tag, 0));
            }
            assert!(queue.table_len() as u64 / COUNT < 80);
            for tag in (0..COUNT).step_by(997) {
                for source in [None, Some(1)] {
                    let count = steps_of(&mut queue, &selector(tag, ignore, source));
                    assert!(count < 40, "tag {tag}: {count} looks");
                }
            }
        }
        // One tag from many senders.
        let mut queue = UnexpectedList::new(Space::Tagged);
        for number in 0..100_000 {
            queue.push(&message(number % 1000, 5, number));
        }
        let count = steps_of(&mut queue, &selector(5, 0, Some(999)));
        assert!(count < 1000, "{count} looks");
    }

    #[test]
    fn drained_queue_frees_its_memory() {
        let mut queue = UnexpectedList::new(Space::Tagged);
        for tag in 0..100_000 {
            queue.push(&message(1, tag, 0));
        }
        let full = queue.table_len();
        for tag in 0..99_000 {
            let index = queue.find(&selector(tag, 0, None)).unwrap();
            queue.remove(index);
        }
        assert!(queue.table_len() < full / 10);
        assert!(queue.find(&selector(99_500, 0, Some(1))).is_some());
    }
}
