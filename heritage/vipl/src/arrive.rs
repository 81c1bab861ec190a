// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from other processes: acknowledgements, messages for descriptors, RDMA data, and RDMA
//! read requests.

use crate::body::Body;
use crate::code::*;
use crate::descriptor::Memory;
use crate::queue::Op;
use crate::unit::status_of;
use crate::vi::ReadReply;
use crate::wire::{COUNTED, Header, IMMEDIATE, Kind, LAST, TAGGED};
use crate::world::World;
use std::ptr;

/// Number of unacknowledged units after which an acknowledgement is sent in a message of its own,
/// even if the program is busy. It is a sixth of the units that may be in flight.
const UNACKED_MAX: u32 = 16;

/// Result of processing a message.
enum Verdict {
    Taken,
    /// Refused, with the error status for the sender's descriptor.
    Refused(u32),
}

impl World {
    /// Processes a message.
    #[inline]
    pub(crate) fn on_message(&mut self, rank: u32, bytes: &[u8]) {
        let Some((header, rest)) = Header::parse(bytes) else {
            self.dropped_count += 1;
            return;
        };
        if header.kind as u8 >= Kind::Request as u8 {
            match Body::parse(rest) {
                Some(body) => self.on_handshake(rank, header.kind, body),
                None => self.dropped_count += 1,
            }
            return;
        }
        let index = header.token & u32::from(u16::MAX);
        let vi = self.vis.get(index);
        let is_current = vi.is_some_and(|vi| {
            vi.token == header.token && vi.peer_rank == rank && vi.is_connected()
        });
        // The connection has ended on this side. The peer was notified or is about to be.
        if !is_current {
            self.dropped_count += 1;
            // The data of a read does not come to this side.
            match header.kind {
                Kind::Read => self.longs.refuse_read(rank, &header),
                _ => self.discard_long(rank, &header),
            }
            return;
        }
        self.on_ack(index, header.ack);
        match header.kind {
            Kind::Data | Kind::Part => self.on_data(index, &header, rest),
            Kind::Write => self.on_write(index, &header, rest),
            Kind::LongData | Kind::LongWrite => self.on_long(rank, index, &header),
            Kind::Read => self.on_read(rank, index, &header),
            Kind::ReadData => self.on_read_data(index, &header, rest),
            Kind::Broken => self.on_broken(index, &header),
            Kind::Disconnect => {
                self.vi_fault(index, VIP_ERROR_CONN_LOST, 0);
                self.cut(index, VIP_STATE_ERROR, VIP_STATUS_DESC_FLUSHED_ERROR);
            }
            _ => {}
        }
    }

    #[inline]
    fn on_ack(&mut self, index: u32, ack: u32) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        let count = ack.wrapping_sub(vi.units_acked);
        // Ignore acknowledgements of units that were not sent.
        if count == 0 || count > vi.units_sent.wrapping_sub(vi.units_acked) {
            return;
        }
        vi.units_acked = ack;
        let rank = vi.peer_rank;
        loop {
            let Some(vi) = self.vis.get_mut(index) else {
                return;
            };
            let number = vi.acked_next;
            if number >= vi.send.next {
                break;
            }
            let Some(entry) = vi.send.get(number) else {
                // The entry was taken by the program, so it was complete.
                vi.acked_next += 1;
                continue;
            };
            let (op, has_ended) = (entry.op, entry.has_ended);
            // A read completes when its data has arrived.
            let is_read = matches!(op, Op::Read(_));
            if !has_ended && !is_read && (ack.wrapping_sub(entry.mark) as i32) < 0 {
                break;
            }
            vi.acked_next += 1;
            if vi.end_long(number) {
                self.ready.push(index);
            }
            if !has_ended && !is_read {
                self.finish(index, false, number, status_of(op), None);
            }
        }
        self.land(rank, count);
    }

    /// Counts an accepted unit, and schedules its acknowledgement.
    #[inline]
    pub(crate) fn accept(&mut self, index: u32, is_counted: bool) {
        let Some(vi) = self.vis.get_mut(index).filter(|_| is_counted) else {
            return;
        };
        vi.accepted = vi.accepted.wrapping_add(1);
        let pending = vi.accepted.wrapping_sub(vi.acknowledged);
        if !vi.is_due {
            vi.is_due = true;
            self.due.push(index);
        } else if pending >= UNACKED_MAX && pending.is_multiple_of(UNACKED_MAX) {
            self.acks_due.push(index);
        }
    }

    #[inline]
    fn settle(&mut self, index: u32, header: &Header, verdict: Verdict) {
        let is_counted = header.has(COUNTED);
        match verdict {
            Verdict::Taken => self.accept(index, is_counted),
            Verdict::Refused(status) => self.refuse(index, is_counted, status),
        }
    }

    /// Processes a message of a send, or a part of one.
    #[inline]
    fn on_data(&mut self, index: u32, header: &Header, bytes: &[u8]) {
        let verdict = self.take_data(index, header, bytes);
        self.settle(index, header, verdict);
    }

    #[inline]
    fn take_data(&mut self, index: u32, header: &Header, bytes: &[u8]) -> Verdict {
        let is_complete = header.kind == Kind::Data;
        let Some(vi) = self.vis.get_mut(index) else {
            return Verdict::Taken;
        };
        let number = match vi.partial {
            _ if is_complete || header.offset == 0 => {
                let number = vi.recv.next;
                if number >= vi.recv.end() {
                    self.vi_fault(index, VIP_ERROR_RECVQ_EMPTY, VIP_STATUS_OP_RECEIVE);
                    return Verdict::Refused(VIP_STATUS_REMOTE_DESC_ERROR);
                }
                vi.recv.next = number + 1;
                if !is_complete {
                    vi.partial = Some((number, 0));
                }
                number
            }
            Some((number, received)) if received == header.offset => number,
            // The rest of a message that was refused.
            _ => return Verdict::Taken,
        };
        let ptag = vi.ptag;
        let total = match is_complete {
            true => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            false => header.total,
        };
        let World { vis, regions, .. } = self;
        let entry = vis.get_mut(index).and_then(|vi| vi.recv.get(number));
        let Some(entry) = entry.map(|entry| *entry) else {
            return Verdict::Taken;
        };
        let offset = if is_complete { 0 } else { header.offset };
        let put = match entry.fault {
            0 if total > entry.total => Err(VIP_STATUS_LENGTH_ERROR),
            0 => entry
                .descriptor
                .scatter(Memory { regions, ptag }, offset, bytes),
            fault => Err(fault),
        };
        if let Err(status) = put {
            if let Some(vi) = self.vis.get_mut(index) {
                vi.partial = None;
            }
            self.finish(index, true, number, status | VIP_STATUS_OP_RECEIVE, Some(0));
            return Verdict::Refused(VIP_STATUS_REMOTE_DESC_ERROR);
        }
        let received = offset.saturating_add(u32::try_from(bytes.len()).unwrap_or(0));
        if received < total {
            if let Some(vi) = self.vis.get_mut(index) {
                vi.partial = Some((number, received));
            }
            return Verdict::Taken;
        }
        let mut status = VIP_STATUS_OP_RECEIVE;
        if header.has(IMMEDIATE) {
            entry.descriptor.set_immediate(header.imm);
            status |= VIP_STATUS_IMMEDIATE;
        }
        if !is_complete && let Some(vi) = self.vis.get_mut(index) {
            vi.partial = None;
        }
        self.finish(index, true, number, status, Some(total));
        Verdict::Taken
    }

    /// Processes data of an RDMA write.
    fn on_write(&mut self, index: u32, header: &Header, bytes: &[u8]) {
        let verdict = self.take_write(index, header, bytes);
        self.settle(index, header, verdict);
    }

    fn take_write(&mut self, index: u32, header: &Header, bytes: &[u8]) -> Verdict {
        let at = usize::try_from(header.addr).unwrap_or(usize::MAX);
        let place = (at, bytes.len());
        let is_allowed = self.allows_write(index, header.handle, place);
        if !is_allowed {
            self.vi_fault(index, VIP_ERROR_RDMAW_PROT, VIP_STATUS_OP_REMOTE_RDMA_WRITE);
            return Verdict::Refused(VIP_STATUS_RDMA_PROT_ERROR);
        }
        let to = ptr::with_exposed_provenance_mut::<u8>(at);
        // SAFETY: the memory is registered and open for writing. The program guarantees that it is
        // valid and that peers may write to it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        if !(header.has(LAST) && header.has(IMMEDIATE)) {
            return Verdict::Taken;
        }
        match self.notify_write(index, header) {
            Ok(()) => Verdict::Taken,
            Err(status) => Verdict::Refused(status),
        }
    }

    /// Completes a receive with the immediate data of an RDMA write. An error is the status for the
    /// sender.
    pub(crate) fn notify_write(&mut self, index: u32, header: &Header) -> Result<(), u32> {
        let Some(vi) = self.vis.get_mut(index) else {
            return Ok(());
        };
        let number = vi.recv.next;
        let Some(entry) = vi.recv.get(number).map(|entry| *entry) else {
            self.vi_fault(
                index,
                VIP_ERROR_RECVQ_EMPTY,
                VIP_STATUS_OP_REMOTE_RDMA_WRITE,
            );
            return Err(VIP_STATUS_REMOTE_DESC_ERROR);
        };
        vi.recv.next = number + 1;
        if entry.fault != 0 {
            let status = entry.fault | VIP_STATUS_OP_REMOTE_RDMA_WRITE;
            self.finish(index, true, number, status, Some(0));
            return Err(VIP_STATUS_REMOTE_DESC_ERROR);
        }
        entry.descriptor.set_immediate(header.imm);
        let status = VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE;
        self.finish(index, true, number, status, Some(header.total));
        Ok(())
    }

    /// Processes an RDMA read request.
    fn on_read(&mut self, rank: u32, index: u32, header: &Header) {
        self.accept(index, header.has(COUNTED));
        if !self.allows_read(index, header) {
            self.longs.refuse_read(rank, header);
            self.refuse_read(index, header.imm);
            return;
        }
        let at = usize::try_from(header.addr).unwrap_or(usize::MAX);
        if header.has(TAGGED) {
            self.on_long_read(rank, index, header, at);
            return;
        }
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        vi.read_replies.push_back(ReadReply {
            id: header.imm,
            at,
            handle: header.handle,
            total: header.total,
            sent: 0,
        });
        self.ready.push(index);
    }

    /// Processes data of an RDMA read.
    fn on_read_data(&mut self, index: u32, header: &Header, bytes: &[u8]) {
        self.accept(index, header.has(COUNTED));
        let World { vis, regions, .. } = self;
        let Some(vi) = vis.get_mut(index) else {
            return;
        };
        let ptag = vi.ptag;
        // A read that was not sent yet cannot have a reply.
        let next = vi.send.next;
        let Some(number) = vi.send.read(header.imm).filter(|number| *number < next) else {
            return;
        };
        let Some(entry) = vi
            .send
            .get(number)
            .filter(|entry| entry.mark == header.offset)
        else {
            return;
        };
        entry.mark += u32::try_from(bytes.len()).unwrap_or(0);
        let (total, received) = (entry.total, entry.mark);
        let memory = Memory { regions, ptag };
        let put = entry.descriptor.scatter(memory, header.offset, bytes);
        if let Err(status) = put {
            self.finish(index, false, number, status | VIP_STATUS_OP_RDMA_READ, None);
            self.fail_connection(index, 0, None);
            return;
        }
        if header.has(LAST) && received == total {
            self.end_read(index, number);
        }
    }

    /// Completes an RDMA read, all data of which has arrived.
    pub(crate) fn end_read(&mut self, index: u32, number: u64) {
        if let Some(vi) = self.vis.get_mut(index) {
            vi.reads_in_flight = vi.reads_in_flight.saturating_sub(1);
        }
        self.finish(index, false, number, VIP_STATUS_OP_RDMA_READ, None);
        // A fenced descriptor may have waited for this read.
        self.ready.push(index);
    }
}

#[cfg(test)]
mod tests;
