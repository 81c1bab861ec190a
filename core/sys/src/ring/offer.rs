// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sharing the copy of a long message between the two processes of a ring.
//!
//! Such a message does not go through the ring: its receiver reads it from the sender's memory.
//! Meanwhile the receiver offers the message to the sender. Both claim units of it through one
//! word, the receiver from the front and the sender from the back, and each copies its claims. The
//! receiver copies all units that the sender never claims, so it does not wait for an absent
//! process.
//!
//! In the header of the ring, in host byte order:
//!
//! ```text
//! 512  claim word u64, from its high end: offer number u32, first unclaimed unit u16, end u16
//! 520  address at the sender u64, at the receiver u64, length u64, length of a unit u64
//! 640  units that the sender has copied; bit 31: it failed; upper half: number of the offer
//! ```
//!
//! Invariant: a new offer is made only when the previous one has no unclaimed unit and the sender
//! has finished all its claims. No write is therefore late.
//!
//! SYNC pairs, named at both ends:
//! - *offer*: the receiver's release of the claim word, the sender's acquire: the fields are readable.
//! - *share*: the sender's release of its count, the receiver's acquire: the sender's bytes are
//!   visible.

use super::{RingBroken, RingReceiver, RingSender};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
use std::ops::Range;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// Maximum number of units of a message; their numbers have 16 bits.
const UNITS_MAX: u64 = u16::MAX as u64;

/// Minimum length of a unit in bytes. A copying call has an overhead of about 1 µs; 64 KiB take
/// about 6 µs.
const UNIT_LEN: u64 = 64 * 1024;

/// Shortest message that is offered: with fewer bytes, one side would have less than a unit.
pub const OFFER_LEN_MIN: usize = 2 * 64 * 1024;

/// Maximum number of units that the sender claims at once, so that the receiver waits only briefly
/// for the last claim.
const SENDER_UNITS_MAX: u32 = 4;

/// Bit of the sender's count: it could not write, and will not try again.
const FAILED: u64 = 1 << 31;

/// Terms of an offer in shared memory: the receiver of the message lets its sender copy a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Address in the sender's memory.
    pub(super) source: u64,
    /// Destination in the receiver's memory.
    target: u64,
    len: u64,
    unit_len: u64,
}

impl Terms {
    fn of(source: u64, target: u64, len: u64) -> Terms {
        let unit_len = UNIT_LEN.max(len.div_ceil(UNITS_MAX).next_multiple_of(4096));
        Terms {
            source,
            target,
            len,
            unit_len,
        }
    }

    fn unit_count(&self) -> u32 {
        u32::try_from(self.len.div_ceil(self.unit_len)).unwrap_or(0)
    }

    /// Returns the range of bytes that these units cover.
    fn bytes(&self, units: &Range<u32>) -> Range<usize> {
        let at = |unit: u32| (u64::from(unit) * self.unit_len).min(self.len);
        let place = |unit| usize::try_from(at(unit)).unwrap_or(usize::MAX);
        place(units.start)..place(units.end)
    }

    fn store(&self, fields: [&AtomicU64; 4]) {
        let values = [self.source, self.target, self.len, self.unit_len];
        for (field, value) in fields.into_iter().zip(values) {
            field.store(value, Ordering::Relaxed);
        }
    }

    fn load(fields: [&AtomicU64; 4]) -> Terms {
        let [source, target, len, unit_len] = fields.map(|field| field.load(Ordering::Relaxed));
        Terms {
            source,
            target,
            len,
            unit_len,
        }
    }
}

/// Unclaimed part of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// Number of the offer; 0 for none.
    number: u32,
    units: [u16; 2],
}

impl Open {
    #[allow(clippy::cast_possible_truncation, reason = "takes the word apart")]
    fn decode(word: u64) -> Open {
        Open {
            number: (word >> 32) as u32,
            units: [(word >> 16) as u16, word as u16],
        }
    }

    fn encode(number: u32, units: &Range<u32>) -> u64 {
        u64::from(number) << 32 | u64::from(units.start) << 16 | u64::from(units.end)
    }

    fn units(&self) -> Range<u32> {
        u32::from(self.units[0])..u32::from(self.units[1])
    }
}

/// Private copy of an offer at the message's receiver, which the sender cannot change.
#[derive(Debug, Default)]
pub(super) struct Offered {
    number: u32,
    terms: Option<Terms>,
    /// Unclaimed units, as last read.
    left: Range<u32>,
}

/// Progress of the sender with its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helped {
    /// The sender is still copying.
    Busy,
    /// All bytes from this offset on have been written.
    From(usize),
    /// The bytes from this offset on are missing, and the sender will write no more.
    NotFrom(usize),
}

impl RingReceiver {
    /// Offers the sender a part in copying `len` bytes from its address `source` to `target`, an
    /// address of this process. `target` must stay writable until [`RingReceiver::helped`] no
    /// longer returns [`Helped::Busy`].
    pub fn offer(&mut self, source: u64, target: u64, len: usize) {
        let terms = Terms::of(source, target, len as u64);
        let number = self.offered.number.wrapping_add(1).max(1);
        let left = 0..terms.unit_count();
        terms.store(self.memory.offer_fields());
        // SYNC: offer (release; the fields were written before).
        let open = Open::encode(number, &left);
        self.memory.offer().store(open, Ordering::Release);
        self.offered = Offered {
            number,
            terms: Some(terms),
            left,
        };
    }

    /// Claims the next bytes of the offer from the front: half of the rest. Returns `None` if none
    /// are left.
    ///
    /// # Errors
    /// [`RingBroken`] if the sender wrote an invalid value.
    pub fn claim_front(&mut self) -> Result<Option<Range<usize>>, RingBroken> {
        let Some(terms) = self.offered.terms else {
            return Ok(None);
        };
        loop {
            let word = self.memory.offer().load(Ordering::Acquire);
            let open = Open::decode(word);
            let (left, known) = (open.units(), &mut self.offered.left);
            // Only the end moves, and only towards the front.
            let is_possible = open.number == self.offered.number
                && left.start == known.start
                && (left.start..=known.end).contains(&left.end);
            if !is_possible {
                return Err(RingBroken("the claims of an offer are out of bounds"));
            }
            known.end = left.end;
            let Some(count) = share(&left) else {
                return Ok(None);
            };
            let begin = left.start + count;
            let next = Open::encode(open.number, &(begin..left.end));
            if swap(self.memory.offer(), word, next) {
                known.start = begin;
                return Ok(Some(terms.bytes(&(left.start..begin))));
            }
        }
    }

    /// Withdraws the unclaimed part of the offer.
    pub fn withdraw_offer(&mut self) {
        let word = self.memory.offer().swap(0, Ordering::AcqRel);
        let (known, end) = (&mut self.offered.left, Open::decode(word).units().end);
        // An invalid value counts as claimed: the sender then either reports it as finished, or
        // exits.
        known.end = end.clamp(known.start, known.end);
        known.start = known.end;
    }

    /// Returns the progress of the sender with its share, once nothing is left to claim.
    #[must_use]
    pub fn helped(&self) -> Helped {
        let Some(terms) = self.offered.terms else {
            return Helped::From(0);
        };
        let (count, end) = (terms.unit_count(), self.offered.left.end);
        let from = terms.bytes(&(end..count)).start;
        if end == count {
            return Helped::From(from);
        }
        // SYNC: share (acquire; the sender's bytes were written before).
        let done = self.memory.offer_done().load(Ordering::Acquire);
        let expected = u64::from(self.offered.number) << 32 | u64::from(count - end);
        match done {
            _ if done == expected => Helped::From(from),
            _ if done == expected | FAILED => Helped::NotFrom(from),
            _ => Helped::Busy,
        }
    }
}

/// Progress of the sender with offers.
#[derive(Debug, Default)]
pub(super) struct Claims {
    number: u32,
    count: u32,
    has_failed: bool,
}

/// A share of the sender, to be copied now and completed by [`RingSender::finish`].
#[derive(Debug)]
#[must_use = "the receiver waits for it"]
pub struct Claim {
    number: u32,
    unit_count: u32,
    /// Range within the message.
    pub bytes: Range<usize>,
    /// Destination of the first byte in the receiver's memory.
    pub target: u64,
}

impl RingSender {
    /// Returns the address of the offered message in this process, if a part is unclaimed. Costs
    /// one load of a line that changes only with offers.
    #[inline]
    #[must_use]
    pub fn offered(&self) -> Option<u64> {
        // SYNC: offer (acquire).
        let open = Open::decode(self.memory.offer().load(Ordering::Acquire));
        if open.units().is_empty() || self.claims.has_failed {
            return None;
        }
        Some(self.memory.offer_fields()[0].load(Ordering::Relaxed))
    }

    /// Claims bytes from the back of the message of `len` bytes at `source`, if it is offered.
    pub fn claim_back(&mut self, source: u64, len: usize) -> Option<Claim> {
        if self.claims.has_failed {
            return None;
        }
        // SYNC: offer (acquire; the fields belong to this offer or to a later one).
        let word = self.memory.offer().load(Ordering::Acquire);
        let (open, terms) = (Open::decode(word), Terms::load(self.memory.offer_fields()));
        let left = open.units();
        let count = share(&left)?.min(SENDER_UNITS_MAX);
        // The receiver's length is limited to that of the message.
        let is_possible = open.number != 0
            && terms.source == source
            && terms.len <= len as u64
            && terms.unit_len >= UNIT_LEN
            && left.end <= terms.unit_count();
        let begin = left.end - count;
        let next = Open::encode(open.number, &(left.start..begin));
        // If it succeeds, the offer was not closed meanwhile, so the fields are its own.
        if !is_possible || !swap(self.memory.offer(), word, next) {
            return None;
        }
        let bytes = terms.bytes(&(begin..left.end));
        Some(Claim {
            number: open.number,
            unit_count: count,
            target: terms.target.wrapping_add(bytes.start as u64),
            bytes,
        })
    }

    /// Reports to the receiver that the bytes of `claim` were written, or that this process cannot
    /// write them and claims no more.
    pub fn finish(&mut self, claim: &Claim, ok: bool) {
        let claims = &mut self.claims;
        if claims.number != claim.number {
            (claims.number, claims.count) = (claim.number, 0);
        }
        claims.count += claim.unit_count;
        claims.has_failed |= !ok;
        let failed = if claims.has_failed { FAILED } else { 0 };
        let done = u64::from(claims.number) << 32 | failed | u64::from(claims.count);
        // SYNC: share (release; our bytes come before).
        self.memory.offer_done().store(done, Ordering::Release);
    }
}

/// Returns half of the rest, at least one unit. The first side takes a large share, and the last
/// shares are small, so both finish together.
fn share(left: &Range<u32>) -> Option<u32> {
    let count = left.end.checked_sub(left.start)?;
    (count > 0).then_some((count / 2).max(1))
}

fn swap(word: &AtomicU64, from: u64, to: u64) -> bool {
    let swapped = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    swapped.is_ok()
}
