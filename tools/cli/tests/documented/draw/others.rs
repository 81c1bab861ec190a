// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws operations other than messages: collective operations, remote memory, mistakes, ends.

use super::*;

impl Drawing {
    /// Returns some ranks in any order, or all.
    pub(super) fn members(&mut self) -> Members {
        let alive = |rank: &u32| self.victim != Some(*rank);
        let mut ranks: Vec<u32> = (0..self.size).filter(alive).collect();
        if self.victim.is_none() && self.chance(50) {
            return Members {
                id: 0,
                ranks: Vec::new(),
            };
        }
        ranks.shuffle(&mut self.rng);
        let count = self.rng.random_range(1..=ranks.len());
        ranks.truncate(count);
        let id = self.next_group;
        self.next_group += 1;
        Members { id, ranks }
    }

    pub(super) fn collective(&mut self) {
        let group = self.members();
        let ranks: Vec<u32> = match group.id {
            0 => (0..self.size).collect(),
            _ => group.ranks.clone(),
        };
        let root = self
            .rng
            .random_range(0..u32::try_from(ranks.len()).unwrap());
        let step = match self.rng.random_range(0..4) {
            0 => Step::Barrier(group),
            1 => {
                let len = self.len();
                let message = self.message_of(len);
                Step::Broadcast {
                    group,
                    root,
                    message,
                }
            }
            kind => {
                let op = *[Reducer::Sum, Reducer::Product, Reducer::Min, Reducer::Max]
                    .choose(&mut self.rng)
                    .unwrap();
                let len = *[0, 1, 3, 100, 5_000].choose(&mut self.rng).unwrap();
                let root = (kind == 2).then_some(root);
                Step::Reduce {
                    group,
                    root,
                    op,
                    len,
                }
            }
        };
        for rank in ranks {
            self.push(rank, step.clone());
        }
    }

    /// Draws a memory region that is opened, used by one rank or counted in by all, checked and
    /// closed.
    pub(super) fn remote(&mut self) {
        let alive: Vec<u32> = (0..self.size)
            .filter(|&rank| self.victim != Some(rank))
            .collect();
        if alive.len() < 2 {
            return;
        }
        let mut ranks = alive;
        ranks.shuffle(&mut self.rng);
        let (owner, user) = (ranks[0], ranks[1]);
        let region = self.next_region;
        self.next_region += 1;
        let port = KEY_PORT + u16::try_from(region).unwrap();
        let len = *[8, 64, 1_000, 20_000, 200_000]
            .choose(&mut self.rng)
            .unwrap();
        let (read, write) = (self.chance(85), self.chance(85));
        self.push(
            owner,
            Step::Register {
                region,
                len,
                read,
                write,
            },
        );
        let counts = self.chance(30);
        let users = match counts {
            true => ranks[1..].to_vec(),
            false => vec![user],
        };
        let mut late = self.delay();
        for &user in &users {
            self.open(user, port);
            self.open(owner, port);
            let goal = Goal::port(user, port, false);
            self.push(owner, Step::GiveKey { to: goal, region });
            let which = Wanted::from_port(owner, port);
            self.put_off(late, user, Step::TakeKey { which, region });
            let high = self.chance(30);
            for _ in 0..self.rng.random_range(1..6) {
                late += self.rng.random_range(0..2);
                self.use_region((owner, user, region), len, counts, (late, high));
            }
            // The user notifies the owner when it is done.
            let message = self.message_of(3);
            let goal = Goal::port(owner, port, high);
            let step = Step::send(goal, message, How::Plain);
            self.put_off(late, user, step);
            let which = Wanted::from_port(user, port);
            self.put_off(late, owner, Step::recv(which, 3));
        }
        self.put_off(late, owner, Step::Look(region));
        self.close_region((owner, user, region), counts, late);
    }

    pub(super) fn use_region(
        &mut self,
        (owner, user, region): (u32, u32, u32),
        len: usize,
        counts: bool,
        (late, high): (usize, bool),
    ) {
        let within = self.rng.random_range(1..=len);
        let message = self.message_of(within);
        let what = match self.rng.random_range(0..4) {
            _ if counts => Remote::Add(self.rng.random()),
            0 => Remote::Put(message),
            1 => Remote::Get(within),
            2 => Remote::Add(self.rng.random()),
            _ => Remote::FetchAdd(self.rng.random()),
        };
        let room = (len - what.len()) as u64;
        let offset = match self.chance(85) {
            true => self.rng.random_range(0..=room),
            false => room + self.rng.random_range(1..100),
        };
        let offset = if counts { offset & !7 } else { offset };
        let rank = owner;
        if self.chance(30) && within <= 10_000 {
            let slot = self.slot();
            let step = Step::StartAccess {
                slot,
                rank,
                region,
                offset,
                what,
                high,
            };
            self.put_off(late, user, step);
            let until = late + self.delay();
            self.put_off(until, user, Step::Wait(slot));
            return;
        }
        let step = Step::Access {
            rank,
            region,
            offset,
            what,
            high,
        };
        self.put_off(late, user, step);
    }

    /// Closes a region, and draws a further use of it.
    pub(super) fn close_region(
        &mut self,
        (owner, user, region): (u32, u32, u32),
        counts: bool,
        late: usize,
    ) {
        if counts || self.chance(40) {
            return;
        }
        let late = late + 9;
        let port = KEY_PORT + u16::try_from(region).unwrap();
        self.put_off(late, owner, Step::Deregister(region));
        // The user is notified and tries again.
        let message = self.message_of(1);
        let to = Goal::port(user, port, false);
        self.put_off(late, owner, Step::send(to, message, How::Plain));
        let which = Wanted::from_port(owner, port);
        self.put_off(late, user, Step::recv(which, 1));
        self.put_off(
            late,
            user,
            Step::Access {
                rank: owner,
                region,
                offset: 0,
                what: Remote::Get(1),
                high: false,
            },
        );
    }

    /// Draws a call that is refused and has no effect.
    pub(super) fn mistake(&mut self) {
        let rank = self.rank();
        let size = self.size;
        let nobody = size + self.rng.random_range(0..3);
        let message = self.message_of(5);
        let port = Place::Port(PORTS[0]);
        let tag = Place::Tag { tag: 1, imm: None };
        let place = *[port, tag].choose(&mut self.rng).unwrap();
        let goal = Goal::new(nobody, place, false);
        let pick = *[Pick::Port(PORTS[0]), Pick::Tag { tag: 1, ignore: 0 }]
            .choose(&mut self.rng)
            .unwrap();
        let absent = Wanted::from(nobody, pick);
        let closed = Wanted {
            source: Some(rank).filter(|_| self.chance(50)),
            pick: Pick::Port(CLOSED_PORT),
        };
        let handled = Wanted::from_anybody(Pick::Port(HANDLED_PORT));
        let (slot, how, id) = (self.slot(), self.how(), self.next_group);
        self.next_group += 1;
        let steps = [
            Step::send(goal, message, how),
            Step::start(slot, goal, message),
            Step::recv(absent, 8),
            Step::post(slot, absent, 8),
            Step::recv(closed, 8),
            Step::post(slot, closed, 8),
            Step::recv(handled, 8),
            Step::PostShared(PORTS[0]),
            Step::PostShared(CLOSED_PORT),
            Step::Open(PORTS[1]),
            Step::RegisterShared,
            Step::Trespass(nobody),
            Step::Trespass((rank + 1) % size),
            Step::Group(Members {
                id,
                ranks: vec![rank, nobody],
            }),
            Step::Group(Members {
                id,
                ranks: vec![rank, rank],
            }),
            Step::Group(Members {
                id: 40_000,
                ranks: vec![rank],
            }),
            Step::Group(Members {
                id,
                ranks: vec![(rank + 1) % size],
            }),
            Step::Broadcast {
                group: Members {
                    id: 0,
                    ranks: Vec::new(),
                },
                root: nobody,
                message,
            },
        ];
        let step = steps.choose(&mut self.rng).unwrap().clone();
        if let Step::Open(port) = step {
            self.opened.push((rank, port));
        }
        self.push(rank, step);
    }

    /// Draws messages with an answer, by which a process knows the progress of another.
    pub(super) fn farewells(&mut self) {
        let (from, to) = self.pair();
        if from == to {
            return;
        }
        for (from, to) in [(from, to), (to, from)] {
            let port = PORTS[2];
            self.open(to, port);
            let message = self.message_of(4);
            let goal = Goal::port(to, port, self.lane(from, to, port));
            self.push(from, Step::send(goal, message, How::Plain));
            let which = Wanted::from_port(from, port);
            self.push(to, Step::recv(which, 9));
        }
    }

    pub(super) fn pause(&mut self) {
        let rank = self.rank();
        let step = match self.rng.random_range(0..4) {
            0 => Step::Flush,
            1 => Step::Progress,
            _ => Step::SleepUs(self.rng.random_range(0..6_000)),
        };
        self.push(rank, step);
    }

    /// Ends the victim; other ranks may make calls that detect it.
    pub(super) fn end_victim(&mut self, end: End) {
        let Some(victim) = self.victim else { return };
        self.push(
            victim,
            match end {
                End::Killed => Step::Kill,
                _ => Step::Close,
            },
        );
        self.victim_ended = true;
        let others = (0..self.size).filter(|&rank| rank != victim);
        for rank in others.collect::<Vec<_>>() {
            if self.chance(60) {
                self.mourn(rank, victim);
            }
        }
    }

    /// Draws calls that only the victim could complete.
    pub(super) fn mourn(&mut self, rank: u32, victim: u32) {
        let late = self.delay();
        let tag = 5_000_000;
        let pick = Pick::Tag { tag, ignore: 0 };
        let which = Wanted::from(victim, pick);
        let id = self.next_group;
        self.next_group += 1;
        match self.rng.random_range(0..4) {
            0 => self.put_off(late, rank, Step::recv(which, 8)),
            1 => {
                let slot = self.slot();
                self.push(rank, Step::post(slot, which, 8));
                self.put_off(late, rank, Step::Wait(slot));
            }
            2 => {
                let group = Members {
                    id,
                    ranks: vec![rank, victim],
                };
                self.put_off(late, rank, Step::Barrier(group));
            }
            _ => {
                let len = *LONG_LENS.last().unwrap();
                let message = self.message_of(len);
                let place = Place::Tag { tag, imm: None };
                let high = self.lane(rank, victim, 0);
                let to = Goal::new(victim, place, high);
                self.put_off(late, rank, Step::send(to, message, How::Plain));
            }
        }
    }
}
