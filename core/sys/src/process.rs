// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes and threads: ending one by force, waiting for another's end, a thread that keeps time, and threads
//! that keep out of the program's way.
#![allow(
    unsafe_code,
    reason = "the standard library neither masks signals nor schedules threads"
)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of the stack of a library's thread: engines call no deeper than this, and buffers are on the
/// heap.
const STACK_LEN: usize = 256 * 1024;

/// Kills this process as `kill -9` does: no destructor, no handler, no farewell.
pub fn kill_self() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    // A signal to oneself is delivered before the call returns; without it, the next worst.
    std::process::abort();
}

/// Another process, which its number stands for until this is dropped, even when it has ended.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// The process with that number.
    ///
    /// # Errors
    /// `ESRCH` when there is none.
    pub fn open(number: u32) -> io::Result<ProcessHandle> {
        let number = i32::try_from(number).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(ProcessHandle(pidfd_open(number, PidfdFlags::empty())?))
    }

    /// Ends it as `kill -9` does, and returns when it has ended.
    ///
    /// # Errors
    /// `EPERM` for one of another user; `TimedOut` when it has not ended after `time`.
    pub fn kill(&self, time: Duration) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            other => other?,
        }
        let mut set = [PollFd::new(&self.0, PollFlags::IN)];
        let time = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match retry_on_intr(|| poll(&mut set, Some(&time)))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

/// Has the kernel wake this thread when its time has come: no timer of it waits for others, and it goes
/// before all ordinary threads. Tells whether it was granted the second, which needs `CAP_SYS_NICE`; the
/// first always is.
#[must_use]
pub fn keep_time() -> bool {
    // SAFETY: PR_SET_TIMERSLACK takes nanoseconds and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // The lowest of the real-time priorities: it is in nobody's way who has one.
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is a live local; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) == 0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_process_that_is_killed_has_ended_when_the_call_returns() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        handle.kill(Duration::from_secs(60)).unwrap();
        let ended = child.try_wait().unwrap().unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
        handle.kill(Duration::ZERO).unwrap();
        let gone = ProcessHandle::open(u32::MAX).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::InvalidInput);
    }
}
