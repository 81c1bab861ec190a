// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues in the C interface. Reading a queue makes progress on its endpoints.

#![allow(
    unsafe_code,
    reason = "called from C, and writes to the application's arrays"
)]

mod wait;

use std::ffi::{c_char, c_int, c_void};

use portolan_ffi::yield_core;

use crate::abi::*;
use crate::errno::{Errno, size, status};
use crate::object::{Object, domain_of, fid};
use crate::state::{Arrays, Failure, Queue, State};
use crate::unsupported;

pub(crate) use wait::trywait;

static FID_OPS: Ops = Ops {
    close,
    control,
    ..unsupported::OPS
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

/// Entries reserved when the application passes no size.
const CAPACITY_DEFAULT: usize = 256;
/// Maximum number of entries reserved in advance. A queue grows beyond it if necessary.
const CAPACITY_MAX: usize = 4096;

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of this provider, and the application's attributes.
        let (domain, attr) = unsafe { (domain_of(domain), attr.as_ref()) };
        let (entry_len, thresholds, capacity) = shape(attr)?;
        let queue = Queue::new(entry_len, thresholds, capacity);
        let index = domain.lock().open_cq(queue);
        let head = FidCq {
            fid: fid(CLASS_CQ, context, &FID_OPS),
            ops: &raw const CQ_OPS,
        };
        // SAFETY: `out` is the application's storage for the queue.
        unsafe { Object::store(out, head, domain, index) };
        Ok(())
    })
}

/// Returns the length of an entry, true if reads may wait for several entries, and the number of
/// entries to reserve.
fn shape(attr: Option<&CqAttr>) -> Result<(usize, bool, usize), Errno> {
    let Some(attr) = attr else {
        return Ok((entry_len(CQ_FORMAT_UNSPEC)?, false, CAPACITY_DEFAULT));
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
    let capacity = if attr.size == 0 {
        CAPACITY_DEFAULT
    } else {
        attr.size.min(CAPACITY_MAX)
    };
    Ok((entry_len(attr.format)?, thresholds, capacity))
}

/// Returns the length of an entry. The shorter formats are prefixes of the longest.
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
    // SAFETY: an open queue of this provider, closed only once.
    unsafe { Object::<FidCq>::close(cq, State::close_cq) }
}

extern "C" fn control(cq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: an open queue of this provider; `arg` has the type that the command requires.
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
        // SAFETY: an open queue of this provider.
        let object = unsafe { Object::<FidCq>::of(cq) };
        let into = Arrays::new(buf, count, sources);
        let mut state = object.lock();
        // SAFETY: arrays of `count` entries.
        let result = unsafe { state.read_new(object.index(), &into) };
        if result == Err(Errno::AGAIN)
            && let Some(ep) = state.take_yield(object.index())
        {
            drop(state);
            let duration = yield_core();
            object.lock().note_yield(ep, duration);
        }
        result
    })
}

extern "C" fn readerr(cq: *mut FidCq, out: *mut CqErrEntry, _flags: u64) -> isize {
    size(|| {
        // SAFETY: an open queue of this provider, and `out` points to an entry.
        let (object, out) = unsafe { (Object::<FidCq>::of(cq), &mut *out) };
        let mut state = object.lock();
        let queue = state.cq(object.index());
        let failure = queue.pop_failure().ok_or(Errno::AGAIN)?;
        fill(out, &failure);
        if object.domain().has_error_data() {
            set_error_text(out, queue.store_text(failure.text));
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

/// Stores a pointer to the text, which is valid until the next read.
///
/// The text is never copied to `err_data`: some programs pass structures that they have not
/// cleared. A program with its own buffer gets the text from `fi_cq_strerror`.
fn set_error_text(out: &mut CqErrEntry, text: &str) {
    if out.err_data_size == 0 {
        out.err_data = text.as_ptr().cast_mut().cast();
        out.err_data_size = text.len();
    } else {
        out.err_data_size = 0;
    }
}

/// Returns the cause of the most recently read failure, with the peer.
extern "C" fn strerror(
    cq: *mut FidCq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: an open queue of this provider.
    let object = unsafe { Object::<FidCq>::of(cq) };
    let mut state = object.lock();
    let text = state.cq(object.index()).last_text(prov_errno);
    if !buf.is_null() && len > 0 {
        let copied = text.count_bytes().min(len - 1);
        // SAFETY: the application provides `len` bytes. `copied` is below `len` and at most the
        // text's length.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf, copied);
            *buf.add(copied) = 0;
        }
    }
    text.as_ptr()
}
