// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver schedules bulk data: it grants what its link can buffer, so that many senders at
//! once lose nothing that a grant could have avoided, and says whose turn it is: the transfer with
//! the least left, or each in turn (`P5.3`). None waits for ever (`P5.9`).

use super::{RxTransfer, Transfers};
use crate::{LinkId, PeerId, Schedule};
use alloc::vec::Vec;
use portolan_wire::Grant;

/// Least worthwhile grant: one full call of segmentation offload.
const QUANTUM_MIN: u64 = 64 * 1024;

/// `P5.9`: of so many quanta, one goes to the transfer that has waited longest. What it takes from
/// the others is an eighth; what it gives is a bound on waiting.
const AGED_EVERY: u64 = 8;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// Transfers that are not fully granted.
    active: Vec<u32>,
    accounts: [Account; LinkId::COUNT],
    /// Grants so far: who was served when.
    served: u64,
    /// Something may have become grantable.
    dirty: bool,
}

/// What one link can buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Bytes that may be granted and still on the way.
    budget: u64,
    outstanding: u64,
    /// Free bytes from which on a grant may be possible: without as many there is no use in looking.
    needed: u64,
    /// Bytes granted out of turn since the one that had waited longest was served.
    passed: u64,
}

impl Account {
    /// Grants in steps of an eighth of the budget: the sender never runs dry, and grants are few.
    fn quantum(&self) -> u64 {
        (self.budget / 8).max(QUANTUM_MIN)
    }

    /// What one transfer may have outstanding while others wait: half, so that a sender that stands
    /// still does not hold up all others, and two together keep the wire busy.
    fn share(&self) -> u64 {
        (self.budget / 2).max(self.quantum())
    }

    /// A transfer has so much outstanding that another step would exceed its share.
    fn has_share(&self, transfer: &RxTransfer) -> bool {
        let step = transfer.wanted().min(self.quantum());
        !transfer.lossless && transfer.outstanding() + step > self.share()
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

    /// The time of a transfer that begins now, in grants.
    pub(super) fn stamp(&self) -> u64 {
        self.served
    }

    pub(super) fn add(&mut self, transfer: u32) {
        self.active.push(transfer);
        self.dirty = true;
    }

    /// `len` bytes of what was granted have arrived, or were overtaken. `P5.10`
    pub(super) fn on_passed(&mut self, link: LinkId, len: u64) {
        let account = &mut self.accounts[link.index()];
        account.outstanding = account.outstanding.saturating_sub(len);
        self.dirty |= account.free() >= account.needed;
    }

    /// Forgets a transfer that has ended, whatever it still had outstanding.
    pub(super) fn remove(&mut self, key: u32, transfer: &RxTransfer) {
        let before = self.active.len();
        self.active.retain(|&active| active != key);
        self.dirty |= self.active.len() < before;
        if !transfer.lossless {
            self.on_passed(transfer.link, transfer.outstanding());
        }
    }
}

/// A grant that may be made.
struct Turn {
    key: u32,
    bytes: u64,
    aged: bool,
}

impl Transfers {
    /// What one link can buffer. `P5.3`
    pub(crate) fn set_budget(&mut self, link: LinkId, budget: usize) {
        self.scheduler.set_budget(link, budget);
    }

    /// Something may have become grantable since this was asked last.
    #[inline]
    pub(crate) fn take_grantable(&mut self) -> bool {
        core::mem::take(&mut self.scheduler.dirty) && !self.scheduler.active.is_empty()
    }

    /// Bytes that were granted to come by `link` have not come.
    #[inline]
    pub(crate) fn expects_by(&self, link: LinkId) -> bool {
        self.scheduler.accounts[link.index()].outstanding > 0
    }

    /// The next grant for bytes that come by `link`, and to whom.
    pub(crate) fn next_grant(
        &mut self,
        schedule: Schedule,
        link: LinkId,
    ) -> Option<(PeerId, Grant)> {
        let turn = self.next_turn(schedule, link)?;
        self.grant(link, &turn)
    }

    /// The transfer by `link` whose turn it is, if there is room for a grant.
    fn next_turn(&mut self, schedule: Schedule, link: LinkId) -> Option<Turn> {
        let is_fair = schedule == Schedule::Fair;
        let scheduler = &mut self.scheduler;
        let account = &mut scheduler.accounts[link.index()];
        let transfers = scheduler.active.iter().filter_map(|&key| {
            let transfer = self.rx.get(key)?;
            (transfer.link == link).then_some((key, transfer))
        });
        let crowd = transfers.clone().nth(1).is_some();
        let aged = account.passed >= account.quantum() * (AGED_EVERY - 1);
        let by_turn = is_fair || aged;
        let (key, transfer) = transfers
            .filter(|(_, transfer)| !crowd || !account.has_share(transfer))
            .min_by_key(|(_, transfer)| {
                let left = transfer.len - transfer.received;
                (if by_turn { 0 } else { left }, transfer.served_at)
            })?;
        let room = match (transfer.lossless, crowd, by_turn) {
            // The ring itself holds the sender back.
            (true, ..) => u64::MAX,
            (_, false, _) => account.free(),
            (_, true, true) => account.free().min(account.quantum()),
            (_, true, false) => account.free().min(account.share() - transfer.outstanding()),
        };
        // Whoever has the next turn waits until there is room for a step: others that need less
        // would take it away from under him.
        account.needed = transfer.wanted().min(account.quantum());
        let bytes = transfer.whole_fragments(room);
        let is_enough = room >= account.needed && bytes > 0;
        is_enough.then_some(Turn { key, bytes, aged })
    }

    fn grant(&mut self, link: LinkId, turn: &Turn) -> Option<(PeerId, Grant)> {
        let Turn { key, bytes, aged } = *turn;
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
        if transfer.wanted() == 0 {
            scheduler.active.retain(|&active| active != key);
        }
        let record = Grant {
            transfer: transfer.sender_transfer,
            receiver_transfer: key,
            limit: transfer.granted,
            behind: transfer.behind(),
        };
        Some((transfer.peer, record))
    }
}

impl RxTransfer {
    /// How far behind the limit that was granted last all has arrived; 0 to say nothing. `P15.7`
    fn behind(&self) -> u32 {
        let behind = self.granted - self.arrived.prefix();
        if self.streamed {
            u32::try_from(behind).unwrap_or(0)
        } else {
            0
        }
    }

    /// Bytes that are not granted yet.
    fn wanted(&self) -> u64 {
        self.len - self.granted
    }

    /// Bytes that are granted and still on the way: neither arrived nor overtaken. What was
    /// overtaken is in no buffer; it comes again as a trickle. `P5.10`
    fn outstanding(&self) -> u64 {
        self.granted.saturating_sub(self.frontier)
    }

    /// What of `room` may be granted. Whole fragments: what is granted of half a one is never sent
    /// and holds the budget (`P5.4`).
    fn whole_fragments(&self, room: u64) -> u64 {
        if self.wanted() <= room {
            self.wanted()
        } else {
            room - room % u64::from(self.fragment_len.max(1))
        }
    }
}
