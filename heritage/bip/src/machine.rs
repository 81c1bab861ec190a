// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of BIP in this process, access to it, and the handling of failures.
//!
//! BIP is single-threaded: a program with several threads must serialise its calls, and no call
//! waits for another. Concurrent calls are detected, as are calls in a forked child.

use crate::tag::Tags;
use portolan::{Error, Node, Request};
use portolan_ffi::{Codes, Held, Locked, fenced};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// An error of a function. BIP has no error numbers.
pub(crate) type Failure = portolan_ffi::Failure<Bip>;

/// The error codes of this library; see [`Failure`].
pub(crate) struct Bip;

impl Codes for Bip {
    const LIBRARY: &'static str = "libbip";
    const INTERNAL: c_int = -1;
    const NULL: c_int = -1;

    fn of(_error: &Error) -> c_int {
        Self::INTERNAL
    }
}

/// Creates a failure with the message `text`.
#[cold]
pub(crate) fn failure(text: impl Into<String>) -> Failure {
    Failure::new(Bip::INTERNAL, text)
}

/// The one non-blocking send that may be in progress.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Number of the last send; 0 before the first.
    pub(crate) id: c_int,
    pub(crate) request: Option<Request>,
}

/// The state from `bip_init` to the exit of the process.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) outgoing: Outgoing,
    pub(crate) tags: Tags,
}

impl State {
    pub(crate) fn new(node: Node) -> State {
        State {
            node,
            outgoing: Outgoing::default(),
            tags: Tags::default(),
        }
    }
}

/// Life phase of this process.
pub(crate) mod phase {
    /// `bip_init` was not called.
    pub(crate) const BEFORE: u8 = 0;
    /// The job was joined.
    pub(crate) const RUNNING: u8 = 1;
    /// The process is exiting.
    pub(crate) const OVER: u8 = 2;
    /// This process is a child of a process that was running.
    pub(crate) const FORKED: u8 = 3;
}

static PHASE: AtomicU8 = AtomicU8::new(phase::BEFORE);

static STATE: Locked<Option<State>> = Locked::new(None);

/// Runs in each child that the program forks. The job belongs to the parent.
extern "C" fn disown() {
    if PHASE.load(Ordering::Relaxed) == phase::RUNNING {
        PHASE.store(phase::FORKED, Ordering::Relaxed);
    }
}

/// A call in progress. The next one may begin when it is dropped.
pub(crate) struct Entered(Held<Option<State>>);

impl Entered {
    /// Starts a call.
    #[inline]
    pub(crate) fn new() -> Result<Entered, Failure> {
        STATE.take_now().map(Entered).ok_or_else(busy)
    }

    #[inline]
    pub(crate) fn state(&mut self) -> &mut Option<State> {
        &mut self.0
    }

    #[inline]
    pub(crate) fn phase(&self) -> u8 {
        PHASE.load(Ordering::Relaxed)
    }

    /// Records that the process has joined the job.
    pub(crate) fn begin(&mut self, state: State) {
        portolan_ffi::watch_forks(disown);
        *self.state() = Some(state);
        PHASE.store(phase::RUNNING, Ordering::Relaxed);
    }

    /// Marks the process as exiting. Returns the state, if it is this process's own.
    pub(crate) fn end(&mut self) -> Option<State> {
        let before = PHASE.swap(phase::OVER, Ordering::Relaxed);
        match before {
            phase::RUNNING => self.state().take(),
            _ => None,
        }
    }
}

#[cold]
fn busy() -> Failure {
    failure("another thread is inside the library; serialize calls of several threads")
}

/// Returns the error for a function that cannot be called in this phase.
#[cold]
pub(crate) fn not_running(phase: u8) -> Failure {
    match phase {
        phase::BEFORE => failure("call bip_init() first"),
        phase::FORKED => Error::Forked.into(),
        _ => failure("the process is ending: exit() was called"),
    }
}

/// Runs the body of function `name` with the state. A failure ends the job.
#[inline]
pub(crate) fn run<T>(name: &str, body: impl FnOnce(&mut State) -> Result<T, Failure>) -> T {
    run_any(name, |entered| {
        if PHASE.load(Ordering::Relaxed) != phase::RUNNING {
            return Err(not_running(entered.phase()));
        }
        match entered.state() {
            Some(state) => body(state),
            None => Err(not_running(phase::OVER)),
        }
    })
}

/// Runs the body of function `name` in any phase. A failure ends the job.
#[inline]
pub(crate) fn run_any<T>(name: &str, body: impl FnOnce(&mut Entered) -> Result<T, Failure>) -> T {
    match fenced(|| body(&mut Entered::new()?)) {
        Ok(value) => value,
        Err(failure) => die(name, &failure),
    }
}

/// Prints the error, and ends the job.
#[cold]
fn die(name: &str, why: &Failure) -> ! {
    let why = why.text();
    // Another thread may hold the state. The launcher then ends the job when this process fails.
    let own = Entered::new().ok().and_then(|mut entered| entered.end());
    let text = match &own {
        Some(state) => format!("node {}: {name}(): {why}", state.node.rank()),
        None => format!("{name}(): {why}"),
    };
    eprintln!("bip: {text}");
    if let Some(mut state) = own {
        state.node.abort(1, &text);
        // Dropping the state would wait for operations that can never complete.
        std::mem::forget(state);
    }
    std::process::exit(1)
}
