// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiving side of a lane: the order of its messages, and their credit cost (`P4.3`, `P4.8`).

use super::{Entry, LaneMemory, LaneRx, State};
use crate::rma::REMOTE_PORT;
use crate::rma::target::Job;
use crate::{Address, DropReason, PortId};
use alloc::boxed::Box;

impl LaneRx {
    /// Returns the state of an idle lane; `None` while anything is in flight.
    pub(crate) fn memory(&self) -> Option<LaneMemory> {
        let settled = self.entries.is_empty() && self.arrived == self.consumed && self.waiting == 0;
        settled.then(|| LaneMemory {
            next_seq: self.next_seq,
            best_effort: self.best_effort.clone(),
            consumed: self.consumed,
            advertised: self.advertised,
        })
    }

    pub(crate) fn restore(&mut self, memory: LaneMemory) {
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

    /// Returns the limit to send to the peer now, and records it as sent.
    pub(crate) fn advertise(&mut self, credit_len: u32) -> u32 {
        self.advertised = self.consumed.wrapping_add(credit_len);
        self.advertised
    }

    /// Returns true if half of the credit is used, so the peer will soon wait.
    pub(crate) fn has_credit_due(&self, credit_len: u32) -> bool {
        self.unadvertised(credit_len) >= credit_len / 2
    }

    /// Returns the credit that was not sent to the peer yet.
    #[inline]
    fn unadvertised(&self, credit_len: u32) -> u32 {
        let limit = self.consumed.wrapping_add(credit_len);
        limit.wrapping_sub(self.advertised)
    }

    /// Returns `charge` to the peer; returns `true` if the new limit should be sent.
    #[inline]
    pub(crate) fn consume(&mut self, charge: u32, credit_len: u32) -> bool {
        self.consumed = self.consumed.wrapping_add(charge);
        // A quarter: rare enough to cost little, early enough that a stream never waits for credit.
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

    /// Removes a taken message from the waiting ones; returns the credit still to be returned for
    /// it.
    #[inline]
    pub(crate) fn end_waiting(&mut self, charge: u32) -> u32 {
        debug_assert!(self.waiting >= u64::from(charge), "it did not wait");
        self.waiting -= u64::from(charge);
        let paid = u64::from(charge).min(self.returned_early);
        self.returned_early -= paid;
        charge - u32::try_from(paid).unwrap_or(charge)
    }

    /// Marks up to `charge` of the waiting messages' cost as returned early; returns the amount.
    pub(crate) fn return_early(&mut self, charge: u32) -> u32 {
        // Less than the lane's credit, because it can hold back a message.
        let held = u32::try_from(self.waiting - self.returned_early).unwrap_or(u32::MAX);
        let returned_early = held.min(charge);
        self.returned_early += u64::from(returned_early);
        returned_early
    }

    /// Returns true if waiting messages hold credit.
    pub(crate) fn holds_credit(&self) -> bool {
        self.waiting > self.returned_early
    }

    /// Returns true if matched messages have not been delivered.
    pub(crate) fn has_matched(&self) -> bool {
        self.matched > 0
    }

    /// Returns the index of `seq` among the entries.
    #[inline]
    pub(crate) fn index(&self, seq: u16) -> Result<usize, DropReason> {
        let ahead = seq.wrapping_sub(self.next_seq);
        // P4.8
        if ahead >= 1 << 15 {
            return Err(DropReason::Duplicate);
        }
        Ok(usize::from(ahead))
    }

    /// Returns the index of `seq` if nothing of it has arrived yet.
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

    /// Returns true if the peer has credit for `charge`.
    #[inline]
    pub(crate) fn has_room(&self, charge: u32) -> bool {
        self.advertised
            .wrapping_sub(self.arrived.wrapping_add(charge)) as i32
            >= 0
    }

    /// Accepts the next message without queueing it.
    #[inline]
    pub(crate) fn take_next(&mut self, charge: u32) {
        self.arrived = self.arrived.wrapping_add(charge);
        self.next_seq = self.next_seq.wrapping_add(1);
    }

    /// Returns true if a message to `port` has been matched but not delivered. Messages waiting at
    /// the port are newer, because nothing is matched past a waiting message.
    #[inline]
    pub(crate) fn has_undelivered(&self, port: PortId) -> bool {
        self.matched > 0 && self.has_undelivered_matched(port)
    }

    fn has_undelivered_matched(&self, port: PortId) -> bool {
        let matched = self.entries.iter().take(self.matched).flatten();
        matched
            .filter(|entry| entry.to == Address::Port(port))
            .any(|entry| !matches!(entry.state, State::Unexpected | State::Detached))
    }

    /// Skips the next number, which was handled past the queue.
    pub(crate) fn skip_next(&mut self) {
        self.next_seq = self.next_seq.wrapping_add(1);
    }

    /// Returns true if nothing of the message at `index` has arrived.
    pub(crate) fn is_vacant(&self, index: usize) -> bool {
        self.entries.get(index).is_none_or(Option::is_none)
    }

    pub(crate) fn put_job(&mut self, index: usize, job: Job, charge: u32) {
        *self.place(index) = Some(Entry {
            to: REMOTE_PORT.into(),
            len: 0,
            charge,
            state: State::Remote(Box::new(job)),
            by_stream: false,
        });
    }

    /// Returns the request at `index`.
    pub(crate) fn job_mut(&mut self, index: usize) -> Option<&mut Job> {
        match &mut self.entries.get_mut(index)?.as_mut()?.state {
            State::Remote(job) => Some(job),
            _ => None,
        }
    }

    /// Returns the credit that the peer has used for messages not consumed: early, unread or
    /// incomplete.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.arrived.wrapping_sub(self.consumed)
    }

    /// Returns true if a part of this message or a later message has arrived, so that messages wait
    /// for it.
    pub(super) fn is_due(&self, seq: u16) -> bool {
        self.index(seq)
            .is_ok_and(|index| index < self.entries.len())
    }

    /// Returns true if `seq` is next and no message waits before it.
    #[inline]
    pub(crate) fn is_next(&self, seq: u16) -> bool {
        self.entries.is_empty() && seq == self.next_seq
    }
}
