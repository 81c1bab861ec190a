// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver-side scheduling of bulk data. The receiver grants what its link can buffer, so that
//! many senders together do not overflow it. It grants the transfer with the fewest bytes left, each
//! in turn, or mostly one until it ends (`P5.3`). No transfer starves (`P5.9`).

use super::{RxTransfer, Transfers};
use crate::{LinkId, PeerId, Schedule};
use alloc::vec::Vec;
use portolan_wire::Grant;

/// Minimum grant in bytes: one full call of segmentation offload.
const QUANTUM_MIN: u64 = 64 * 1024;

/// `P5.9`: one of this many quanta goes to the transfer that has waited longest. That costs the
/// others one eighth, and bounds the wait.
const AGED_EVERY: u64 = 8;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// Transfers that are not fully granted.
    active: Vec<u32>,
    accounts: [Account; LinkId::COUNT],
    /// Number of grants so far; the clock of the order of service.
    served: u64,
    /// Set if something may have become grantable.
    dirty: bool,
    /// Peer with exclusive service for its transfers. `P5.13`
    preferred: Option<PeerId>,
}

/// Grant account of one link.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Bytes that may be granted and not yet received.
    budget: u64,
    outstanding: u64,
    /// Free bytes below which no grant is possible, so that no search is needed.
    needed: u64,
    /// Bytes granted out of turn since the longest-waiting transfer was served.
    passed: u64,
    /// Transfer with exclusive service; 0 if there is none.
    admitted: u32,
}

impl Account {
    /// Returns the step of grants: an eighth of the budget. The sender never runs dry, and grants
    /// are few.
    fn quantum(&self) -> u64 {
        (self.budget / 8).max(QUANTUM_MIN)
    }

    /// Returns the bytes that one transfer may have outstanding while others wait: half of the
    /// budget. A stalled sender then does not block the others, and two together keep the wire
    /// busy.
    fn share(&self) -> u64 {
        (self.budget / 2).max(self.quantum())
    }

    /// Returns true if another step would exceed the transfer's share.
    fn has_share(&self, share: u64, transfer: &RxTransfer) -> bool {
        let step = transfer.ungranted_len().min(self.quantum());
        !transfer.lossless && transfer.outstanding() + step > share
    }

    /// Returns the share of transfer `key`. With exclusive service the admitted one has all but a
    /// step, so that other transfers can continue if its sender stalls.
    fn share_of(&self, key: u32, schedule: Schedule) -> u64 {
        match schedule {
            Schedule::Exclusive if key == self.admitted => self
                .budget
                .saturating_sub(self.quantum())
                .max(self.quantum()),
            Schedule::Exclusive => self.quantum(),
            Schedule::ShortestFirst | Schedule::Fair => self.share(),
        }
    }

    fn free(&self) -> u64 {
        self.budget.saturating_sub(self.outstanding)
    }
}

impl Scheduler {
    fn set_budget(&mut self, link: LinkId, budget: usize) {
        self.accounts[link.index()].budget = (budget as u64).max(QUANTUM_MIN);
        self.dirty = true;
    }

    /// Returns the service time of a transfer that starts now, counted in grants.
    pub(super) fn stamp(&self) -> u64 {
        self.served
    }

    pub(super) fn add(&mut self, transfer: u32) {
        self.active.push(transfer);
        self.dirty = true;
    }

    /// Counts `len` bytes that were pushed, which need no grant.
    pub(super) fn on_pushed(&mut self, link: LinkId, len: u64) {
        self.accounts[link.index()].outstanding += len;
    }

    /// Frees `len` granted bytes that have arrived or were overtaken. `P5.10`
    pub(super) fn on_passed(&mut self, link: LinkId, len: u64) {
        let account = &mut self.accounts[link.index()];
        account.outstanding = account.outstanding.saturating_sub(len);
        self.dirty |= account.free() >= account.needed;
    }

    /// Removes a transfer that has ended, and frees what it still had outstanding.
    pub(super) fn remove(&mut self, key: u32, transfer: &RxTransfer) {
        let before = self.active.len();
        self.active.retain(|&active| active != key);
        self.dirty |= self.active.len() < before;
        if !transfer.lossless {
            self.on_passed(transfer.link, transfer.outstanding());
        }
    }
}

/// Grant that may be made.
struct NextGrant {
    key: u32,
    bytes: u64,
    aged: bool,
}

impl Transfers {
    /// Sets the bytes that one link can buffer. `P5.3`
    pub(crate) fn set_budget(&mut self, link: LinkId, budget: usize) {
        self.scheduler.set_budget(link, budget);
    }

    /// Returns true if something may have become grantable since the last call.
    #[inline]
    pub(crate) fn take_grantable(&mut self) -> bool {
        core::mem::take(&mut self.scheduler.dirty) && !self.scheduler.active.is_empty()
    }

    /// Returns true if granted bytes are still expected on `link`.
    #[inline]
    pub(crate) fn expects_by(&self, link: LinkId) -> bool {
        self.scheduler.accounts[link.index()].outstanding > 0
    }

    /// Returns the next grant for bytes on `link`, and its peer.
    pub(crate) fn next_grant(
        &mut self,
        schedule: Schedule,
        link: LinkId,
    ) -> Option<(PeerId, Grant)> {
        let next = self.select_grant(schedule, link)?;
        self.grant(link, &next)
    }

    /// Gives the transfers of `peer` exclusive service while it has any. `None` ends this. `P5.13`
    pub(crate) fn set_precedence(&mut self, peer: Option<PeerId>) {
        self.scheduler.preferred = peer;
        self.scheduler.dirty = true;
    }

    /// Selects the transfer with exclusive service on `link`. Returns the schedule that applies.
    fn admit(&mut self, schedule: Schedule, link: LinkId) -> Schedule {
        let scheduler = &mut self.scheduler;
        let preferred = scheduler.preferred;
        if preferred.is_none() && schedule != Schedule::Exclusive {
            return schedule;
        }
        let of_peer = |key: u32, peer: Option<PeerId>| {
            let transfer = self.rx.get(key).filter(|transfer| transfer.link == link)?;
            let is_wanted = peer.is_none_or(|peer| transfer.peer == peer);
            is_wanted.then_some((transfer.served_at, key))
        };
        let oldest = |peer| {
            let waiting = scheduler.active.iter();
            waiting.filter_map(|&key| of_peer(key, peer)).min()
        };
        let burst = preferred.and_then(|peer| oldest(Some(peer)));
        let account = &mut scheduler.accounts[link.index()];
        let is_active = scheduler.active.contains(&account.admitted);
        let is_admitted = |peer| is_active && of_peer(account.admitted, peer).is_some();
        match (burst, schedule) {
            (Some((_, key)), _) => {
                if !is_admitted(preferred) {
                    account.admitted = key;
                }
                Schedule::Exclusive
            }
            (None, Schedule::Exclusive) => {
                // The transfer that has waited longest is admitted.
                if !is_active {
                    account.admitted = oldest(None).map_or(0, |(_, key)| key);
                }
                schedule
            }
            (None, _) => schedule,
        }
    }

    /// Returns the next transfer to be granted on `link`, if there is room for a grant.
    fn select_grant(&mut self, schedule: Schedule, link: LinkId) -> Option<NextGrant> {
        let schedule = self.admit(schedule, link);
        let is_fair = schedule == Schedule::Fair;
        let scheduler = &mut self.scheduler;
        let account = &mut scheduler.accounts[link.index()];
        let transfers = scheduler.active.iter().filter_map(|&key| {
            let transfer = self.rx.get(key)?;
            (transfer.link == link).then_some((key, transfer))
        });
        let has_several = transfers.clone().nth(1).is_some();
        // With exclusive service, transfers that are not admitted have a step of their own, if the
        // budget has two.
        let has_own_step =
            schedule == Schedule::Exclusive && account.budget >= 2 * account.quantum();
        let aged = !has_own_step && account.passed >= account.quantum() * (AGED_EVERY - 1);
        let by_age = is_fair || aged;
        let (key, transfer) = transfers
            .filter(|(key, transfer)| {
                let share = account.share_of(*key, schedule);
                !has_several || !account.has_share(share, transfer)
            })
            .min_by_key(|(key, transfer)| {
                let rank = match schedule {
                    _ if by_age => 0,
                    Schedule::Exclusive => u64::from(*key != account.admitted),
                    Schedule::ShortestFirst | Schedule::Fair => transfer.len - transfer.received,
                };
                (rank, transfer.served_at)
            })?;
        let room = match (transfer.lossless, has_several, by_age) {
            // The ring itself holds the sender back.
            (true, ..) => u64::MAX,
            (_, false, _) => account.free(),
            (_, true, true) => account.free().min(account.quantum()),
            (_, true, false) => {
                let share = account.share_of(key, schedule);
                account.free().min(share - transfer.outstanding())
            }
        };
        // The transfer that has its turn waits until there is room for its step. Otherwise
        // transfers that need less would always overtake it.
        account.needed = transfer.ungranted_len().min(account.quantum());
        let bytes = transfer.whole_fragments(room);
        let is_enough = room >= account.needed && bytes > 0;
        is_enough.then_some(NextGrant { key, bytes, aged })
    }

    fn grant(&mut self, link: LinkId, next: &NextGrant) -> Option<(PeerId, Grant)> {
        let NextGrant { key, bytes, aged } = *next;
        let transfer = self.rx.get_mut(key)?;
        let scheduler = &mut self.scheduler;
        scheduler.served += 1;
        transfer.served_at = scheduler.served;
        transfer.granted += bytes;
        if !transfer.lossless {
            let account = &mut scheduler.accounts[link.index()];
            account.outstanding += bytes;
            account.passed = if aged { 0 } else { account.passed + bytes };
            self.predictions[link.index()].on_granted(key);
        }
        if transfer.ungranted_len() == 0 {
            scheduler.active.retain(|&active| active != key);
        }
        Some((transfer.peer, transfer.last_grant(key)))
    }
}

impl RxTransfer {
    /// Returns the record of the last grant of this transfer, which has number `key`.
    pub(super) fn last_grant(&self, key: u32) -> Grant {
        Grant {
            transfer: self.sender_transfer,
            receiver_transfer: key,
            limit: self.granted,
            behind: self.behind(),
        }
    }

    /// Returns the distance in bytes between the last granted limit and the prefix that has
    /// arrived; 0 for no information. `P15.7`
    fn behind(&self) -> u32 {
        let behind = self.granted - self.arrived.prefix();
        if self.streamed {
            u32::try_from(behind).unwrap_or(0)
        } else {
            0
        }
    }

    /// Returns the number of bytes that are not granted yet.
    fn ungranted_len(&self) -> u64 {
        self.len - self.granted
    }

    /// Returns the bytes that are granted but neither arrived nor overtaken. Overtaken bytes occupy
    /// no buffer, and are retransmitted slowly. `P5.10`
    fn outstanding(&self) -> u64 {
        self.granted.saturating_sub(self.frontier)
    }

    /// Returns the part of `room` that may be granted: whole fragments. Half of a fragment would
    /// never be sent and would hold the budget (`P5.4`).
    fn whole_fragments(&self, room: u64) -> u64 {
        if self.ungranted_len() <= room {
            self.ungranted_len()
        } else {
            room - room % u64::from(self.fragment_len.max(1))
        }
    }
}
