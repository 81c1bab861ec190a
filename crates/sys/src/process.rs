// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process: its end by force, and threads that keep out of its program's way.
#![allow(unsafe_code, reason = "the standard library does not mask signals")]

use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// Bytes of the stack of a library's thread: engines call no deeper than this, and buffers are on the
/// heap.
const STACK_LEN: usize = 256 * 1024;

/// Kills this process as `kill -9` does: no destructor, no handler, no farewell.
pub fn kill_self() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    // A signal to oneself is delivered before the call returns; without it, the next worst.
    std::process::abort();
}

/// Starts a thread that takes no signal of the program's: its handlers run on the threads that it
/// knows. `name` has at most 15 bytes. Returns when the thread has begun, as [`spawn_begun`] does.
///
/// # Errors
/// What the system says.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread begins with the mask of the one that starts it.
    let mask = block_signals()?;
    let builder = thread::Builder::new().name(name.to_owned());
    let started = spawn_begun(builder.stack_size(STACK_LEN), body);
    // SAFETY: `mask` is what the same call returned before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
    started
}

/// Starts a thread, and returns when it has begun: the standard library ends the process when a thread
/// finds no memory for its beginning, so the program must not use up any before.
///
/// # Errors
/// What the system says.
pub fn spawn_begun<T: Send + 'static>(
    builder: thread::Builder,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (begins, has_begun) = mpsc::channel::<()>();
    let started = builder.spawn(move || {
        drop(begins);
        body()
    });
    // Ends when the other end is dropped: by the thread, or with the closure where there is none.
    let _ = has_begun.recv();
    started
}

/// Blocks all signals of this thread; returns which were.
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: a set is plain numbers, and both calls only fill what they are given.
    let (result, before) = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let result = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        (result, before)
    };
    match result {
        0 => Ok(before),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
