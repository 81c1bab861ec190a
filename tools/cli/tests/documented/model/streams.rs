// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching of messages with receives.

use super::*;

impl Machine<'_> {
    /// Records the sends and receives of a process.
    pub(super) fn collect(&mut self, rank: u32) -> Verdict<()> {
        let steps = &self.program.processes[rank as usize];
        if !matches!(steps.last(), Some(Step::Close | Step::Kill)) {
            return unsound("a process has no end");
        }
        let mut ports = BTreeMap::new();
        let result_of = |slot: u32, from: usize| {
            let result = steps[from..].iter().position(|step| step.waits_for(slot));
            result.map(|later| from + later)
        };
        for (index, step) in steps.iter().enumerate() {
            let is_last = index + 1 == steps.len();
            match *step {
                Step::Close | Step::Kill if !is_last => {
                    return unsound("something follows the end");
                }
                Step::Open(port) | Step::ExpectBursts { port, .. } => {
                    ports.entry(port).or_insert(PortUse::Open);
                }
                Step::OpenActive { port, .. } => {
                    let use_ = ports.entry(port).or_insert(PortUse::Handled);
                    if *use_ == PortUse::Handled {
                        self.handled.insert((rank, port));
                    }
                }
                Step::Send { to, message, how } => {
                    self.note_message(rank, index, to, message, how != How::Copied);
                }
                Step::Start { slot, to, message } => {
                    self.note_message(rank, index, to, message, false);
                    if let Some(&sent) = self.message_at.get(&(rank, index)) {
                        self.messages[sent].promised = result_of(slot, index).is_some();
                    }
                }
                Step::GiveKey { to, .. } => {
                    let message = Message { id: 0, len: 8 };
                    self.note_message(rank, index, to, message, true);
                    if let Some(sent) = self.messages.last_mut() {
                        sent.secret = true;
                    }
                }
                Step::Recv { which, buffer } => {
                    self.note_receive(rank, index, Some(index), which, buffer, &ports)?;
                }
                Step::TakeKey { which, .. } => {
                    self.note_receive(rank, index, Some(index), which, 8, &ports)?;
                }
                Step::Post {
                    slot,
                    which,
                    buffer,
                }
                | Step::Claim {
                    slot,
                    which,
                    buffer,
                } => {
                    let result = result_of(slot, index);
                    self.note_receive(rank, index, result, which, buffer, &ports)?;
                    let claims = matches!(step, Step::Claim { .. });
                    if let Some(&receive) = self.receive_at.get(&(rank, index)) {
                        self.receives[receive].claimed = claims;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn note_message(
        &mut self,
        from: u32,
        step: usize,
        to: Goal,
        message: Message,
        blocking: bool,
    ) {
        if to.rank >= self.size {
            return;
        }
        self.message_at.insert((from, step), self.messages.len());
        self.messages.push(Sent {
            from,
            step,
            to,
            message,
            secret: false,
            blocking,
            promised: true,
            receive: None,
            state: State::Unsent,
            charged: 0,
            clock: Vec::new(),
        });
    }

    pub(super) fn note_receive(
        &mut self,
        rank: u32,
        step: usize,
        result: Option<usize>,
        which: Wanted,
        buffer: usize,
        ports: &BTreeMap<u16, PortUse>,
    ) -> Verdict<()> {
        if which.source.is_some_and(|source| source >= self.size) {
            return Ok(());
        }
        let class = class_wanted(which);
        match which.pick {
            Pick::Port(port) if ports.get(&port) != Some(&PortUse::Open) => return Ok(()),
            Pick::Tag { ignore, .. } if ignore & TAG_CLASS != 0 => {
                return unsound("a receive takes tags of two classes");
            }
            _ => {}
        }
        if which.source.is_none() {
            if class == Class::Tags {
                // A receive that is only posted to be cancelled: no rank may send a match.
                if self.may_be_matched(rank, which) {
                    return unsound("a receive from anybody takes a tag of one sender");
                }
            } else {
                self.any.insert((rank, class));
            }
        }
        self.receive_at.insert((rank, step), self.receives.len());
        self.receives.push(Receive {
            rank,
            result,
            which,
            buffer,
            message: None,
            posted: false,
            claimed: false,
            orphaned: false,
        });
        Ok(())
    }

    /// Returns true if a message is sent, now or later, that a receive of `rank` would match.
    pub(super) fn may_be_matched(&self, rank: u32, which: Wanted) -> bool {
        let takes = |sent: &Sent| {
            sent.to.rank == rank
                && which.pick.takes(sent.to.place)
                && which.source.is_none_or(|source| source == sent.from)
        };
        self.messages.iter().any(takes)
    }

    /// Finds the receive of each message. Messages of one sender are matched in order, each with
    /// the first receive that accepts it. The result does not depend on arrival times.
    pub(super) fn match_streams(&mut self) -> Verdict<()> {
        let mut lanes: BTreeMap<(u32, u32, Class), bool> = BTreeMap::new();
        for index in 0..self.messages.len() {
            let Sent {
                from, to, message, ..
            } = self.messages[index];
            let class = class_of(to.place);
            let is_any = self.is_any(to.rank, to.place);
            if is_any {
                if message.len < 8 && to.high {
                    return unsound("nothing tells this message from another");
                }
                continue;
            }
            let lane = *lanes.entry((to.rank, from, class)).or_insert(to.high);
            if lane != to.high {
                return unsound("two lanes to one place");
            }
            let found = self.receives.iter().position(|receive| {
                receive.rank == to.rank
                    && receive.message.is_none()
                    && receive.which.source == Some(from)
                    && receive.which.pick.takes(to.place)
            });
            if let Some(found) = found {
                self.receives[found].message = Some(index);
                self.messages[index].receive = Some(found);
            }
        }
        self.check_classes()
    }

    pub(super) fn check_classes(&self) -> Verdict<()> {
        for receive in &self.receives {
            let class = class_wanted(receive.which);
            if !self.any.contains(&(receive.rank, class)) {
                continue;
            }
            if receive.which.source.is_some() {
                return unsound("receives from one and from anybody at one place");
            }
            if receive.result.is_none() {
                return unsound("a receive from anybody is not waited for");
            }
            if let Pick::Tag { ignore, .. } = receive.which.pick
                && ignore != !TAG_CLASS
            {
                return unsound("receives from anybody that take different tags");
            }
        }
        Ok(())
    }

    pub(super) fn is_handled(&self, rank: u32, place: Place) -> bool {
        matches!(place, Place::Port(port) if self.handled.contains(&(rank, port)))
    }

    /// Returns true if the receiver may take this message for any of its receives.
    pub(super) fn is_any(&self, rank: u32, place: Place) -> bool {
        self.is_handled(rank, place) || self.any.contains(&(rank, class_of(place)))
    }

    pub(super) fn classes(&self) -> Verdict<Vec<AnyClass>> {
        let mut classes = Vec::new();
        let handled = self
            .handled
            .iter()
            .map(|&(rank, port)| (rank, Class::Port(port)));
        for (rank, class) in self.any.iter().copied().chain(handled) {
            let mut new = AnyClass {
                rank,
                ..AnyClass::default()
            };
            for sent in &self.messages {
                if (sent.to.rank, class_of(sent.to.place)) != (rank, class) {
                    continue;
                }
                if self.is_killed(sent.from) {
                    return unsound("what may be lost goes to whoever receives next");
                }
                let stream = new.streams.entry((sent.from, sent.to.high)).or_default();
                stream.push_back((sent.message, sent.to.place));
            }
            for receive in &self.receives {
                if receive.rank == rank
                    && !receive.orphaned
                    && class_wanted(receive.which) == class
                    && let Some(result) = receive.result
                {
                    new.receives.push((result, receive.buffer));
                }
            }
            let steps = &self.program.processes[rank as usize];
            new.handled = steps.iter().position(
                |step| matches!(step, Step::Handled { port, .. } if Class::Port(*port) == class),
            );
            classes.push(new);
        }
        Ok(classes)
    }
}
