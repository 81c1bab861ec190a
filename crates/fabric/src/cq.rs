// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues as the application sees them. Reading one makes its endpoints work.

#![allow(
    unsafe_code,
    reason = "called from C, and writes to the application's arrays"
)]

mod queue;
mod wait;
mod wake;

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::absent;
use crate::domain::Domain;
use crate::errno::{Errno, size, status};
use crate::lock::Guard;
use crate::object::{Object, fid};
use crate::state::State;

pub(crate) use queue::{Entry, Failure, Queue};
pub(crate) use wait::{Nap, deadline, engine_nap, lighter, sleep_on, trywait};

static FID_OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind: absent::bind,
    control,
    ops_open: absent::ops_open,
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
        let (domain, attr) = unsafe { (Domain::of(domain), attr.as_ref()) };
        let (entry_len, thresholds, room) = shape(attr)?;
        let queue = Queue::new(entry_len, thresholds, room);
        let index = domain.state.lock().cqs.insert(queue);
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
    status(|| {
        // SAFETY: an open queue of ours.
        let object = unsafe { Object::<FidCq>::of(cq) };
        let mut state = object.domain.state.lock();
        if !state.cqs[object.index].eps.is_empty() {
            return Err(Errno::BUSY);
        }
        state.cqs.remove(object.index);
        drop(state);
        // SAFETY: as above, and closed only once.
        drop(unsafe { Object::<FidCq>::take(cq) });
        Ok(())
    })
}

extern "C" fn control(cq: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: an open queue of ours; `arg` is as the command wants it.
        unsafe {
            let object = Object::<FidCq>::of(cq);
            match command {
                GETWAIT => *arg.cast() = wait::descriptor(&object.domain, object.index)?,
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
            let mut state = object.domain.state.lock();
            let into = Arrays {
                buf,
                count,
                sources,
            };
            take_new(&mut state, object.index, &into)
        }
    })
}

/// Where a read puts what it takes; `sources` may be null.
#[derive(Clone, Copy)]
pub(crate) struct Arrays {
    pub(crate) buf: *mut c_void,
    pub(crate) count: usize,
    pub(crate) sources: *mut u64,
}

/// Let the queue's endpoints work, unless there is something to read anyway.
#[inline]
fn progress(state: &mut Guard<'_, State>, index: usize) {
    if !state.cqs[index].has_news() {
        state.progress_all(|state| &state.cqs[index].eps);
    }
}

/// Hand out what is there, after a turn of the endpoints, unless more is there than the arrays take.
/// Sends write their entries when they are called: a program that reads one after each send must not
/// keep its endpoints from working.
///
/// # Errors
/// As [`take`].
///
/// # Safety
/// The arrays have room for their count.
#[inline(always)]
unsafe fn take_new(state: &mut State, index: usize, into: &Arrays) -> Result<isize, Errno> {
    let queue = &mut state.cqs[index];
    if queue.has_failed() || queue.len() > into.count {
        // SAFETY: the caller's promise.
        return unsafe { take(state, index, into) };
    }
    // SAFETY: as above, until the read has ended.
    let mut reader = unsafe { Reader::new(index, queue.entry_len, into) };
    while let Some(entry) = queue.pop() {
        reader.put(&entry);
    }
    let is_forked = state.progress_read(&mut reader);
    match reader.taken {
        0 if is_forked => Err(Errno(EOPBADSTATE)),
        0 if !state.cqs[index].has_news() => Err(Errno::AGAIN),
        // SAFETY: as above.
        0 => unsafe { take(state, index, into) },
        taken => Ok(taken.cast_signed()),
    }
}

/// A read under way: entries of its queue go straight to the application's arrays.
pub(crate) struct Reader {
    /// The queue.
    pub(crate) cq: usize,
    entry_len: usize,
    into: Arrays,
    taken: usize,
}

impl Reader {
    /// # Safety
    /// The arrays have room for their count of entries of this length while the reader lives.
    #[inline]
    unsafe fn new(cq: usize, entry_len: usize, into: &Arrays) -> Reader {
        Reader {
            cq,
            entry_len,
            into: *into,
            taken: 0,
        }
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.taken < self.into.count
    }

    /// Write an entry; there is room.
    #[inline]
    pub(crate) fn put(&mut self, entry: &Entry) {
        debug_assert!(self.has_room());
        // SAFETY: `new`'s caller has promised room for the count, and `taken` is below it.
        unsafe { write(entry, self.entry_len, self.taken, &self.into) };
        self.taken += 1;
    }
}

/// Hand out what is there.
///
/// # Errors
/// `AVAIL` if a failure is to be read first, `AGAIN` if there is nothing.
///
/// # Safety
/// The arrays have room for their count.
unsafe fn take(state: &mut State, index: usize, into: &Arrays) -> Result<isize, Errno> {
    let queue = &mut state.cqs[index];
    if queue.has_failed() {
        return Err(Errno::AVAIL);
    }
    if queue.len() == 0 {
        let eps = &state.cqs[index].eps;
        let is_forked = |ep: &usize| state.eps.get(*ep).is_some_and(|ep| ep.engine.is_forked());
        return Err(match eps.iter().any(is_forked) {
            true => Errno(EOPBADSTATE),
            false => Errno::AGAIN,
        });
    }
    let mut taken = 0;
    while taken < into.count {
        let Some(entry) = queue.pop() else { break };
        // SAFETY: `taken` is below the arrays' count; an entry has the length the format says.
        unsafe { write(&entry, queue.entry_len, taken, into) };
        taken += 1;
    }
    Ok(taken.cast_signed())
}

/// # Safety
/// The arrays have room for an entry at `at`, of `len` bytes, at most those of the longest format.
#[inline]
unsafe fn write(entry: &Entry, len: usize, at: usize, into: &Arrays) {
    let whole = CqTaggedEntry {
        op_context: entry.context as *mut c_void,
        flags: entry.flags,
        len: entry.len,
        buf: entry.buf as *mut c_void,
        data: entry.data,
        tag: entry.tag,
    };
    // SAFETY: the caller's promise; both sides are plain bytes.
    unsafe {
        let target = into.buf.cast::<u8>().add(at * len);
        std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), target, len);
        if !into.sources.is_null() {
            into.sources.add(at).write(entry.source);
        }
    }
}

extern "C" fn readerr(cq: *mut FidCq, out: *mut CqErrEntry, _flags: u64) -> isize {
    size(|| {
        // SAFETY: an open queue of ours, and a place for the entry.
        unsafe {
            let object = Object::<FidCq>::of(cq);
            let mut state = object.domain.state.lock();
            let queue = &mut state.cqs[object.index];
            let failure = queue.pop_failure().ok_or(Errno::AGAIN)?;
            fill(&mut *out, &failure);
            if object.domain.knows_error_data() {
                lend_text(&mut *out, &mut queue.last_text, failure.text);
            }
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
fn lend_text(out: &mut CqErrEntry, kept: &mut String, text: String) {
    *kept = text;
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
    // SAFETY: an open queue of ours; a number of errno's or libfabric's is a C string there, too.
    let object = unsafe { Object::<FidCq>::of(cq) };
    let mut state = object.domain.state.lock();
    let text = &mut state.cqs[object.index].last_text;
    if text.is_empty() {
        *text = format!("error {prov_errno} of libfabric");
    }
    if !text.ends_with('\0') {
        text.push('\0');
    }
    if !buf.is_null() && len > 0 {
        let copied = (text.len() - 1).min(len - 1);
        // SAFETY: `len` bytes are the application's; `copied` is below it, and at most the text.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), copied);
            *buf.add(copied) = 0;
        }
    }
    text.as_ptr().cast()
}

/// Have an endpoint report to a queue.
pub(crate) fn attach(state: &mut State, index: usize, ep: usize) -> Result<(), Errno> {
    let queue = state.cqs.get_mut(index).ok_or(Errno::INVAL)?;
    if !queue.eps.contains(&ep) {
        queue.eps.push(ep);
        if let (Some(wake), Some(ep)) = (&queue.wake, state.eps.get(ep)) {
            wake.watch(ep.engine.wait_fd()).map_err(|_| Errno::NOMEM)?;
        }
    }
    Ok(())
}

/// Forget an endpoint that is being closed.
pub(crate) fn detach(state: &mut State, index: usize, ep: usize) {
    let State { cqs, eps, .. } = state;
    let Some(queue) = cqs.get_mut(index) else {
        return;
    };
    queue.eps.retain(|&other| other != ep);
    if let (Some(wake), Some(ep)) = (&queue.wake, eps.get(ep)) {
        wake.forget(ep.engine.wait_fd());
    }
}

/// Tell which domain a queue belongs to.
///
/// # Safety
/// An open queue of ours.
pub(crate) unsafe fn place<'a>(cq: *mut Fid) -> (&'a Arc<Domain>, usize) {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::<FidCq>::of(cq) };
    (&object.domain, object.index)
}
