// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both lanes of a peer, as used by other modules: credit, pending records, and the state kept
//! while the peer is dormant.

use super::held_back::HeldBack;
use super::tx::LaneTx;
use super::{DormantLanes, LaneRx, Lanes};
use crate::{CreditStatus, PortId};
use portolan_wire::{CREDIT_LEN, Credit, LaneId};

impl Lanes {
    pub(crate) fn new(credit_len: u32) -> Self {
        Lanes {
            tx: Default::default(),
            rx: [LaneRx::new(credit_len), LaneRx::new(credit_len)],
            credit_due: [false; 2],
            held_back: HeldBack::default(),
            assembly: None,
        }
    }

    #[inline]
    pub(crate) fn tx(&mut self, lane: LaneId) -> &mut LaneTx {
        &mut self.tx[lane.index()]
    }

    /// Starts the lanes of an open session with this credit in each.
    pub(crate) fn begin(&mut self, credits: [u32; 2]) {
        for (lane, credit) in self.tx.iter_mut().zip(credits) {
            lane.begin(credit);
        }
    }

    /// Returns true if a submission was refused.
    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.tx[0].is_starved() | self.tx[1].is_starved()
    }

    /// Returns true if credit must be sent to the peer.
    #[inline]
    pub(crate) fn has_credit_due(&self) -> bool {
        self.credit_due != [false; 2]
    }

    /// Returns true if half of a lane's credit is used and not yet sent again, so the peer will
    /// soon wait.
    pub(crate) fn has_urgent_credit(&self, credit_len: u32) -> bool {
        self.rx.iter().any(|lane| lane.has_credit_due(credit_len))
    }

    /// Schedules the credit of these lanes to be sent again.
    pub(crate) fn repeat_credit(&mut self, lanes: [bool; 2]) {
        for (due, again) in self.credit_due.iter_mut().zip(lanes) {
            *due |= again;
        }
    }

    /// Writes the credit of each lane that must be sent and fits `out`; returns the bytes written.
    pub(crate) fn emit_credit(&mut self, credit_len: u32, out: &mut [u8]) -> usize {
        let mut len = 0;
        for lane in LaneId::ALL {
            if self.credit_due[lane.index()] && len + CREDIT_LEN <= out.len() {
                self.credit_due[lane.index()] = false;
                let limit = self.rx[lane.index()].advertise(credit_len);
                Credit { lane, limit }.emit(&mut out[len..]);
                len += CREDIT_LEN;
            }
        }
        len
    }

    pub(crate) fn credit(&self, lane: LaneId) -> CreditStatus {
        let consumed = self.rx[lane.index()].consumed;
        self.tx[lane.index()].status(consumed)
    }

    /// Returns true if a message to `port` has been matched but not delivered.
    #[inline]
    pub(crate) fn has_undelivered(&self, lane: LaneId, port: PortId) -> bool {
        self.rx[lane.index()].has_undelivered(port)
    }

    /// Returns true if the peer has used credit for messages that are not consumed.
    #[inline]
    pub(crate) fn has_outstanding(&self) -> bool {
        self.rx.iter().any(|lane| lane.outstanding() > 0)
    }

    /// Returns true if `seq` is the next message of the lane and its cost `charge` is within the
    /// credit.
    #[inline]
    pub(crate) fn may_take(&self, lane: LaneId, seq: u16, charge: u32) -> bool {
        let rx = &self.rx[lane.index()];
        rx.is_next(seq) && rx.has_room(charge)
    }

    /// Takes that message past the queue; returns true if credit must be sent to the peer.
    #[inline]
    pub(crate) fn take(&mut self, lane: LaneId, charge: u32, credit_len: u32) -> bool {
        self.accept(lane, charge);
        self.return_charge(lane, charge, credit_len)
    }

    /// Takes that message past the queue. Its credit is [returned](Lanes::return_charge) later.
    #[inline]
    pub(crate) fn accept(&mut self, lane: LaneId, charge: u32) {
        self.rx[lane.index()].take_next(charge);
    }

    /// Returns `charge` to the peer; returns true if credit must be sent to it.
    #[inline]
    pub(crate) fn return_charge(&mut self, lane: LaneId, charge: u32, credit_len: u32) -> bool {
        let is_due = self.rx[lane.index()].consume(charge, credit_len);
        self.credit_due[lane.index()] |= is_due;
        self.credit_due[lane.index()]
    }

    /// Returns true if nothing is in flight and all credit was returned.
    pub(crate) fn are_settled(&self) -> bool {
        let assembles = self.assembly.as_ref().is_some_and(|all| !all.is_empty());
        !assembles && !self.is_starved() && self.rx.iter().all(|lane| lane.memory().is_some())
    }

    /// Returns the state to keep of lanes that [are settled](Lanes::are_settled).
    pub(crate) fn into_dormant(self) -> DormantLanes {
        DormantLanes {
            tx: self.tx,
            rx: self.rx.map(|lane| lane.memory().unwrap_or_default()),
            assembly: self.assembly,
        }
    }
}

impl DormantLanes {
    pub(crate) fn revive(self, credit_len: u32) -> Lanes {
        let mut lanes = Lanes::new(credit_len);
        lanes.tx = self.tx;
        lanes.assembly = self.assembly;
        for (lane, memory) in lanes.rx.iter_mut().zip(self.rx) {
            lane.restore(memory);
        }
        lanes
    }

    pub(crate) fn credit(&self, lane: LaneId) -> CreditStatus {
        self.tx[lane.index()].status(self.rx[lane.index()].consumed)
    }
}
