// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event queues: events of connections, and events that the application writes. Reading a queue
//! makes progress on its connections.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::abi::*;
use crate::cm::{Event, Events, Manager};
use crate::errno::{Errno, size, status};
use crate::idle::{Deadline, IdleAction};
use crate::object::fid;
use crate::unsupported;

static FID_OPS: Ops = Ops {
    close,
    control,
    ..unsupported::OPS
};

static EQ_OPS: OpsEq = OpsEq {
    size: size_of::<OpsEq>(),
    read,
    readerr,
    write,
    sread,
    strerror,
};

/// Maximum bytes of an event that the application writes. libfabric's connection events are
/// shorter.
const EVENT_LEN_MAX: usize = 4096;
/// Flag of a read that leaves the event in the queue.
const LEAVE: u64 = PEEK;

#[repr(C)]
struct Eq {
    head: FidEq,
    manager: Arc<Manager>,
    /// Text that `strerror` returned last.
    text: Mutex<CString>,
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
            manager: Arc::new(Manager::new()?),
            text: Mutex::default(),
        };
        // SAFETY: `out` is the application's storage for the queue.
        unsafe { *out = Box::into_raw(Box::new(queue)).cast() };
        Ok(())
    })
}

/// Returns the queue behind a pointer.
///
/// # Safety
/// `eq` is an open queue of this provider.
unsafe fn queue<'a, P>(eq: *mut P) -> &'a Eq {
    // SAFETY: the head is the first field, by `repr(C)`.
    unsafe { &*eq.cast() }
}

/// Returns the manager of the connections that report to a queue.
///
/// # Safety
/// `eq` is an open queue of this provider.
pub(crate) unsafe fn manager(eq: *mut Fid) -> Arc<Manager> {
    // SAFETY: guaranteed by the caller.
    Arc::clone(unsafe { &queue(eq).manager })
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
        // SAFETY: an open queue of this provider.
        let queue = unsafe { queue(eq) };
        let deadline = Deadline::after(timeout);
        loop {
            // SAFETY: `event` may be written, and `buf` has room for `len` bytes.
            let take = |events: &mut Events| unsafe {
                match hand_out(events, event, buf, len, flags & LEAVE != 0) {
                    Err(Errno::AGAIN) => Ok(events.fd()),
                    done => Err(done),
                }
            };
            let fd = match queue.manager.with_events(take)? {
                Err(done) => return done,
                Ok(_) if deadline.is_over() => return Err(Errno::AGAIN),
                Ok(fd) => fd,
            };
            IdleAction::Sleep(fd).take(deadline);
        }
    })
}

/// Copies the oldest event to the application.
///
/// # Errors
/// `AGAIN` if there is none, `AVAIL` if it is a failure, `TOOSMALL` if it does not fit.
///
/// # Safety
/// `kind` may be written, and `buf` has room for `len` bytes.
unsafe fn hand_out(
    events: &mut Events,
    kind: *mut u32,
    buf: *mut c_void,
    len: usize,
    leave: bool,
) -> Result<isize, Errno> {
    // SAFETY: guaranteed by the caller.
    let (number, copied) = unsafe {
        match events.front().ok_or(Errno::AGAIN)? {
            Event::Failed { .. } => return Err(Errno::AVAIL),
            Event::Written { event, bytes } => (*event, put(bytes, bytes.len(), buf, len)?),
            Event::Connection { event, fid, data } => {
                (*event, put_cm(fid.ptr(), null_mut(), data, buf, len)?)
            }
            Event::Request {
                fid, info, data, ..
            } => (CONNREQ, put_cm(fid.ptr(), info.ptr(), data, buf, len)?),
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { *kind = number };
    if !leave && let Some(Event::Request { info, offered, .. }) = events.pop() {
        // The program owns them from now on.
        info.into_raw();
        offered.release();
    }
    Ok(copied.cast_signed())
}

/// Copies the first `least` bytes of an event, and as many more as fit.
///
/// # Safety
/// `buf` has room for `len` bytes.
unsafe fn put(bytes: &[u8], least: usize, buf: *mut c_void, len: usize) -> Result<usize, Errno> {
    if len < least {
        return Err(Errno::TOOSMALL);
    }
    let count = bytes.len().min(len);
    // SAFETY: guaranteed by the caller.
    unsafe { copy_nonoverlapping(bytes.as_ptr(), buf.cast(), count) };
    Ok(count)
}

/// Copies a connection event, whose data may be truncated.
///
/// # Safety
/// As for [`put`].
unsafe fn put_cm(
    fid: *mut Fid,
    info: *mut Info,
    data: &[u8],
    buf: *mut c_void,
    len: usize,
) -> Result<usize, Errno> {
    const HEAD_LEN: usize = size_of::<EqCmEntry>();
    let head = EqCmEntry { fid, info };
    // SAFETY: the bytes of the entry, which has no padding.
    let head = unsafe { std::slice::from_raw_parts((&raw const head).cast::<u8>(), HEAD_LEN) };
    // SAFETY: guaranteed by the caller.
    unsafe { put(&[head, data].concat(), HEAD_LEN, buf, len) }
}

/// Returns the cause of a failed connection, with the data of the peer's program.
extern "C" fn readerr(eq: *mut FidEq, out: *mut EqErrEntry, flags: u64) -> isize {
    size(|| {
        // SAFETY: an open queue of this provider, and `out` points to an entry.
        let (queue, out) = unsafe { (queue(eq), &mut *out) };
        queue.manager.with_events(|events| {
            let Some(Event::Failed { fid, errno, data }) = events.front() else {
                return Err(Errno::AGAIN);
            };
            (out.fid, out.context, out.data) = (fid.ptr(), fid.context(), 0);
            (out.err, out.prov_errno) = (errno.0, errno.0);
            let data = data.clone();
            if flags & LEAVE == 0 {
                events.pop();
            }
            set_error_data(out, events.store_data(data));
            Ok(size_of::<EqErrEntry>().cast_signed())
        })?
    })
}

/// Copies the data to the application's buffer. Without one, returns a pointer that is valid until
/// the next failure is read.
fn set_error_data(out: &mut EqErrEntry, stored: &[u8]) {
    if out.err_data_size == 0 || out.err_data.is_null() {
        out.err_data = stored.as_ptr().cast_mut().cast();
        out.err_data_size = stored.len();
        return;
    }
    let count = stored.len().min(out.err_data_size);
    // SAFETY: the application's buffer has as many bytes as it states.
    unsafe { copy_nonoverlapping(stored.as_ptr(), out.err_data.cast(), count) };
    out.err_data_size = count;
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
        // SAFETY: an open queue of this provider, and the application's `len` bytes.
        let (queue, bytes) = unsafe { (queue(eq), std::slice::from_raw_parts(buf.cast(), len)) };
        queue.manager.with_events(|events| {
            if events.is_full() {
                return Err(Errno::AGAIN);
            }
            let bytes = bytes.into();
            events.push(Event::Written { event, bytes });
            Ok(len.cast_signed())
        })?
    })
}

/// Returns the system's description of an error.
extern "C" fn strerror(
    eq: *mut FidEq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: an open queue of this provider.
    let mut text = unsafe { queue(eq) }.text.lock();
    let words = std::io::Error::from_raw_os_error(prov_errno).to_string();
    *text = CString::new(words).unwrap_or_default();
    if !buf.is_null() && len > 0 {
        let copied = text.count_bytes().min(len - 1);
        // SAFETY: the application provides `len` bytes. `copied` is below `len` and at most the
        // text's length.
        unsafe {
            copy_nonoverlapping(text.as_ptr(), buf, copied);
            *buf.add(copied) = 0;
        }
    }
    text.as_ptr()
}

extern "C" fn control(eq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: an open queue of this provider; `arg` has the type that the command requires.
        unsafe {
            match command {
                GETWAIT => *arg.cast() = queue(eq).manager.with_events(|events| events.fd())?,
                GETWAITOBJ => *arg.cast() = WAIT_FD,
                _ => return Err(Errno::NOSYS),
            }
        }
        Ok(())
    })
}

/// Checks that a reader may sleep on the queue's descriptor.
///
/// # Errors
/// `AGAIN` if an event can be read, `OPBADSTATE` in a forked child.
///
/// # Safety
/// `eq` is an open queue of this provider.
pub(crate) unsafe fn trywait(eq: *mut Fid) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let empty = unsafe { queue(eq) }
        .manager
        .with_events(|events| events.is_empty())?;
    if empty { Ok(()) } else { Err(Errno::AGAIN) }
}

extern "C" fn close(eq: *mut Fid) -> c_int {
    status(|| {
        // SAFETY: an open queue of this provider.
        let users = Arc::strong_count(&unsafe { queue(eq) }.manager) - 1;
        if users > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: allocated by `open`, and closed only once.
        drop(unsafe { Box::from_raw(eq.cast::<Eq>()) });
        Ok(())
    })
}
