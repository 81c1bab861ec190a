// SPDX-License-Identifier: MIT OR Apache-2.0
//! A turn: what has come is taken in, and what that asks for, or the program, is sent.

use crate::code::*;
use crate::error::{Failure, is_about_peer};
use crate::machine::{CARRIER, Machine};
use crate::queue::Op;
use crate::vi::{Level, Vi};
use crate::wire::{COUNTED, Header, IMMEDIATE, Kind, LAST, LEN_MAX};
use crate::world::{UNITS_MAX, World};
use portolan::{TagMatch, Target};

/// Bytes of a message that travel in one piece: longer ones are cut. A page: less than shared memory needs
/// to be asked for, and few enough that a VI does not keep others waiting.
pub(crate) const PIECE_LEN: usize = 4096;

/// Bytes of an unreliable message that may be lost, with its header: what a frame of any path takes. Longer
/// ones are repaired.
const LOSSY_LEN_MAX: usize = 1024;

/// Turns without anything between two looks whether those live that something is waited for from. A look
/// costs as much as a turn.
const IDLE_TURNS_PER_LOOK: u32 = 64;

/// Turns without anything after which a program that polls lets others have the core, now and then: where
/// there are more processes than cores, what it waits for comes from one of them.
const IDLE_TURNS_PER_YIELD: u32 = 256;

/// Turns of a call that polls: half a microsecond on shared memory.
const TURNS_PER_POLL: u32 = 16;

/// Nothing is ever sent with this tag.
const CANARY_TAG: u64 = 0x5649 << 48;

/// How a unit leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// At once.
    Alone,
    /// With others of a burst.
    Gathered,
    /// It may be lost.
    Lossy,
}

/// What is to be sent: the first bytes of the scratch memory.
struct Unit {
    rank: u32,
    len: usize,
    how: How,
}

impl World {
    /// Puts the next unit of a VI into `out`.
    #[inline]
    fn next_unit(&mut self, index: u32, out: &mut [u8]) -> Option<Unit> {
        loop {
            let vi = self.vis.get_mut(index)?;
            if !vi.is_connected() {
                return None;
            }
            let rank = vi.peer_rank;
            if self.peer(rank).under_way >= UNITS_MAX {
                let waiting = &mut self.peer(rank).waiting;
                if !waiting.contains(&index) {
                    waiting.push_back(index);
                }
                return None;
            }
            let vi = self.vis.get_mut(index)?;
            if !vi.answers.is_empty() {
                return self.answer_unit(index, out);
            }
            let number = vi.send.next;
            let reads = vi.reads_under_way;
            let entry = vi.send.get(number)?;
            if entry.control & VIP_CONTROL_QFENCE != 0 && reads > 0 {
                return None;
            }
            let fault = entry.fault;
            let built = match fault {
                0 => self.send_unit(index, number, out),
                fault => Err(fault),
            };
            match built {
                Ok(unit) => return Some(unit),
                Err(status) => self.fail_send(index, number, status),
            }
        }
    }

    /// A unit of a descriptor, or what is wrong with that.
    #[inline]
    fn send_unit(&mut self, index: u32, number: u64, out: &mut [u8]) -> Result<Unit, u32> {
        let World { vis, regions, .. } = self;
        let vi = vis.get_mut(index).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        let (begun, lossless) = (vi.begun, vi.is_lossless);
        let (level, token, ack) = (vi.level, vi.peer_token, vi.accepted);
        let ptag = vi.ptag;
        let memory = crate::descriptor::Memory { regions, ptag };
        let entry = vi.send.get(number).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        let (op, descriptor, total) = (entry.op, entry.descriptor, entry.total);
        let left = (total - begun) as usize;
        let len = if let Op::Read(_) = op {
            0
        } else {
            left.min(PIECE_LEN)
        };
        let is_last = len == left || len == 0;
        let mut header = Header::new(Kind::Data, token, ack);
        header.total = total;
        match op {
            Op::Write | Op::Read(_) => {
                let (addr, handle) = descriptor.remote();
                header.kind = Kind::Write;
                header.addr = addr.wrapping_add(begun.into());
                header.handle = handle;
            }
            _ if !is_last || begun > 0 => {
                header.kind = Kind::Part;
                header.offset = begun;
            }
            _ => {}
        }
        if let Op::Read(id) = op {
            header.kind = Kind::Read;
            header.imm = id;
        } else if is_last && entry.control & VIP_CONTROL_IMMEDIATE != 0 {
            header.flags |= IMMEDIATE;
            header.imm = descriptor.immediate();
        }
        if is_last {
            header.flags |= LAST;
        }
        let is_whole = is_last && begun == 0;
        let header_len = header.kind.header_len();
        let is_lossy = level == Level::Unreliable
            && is_whole
            && !lossless
            && header_len + len <= LOSSY_LEN_MAX;
        if !is_lossy {
            header.flags |= COUNTED;
        }
        put_header(&header, out);
        descriptor.gather(memory, begun, &mut out[header_len..header_len + len])?;
        self.note_sent(index, number, len, is_last, !is_lossy);
        let vi = self.vis.get_mut(index).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        Ok(Unit {
            rank: vi.peer_rank,
            len: header_len + len,
            how: match (is_lossy, lossless) {
                (true, _) => How::Lossy,
                (false, true) => How::Alone,
                (false, false) => How::Gathered,
            },
        })
    }

    /// A unit of a descriptor is about to leave.
    #[inline]
    fn note_sent(&mut self, index: u32, number: u64, len: usize, is_last: bool, is_counted: bool) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        if is_counted {
            vi.units_sent = vi.units_sent.wrapping_add(1);
        }
        vi.told = vi.accepted;
        let (units, rank, level) = (vi.units_sent, vi.peer_rank, vi.level);
        vi.begun += u32::try_from(len).unwrap_or(0);
        if is_last {
            vi.begun = 0;
            vi.send.next = number + 1;
            if let Some(entry) = vi.send.get(number) {
                let status = match entry.op {
                    Op::Read(_) => {
                        entry.mark = 0;
                        vi.reads_under_way += 1;
                        None
                    }
                    op => {
                        entry.mark = units;
                        (level == Level::Unreliable).then_some(status_of(op))
                    }
                };
                if let Some(status) = status {
                    self.finish(index, false, number, status, None);
                }
            }
        }
        if is_counted {
            self.peer(rank).under_way += 1;
        }
    }

    /// A unit of what the other side has asked for.
    #[cold]
    fn answer_unit(&mut self, index: u32, out: &mut [u8]) -> Option<Unit> {
        let vi = self.vis.get_mut(index)?;
        let how = match vi.is_lossless {
            true => How::Alone,
            false => How::Gathered,
        };
        let (rank, token, ack, ptag) = (vi.peer_rank, vi.peer_token, vi.tell(), vi.ptag);
        let answer = vi.answers.front_mut()?;
        let left = (answer.total - answer.sent) as usize;
        let len = left.min(PIECE_LEN);
        let mut header = Header::new(Kind::ReadData, token, ack);
        (header.imm, header.total, header.offset) = (answer.id, answer.total, answer.sent);
        header.flags = COUNTED | if len == left { LAST } else { 0 };
        let (at, handle, id) = (answer.at + answer.sent as usize, answer.handle, answer.id);
        answer.sent += u32::try_from(len).unwrap_or(0);
        if len == left {
            vi.answers.pop_front();
        }
        let access = crate::memory::Access::Read;
        if !self.regions.opens(handle, (at, len), ptag, access) {
            self.refuse_read(index, id);
            return None;
        }
        put_header(&header, out);
        let header_len = header.kind.header_len();
        let from = std::ptr::with_exposed_provenance::<u8>(at);
        // SAFETY: registered memory that is open for reading: the program's promise that it is there.
        unsafe { std::ptr::copy_nonoverlapping(from, out[header_len..].as_mut_ptr(), len) };
        if let Some(vi) = self.vis.get_mut(index) {
            vi.units_sent = vi.units_sent.wrapping_add(1);
        }
        self.peer(rank).under_way += 1;
        Some(Unit {
            rank,
            len: header_len + len,
            how,
        })
    }
}

/// The bits of a status that say what has ended.
pub(crate) fn status_of(op: Op) -> u32 {
    match op {
        Op::Send => VIP_STATUS_OP_SEND,
        Op::Write => VIP_STATUS_OP_RDMA_WRITE,
        Op::Read(_) => VIP_STATUS_OP_RDMA_READ,
        Op::Recv => VIP_STATUS_OP_RECEIVE,
    }
}

#[inline]
fn put_header(header: &Header, out: &mut [u8]) {
    if let Some(head) = out.first_chunk_mut::<LEN_MAX>() {
        header.write(head);
    }
}

impl Vi {
    /// How far this side has come; the other side knows when it gets this.
    #[inline]
    pub(crate) fn tell(&mut self) -> u32 {
        self.told = self.accepted;
        self.told
    }
}

impl Machine {
    /// Takes in what has come, and does what is to be done.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<(), Failure> {
        let moved = self.node()?.progress();
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

    /// The same until something comes, for some turns: a program that polls calls again anyhow, and calls
    /// cost more than turns.
    #[inline]
    pub(crate) fn turns(&mut self) -> Result<(), Failure> {
        let moved = self.node()?.progress_until_moved(TURNS_PER_POLL);
        self.after_turns(moved, TURNS_PER_POLL)
    }

    /// Does what is to be done with the node.
    #[inline]
    pub(crate) fn work(&mut self) -> Result<(), Failure> {
        while self.world().has_work() {
            self.work_once()?;
        }
        Ok(())
    }

    fn work_once(&mut self) -> Result<(), Failure> {
        let out = std::mem::take(&mut self.world().out);
        for (rank, message) in out {
            if rank >= self.world().size {
                continue;
            }
            let sent = self
                .node()?
                .isend_copy(Target::new(rank, CARRIER), &message);
            self.lose_or_fail(rank, sent)?;
        }
        let ready = std::mem::take(&mut self.world().ready);
        for index in ready {
            self.pump(index)?;
        }
        let owing = std::mem::take(&mut self.world().owing);
        for index in owing {
            self.say_ack(index)?;
        }
        Ok(())
    }

    /// What was for a process that is gone is not missed; without anything else that it needs the library
    /// cannot go on.
    fn lose_or_fail(
        &mut self,
        rank: u32,
        sent: Result<(), portolan::Error>,
    ) -> Result<(), Failure> {
        match sent {
            Err(error) if is_about_peer(&error) => {
                self.world().lose(rank);
                Ok(())
            }
            sent => Ok(sent?),
        }
    }

    /// Sends what a VI has to send, as far as that may be under way.
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
            let Some(Unit { rank, len, how }) = unit else {
                return Ok(());
            };
            let target = Target::new(rank, CARRIER);
            let bytes = &scratch[..len];
            let node = self.node()?;
            let sent = match how {
                How::Alone => node.send(target, bytes),
                How::Gathered => node.isend_copy(target, bytes),
                How::Lossy => node.send(target.best_effort(), bytes),
            };
            if sent.is_err() {
                self.lose_or_fail(rank, sent)?;
            }
        }
    }

    fn say_ack(&mut self, index: u32) -> Result<(), Failure> {
        let message = {
            let mut world = self.world();
            let Some(vi) = world.vis.get_mut(index) else {
                return Ok(());
            };
            if !vi.is_connected() || vi.told == vi.accepted {
                return Ok(());
            }
            (
                vi.peer_rank,
                Header::new(Kind::Ack, vi.peer_token, vi.tell()),
            )
        };
        let (rank, header) = message;
        let mut bytes = [0; LEN_MAX];
        let len = header.write(&mut bytes);
        let target = Target::new(rank, CARRIER);
        let sent = self.node()?.isend_copy(target, &bytes[..len]);
        self.lose_or_fail(rank, sent)
    }

    /// What waits until nothing else is to be done: acknowledgements, and looks at who lives.
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

    /// Says what is owed, before the program is busy elsewhere.
    pub(crate) fn acknowledge(&mut self) -> Result<(), Failure> {
        // The table keeps its memory: it is filled with each message.
        loop {
            let next = self.world().due.pop();
            let Some(index) = next else {
                return Ok(());
            };
            if let Some(vi) = self.world().vis.get_mut(index) {
                vi.is_due = false;
            }
            self.say_ack(index)?;
        }
    }

    /// Looks whether those live that something is waited for from. A receive from one process, for which
    /// nothing is ever sent, ends when that is gone.
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
