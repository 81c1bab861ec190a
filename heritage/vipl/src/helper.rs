// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's thread that calls the program's functions. It is started when the first function
//! is set, and makes progress while a function waits to be called. If it cannot continue, it
//! reports an error.

use crate::code::*;
use crate::error::{Failure, exhausted};
use crate::fault::VIP_ERROR_HANDLER;
use crate::machine::{Machine, lock, release};
use crate::queue::VIP_WORK_HANDLER;
use crate::types::*;
use crate::world::World;
use portolan_sys::process::spawn_begun;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Longest sleep of the thread that calls handlers, while it waits for messages.
const SLEEP_MAX_MS: c_int = 50;

/// A pending call of a program's function.
enum PendingCall {
    Error(VIP_ERROR_HANDLER, *mut c_void, VIP_ERROR_DESCRIPTOR),
    Work(
        VIP_WORK_HANDLER,
        *mut c_void,
        VIP_NIC_HANDLE,
        VIP_VI_HANDLE,
        *mut VIP_DESCRIPTOR,
    ),
    Entry(
        crate::cq::VIP_CQ_HANDLER,
        *mut c_void,
        VIP_NIC_HANDLE,
        VIP_VI_HANDLE,
        bool,
    ),
}

impl PendingCall {
    /// Calls the function.
    ///
    /// # Safety
    /// The program guarantees that its function may be called.
    unsafe fn run(self) {
        match self {
            PendingCall::Error(Some(handler), context, mut error) => {
                // SAFETY: guaranteed by the caller.
                unsafe { handler(context, &raw mut error) };
            }
            PendingCall::Work(Some(handler), context, nic, vi, descriptor) => {
                // SAFETY: guaranteed by the caller.
                unsafe { handler(context, nic, vi, descriptor) };
            }
            PendingCall::Entry(Some(handler), context, nic, vi, is_recv) => {
                // SAFETY: guaranteed by the caller.
                unsafe { handler(context, nic, vi, c_int::from(is_recv)) };
            }
            _ => {}
        }
    }
}

impl World {
    /// Returns the next call that reports an asynchronous error.
    fn next_fault(&mut self) -> Option<PendingCall> {
        while let Some((nic, fault)) = self.faults.waiting.pop_front() {
            if let Some(nic) = self.nics.get(nic) {
                return Some(PendingCall::Error(nic.on_error.0, nic.on_error.1, fault));
            }
        }
        None
    }

    fn next_call(&mut self) -> Option<PendingCall> {
        if let Some(call) = self.next_fault() {
            return Some(call);
        }
        let handles = |world: &World, nic, vi| (world.nics.handle(nic), world.vis.handle(vi));
        let is_ready = |queue: &crate::queue::Queue| queue.is_ready() && !queue.handlers.is_empty();
        let ready = {
            let mut vis = self.vis.iter_mut();
            vis.find(|(_, vi)| is_ready(&vi.send) || is_ready(&vi.recv))
        };
        if let Some((index, vi)) = ready {
            let nic = vi.nic;
            let queue = if is_ready(&vi.send) {
                &mut vi.send
            } else {
                &mut vi.recv
            };
            let (handler, context) = queue.handlers.pop_front()?;
            let descriptor = queue.take()?;
            let (nic, vi) = handles(self, nic, index);
            return Some(PendingCall::Work(handler, context, nic, vi, descriptor.0));
        }
        let (_, cq) = {
            let mut cqs = self.cqs.iter_mut();
            cqs.find(|(_, cq)| !cq.handlers.is_empty() && !cq.is_empty())?
        };
        let (handler, context) = cq.handlers.pop_front()?;
        let nic = cq.nic;
        let (vi, is_recv) = cq.pop()?;
        let (nic, vi) = handles(self, nic, vi);
        Some(PendingCall::Entry(handler, context, nic, vi, is_recv))
    }

    /// Returns calls that report all pending errors, followed by VIP_ERROR_CATASTROPHIC, to all
    /// handlers. The error is also printed, because not every program has such a handler.
    fn catastrophe(&mut self, why: &str) -> Vec<PendingCall> {
        eprintln!("vipl: handlers are no longer called: {why}");
        let has_handler = |nic: &crate::nic::Nic| nic.on_error.0.is_some();
        let nics = self.nics.iter().filter(|(_, nic)| has_handler(nic));
        let nics: Vec<u32> = nics.map(|(index, _)| index).collect();
        let mut calls: Vec<PendingCall> = std::iter::from_fn(|| self.next_fault()).collect();
        for nic in nics {
            self.fault(nic, VIP_RESOURCE_NIC, VIP_ERROR_CATASTROPHIC, |_, fault| {
                fault
            });
        }
        calls.extend(std::iter::from_fn(|| self.next_fault()));
        calls
    }

    /// Returns true if a handler waits for a completion.
    fn has_waiting_handler(&self) -> bool {
        let by_vi = |(_, vi): (u32, &crate::vi::Vi)| {
            !vi.send.handlers.is_empty() || !vi.recv.handlers.is_empty()
        };
        self.vis.iter().any(by_vi) || self.cqs.iter().any(|(_, cq)| !cq.handlers.is_empty())
    }
}

/// Event descriptor that wakes the helper; -1 before it is created. It is never closed, because it
/// is written without the lock.
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);

/// Set while a helper exists. Written with the lock held.
static HAS_HELPER: AtomicBool = AtomicBool::new(false);

/// Wakes the helper to check for pending calls.
#[cold]
pub(crate) fn deliver() {
    let wake_fd = WAKE_FD.load(Ordering::Acquire);
    if wake_fd >= 0 {
        let one = 1_u64;
        // SAFETY: eight bytes on the stack. The write fails only if the counter is full, and then
        // the helper wakes anyway.
        let _written = unsafe { libc::write(wake_fd, (&raw const one).cast(), 8) };
    }
}

/// Wakes the thread that calls the program's functions, and starts it if necessary.
pub(crate) fn wake_helper(machine: &Machine) -> Result<(), Failure> {
    machine.world().has_calls = true;
    if HAS_HELPER.load(Ordering::Relaxed) {
        return Ok(());
    }
    let wake_fd = create_wake_fd()?;
    // The program's functions run on this thread, so it has the default stack of the program's
    // threads.
    let builder = std::thread::Builder::new().name("vipl".to_owned());
    let made = spawn_begun(builder, move || run(wake_fd));
    if let Err(error) = made {
        return Err(exhausted(format!(
            "cannot start the thread that calls handlers: {error}"
        )));
    }
    HAS_HELPER.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns the event descriptor, and creates it if necessary.
fn create_wake_fd() -> Result<RawFd, Failure> {
    let wake_fd = WAKE_FD.load(Ordering::Acquire);
    if wake_fd >= 0 {
        return Ok(wake_fd);
    }
    // SAFETY: the call has no preconditions.
    let wake_fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if wake_fd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(exhausted(format!(
            "cannot create the event descriptor for handlers: {error}"
        )));
    }
    WAKE_FD.store(wake_fd, Ordering::Release);
    Ok(wake_fd)
}

/// Calls the program's functions, and makes progress while one waits to be called, until a pass
/// fails.
fn run(wake_fd: RawFd) {
    loop {
        let step = portolan_ffi::fenced(|| run_once(wake_fd));
        if let Err(failure) = step {
            give_up(&failure);
            return;
        }
    }
}

/// Handles a failure of the thread that calls the program's functions. Every NIC's handler is
/// called with the error, and the next function that needs such a thread starts another one.
#[cold]
fn give_up(failure: &Failure) {
    let reported = portolan_ffi::fenced(|| {
        let machine = lock()?;
        HAS_HELPER.store(false, Ordering::Relaxed);
        // No function is called while the process exits.
        let calls = match machine.is_over {
            true => Vec::new(),
            false => machine.world().catastrophe(failure.text()),
        };
        drop(machine);
        for call in calls {
            // SAFETY: the program has set the function for this purpose.
            unsafe { call.run() };
        }
        Ok::<_, Failure>(())
    });
    if reported.is_err() {
        eprintln!("vipl: handlers are no longer called: {}", failure.text());
    }
}

fn run_once(wake_fd: RawFd) -> Result<(), Failure> {
    let mut machine = lock()?;
    machine.world().has_calls = false;
    let mut has_waiting_handler = machine.world().has_waiting_handler();
    if has_waiting_handler {
        machine.progress()?;
    }
    let mut call = machine.world().next_call();
    if call.is_none() && has_waiting_handler {
        machine.check_peers()?;
        machine.acknowledge()?;
        call = machine.world().next_call();
    }
    if let Some(call) = call {
        release(machine);
        // SAFETY: the program has set the function for this purpose.
        unsafe { call.run() };
        return Ok(());
    }
    if has_waiting_handler {
        has_waiting_handler = portolan_ffi::arm(machine.node()?)?;
        if !has_waiting_handler {
            machine.node()?.disarm();
            release(machine);
            return Ok(());
        }
    }
    let mut polls = [wake_fd, machine.event_fd].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    machine.world().has_calls = false;
    drop(machine);
    let (count, timeout) = if has_waiting_handler {
        (2, SLEEP_MAX_MS)
    } else {
        (1, -1)
    };
    // SAFETY: `count` is at most the length of the array.
    let _woken: c_int = unsafe { libc::poll(polls.as_mut_ptr(), count, timeout) };
    let mut count = 0_u64;
    // SAFETY: eight bytes on the stack; a read without a pending event has no effect.
    let _read = unsafe { libc::read(wake_fd, (&raw mut count).cast(), 8) };
    if has_waiting_handler {
        lock()?.node()?.disarm();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Nic;
    use crate::testing::attributes;
    use crate::vi::Level;
    use crate::vi::Vi;
    use std::ptr;
    use std::sync::atomic::AtomicU32;

    static SEEN: AtomicU32 = AtomicU32::new(u32::MAX);

    unsafe extern "C" fn on_error(_: *mut c_void, error: *mut VIP_ERROR_DESCRIPTOR) {
        // SAFETY: the descriptor is valid during the call.
        SEEN.store(unsafe { (*error).ErrorCode }, Ordering::Relaxed);
    }

    unsafe extern "C" fn on_work(
        _: *mut c_void,
        _: VIP_NIC_HANDLE,
        _: VIP_VI_HANDLE,
        _: *mut VIP_DESCRIPTOR,
    ) {
    }

    /// The process of this test has no node, so a pass fails.
    #[test]
    fn failing_helper_reports_catastrophe() {
        let wake_fd = {
            let machine = lock().unwrap();
            let mut world = machine.world();
            let nic = Nic {
                on_error: (Some(on_error), ptr::null_mut()),
                hosts: None,
            };
            let nic = world.nics.insert(nic).unwrap();
            let mut vi = Vi::new(
                nic,
                attributes(VIP_SERVICE_UNRELIABLE),
                (Level::Unreliable, 0),
                Default::default(),
            );
            vi.recv.handlers.push_back((Some(on_work), ptr::null_mut()));
            world.vis.insert(vi).unwrap();
            HAS_HELPER.store(true, Ordering::Relaxed);
            create_wake_fd().unwrap()
        };
        run(wake_fd);
        assert_eq!(SEEN.load(Ordering::Relaxed), VIP_ERROR_CATASTROPHIC);
        // The next call that needs a helper starts another.
        assert!(!HAS_HELPER.load(Ordering::Relaxed));
    }
}
