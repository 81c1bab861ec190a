// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver schedules bulk data: it grants what its link can buffer, and prefers the transfer
//! with the least left, so that many senders at once lose nothing that a grant could have avoided
//! (`P5.3`).

use crate::peer::Control;
use crate::rendezvous::RxTransfer;
use crate::{Core, LinkId};
use alloc::vec::Vec;
use portolan_wire::Grant;

/// Least worthwhile grant: one full call of segmentation offload.
const QUANTUM_MIN: u64 = 64 * 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// Transfers that are not fully granted.
    active: Vec<u32>,
    /// Bytes that may be granted and not yet received, per link.
    budgets: [u64; LinkId::COUNT],
    outstanding: [u64; LinkId::COUNT],
    /// Something may have become grantable.
    dirty: bool,
}

impl Scheduler {
    pub(crate) fn set_budget(&mut self, link: LinkId, budget: usize) {
        self.budgets[link.index()] = (budget as u64).max(QUANTUM_MIN);
    }

    pub(crate) fn add(&mut self, transfer: u32) {
        self.active.push(transfer);
        self.dirty = true;
    }

    pub(crate) fn on_received(&mut self, link: LinkId, len: u64) {
        let outstanding = &mut self.outstanding[link.index()];
        *outstanding = outstanding.saturating_sub(len);
        self.dirty = true;
    }

    /// Forgets a transfer that has ended, whatever it still had outstanding.
    pub(crate) fn remove(&mut self, key: u32, transfer: &RxTransfer) {
        self.active.retain(|&active| active != key);
        if !transfer.lossless {
            self.on_received(
                transfer.link,
                transfer.granted.saturating_sub(transfer.received),
            );
        }
    }

    /// Grants in steps of an eighth of the budget: the sender never runs dry, and grants are few.
    fn quantum(&self, link: LinkId) -> u64 {
        (self.budgets[link.index()] / 8).max(QUANTUM_MIN)
    }
}

impl Core {
    /// Hands out what can be granted now.
    pub(crate) fn run_scheduler(&mut self) {
        if !self.sh.scheduler.dirty {
            return;
        }
        self.sh.scheduler.dirty = false;
        let mut order = core::mem::take(&mut self.sh.scheduler.active);
        let left = |key: u32| {
            self.sh
                .rx_transfers
                .get(key)
                .map_or(0, |transfer| transfer.len - transfer.received)
        };
        if order.len() > 1 {
            order.sort_by_key(|&key| left(key));
        }
        order.retain(|&key| self.grant(key));
        self.sh.scheduler.active = order;
    }

    /// Grants one transfer what it may have; `false` when nothing is left to grant.
    fn grant(&mut self, key: u32) -> bool {
        let Some(transfer) = self.sh.rx_transfers.get_mut(key) else {
            return false;
        };
        let link = transfer.link;
        let wanted = transfer.len - transfer.granted;
        let scheduler = &mut self.sh.scheduler;
        let extension = if transfer.lossless {
            // The ring itself holds the sender back.
            wanted
        } else {
            let free = scheduler.budgets[link.index()]
                - scheduler.outstanding[link.index()].min(scheduler.budgets[link.index()]);
            if free < wanted.min(scheduler.quantum(link)) {
                return true;
            }
            // Whole fragments: what is granted of half a one is never sent and holds the budget.
            let fragment_len = u64::from(transfer.fragment_len.max(1));
            if wanted <= free {
                wanted
            } else {
                free - free % fragment_len
            }
        };
        if extension == 0 {
            return true;
        }
        transfer.granted += extension;
        if !transfer.lossless {
            scheduler.outstanding[link.index()] += extension;
            self.sh.guesses[link.index()].on_granted(key);
        }
        let record = Grant {
            transfer: transfer.sender_transfer,
            receiver_transfer: key,
            limit: transfer.granted,
        };
        let (peer, more) = (transfer.peer, transfer.granted < transfer.len);
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            state.control.push_back(Control::Grant(record));
        }
        self.touch(peer);
        more
    }
}
