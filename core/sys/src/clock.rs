// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monotonic clock that is chosen once, when its owner is created: the system's clock, or the
//! virtual clock of a simulation.
//!
//! A clock is the address of the function that reads it. For the system that is the kernel's own
//! function in this process (vdso(7)), so a read costs one call, as without the choice.
#![allow(
    unsafe_code,
    reason = "the kernel's function for reading the clock is called by its address"
)]

use libc::{c_int, clockid_t, timespec};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

/// Function with the interface of clock_gettime(2).
type Read = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

/// The kernel's function, by architecture.
const VDSO_SYMBOL: &CStr = if cfg!(target_arch = "aarch64") {
    c"__kernel_clock_gettime"
} else {
    c"__vdso_clock_gettime"
};

/// Function for a process without the kernel's function. The C library would take several times as
/// many instructions, which would spoil counts under valgrind.
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: Read = by_system_call;
#[cfg(not(target_arch = "x86_64"))]
const SYSTEM_CALL: Read = libc::clock_gettime;

thread_local! {
    static VIRTUAL_NS: Cell<u64> = const { Cell::new(0) };
}

/// Monotonic clock; see the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Never fails for the monotonic clock.
    read: Read,
}

impl Clock {
    /// Returns the clock of the system, which counts nanoseconds since the system started.
    #[must_use]
    pub fn system() -> Clock {
        static READ: OnceLock<Read> = OnceLock::new();
        Clock {
            read: *READ.get_or_init(|| vdso_read().unwrap_or(SYSTEM_CALL)),
        }
    }

    /// Returns the virtual clock of the thread that reads it. It stands still until that thread
    /// calls [`set_virtual_ns`].
    #[must_use]
    pub fn simulated() -> Clock {
        Clock { read: read_virtual }
    }

    /// Reads the clock, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        let mut time = timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `read` is clock_gettime in one of its forms, or `read_virtual`. Each writes one
        // `timespec` to the address, which is valid for it.
        unsafe { (self.read)(libc::CLOCK_MONOTONIC, &raw mut time) };
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
    }
}

/// # Safety
/// `time` must be valid for a write.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn by_system_call(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the call writes one `timespec` to the address, which the caller guarantees to be valid.
    // It changes no register but these.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_clock_gettime => _,
            in("edi") clock,
            in("rsi") time,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    0
}

/// Sets the virtual clock of this thread.
pub fn set_virtual_ns(now_ns: u64) {
    VIRTUAL_NS.set(now_ns);
}

/// Returns the virtual clock of this thread.
#[must_use]
pub fn virtual_ns() -> u64 {
    VIRTUAL_NS.get()
}

/// # Safety
/// `time` must be valid for a write.
unsafe extern "C" fn read_virtual(_: clockid_t, time: *mut timespec) -> c_int {
    let now_ns = VIRTUAL_NS.get();
    let read = timespec {
        tv_sec: (now_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (now_ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: the caller guarantees that the address is valid.
    unsafe { time.write(read) };
    0
}

/// Returns the kernel's function in this process. There is none under valgrind, which counts system
/// calls, and with a C library that does not list the kernel's functions.
fn vdso_read() -> Option<Read> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name is a C string. `RTLD_NOLOAD` runs no code of a library.
    let library = unsafe { libc::dlopen(c"linux-vdso.so.1".as_ptr(), flags) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and stays open for the life of the process.
    let found = unsafe { libc::dlsym(library, VDSO_SYMBOL.as_ptr()) };
    // SAFETY: the kernel documents this symbol as a function with the interface of clock_gettime.
    // A null pointer becomes `None`.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<Read>>(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn system_clock_is_that_of_the_c_library() {
        let mut before = MaybeUninit::<timespec>::uninit();
        // SAFETY: the address is valid, and the clock exists.
        let before = unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, before.as_mut_ptr());
            before.assume_init()
        };
        let before_ns = before.tv_sec.cast_unsigned() * 1_000_000_000;
        let (first, second) = (Clock::system().now_ns(), Clock::system().now_ns());
        assert!(before_ns <= first && first <= second);
    }

    #[test]
    fn clock_by_system_call_is_the_same() {
        let by_call = Clock { read: SYSTEM_CALL };
        let (before, between) = (Clock::system().now_ns(), by_call.now_ns());
        assert!(before <= between && between <= Clock::system().now_ns());
    }

    #[test]
    fn virtual_clock_moves_only_when_set_by_its_thread() {
        let clock = Clock::simulated();
        assert_eq!(clock.now_ns(), 0);
        set_virtual_ns(1_500_000_000);
        assert_eq!(clock.now_ns(), 1_500_000_000);
        let elsewhere = std::thread::spawn(move || clock.now_ns()).join().unwrap();
        assert_eq!(elsewhere, 0);
    }
}
