// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value that one thread uses, and that a thread of its own carries on when the first has left
//! something in it and stays away.
//!
//! A program that has called a library and then computes would otherwise leave undone what the
//! library had put off until the next call. The owner pays two atomic operations when it leaves
//! something behind, and nothing when it does not.
//!
//! The one invariant: the helper touches the value only between [`Gate::leave`] and the owner's next
//! use of it.
#![allow(
    unsafe_code,
    reason = "a value that is handed between two threads by an atomic word"
)]

mod baton;
#[cfg(loom)]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::fork::Owner;
use baton::Baton;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the owner stays away before its helper carries on: hundreds of calls of a busy program,
/// which then carries on by itself, and far less than a person or a timeout notices. A look costs some
/// microseconds: less than 1 % of a core.
pub const ABSENCE: Duration = Duration::from_millis(1);

/// Longest pause between looks at something that does not move, since its peer computes: 25 a second
/// are not seen in `top`.
const PAUSE_MAX: Duration = Duration::from_millis(40);

/// Looks at an owner that holds its value before the helper sleeps until it is called: waking it
/// costs the owner a system call, once in so many looks.
const LOOKS: u32 = 10;

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

/// What a helper can do for its owner.
pub trait Carry: Send + 'static {
    /// Goes on with what was left; returns soon once `is_wanted` says so.
    fn carry(&mut self, is_wanted: &dyn Fn() -> bool) -> Carried;
}

struct Shared<T> {
    baton: Baton,
    /// The helper sleeps until it is called.
    is_asleep: AtomicBool,
    is_closed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is used by the thread that has the baton alone: by the owner through `Gate`, or by
// the helper between `pick_up` and `give_back`; the baton's orderings make what one did visible to
// the other. `T: Send` because both threads use it.
unsafe impl<T: Send> Sync for Shared<T> {}

/// See the module documentation. Using it takes the value back.
pub struct Gate<T: Carry> {
    shared: Arc<Shared<T>>,
    /// The owner holds the baton.
    is_held: Cell<bool>,
    helper: Option<JoinHandle<()>>,
    /// The system has refused a thread; it is not asked again.
    is_alone: bool,
    name: &'static str,
    /// The process that the helper lives in: a child that it forks has none.
    process: Owner,
}

impl<T: Carry> Gate<T> {
    /// A gate around `value`, whose helper, once it is needed, is called `name` (at most 15 bytes).
    pub fn new(value: T, name: &'static str) -> Gate<T> {
        Gate {
            shared: Arc::new(Shared {
                baton: Baton::new(),
                is_asleep: AtomicBool::new(false),
                is_closed: AtomicBool::new(false),
                value: UnsafeCell::new(value),
            }),
            is_held: Cell::new(true),
            helper: None,
            is_alone: false,
            name,
            process: Owner::this_process(),
        }
    }

    /// Leaves the value to the helper, until the owner uses it again.
    ///
    /// # Errors
    /// What the system says when it has no thread for the helper, once; what was left then waits for
    /// the owner.
    #[inline]
    pub fn leave(&mut self) -> io::Result<()> {
        if self.process.is_another() {
            return Ok(());
        }
        let Some(helper) = &self.helper else {
            return self.leave_first();
        };
        if self.is_held.replace(false) {
            self.shared.baton.put_down();
            if self.shared.is_asleep.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        Ok(())
    }

    #[cold]
    fn leave_first(&mut self) -> io::Result<()> {
        if self.is_alone {
            return Ok(());
        }
        self.is_alone = true;
        self.helper = Some(spawn(&self.shared, self.name)?);
        self.leave()
    }

    #[inline]
    fn take_back(&self) {
        if !self.is_held.get() {
            self.take_back_now();
        }
    }

    #[inline(never)]
    fn take_back_now(&self) {
        let mut tries = 0_u32;
        while !self.shared.baton.try_take_back() {
            // A helper that had the value when this process was forked never gives it back.
            if self.process.is_another() {
                break;
            }
            tries += 1;
            // A turn of the helper's takes microseconds, but it may have lost its core.
            if tries < 64 {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        self.is_held.set(true);
    }
}

impl<T: Carry> Deref for Gate<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.take_back();
        // SAFETY: the owner holds the baton; `leave`, which gives it up, needs `&mut self`, so no
        // reference outlives the hold.
        unsafe { &*self.shared.value.get() }
    }
}

impl<T: Carry> DerefMut for Gate<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.take_back();
        // SAFETY: as in `deref`; `&mut self` makes this the only reference.
        unsafe { &mut *self.shared.value.get() }
    }
}

impl<T: Carry> Drop for Gate<T> {
    fn drop(&mut self) {
        self.take_back();
        let Some(helper) = self.helper.take() else {
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

fn spawn<T: Carry>(shared: &Arc<Shared<T>>, name: &str) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    crate::process::spawn_quiet(name, move || help(&shared))
}

/// What the helper does: looks whether the owner has left something and stays away.
fn help<T: Carry>(shared: &Shared<T>) {
    let mut pause = ABSENCE;
    let mut looks = 0;
    // The last absence in which everything was done.
    let mut done = None;
    while !shared.is_closed.load(Ordering::SeqCst) {
        let absence = shared.baton.absence().filter(|now| Some(*now) != done);
        let Some(absence) = absence else {
            looks += 1;
            sleep(shared, looks > LOOKS, done);
            continue;
        };
        looks = 0;
        thread::park_timeout(pause);
        let carried = if shared.baton.pick_up(absence) {
            let _back = GiveBack(shared, absence);
            // SAFETY: this thread has the baton until `_back` is dropped.
            let value = unsafe { &mut *shared.value.get() };
            value.carry(&|| shared.baton.is_wanted())
        } else {
            Carried::Moved
        };
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
struct GiveBack<'a, T>(&'a Shared<T>, baton::Absence);

impl<T> Drop for GiveBack<'_, T> {
    fn drop(&mut self) {
        self.0.baton.give_back(self.1);
    }
}

/// Sleeps: for a moment, or until the owner calls.
fn sleep<T>(shared: &Shared<T>, deeply: bool, done: Option<baton::Absence>) {
    if !deeply {
        thread::park_timeout(ABSENCE);
        return;
    }
    shared.is_asleep.store(true, Ordering::SeqCst);
    // Whoever left something before this store did not call.
    let is_left = shared.baton.absence().is_some_and(|now| Some(now) != done);
    if !is_left && !shared.is_closed.load(Ordering::SeqCst) {
        thread::park();
    }
    shared.is_asleep.store(false, Ordering::SeqCst);
}
