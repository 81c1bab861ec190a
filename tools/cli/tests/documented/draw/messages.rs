// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws messages, with the many ways to send and receive them.

use super::*;

impl Drawing {
    /// Draws a message with its receive, in one of many ways.
    pub(super) fn message(&mut self) {
        let (from, to) = self.pair();
        let len = self.len();
        let message = self.message_of(len);
        let (place, pick) = self.place(to);
        let port = match place {
            Place::Port(port) => port,
            Place::Tag { .. } => 0,
        };
        let high = self.lane(from, to, port);
        let goal = Goal::new(to, place, high);
        let which = Wanted::from(from, pick);
        let buffer = self.buffer(len);
        let is_long = len > BUFFERED_MAX;
        let posted_first = self.chance(40) || from == to && is_long;
        let late = match self.chance(60) {
            true => 0,
            false => self.rng.random_range(1..10),
        };
        let posting = posted_first.then(|| self.post(to, which, buffer));
        let sends_later = match posted_first {
            true => self.delay(),
            false => 0,
        };
        // A blocking send of a long message needs its receive at once.
        let starts = self.chance(40) || is_long && !posted_first && late > 0;
        if starts {
            let slot = self.start(sends_later, from, goal, message);
            let ended = sends_later + late + self.rng.random_range(0..3);
            let step = self.wait_step(slot);
            // After the receive of either process.
            let ended = if from == to { ended + 1 } else { ended };
            if self.chance(90) {
                self.put_off(ended.max(1), from, step);
            }
        } else {
            let how = self.how();
            self.put_off(sends_later, from, Step::send(goal, message, how));
        }
        let step = match posting {
            Some(slot) => self.wait_step(slot),
            None => Step::recv(which, buffer),
        };
        // A message without a receive stays until the end.
        if posting.is_some() || self.chance(95) || is_long {
            self.put_off(sends_later + late, to, step);
        }
    }

    /// Posts a receive at once; returns the slot that waits for it.
    fn post(&mut self, rank: u32, which: Wanted, buffer: usize) -> u32 {
        let slot = self.slot();
        self.push(rank, Step::post(slot, which, buffer));
        slot
    }

    /// Starts a send, now or later; returns the slot that waits for it.
    fn start(&mut self, late: usize, rank: u32, to: Goal, message: Message) -> u32 {
        let slot = self.slot();
        self.put_off(late, rank, Step::start(slot, to, message));
        slot
    }

    pub(super) fn place(&mut self, to: u32) -> (Place, Pick) {
        if self.chance(50) {
            let port = *PORTS.choose(&mut self.rng).unwrap();
            self.open(to, port);
            return (Place::Port(port), Pick::Port(port));
        }
        let tag = self.rng.random_range(0..4) | self.rng.random_range(0..2) << 40;
        let imm = self.chance(30).then(|| self.rng.random());
        let ignore = *[0, 0, 3, 1 << 40, ANY_BITS].choose(&mut self.rng).unwrap();
        (Place::Tag { tag, imm }, Pick::Tag { tag, ignore })
    }

    pub(super) fn wait_step(&mut self, slot: u32) -> Step {
        match self.chance(30) {
            true => Step::Test(slot),
            false => Step::Wait(slot),
        }
    }

    /// Draws a message to a port where it may match any receive.
    pub(super) fn send_to_anybody(&mut self) {
        let (from, to) = self.pair();
        let len = self.short_len().clamp(8, BUFFERED_MAX);
        let message = self.message_of(len);
        let (place, pick) = match self.chance(60) {
            true => {
                self.open(to, ANY_PORT);
                (Place::Port(ANY_PORT), Pick::Port(ANY_PORT))
            }
            false => {
                let tag = ANY_TAGS | self.rng.random_range(0..100);
                let pick = Pick::Tag {
                    tag: ANY_TAGS,
                    ignore: ANY_BITS,
                };
                (Place::Tag { tag, imm: None }, pick)
            }
        };
        let high = self.chance(30);
        let goal = Goal::new(to, place, high);
        let which = Wanted::from_anybody(pick);
        let buffer = self.buffer(3_000).max(8);
        let (early, late) = (self.chance(30), self.delay());
        let posted = early.then(|| self.post(to, which, buffer));
        let how = self.how();
        self.push(from, Step::send(goal, message, how));
        let step = posted.map_or(Step::recv(which, buffer), Step::Wait);
        self.put_off(late, to, step);
    }

    /// Draws messages to a handler; the received ones are checked at the end.
    pub(super) fn send_to_handler(&mut self) {
        let (from, to) = self.pair();
        if !self.handled.contains(&to) {
            self.handled.push(to);
            let buffers = self.chance(40).then_some((40, 40_000));
            let step = Step::OpenActive {
                port: HANDLED_PORT,
                buffers,
            };
            let late = self.delay();
            self.put_off(late, to, step);
        }
        let high = self.lane(from, to, HANDLED_PORT);
        for _ in 0..self.rng.random_range(1..4) {
            let len = self.short_len().min(BUFFERED_MAX);
            let message = self.message_of(len);
            let goal = Goal::port(to, HANDLED_PORT, high);
            let how = self.how();
            self.push(from, Step::send(goal, message, how));
        }
    }

    /// Draws a message that is probed, claimed, and received later.
    pub(super) fn claim(&mut self) {
        let (from, to) = self.pair();
        let len = self.len();
        let message = self.message_of(len);
        let tag = 1_000 + u64::from(message.id);
        let imm = self.chance(50).then_some(7);
        let high = self.lane(from, to, 0);
        let goal = Goal::new(to, Place::Tag { tag, imm }, high);
        let which = Wanted::from(from, Pick::Tag { tag, ignore: 0 });
        let sending = self.start(0, from, goal, message);
        let slot = self.slot();
        let late = self.delay();
        let buffer = self.buffer(len);
        if self.chance(60) {
            self.put_off(late, to, Step::Peek(which));
        }
        self.put_off(
            late,
            to,
            Step::Claim {
                slot,
                which,
                buffer,
            },
        );
        let until = late + self.delay();
        self.put_off(until, to, Step::Wait(slot));
        self.put_off(until + 1, from, Step::Wait(sending));
    }

    pub(super) fn withdrawal(&mut self) {
        let rank = self.rank();
        let slot = self.slot();
        let tag = WITHDRAWN_TAGS | u64::from(slot);
        let which = Wanted::from_anybody(Pick::Tag { tag, ignore: 0 });
        self.push(rank, Step::PeekNothing(which));
        self.push(rank, Step::post(slot, which, 16));
        let late = self.delay();
        self.put_off(late, rank, Step::Cancel(slot));
        if self.chance(30) {
            self.put_off(late, rank, Step::Cancel(slot));
        }
        self.put_off(late, rank, Step::Wait(slot));
        if self.chance(30) {
            self.put_off(late, rank, Step::Wait(slot));
        }
    }

    /// Draws best-effort messages between two ranks that wait for each other before and after.
    pub(super) fn burst(&mut self) {
        let (from, to) = self.pair();
        if from == to || [from, to].iter().any(|&rank| self.victim == Some(rank)) {
            return;
        }
        let port = BURST_PORT + u16::try_from(self.next_id % 600).unwrap();
        let count = self.rng.random_range(1..40);
        let len = self.rng.random_range(8..1_000);
        let first = self.message_of(len);
        self.next_id += u32::try_from(count).unwrap();
        let id = self.next_group;
        self.next_group += 2;
        let members = |id| Members {
            id,
            ranks: vec![from, to],
        };
        let expected = self.rng.random_range(1..=count + 3);
        self.push(
            to,
            Step::ExpectBursts {
                port,
                count: expected,
            },
        );
        for rank in [from, to] {
            self.push(rank, Step::Barrier(members(id)));
        }
        self.push(
            from,
            Step::Burst {
                to,
                port,
                first,
                count,
            },
        );
        for rank in [from, to] {
            self.push(rank, Step::Barrier(members(id + 1)));
        }
        self.push(to, Step::TakeBursts(port));
    }

    /// Draws more messages than the credit of a lane, which are received while they arrive, or
    /// late.
    pub(super) fn flood(&mut self) {
        let (from, to) = self.pair();
        if from == to {
            return;
        }
        let port = *PORTS.choose(&mut self.rng).unwrap();
        self.open(to, port);
        let high = self.lane(from, to, port);
        let count = self.rng.random_range(2..60);
        let starts = self.chance(50);
        let most = match starts {
            true => 70_000,
            false => BUFFERED_MAX,
        };
        let len = self.rng.random_range(0..=most);
        let late = match starts {
            true => self.delay(),
            false => 0,
        };
        for _ in 0..count {
            let message = self.message_of(len);
            let goal = Goal::port(to, port, high);
            let which = Wanted::from_port(from, port);
            self.put_off(late, to, Step::recv(which, len));
            if starts {
                let slot = self.start(0, from, goal, message);
                self.put_off(late + 1, from, Step::Wait(slot));
            } else {
                self.push(from, Step::send(goal, message, How::Plain));
            }
        }
    }
}
