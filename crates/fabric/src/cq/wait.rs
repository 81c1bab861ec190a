// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping until a completion is there.
//!
//! The lock is not held in the sleep. What is to be done after an empty turn, the endpoints know:
//! look again, let others run, or sleep.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use portolan::Idle;

use super::wake::Wake;
use super::{Arrays, progress, take};
use crate::abi::{Fid, FidCq};
use crate::domain::Domain;
use crate::errno::{Errno, size, status};
use crate::object::Object;
use crate::state::State;

/// Longest sleep at once: what a wake-up that got lost would cost.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// What to do after a turn that brought nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nap {
    Again,
    Yield,
    Sleep,
}

pub(super) extern "C" fn sread(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    sreadfrom(cq, buf, count, std::ptr::null_mut(), cond, timeout)
}

pub(super) extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buf: *mut c_void,
    count: usize,
    sources: *mut u64,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    size(|| {
        // SAFETY: an open queue of ours.
        let object = unsafe { Object::<FidCq>::of(cq) };
        let threshold = threshold(&object.domain, object.index, cond, count);
        let into = Arrays {
            buf,
            count,
            sources,
        };
        let deadline = deadline(timeout);
        loop {
            let (nap, fd) = {
                let mut state = object.domain.state.lock();
                progress(&mut state, object.index);
                let queue = &mut state.cqs[object.index];
                let over = deadline.is_some_and(|at| Instant::now() >= at);
                let signalled = std::mem::take(&mut queue.signalled);
                if queue.has_failed() || queue.len() >= threshold || over || signalled {
                    // SAFETY: the application's arrays.
                    return unsafe { take(&mut state, object.index, &into) };
                }
                nap(&mut state, object.index)?
            };
            sleep_on(nap, fd, deadline);
        }
    })
}

/// How many entries the application waits for: one, unless the queue was opened for thresholds.
fn threshold(domain: &Domain, index: usize, cond: *const c_void, count: usize) -> usize {
    if !domain.state.lock().cqs[index].thresholds || cond.is_null() {
        return 1;
    }
    // libfabric passes the number itself in the pointer.
    (cond as usize).clamp(1, count.max(1))
}

/// A negative timeout waits for ever, as in `poll`.
pub(crate) fn deadline(timeout_ms: c_int) -> Option<Instant> {
    let wait = Duration::from_millis(u64::try_from(timeout_ms).ok()?);
    Instant::now().checked_add(wait)
}

fn nap(state: &mut State, index: usize) -> Result<(Nap, RawFd), Errno> {
    let fd = wake(state, index)?;
    let State { cqs, eps, .. } = state;
    let queue = &mut cqs[index];
    let mut nap = Nap::Sleep;
    for &ep in &queue.eps {
        nap = lighter(nap, engine_nap(&mut eps[ep].engine));
    }
    if let (Nap::Sleep, Some(wake)) = (nap, &mut queue.wake) {
        wake.arm();
    }
    Ok((nap, fd))
}

/// What an endpoint wants to be done; one that may sleep is armed.
pub(crate) fn engine_nap(engine: &mut portolan::Endpoint) -> Nap {
    match engine.idle() {
        Idle::Spin => Nap::Again,
        Idle::Yield => Nap::Yield,
        Idle::Sleep if engine.arm() => Nap::Sleep,
        Idle::Sleep => Nap::Again,
    }
}

pub(crate) fn lighter(a: Nap, b: Nap) -> Nap {
    match (a, b) {
        (Nap::Again, _) | (_, Nap::Again) => Nap::Again,
        (Nap::Yield, _) | (_, Nap::Yield) => Nap::Yield,
        _ => Nap::Sleep,
    }
}

/// Do it, until the deadline at most. The lock is not held.
pub(crate) fn sleep_on(nap: Nap, fd: RawFd, deadline: Option<Instant>) {
    match nap {
        Nap::Again => std::hint::spin_loop(),
        Nap::Yield => std::thread::yield_now(),
        Nap::Sleep => {
            let left =
                deadline.map_or(SLEEP_MAX, |at| at.saturating_duration_since(Instant::now()));
            poll(fd, left.min(SLEEP_MAX));
        }
    }
}

fn poll(fd: RawFd, at_most: Duration) {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // Rounded up: a sleep of nothing at all would spin.
    let ms = c_int::try_from(at_most.as_millis())
        .unwrap_or(c_int::MAX)
        .max(1);
    // SAFETY: one entry, on the stack.
    unsafe { libc::poll(&raw mut entry, 1, ms) };
}

/// The descriptor of a queue, made when first asked for.
fn wake(state: &mut State, index: usize) -> Result<RawFd, Errno> {
    let State { cqs, eps, .. } = state;
    let queue = &mut cqs[index];
    if let Some(wake) = &queue.wake {
        return Ok(wake.fd());
    }
    let wake = Wake::new().map_err(|_| Errno::NOMEM)?;
    for &ep in &queue.eps {
        wake.watch(eps[ep].engine.wait_fd())
            .map_err(|_| Errno::NOMEM)?;
    }
    Ok(queue.wake.insert(wake).fd())
}

pub(super) fn descriptor(domain: &Domain, index: usize) -> Result<RawFd, Errno> {
    wake(&mut domain.state.lock(), index)
}

pub(super) extern "C" fn signal(cq: *mut FidCq) -> c_int {
    status(|| {
        // SAFETY: an open queue of ours.
        let object = unsafe { Object::<FidCq>::of(cq) };
        let mut state = object.domain.state.lock();
        wake(&mut state, object.index)?;
        let queue = &mut state.cqs[object.index];
        queue.signalled = true;
        if let Some(wake) = &mut queue.wake {
            wake.ring_now();
        }
        Ok(())
    })
}

/// Prepare a queue for a sleep on its descriptor.
///
/// # Errors
/// `AGAIN` if there is something to read, or work to do, instead.
///
/// # Safety
/// An open queue of ours.
pub(crate) unsafe fn trywait(cq: *mut Fid) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (domain, index) = unsafe { super::place(cq) };
    let mut state = domain.state.lock();
    progress(&mut state, index);
    if state.cqs[index].has_news() {
        return Err(Errno::AGAIN);
    }
    wake(&mut state, index)?;
    let State { cqs, eps, .. } = &mut *state;
    let queue = &mut cqs[index];
    if queue.eps.iter().any(|&ep| !eps[ep].engine.arm()) {
        return Err(Errno::AGAIN);
    }
    if let Some(wake) = &mut queue.wake {
        wake.arm();
    }
    Ok(())
}
