// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of operations that cannot be accessed: unmapped, or in pages that forbid it. The
//! operations fail at both ends, and every other operation continues.
//!
//! Memory is probed before this process copies into it or out of it on behalf of the core, and
//! after a system call has failed there. The copies of a call of the program itself are not
//! probed: a short message is copied as by `memcpy`.

use super::delivery::copy_part;
use super::gather::two_pieces_of;
use super::{Engine, Inner};
use crate::error::Error;
use crate::ops::{OpKind, Ops};
use portolan_link::RxFrame;
use portolan_proto::{Data, Dest, OpError, OpId, PeerId, Reply, TakenRun, Transmit, copy};
use portolan_sys::{probe, usage};
use std::ops::Range;

/// Longest message that is copied without a probe, as by `memcpy`. A probe would add a few percent
/// to its copy.
const UNPROBED_LEN_MAX: usize = 4096;

/// Error of an operation whose memory this process cannot write.
pub(super) const UNWRITABLE: OpError = OpError::Fault { written: true };

/// Operations whose memory, here or at the peer, could not be accessed. They fail when the core
/// completes them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    failing: Vec<(OpId, OpError)>,
    /// Regions, and ranges of them, that could not be written when the last bytes of a put arrived.
    /// The put has yet to be answered.
    unwritten: Vec<(OpId, Range<u64>)>,
    /// Set if the next notice of a put must be discarded.
    skips_notice: bool,
}

/// Returns whether a received message can be copied to `dst`. Short ones are not probed.
#[inline]
pub(super) fn can_place_whole(dst: &mut [u8]) -> bool {
    dst.len() <= UNPROBED_LEN_MAX || probe::is_writable(dst)
}

impl Inner {
    /// Returns the error of `op` if its memory could not be accessed.
    #[inline]
    pub(super) fn take_fault(&mut self, op: OpId) -> Option<OpError> {
        match self.faults.failing.is_empty() {
            true => None,
            false => self.find_fault(op),
        }
    }

    #[cold]
    fn find_fault(&mut self, op: OpId) -> Option<OpError> {
        let op = self.ops.real(op);
        let place = self
            .faults
            .failing
            .iter()
            .position(|(failing, _)| *failing == op)?;
        Some(self.faults.failing.swap_remove(place).1)
    }

    /// Returns whether the notice of a put must be discarded because its bytes were not written.
    #[inline]
    pub(super) fn skips_notice(&mut self) -> bool {
        std::mem::take(&mut self.faults.skips_notice)
    }

    /// Records that `op` fails when the core completes it.
    #[cold]
    pub(super) fn note_fault(&mut self, op: OpId, error: OpError) {
        let op = self.ops.real(op);
        // Regions are excluded: no operation of this process owns their memory.
        if self.ops.exists(op) && self.ops.kind(op) != Some(OpKind::Region) {
            let Inner { faults, ops, .. } = self;
            let is_kept = |failing| failing != op && ops.exists(failing);
            faults.failing.retain(|(failing, _)| is_kept(*failing));
            self.faults.failing.push((op, error));
        }
    }

    /// Fails what the core moves into bytes `range` of `op`, which cannot be written.
    #[cold]
    pub(super) fn fail_writes(&mut self, op: OpId, range: Range<usize>) {
        self.report_fault(op, "written");
        self.note_fault(op, UNWRITABLE);
        let range = range.start as u64..range.end as u64;
        let ended = self.core.fail_writes(op, &range);
        if ended == 0 && self.ops.kind(op) == Some(OpKind::Region) {
            let Inner { faults, ops, .. } = self;
            faults.unwritten.retain(|(region, _)| ops.exists(*region));
            faults.unwritten.push((op, range));
        }
    }

    /// Returns whether the transfer of a put to bytes `range` of `region` found memory that could not
    /// be written.
    fn take_unwritten(&mut self, region: OpId, range: &Range<u64>) -> bool {
        let touches = |(op, part): &(OpId, Range<u64>)| {
            *op == region && part.start < range.end && range.start < part.end
        };
        let place = self.faults.unwritten.iter().position(touches);
        place
            .map(|place| self.faults.unwritten.swap_remove(place))
            .is_some()
    }

    /// Fails what the core moves out of bytes `range` of `op`, which cannot be read.
    #[cold]
    fn fail_reads(&mut self, op: OpId, range: Range<usize>) {
        self.report_fault(op, "read");
        self.note_fault(op, OpError::Fault { written: false });
        let range = range.start as u64..range.end as u64;
        self.core.fail_reads(op, &range);
    }

    /// Logs a fault of a region: no operation of this process fails because of it.
    fn report_fault(&self, op: OpId, verb: &str) {
        if self.ops.kind(op) == Some(OpKind::Region) {
            log::error!(
                "memory of a region cannot be {verb}: it was unmapped or protected; deregister it first"
            );
        }
    }

    /// Copies a part of the frame to `off` in the memory of `op`. Memory that cannot be written
    /// fails the operation.
    #[inline]
    pub(super) fn place(
        &mut self,
        frame: Option<&RxFrame<'_>>,
        op: OpId,
        off: u64,
        src: Range<usize>,
    ) {
        let off = usize::try_from(off).unwrap_or(usize::MAX);
        let dst = self.ops.bytes_mut(op).get_mut(off..);
        if let Some(dst) = dst.and_then(|dst| dst.get_mut(..src.len())) {
            match probe::is_writable(dst) {
                true => copy_part(frame, src, dst),
                false => self.fail_writes(op, off..off + src.len()),
            }
        }
    }

    /// Copies the bytes of a put into its region. If they cannot be written, the put is refused.
    pub(super) fn write_put(
        &mut self,
        frame: Option<&RxFrame<'_>>,
        (reply, len): (&Reply, u64),
        data: Data,
        notifies: bool,
    ) {
        let is_written = match data {
            Data::Placed => !self.take_unwritten(reply.region, &(reply.off..reply.off + len)),
            data => self.copy_put(frame, reply, len, data),
        };
        if !is_written {
            self.core.refuse_put(reply);
            self.faults.skips_notice = notifies;
            self.report_fault(reply.region, "written");
        }
    }

    /// Returns `false` if the memory cannot be written.
    fn copy_put(
        &mut self,
        frame: Option<&RxFrame<'_>>,
        reply: &Reply,
        len: u64,
        data: Data,
    ) -> bool {
        let Inner { core, ops, .. } = self;
        let off = usize::try_from(reply.off).unwrap_or(usize::MAX);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let dst = ops.bytes_mut(reply.region).get_mut(off..);
        let mut dst = dst.and_then(|dst| dst.get_mut(..len));
        let is_writable = dst.as_mut().is_some_and(|dst| probe::is_writable(dst));
        match (data, dst) {
            (Data::Frame(src), Some(dst)) if is_writable => copy_part(frame, src, dst),
            (Data::Held(held), dst) => {
                if let Some(dst) = dst.filter(|_| is_writable) {
                    usage::count_copy();
                    copy(dst, core.held(held));
                }
                core.release(held);
            }
            _ => {}
        }
        is_writable
    }

    /// Returns whether the frames of a run can be copied to their destination. If not, the
    /// operation fails.
    pub(super) fn can_place_run(&mut self, run: &TakenRun) -> bool {
        let Dest::Op(op, off) = run.dest else {
            return true;
        };
        let off = usize::try_from(off).unwrap_or(usize::MAX);
        let dst = self.ops.bytes_mut(op).get_mut(off..).unwrap_or_default();
        let len = dst.len().min(run.len);
        let is_writable = probe::is_writable(&mut dst[..len]);
        if !is_writable {
            self.fail_writes(op, off..off + len);
        }
        is_writable
    }
}

/// Returns the operations with unreadable bytes in `transmit`, and the ranges of those bytes.
#[inline]
pub(super) fn unreadable(ops: &Ops, transmit: &Transmit<'_>) -> Option<Vec<(OpId, Range<usize>)>> {
    let mut bad = None;
    for part in transmit.payload() {
        let pieces = two_pieces_of(ops, part).unwrap_or_default();
        if !pieces.iter().all(|piece| probe::is_readable(piece)) {
            let off = usize::try_from(part.off).unwrap_or(usize::MAX);
            let range = off..off.saturating_add(part.len);
            bad.get_or_insert_with(Vec::new).push((part.op, range));
        }
    }
    bad
}

impl Inner {
    /// Returns the error of an operation on memory that this process cannot access.
    #[cold]
    pub(super) fn fault_error(&self, op: OpId, written: bool) -> Error {
        let operation = match (self.ops.kind(op), written) {
            (Some(OpKind::Remote(_)), true) => "get",
            (Some(OpKind::Remote(_)), false) => "put",
            (_, true) => "receive",
            (_, false) => "send",
        };
        let access = if written { "written" } else { "read" };
        Error::Fault { operation, access }
    }

    /// Returns the error of an operation with a peer that cannot access its memory.
    #[cold]
    pub(super) fn peer_fault_error(&self, op: OpId, peer: PeerId) -> Error {
        let (operation, access) = match self.ops.kind(op) {
            Some(OpKind::Send(_)) => ("receive", "write"),
            Some(OpKind::Remote(_)) => ("region", "read"),
            _ => ("send", "read"),
        };
        Error::PeerFault {
            rank: peer.0,
            host: self.host_of(peer),
            operation,
            access,
        }
    }
}

impl Engine {
    /// Fails the operations in `bad`, which have unreadable memory. The frame with their bytes was
    /// not sent.
    #[cold]
    pub(super) fn on_unreadable(&mut self, bad: Vec<(OpId, Range<usize>)>) {
        for (op, range) in bad {
            self.inner.fail_reads(op, range);
        }
        self.inner.drain(&mut self.handlers, None);
    }
}
