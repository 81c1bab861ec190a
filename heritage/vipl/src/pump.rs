// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pass: accepts incoming messages, and sends messages of the program and of the library.

use crate::error::{Failure, is_about_peer, is_temporary};
use crate::machine::{CARRIER, Machine};
use crate::unit::{PIECE_LEN, SendMode};
use crate::wire::{Header, Kind, LEN_MAX};
use crate::world::World;
use portolan::binding::Plumbing as _;
use portolan::{TagMatch, Target};

/// Number of idle passes between liveness checks of awaited processes. A check costs as much as a
/// pass.
const IDLE_PASSES_PER_CHECK: u32 = 64;

/// Number of idle passes between yields of a polling program. If there are more processes than
/// cores, the awaited message comes from a process that needs the core.
const IDLE_PASSES_PER_YIELD: u32 = 256;

/// Number of passes of a call that polls: 0.5 µs on shared memory.
const PASSES_PER_POLL: u32 = 16;

/// Tag with which no message is ever sent.
const CANARY_TAG: u64 = 0x5649 << 48;

/// Result of sending a message.
enum SendResult {
    /// It was sent, or dropped because its receiver has failed.
    Settled,
    /// Memory is temporarily exhausted.
    OutOfMemory,
    Failed(Failure),
}

impl SendResult {
    /// Handles the result of a message of the library, which is kept for a retry. Returns false if
    /// the library must wait for memory.
    fn resend_later(self) -> Result<bool, Failure> {
        match self {
            SendResult::Settled => Ok(true),
            SendResult::OutOfMemory => Ok(false),
            SendResult::Failed(failure) => Err(failure),
        }
    }
}

impl World {
    /// Keeps messages of the library that could not be sent, in front of newer ones.
    #[cold]
    fn requeue(&mut self, unsent: impl Iterator<Item = (u32, Vec<u8>)>) {
        let later = std::mem::take(&mut self.out);
        self.out = unsent.chain(later).collect();
    }

    /// Records that an acknowledgement could not be sent. `acknowledged` is the number that was
    /// acknowledged before.
    #[cold]
    fn defer_ack(&mut self, index: u32, acknowledged: u32) {
        if let Some(vi) = self.vis.get_mut(index) {
            vi.acknowledged = acknowledged;
            self.acks_due.push(index);
        }
    }
}

impl Machine {
    /// Runs one pass: accepts incoming messages and sends outgoing ones.
    #[inline]
    pub(crate) fn progress(&mut self) -> Result<(), Failure> {
        // Ignore errors of a peer: each of its connections reports the failure.
        let moved = self.node()?.progress().unwrap_or(0);
        self.after_passes(moved, 1)
    }

    #[inline]
    fn after_passes(&mut self, moved: usize, passes: u32) -> Result<(), Failure> {
        self.advance_longs()?;
        if moved > 0 {
            (self.idle_passes, self.checked_at, self.yielded_at) = (0, 0, 0);
            return self.work();
        }
        self.idle_passes = self.idle_passes.wrapping_add(passes);
        self.work()?;
        self.do_idle_work()
    }

    /// Runs several passes, until a message arrives. A polling program calls again anyway, and a
    /// call costs more than a pass.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<(), Failure> {
        let moved = self.node()?.progress_until_moved(PASSES_PER_POLL);
        self.after_passes(moved, PASSES_PER_POLL)
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
    /// next pass.
    fn work_once(&mut self) -> Result<bool, Failure> {
        let mut out = std::mem::take(&mut self.world().out).into_iter();
        while let Some((rank, message)) = out.next() {
            if rank >= self.world().size {
                continue;
            }
            let target = Target::new(rank, CARRIER);
            let sent = self.node()?.isend_copy(target, &message);
            match self.send_result(rank, sent) {
                SendResult::Settled => {}
                result => {
                    self.world()
                        .requeue([(rank, message)].into_iter().chain(out));
                    return result.resend_later();
                }
            }
        }
        let ready = std::mem::take(&mut self.world().ready);
        for index in ready {
            self.pump(index)?;
        }
        let acks_due = std::mem::take(&mut self.world().acks_due);
        for index in acks_due {
            if !self.send_ack(index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Converts the result of a send.
    fn send_result(&mut self, rank: u32, sent: Result<(), portolan::Error>) -> SendResult {
        match sent {
            Ok(()) => SendResult::Settled,
            Err(error) if is_about_peer(&error) => {
                self.world().fail_peer(rank);
                SendResult::Settled
            }
            Err(error) if is_temporary(&error) => SendResult::OutOfMemory,
            Err(error) => SendResult::Failed(error.into()),
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
            let sent = match unit.mode {
                SendMode::Immediate => node.send(target, bytes),
                SendMode::Batched => node.isend_copy(target, bytes),
                SendMode::BestEffort => node.send(target.best_effort(), bytes),
            };
            if sent.is_ok() {
                if let Some((number, long)) = unit.long() {
                    self.send_long((unit.rank, index), number, long)?;
                }
                let mut world = self.world();
                world.on_unit_sent(index, &unit);
                if world.has_sent_all(index) {
                    return Ok(());
                }
                continue;
            }
            match self.send_result(unit.rank, sent) {
                SendResult::Settled => {}
                // The status of the descriptor reports it to the program.
                SendResult::OutOfMemory | SendResult::Failed(_) => {
                    self.world().undo_unit(index, &unit)
                }
            }
        }
    }

    /// Sends an acknowledgement. Returns false if memory is exhausted; the acknowledgement is then
    /// still due.
    fn send_ack(&mut self, index: u32) -> Result<bool, Failure> {
        let (rank, acknowledged, header) = {
            let mut world = self.world();
            let Some(vi) = world.vis.get_mut(index) else {
                return Ok(true);
            };
            if !vi.is_connected() || vi.acknowledged == vi.accepted {
                return Ok(true);
            }
            let acknowledged = vi.acknowledged;
            let header = Header::new(Kind::Ack, vi.peer_token, vi.mark_acknowledged());
            (vi.peer_rank, acknowledged, header)
        };
        let mut bytes = [0; LEN_MAX];
        let len = header.write(&mut bytes);
        let target = Target::new(rank, CARRIER);
        let sent = self.node()?.isend_copy(target, &bytes[..len]);
        match self.send_result(rank, sent) {
            SendResult::Settled => Ok(true),
            result => {
                self.world().defer_ack(index, acknowledged);
                result.resend_later()
            }
        }
    }

    /// Performs the work of idle passes: deferred acknowledgements, liveness checks and yields.
    fn do_idle_work(&mut self) -> Result<(), Failure> {
        if !self.world().due.is_empty() {
            self.acknowledge()?;
        }
        if self.idle_passes.wrapping_sub(self.checked_at) >= IDLE_PASSES_PER_CHECK {
            self.checked_at = self.idle_passes;
            self.check_peers()?;
        }
        if self.idle_passes.wrapping_sub(self.yielded_at) >= IDLE_PASSES_PER_YIELD {
            self.yielded_at = self.idle_passes;
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
            if !self.send_ack(index)? {
                return Ok(());
            }
        }
    }

    /// Checks that awaited processes are alive. A receive from each of them, which no message ever
    /// matches, fails when the process has failed or exited.
    pub(crate) fn check_peers(&mut self) -> Result<(), Failure> {
        let ranks = self.world().awaited();
        for rank in ranks {
            let found = self.world().peer(rank).canary;
            let canary = match found {
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
                self.world().fail_peer(rank);
            }
        }
        self.work()
    }
}
