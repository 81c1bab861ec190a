// SPDX-License-Identifier: MIT OR Apache-2.0
//! VIs: their attributes and states.
//!
//! ```text
//! idle --request--> pending --accepted--> connected --failure, or ended by the other side--> error
//! idle --accepts------------------------> connected
//! idle <--refused, timeout-- pending      connected, error --VipDisconnect()--> idle
//! ```

use crate::body::Traits;
use crate::code::*;
use crate::error::{Failure, exhausted, invalid, wrong_state};
use crate::handshake::Pending;
use crate::machine::call;
use crate::nic::TRANSFER_MAX;
use crate::queue::Queue;
use crate::types::*;
use crate::wire::{Header, Kind};
use crate::world::World;
use std::collections::VecDeque;
use std::ffi::c_int;

/// Reliability level of a VI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Unreliable,
    Delivery,
    Reception,
}

impl Level {
    pub(crate) fn of(bits: VIP_RELIABILITY_LEVEL) -> Option<Level> {
        match bits.into() {
            VIP_SERVICE_UNRELIABLE => Some(Level::Unreliable),
            VIP_SERVICE_RELIABLE_DELIVERY => Some(Level::Delivery),
            VIP_SERVICE_RELIABLE_RECEPTION => Some(Level::Reception),
            _ => None,
        }
    }
}

/// An RDMA read of the other side that is in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadReply {
    pub(crate) id: u32,
    pub(crate) at: usize,
    pub(crate) handle: u32,
    pub(crate) total: u32,
    pub(crate) sent: u32,
}

/// A VI.
pub(crate) struct Vi {
    pub(crate) nic: u32,
    pub(crate) attributes: VIP_VI_ATTRIBUTES,
    pub(crate) level: Level,
    pub(crate) ptag: u32,
    pub(crate) state: VIP_VI_STATE,
    /// Token by which the other side addresses this end of the connection. Its lower half is the
    /// index of the VI.
    pub(crate) token: u32,
    pub(crate) peer_rank: u32,
    pub(crate) peer_token: u32,
    /// Set if the other side is reached through shared memory.
    pub(crate) is_lossless: bool,
    pub(crate) send: Queue,
    pub(crate) recv: Queue,
    /// Bytes of the next descriptor that were sent.
    pub(crate) begun: u32,
    pub(crate) units_sent: u32,
    pub(crate) units_acked: u32,
    /// Number of the first send that the other side may not have accepted.
    pub(crate) acked_next: u64,
    pub(crate) reads_in_flight: u32,
    /// Number of long transfers that the other side has not accepted.
    pub(crate) longs_in_flight: u32,
    /// Number of accepted units, and the last acknowledged number.
    pub(crate) accepted: u32,
    pub(crate) acknowledged: u32,
    pub(crate) is_due: bool,
    /// Number of the receive that gets the parts of the current message, and its bytes so far.
    pub(crate) partial: Option<(u64, u32)>,
    pub(crate) read_replies: VecDeque<ReadReply>,
    pub(crate) pending: Option<Box<Pending>>,
}

impl Vi {
    /// Creates an idle VI.
    pub(crate) fn new(
        nic: u32,
        attributes: VIP_VI_ATTRIBUTES,
        (level, ptag): (Level, u32),
        (send, recv): (Queue, Queue),
    ) -> Vi {
        Vi {
            nic,
            attributes,
            level,
            ptag,
            state: VIP_STATE_IDLE,
            token: 0,
            peer_rank: 0,
            peer_token: 0,
            is_lossless: false,
            send,
            recv,
            begun: 0,
            units_sent: 0,
            units_acked: 0,
            acked_next: 0,
            reads_in_flight: 0,
            longs_in_flight: 0,
            accepted: 0,
            acknowledged: 0,
            is_due: false,
            partial: None,
            read_replies: VecDeque::new(),
            pending: None,
        }
    }

    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.state == VIP_STATE_CONNECTED
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.level != Level::Unreliable
    }

    /// Returns the rank of the process that this VI waits for.
    pub(crate) fn awaited(&self) -> Option<u32> {
        match self.state {
            VIP_STATE_CONNECTED => Some(self.peer_rank),
            VIP_STATE_CONNECT_PENDING => self.pending.as_ref().map(|pending| pending.rank),
            _ => None,
        }
    }

    pub(crate) fn traits(&self) -> Traits {
        Traits::of(&self.attributes)
    }

    /// Starts a connection.
    pub(crate) fn connect(&mut self, rank: u32, token: u32) {
        self.state = VIP_STATE_CONNECTED;
        self.peer_rank = rank;
        self.peer_token = token;
        self.is_lossless = false;
        (self.units_sent, self.units_acked) = (0, 0);
        (self.accepted, self.acknowledged) = (0, 0);
        (self.begun, self.reads_in_flight, self.longs_in_flight) = (0, 0, 0);
        self.acked_next = self.send.next;
        self.partial = None;
    }
}

impl World {
    /// Returns the index of the VI with this handle.
    #[inline]
    pub(crate) fn vi(&self, handle: VIP_VI_HANDLE) -> Result<u32, Failure> {
        let index = self.vis.index_of(handle);
        index.ok_or_else(|| invalid("the handle is not a VI; VipCreateVi() creates one"))
    }

    /// Returns the VI at an index that [`World::vi`] returned.
    #[inline]
    pub(crate) fn vi_at(&mut self, index: u32) -> Result<&mut Vi, Failure> {
        self.vis
            .get_mut(index)
            .ok_or_else(|| invalid("the VI was destroyed"))
    }

    /// Checks the attributes. Returns the reliability level and the index of the protection tag.
    fn check(&self, nic: u32, attributes: &VIP_VI_ATTRIBUTES) -> Result<(Level, u32), Failure> {
        let Some(level) = Level::of(attributes.ReliabilityLevel) else {
            let text = format!(
                "{} is not a reliability level; use a VIP_SERVICE constant",
                attributes.ReliabilityLevel
            );
            return Err(Failure::new(VIP_INVALID_RELIABILITY_LEVEL, text));
        };
        if attributes.MaxTransferSize > TRANSFER_MAX {
            let size = attributes.MaxTransferSize;
            let text = format!("a maximum transfer size of {size} bytes exceeds {TRANSFER_MAX}");
            return Err(Failure::new(VIP_INVALID_MTU, text));
        }
        if level == Level::Unreliable && attributes.EnableRdmaRead != VIP_FALSE {
            let text = "RDMA read needs a reliable VI";
            return Err(Failure::new(VIP_INVALID_RDMAREAD, text));
        }
        Ok((level, self.ptag(nic, attributes.Ptag)?))
    }

    /// Returns the index of the completion queue with this handle, or `None` for a null handle.
    fn cq_for(&self, nic: u32, handle: VIP_CQ_HANDLE) -> Result<Option<u32>, Failure> {
        if handle.is_null() {
            return Ok(None);
        }
        let index = self.cq(handle)?;
        match self.cqs.get(index) {
            Some(cq) if cq.nic == nic => Ok(Some(index)),
            _ => Err(invalid("the completion queue belongs to another NIC")),
        }
    }

    /// Ends a connection, or a connection request.
    pub(crate) fn disconnect(&mut self, index: u32) {
        let Some(vi) = self.vis.get_mut(index) else {
            return;
        };
        let rank = vi.peer_rank;
        let header = Header::new(Kind::Disconnect, vi.peer_token, vi.mark_acknowledged());
        match vi.state {
            VIP_STATE_CONNECTED => {
                self.queue_message(rank, &header, &[]);
                self.withdraw_matched(index);
            }
            VIP_STATE_CONNECT_PENDING => self.withdraw(index),
            _ => {}
        }
        self.cut(index, VIP_STATE_IDLE, VIP_STATUS_DESC_FLUSHED_ERROR);
    }

    pub(crate) fn destroy_vi(&mut self, index: u32) {
        let Some(vi) = self.vis.remove(index) else {
            return;
        };
        let cqs = [(vi.send.cq, false), (vi.recv.cq, true)];
        for (cq, _) in cqs {
            if let Some(cq) = cq.and_then(|cq| self.cqs.get_mut(cq)) {
                cq.users -= 1;
                cq.forget(index);
            }
        }
    }
}

/// Creates an idle VI. Completions of its queues are also added to the completion queues
/// `SendCQHandle` and `RecvCQHandle`, unless these are null.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_PTAG,
/// VIP_INVALID_RDMAREAD, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreateVi(
    NicHandle: VIP_NIC_HANDLE,
    ViAttributes: *const VIP_VI_ATTRIBUTES,
    SendCQHandle: VIP_CQ_HANDLE,
    RecvCQHandle: VIP_CQ_HANDLE,
    ViHandle: *mut VIP_VI_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        if ViAttributes.is_null() || ViHandle.is_null() {
            return Err(Failure::null("the attributes or the place for the handle"));
        }
        // SAFETY: not null; the program guarantees that it may be read.
        let attributes = unsafe { ViAttributes.read() };
        let (level, ptag) = world.check(nic, &attributes)?;
        let send_cq = world.cq_for(nic, SendCQHandle)?;
        let recv_cq = world.cq_for(nic, RecvCQHandle)?;
        let queues = (Queue::new(send_cq), Queue::new(recv_cq));
        let made = world
            .vis
            .insert(Vi::new(nic, attributes, (level, ptag), queues));
        let index =
            made.ok_or_else(|| exhausted("the maximum number of VIs exists; destroy one first"))?;
        for cq in [send_cq, recv_cq].into_iter().flatten() {
            if let Some(cq) = world.cqs.get_mut(cq) {
                cq.users += 1;
            }
        }
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { ViHandle.write(world.vis.handle(index)) };
        Ok(VIP_SUCCESS)
    })
}

/// Destroys an idle VI with empty queues.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_INVALID_STATE, VIP_ERROR_RESOURCE when descriptors are on a
/// queue.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyVi(ViHandle: VIP_VI_HANDLE) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let index = world.vi(ViHandle)?;
        let vi = world.vi_at(index)?;
        if vi.state != VIP_STATE_IDLE {
            return Err(wrong_state(
                "the VI is not idle; call VipDisconnect() first",
            ));
        }
        if !vi.send.is_empty() || !vi.recv.is_empty() {
            return Err(exhausted(
                "descriptors are on a queue of the VI; remove them with VipSendDone() and VipRecvDone()",
            ));
        }
        world.destroy_vi(index);
        Ok(VIP_SUCCESS)
    })
}

/// Stores the state and the attributes of a VI. `SendQEmpty` and `RecvQEmpty` receive VIP_TRUE if
/// the queue is empty. Each pointer may be null.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryVi(
    ViHandle: VIP_VI_HANDLE,
    State: *mut VIP_VI_STATE,
    ViAttributes: *mut VIP_VI_ATTRIBUTES,
    SendQEmpty: *mut VIP_BOOLEAN,
    RecvQEmpty: *mut VIP_BOOLEAN,
) -> VIP_RETURN {
    call(|machine| {
        machine.progress()?;
        let mut world = machine.world();
        let index = world.vi(ViHandle)?;
        let vi = world.vi_at(index)?;
        // SAFETY: each is null, or the program guarantees that it may be written.
        unsafe {
            put(State, vi.state);
            put(ViAttributes, vi.attributes);
            put(SendQEmpty, c_int::from(vi.send.is_empty()));
            put(RecvQEmpty, c_int::from(vi.recv.is_empty()));
        }
        Ok(VIP_SUCCESS)
    })
}

/// Stores a value unless `at` is null.
///
/// # Safety
/// `at` is null, or may be written.
pub(crate) unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { at.write(value) };
    }
}

/// Changes the attributes of an idle VI.
///
/// Errors: those of VipCreateVi(), and VIP_INVALID_STATE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSetViAttributes(
    ViHandle: VIP_VI_HANDLE,
    ViAttributes: *const VIP_VI_ATTRIBUTES,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let index = world.vi(ViHandle)?;
        if ViAttributes.is_null() {
            return Err(Failure::null("ViAttributes"));
        }
        // SAFETY: not null; the program guarantees that it may be read.
        let attributes = unsafe { ViAttributes.read() };
        let vi = world.vi_at(index)?;
        let nic = vi.nic;
        if vi.state != VIP_STATE_IDLE {
            return Err(wrong_state(
                "the VI is not idle; call VipDisconnect() first",
            ));
        }
        let (level, ptag) = world.check(nic, &attributes)?;
        let vi = world.vi_at(index)?;
        (vi.attributes, vi.level, vi.ptag) = (attributes, level, ptag);
        Ok(VIP_SUCCESS)
    })
}
