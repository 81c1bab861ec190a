// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues as the application sees them. Reading one makes its endpoints work.

#![allow(
    unsafe_code,
    reason = "called from C, and writes to the application's arrays"
)]

mod wait;

use std::ffi::{c_char, c_int, c_void};

use crate::abi::*;
use crate::absent;
use crate::errno::{Errno, size, status};
use crate::object::{Object, domain_of, fid};
use crate::state::{Arrays, Failure, Queue, State};

pub(crate) use wait::trywait;

static FID_OPS: Ops = Ops {
    close,
    control,
    ..absent::OPS
};

static CQ_OPS: OpsCq = OpsCq {
    size: size_of::<OpsCq>(),
    read,
    readfrom,
    readerr,
    sread: wait::sread,
    sreadfrom: wait::sreadfrom,
    signal: wait::signal,
    strerror,
};

/// Entries for which room is made when the application names no size.
const ROOM_DEFAULT: usize = 256;
/// Room made at once at most; a queue grows beyond it when it has to.
const ROOM_MAX: usize = 4096;

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of ours, and the application's attributes.
        let (domain, attr) = unsafe { (domain_of(domain), attr.as_ref()) };
        let (entry_len, thresholds, room) = shape(attr)?;
        let queue = Queue::new(entry_len, thresholds, room);
        let index = domain.lock().open_cq(queue);
        let head = FidCq {
            fid: fid(CLASS_CQ, context, &FID_OPS),
            ops: &raw const CQ_OPS,
        };
        // SAFETY: the application's place for the queue.
        unsafe { Object::give(out, head, domain, index) };
        Ok(())
    })
}

/// Length of an entry, whether reads may wait for several, and room to make.
fn shape(attr: Option<&CqAttr>) -> Result<(usize, bool, usize), Errno> {
    let Some(attr) = attr else {
        return Ok((entry_len(CQ_FORMAT_UNSPEC)?, false, ROOM_DEFAULT));
    };
    if !matches!(
        attr.wait_obj,
        WAIT_NONE | WAIT_UNSPEC | WAIT_FD | WAIT_YIELD
    ) {
        return Err(Errno::NOSYS);
    }
    let thresholds = match attr.wait_cond {
        CQ_COND_NONE => false,
        CQ_COND_THRESHOLD => true,
        _ => return Err(Errno::INVAL),
    };
    let room = if attr.size == 0 {
        ROOM_DEFAULT
    } else {
        attr.size.min(ROOM_MAX)
    };
    Ok((entry_len(attr.format)?, thresholds, room))
}

/// The shorter formats are the beginnings of the longest.
fn entry_len(format: c_int) -> Result<usize, Errno> {
    Ok(match format {
        CQ_FORMAT_CONTEXT => std::mem::offset_of!(CqTaggedEntry, flags),
        CQ_FORMAT_MSG => std::mem::offset_of!(CqTaggedEntry, buf),
        CQ_FORMAT_DATA => std::mem::offset_of!(CqTaggedEntry, tag),
        CQ_FORMAT_UNSPEC | CQ_FORMAT_TAGGED => size_of::<CqTaggedEntry>(),
        _ => return Err(Errno::INVAL),
    })
}

extern "C" fn close(cq: *mut Fid) -> c_int {
    // SAFETY: an open queue of ours, closed only once.
    unsafe { Object::<FidCq>::close(cq, State::close_cq) }
}

extern "C" fn control(cq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: an open queue of ours; `arg` is as the command wants it.
        unsafe {
            let object = Object::<FidCq>::of(cq);
            match command {
                GETWAIT => *arg.cast() = object.lock().wait_fd(object.index())?,
                GETWAITOBJ => *arg.cast() = WAIT_FD,
                _ => return Err(Errno::NOSYS),
            }
        }
        Ok(())
    })
}

extern "C" fn read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize {
    readfrom(cq, buf, count, std::ptr::null_mut())
}

extern "C" fn readfrom(cq: *mut FidCq, buf: *mut c_void, count: usize, sources: *mut u64) -> isize {
    size(|| {
        // SAFETY: an open queue of ours, and arrays for `count` entries.
        unsafe {
            let object = Object::<FidCq>::of(cq);
            let into = Arrays::new(buf, count, sources);
            object.lock().read_new(object.index(), &into)
        }
    })
}

extern "C" fn readerr(cq: *mut FidCq, out: *mut CqErrEntry, _flags: u64) -> isize {
    size(|| {
        // SAFETY: an open queue of ours, and a place for the entry.
        let (object, out) = unsafe { (Object::<FidCq>::of(cq), &mut *out) };
        let mut state = object.lock();
        let queue = state.cq(object.index());
        let failure = queue.pop_failure().ok_or(Errno::AGAIN)?;
        fill(out, &failure);
        if object.domain().knows_error_data() {
            lend_text(out, queue.keep_text(failure.text));
        }
        Ok(1)
    })
}

fn fill(out: &mut CqErrEntry, failure: &Failure) {
    let entry = &failure.entry;
    out.op_context = entry.context as *mut c_void;
    out.flags = entry.flags;
    out.len = entry.len;
    out.buf = entry.buf as *mut c_void;
    out.data = entry.data;
    out.tag = entry.tag;
    out.olen = failure.beyond;
    out.err = failure.errno.0;
    out.prov_errno = failure.errno.0;
}

/// Lend the text until the next read. It is never copied to where `err_data` points: programs pass
/// structures that they have not cleared, with anything there. Who brings memory of its own gets
/// the text by `fi_cq_strerror`.
fn lend_text(out: &mut CqErrEntry, kept: &str) {
    if out.err_data_size == 0 {
        out.err_data = kept.as_ptr().cast_mut().cast();
        out.err_data_size = kept.len();
    } else {
        out.err_data_size = 0;
    }
}

/// The cause of the failure that was read last: who, and why.
extern "C" fn strerror(
    cq: *mut FidCq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: an open queue of ours.
    let object = unsafe { Object::<FidCq>::of(cq) };
    let mut state = object.lock();
    let text = state.cq(object.index()).last_text(prov_errno);
    if !buf.is_null() && len > 0 {
        let copied = text.count_bytes().min(len - 1);
        // SAFETY: `len` bytes are the application's; `copied` is below it, and at most the text.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf, copied);
            *buf.add(copied) = 0;
        }
    }
    text.as_ptr()
}
