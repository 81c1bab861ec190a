// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handler of SIGSEGV: completes pages that the program accesses.
//!
//! The signal is caused by the program's own instruction, so the handler may wait and allocate.
//! Other faults are passed to the previously installed handler.

use crate::error::{Failure, failure};
use crate::machine::{self, Held, Machine};
use libc::{c_int, c_void, siginfo_t};
use portolan_ffi::fenced;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The program's memory: address and length.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Action that was set before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler for `len` bytes at `base`.
pub(crate) fn install(base: usize, len: usize) -> Result<(), Failure> {
    BASE.store(base, Ordering::Relaxed);
    LEN.store(len, Ordering::Relaxed);
    // SAFETY: all zeros is a valid action.
    let (mut old, mut new): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: reads the current action.
    unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut old) };
    BEFORE.get_or_init(|| old);
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
    new.sa_sigaction = handler as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | old.sa_flags & libc::SA_ONSTACK;
    // SAFETY: the handler has the required signature, and exists as long as this library.
    if unsafe { libc::sigaction(libc::SIGSEGV, &raw const new, std::ptr::null_mut()) } != 0 {
        let error = io::Error::last_os_error();
        return Err(failure(format!("cannot handle faults: {error}")));
    }
    Ok(())
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid information. The location is that of this thread.
    let (address, errno) = unsafe { ((*info).si_addr().addr(), *libc::__errno_location()) };
    let offset = address.wrapping_sub(BASE.load(Ordering::Relaxed));
    if offset >= LEN.load(Ordering::Relaxed) || !complete(address, is_write(context)) {
        // SAFETY: arguments of this handler.
        unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Completes the page at an address. Returns `false` if this process no longer shares memory, or
/// the library itself has caused the fault.
fn complete(address: usize, write: bool) -> bool {
    if machine::is_forked() {
        return false;
    }
    let Some(mut held) = Held::take() else {
        return false;
    };
    let Some(machine) = held.machine() else {
        return false;
    };
    let completed = fenced(|| machine.complete(address, write));
    if let Err(why) = completed {
        machine::fail(held, &format!("access to {address:#x}"), &why);
        machine::end_now();
    }
    true
}

impl Machine {
    fn complete(&mut self, address: usize, write: bool) -> Result<(), Failure> {
        let Some(page) = self.page_of(address) else {
            return Err(failure("the address is not shared"));
        };
        if self.dsm.is_local(page) {
            return self.complete_local(page, write);
        }
        self.take_over()?;
        self.perform(|dsm| dsm.fault(page, write))?;
        self.leave()
    }
}

/// Returns whether the fault is known to be a write.
#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut c_void) -> bool {
    /// The bit of the error code for writes.
    const WRITE: i64 = 2;
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes a context.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    registers[libc::REG_ERR as usize] & WRITE != 0
}

/// Returns whether the fault is known to be a write. A write to a page that cannot be read faults
/// twice where that is unknown.
#[cfg(not(target_arch = "x86_64"))]
fn is_write(_: *mut c_void) -> bool {
    false
}

/// Passes a fault to the previously installed handler.
///
/// # Safety
/// The arguments are those of a handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else {
        return;
    };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction is repeated, and ends the process.
            // SAFETY: all zeros is the default action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: installed with this signature.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: installed with this signature.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
