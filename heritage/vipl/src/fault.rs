// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of descriptors and connections, and asynchronous errors, which the library's thread
//! reports (`helper.rs`).

use crate::code::*;
use crate::helper::wake_helper;
use crate::machine::call;
use crate::queue::Op;
use crate::types::*;
use crate::unit::status_of;
use crate::vi::Level;
use crate::wire::{Header, Kind, OF_READ};
use crate::world::World;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;

/// Maximum number of asynchronous errors that wait for their handler. Further ones are dropped.
const FAULTS_MAX: usize = 1024;

/// Function of the program that is called when an asynchronous error occurs.
pub type VIP_ERROR_HANDLER =
    Option<unsafe extern "C" fn(context: *mut c_void, error: *mut VIP_ERROR_DESCRIPTOR)>;

/// Asynchronous errors that were not reported yet.
pub(crate) struct Faults {
    /// Errors, each with the index of its NIC.
    pub(crate) waiting: VecDeque<(u32, VIP_ERROR_DESCRIPTOR)>,
}

impl Faults {
    pub(crate) const fn new() -> Self {
        Faults {
            waiting: VecDeque::new(),
        }
    }

    /// Removes the errors of a NIC.
    pub(crate) fn forget(&mut self, nic: u32) {
        self.waiting.retain(|(other, _)| *other != nic);
    }
}

impl World {
    /// Queues an asynchronous error for the NIC's handler. Without a handler, the error is printed.
    #[cold]
    pub(crate) fn fault(
        &mut self,
        nic: u32,
        resource: VIP_RESOURCE_CODE,
        code: VIP_ERROR_CODE,
        about: impl FnOnce(&World, VIP_ERROR_DESCRIPTOR) -> VIP_ERROR_DESCRIPTOR,
    ) {
        let handler = self.nics.get(nic).and_then(|nic| nic.on_error.0);
        let plain = VIP_ERROR_DESCRIPTOR {
            NicHandle: self.nics.handle(nic),
            ViHandle: ptr::null_mut(),
            CQHandle: ptr::null_mut(),
            DescriptorPtr: ptr::null_mut(),
            OpCode: 0,
            ResourceCode: resource,
            ErrorCode: code,
        };
        let fault = about(self, plain);
        if handler.is_none() {
            // The end of a connection is also visible in the state of its VI and in its
            // descriptors.
            if code != VIP_ERROR_CONN_LOST {
                eprintln!(
                    "vipl: {}; set a handler with VipErrorCallback()",
                    name_of(code)
                );
            }
            return;
        }
        if self.faults.waiting.len() < FAULTS_MAX {
            self.faults.waiting.push_back((nic, fault));
            self.has_calls = true;
        }
    }

    /// Reports an asynchronous error of a VI.
    #[cold]
    pub(crate) fn vi_fault(&mut self, index: u32, code: VIP_ERROR_CODE, op: u32) {
        let Some(nic) = self.vis.get(index).map(|vi| vi.nic) else {
            return;
        };
        self.fault(nic, VIP_RESOURCE_VI, code, |world, fault| {
            VIP_ERROR_DESCRIPTOR {
                ViHandle: world.vis.handle(index),
                OpCode: op.into(),
                ..fault
            }
        });
    }

    /// Fails a send. This also breaks a reliable connection.
    #[cold]
    pub(crate) fn fail_send(&mut self, index: u32, number: u64, status: u32) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        (vi.begun, vi.send.next) = (0, number + 1);
        let is_reliable = vi.is_reliable();
        let op = vi.send.get(number).map_or(Op::Send, |entry| entry.op);
        self.finish(index, false, number, status | status_of(op), None);
        if is_reliable {
            self.fail_connection(index, 0, None);
        }
    }

    /// Refuses a message of the other side. If the VI's level requires it, the other side is
    /// notified of the status with which its descriptor completes.
    #[cold]
    pub(crate) fn refuse(&mut self, index: u32, is_counted: bool, status: u32) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        match vi.level {
            // The message is lost.
            Level::Unreliable => self.accept(index, is_counted),
            Level::Delivery => {
                // The message has arrived, which is all that this level guarantees.
                vi.accepted = vi.accepted.wrapping_add(1);
                self.fail_connection(index, 0, None);
            }
            Level::Reception => self.fail_connection(index, status, None),
        }
    }

    /// Refuses a read request of the other side.
    #[cold]
    pub(crate) fn refuse_read(&mut self, index: u32, id: u32) {
        self.vi_fault(index, VIP_ERROR_RDMAR_PROT, VIP_STATUS_OP_RDMA_READ);
        self.fail_connection(index, VIP_STATUS_RDMA_PROT_ERROR, Some(id));
    }

    /// Ends a connection that has failed, and notifies the other side.
    #[cold]
    pub(crate) fn fail_connection(&mut self, index: u32, status: u32, read: Option<u32>) {
        let Some(vi) = self.vis.get_mut(index).filter(|vi| vi.is_connected()) else {
            return;
        };
        let mut header = Header::new(Kind::Broken, vi.peer_token, vi.mark_acknowledged());
        header.total = status;
        if let Some(id) = read {
            (header.flags, header.imm) = (OF_READ, id);
        }
        let rank = vi.peer_rank;
        self.queue_message(rank, &header, &[]);
        self.withdraw_matched(index);
        self.cut(index, VIP_STATE_ERROR, VIP_STATUS_DESC_FLUSHED_ERROR);
    }

    /// Handles a failure that the other side reports with the end of the connection.
    #[cold]
    pub(crate) fn on_broken(&mut self, index: u32, header: &Header) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        let status = header.total & VIP_STATUS_ERROR_MASK;
        let culprit = match header.has(OF_READ) {
            true => vi.send.read(header.imm),
            false => {
                let sent = vi.acked_next..vi.send.next + u64::from(vi.begun > 0);
                sent.into_iter()
                    .find(|number| vi.send.is_unacknowledged(*number))
            }
        };
        let culprit = culprit.filter(|_| status != 0);
        let op = culprit
            .and_then(|number| vi.send.get(number))
            .map(|entry| entry.op);
        if let (Some(number), Some(op)) = (culprit, op) {
            self.finish(index, false, number, status | status_of(op), None);
        }
        self.vi_fault(index, VIP_ERROR_CONN_LOST, 0);
        self.cut(index, VIP_STATE_ERROR, VIP_STATUS_DESC_FLUSHED_ERROR);
    }

    /// Ends a connection on this side. Descriptors in flight complete with `status`; all others are
    /// flushed.
    pub(crate) fn cut(&mut self, index: u32, state: VIP_VI_STATE, status: u32) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        let was_connected = vi.is_connected();
        vi.state = state;
        vi.token = 0;
        vi.read_replies.clear();
        vi.partial = None;
        // The result of a request is reported even if the connection has ended by then.
        let pending = vi.pending.as_ref();
        let has_ended = pending.is_some_and(|pending| pending.outcome.is_some());
        if state == VIP_STATE_IDLE || !has_ended {
            vi.pending = None;
        }
        let (rank, left) = (vi.peer_rank, vi.units_sent.wrapping_sub(vi.units_acked));
        vi.units_acked = vi.units_sent;
        let next = vi.send.next + u64::from(vi.begun > 0);
        vi.begun = 0;
        let sends = vi.send.ended..vi.send.end();
        let receives = vi.recv.ended..vi.recv.end();
        for number in sends {
            let Some(op) = self.op_of(index, number) else {
                continue;
            };
            let status = if number < next {
                status
            } else {
                VIP_STATUS_DESC_FLUSHED_ERROR
            };
            self.finish(index, false, number, status | status_of(op), None);
        }
        // Receives that were posted before a connection was requested stay posted for the next one.
        for number in receives.filter(|_| was_connected || state == VIP_STATE_IDLE) {
            let status = VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_OP_RECEIVE;
            self.finish(index, true, number, status, Some(0));
        }
        if let Some(vi) = self.vis.get_mut(index) {
            // Descriptors of long transfers may complete later.
            vi.send.next = vi.send.end();
            vi.recv.next = match was_connected || state == VIP_STATE_IDLE {
                true => vi.recv.end(),
                false => vi.recv.ended,
            };
        }
        if was_connected {
            self.land(rank, left);
        }
    }

    fn op_of(&mut self, index: u32, number: u64) -> Option<Op> {
        let entry = self.vis.get_mut(index)?.send.get(number)?;
        (!entry.has_ended).then_some(entry.op)
    }

    /// Ends all connections with a process that has failed or exited.
    pub(crate) fn fail_peer(&mut self, rank: u32) {
        self.peer(rank).has_failed = true;
        self.peer(rank).waiting.clear();
        let with =
            |(index, vi): (u32, &crate::vi::Vi)| (vi.awaited() == Some(rank)).then_some(index);
        let affected: Vec<u32> = self.vis.iter().filter_map(with).collect();
        for index in affected {
            if self.vis.get(index).is_some_and(|vi| vi.is_connected()) {
                self.vi_fault(index, VIP_ERROR_CONN_LOST, 0);
                self.cut(index, VIP_STATE_ERROR, VIP_STATUS_TRANSPORT_ERROR);
            } else {
                self.conclude(index, VIP_NOT_REACHABLE, None);
            }
        }
        self.forget_offers(rank);
        self.peer(rank).in_flight = 0;
    }
}

fn name_of(code: VIP_ERROR_CODE) -> &'static str {
    match code {
        VIP_ERROR_POST_DESC => "a posted descriptor is not in registered memory of its VI",
        VIP_ERROR_CONN_LOST => "a connection was lost",
        VIP_ERROR_RECVQ_EMPTY => "a message arrived without a posted receive descriptor",
        VIP_ERROR_VI_OVERRUN => "a completion queue was full, and an entry was dropped",
        VIP_ERROR_RDMAW_PROT => "another process has tried to write to memory without permission",
        VIP_ERROR_RDMAR_PROT => "another process has tried to read memory without permission",
        VIP_ERROR_CATASTROPHIC => "the library cannot continue",
        _ => "an asynchronous error",
    }
}

/// Sets the function that is called for asynchronous errors; null removes it. It is called from a
/// thread of the library. Without a function, the errors are printed to standard error, except for
/// connections that end.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipErrorCallback(
    NicHandle: VIP_NIC_HANDLE,
    Context: *mut c_void,
    Handler: VIP_ERROR_HANDLER,
) -> VIP_RETURN {
    call(|machine| {
        let nic = machine.world().nic(NicHandle)?;
        if Handler.is_some() {
            wake_helper(machine)?;
        }
        if let Some(nic) = machine.world().nics.get_mut(nic) {
            nic.on_error = (Handler, Context);
        }
        Ok(VIP_SUCCESS)
    })
}
