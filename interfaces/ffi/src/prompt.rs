// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that wake for a moment beside a program that computes.

use std::mem::size_of;

/// `struct sched_attr` of the kernel, in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Length of a slice in nanoseconds, the shortest that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// Requests short slices for this thread, so that it interrupts a computing thread when it wakes.
/// Otherwise it may wait for that thread's slice to end, a few milliseconds. Linux before 6.12
/// ignores the request.
pub fn run_promptly() {
    let mut attributes = Attributes::default();
    // The structure has 48 bytes.
    let len = size_of::<Attributes>() as libc::c_ulong;
    let this_thread: libc::c_ulong = 0;
    let none: libc::c_ulong = 0;
    // SAFETY: the kernel writes at most `len` bytes.
    let got = unsafe {
        let to = &raw mut attributes;
        libc::syscall(libc::SYS_sched_getattr, this_thread, to, len, none)
    };
    if got != 0 || attributes.policy != libc::SCHED_OTHER.cast_unsigned() {
        return;
    }
    attributes.runtime_ns = SLICE_NS;
    attributes.flags = 0;
    // SAFETY: a live structure, which states its length. A refusal leaves the slices as they are.
    unsafe {
        let from = &raw const attributes;
        libc::syscall(libc::SYS_sched_setattr, this_thread, from, none);
    }
}
