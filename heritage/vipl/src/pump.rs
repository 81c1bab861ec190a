// SPDX-License-Identifier: MIT OR Apache-2.0
//! A turn: accepts incoming messages, and sends messages of the program and of the library.

use crate::error::{Failure, is_about_peer, is_for_now};
use crate::machine::{CARRIER, Machine};
use crate::unit::{How, PIECE_LEN};
use crate::wire::{Header, Kind, LEN_MAX};
use crate::world::World;
use portolan::{TagMatch, Target};

/// Number of idle turns between liveness checks of awaited processes. A check costs as much as a
/// turn.
const IDLE_TURNS_PER_LOOK: u32 = 64;

/// Number of idle turns between yields of a polling program. If there are more processes than
/// cores, the awaited message comes from a process that needs the core.
const IDLE_TURNS_PER_YIELD: u32 = 256;

/// Number of turns of a call that polls: 0.5 µs on shared memory.
const TURNS_PER_POLL: u32 = 16;

/// Tag with which no message is ever sent.
const CANARY_TAG: u64 = 0x5649 << 48;

/// Result of sending a message.
enum Fate {
    /// It was sent, or dropped because its receiver has failed.
    Settled,
    /// Memory is temporarily exhausted.
    Stuck,
    Failed(Failure),
}

impl Fate {
    /// Handles the result of a message of the library, which is kept for a retry. Returns false if
    /// the library must wait for memory.
    fn of_own(self) -> Result<bool, Failure> {
        match self {
            Fate::Settled => Ok(true),
            Fate::Stuck => Ok(false),
            Fate::Failed(failure) => Err(failure),
        }
    }
}

impl World {
    /// Keeps messages of the library that could not be sent, in front of newer ones.
    #[cold]
    fn keep(&mut self, unsent: impl Iterator<Item = (u32, Vec<u8>)>) {
        let later = std::mem::take(&mut self.out);
        self.out = unsent.chain(later).collect();
    }

    /// Records that an acknowledgement could not be sent. `told` is the number that was
    /// acknowledged before.
    #[cold]
    fn owe(&mut self, index: u32, told: u32) {
        if let Some(vi) = self.vis.get_mut(index) {
            vi.told = told;
            self.owing.push(index);
        }
    }
}

impl Machine {
    /// Runs one turn: accepts incoming messages and sends outgoing ones.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<(), Failure> {
        // Ignore errors of a peer: each of its connections reports the failure.
        let moved = self.node()?.progress().unwrap_or(0);
        self.after_turns(moved, 1)
    }

    #[inline]
    fn after_turns(&mut self, moved: usize, turns: u32) -> Result<(), Failure> {
        if moved > 0 {
            (self.idle_turns, self.looked_at, self.yielded_at) = (0, 0, 0);
            return self.work();
        }
        self.idle_turns = self.idle_turns.wrapping_add(turns);
        self.work()?;
        self.rest()
    }

    /// Runs several turns, until a message arrives. A polling program calls again anyway, and a
    /// call costs more than a turn.
    #[inline]
    pub(crate) fn turns(&mut self) -> Result<(), Failure> {
        let moved = self.node()?.progress_until_moved(TURNS_PER_POLL);
        self.after_turns(moved, TURNS_PER_POLL)
    }

    /// Performs all pending work that needs the node.
    #[inline]
    pub(crate) fn work(&mut self) -> Result<(), Failure> {
        while self.world().has_work() {
            if !self.work_once()? {
                break;
            }
        }
        Ok(())
    }

    /// Performs pending work once. Returns false if memory is exhausted; the rest is retried in the
    /// next turn.
    fn work_once(&mut self) -> Result<bool, Failure> {
        let mut out = std::mem::take(&mut self.world().out).into_iter();
        while let Some((rank, message)) = out.next() {
            if rank >= self.world().size {
                continue;
            }
            let target = Target::new(rank, CARRIER);
            let sent = self.node()?.isend_copy(target, &message);
            match self.fate(rank, sent) {
                Fate::Settled => {}
                fate => {
                    self.world().keep([(rank, message)].into_iter().chain(out));
                    return fate.of_own();
                }
            }
        }
        let ready = std::mem::take(&mut self.world().ready);
        for index in ready {
            self.pump(index)?;
        }
        let owing = std::mem::take(&mut self.world().owing);
        for index in owing {
            if !self.say_ack(index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Converts the result of a send.
    fn fate(&mut self, rank: u32, sent: Result<(), portolan::Error>) -> Fate {
        match sent {
            Ok(()) => Fate::Settled,
            Err(error) if is_about_peer(&error) => {
                self.world().lose(rank);
                Fate::Settled
            }
            Err(error) if is_for_now(&error) => Fate::Stuck,
            Err(error) => Fate::Failed(error.into()),
        }
    }

    /// Sends the units of a VI, up to the limit of units in flight.
    #[inline]
    pub(crate) fn pump(&mut self, index: u32) -> Result<(), Failure> {
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() {
            scratch = vec![0; LEN_MAX + PIECE_LEN];
        }
        let result = self.pump_with(index, &mut scratch);
        self.scratch = scratch;
        result
    }

    #[inline]
    fn pump_with(&mut self, index: u32, scratch: &mut [u8]) -> Result<(), Failure> {
        loop {
            let unit = self.world().next_unit(index, scratch);
            let Some(unit) = unit else {
                return Ok(());
            };
            let target = Target::new(unit.rank, CARRIER);
            let bytes = &scratch[..unit.len];
            let node = self.node()?;
            let sent = match unit.how {
                How::Alone => node.send(target, bytes),
                How::Gathered => node.isend_copy(target, bytes),
                How::Lossy => node.send(target.best_effort(), bytes),
            };
            if sent.is_ok() {
                let mut world = self.world();
                world.note_left(index, &unit);
                if world.has_sent_all(index) {
                    return Ok(());
                }
                continue;
            }
            match self.fate(unit.rank, sent) {
                Fate::Settled => {}
                // The status of the descriptor reports it to the program.
                Fate::Stuck | Fate::Failed(_) => self.world().note_stuck(index, &unit),
            }
        }
    }

    /// Sends an acknowledgement. Returns false if memory is exhausted; the acknowledgement is then
    /// still owed.
    fn say_ack(&mut self, index: u32) -> Result<bool, Failure> {
        let (rank, told, header) = {
            let mut world = self.world();
            let Some(vi) = world.vis.get_mut(index) else {
                return Ok(true);
            };
            if !vi.is_connected() || vi.told == vi.accepted {
                return Ok(true);
            }
            let told = vi.told;
            let header = Header::new(Kind::Ack, vi.peer_token, vi.tell());
            (vi.peer_rank, told, header)
        };
        let mut bytes = [0; LEN_MAX];
        let len = header.write(&mut bytes);
        let target = Target::new(rank, CARRIER);
        let sent = self.node()?.isend_copy(target, &bytes[..len]);
        match self.fate(rank, sent) {
            Fate::Settled => Ok(true),
            fate => {
                self.world().owe(index, told);
                fate.of_own()
            }
        }
    }

    /// Performs the work of idle turns: deferred acknowledgements, liveness checks and yields.
    fn rest(&mut self) -> Result<(), Failure> {
        if !self.world().due.is_empty() {
            self.acknowledge()?;
        }
        if self.idle_turns.wrapping_sub(self.looked_at) >= IDLE_TURNS_PER_LOOK {
            self.looked_at = self.idle_turns;
            self.look()?;
        }
        if self.idle_turns.wrapping_sub(self.yielded_at) >= IDLE_TURNS_PER_YIELD {
            self.yielded_at = self.idle_turns;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends deferred acknowledgements, before the program is busy with other work.
    pub(crate) fn acknowledge(&mut self) -> Result<(), Failure> {
        // Pop the entries, so that the table keeps its memory: it is filled with each message.
        loop {
            let next = self.world().due.pop();
            let Some(index) = next else {
                return Ok(());
            };
            if let Some(vi) = self.world().vis.get_mut(index) {
                vi.is_due = false;
            }
            if !self.say_ack(index)? {
                return Ok(());
            }
        }
    }

    /// Checks that awaited processes are alive. A receive from each of them, which no message ever
    /// matches, fails when the process has failed or exited.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        let ranks = self.world().awaited();
        for rank in ranks {
            let known = self.world().peer(rank).canary;
            let canary = match known {
                Some(canary) => canary,
                None => {
                    let which = TagMatch::new(CANARY_TAG).source(rank);
                    let canary = self.node()?.post_recv_tagged(which, Vec::new())?;
                    self.world().peer(rank).canary = Some(canary);
                    canary
                }
            };
            if self.node()?.test(canary).is_err() {
                self.world().peer(rank).canary = None;
                self.world().lose(rank);
            }
        }
        self.work()
    }
}
