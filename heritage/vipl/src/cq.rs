// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: VI and queue of each completed descriptor, in the order of completion.

use crate::code::*;
use crate::error::{Failure, exhausted, invalid};
use crate::helper::wake_helper;
use crate::machine::call;
use crate::types::*;
use crate::wait::{Deadline, wait_for};
use crate::world::World;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

/// Maximum number of entries in a completion queue: enough for 64 VIs with full queues.
pub(crate) const ENTRIES_MAX: usize = 64 * 2 * crate::queue::DESCRIPTORS_MAX;

/// Function of the program that is called with a completion.
pub type VIP_CQ_HANDLER = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        nic: VIP_NIC_HANDLE,
        vi: VIP_VI_HANDLE,
        is_receive: VIP_BOOLEAN,
    ),
>;

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) nic: u32,
    /// Index of the VI, and true for a receive.
    entries: VecDeque<(u32, bool)>,
    entries_max: usize,
    /// Number of work queues that report to this completion queue.
    pub(crate) users: u32,
    /// Handlers for the next entries.
    pub(crate) handlers: VecDeque<(VIP_CQ_HANDLER, *mut c_void)>,
}

impl Cq {
    /// Adds an entry. Returns `false` if the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, vi: u32, is_recv: bool) -> bool {
        let has_space = self.entries.len() < self.entries_max;
        if has_space {
            self.entries.push_back((vi, is_recv));
        }
        has_space
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u32, bool)> {
        self.entries.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes the entries of a destroyed VI.
    pub(crate) fn forget(&mut self, vi: u32) {
        self.entries.retain(|(other, _)| *other != vi);
    }
}

impl World {
    /// Returns the index of the completion queue with this handle.
    #[inline]
    pub(crate) fn cq(&self, handle: VIP_CQ_HANDLE) -> Result<u32, Failure> {
        let index = self.cqs.index_of(handle);
        index.ok_or_else(|| {
            invalid("the handle is not a completion queue; VipCreateCQ() creates one")
        })
    }

    fn cq_at(&mut self, index: u32) -> Result<&mut Cq, Failure> {
        self.cqs
            .get_mut(index)
            .ok_or_else(|| invalid("the completion queue was destroyed"))
    }

    /// Removes the next entry.
    #[inline]
    fn take_entry(
        &mut self,
        handle: VIP_CQ_HANDLE,
    ) -> Result<Option<(VIP_VI_HANDLE, bool)>, Failure> {
        let index = self.cq(handle)?;
        let taken = self.cq_at(index)?.pop();
        Ok(taken.map(|(vi, is_recv)| (self.vis.handle(vi), is_recv)))
    }
}

fn entries(count: VIP_ULONG) -> Result<usize, Failure> {
    match usize::try_from(count) {
        Ok(count) if (1..=ENTRIES_MAX).contains(&count) => Ok(count),
        _ => Err(exhausted(format!(
            "a completion queue has 1 to {ENTRIES_MAX} entries, not {count}"
        ))),
    }
}

/// Creates a completion queue. When it holds `EntryCount` entries, further entries are lost and an
/// asynchronous error is reported.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreateCQ(
    NicHandle: VIP_NIC_HANDLE,
    EntryCount: VIP_ULONG,
    CQHandle: *mut VIP_CQ_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        if CQHandle.is_null() {
            return Err(Failure::null("CQHandle"));
        }
        let entries_max = entries(EntryCount)?;
        let made = world.cqs.insert(Cq {
            nic,
            entries: VecDeque::new(),
            entries_max,
            users: 0,
            handlers: VecDeque::new(),
        });
        let index = made.ok_or_else(|| {
            exhausted("the maximum number of completion queues exists; destroy one first")
        })?;
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { CQHandle.write(world.cqs.handle(index)) };
        Ok(VIP_SUCCESS)
    })
}

/// Changes the number of entries of a completion queue.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when it holds more entries.
#[unsafe(no_mangle)]
pub extern "C" fn VipResizeCQ(CQHandle: VIP_CQ_HANDLE, EntryCount: VIP_ULONG) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let index = world.cq(CQHandle)?;
        let entries_max = entries(EntryCount)?;
        let cq = world.cq_at(index)?;
        if cq.entries.len() > entries_max {
            let waiting = cq.entries.len();
            return Err(exhausted(format!(
                "the completion queue holds {waiting} entries, more than {entries_max}"
            )));
        }
        cq.entries_max = entries_max;
        Ok(VIP_SUCCESS)
    })
}

/// Destroys a completion queue that no VI uses.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyCQ(CQHandle: VIP_CQ_HANDLE) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let index = world.cq(CQHandle)?;
        if world.cq_at(index)?.users > 0 {
            return Err(exhausted(
                "VIs use the completion queue; destroy them first",
            ));
        }
        world.cqs.remove(index);
        Ok(VIP_SUCCESS)
    })
}

/// Stores an entry.
///
/// # Safety
/// Both pointers are null, or may be written.
unsafe fn put_entry(
    (vi, is_recv): (VIP_VI_HANDLE, bool),
    vi_at: *mut VIP_VI_HANDLE,
    is_recv_at: *mut VIP_BOOLEAN,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        crate::vi::put(vi_at, vi);
        crate::vi::put(is_recv_at, c_int::from(is_recv));
    }
}

/// Removes the next entry of a completion queue. Stores the VI whose descriptor has completed, and
/// VIP_TRUE for its receive queue. Take the descriptor with VipRecvDone() or VipSendDone().
///
/// Errors: VIP_NOT_DONE, VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQDone(
    CQHandle: VIP_CQ_HANDLE,
    ViHandle: *mut VIP_VI_HANDLE,
    RecvQueue: *mut VIP_BOOLEAN,
) -> VIP_RETURN {
    call(|machine| {
        let mut found = machine.world().take_entry(CQHandle)?;
        if found.is_none() {
            machine.poll()?;
            found = machine.world().take_entry(CQHandle)?;
        }
        let Some(found) = found else {
            return Ok(VIP_NOT_DONE);
        };
        // SAFETY: guaranteed by the program.
        unsafe { put_entry(found, ViHandle, RecvQueue) };
        Ok(VIP_SUCCESS)
    })
}

/// Waits for the next entry of a completion queue and removes it, as VipCQDone() does, for
/// `Timeout` milliseconds or VIP_INFINITE.
///
/// Errors: VIP_TIMEOUT, VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQWait(
    CQHandle: VIP_CQ_HANDLE,
    Timeout: VIP_ULONG,
    ViHandle: *mut VIP_VI_HANDLE,
    RecvQueue: *mut VIP_BOOLEAN,
) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        let deadline = Deadline::of(Timeout);
        let found = wait_for(deadline, |machine| machine.world().take_entry(CQHandle))?;
        let Some(found) = found else {
            return Ok(VIP_TIMEOUT);
        };
        // SAFETY: guaranteed by the program.
        unsafe { put_entry(found, ViHandle, RecvQueue) };
        Ok(VIP_SUCCESS)
    })
}

/// Calls `Handler` once, from a thread of the library, with the next entry, which is removed.
/// Several calls are served in order.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQNotify(
    CQHandle: VIP_CQ_HANDLE,
    Context: *mut c_void,
    Handler: VIP_CQ_HANDLER,
) -> VIP_RETURN {
    call(|machine| {
        {
            let mut world = machine.world();
            let index = world.cq(CQHandle)?;
            if Handler.is_none() {
                return Err(Failure::null("Handler"));
            }
            let cq = world.cq_at(index)?;
            if cq.handlers.len() >= ENTRIES_MAX {
                return Err(exhausted(
                    "as many handlers are pending as a completion queue can hold entries",
                ));
            }
            cq.handlers.push_back((Handler, Context));
        }
        wake_helper(machine)?;
        Ok(VIP_SUCCESS)
    })
}
