// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of this process's BIP, who may use it, and what becomes of a failure.
//!
//! BIP was for one thread, and a program with more keeps them apart: nobody waits here for another. That
//! one of them is here already is noticed, as is a process that was forked.

use crate::tag::Tags;
use portolan::{Error, Node, Request};
use portolan_ffi::{Codes, Held, Locked, fenced};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// Why a function failed; BIP has no numbers.
pub(crate) type Failure = portolan_ffi::Failure<Bip>;

/// See [`Failure`].
pub(crate) struct Bip;

impl Codes for Bip {
    const LIBRARY: &'static str = "libbip";
    const INTERNAL: c_int = -1;
    const NULL: c_int = -1;

    fn of(_error: &Error) -> c_int {
        Self::INTERNAL
    }
}

/// A failure that is told by `text`.
#[cold]
pub(crate) fn failure(text: impl Into<String>) -> Failure {
    Failure::new(Bip::INTERNAL, text)
}

/// The one non-blocking send that may be under way.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Of the last one; 0 before the first.
    pub(crate) id: c_int,
    pub(crate) request: Option<Request>,
}

/// Everything between `bip_init` and the end of the process.
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

/// How far this process is.
pub(crate) mod phase {
    /// `bip_init` was not called.
    pub(crate) const BEFORE: u8 = 0;
    /// Between that and the end.
    pub(crate) const RUNNING: u8 = 1;
    /// The process ends.
    pub(crate) const OVER: u8 = 2;
    /// In a child of a process that was running.
    pub(crate) const FORKED: u8 = 3;
}

static PHASE: AtomicU8 = AtomicU8::new(phase::BEFORE);

static STATE: Locked<Option<State>> = Locked::new(None);

/// Runs in each child that the program forks: the job is the parent's.
extern "C" fn disown() {
    if PHASE.load(Ordering::Relaxed) == phase::RUNNING {
        PHASE.store(phase::FORKED, Ordering::Relaxed);
    }
}

/// A call that is being made; the next one may begin when it is dropped.
pub(crate) struct Entered(Held<Option<State>>);

impl Entered {
    /// Begins a call.
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

    /// The job has been joined.
    pub(crate) fn begin(&mut self, state: State) {
        portolan_ffi::watch_forks(disown);
        *self.state() = Some(state);
        PHASE.store(phase::RUNNING, Ordering::Relaxed);
    }

    /// The process ends: its place in the job, if it has one that is its own.
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
    failure("another thread is in a function of BIP; let one thread in at a time")
}

/// Why a function cannot be called now.
#[cold]
pub(crate) fn not_running(phase: u8) -> Failure {
    match phase {
        phase::BEFORE => failure("call bip_init() first"),
        phase::FORKED => Error::Forked.into(),
        _ => failure("the process is ending: exit() was called"),
    }
}

/// Runs the body of function `name` with the state; a failure ends the job.
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

/// The same, in whatever phase.
#[inline]
pub(crate) fn run_any<T>(name: &str, body: impl FnOnce(&mut Entered) -> Result<T, Failure>) -> T {
    match fenced(|| body(&mut Entered::new()?)) {
        Ok(value) => value,
        Err(failure) => die(name, &failure),
    }
}

/// Says what went wrong, and ends the job.
#[cold]
fn die(name: &str, why: &Failure) -> ! {
    let why = why.text();
    // The state may be another thread's; then the launcher ends the job when it sees this process
    // fail.
    let own = Entered::new().ok().and_then(|mut entered| entered.end());
    let text = match &own {
        Some(state) => format!("node {}: {name}(): {why}", state.node.rank()),
        None => format!("{name}(): {why}"),
    };
    eprintln!("bip: {text}");
    if let Some(mut state) = own {
        state.node.abort(1, &text);
        // What it would wait for when it is dropped will not happen any more.
        std::mem::forget(state);
    }
    std::process::exit(1)
}
