// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of memory of this process before it is accessed: it may be unmapped, or its pages may
//! forbid the access.
//!
//! The program chooses the memory of its operations, and may unmap it while they are in flight. A
//! system call then reports EFAULT, but a copy in this process raises SIGSEGV. A probe accesses one
//! byte of each page, without changing it. A handler for SIGSEGV and SIGBUS continues a probe that
//! faults at its error exit, and passes every other signal to the handler that was there before.
//!
//! Probes work on x86-64 only. Elsewhere they succeed always.
#![allow(
    unsafe_code,
    reason = "signal handlers, and accesses that may fault by design"
)]

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
use x86_64::{install, is_readable_at, is_writable_at};

/// Returns `true` if `bytes` can be read.
#[inline]
#[must_use]
pub fn is_readable(bytes: &[u8]) -> bool {
    bytes.is_empty() || {
        install();
        is_readable_at(bytes.as_ptr(), bytes.len())
    }
}

/// Returns `true` if `bytes` can be written. Changes nothing, also for other processes that write
/// there.
#[inline]
#[must_use]
pub fn is_writable(bytes: &mut [u8]) -> bool {
    bytes.is_empty() || {
        install();
        is_writable_at(bytes.as_mut_ptr(), bytes.len())
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
fn install() {}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
fn is_readable_at(_: *const u8, _: usize) -> bool {
    true
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
fn is_writable_at(_: *mut u8, _: usize) -> bool {
    true
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86_64 {
    use libc::{c_int, c_void, sigaction, siginfo_t, ucontext_t};
    use std::sync::OnceLock;
    use std::{mem, ptr};

    // Each function returns 0 if it could access every page from `rdi` to the byte `rsi`, else 1.
    // They use neither the stack nor registers that a caller expects unchanged, so that the handler
    // can continue them at the error exit. `lock or` writes the byte that is there.
    std::arch::global_asm!(
        ".globl portolan_probe_read",
        ".hidden portolan_probe_read",
        ".globl portolan_probe_write",
        ".hidden portolan_probe_write",
        ".globl portolan_probe_end",
        ".hidden portolan_probe_end",
        ".p2align 4",
        "portolan_probe_read:",
        "2: mov al, byte ptr [rdi]",
        "and rdi, -4096",
        "add rdi, 4096",
        "cmp rdi, rsi",
        "jbe 2b",
        "xor eax, eax",
        "ret",
        ".p2align 4",
        "portolan_probe_write:",
        "2: lock or byte ptr [rdi], 0",
        "and rdi, -4096",
        "add rdi, 4096",
        "cmp rdi, rsi",
        "jbe 2b",
        "xor eax, eax",
        "ret",
        "portolan_probe_end:",
        "mov eax, 1",
        "ret",
    );

    unsafe extern "C" {
        fn portolan_probe_read(first: *const u8, last: *const u8) -> u32;
        fn portolan_probe_write(first: *mut u8, last: *mut u8) -> u32;
        fn portolan_probe_end() -> u32;
    }

    /// Signals of a forbidden access, each with the action that was set before.
    static ACTIONS: [(c_int, OnceLock<sigaction>); 2] = [
        (libc::SIGSEGV, OnceLock::new()),
        (libc::SIGBUS, OnceLock::new()),
    ];

    #[inline]
    pub(super) fn is_readable_at(first: *const u8, len: usize) -> bool {
        let last = first.wrapping_add(len - 1);
        // SAFETY: the handler is installed, so that a fault is the result 1.
        unsafe { portolan_probe_read(first, last) == 0 }
    }

    #[inline]
    pub(super) fn is_writable_at(first: *mut u8, len: usize) -> bool {
        let last = first.wrapping_add(len - 1);
        // SAFETY: as above; no byte changes.
        unsafe { portolan_probe_write(first, last) == 0 }
    }

    /// Installs the handler once. A program that installs its own handler later must call the one
    /// that it replaces.
    #[inline]
    pub(super) fn install() {
        static DONE: OnceLock<()> = OnceLock::new();
        DONE.get_or_init(|| {
            for (signal, before) in &ACTIONS {
                replace(*signal, before);
            }
        });
    }

    fn replace(signal: c_int, before: &OnceLock<sigaction>) {
        // SAFETY: all zeros is a valid `sigaction`.
        let mut old: sigaction = unsafe { mem::zeroed() };
        // SAFETY: reads the current action into `old`.
        if unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) } != 0 {
            return;
        }
        // Set before the handler can run.
        let old = before.get_or_init(|| old);
        let mut new = *old;
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
        new.sa_sigaction = handler as usize;
        new.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
        // The disposition stays while the handler runs; it sets the default itself.
        new.sa_flags &= !libc::SA_RESETHAND;
        // SAFETY: the handler may run at any time: it uses no locks and allocates nothing.
        unsafe { libc::sigaction(signal, &raw const new, ptr::null_mut()) };
    }

    extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let probes =
            portolan_probe_read as *const () as usize..portolan_probe_end as *const () as usize;
        // SAFETY: the kernel passes a `ucontext_t` to a handler with SA_SIGINFO. Only this thread
        // uses it, while the handler runs.
        let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
        let at = &mut registers[libc::REG_RIP as usize];
        if usize::try_from(*at).is_ok_and(|at| probes.contains(&at)) {
            *at = probes.end as i64;
            return;
        }
        pass_on(signal, info, context);
    }

    /// Does what the action that was set before would have done.
    fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let before = ACTIONS.iter().find(|(which, _)| *which == signal);
        let Some(before) = before.and_then(|(_, before)| before.get()) else {
            return;
        };
        match before.sa_sigaction {
            // SAFETY: the kernel passes a `siginfo_t` to a handler with SA_SIGINFO.
            libc::SIG_IGN if unsafe { (*info).si_code } <= 0 => {}
            libc::SIG_IGN | libc::SIG_DFL => {
                // SAFETY: sets the default action. The access that faulted then ends the process,
                // at its own address, as the kernel does even if the signal is ignored. A signal
                // that another process sent is sent again.
                unsafe {
                    libc::signal(signal, libc::SIG_DFL);
                    if (*info).si_code <= 0 {
                        libc::raise(signal);
                    }
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: with SA_SIGINFO the action is a function of this type.
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    unsafe { mem::transmute(handler) };
                handler(signal, info, context);
            }
            handler => {
                // SAFETY: without SA_SIGINFO the action is a function of this type.
                let handler: extern "C" fn(c_int) = unsafe { mem::transmute(handler) };
                handler(signal);
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(loom)))]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
    use std::ptr;
    use std::slice;

    const PAGE: usize = 4096;

    /// Maps pages, of which the last may not be written.
    fn pages(count: usize) -> rustix::io::Result<*mut u8> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new pages, which no code uses yet.
        let at =
            unsafe { mmap_anonymous(ptr::null_mut(), count * PAGE, rights, MapFlags::PRIVATE)? };
        let last = at.wrapping_byte_add((count - 1) * PAGE);
        // SAFETY: the last of these pages.
        unsafe { mprotect(last, PAGE, MprotectFlags::READ)? };
        Ok(at.cast())
    }

    // A blocked SIGSEGV would end the process.
    #[test]
    fn threads_of_the_library_survive_a_probe() {
        let at = pages(1).unwrap().expose_provenance();
        let probed = crate::process::spawn_quiet("probe", move || {
            let at = ptr::with_exposed_provenance_mut(at);
            // SAFETY: a page of the test, which the probe accesses by address only.
            is_writable(unsafe { slice::from_raw_parts_mut(at, 1) })
        });
        assert!(!probed.unwrap().join().unwrap());
    }

    #[test]
    fn only_accessible_pages_pass_a_probe() {
        let at = pages(3).unwrap();
        // SAFETY: three readable pages; the probes access them by address only.
        let all = unsafe { slice::from_raw_parts_mut(at, 3 * PAGE) };
        all[PAGE] = 0xa5;
        assert!(is_readable(all));
        assert!(is_writable(&mut all[..2 * PAGE]));
        assert!(is_writable(&mut all[2 * PAGE - 1..2 * PAGE]));
        assert!(!is_writable(&mut all[2 * PAGE - 1..2 * PAGE + 1]));
        assert!(!is_writable(all));
        assert_eq!(all[PAGE], 0xa5);
        assert!(is_readable(&[]));
        let middle = at.wrapping_add(PAGE);
        // SAFETY: a page of the mapping, which is not accessed afterwards.
        unsafe { munmap(middle.cast(), PAGE).unwrap() };
        assert!(is_readable(&all[..PAGE]));
        assert!(!is_readable(&all[PAGE - 1..=PAGE]));
        assert!(!is_readable(all));
        // SAFETY: the rest of the mapping.
        unsafe { munmap(at.cast(), 3 * PAGE).unwrap() };
    }
}
