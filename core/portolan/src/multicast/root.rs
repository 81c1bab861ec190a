// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root's side of a broadcast by multicast: what is sent next, to whom, and who is done.

use super::word::{Announcement, Word};
use super::{BLOCKS_AHEAD, block_count, block_range};
use crate::buffer::Buffer;
use portolan_multicast::{Caster, Codec, Run, Sent, Terms};
use portolan_proto::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Looks at a member between which it has heard nothing of what was sent, until it is taken for deaf, and the time
/// between two: a switch that watches who joins groups may take some tens of milliseconds to learn.
const STRIKES: u32 = 4;
const STRIKES_APART: Duration = Duration::from_millis(25);

/// A run is this share of the window: more of a burst is lost at once.
const RUNS_IN_WINDOW: u64 = 8;

/// How far a member is that does not have everything.
#[derive(Debug)]
struct Member {
    /// The first block that is not whole there.
    next: u64,
    /// It is in this broadcast.
    is_here: bool,
    /// Of the last look: number of the last datagram, how many had come, and when that was.
    looked: (u64, u64, Instant),
    strikes: u32,
    /// It was told to take the data by a message, and has not answered.
    is_told: bool,
}

/// See the module documentation.
pub(super) struct Root {
    codec: Codec,
    buffer: Buffer,
    piece_len: usize,
    /// Datagrams that members were told may be under way.
    announced: u32,
    /// Members that get the data by multicast and do not have all of it.
    members: BTreeMap<u32, Member>,
    /// Those of whom it is not known whether they have joined.
    unready: BTreeSet<u32>,
    /// Members that get it by a message.
    direct: Vec<u32>,
    caster: Option<Caster<Instant>>,
    run: Run,
    run_count: usize,
    is_blocked: bool,
    /// Sending has failed: all get it by a message.
    has_failed: bool,
    gone: Option<u32>,
}

impl Root {
    /// `unready` are those of `ranks` of whom it is not known whether they have joined.
    pub(super) fn new(
        (codec, announcement): (Codec, &Announcement),
        buffer: Buffer,
        ranks: impl Iterator<Item = u32>,
        unready: BTreeSet<u32>,
        now: Instant,
    ) -> Root {
        let member = |rank| {
            let member = Member {
                next: 0,
                is_here: false,
                looked: (0, 0, now),
                strikes: 0,
                is_told: false,
            };
            (rank, member)
        };
        Root {
            codec,
            buffer,
            piece_len: usize::from(announcement.piece_len),
            announced: announcement.window,
            members: ranks.map(member).collect(),
            unready,
            direct: Vec::new(),
            caster: None,
            run: Run::default(),
            run_count: 1,
            is_blocked: false,
            has_failed: false,
            gone: None,
        }
    }

    /// All have everything, but for those who get it by a message.
    pub(super) fn is_settled(&self) -> bool {
        self.members.is_empty()
    }

    /// For whom it waits.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    /// A member for which it waits is gone.
    pub(super) fn gone(&self) -> Option<u32> {
        self.gone
    }

    pub(super) fn on_gone(&mut self, rank: u32) {
        if self.members.contains_key(&rank) {
            self.gone.get_or_insert(rank);
        }
    }

    /// The buffer, and who gets it by a message.
    pub(super) fn into_parts(self) -> (Buffer, Vec<u32>) {
        (self.buffer, self.direct)
    }

    /// A member is in this broadcast, and has joined; whether it is to be told to take the data by a message.
    pub(super) fn on_ready(&mut self, rank: u32, now: Instant) -> bool {
        self.unready.remove(&rank);
        if let Some(member) = self.members.get_mut(&rank) {
            member.is_here = true;
            member.looked.2 = now;
            if self.has_failed {
                return self.give_up(rank);
            }
            if let Some(caster) = &mut self.caster {
                // What it has missed is asked of it soon, not after the silence that was kept for it.
                caster.on_sent(now);
            }
        }
        false
    }

    /// A member says that it takes the data by a message.
    pub(super) fn on_refused(&mut self, rank: u32) {
        self.unready.remove(&rank);
        if self.members.remove(&rank).is_some() {
            self.direct.push(rank);
        }
        if let Some(caster) = &mut self.caster {
            caster.on_gone(rank);
        }
    }

    /// Nothing is sent again for a member; whether it is to be told so. It answers that it takes the data by a
    /// message, or has said already that it has everything.
    fn give_up(&mut self, rank: u32) -> bool {
        if let Some(caster) = &mut self.caster {
            caster.on_gone(rank);
        }
        let member = self.members.get_mut(&rank);
        member.is_some_and(|member| member.is_here && !std::mem::replace(&mut member.is_told, true))
    }

    /// The system does not send: whom to tell to take the data by a message. Others are told when they come.
    pub(super) fn fail(&mut self) -> Vec<u32> {
        self.has_failed = true;
        self.is_blocked = false;
        let mut ranks: Vec<u32> = self.members.keys().copied().collect();
        ranks.retain(|rank| self.give_up(*rank));
        ranks
    }

    /// A member has told how far it is; whether it is deaf, and to be told to take the data by a message.
    pub(super) fn on_report(
        &mut self,
        rank: u32,
        (report, got): (&portolan_multicast::Report, u64),
        now: Instant,
    ) -> bool {
        let (Some(member), Some(caster)) = (self.members.get_mut(&rank), &mut self.caster) else {
            return false;
        };
        if report.next >= block_count(self.buffer.len()) {
            self.members.remove(&rank);
            caster.on_gone(rank);
            return false;
        }
        member.next = member.next.max(report.next);
        caster.on_report(rank, report);
        let (seen, had, at) = member.looked;
        if got != had {
            member.looked = (report.seen, got, now);
            member.strikes = 0;
        } else if report.seen > seen && now.since(at) >= STRIKES_APART {
            member.looked = (report.seen, got, now);
            member.strikes += 1;
        }
        member.strikes >= STRIKES && self.give_up(rank)
    }

    /// Begins to send when all have joined; `window_of` tells that of a member. Whom to tell what: those who
    /// would report as seldom as their own, and the announced, window lets them. `P17.4`
    pub(super) fn begin(
        &mut self,
        window_of: impl Fn(u32) -> u32,
        now: Instant,
    ) -> Vec<(u32, Word)> {
        if self.caster.is_some() || !self.unready.is_empty() || self.members.is_empty() {
            return Vec::new();
        }
        let windows = self.members.keys().map(|rank| (*rank, window_of(*rank)));
        let windows: Vec<(u32, u32)> = windows.collect();
        let window = windows.iter().map(|(_, window)| *window).min().unwrap_or(1);
        let terms = Terms {
            piece_len: self.piece_len,
            window: u64::from(window),
            serial: 0,
        };
        self.run_count = usize::try_from(terms.window / RUNS_IN_WINDOW).unwrap_or(1);
        self.caster = Some(Caster::new(self.members.keys().copied(), terms, now));
        let announced = self.announced;
        let wide = windows
            .into_iter()
            .filter(|(_, own)| (*own).min(announced) > window);
        wide.map(|(rank, _)| (rank, Word::Window { window }))
            .collect()
    }

    /// The datagrams that may be sent now, if there are any.
    pub(super) fn run(&mut self, now: Instant) -> Option<&mut Run> {
        if self.run.is_empty() && !self.has_failed {
            self.fill(now);
        }
        (!self.run.is_empty() && !self.has_failed).then_some(&mut self.run)
    }

    fn fill(&mut self, now: Instant) {
        let Some(caster) = &mut self.caster else {
            return;
        };
        let next = self.members.values().map(|member| member.next).min();
        let next = next.unwrap_or(0);
        caster.forget(next);
        let len = self.buffer.len();
        let limit = block_count(len).min(next + BLOCKS_AHEAD);
        while self.run.has_room(self.run_count) {
            let len_of = |block| (block < limit).then(|| block_range(block, len).len());
            let Some(header) = caster.next(now, len_of) else {
                break;
            };
            let block = &self.buffer[block_range(header.block, len)];
            self.run.push(&self.codec, &header, block, self.piece_len);
        }
    }

    /// What was to be sent has been, or the socket had no room for it.
    pub(super) fn on_sent(&mut self, is_blocked: bool, now: Instant) {
        self.is_blocked = is_blocked;
        if let Some(caster) = self.caster.as_mut().filter(|_| !is_blocked) {
            caster.on_sent(now);
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whom to tell what, after a silence.
    pub(super) fn on_time(&mut self, now: Instant) -> Vec<(u32, Word)> {
        let caster = self.caster.as_mut();
        // What waits to be sent must not be told of as sent.
        let Some(caster) = caster.filter(|_| !self.is_blocked && !self.has_failed) else {
            return Vec::new();
        };
        let told: Vec<(u32, Sent)> = caster.on_time(now);
        told.into_iter()
            .map(|(rank, sent)| (rank, Word::Sent(sent)))
            .collect()
    }

    /// When to call [`Root::on_time`].
    pub(super) fn timeout(&self) -> Option<Instant> {
        let caster = self.caster.as_ref();
        let caster = caster.filter(|_| !self.is_blocked && !self.has_failed);
        caster.and_then(Caster::timeout)
    }
}
