// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value that is used by one thread and serviced by a helper thread while the first one is away.
//!
//! A program that called a library and now computes would otherwise delay the library's pending
//! work until its next call. Each use of the value is a guard. The end of the last guard leaves the
//! value to the helper if work is pending. That costs the owner some stores to its own cache lines,
//! and nothing without pending work.
//!
//! A value may also need its helper without pending work, for external events. The helper then
//! sleeps on a descriptor of the value until the owner returns.
//!
//! Invariant: the helper accesses the value only while the owner does not use it.
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

/// Time since the owner's last call after which its helper starts urgent work. A busy program makes
/// hundreds of calls in that time, and does the work itself. No timeout of the protocol is nearly
/// as short. A poll takes the core from a pinned program for about 10 µs, or 1 %.
pub const ABSENCE: Duration = Duration::from_millis(1);

/// Absence after which the helper starts other work, and interval between its polls. It is half of
/// the minimum delay of an acknowledgement in kernel TCP (`TCP_DELACK_MIN`, 40 ms), and gives 50
/// polls per second, 0.05 % of a core. The cost: a computing program retransmits lost frames later
/// by this time, and its peers retransmit frames that it has not acknowledged.
const ABSENCE_PATIENT: Duration = Duration::from_millis(20);

/// The same delay for a guarded value: the first wait for external events when the owner begins to
/// compute. Polls of about 10 µs at this interval take half a percent of a core from an owner that
/// calls continuously.
const ABSENCE_GUARDED: Duration = Duration::from_millis(2);

/// Longest pause between attempts at work that is stuck because the peer computes: 25 attempts per
/// second do not show up in `top`.
const PAUSE_MAX: Duration = Duration::from_millis(40);

/// Polls without urgent work after which the helper must be woken for it. A wake-up costs the owner
/// one system call per this many polls. After as many further polls without any work, each after a
/// longer sleep, the helper must be woken for any work.
const POLLS_MAX: u32 = 10;

/// Work that the owner leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// No work.
    Nothing,
    /// Work that may wait for tens of milliseconds.
    Patient,
    /// Work that other processes wait for.
    Urgent,
}

/// Result of one pass of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serviced {
    /// No work is left.
    Done,
    /// The helper made progress, and work is left.
    Moved,
    /// Work is left that cannot proceed at present.
    Stuck,
}

/// Wait mode of the helper for external events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It does not wait: only pending work is serviced.
    Never,
    /// An event has already occurred.
    Awake,
    /// It sleeps until the descriptor is readable, or the time has passed.
    Asleep(RawFd, Duration),
}

/// Operations of a value that has a helper.
pub trait Service: Send + 'static {
    /// Returns `true` if the helper also handles external events while the owner is away. Called
    /// once. Pending work in [`Service::pending`] is always serviced.
    fn is_guarded(&self) -> bool {
        false
    }

    /// Called when the helper is about to release the value after servicing it. Returns how to
    /// wait. The descriptor must stay open until [`Service::end_guard`].
    fn begin_guard(&mut self) -> Guard {
        Guard::Never
    }

    /// Called after [`Guard::Asleep`], when the owner or the helper uses the value again.
    fn end_guard(&mut self) {}

    /// Called when the owner takes the value back, except by [`Gate::enter_unsettled`].
    #[inline]
    fn settle(&mut self) {}

    /// Returns how urgent the pending work is, when the owner releases the value.
    fn pending(&self) -> Pending;

    /// Performs pending work; returns soon after `is_requested` returns `true`.
    fn service(&mut self, is_requested: &dyn Fn() -> bool) -> Serviced;

    /// Called once if the system refuses a thread for the helper. Pending work then waits for the
    /// owner.
    fn on_no_helper(&mut self, error: &io::Error);
}

struct Shared<T> {
    baton: Baton,
    is_closed: AtomicBool,
    value: UnsafeCell<T>,
    /// For a guarded value, wakes the helper that sleeps on the value's descriptor.
    bell: Option<Bell>,
    /// Set if the helper sleeps there, or is about to. Accessed under the same rules as `value`.
    is_on_guard: UnsafeCell<bool>,
}

// SAFETY: `value` and `is_on_guard` are used only by the thread that holds the baton: by the owner
// through its guards, or by the helper between `pick_up` and `give_back`; the baton's orderings
// make the writes of one visible to the other. `T: Send` because both threads use it.
unsafe impl<T: Send> Sync for Shared<T> {}

/// A value with its helper thread, as seen by the owner.
pub struct Gate<T: Service> {
    shared: Arc<Shared<T>>,
    /// Set while the owner holds the baton.
    has_baton: Cell<bool>,
    /// Number of live read guards.
    read_guards: Cell<u32>,
    /// Set by [`Gate::hold`]: the helper gets no work before the next [`Gate::enter`].
    is_held: Cell<bool>,
    helper: OnceCell<Option<JoinHandle<()>>>,
    name: &'static str,
    /// Process that the helper belongs to; a forked child has no helper.
    process: Owner,
}

impl<T: Service> Gate<T> {
    /// Creates a gate around `value`. Its helper is started on first need and is called `name` (at
    /// most 15 bytes).
    ///
    /// # Errors
    /// Fails if the value is guarded and descriptors are exhausted.
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
            read_guards: Cell::new(0),
            is_held: Cell::new(false),
            helper: OnceCell::new(),
            name,
            process: Owner::this_process(),
        })
    }

    /// Creates a gate around `value` without a thread: the owner itself does the helper's work, with
    /// [`Gate::serve`], for a simulation in one thread.
    #[must_use]
    pub fn without_thread(value: T) -> Gate<T> {
        Gate {
            shared: Arc::new(Shared {
                baton: Baton::new(),
                is_closed: AtomicBool::new(false),
                value: UnsafeCell::new(value),
                bell: None,
                is_on_guard: UnsafeCell::new(false),
            }),
            has_baton: Cell::new(true),
            read_guards: Cell::new(0),
            is_held: Cell::new(false),
            // As if the system had refused a thread: the owner never leaves the value.
            helper: OnceCell::from(None),
            name: "",
            process: Owner::this_process(),
        }
    }

    /// Returns how urgent the work is that the owner's last use has left.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.begin();
        // SAFETY: the owner holds the baton, and `pending` keeps no reference.
        unsafe { &*self.shared.value.get() }.pending()
    }

    /// Makes one pass of the helper in the calling thread.
    pub fn serve(&mut self) -> Serviced {
        self.enter_unsettled().service(&|| false)
    }

    /// Returns `true` if this process is a child forked since; its copy has no helper.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.process.is_another()
    }

    /// Takes the value back for the lifetime of the guard.
    #[inline]
    pub fn enter(&mut self) -> Entered<'_, T> {
        let mut entered = self.enter_unsettled();
        entered.settle();
        entered
    }

    /// Like [`Gate::enter`], without [`Service::settle`].
    #[inline]
    pub fn enter_unsettled(&mut self) -> Entered<'_, T> {
        // Leaked guards, and references from `hold`, can no longer be in use.
        self.read_guards.set(0);
        self.is_held.set(false);
        self.begin();
        Entered(self)
    }

    /// Like [`Gate::enter`], for reading.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.begin();
        self.settle_unused();
        self.read_guards.set(self.read_guards.get() + 1);
        ReadGuard(self)
    }

    /// Takes the value back until the next [`Gate::enter`] has ended, for references that are
    /// returned from it and must stay valid.
    #[inline]
    pub fn hold(&self) -> &T {
        self.begin();
        self.settle_unused();
        self.is_held.set(true);
        // SAFETY: the owner holds the baton until the next `enter`, before which the reference
        // ends.
        unsafe { &*self.shared.value.get() }
    }

    /// Like [`Gate::hold`], with mutable access.
    #[inline]
    pub fn hold_mut(&mut self) -> &mut T {
        self.begin();
        self.settle_unused();
        self.is_held.set(true);
        // SAFETY: as in `hold`; `&mut self` makes this the only reference.
        unsafe { &mut *self.shared.value.get() }
    }

    /// Calls [`Service::settle`], unless the value is in use already.
    #[inline]
    fn settle_unused(&self) {
        if self.read_guards.get() == 0 && !self.is_held.get() {
            // SAFETY: the owner holds the baton, and neither guards nor references of `hold` exist.
            unsafe { &mut *self.shared.value.get() }.settle();
        }
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
        // SAFETY: the owner holds the baton.
        if unsafe { *self.shared.is_on_guard.get() } {
            self.end_guard();
        }
    }

    #[cold]
    fn end_guard(&self) {
        if self.process.is_another() {
            // The descriptor is also used by the parent's helper.
            return;
        }
        // SAFETY: the owner holds the baton, and has no guard yet.
        unsafe { self.shared.end_guard() };
        if let Some(bell) = &self.shared.bell {
            bell.ring();
        }
    }

    #[cold]
    fn await_helper(&self) {
        let mut tries = 0_u32;
        // A helper that held the value when this process was forked never releases it.
        while !self.shared.baton.is_back() && !self.process.is_another() {
            tries += 1;
            // A pass of the helper takes microseconds, but it may have lost its core.
            if tries < 64 {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Ends the last use: leaves the value to the helper if work is pending.
    #[inline(always)]
    fn end(&self) {
        if self.is_held.get() {
            return;
        }
        // SAFETY: the owner holds the baton, and no part of the value is still in use.
        let is_urgent = match unsafe { &*self.shared.value.get() }.pending() {
            Pending::Nothing => return,
            Pending::Patient => false,
            Pending::Urgent => true,
        };
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
                wake(helper);
            }
        }
    }

    #[cold]
    fn start_helper(&self) -> Option<&JoinHandle<()>> {
        let helper = spawn(&self.shared, self.name);
        if let Err(error) = &helper {
            // SAFETY: the owner holds the baton, and has no guard.
            unsafe { &mut *self.shared.value.get() }.on_no_helper(error);
        }
        self.helper.get_or_init(|| helper.ok()).as_ref()
    }
}

#[cold]
fn wake(helper: &JoinHandle<()>) {
    helper.thread().unpark();
}

/// Guard with which the owner uses the value.
pub struct Entered<'a, T: Service>(&'a Gate<T>);

impl<T: Service> Entered<'_, T> {
    /// Drops the guard. Always inlined, for short calls.
    #[inline(always)]
    pub fn leave(self) {
        self.0.end();
        std::mem::forget(self);
    }
}

impl<T: Service> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner holds the baton while a guard lives, and this one came from `&mut
        // Gate`, so it is the only one.
        unsafe { &*self.0.shared.value.get() }
    }
}

impl<T: Service> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference.
        unsafe { &mut *self.0.shared.value.get() }
    }
}

impl<T: Service> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Guard with which the owner reads the value.
pub struct ReadGuard<'a, T: Service>(&'a Gate<T>);

impl<T: Service> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner holds the baton while a guard lives; other live guards are read guards,
        // because `Gate::enter` takes `&mut self`.
        unsafe { &*self.0.shared.value.get() }
    }
}

impl<T: Service> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let read_guards = self.0.read_guards.get() - 1;
        self.0.read_guards.set(read_guards);
        if read_guards == 0 {
            self.0.end();
        }
    }
}

impl<T: Service> Drop for Gate<T> {
    fn drop(&mut self) {
        if !self.has_baton.get() {
            self.take_back();
        }
        let Some(helper) = self.helper.take().flatten() else {
            return;
        };
        if self.process.is_another() {
            // The helper thread does not exist in this process.
            std::mem::forget(helper);
            return;
        }
        self.shared.is_closed.store(true, Ordering::SeqCst);
        helper.thread().unpark();
        // The helper may hold the value until it has ended. A panic in it was reported when it
        // happened.
        let _ = helper.join();
    }
}

impl<T: Service> Shared<T> {
    /// Ends a guard started by [`Service::begin_guard`], if any.
    ///
    /// # Safety
    /// The calling thread holds the baton, and uses no part of the value.
    unsafe fn end_guard(&self) {
        // SAFETY: as above.
        let (is_on_guard, value) =
            unsafe { (&mut *self.is_on_guard.get(), &mut *self.value.get()) };
        if std::mem::take(is_on_guard) {
            value.end_guard();
        }
    }

    /// Services pending work and, for a guarded value, external events until the owner returns.
    fn service(&self, absence: Absence) -> Serviced {
        while self.baton.pick_up(absence) {
            let (serviced, guard) = {
                let _back = GiveBack(self);
                // SAFETY: this thread holds the baton until `_back` is dropped.
                unsafe { self.end_guard() };
                // SAFETY: as above.
                let value = unsafe { &mut *self.value.get() };
                let serviced = value.service(&|| self.baton.is_requested(absence));
                let guard = self.bell.as_ref().map(|bell| (bell, value.begin_guard()));
                let is_on_guard = matches!(guard, Some((_, Guard::Asleep(..))));
                // SAFETY: as above.
                unsafe { *self.is_on_guard.get() = is_on_guard };
                (serviced, guard)
            };
            match guard {
                None | Some((_, Guard::Never)) => return serviced,
                // The pending event cannot be handled now, and may not wake this thread when it
                // can.
                Some((_, Guard::Awake)) if serviced == Serviced::Stuck => {
                    thread::park_timeout(ABSENCE);
                }
                Some((_, Guard::Awake)) => {}
                Some((bell, Guard::Asleep(fd, most))) => bell.sleep(fd, most),
            }
        }
        Serviced::Moved
    }
}

fn spawn<T: Service>(shared: &Arc<Shared<T>>, name: &str) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    crate::process::spawn_quiet(name, move || help(&shared))
}

/// Body of the helper's thread: services pending work while the owner stays away.
fn help<T: Service>(shared: &Shared<T>) {
    let patience = match &shared.bell {
        Some(_) => ABSENCE_GUARDED,
        None => ABSENCE_PATIENT,
    };
    let mut pause = ABSENCE;
    let mut polls = 0;
    // Last absence in which all work was done.
    let mut done = None;
    while !shared.is_closed.load(Ordering::SeqCst) {
        let absence = shared.baton.absence().filter(|now| Some(*now) != done);
        if absence.is_some_and(Absence::is_urgent) {
            polls = 0;
            doze(shared, pause, absence);
        } else {
            // Pending work is polled for as long as it exists.
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
        let Some(absence) = absence.filter(|then| !shared.baton.is_requested(*then)) else {
            pause = ABSENCE;
            continue;
        };
        let serviced = shared.service(absence);
        pause = match serviced {
            Serviced::Stuck => (pause * 2).min(PAUSE_MAX),
            Serviced::Done | Serviced::Moved => ABSENCE,
        };
        if serviced == Serviced::Done {
            done = Some(absence);
        }
    }
}

/// Releases the baton also when the value panics, because the owner must not wait forever.
struct GiveBack<'a, T>(&'a Shared<T>);

impl<T> Drop for GiveBack<'_, T> {
    fn drop(&mut self) {
        self.0.baton.give_back();
    }
}

/// Sleeps for `time`. Unless that is short, the owner wakes it for urgent work not in `seen`.
/// Returns `true` if it was woken.
fn doze<T>(shared: &Shared<T>, time: Duration, seen: Option<Absence>) -> bool {
    if time <= ABSENCE {
        thread::park_timeout(time);
        return false;
    }
    sleep(shared, Asleep::Lightly, Some(time), seen)
}

/// Sleeps until the owner wakes it, or for `most`. Returns at once if the owner has released the
/// value with such work since `seen`. Returns `true` if it was woken.
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
