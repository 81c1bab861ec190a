// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source side of multicast: chooses the contents of the next datagram.
//!
//! Losses are detected without clocks. A host reports the number of its last datagram and the
//! pieces that it lacks. A piece last sent in a datagram before that number is lost; a piece sent
//! after it is in flight. Time matters only for the last datagrams before a silence, because no
//! host can notice their loss: the source then reports what it has sent.

use super::datagram::{Header, PIECES_MAX};
use super::{Front, Report, Terms, piece_count};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Add;
use std::time::Duration;

/// Silence after which the source reports what was sent: several times the sleep and wake-up of an
/// idle host. A shorter time costs messages, a longer one leaves the wire idle.
const REPORT_TIMEOUT: Duration = Duration::from_millis(3);

/// Upper bound of that time, which doubles while a host does not reply.
const REPORT_TIMEOUT_MAX: Duration = Duration::from_millis(400);

/// Lost pieces considered for combination with another one. The blocks in flight have hundreds of
/// lost pieces at worst.
const CANDIDATES_MAX: usize = 64;

/// Blocks that must have begun after a block before its lost pieces are repaired, while there is
/// new data to send. All hosts have then reported their losses, and one datagram repairs more of
/// them. The lag is part of the blocks that hosts hold anyway.
const REPAIR_LAG: u64 = 3;

/// A point in time of any clock chosen by the caller.
pub trait Moment: Copy + Ord + Add<Duration, Output = Self> {}

impl<T: Copy + Ord + Add<Duration, Output = T>> Moment for T {}

/// Progress of the source, for hosts that may have missed the last datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of the last datagram.
    pub serial: u64,
    /// Position after the last piece sent so far.
    pub front: Front,
}

/// Progress of one host.
#[derive(Debug)]
struct Member {
    seen: u64,
    /// The first block that is not complete there.
    next: u64,
}

/// A block that was sent completely or in part.
#[derive(Debug)]
struct Block {
    len: usize,
    /// Number of the last datagram with each piece; 0 for none.
    serials: Vec<u64>,
}

/// State of the source.
#[derive(Debug)]
pub struct Caster<T> {
    piece_len: usize,
    window: u64,
    /// Number of the last datagram.
    serial: u64,
    /// The next piece that was never sent.
    front: Front,
    /// Number of the first block in `blocks`.
    first: u64,
    blocks: VecDeque<Block>,
    members: BTreeMap<u32, Member>,
    /// Lost pieces, with the hosts that lack them, until they are sent again.
    lost: BTreeMap<(u64, u16), Vec<u32>>,
    /// Time of the last datagram or progress report.
    moved: T,
    report_timeout: Duration,
}

impl<T: Moment> Caster<T> {
    /// Creates a source for these hosts.
    pub fn new(members: impl Iterator<Item = u32>, terms: Terms, now: T) -> Caster<T> {
        let member = Member {
            seen: terms.serial,
            next: 0,
        };
        let members = members.map(|rank| (rank, Member { ..member }));
        Caster {
            piece_len: terms.piece_len,
            window: terms.window.max(1),
            serial: terms.serial,
            front: Front::default(),
            first: 0,
            blocks: VecDeque::new(),
            members: members.collect(),
            lost: BTreeMap::new(),
            moved: now,
            report_timeout: REPORT_TIMEOUT,
        }
    }

    /// Returns the header of the next datagram, if one may be sent now. `len_of` returns the length
    /// of a block's message, if the block is available.
    pub fn next(&mut self, now: T, len_of: impl FnOnce(u64) -> Option<usize>) -> Option<Header> {
        let seen = self.members.values().map(|member| member.seen).min()?;
        if self.serial - seen.min(self.serial) >= self.window {
            return None;
        }
        let oldest = self.lost.first_key_value();
        let is_due = oldest.is_some_and(|((block, _), _)| block + REPAIR_LAG <= self.front.block);
        let (block, pieces) = match is_due {
            true => self.repair(),
            false => self.fresh(len_of).or_else(|| self.repair()),
        }?;
        self.serial += 1;
        let sent = self
            .blocks
            .get_mut(usize::try_from(block - self.first).ok()?)?;
        for piece in &pieces {
            sent.serials[usize::from(*piece)] = self.serial;
        }
        let header = Header {
            serial: self.serial,
            block,
            len: sent.len,
            pieces,
        };
        self.on_sent(now);
        Some(header)
    }

    /// Records that the datagram of [`Caster::next`] was sent just now.
    pub fn on_sent(&mut self, now: T) {
        (self.moved, self.report_timeout) = (now, REPORT_TIMEOUT);
    }

    /// Returns the first lost piece and further lost pieces of its block, such that each host lacks
    /// at most one of them.
    fn repair(&mut self) -> Option<(u64, Vec<u16>)> {
        let ((block, piece), mut ranks) = self.lost.pop_first()?;
        let mut pieces = vec![piece];
        let others = self.lost.range((block, 0)..=(block, u16::MAX));
        for ((_, other), theirs) in others.take(CANDIDATES_MAX) {
            if pieces.len() == PIECES_MAX {
                break;
            }
            if !theirs.iter().any(|rank| ranks.contains(rank)) {
                ranks.extend(theirs);
                pieces.push(*other);
            }
        }
        for piece in &pieces[1..] {
            self.lost.remove(&(block, *piece));
        }
        Some((block, pieces))
    }

    fn fresh(&mut self, len_of: impl FnOnce(u64) -> Option<usize>) -> Option<(u64, Vec<u16>)> {
        let Front { block, pieces } = self.front;
        let index = usize::try_from(block - self.first).ok()?;
        if index == self.blocks.len() {
            let len = len_of(block)?;
            self.blocks.push_back(Block {
                len,
                serials: vec![0; usize::from(piece_count(len, self.piece_len))],
            });
        }
        let count = self.blocks.get(index)?.serials.len();
        self.front.pieces += 1;
        if usize::from(self.front.pieces) == count {
            self.front = Front {
                block: block + 1,
                pieces: 0,
            };
        }
        Some((block, vec![pieces]))
    }

    /// Handles a host's progress report.
    pub fn on_report(&mut self, rank: u32, report: &Report) {
        let Some(member) = self.members.get_mut(&rank) else {
            return;
        };
        let seen = report.seen.min(self.serial);
        member.seen = member.seen.max(seen);
        member.next = member.next.max(report.next);
        for missing in &report.missing {
            let index = missing.block.checked_sub(self.first);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let Some(sent) = index.and_then(|index| self.blocks.get(index)) else {
                continue;
            };
            let count = u16::try_from(sent.serials.len()).unwrap_or(u16::MAX);
            for piece in missing.ranges.iter().flat_map(|(a, b)| *a..(*b).min(count)) {
                let last = sent.serials[usize::from(piece)];
                if last > 0 && last <= seen {
                    let ranks = self.lost.entry((missing.block, piece)).or_default();
                    if !ranks.contains(&rank) {
                        ranks.push(rank);
                    }
                }
            }
        }
    }

    /// Removes a failed host.
    pub fn remove_member(&mut self, rank: u32) {
        self.members.remove(&rank);
        self.lost.retain(|_, ranks| {
            ranks.retain(|other| *other != rank);
            !ranks.is_empty()
        });
    }

    /// Removes the blocks below `below`, which are complete at all hosts.
    pub fn forget(&mut self, below: u64) {
        // A host may report anything, but blocks that were not sent cannot have arrived.
        let below = below.min(self.front.block);
        while self.first < below && self.blocks.pop_front().is_some() {
            self.first += 1;
        }
        self.lost = self.lost.split_off(&(self.first, 0));
    }

    /// Returns the time to call [`Caster::on_time`], or `None` while every host has everything.
    #[must_use]
    pub fn timeout(&self) -> Option<T> {
        let is_behind = self.members.values().any(|member| self.is_behind(member));
        is_behind.then(|| self.moved + self.report_timeout)
    }

    /// Returns the hosts to notify after a silence, and the report for each.
    pub fn on_time(&mut self, now: T) -> Vec<(u32, Sent)> {
        if self.timeout().is_none_or(|timeout| now < timeout) {
            return Vec::new();
        }
        self.moved = now;
        self.report_timeout = (2 * self.report_timeout).min(REPORT_TIMEOUT_MAX);
        let sent = Sent {
            serial: self.serial,
            front: self.front,
        };
        let behind = self
            .members
            .iter()
            .filter(|(_, member)| self.is_behind(member));
        behind.map(|(rank, _)| (*rank, sent)).collect()
    }

    fn is_behind(&self, member: &Member) -> bool {
        member.seen < self.serial || member.next < self.front.block
    }
}
