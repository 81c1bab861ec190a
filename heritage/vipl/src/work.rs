// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posting descriptors, and taking completed ones.

use crate::code::*;
use crate::descriptor::Descriptor;
use crate::error::{Failure, exhausted, invalid};
use crate::helper::wake_helper;
use crate::machine::call;
use crate::queue::{DESCRIPTORS_MAX, Entry, Op, Queue, VIP_WORK_HANDLER};
use crate::types::*;
use crate::vi::{Level, Vi};
use crate::wait::{Deadline, wait_for};
use crate::world::World;
use std::ffi::c_void;
use std::ptr;

impl Vi {
    #[inline]
    fn queue(&mut self, is_recv: bool) -> &mut Queue {
        match is_recv {
            true => &mut self.recv,
            false => &mut self.send,
        }
    }

    /// Creates the queue entry of a send. `fault` is the error status of a malformed descriptor. A read
    /// gets the number that `next_read` returns.
    #[inline]
    fn send_entry(&self, descriptor: Descriptor, next_read: impl FnOnce() -> u32) -> Entry {
        let mut entry = Entry::new(descriptor, Op::Send);
        let parsed = match descriptor.parse() {
            Ok(parsed) => parsed,
            Err(status) => {
                entry.fault = status;
                return entry;
            }
        };
        (entry.control, entry.total) = (parsed.control, parsed.total);
        entry.op = match parsed.control & VIP_CONTROL_OP_MASK {
            VIP_CONTROL_OP_RDMAWRITE => Op::Write,
            VIP_CONTROL_OP_RDMAREAD => Op::Read(next_read()),
            _ => Op::Send,
        };
        let is_too_long = u64::from(parsed.total) > self.attributes.MaxTransferSize;
        if self.level == Level::Unreliable && matches!(entry.op, Op::Read(_)) {
            entry.fault = VIP_STATUS_FORMAT_ERROR;
        } else if is_too_long || descriptor.declared_len() != parsed.total {
            entry.fault = VIP_STATUS_LENGTH_ERROR;
        }
        entry
    }

    /// Creates the queue entry of a receive. `fault` is the error status of a malformed descriptor.
    #[inline]
    fn recv_entry(descriptor: Descriptor) -> Entry {
        let (total, fault) = match descriptor.parse() {
            Ok(parsed) if parsed.control & VIP_CONTROL_OP_MASK != VIP_CONTROL_OP_SENDRECV => {
                (0, VIP_STATUS_FORMAT_ERROR)
            }
            Ok(parsed) => (parsed.total, 0),
            Err(status) => (0, status),
        };
        Entry {
            total,
            fault,
            ..Entry::new(descriptor, Op::Recv)
        }
    }
}

impl World {
    /// Posts a descriptor to a queue. Returns the index of the VI.
    #[inline]
    fn post(
        &mut self,
        handle: VIP_VI_HANDLE,
        descriptor: Descriptor,
        memory: VIP_MEM_HANDLE,
        is_recv: bool,
    ) -> Result<u32, Failure> {
        let index = self.vi(handle)?;
        if !descriptor.is_aligned() {
            return Err(invalid(
                "the descriptor is null, or its address is not a multiple of 64",
            ));
        }
        let vi = self.vi_at(index)?;
        let ptag = vi.ptag;
        if vi.queue(is_recv).is_full() {
            return Err(exhausted(format!(
                "the queue is full with {DESCRIPTORS_MAX} descriptors; remove some with VipSendDone() or VipRecvDone()"
            )));
        }
        let at = descriptor.0.expose_provenance();
        if !self.regions.covers(memory, at, descriptor.len(), ptag) {
            return Err(self.misplaced(index, descriptor));
        }
        descriptor.begin();
        let World { vis, longs, .. } = self;
        let vi = vis
            .get_mut(index)
            .ok_or_else(|| invalid("the VI was destroyed"))?;
        let entry = match is_recv {
            true => Vi::recv_entry(descriptor),
            false => vi.send_entry(descriptor, || longs.next_read()),
        };
        let number = vi.queue(is_recv).push(entry);
        let waits = match vi.state {
            VIP_STATE_CONNECTED => true,
            VIP_STATE_ERROR => false,
            _ => is_recv,
        };
        if !waits {
            let status = VIP_STATUS_DESC_FLUSHED_ERROR | crate::unit::status_of(entry.op);
            let queue = vi.queue(is_recv);
            queue.next = number + 1;
            self.finish(index, is_recv, number, status, is_recv.then_some(0));
        }
        Ok(index)
    }

    #[cold]
    fn misplaced(&mut self, index: u32, descriptor: Descriptor) -> Failure {
        let nic = self.vis.get(index).map_or(0, |vi| vi.nic);
        let resource = VIP_RESOURCE_DESCRIPTOR;
        self.fault(nic, resource, VIP_ERROR_POST_DESC, |world, fault| {
            VIP_ERROR_DESCRIPTOR {
                ViHandle: world.vis.handle(index),
                DescriptorPtr: descriptor.0,
                ..fault
            }
        });
        invalid("the descriptor is not in memory with this handle and the protection tag of the VI")
    }

    /// Removes the first descriptor of a queue if it is complete. Returns it with its result.
    #[inline]
    fn take(
        &mut self,
        handle: VIP_VI_HANDLE,
        is_recv: bool,
    ) -> Result<Option<(VIP_RETURN, *mut VIP_DESCRIPTOR)>, Failure> {
        let index = self.vi(handle)?;
        let queue = self.vi_at(index)?.queue(is_recv);
        if let Some(descriptor) = queue.take() {
            let result = match is_error(descriptor.status()) {
                true => VIP_DESCRIPTOR_ERROR,
                false => VIP_SUCCESS,
            };
            return Ok(Some((result, descriptor.0)));
        }
        Ok(queue
            .is_empty()
            .then_some((VIP_DESCRIPTOR_ERROR, ptr::null_mut())))
    }
}

/// Posts a descriptor to the send queue of a VI. The descriptor is in registered memory with handle
/// `MemoryHandle`. The library owns it, and the memory it refers to, until it completes. On a VI
/// that is not connected it is flushed immediately.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when the queue is full, VIP_NOT_REACHABLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipPostSend(
    ViHandle: VIP_VI_HANDLE,
    DescriptorPtr: *mut VIP_DESCRIPTOR,
    MemoryHandle: VIP_MEM_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let descriptor = Descriptor(DescriptorPtr);
        let index = machine
            .world()
            .post(ViHandle, descriptor, MemoryHandle, false)?;
        machine.pump(index)?;
        machine.work()?;
        Ok(VIP_SUCCESS)
    })
}

/// Posts a descriptor to the receive queue of a VI, as VipPostSend() does for the send queue. On an
/// idle VI it waits for a connection.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipPostRecv(
    ViHandle: VIP_VI_HANDLE,
    DescriptorPtr: *mut VIP_DESCRIPTOR,
    MemoryHandle: VIP_MEM_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let descriptor = Descriptor(DescriptorPtr);
        machine
            .world()
            .post(ViHandle, descriptor, MemoryHandle, true)?;
        Ok(VIP_SUCCESS)
    })
}

/// Takes a completed descriptor.
///
/// # Safety
/// `at` is null, or may be written.
#[inline]
unsafe fn done(handle: VIP_VI_HANDLE, at: *mut *mut VIP_DESCRIPTOR, is_recv: bool) -> VIP_RETURN {
    call(|machine| {
        if at.is_null() {
            return Err(Failure::null("the place for the descriptor"));
        }
        let mut taken = machine.world().take(handle, is_recv)?;
        if taken.is_none() {
            machine.poll()?;
            taken = machine.world().take(handle, is_recv)?;
        }
        let Some((result, descriptor)) = taken else {
            return Ok(VIP_NOT_DONE);
        };
        // SAFETY: not null; the caller guarantees that it may be written.
        unsafe { at.write(descriptor) };
        Ok(result)
    })
}

/// Removes the first descriptor of the send queue if it is complete. Its status contains the
/// result.
///
/// Errors: VIP_NOT_DONE; VIP_DESCRIPTOR_ERROR when it has completed with an error, or with a null
/// descriptor when the queue is empty; VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendDone(
    ViHandle: VIP_VI_HANDLE,
    DescriptorPtr: *mut *mut VIP_DESCRIPTOR,
) -> VIP_RETURN {
    // SAFETY: guaranteed by the program.
    unsafe { done(ViHandle, DescriptorPtr, false) }
}

/// Removes the first descriptor of the receive queue if it is complete.
///
/// Errors: those of VipSendDone().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvDone(
    ViHandle: VIP_VI_HANDLE,
    DescriptorPtr: *mut *mut VIP_DESCRIPTOR,
) -> VIP_RETURN {
    // SAFETY: guaranteed by the program.
    unsafe { done(ViHandle, DescriptorPtr, true) }
}

/// Waits for a completed descriptor and takes it.
///
/// # Safety
/// `at` is null, or may be written.
unsafe fn wait(
    handle: VIP_VI_HANDLE,
    timeout: VIP_ULONG,
    at: *mut *mut VIP_DESCRIPTOR,
    is_recv: bool,
) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        if at.is_null() {
            return Err(Failure::null("the place for the descriptor"));
        }
        let deadline = Deadline::of(timeout);
        let taken = wait_for(deadline, |machine| machine.world().take(handle, is_recv))?;
        let Some((result, descriptor)) = taken else {
            return Ok(VIP_TIMEOUT);
        };
        // SAFETY: not null; the caller guarantees that it may be written.
        unsafe { at.write(descriptor) };
        Ok(result)
    })
}

/// Waits until the first descriptor of the send queue is complete, and removes it. It waits for
/// `Timeout` milliseconds or VIP_INFINITE.
///
/// Errors: VIP_TIMEOUT, and those of VipSendDone().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendWait(
    ViHandle: VIP_VI_HANDLE,
    Timeout: VIP_ULONG,
    DescriptorPtr: *mut *mut VIP_DESCRIPTOR,
) -> VIP_RETURN {
    // SAFETY: guaranteed by the program.
    unsafe { wait(ViHandle, Timeout, DescriptorPtr, false) }
}

/// Waits until the first descriptor of the receive queue is complete, and removes it, as
/// VipSendWait() does for the send queue.
///
/// Errors: VIP_TIMEOUT, and those of VipSendDone().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvWait(
    ViHandle: VIP_VI_HANDLE,
    Timeout: VIP_ULONG,
    DescriptorPtr: *mut *mut VIP_DESCRIPTOR,
) -> VIP_RETURN {
    // SAFETY: guaranteed by the program.
    unsafe { wait(ViHandle, Timeout, DescriptorPtr, true) }
}

fn notify(
    handle: VIP_VI_HANDLE,
    (handler, context): (VIP_WORK_HANDLER, *mut c_void),
    is_recv: bool,
) -> VIP_RETURN {
    call(|machine| {
        {
            let mut world = machine.world();
            let index = world.vi(handle)?;
            if handler.is_none() {
                return Err(Failure::null("Handler"));
            }
            let queue = world.vi_at(index)?.queue(is_recv);
            if queue.handlers.len() >= DESCRIPTORS_MAX {
                return Err(exhausted(
                    "as many handlers are pending as a queue can hold descriptors",
                ));
            }
            queue.handlers.push_back((handler, context));
        }
        wake_helper(machine)?;
        Ok(VIP_SUCCESS)
    })
}

/// Calls `Handler` once, from a thread of the library, with the next completed descriptor of the
/// send queue, which is removed. Several calls are served in order.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendNotify(
    ViHandle: VIP_VI_HANDLE,
    Context: *mut c_void,
    Handler: VIP_WORK_HANDLER,
) -> VIP_RETURN {
    notify(ViHandle, (Handler, Context), false)
}

/// Calls `Handler` for the receive queue, as VipSendNotify() does for the send queue.
///
/// Errors: those of VipSendNotify().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvNotify(
    ViHandle: VIP_VI_HANDLE,
    Context: *mut c_void,
    Handler: VIP_WORK_HANDLER,
) -> VIP_RETURN {
    notify(ViHandle, (Handler, Context), true)
}
