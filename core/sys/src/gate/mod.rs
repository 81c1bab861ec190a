// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value that one thread uses, and that a thread of its own carries on when the first has left
//! something in it and stays away.
//!
//! A program that has called a library and then computes would otherwise leave undone what the
//! library had put off until the next call. Each use of the value is a guard; the end of the last
//! one leaves the value to the helper if there is something to carry on. That costs the owner some
//! stores to cache lines of its own, and nothing when it leaves nothing.
//!
//! A value may also want its helper while nothing is left, for what comes from outside: the helper
//! then sleeps on a descriptor of the value's until the owner is back.
//!
//! The one invariant: the helper touches the value only while the owner uses nothing of it.
#![allow(
    unsafe_code,
    reason = "a value that is handed between two threads by an atomic word"
)]

mod baton;
mod bell;
#[cfg(loom)]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::fork::Owner;
use baton::{Absence, Asleep, Baton};
use bell::Bell;
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the owner stays away before its helper carries on what is urgent: hundreds of calls of a
/// busy program, which then carries on by itself, and far less than a person or a timeout notices. A
/// poll takes the core from a pinned program for some 10 µs: 1 % of it.
pub const ABSENCE: Duration = Duration::from_millis(1);

/// The same for what is not urgent, and between looks at an owner that leaves nothing else: half of what
/// kernel TCP lets an acknowledgement wait at least (`TCP_DELACK_MIN`, 40 ms), and 50 polls a second,
/// 0.05 % of a core. What it costs: a frame that was lost is sent again so much later by a program that
/// computes, and its peers ask again for what it has not acknowledged.
const ABSENCE_PATIENT: Duration = Duration::from_millis(20);

/// The same for a value that is guarded: what comes from outside waits so long at first when the owner
/// begins to compute. Looks of some 10 µs, each this far from the next, take half a percent of a core
/// from an owner that calls without end.
const ABSENCE_GUARDED: Duration = Duration::from_millis(2);

/// Longest pause between tries to move what is stuck, since its peer computes: 25 tries a second are
/// not seen in `top`.
const PAUSE_MAX: Duration = Duration::from_millis(40);

/// Polls that find nothing urgent before the helper has to be called for that: a call costs the owner
/// a system call, once in so many polls. So many more, each after a longer sleep, that find nothing at
/// all, and it has to be called for anything.
const POLLS_MAX: u32 = 10;

/// What the owner leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Something that may wait for some tens of milliseconds.
    Patient,
    /// Something that others wait for.
    Urgent,
}

/// How far the helper got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Nothing is left.
    Done,
    /// Something moved, and something is left.
    Moved,
    /// Something is left that cannot go on now.
    Stuck,
}

/// How the helper waits for what comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It does not: only what the owner has left is carried on.
    Never,
    /// Something has come already.
    Awake,
    /// Until the descriptor is readable, or so much time has passed.
    Asleep(RawFd, Duration),
}

/// What a helper can do for its owner.
pub trait Carry: Send + 'static {
    /// Whether the helper may be there for what comes from outside, too, while the owner is away: asked
    /// once. It is there whenever [`Carry::left`] is not [`Left::Nothing`].
    fn is_guarded(&self) -> bool {
        false
    }

    /// The helper, which has carried on, is about to leave the value: how it is to wait. The descriptor
    /// must stay open until [`Carry::end_guard`].
    fn begin_guard(&mut self) -> Guard {
        Guard::Never
    }

    /// After [`Guard::Asleep`]: the owner, or the helper, is back.
    fn end_guard(&mut self) {}

    /// What waits to be done although the owner may not come back.
    fn left(&self) -> Left;

    /// Goes on with what was left; returns soon once `is_wanted` says so.
    fn carry(&mut self, is_wanted: &dyn Fn() -> bool) -> Carried;

    /// The system has no thread for the helper: what is left waits for the owner. Told once.
    fn on_no_helper(&mut self, error: &io::Error);
}

struct Shared<T> {
    baton: Baton,
    is_closed: AtomicBool,
    value: UnsafeCell<T>,
    /// Of a value that is guarded: wakes the helper that sleeps on the value's descriptor.
    bell: Option<Bell>,
    /// The helper sleeps so, or is about to; used like `value`.
    is_on_guard: UnsafeCell<bool>,
}

// SAFETY: `value` and `is_on_guard` are used by the thread that has the baton alone: by the owner through
// its guards, or by the helper between `pick_up` and `give_back`; the baton's orderings make what one did
// visible to the other. `T: Send` because both threads use it.
unsafe impl<T: Send> Sync for Shared<T> {}

/// See the module documentation.
pub struct Gate<T: Carry> {
    shared: Arc<Shared<T>>,
    /// The owner has the baton.
    has_baton: Cell<bool>,
    /// Readers' guards that are alive.
    looks: Cell<u32>,
    /// By [`Gate::hold`]: nothing is left to the helper before the next [`Gate::enter`].
    is_held: Cell<bool>,
    helper: OnceCell<Option<JoinHandle<()>>>,
    name: &'static str,
    /// The process that the helper lives in: a child that it forks has none.
    process: Owner,
}

impl<T: Carry> Gate<T> {
    /// A gate around `value`, whose helper, once it is needed, is called `name` (at most 15 bytes).
    ///
    /// # Errors
    /// For want of descriptors, if the value is guarded.
    pub fn new(value: T, name: &'static str) -> io::Result<Gate<T>> {
        let bell = value.is_guarded().then(Bell::new).transpose()?;
        Ok(Gate {
            shared: Arc::new(Shared {
                baton: Baton::new(),
                is_closed: AtomicBool::new(false),
                value: UnsafeCell::new(value),
                bell,
                is_on_guard: UnsafeCell::new(false),
            }),
            has_baton: Cell::new(true),
            looks: Cell::new(0),
            is_held: Cell::new(false),
            helper: OnceCell::new(),
            name,
            process: Owner::this_process(),
        })
    }

    /// Whether this process is a child that was forked since: its copy has no helper.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.process.is_another()
    }

    /// Takes the value back, for as long as the guard lives.
    #[inline]
    pub fn enter(&mut self) -> Entered<'_, T> {
        // Guards that were leaked, and references from `hold`, cannot be in use any more.
        self.looks.set(0);
        self.is_held.set(false);
        self.begin();
        Entered(self)
    }

    /// As [`Gate::enter`], to read.
    #[inline]
    pub fn look(&self) -> Look<'_, T> {
        self.looks.set(self.looks.get() + 1);
        self.begin();
        Look(self)
    }

    /// Takes the value back until the next [`Gate::enter`] has ended: for what is handed out of it and
    /// must not change meanwhile.
    #[inline]
    pub fn hold(&self) -> &T {
        self.begin();
        self.is_held.set(true);
        // SAFETY: the owner has the baton until the next `enter`, before which the reference ends.
        unsafe { &*self.shared.value.get() }
    }

    /// As [`Gate::hold`], to change what is handed out.
    #[inline]
    pub fn hold_mut(&mut self) -> &mut T {
        self.begin();
        self.is_held.set(true);
        // SAFETY: as in `hold`; `&mut self` makes this the only reference.
        unsafe { &mut *self.shared.value.get() }
    }

    #[inline]
    fn begin(&self) {
        if !self.has_baton.get() {
            self.take_back();
        }
    }

    #[inline]
    fn take_back(&self) {
        self.shared.baton.take_back();
        if !self.shared.baton.is_back() {
            self.await_helper();
        }
        self.has_baton.set(true);
        // SAFETY: the owner has the baton.
        if unsafe { *self.shared.is_on_guard.get() } {
            self.end_guard();
        }
    }

    #[cold]
    fn end_guard(&self) {
        if self.process.is_another() {
            // The descriptor is the parent's helper's as well.
            return;
        }
        // SAFETY: the owner has the baton, and no guard yet.
        unsafe { self.shared.end_guard() };
        if let Some(bell) = &self.shared.bell {
            bell.ring();
        }
    }

    #[cold]
    fn await_helper(&self) {
        let mut tries = 0_u32;
        // A helper that had the value when this process was forked never gives it back.
        while !self.shared.baton.is_back() && !self.process.is_another() {
            tries += 1;
            // A turn of the helper's takes microseconds, but it may have lost its core.
            if tries < 64 {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Ends the last use: leaves the value to the helper if there is something to carry on.
    #[inline]
    fn end(&self) {
        if self.is_held.get() {
            return;
        }
        // SAFETY: the owner has the baton, and nothing of the value is used any more.
        match unsafe { &*self.shared.value.get() }.left() {
            Left::Nothing => {}
            Left::Patient => self.leave(false),
            Left::Urgent => self.leave(true),
        }
    }

    #[inline]
    fn leave(&self, is_urgent: bool) {
        if self.process.is_another() {
            return;
        }
        let helper = match self.helper.get() {
            Some(helper) => helper.as_ref(),
            None => self.start_helper(),
        };
        if let Some(helper) = helper {
            self.has_baton.set(false);
            if self.shared.baton.put_down(is_urgent) {
                helper.thread().unpark();
            }
        }
    }

    #[cold]
    fn start_helper(&self) -> Option<&JoinHandle<()>> {
        let helper = spawn(&self.shared, self.name);
        if let Err(error) = &helper {
            // SAFETY: the owner has the baton, and has no guard.
            unsafe { &mut *self.shared.value.get() }.on_no_helper(error);
        }
        self.helper.get_or_init(|| helper.ok()).as_ref()
    }
}

/// The value, while its owner uses it.
pub struct Entered<'a, T: Carry>(&'a Gate<T>);

impl<T: Carry> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner has the baton while a guard lives, and this one came from `&mut Gate`, so
        // it is the only one.
        unsafe { &*self.0.shared.value.get() }
    }
}

impl<T: Carry> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference.
        unsafe { &mut *self.0.shared.value.get() }
    }
}

impl<T: Carry> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The value, while its owner reads it.
pub struct Look<'a, T: Carry>(&'a Gate<T>);

impl<T: Carry> Deref for Look<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner has the baton while a guard lives; others that live now are of this kind,
        // since `Gate::enter` takes `&mut self`.
        unsafe { &*self.0.shared.value.get() }
    }
}

impl<T: Carry> Drop for Look<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let looks = self.0.looks.get() - 1;
        self.0.looks.set(looks);
        if looks == 0 {
            self.0.end();
        }
    }
}

impl<T: Carry> Drop for Gate<T> {
    fn drop(&mut self) {
        if !self.has_baton.get() {
            self.take_back();
        }
        let Some(helper) = self.helper.take().flatten() else {
            return;
        };
        if self.process.is_another() {
            // There is nobody to wait for.
            std::mem::forget(helper);
            return;
        }
        self.shared.is_closed.store(true, Ordering::SeqCst);
        helper.thread().unpark();
        // It holds the value until it has ended; a panic of its was told when it happened.
        let _ = helper.join();
    }
}

impl<T: Carry> Shared<T> {
    /// Ends what [`Carry::begin_guard`] began, if it did.
    ///
    /// # Safety
    /// The calling thread has the baton, and uses nothing of the value.
    unsafe fn end_guard(&self) {
        // SAFETY: as above.
        let (is_on_guard, value) =
            unsafe { (&mut *self.is_on_guard.get(), &mut *self.value.get()) };
        if std::mem::take(is_on_guard) {
            value.end_guard();
        }
    }

    /// Carries on what the owner has left, and, if the value is guarded, what comes from outside until the
    /// owner is back.
    fn carry_on(&self, absence: Absence) -> Carried {
        while self.baton.pick_up(absence) {
            let (carried, guard) = {
                let _back = GiveBack(self);
                // SAFETY: this thread has the baton until `_back` is dropped.
                unsafe { self.end_guard() };
                // SAFETY: as above.
                let value = unsafe { &mut *self.value.get() };
                let carried = value.carry(&|| self.baton.is_wanted(absence));
                let guard = self.bell.as_ref().map(|bell| (bell, value.begin_guard()));
                let is_on_guard = matches!(guard, Some((_, Guard::Asleep(..))));
                // SAFETY: as above.
                unsafe { *self.is_on_guard.get() = is_on_guard };
                (carried, guard)
            };
            match guard {
                None | Some((_, Guard::Never)) => return carried,
                // What has come cannot be taken now, and may not ring when it can.
                Some((_, Guard::Awake)) if carried == Carried::Stuck => {
                    thread::park_timeout(ABSENCE);
                }
                Some((_, Guard::Awake)) => {}
                Some((bell, Guard::Asleep(fd, most))) => bell.sleep(fd, most),
            }
        }
        Carried::Moved
    }
}

fn spawn<T: Carry>(shared: &Arc<Shared<T>>, name: &str) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    crate::process::spawn_quiet(name, move || help(&shared))
}

/// The helper's thread: carries on what the owner has left, once it stays away.
fn help<T: Carry>(shared: &Shared<T>) {
    let patience = match &shared.bell {
        Some(_) => ABSENCE_GUARDED,
        None => ABSENCE_PATIENT,
    };
    let mut pause = ABSENCE;
    let mut polls = 0;
    // The last absence in which everything was done.
    let mut done = None;
    while !shared.is_closed.load(Ordering::SeqCst) {
        let absence = shared.baton.absence().filter(|now| Some(*now) != done);
        if absence.is_some_and(Absence::is_urgent) {
            polls = 0;
            doze(shared, pause, absence);
        } else {
            // What was left is looked after for as long as it is there.
            polls = 1 + match absence {
                Some(_) => polls.min(POLLS_MAX),
                None => polls,
            };
            let is_called = match polls {
                ..=POLLS_MAX => doze(shared, pause, done),
                _ if polls <= 2 * POLLS_MAX => doze(shared, pause.max(patience), done),
                _ => sleep(shared, Asleep::Deeply, None, done),
            };
            if is_called {
                polls = 0;
            }
        }
        let Some(absence) = absence.filter(|then| !shared.baton.is_wanted(*then)) else {
            pause = ABSENCE;
            continue;
        };
        let carried = shared.carry_on(absence);
        pause = match carried {
            Carried::Stuck => (pause * 2).min(PAUSE_MAX),
            Carried::Done | Carried::Moved => ABSENCE,
        };
        if carried == Carried::Done {
            done = Some(absence);
        }
    }
}

/// Also when the value panics: the owner must not wait for ever.
struct GiveBack<'a, T>(&'a Shared<T>);

impl<T> Drop for GiveBack<'_, T> {
    fn drop(&mut self) {
        self.0.baton.give_back();
    }
}

/// Sleeps for `time`: unless that is a moment, the owner calls for what is urgent and not `seen`. Returns
/// whether it has called.
fn doze<T>(shared: &Shared<T>, time: Duration, seen: Option<Absence>) -> bool {
    if time <= ABSENCE {
        thread::park_timeout(time);
        return false;
    }
    sleep(shared, Asleep::Lightly, Some(time), seen)
}

/// Sleeps until the owner calls, or for `most`; not at all if it has left something before that it would
/// have called for, and that was not `seen`. Returns whether it has called.
fn sleep<T>(
    shared: &Shared<T>,
    asleep: Asleep,
    most: Option<Duration>,
    seen: Option<Absence>,
) -> bool {
    shared.baton.fall_asleep(asleep);
    let left = shared.baton.absence().filter(|now| Some(*now) != seen);
    let is_missed = left.is_some_and(|left| asleep == Asleep::Deeply || left.is_urgent());
    if !is_missed && !shared.is_closed.load(Ordering::SeqCst) {
        match most {
            Some(most) => thread::park_timeout(most),
            None => thread::park(),
        }
    }
    shared.baton.wake()
}
