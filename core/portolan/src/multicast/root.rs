// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root's side of a broadcast by multicast: the next datagrams to send, and the members that
//! are complete.

use super::control::{Announcement, Control};
use super::{BLOCKS_AHEAD, block_count, block_range};
use crate::buffer::Buffer;
use portolan_multicast::{Caster, Codec, Run, Sent, Terms};
use portolan_proto::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Number of checks without any received datagram after which a member is excluded from the
/// multicast, and the time between two checks. A switch that snoops on group membership may take
/// tens of milliseconds to notice a member.
const FAILED_CHECKS_MAX: u32 = 4;
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Reciprocal of a run's share of the window. A longer burst loses more datagrams at once.
const RUNS_IN_WINDOW: u64 = 8;

/// Progress of a member that does not have all data.
#[derive(Debug)]
struct Member {
    /// First block that is incomplete there.
    next: u64,
    /// Set when the member has joined this broadcast.
    has_joined: bool,
    /// State at the last check: number of the last datagram, count of received ones, and time.
    last_check: (u64, u64, Instant),
    failed_checks: u32,
    /// Set from the notice that the data will arrive in a message until the member answers.
    is_notified: bool,
}

/// A broadcast that this process sends.
pub(super) struct Root {
    codec: Codec,
    buffer: Buffer,
    piece_len: usize,
    /// Window that was announced to the members, in datagrams.
    announced: u32,
    /// Members that receive the data by multicast and do not have all of it.
    members: BTreeMap<u32, Member>,
    /// Members that may not have joined yet.
    unready: BTreeSet<u32>,
    /// Members to which the data must be sent in a message.
    direct: Vec<u32>,
    caster: Option<Caster<Instant>>,
    run: Run,
    run_count: usize,
    is_blocked: bool,
    /// Set after sending has failed: the data are then sent to all members in messages.
    has_failed: bool,
    failed: Option<u32>,
}

impl Root {
    /// Creates the state. `unready` are the members of `ranks` that may not have joined yet.
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
                has_joined: false,
                last_check: (0, 0, now),
                failed_checks: 0,
                is_notified: false,
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
            failed: None,
        }
    }

    /// Returns whether all members that use multicast have all data.
    pub(super) fn is_settled(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the ranks of the awaited members.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    /// Returns an awaited member that has failed.
    pub(super) fn failed(&self) -> Option<u32> {
        self.failed
    }

    pub(super) fn on_failed(&mut self, rank: u32) {
        if self.members.contains_key(&rank) {
            self.failed.get_or_insert(rank);
        }
    }

    /// Returns the buffer, and the members to which it must be sent in a message.
    pub(super) fn into_parts(self) -> (Buffer, Vec<u32>) {
        (self.buffer, self.direct)
    }

    /// Records that a member has joined. Returns whether it must be notified that the data will
    /// arrive in a message.
    pub(super) fn on_ready(&mut self, rank: u32, now: Instant) -> bool {
        self.unready.remove(&rank);
        if let Some(member) = self.members.get_mut(&rank) {
            member.has_joined = true;
            member.last_check.2 = now;
            if self.has_failed {
                return self.give_up(rank);
            }
            if let Some(caster) = &mut self.caster {
                // Soon request a report of what it has missed, instead of after the current
                // silence.
                caster.on_sent(now);
            }
        }
        false
    }

    /// Records that the data must be sent to a member in a message.
    pub(super) fn on_refused(&mut self, rank: u32) {
        self.unready.remove(&rank);
        if self.members.remove(&rank).is_some() {
            self.direct.push(rank);
        }
        if let Some(caster) = &mut self.caster {
            caster.remove_member(rank);
        }
    }

    /// Stops retransmitting to a member. Returns whether it must be notified. The member then
    /// requests the data in a message, unless it has already reported them complete.
    fn give_up(&mut self, rank: u32) -> bool {
        if let Some(caster) = &mut self.caster {
            caster.remove_member(rank);
        }
        let member = self.members.get_mut(&rank);
        member.is_some_and(|member| {
            member.has_joined && !std::mem::replace(&mut member.is_notified, true)
        })
    }

    /// Records that sending has failed. Returns the members to notify now that the data will arrive
    /// in a message. The other members are notified when they join.
    pub(super) fn fail(&mut self) -> Vec<u32> {
        self.has_failed = true;
        self.is_blocked = false;
        let mut ranks: Vec<u32> = self.members.keys().copied().collect();
        ranks.retain(|rank| self.give_up(*rank));
        ranks
    }

    /// Handles a member's report. Returns true if the member receives no datagrams, and must be
    /// notified that the data will arrive in a message.
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
            caster.remove_member(rank);
            return false;
        }
        member.next = member.next.max(report.next);
        caster.on_report(rank, report);
        let (seen, had, at) = member.last_check;
        if got != had {
            member.last_check = (report.seen, got, now);
            member.failed_checks = 0;
        } else if report.seen > seen && now.since(at) >= CHECK_INTERVAL {
            member.last_check = (report.seen, got, now);
            member.failed_checks += 1;
        }
        member.failed_checks >= FAILED_CHECKS_MAX && self.give_up(rank)
    }

    /// Begins to send when all members have joined. `window_of` returns the window of a member.
    /// Returns the control messages to send: members with a wider window (their own, or the
    /// announced one if that is less) must report more often. `P17.4`
    pub(super) fn begin(
        &mut self,
        window_of: impl Fn(u32) -> u32,
        now: Instant,
    ) -> Vec<(u32, Control)> {
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
        wide.map(|(rank, _)| (rank, Control::Window { window }))
            .collect()
    }

    /// Returns the datagrams that may be sent now, if there are any.
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
        while self.run.has_space(self.run_count) {
            let len_of = |block| (block < limit).then(|| block_range(block, len).len());
            let Some(header) = caster.next(now, len_of) else {
                break;
            };
            let block = &self.buffer[block_range(header.block, len)];
            self.run.push(&self.codec, &header, block, self.piece_len);
        }
    }

    /// Records that the run was sent, or that the socket would have blocked.
    pub(super) fn on_sent(&mut self, is_blocked: bool, now: Instant) {
        self.is_blocked = is_blocked;
        if let Some(caster) = self.caster.as_mut().filter(|_| !is_blocked) {
            caster.on_sent(now);
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns the control messages to send after a silence.
    pub(super) fn on_time(&mut self, now: Instant) -> Vec<(u32, Control)> {
        let caster = self.caster.as_mut();
        // A run that waits for the socket must not be reported as sent.
        let Some(caster) = caster.filter(|_| !self.is_blocked && !self.has_failed) else {
            return Vec::new();
        };
        let messages: Vec<(u32, Sent)> = caster.on_time(now);
        messages
            .into_iter()
            .map(|(rank, sent)| (rank, Control::Sent(sent)))
            .collect()
    }

    /// Returns the next time to call [`Root::on_time`].
    pub(super) fn timeout(&self) -> Option<Instant> {
        let caster = self.caster.as_ref();
        let caster = caster.filter(|_| !self.is_blocked && !self.has_failed);
        caster.and_then(Caster::timeout)
    }
}
