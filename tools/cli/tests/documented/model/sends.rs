// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends: those that wait for credit, for a receive, or for nothing.

use super::*;

impl Machine<'_> {
    pub(super) fn lane_of(&self, index: usize) -> (u32, u32, bool) {
        let sent = &self.messages[index];
        (sent.from, sent.to.rank, sent.to.high)
    }

    /// Returns true if the send of a message may wait for its receive.
    pub(super) fn is_long(&self, index: usize) -> bool {
        let sent = &self.messages[index];
        let copied = sent.from == sent.to.rank && sent.blocking;
        // The documentation promises more for blocking sends.
        let most = match sent.blocking {
            true => BUFFERED_MAX,
            false => UNASKED_MAX,
        };
        sent.message.len > most && !copied
    }

    pub(super) fn charge_of(&self, index: usize) -> usize {
        match self.messages[index].message.len {
            len if len > BUFFERED_MAX => CHARGE,
            len => len + CHARGE,
        }
    }

    pub(super) fn has_room(&self, index: usize) -> bool {
        let lane = self.lane_of(index);
        let unread = self.unread.get(&lane).copied().unwrap_or(0);
        unread + self.charge_of(index) <= CREDIT
    }

    /// Lets a message leave; it is received if its receive is posted.
    pub(super) fn leave(&mut self, index: usize) {
        let (charge, lane) = (self.charge_of(index), self.lane_of(index));
        let sent = &mut self.messages[index];
        sent.state = State::Sent;
        sent.charged = charge;
        *self.unread.entry(lane).or_default() += charge;
        let (to, place) = (sent.to.rank, sent.to.place);
        if self.is_any(to, place) {
            *self.arrived.entry((to, class_of(place))).or_default() += 1;
        }
        self.consume(index);
    }

    pub(super) fn consume(&mut self, index: usize) {
        if self.is_taken(index) && self.messages[index].state == State::Sent {
            let lane = self.lane_of(index);
            let charged = std::mem::take(&mut self.messages[index].charged);
            *self.unread.entry(lane).or_default() -= charged;
        }
    }

    pub(super) fn move_queues(&mut self) {
        let lanes: Vec<_> = self.queues.keys().copied().collect();
        for lane in lanes {
            while let Some(&first) = self.queues[&lane].front() {
                if !self.has_room(first) {
                    break;
                }
                self.queues.entry(lane).or_default().pop_front();
                self.leave(first);
            }
        }
    }

    /// Begins to send; a message without credit waits in its lane.
    pub(super) fn submit(&mut self, rank: u32, index: usize) -> Verdict<()> {
        self.messages[index].clock = self.stamp(rank);
        let place = self.messages[index].to.place;
        if self.is_long(index) && self.is_any(self.messages[index].to.rank, place) {
            return unsound("a long message to whoever receives next");
        }
        self.messages[index].state = State::Queued;
        let lane = self.lane_of(index);
        self.queues.entry(lane).or_default().push_back(index);
        self.move_queues();
        Ok(())
    }

    /// Returns true if a started send may still wait for credit or its receive.
    pub(super) fn is_awaited(&self, index: usize) -> bool {
        let is_sent = self.messages[index].state == State::Sent;
        !is_sent || self.is_long(index) && !self.is_taken(index)
    }

    /// Returns true if the close of its sender may wait for the receive of a message. A message
    /// that is too long for eager needs its receive to arrive, even if its send completed by a
    /// copy.
    fn holds_up(&self, index: usize) -> bool {
        let sent = &self.messages[index];
        let asks = sent.message.len > UNASKED_MAX;
        match sent.state {
            State::Unsent => false,
            State::Queued => true,
            State::Sent => asks && !self.is_taken(index),
        }
    }

    /// Returns true if the receive of a message is posted.
    fn is_taken(&self, index: usize) -> bool {
        let receive = self.messages[index].receive;
        receive.is_some_and(|receive| self.receives[receive].posted)
    }

    /// Returns true if a process receives no more messages.
    pub(super) fn is_leaving(&self, rank: u32) -> bool {
        let next = self.program.processes[rank as usize].get(self.pc(rank));
        next.is_none_or(|step| *step == Step::Close)
    }

    /// Returns true if a process that closes may end. Its own messages, and those that the library
    /// sent for it, must have left, or their receiver must be leaving.
    pub(super) fn may_close(&self, rank: u32) -> Verdict<bool> {
        for (index, sent) in self.messages.iter().enumerate() {
            let to = sent.to.rank;
            if sent.from != rank || to == rank || !self.holds_up(index) || self.is_leaving(to) {
                continue;
            }
            if sent.promised {
                return Ok(false);
            }
            // Its receive has one second to be posted, so the result would depend on time.
            if self.is_received(index) {
                return unsound("the end of a send that nobody waits for");
            }
        }
        Ok(true)
    }

    pub(super) fn send(&mut self, rank: u32, to: Goal) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_rank(to.rank) {
            return Ok(Some(refused));
        }
        let index = self.message_at[&(rank, self.pc(rank))];
        if self.messages[index].state == State::Unsent {
            if self.known_gone.contains(&(rank, to.rank)) {
                return Ok(Some(gone(to.rank)));
            }
            self.submit(rank, index)?;
        }
        if self.messages[index].blocking && to.rank != rank && self.is_awaited(index) {
            return Ok(self.doomed(index, Outcome::Done));
        }
        let step = self.pc(rank);
        self.gambles.push((rank, step, index));
        Ok(Some(Expected::Is(Outcome::Done)))
    }

    /// Returns the result of a send without a receive, if the receiver closes and discards the
    /// message.
    pub(super) fn doomed(&self, index: usize, sent: Outcome) -> Option<Expected> {
        let to = self.messages[index].to.rank;
        if self.messages[index].receive.is_some() {
            return None;
        }
        let asks = self.messages[index].message.len > BUFFERED_MAX;
        if asks && self.has_ended(to) && self.is_killed(to) {
            let outcomes = vec![gone_outcome(to), Outcome::NoRequest];
            return Some(Expected::OneOf(outcomes));
        }
        let outcomes = vec![sent, gone_outcome(to), Outcome::NoRequest];
        self.is_leaving(to).then_some(Expected::OneOf(outcomes))
    }

    pub(super) fn start(&mut self, rank: u32, slot: u32, to: Goal) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_rank(to.rank) {
            self.fill(rank, slot, Slot::Refused)?;
            return Ok(Some(refused));
        }
        if self.known_gone.contains(&(rank, to.rank)) {
            return unsound("whether the send begins is not said");
        }
        let index = self.message_at[&(rank, self.pc(rank))];
        self.submit(rank, index)?;
        self.fill(rank, slot, Slot::Send(index))?;
        let step = self.pc(rank);
        self.gambles.push((rank, step, index));
        Ok(Some(Expected::Is(Outcome::Done)))
    }

    pub(super) fn fill(&mut self, rank: u32, slot: u32, with: Slot) -> Verdict<()> {
        match self.slots[rank as usize].insert(slot, with) {
            Some(_) => unsound("a slot is used twice"),
            None => Ok(()),
        }
    }
}
