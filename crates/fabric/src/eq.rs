// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event queues. Endpoints without connections have no events of their own, so a queue holds what
//! the application wrote into it.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};

use parking_lot::{Condvar, Mutex};

use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, size, status};
use crate::nap::Deadline;
use crate::object::fid;

static FID_OPS: Ops = Ops {
    close,
    ..absent::OPS
};

static EQ_OPS: OpsEq = OpsEq {
    size: size_of::<OpsEq>(),
    read,
    readerr,
    write,
    sread,
    strerror,
};

/// Longest event that is taken: the connection events of libfabric are shorter.
const EVENT_LEN_MAX: usize = 4096;
/// Events that are kept; the application that wrote them ought to read them.
const EVENTS_MAX: usize = 4096;
/// A read with this flag leaves the event in the queue.
const LEAVE: u64 = PEEK;

#[repr(C)]
struct Eq {
    head: FidEq,
    events: Mutex<VecDeque<(u32, Box<[u8]>)>>,
    written: Condvar,
}

pub(crate) extern "C" fn open(
    _fabric: *mut FidFabric,
    attr: *mut EqAttr,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: the application's attributes.
        let attr = unsafe { attr.as_ref() };
        // There is nothing whose descriptor one could sleep on; FD is taken, and refused at use.
        if attr.is_some_and(|attr| {
            !matches!(
                attr.wait_obj,
                WAIT_NONE | WAIT_UNSPEC | WAIT_FD | WAIT_YIELD
            )
        }) {
            return Err(Errno::NOSYS);
        }
        let head = FidEq {
            fid: fid(CLASS_EQ, context, &FID_OPS),
            ops: &raw const EQ_OPS,
        };
        let queue = Eq {
            head,
            events: Mutex::default(),
            written: Condvar::new(),
        };
        // SAFETY: the application's place for the queue.
        unsafe { *out = Box::into_raw(Box::new(queue)).cast() };
        Ok(())
    })
}

/// # Safety
/// An open queue of ours.
unsafe fn queue<'a, P>(eq: *mut P) -> &'a Eq {
    // SAFETY: the head is at the beginning, by `repr(C)`.
    unsafe { &*eq.cast() }
}

extern "C" fn read(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    sread(eq, event, buf, len, 0, flags)
}

extern "C" fn sread(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    size(|| {
        // SAFETY: an open queue of ours.
        let queue = unsafe { queue(eq) };
        let deadline = Deadline::after(timeout);
        let mut events = queue.events.lock();
        while events.is_empty() {
            match deadline.at() {
                None => queue.written.wait(&mut events),
                Some(_) if deadline.is_over() => return Err(Errno::AGAIN),
                Some(at) => drop(queue.written.wait_until(&mut events, at)),
            }
        }
        // SAFETY: the application's places for the event and its `len` bytes.
        let taken = unsafe { hand_out(&events[0], event, buf, len) }?;
        if flags & LEAVE == 0 {
            events.pop_front();
        }
        Ok(taken)
    })
}

/// # Safety
/// `kind` may be written, `buf` has `len` bytes.
unsafe fn hand_out(
    event: &(u32, Box<[u8]>),
    kind: *mut u32,
    buf: *mut c_void,
    len: usize,
) -> Result<isize, Errno> {
    let (number, bytes) = event;
    if bytes.len() > len {
        return Err(Errno::TOOSMALL);
    }
    // SAFETY: the caller's promise.
    unsafe {
        *kind = *number;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len());
    }
    Ok(bytes.len().cast_signed())
}

/// No event is ever an error.
extern "C" fn readerr(_eq: *mut FidEq, _out: *mut c_void, _flags: u64) -> isize {
    -(libc::EAGAIN as isize)
}

extern "C" fn write(
    eq: *mut FidEq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    size(|| {
        if len > EVENT_LEN_MAX {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open queue of ours, and the application's `len` bytes.
        let (queue, bytes) = unsafe { (queue(eq), std::slice::from_raw_parts(buf.cast(), len)) };
        let mut events = queue.events.lock();
        if events.len() == EVENTS_MAX {
            return Err(Errno::AGAIN);
        }
        events.push_back((event, bytes.into()));
        queue.written.notify_one();
        Ok(len.cast_signed())
    })
}

extern "C" fn strerror(
    _eq: *mut FidEq,
    _prov_errno: c_int,
    _err_data: *const c_void,
    _buf: *mut c_char,
    _len: usize,
) -> *const c_char {
    c"no event of this queue is an error".as_ptr()
}

/// # Errors
/// `AGAIN` if there is something to read.
///
/// # Safety
/// An open queue of ours.
pub(crate) unsafe fn trywait(eq: *mut Fid) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let empty = unsafe { queue(eq) }.events.lock().is_empty();
    if empty { Ok(()) } else { Err(Errno::AGAIN) }
}

extern "C" fn close(eq: *mut Fid) -> c_int {
    status(|| {
        // SAFETY: made by `open`, closed only once.
        drop(unsafe { Box::from_raw(eq.cast::<Eq>()) });
        Ok(())
    })
}
