// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes and threads: killing a process and waiting for its end, a thread with precise timers,
//! and threads that do not disturb the program.
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

/// Stack bytes of a library thread. The engine's call depth fits, and its buffers are on the heap.
const STACK_LEN: usize = 256 * 1024;

/// Kills this process like `kill -9`: no destructor, no handler, no farewell.
pub fn kill_self() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    // A signal to the own process is delivered before the call returns; abort if it was not.
    std::process::abort();
}

/// A handle that identifies another process until it is dropped, even after the process has exited.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Opens the process with that pid.
    ///
    /// # Errors
    /// `ESRCH` if there is none.
    pub fn open(number: u32) -> io::Result<ProcessHandle> {
        let number = i32::try_from(number).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(ProcessHandle(pidfd_open(number, PidfdFlags::empty())?))
    }

    /// Kills the process like `kill -9`, and returns after it has exited.
    ///
    /// # Errors
    /// `EPERM` for a process of another user; `TimedOut` if it has not exited after `time`.
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

/// Makes the kernel wake this thread on time: its timers are not coalesced, and it runs before all
/// ordinary threads. Returns `false` if the priority was not granted, which needs `CAP_SYS_NICE`;
/// the timers always are.
#[must_use]
pub fn set_precise_timers() -> bool {
    // SAFETY: PR_SET_TIMERSLACK takes nanoseconds and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // The lowest real-time priority, so that no other real-time thread is delayed.
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is a live local; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0 }
}

/// Starts a thread with signals blocked, so that the program's handlers run on its own threads.
/// `name` has at most 15 bytes. Returns after the thread has started, as [`spawn_begun`] does.
///
/// # Errors
/// Returns the error of the system call.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread inherits the signal mask of its creator.
    let mask = block_signals()?;
    let builder = thread::Builder::new().name(name.to_owned());
    let started = spawn_begun(builder.stack_size(STACK_LEN), body);
    // SAFETY: `mask` was returned by the same call before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
    started
}

/// Starts a thread, and returns after it has started. The standard library aborts the process if a
/// new thread finds no memory, so the program must not use up memory before that.
///
/// # Errors
/// Returns the error of the system call.
pub fn spawn_begun<T: Send + 'static>(
    builder: thread::Builder,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (begins, has_begun) = mpsc::channel::<()>();
    let started = builder.spawn(move || {
        drop(begins);
        body()
    });
    // Returns when the sender is dropped: by the thread, or with the closure if no thread was
    // started.
    let _ = has_begun.recv();
    started
}

/// Blocks all signals of this thread but those of forbidden accesses, which a
/// [probe](crate::probe) must survive. Returns the previous mask.
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: a set is plain integers, and the calls only change their arguments.
    let (result, before) = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigdelset(&raw mut all, libc::SIGSEGV);
        libc::sigdelset(&raw mut all, libc::SIGBUS);
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
    fn kill_returns_after_the_process_has_exited() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        handle.kill(Duration::from_secs(60)).unwrap();
        let ended = child.try_wait().unwrap().unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
        handle.kill(Duration::ZERO).unwrap();
        let error = ProcessHandle::open(u32::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
