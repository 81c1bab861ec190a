// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving side of a lane: the order of its messages, and the credit that they have cost (`P4.3`,
//! `P4.8`).

use super::{Entry, LaneMemory, LaneRx, State};
use crate::rma::REMOTE_PORT;
use crate::rma::target::Job;
use crate::{Address, DropReason, PortId};
use alloc::boxed::Box;

impl LaneRx {
    /// `None` while something is under way.
    pub(crate) fn memory(&self) -> Option<LaneMemory> {
        let settled = self.entries.is_empty() && self.arrived == self.consumed && self.waiting == 0;
        settled.then(|| LaneMemory {
            next_seq: self.next_seq,
            best_effort: self.best_effort.clone(),
            consumed: self.consumed,
            advertised: self.advertised,
        })
    }

    pub(crate) fn recall(&mut self, memory: LaneMemory) {
        self.next_seq = memory.next_seq;
        self.best_effort = memory.best_effort;
        (self.arrived, self.consumed) = (memory.consumed, memory.consumed);
        self.advertised = memory.advertised;
    }

    pub(crate) fn new(credit_len: u32) -> Self {
        LaneRx {
            advertised: credit_len,
            ..LaneRx::default()
        }
    }

    /// Limit to tell the peer now.
    pub(crate) fn advertise(&mut self, credit_len: u32) -> u32 {
        self.advertised = self.consumed.wrapping_add(credit_len);
        self.advertised
    }

    /// Half of the credit is used up: soon the peer waits for it.
    pub(crate) fn owes_credit(&self, credit_len: u32) -> bool {
        self.unadvertised(credit_len) >= credit_len / 2
    }

    /// Credit that the peer has not been told of.
    #[inline]
    fn unadvertised(&self, credit_len: u32) -> u32 {
        let limit = self.consumed.wrapping_add(credit_len);
        limit.wrapping_sub(self.advertised)
    }

    /// Gives `charge` back to the peer; `true` when it is time to say so.
    #[inline]
    pub(crate) fn consume(&mut self, charge: u32, credit_len: u32) -> bool {
        self.consumed = self.consumed.wrapping_add(charge);
        // A quarter: seldom enough to cost little, early enough that a stream never stops for it.
        self.unadvertised(credit_len) >= credit_len / 4
    }

    #[inline]
    pub(crate) fn admit(&mut self, charge: u32) -> Result<(), DropReason> {
        // P4.3
        if !self.has_room(charge) {
            return Err(DropReason::BeyondCredit);
        }
        self.arrived = self.arrived.wrapping_add(charge);
        Ok(())
    }

    /// A message that waited was taken; returns what comes back of what it had cost.
    pub(crate) fn end_waiting(&mut self, charge: u32) -> u32 {
        debug_assert!(self.waiting >= u64::from(charge), "it did not wait");
        self.waiting -= u64::from(charge);
        let paid = u64::from(charge).min(self.lent);
        self.lent -= paid;
        charge - u32::try_from(paid).unwrap_or(charge)
    }

    /// Counts up to `charge` of what messages that wait have cost as lent; returns how much.
    pub(crate) fn lend(&mut self, charge: u32) -> u32 {
        // Below the lane's credit, as it keeps a message back.
        let kept = u32::try_from(self.waiting - self.lent).unwrap_or(u32::MAX);
        let lent = kept.min(charge);
        self.lent += u64::from(lent);
        lent
    }

    /// Messages that wait keep credit back.
    pub(crate) fn keeps_credit(&self) -> bool {
        self.waiting > self.lent
    }

    /// Messages that were matched are yet to be delivered.
    pub(crate) fn has_matched(&self) -> bool {
        self.matched > 0
    }

    /// Index of `seq` among the entries.
    #[inline]
    pub(crate) fn index(&self, seq: u16) -> Result<usize, DropReason> {
        let ahead = seq.wrapping_sub(self.next_seq);
        // P4.8
        if ahead >= 1 << 15 {
            return Err(DropReason::Duplicate);
        }
        Ok(usize::from(ahead))
    }

    /// Index of `seq`, of which nothing has arrived yet.
    pub(crate) fn fresh(&self, seq: u16) -> Result<usize, DropReason> {
        let index = self.index(seq)?;
        match self.entries.get(index) {
            Some(Some(_)) => Err(DropReason::Duplicate),
            _ => Ok(index),
        }
    }

    pub(super) fn place(&mut self, index: usize) -> &mut Option<Entry> {
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        &mut self.entries[index]
    }

    /// The peer has credit for `charge`.
    #[inline]
    pub(crate) fn has_room(&self, charge: u32) -> bool {
        self.advertised
            .wrapping_sub(self.arrived.wrapping_add(charge)) as i32
            >= 0
    }

    /// The next message was taken past the queue.
    #[inline]
    pub(crate) fn take_next(&mut self, charge: u32) {
        self.arrived = self.arrived.wrapping_add(charge);
        self.next_seq = self.next_seq.wrapping_add(1);
    }

    /// A message to `port` has been matched and is yet to be delivered. What waits at the port is
    /// younger: nothing is matched past a waiting message.
    #[inline]
    pub(crate) fn owes(&self, port: PortId) -> bool {
        self.matched > 0 && self.owes_matched(port)
    }

    fn owes_matched(&self, port: PortId) -> bool {
        let matched = self.entries.iter().take(self.matched).flatten();
        matched
            .filter(|entry| entry.to == Address::Port(port))
            .any(|entry| !matches!(entry.state, State::Aside | State::Gone))
    }

    /// The next number was dealt with past the queue.
    pub(crate) fn skip_next(&mut self) {
        self.next_seq = self.next_seq.wrapping_add(1);
    }

    /// Nothing of the message at `index` has arrived.
    pub(crate) fn is_vacant(&self, index: usize) -> bool {
        self.entries.get(index).is_none_or(Option::is_none)
    }

    pub(crate) fn put_job(&mut self, index: usize, job: Job, charge: u32) {
        *self.place(index) = Some(Entry {
            to: REMOTE_PORT.into(),
            len: 0,
            charge,
            state: State::Remote(Box::new(job)),
        });
    }

    /// The request at `index`.
    pub(crate) fn job_mut(&mut self, index: usize) -> Option<&mut Job> {
        match &mut self.entries.get_mut(index)?.as_mut()?.state {
            State::Remote(job) => Some(job),
            _ => None,
        }
    }

    /// Credit that the peer has spent on what is not consumed: early, unread, or under way in parts.
    pub(super) fn outstanding(&self) -> u32 {
        self.arrived.wrapping_sub(self.consumed)
    }

    /// A part of this message has arrived, or a message behind it: what has come waits for it.
    pub(super) fn is_due(&self, seq: u16) -> bool {
        self.index(seq)
            .is_ok_and(|index| index < self.entries.len())
    }

    /// Nothing waits before the message with this number.
    #[inline]
    pub(crate) fn is_next(&self, seq: u16) -> bool {
        self.entries.is_empty() && seq == self.next_seq
    }
}
