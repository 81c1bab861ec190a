// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units: the messages that carry a VI's descriptors, and its replies to RDMA reads.
//!
//! A unit is recorded before it is sent, because its acknowledgement may arrive during the call
//! that sends it. The record of a unit that could not be sent is undone.

use crate::code::*;
use crate::long::Long;
use crate::queue::{Entry, Op};
use crate::vi::{Level, Vi};
use crate::wire::{COUNTED, Header, IMMEDIATE, Kind, LAST, LEN_MAX, TAGGED};
use crate::world::{UNITS_MAX, World};

/// Maximum bytes of a message in one unit; longer messages are split. It is one page, short enough
/// to be sent eagerly over shared memory, and not to delay other VIs.
pub(crate) const PIECE_LEN: usize = 4096;

/// Maximum bytes of an unreliable message, with its header, that is sent without retransmission. It
/// fits a frame of any path. Longer ones are retransmitted.
const LOSSY_LEN_MAX: usize = 1024;

/// Send mode of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// Sent at once, without batching.
    Immediate,
    /// Sent together with other units of a burst.
    Batched,
    /// Sent as best effort, without retransmission.
    BestEffort,
}

/// Origin of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Part of a descriptor. `begun` bytes were sent before it.
    Descriptor {
        number: u64,
        begun: u32,
        is_last: bool,
    },
    /// Part of the reply to the read with this number.
    ReadReply(u32),
}

/// A unit to be sent, in the first bytes of the scratch buffer.
pub(crate) struct Unit {
    pub(crate) rank: u32,
    pub(crate) len: usize,
    pub(crate) mode: SendMode,
    /// Token of the VI when the unit was created. The VI may have another connection by the time
    /// the unit is sent.
    token: u32,
    origin: Origin,
    /// Bytes that follow as a tagged message.
    long: Option<Long>,
    /// Set for a read with its data in a tagged message.
    is_long_read: bool,
}

impl Unit {
    /// Returns the number of the descriptor and the bytes of a long transfer.
    #[inline]
    pub(crate) fn long(&self) -> Option<(u64, Long)> {
        match self.origin {
            Origin::Descriptor { number, .. } => Some((number, self.long?)),
            Origin::ReadReply(_) => None,
        }
    }
}

impl World {
    /// Writes the next unit of a VI to `out`.
    #[inline]
    pub(crate) fn next_unit(&mut self, index: u32, out: &mut [u8]) -> Option<Unit> {
        loop {
            let vi = self.vis.get_mut(index)?;
            if !vi.is_connected() {
                return None;
            }
            let rank = vi.peer_rank;
            if self.peer(rank).in_flight >= UNITS_MAX {
                let waiting = &mut self.peer(rank).waiting;
                if !waiting.contains(&index) {
                    waiting.push_back(index);
                }
                return None;
            }
            let vi = self.vis.get_mut(index)?;
            if !vi.read_replies.is_empty() {
                return self.reply_unit(index, out);
            }
            let number = vi.send.next;
            let reads = vi.reads_in_flight;
            let entry = vi.send.get(number)?;
            if entry.control & VIP_CONTROL_QFENCE != 0 && reads > 0 {
                return None;
            }
            let fault = entry.fault;
            if vi.waits_for_longs() {
                return None;
            }
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

    /// Returns true if a VI has nothing more to send.
    #[inline]
    pub(crate) fn has_sent_all(&mut self, index: u32) -> bool {
        let vi = self.vis.get(index);
        vi.is_none_or(|vi| vi.read_replies.is_empty() && vi.send.next == vi.send.end())
    }

    /// Creates a unit of a descriptor. Returns the error status of an invalid descriptor.
    #[inline]
    fn send_unit(&mut self, index: u32, number: u64, out: &mut [u8]) -> Result<Unit, u32> {
        let source = self.source(index, number)?;
        let World {
            vis,
            regions,
            longs,
            ..
        } = self;
        let vi = vis.get_mut(index).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        let (begun, lossless) = (vi.begun, vi.is_lossless);
        let (level, token, ack) = (vi.level, vi.peer_token, vi.accepted);
        let ptag = vi.ptag;
        let memory = crate::descriptor::Memory { regions, ptag };
        let entry = vi.send.get(number).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        let (op, descriptor, total) = (entry.op, entry.descriptor, entry.total);
        let left = (total - begun) as usize;
        let is_read = matches!(op, Op::Read(_));
        let long = source.filter(|_| !is_read).map(|at| Long {
            at,
            len: left,
            tag: longs.next_tag(),
        });
        let len = match (op, long) {
            (Op::Read(_), _) | (_, Some(_)) => 0,
            _ => left.min(PIECE_LEN),
        };
        let is_last = len == left || len == 0;
        let mut header = header_of(entry, begun, is_last, long);
        (header.token, header.ack) = (token, ack);
        let read_to = source.filter(|_| is_read);
        if read_to.is_some() {
            header.flags |= TAGGED;
        }
        let is_complete = is_last && begun == 0;
        let header_len = header.kind.header_len();
        let is_lossy = level == Level::Unreliable
            && is_complete
            && !lossless
            && header_len + len <= LOSSY_LEN_MAX;
        if !is_lossy {
            header.flags |= COUNTED;
        }
        put_header(&header, out);
        descriptor.gather(memory, begun, &mut out[header_len..header_len + len])?;
        self.record_unit(index, number, len, is_last, !is_lossy);
        if let Some(at) = read_to {
            self.expect_read(index, number, (at.cast_mut(), header));
        }
        let vi = self.vis.get_mut(index).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        if long.is_some() {
            vi.begin_long(number);
        }
        Ok(Unit {
            long,
            is_long_read: read_to.is_some(),
            rank: vi.peer_rank,
            len: header_len + len,
            token: vi.token,
            origin: Origin::Descriptor {
                number,
                begun,
                is_last,
            },
            mode: match (is_lossy, lossless) {
                (true, _) => SendMode::BestEffort,
                (false, true) => SendMode::Immediate,
                (false, false) => SendMode::Batched,
            },
        })
    }

    /// Returns the memory of a descriptor that is sent as a long transfer.
    #[inline]
    fn source(&mut self, index: u32, number: u64) -> Result<Option<*const u8>, u32> {
        let vi = self.vis.get_mut(index).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        let (level, ptag, begun) = (vi.level, vi.ptag, vi.begun);
        let entry = *vi.send.get(number).ok_or(VIP_STATUS_FORMAT_ERROR)?;
        match begun {
            0 => self.long_source(level, &entry, ptag),
            _ => Ok(None),
        }
    }

    /// Records a unit of a descriptor that is about to be sent. This happens first, because its
    /// acknowledgement may arrive during the call that sends it.
    #[inline]
    fn record_unit(
        &mut self,
        index: u32,
        number: u64,
        len: usize,
        is_last: bool,
        is_counted: bool,
    ) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        if is_counted {
            vi.units_sent = vi.units_sent.wrapping_add(1);
        }
        vi.acknowledged = vi.accepted;
        let (units, rank) = (vi.units_sent, vi.peer_rank);
        vi.begun += u32::try_from(len).unwrap_or(0);
        if is_last {
            vi.begun = 0;
            vi.send.next = number + 1;
            if let Some(entry) = vi.send.get(number) {
                if let Op::Read(_) = entry.op {
                    entry.mark = 0;
                    vi.reads_in_flight += 1;
                } else {
                    entry.mark = units;
                }
            }
        }
        if is_counted {
            self.peer(rank).in_flight += 1;
        }
    }

    /// Records that a unit has left. An unreliable send completes with its last unit.
    #[inline]
    pub(crate) fn on_unit_sent(&mut self, index: u32, unit: &Unit) {
        let Origin::Descriptor {
            number,
            is_last: true,
            ..
        } = unit.origin
        else {
            return;
        };
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        if vi.level != Level::Unreliable || vi.token != unit.token {
            return;
        }
        if let Some(op) = vi.send.get(number).map(|entry| entry.op) {
            self.finish(index, false, number, status_of(op), None);
        }
    }

    /// Undoes the record of a unit that could not be sent for a local reason, and fails the
    /// operation it belongs to.
    #[cold]
    pub(crate) fn undo_unit(&mut self, index: u32, unit: &Unit) {
        if let (true, Origin::Descriptor { number, .. }) = (unit.is_long_read, unit.origin) {
            self.forget_read(index, number);
        }
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        // If the VI has another connection, or none, all operations of the unit's connection have
        // completed.
        if !vi.is_connected() || vi.token != unit.token {
            return;
        }
        if unit.mode != SendMode::BestEffort {
            vi.units_sent = vi.units_sent.wrapping_sub(1);
            let peer = self.peer(unit.rank);
            peer.in_flight = peer.in_flight.saturating_sub(1);
        }
        match unit.origin {
            Origin::ReadReply(id) => {
                self.fail_connection(index, VIP_STATUS_TRANSPORT_ERROR, Some(id))
            }
            Origin::Descriptor {
                number,
                begun,
                is_last,
            } => {
                if let Some(vi) = self.vis.get_mut(index) {
                    let op = vi.send.get(number).map(|entry| entry.op);
                    let is_read = matches!(op, Some(Op::Read(_)));
                    vi.reads_in_flight -= u32::from(is_last && is_read);
                    vi.end_long(number);
                    vi.send.release(number);
                }
                self.fail_send(index, number, VIP_STATUS_TRANSPORT_ERROR);
                // The other side waits for the rest, even of an unreliable message.
                if begun > 0 {
                    self.fail_connection(index, 0, None);
                }
            }
        }
    }

    /// Creates a unit of the reply to a read of the other side.
    #[cold]
    fn reply_unit(&mut self, index: u32, out: &mut [u8]) -> Option<Unit> {
        let vi = self.vis.get_mut(index)?;
        let mode = match vi.is_lossless {
            true => SendMode::Immediate,
            false => SendMode::Batched,
        };
        let (rank, token, ack, ptag) =
            (vi.peer_rank, vi.peer_token, vi.mark_acknowledged(), vi.ptag);
        let own = vi.token;
        let reply = vi.read_replies.front_mut()?;
        let left = (reply.total - reply.sent) as usize;
        let len = left.min(PIECE_LEN);
        let mut header = Header::new(Kind::ReadData, token, ack);
        (header.imm, header.total, header.offset) = (reply.id, reply.total, reply.sent);
        header.flags = COUNTED | if len == left { LAST } else { 0 };
        let (at, handle, id) = (reply.at + reply.sent as usize, reply.handle, reply.id);
        reply.sent += u32::try_from(len).unwrap_or(0);
        if len == left {
            vi.read_replies.pop_front();
        }
        let access = crate::memory::Access::Read;
        if !self.regions.opens(handle, (at, len), ptag, access) {
            self.refuse_read(index, id);
            return None;
        }
        put_header(&header, out);
        let header_len = header.kind.header_len();
        let from = std::ptr::with_exposed_provenance::<u8>(at);
        // SAFETY: the memory is registered and open for reading. The program guarantees that it is
        // valid.
        unsafe { std::ptr::copy_nonoverlapping(from, out[header_len..].as_mut_ptr(), len) };
        if let Some(vi) = self.vis.get_mut(index) {
            vi.units_sent = vi.units_sent.wrapping_add(1);
        }
        self.peer(rank).in_flight += 1;
        Some(Unit {
            rank,
            len: header_len + len,
            mode,
            token: own,
            origin: Origin::ReadReply(id),
            long: None,
            is_long_read: false,
        })
    }
}

/// Returns the status bits that identify the operation.
pub(crate) fn status_of(op: Op) -> u32 {
    match op {
        Op::Send => VIP_STATUS_OP_SEND,
        Op::Write => VIP_STATUS_OP_RDMA_WRITE,
        Op::Read(_) => VIP_STATUS_OP_RDMA_READ,
        Op::Recv => VIP_STATUS_OP_RECEIVE,
    }
}

/// Returns the header of a unit of a descriptor, of which `begun` bytes were sent.
#[inline]
fn header_of(entry: &Entry, begun: u32, is_last: bool, long: Option<Long>) -> Header {
    let descriptor = entry.descriptor;
    let mut header = Header::new(Kind::Data, 0, 0);
    header.total = entry.total;
    match entry.op {
        Op::Write | Op::Read(_) => {
            let (addr, handle) = descriptor.remote();
            header.kind = match long {
                Some(_) => Kind::LongWrite,
                None => Kind::Write,
            };
            header.addr = addr.wrapping_add(begun.into());
            header.handle = handle;
        }
        _ if long.is_some() => header.kind = Kind::LongData,
        _ if !is_last || begun > 0 => {
            header.kind = Kind::Part;
            header.offset = begun;
        }
        _ => {}
    }
    if let Op::Read(id) = entry.op {
        header.kind = Kind::Read;
        header.imm = id;
    } else if is_last && entry.control & VIP_CONTROL_IMMEDIATE != 0 {
        header.flags |= IMMEDIATE;
        header.imm = descriptor.immediate();
    }
    if is_last {
        header.flags |= LAST;
    }
    header.tag = long.map_or(0, |long| long.tag);
    header
}

#[inline]
fn put_header(header: &Header, out: &mut [u8]) {
    if let Some(head) = out.first_chunk_mut::<LEN_MAX>() {
        header.write(head);
    }
}

impl Vi {
    /// Returns the number of accepted units for an outgoing message, which acknowledges them.
    #[inline]
    pub(crate) fn mark_acknowledged(&mut self) -> u32 {
        self.acknowledged = self.accepted;
        self.acknowledged
    }
}

#[cfg(test)]
mod tests;
