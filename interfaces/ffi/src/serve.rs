// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that runs a library's passes while the program computes, if the job has the setting
//! `progress=thread`.
//!
//! The thread checks every two milliseconds whether the program has called the library. If it has
//! not, the thread takes over: it runs passes, and sleeps on the node's events. The next call of the
//! program ends that. A program that calls often pays only for the lock.

use portolan::{Error, Node};
use portolan_sys::process::spawn_begun;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::thread::Builder;

/// Interval at which the thread checks for calls of the program, in milliseconds. Waits of the
/// program sleep for less, so the thread does not take over during a wait.
const TICK_MS: c_int = 2;

/// Longest sleep on the node's events, in milliseconds.
const WATCH_MAX_MS: c_int = 1000;

/// Passes without a message before the thread sleeps.
const IDLE_PASSES_MAX: u32 = 32;

/// A library with passes that the thread can run. Its lock is held while a method is called.
pub trait Served {
    /// Returns the state of the service.
    fn serving(&mut self) -> &mut Serving;

    /// Returns the node, or `None` when the process has left the job.
    fn node(&mut self) -> Option<&mut Node>;

    /// Returns true if messages may be handled on the thread.
    fn may_serve(&self) -> bool {
        true
    }

    /// Runs a pass, and sends what the program would have to send. Returns the number of messages.
    ///
    /// # Errors
    /// The text of a failure, after which the thread ends.
    fn pass(&mut self) -> Result<usize, String>;
}

/// Runs its argument with the library's lock held. Returns `None` when the process has left the
/// job.
pub type With = fn(&mut dyn FnMut(&mut dyn Served)) -> Option<()>;

/// State of the service of a library.
#[derive(Default)]
pub struct Serving {
    wake: Option<OwnedFd>,
    event_fd: RawFd,
    /// Number of calls of the program, now and at the last check.
    calls: u64,
    seen: u64,
    idle_passes: u32,
    /// Set while the node is armed for the thread.
    is_watching: bool,
}

/// Next action of the thread.
enum Step {
    Stop,
    /// Run another step at once.
    Again,
    /// Sleep until woken, or for some milliseconds.
    Sleep(c_int),
    /// Sleep until woken, or until the descriptor is readable.
    Watch(RawFd),
}

impl Serving {
    /// Returns the state without a thread.
    #[must_use]
    pub const fn new() -> Serving {
        Serving {
            wake: None,
            event_fd: -1,
            calls: 0,
            seen: 0,
            idle_passes: 0,
            is_watching: false,
        }
    }

    /// Returns true if a thread runs passes.
    pub fn is_on(&self) -> bool {
        self.wake.is_some()
    }

    /// Starts the thread, named `name`, if there is none.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn start(&mut self, name: &str, node: &mut Node, with: With) -> Result<(), Error> {
        if self.is_on() {
            return Ok(());
        }
        let failed = |errno| Error::System {
            what: "starting the progress thread of the library",
            errno,
        };
        self.event_fd = node.event_fd()?.as_raw_fd();
        // SAFETY: the call has no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor.
        self.wake = Some(unsafe { OwnedFd::from_raw_fd(fd) });
        // Handlers of the program may run on this thread, so it has the default stack.
        let builder = Builder::new().name(name.to_owned());
        if let Err(error) = spawn_begun(builder, move || run(fd, with)) {
            self.wake = None;
            return Err(failed(error));
        }
        Ok(())
    }

    /// Counts a call of the program. Returns true if the thread has armed the node; the caller must
    /// call [`Serving::resume`].
    #[inline]
    pub fn on_call(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.is_watching
    }

    /// Takes the node back from the thread.
    #[cold]
    pub fn resume(&mut self, node: &mut Node) {
        self.is_watching = false;
        node.disarm();
        let one = 1_u64;
        if let Some(wake) = &self.wake {
            // SAFETY: eight bytes on the stack. The write fails only if the thread is woken anyway.
            let _written =
                unsafe { libc::write(wake.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        }
    }
}

/// Performs one step with the lock held.
fn step(served: &mut dyn Served) -> Step {
    if served.node().is_none() {
        return Step::Stop;
    }
    if std::mem::take(&mut served.serving().is_watching)
        && let Some(node) = served.node()
    {
        node.disarm();
    }
    let may_serve = served.may_serve();
    let serving = served.serving();
    if serving.calls != serving.seen || !may_serve {
        (serving.seen, serving.idle_passes) = (serving.calls, 0);
        return Step::Sleep(TICK_MS);
    }
    match served.pass() {
        Ok(0) => served.serving().idle_passes += 1,
        Ok(_) => served.serving().idle_passes = 0,
        Err(text) => {
            eprintln!("portolan: messages wait for the next call of the program: {text}");
            return Step::Stop;
        }
    }
    if served.serving().idle_passes < IDLE_PASSES_MAX {
        return Step::Again;
    }
    let Some(armed) = served.node().map(crate::arm) else {
        return Step::Stop;
    };
    let serving = served.serving();
    // The calls before this sleep were seen, and those after it wake the thread.
    serving.idle_passes = 0;
    match armed {
        Ok(false) => {
            if let Some(node) = served.node() {
                node.disarm();
            }
            Step::Again
        }
        Ok(true) => {
            serving.is_watching = true;
            Step::Watch(serving.event_fd)
        }
        Err(error) => {
            eprintln!("portolan: messages wait for the next call of the program: {error}");
            Step::Stop
        }
    }
}

fn run(wake: RawFd, with: With) {
    crate::run_promptly();
    loop {
        let mut next = Step::Stop;
        if with(&mut |served| next = step(served)).is_none() {
            return;
        }
        match next {
            Step::Stop => return,
            Step::Again => std::thread::yield_now(),
            Step::Sleep(timeout_ms) => sleep(&[wake], timeout_ms),
            Step::Watch(event_fd) => sleep(&[wake, event_fd], WATCH_MAX_MS),
        }
    }
}

/// Sleeps until a descriptor is readable, and clears the first, the thread's wake descriptor.
fn sleep(fds: &[RawFd], timeout_ms: c_int) {
    let mut polls = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; 2];
    for (poll, fd) in polls.iter_mut().zip(fds) {
        poll.fd = *fd;
    }
    // SAFETY: entries with a negative descriptor are ignored.
    let _woken: c_int = unsafe { libc::poll(polls.as_mut_ptr(), 2, timeout_ms) };
    let mut count = 0_u64;
    // SAFETY: eight bytes on the stack; a read without a pending event has no effect.
    let _read = unsafe { libc::read(fds[0], (&raw mut count).cast(), size_of::<u64>()) };
}
