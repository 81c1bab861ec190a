// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives, waits, probes and claims.

use super::*;

impl Machine<'_> {
    /// Returns the error of a receive that cannot be posted, if there is one.
    pub(super) fn check_receive(
        &self,
        rank: u32,
        which: Wanted,
        blocking: bool,
    ) -> Verdict<Option<Expected>> {
        if let Some(refused) = which.source.and_then(|source| self.check_rank(source)) {
            return Ok(Some(refused));
        }
        let Pick::Port(port) = which.pick else {
            return Ok(None);
        };
        let fault = match self.ports[rank as usize].get(&port) {
            None => Fault::PortClosed(port),
            Some(PortUse::Handled) if blocking => Fault::PortHandled(port),
            Some(PortUse::Handled) => return unsound("a buffer for a handler"),
            Some(PortUse::Open) => return Ok(None),
        };
        Ok(Some(Expected::Is(Outcome::Fault(fault))))
    }

    pub(super) fn receive(&mut self, rank: u32, which: Wanted) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_receive(rank, which, true)? {
            return Ok(Some(refused));
        }
        let index = self.receive_at[&(rank, self.pc(rank))];
        self.set_posted(index);
        self.end_receive(rank, index, true)
    }

    pub(super) fn set_posted(&mut self, receive: usize) {
        self.receives[receive].posted = true;
        if let Some(message) = self.receives[receive].message {
            self.consume(message);
        }
        self.move_queues();
    }

    pub(super) fn post(
        &mut self,
        rank: u32,
        slot: u32,
        which: Wanted,
    ) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_receive(rank, which, false)? {
            self.fill(rank, slot, Slot::Refused)?;
            return Ok(Some(refused));
        }
        self.fill_receive(rank, slot).map(Some)
    }

    /// Fills `slot` with the receive of this step.
    fn fill_receive(&mut self, rank: u32, slot: u32) -> Verdict<Expected> {
        let index = self.receive_at[&(rank, self.pc(rank))];
        self.fill(rank, slot, Slot::Receive(index))?;
        self.set_posted(index);
        Ok(Expected::Is(Outcome::Done))
    }

    pub(super) fn claim(
        &mut self,
        rank: u32,
        slot: u32,
        which: Wanted,
    ) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_receive(rank, which, false)? {
            self.fill(rank, slot, Slot::Refused)?;
            return Ok(Some(refused));
        }
        let index = self.receive_at[&(rank, self.pc(rank))];
        match self.seen(index)? {
            Some(_) => self.fill_receive(rank, slot).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the message of a receive, once a probe finds it.
    fn seen(&self, receive: usize) -> Verdict<Option<&Sent>> {
        let Some(message) = self.receives[receive].message else {
            return unsound("a look for what nobody sends");
        };
        let sent = &self.messages[message];
        if self.is_killed(sent.from) {
            return unsound("a look for what may be lost");
        }
        Ok(Some(sent).filter(|sent| sent.state == State::Sent))
    }

    pub(super) fn peek(&mut self, rank: u32, which: Wanted) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_receive(rank, which, false)? {
            return Ok(Some(refused));
        }
        let here = self.pc(rank);
        // The claim that follows must get it; no earlier receive may take it.
        let claim = self.receive_at.get(&(rank, here + 1)).copied();
        let claims = |receive: &Receive| receive.claimed && receive.which == which;
        let Some(claim) = claim.filter(|&claim| claims(&self.receives[claim])) else {
            return unsound("a look at what may be received meanwhile");
        };
        let Some(sent) = self.seen(claim)? else {
            return Ok(None);
        };
        let Place::Tag { tag, imm } = sent.to.place else {
            return unsound("a look at a port");
        };
        Ok(Some(Expected::Is(Outcome::Seen {
            len: sent.message.len,
            source: sent.from,
            label: (tag, imm),
        })))
    }

    pub(super) fn peek_nothing(&self, rank: u32, which: Wanted) -> Verdict<Option<Expected>> {
        if let Some(refused) = self.check_receive(rank, which, false)? {
            return Ok(Some(refused));
        }
        if self.may_be_matched(rank, which) {
            return unsound("a look that may find something");
        }
        // The other processes may end at any time, and then the peek fails.
        let others = self.size - 1;
        let ended = match which.source {
            Some(source) if source == rank => None,
            Some(source) => Some(Fault::PeerGone { rank: source }),
            None => (others > 0).then_some(Fault::NobodyLeft { others }),
        };
        let outcomes = [Outcome::Nothing].into_iter();
        let outcomes = outcomes.chain(ended.map(Outcome::Fault));
        Ok(Some(Expected::OneOf(outcomes.collect())))
    }

    /// Completes a posted receive.
    pub(super) fn end_receive(
        &mut self,
        rank: u32,
        index: usize,
        keeps_buffer: bool,
    ) -> Verdict<Option<Expected>> {
        let receive = &self.receives[index];
        let (which, buffer) = (receive.which, receive.buffer);
        let Some(source) = which.source else {
            return Ok(self.end_of_any(index));
        };
        let Some(message) = receive.message else {
            if source == rank || !self.has_ended(source) {
                return Ok(None);
            }
            return Ok(Some(gone(source)));
        };
        let sent = &self.messages[message];
        if sent.state != State::Sent {
            return Ok(None);
        }
        let lane = (rank, sent.from, sent.to.high);
        let (clock, step, secret) = (sent.clock.clone(), sent.step, sent.secret);
        let (content, place, from) = (sent.message, sent.to.place, sent.from);
        self.learn(rank, &clock);
        let seen = self.lane_seen.entry(lane).or_default();
        *seen = (*seen).max(step);
        if secret {
            return Ok(Some(Expected::Is(Outcome::Done)));
        }
        let outcome = received(content, place, from, buffer, keeps_buffer);
        Ok(Some(Expected::Is(outcome)))
    }

    /// Completes a receive from any source, after those posted before it.
    fn end_of_any(&mut self, index: usize) -> Option<Expected> {
        let Receive { rank, which, .. } = self.receives[index];
        let class = class_wanted(which);
        let before = self.receives[..index].iter().filter(|earlier| {
            earlier.rank == rank && class_wanted(earlier.which) == class && !earlier.orphaned
        });
        let arrived = self.arrived.get(&(rank, class)).copied().unwrap_or(0);
        if before.count() < arrived {
            return Some(Expected::NextOfAny);
        }
        let others = self.size - 1;
        let alone = (0..self.size).all(|other| other == rank || self.has_ended(other));
        self.receives[index].orphaned = alone;
        let left = Outcome::Fault(Fault::NobodyLeft { others });
        alone.then_some(Expected::Is(left))
    }

    pub(super) fn wait(&mut self, rank: u32, slot: u32) -> Verdict<Option<Expected>> {
        let Some(&held) = self.slots[rank as usize].get(&slot) else {
            return unsound("a wait for nothing");
        };
        let here = self.pc(rank);
        let steps = &self.program.processes[rank as usize];
        let again = steps[..here].iter().any(|step| step.waits_for(slot));
        let stale = Expected::Is(Outcome::Fault(Fault::StaleRequest));
        match held {
            Slot::Refused => Ok(Some(Expected::Is(Outcome::NoRequest))),
            _ if again => Ok(Some(stale)),
            Slot::Receive(_) if steps[..here].contains(&Step::Cancel(slot)) => {
                Ok(Some(Expected::Is(Outcome::Fault(Fault::Cancelled))))
            }
            Slot::Receive(index) => self.end_receive(rank, index, false),
            Slot::Access(touch) => {
                self.touches[touch].done = Some(here);
                let outcome = self.touches[touch].result.clone();
                Ok(Some(Expected::Is(outcome)))
            }
            Slot::Send(index) => {
                let (to, len) = (
                    self.messages[index].to.rank,
                    self.messages[index].message.len,
                );
                let sent = Outcome::Sent { len, to };
                if self.is_awaited(index) {
                    return Ok(self.doomed(index, sent));
                }
                self.gambles.push((rank, here, index));
                Ok(Some(Expected::Is(sent)))
            }
        }
    }

    pub(super) fn cancel(&mut self, rank: u32, slot: u32) -> Verdict<Option<Expected>> {
        let Some(&Slot::Receive(index)) = self.slots[rank as usize].get(&slot) else {
            return unsound("what is withdrawn is no receive");
        };
        let Receive { which, .. } = self.receives[index];
        let steps = &self.program.processes[rank as usize];
        let again = steps[..self.pc(rank)].contains(&Step::Cancel(slot));
        if which.source.is_some() || self.may_be_matched(rank, which) {
            return unsound("what is withdrawn may be matched");
        }
        if steps[..self.pc(rank)]
            .iter()
            .any(|step| step.waits_for(slot))
        {
            return unsound("what is withdrawn has ended");
        }
        Ok(Some(Expected::Is(Outcome::Withdrawn(!again))))
    }

    pub(super) fn wait_handled(
        &mut self,
        rank: u32,
        port: u16,
        count: usize,
    ) -> Verdict<Option<Expected>> {
        if self.ports[rank as usize].get(&port) != Some(&PortUse::Handled) {
            return unsound("no handler counts");
        }
        let class = (rank, Class::Port(port));
        let arrived = self.arrived.get(&class).copied().unwrap_or(0);
        let steps = &self.program.processes[rank as usize];
        let buffers = steps.iter().find_map(|step| match *step {
            Step::OpenActive { port: own, buffers } if own == port => Some(buffers),
            _ => None,
        });
        if let Some(Some((buffers, _))) = buffers
            && buffers < count
        {
            return unsound("too few buffers for a handler");
        }
        Ok((arrived >= count).then_some(Expected::Handled))
    }
}
