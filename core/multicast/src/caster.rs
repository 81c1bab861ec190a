// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source's side of multicast: what is in the next datagram.
//!
//! Whether a piece is lost is told without clocks: a host says which datagrams have come, by the number
//! of the last, and which pieces it lacks. A piece that was last sent by a datagram before that one is
//! lost; one that was sent after it is under way. Time is only for the last datagrams of a silence, which
//! nobody misses: the source says then what it has sent.

use super::datagram::{Header, PIECES_MAX};
use super::{Front, Report, Terms, piece_count};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Add;
use std::time::Duration;

/// Silence after which hosts are told what was sent: a sleep and a wake of a host that is not busy, some
/// times over. Too short costs messages, too long idle wire.
const PATIENCE: Duration = Duration::from_millis(3);

/// Most that it grows to, by doubling, while a host does not answer.
const PATIENCE_MAX: Duration = Duration::from_millis(400);

/// Pieces that are looked through for those to be laid over another: the blocks under way have some
/// hundreds of lost ones at worst.
const LOOKED_THROUGH: usize = 64;

/// Lost pieces wait until that many blocks have begun after theirs, while there is something new to send: by
/// then all hosts have said what they lack, and one datagram repairs more. It is a part of the blocks that
/// hosts hold anyway.
const REPAIR_LAG: u64 = 3;

/// A point in time, by whatever clock the caller has.
pub trait Moment: Copy + Ord + Add<Duration, Output = Self> {}

impl<T: Copy + Ord + Add<Duration, Output = T>> Moment for T {}

/// What the source has sent, for hosts that may have missed the last of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of the last datagram.
    pub serial: u64,
    /// One past the last piece that was ever sent.
    pub front: Front,
}

/// How far one host is.
#[derive(Debug)]
struct Member {
    seen: u64,
    /// The first block that is not whole there.
    next: u64,
}

/// A block that was sent, or begun.
#[derive(Debug)]
struct Block {
    len: usize,
    /// Number of the last datagram with each piece; 0 for none.
    serials: Vec<u64>,
}

/// The state of the source.
#[derive(Debug)]
pub struct Caster<T> {
    piece_len: usize,
    window: u64,
    /// Number of the last datagram.
    serial: u64,
    /// The next piece that was never sent.
    front: Front,
    /// Blocks from this number on.
    first: u64,
    blocks: VecDeque<Block>,
    members: BTreeMap<u32, Member>,
    /// Lost pieces, and who lacks them, until they are sent again.
    wanted: BTreeMap<(u64, u16), Vec<u32>>,
    /// When it last sent, or told that it had.
    moved: T,
    patience: Duration,
}

impl<T: Moment> Caster<T> {
    /// A source of these hosts.
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
            wanted: BTreeMap::new(),
            moved: now,
            patience: PATIENCE,
        }
    }

    /// The header of the next datagram, if one may be sent now; `len_of` tells how long the message of a
    /// block is, if it is there to be sent.
    pub fn next(&mut self, now: T, len_of: impl FnOnce(u64) -> Option<usize>) -> Option<Header> {
        let seen = self.members.values().map(|member| member.seen).min()?;
        if self.serial - seen.min(self.serial) >= self.window {
            return None;
        }
        let oldest = self.wanted.first_key_value();
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

    /// What it gave was sent just now.
    pub fn on_sent(&mut self, now: T) {
        (self.moved, self.patience) = (now, PATIENCE);
    }

    /// The first lost piece, and others of its block which nobody lacks who lacks one of these.
    fn repair(&mut self) -> Option<(u64, Vec<u16>)> {
        let ((block, piece), mut ranks) = self.wanted.pop_first()?;
        let mut pieces = vec![piece];
        let others = self.wanted.range((block, 0)..=(block, u16::MAX));
        for ((_, other), theirs) in others.take(LOOKED_THROUGH) {
            if pieces.len() == PIECES_MAX {
                break;
            }
            if !theirs.iter().any(|rank| ranks.contains(rank)) {
                ranks.extend(theirs);
                pieces.push(*other);
            }
        }
        for piece in &pieces[1..] {
            self.wanted.remove(&(block, *piece));
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

    /// A host has told how far it is.
    pub fn on_report(&mut self, rank: u32, report: &Report) {
        let Some(member) = self.members.get_mut(&rank) else {
            return;
        };
        let seen = report.seen.min(self.serial);
        member.seen = member.seen.max(seen);
        member.next = member.next.max(report.next);
        for lack in &report.lacks {
            let index = lack.block.checked_sub(self.first);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let Some(sent) = index.and_then(|index| self.blocks.get(index)) else {
                continue;
            };
            let count = u16::try_from(sent.serials.len()).unwrap_or(u16::MAX);
            for piece in lack.ranges.iter().flat_map(|(a, b)| *a..(*b).min(count)) {
                let last = sent.serials[usize::from(piece)];
                if last > 0 && last <= seen {
                    let ranks = self.wanted.entry((lack.block, piece)).or_default();
                    if !ranks.contains(&rank) {
                        ranks.push(rank);
                    }
                }
            }
        }
    }

    /// A host is gone.
    pub fn on_gone(&mut self, rank: u32) {
        self.members.remove(&rank);
        self.wanted.retain(|_, ranks| {
            ranks.retain(|other| *other != rank);
            !ranks.is_empty()
        });
    }

    /// Nobody lacks anything of the blocks below.
    pub fn forget(&mut self, below: u64) {
        // A host may say anything; what was not sent has not arrived.
        let below = below.min(self.front.block);
        while self.first < below && self.blocks.pop_front().is_some() {
            self.first += 1;
        }
        self.wanted = self.wanted.split_off(&(self.first, 0));
    }

    /// When to call [`Caster::on_time`]; `None` while everything has come everywhere.
    #[must_use]
    pub fn timeout(&self) -> Option<T> {
        let is_behind = self.members.values().any(|member| self.is_behind(member));
        is_behind.then(|| self.moved + self.patience)
    }

    /// Whom to tell what, after a silence.
    pub fn on_time(&mut self, now: T) -> Vec<(u32, Sent)> {
        if self.timeout().is_none_or(|timeout| now < timeout) {
            return Vec::new();
        }
        self.moved = now;
        self.patience = (2 * self.patience).min(PATIENCE_MAX);
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
