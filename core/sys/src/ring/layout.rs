// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of a ring's memory, and the word that precedes each entry.
#![cfg_attr(
    loom,
    allow(dead_code, reason = "loom's model has fields instead of offsets")
)]

/// "PTLRING" and the version of this layout, as the first 8 bytes in native byte order, because
/// both ends are on one host.
pub(super) const MAGIC: u64 = 0x5054_4c52_494e_4702;

/// Offset of [`MAGIC`].
pub(super) const MAGIC_OFF: usize = 0;
/// Offset of the ring's length.
pub(super) const RING_LEN_OFF: usize = 8;

// Fields are 128 bytes apart, not 64: the adjacent-line prefetcher of x86 fetches lines in pairs,
// and would transfer a neighbour's line together with the polled one.

/// Offset of the head: the number of bytes consumed. Written by the receiver a few times per lap.
pub(super) const HEAD_OFF: usize = 128;
/// Offset of the receiver's state. It changes only around a sleep. It therefore stays in the
/// sender's cache in shared state, and reading it after each frame costs no transfer. On the head's
/// line it would be invalidated with each head.
pub(super) const RECEIVER_STATE_OFF: usize = 256;
/// Offset of the flag of a sender that sleeps because the ring is full.
pub(super) const SENDER_WAITING_OFF: usize = 384;

/// Offset of the unclaimed part of a message that the receiver copies. The terms of the offer
/// follow: four words written by the receiver.
pub(super) const OFFER_OFF: usize = 512;
/// Offset of the sender's count of copied units.
pub(super) const OFFER_DONE_OFF: usize = 640;

/// Offset of the data: one page for the header keeps the data page-aligned.
pub(super) const DATA_OFF: usize = 4096;

/// Receiver state: it issues fences for its senders when it goes to sleep.
pub(super) const STATE_FENCES: u64 = 1 << 0;
/// Receiver state: it sleeps, or is about to; ring the bell.
pub(super) const STATE_SLEEPING: u64 = 1 << 1;

/// Bytes of the word that precedes an entry, and alignment of entries.
pub(super) const WORD: usize = 8;

/// Bit of a committed word, which distinguishes it from an empty one.
const COMMITTED: u64 = 1 << 63;
/// Bit of an entry that only fills the ring up to its end.
const PADDING: u64 = 1 << 62;

/// Shortest ring; a quarter of it still holds a page with its word.
pub const RING_LEN_MIN: usize = 16 * 1024;
/// Longest ring, far beyond any cache. Bounds the memory that a peer can make this process map.
pub const RING_LEN_MAX: usize = 64 * 1024 * 1024;

/// Decoded word of an entry. `P8.7`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Nothing is committed here yet.
    Empty,
    /// A frame of this many bytes follows.
    Frame(usize),
    /// The rest of this lap is unused.
    Padding,
    /// A word that no correct sender writes.
    Invalid,
}

impl Word {
    /// Encodes the word as 8 bytes.
    #[inline]
    pub(super) fn encode(self) -> u64 {
        match self {
            Word::Frame(len) => COMMITTED | len as u64,
            Word::Padding => COMMITTED | PADDING,
            Word::Empty | Word::Invalid => 0,
        }
    }

    /// Decodes 8 bytes. A length above `frame_len_max` is invalid.
    #[inline]
    pub(super) fn decode(raw: u64, frame_len_max: usize) -> Self {
        if raw == 0 {
            return Word::Empty;
        }
        let len = raw ^ COMMITTED;
        if len <= frame_len_max as u64 {
            Word::Frame(to_usize(len))
        } else if len == PADDING {
            Word::Padding
        } else {
            Word::Invalid
        }
    }
}

/// Returns the bytes that a frame occupies in the ring.
#[inline]
pub(super) fn entry_len(frame_len: usize) -> usize {
    // By a mask: `next_multiple_of` takes a branch or a conditional move.
    WORD + ((frame_len + WORD - 1) & !(WORD - 1))
}

/// Returns the longest frame of a ring: a quarter. A frame, the padding before it and the consumed
/// space that was not returned yet then always fit together.
#[must_use]
pub fn frame_len_max(ring_len: usize) -> usize {
    ring_len / 4 - WORD
}

/// Returns the bytes of the memory file behind a ring.
#[must_use]
pub fn file_len(ring_len: usize) -> usize {
    DATA_OFF + ring_len
}

/// Returns `true` if a ring may have this length.
#[must_use]
pub fn is_valid_ring_len(ring_len: usize) -> bool {
    ring_len.is_power_of_two() && (RING_LEN_MIN..=RING_LEN_MAX).contains(&ring_len)
}

/// Converts an index to an offset.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "only 64-bit targets are built, see below"
)]
pub(super) fn to_usize(index: u64) -> usize {
    index as usize
}

const _: () = assert!(usize::BITS == 64, "ring indexes need a 64-bit target");
const _: () = assert!(OFFER_DONE_OFF + WORD <= DATA_OFF);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_round_trip() {
        for word in [
            Word::Frame(0),
            Word::Frame(1),
            Word::Frame(4088),
            Word::Padding,
        ] {
            assert_eq!(Word::decode(word.encode(), 4088), word);
        }
        assert_eq!(Word::decode(0, 4088), Word::Empty);
    }

    #[test]
    fn word_with_excess_length_or_unknown_bits_is_invalid() {
        for raw in [
            COMMITTED | 4089,
            17,
            PADDING,
            COMMITTED | PADDING | 8,
            u64::MAX,
        ] {
            assert_eq!(Word::decode(raw, 4088), Word::Invalid, "{raw:#x}");
        }
    }

    #[test]
    fn entries_are_aligned_and_hold_their_word() {
        assert_eq!([0, 1, 8, 9, 88].map(entry_len), [8, 16, 16, 24, 96]);
    }
}
