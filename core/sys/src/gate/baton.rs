// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a value: its owner, or a helper while the owner is away.
//!
//! Each side writes a word of its own and then reads the other's (Dekker), so the owner, which comes
//! and goes with each call, needs plain stores and loads; the helper, which looks seldom,
//! pays for the fences of both ([`barrier`]). Each absence of the owner has a number, by which the
//! helper sees whether the owner has been back since.

use crate::barrier;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// In the owner's word: it is away.
const AWAY: u32 = 1;
/// In the owner's word: what it has left is urgent.
const URGENT: u32 = 2;
/// The other bits number its absences, in steps of this.
const NUMBER: u32 = 4;

/// An absence of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence(u32);

impl Absence {
    /// What the owner has left is urgent.
    pub(super) fn is_urgent(self) -> bool {
        self.0 & URGENT != 0
    }
}

/// How the helper sleeps, and so what it has to be called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Asleep {
    /// It looks soon by itself.
    Not,
    /// It looks by itself for what is not urgent.
    Lightly,
    /// It looks when it is called.
    Deeply,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Baton {
    /// Written by the owner alone.
    owner: AtomicU32,
    /// Written by the helper alone: it has the value, or is about to look whether it may.
    is_claimed: AtomicBool,
    /// An [`Asleep`]: written by the helper, and by the owner when it calls.
    asleep: AtomicU8,
    /// The helper's fences reach the owner's thread.
    has_light_fence: bool,
}

impl Baton {
    /// One that the owner holds.
    pub(super) fn new() -> Baton {
        Baton {
            owner: AtomicU32::new(0),
            is_claimed: AtomicBool::new(false),
            asleep: AtomicU8::new(Asleep::Not as u8),
            has_light_fence: barrier::register_own(),
        }
    }

    /// The owner's half of the fence between its store and its load.
    #[inline]
    fn fence(&self) {
        if self.has_light_fence {
            barrier::light();
        } else {
            barrier::full();
        }
    }

    /// Puts it down, with what it has left; the owner's alone, while it holds it. Returns whether the
    /// helper is to be called.
    #[inline]
    pub(super) fn put_down(&self, is_urgent: bool) -> bool {
        let number = self.owner.load(Ordering::Relaxed) & !(AWAY | URGENT);
        let urgent = if is_urgent { URGENT } else { 0 };
        let absence = number.wrapping_add(NUMBER) | AWAY | urgent;
        // SYNC: baton-owner-helper, released.
        self.owner.store(absence, Ordering::Release);
        self.fence();
        let least = if is_urgent {
            Asleep::Lightly
        } else {
            Asleep::Deeply
        };
        let is_called = self.asleep.load(Ordering::Relaxed) >= least as u8;
        if is_called {
            self.asleep.store(Asleep::Not as u8, Ordering::Relaxed);
        }
        is_called
    }

    /// Asks for it; the owner's alone, after [`Baton::put_down`]. It has it once
    /// [`Baton::is_back`] says so.
    #[inline]
    pub(super) fn take_back(&self) {
        let number = self.owner.load(Ordering::Relaxed) & !(AWAY | URGENT);
        self.owner.store(number, Ordering::Relaxed);
        self.fence();
    }

    /// Whether the owner, which has asked for it, has it.
    #[inline]
    pub(super) fn is_back(&self) -> bool {
        // SYNC: baton-helper-owner, acquired.
        !self.is_claimed.load(Ordering::Acquire)
    }

    /// The present absence of the owner; `None` while it is there.
    pub(super) fn absence(&self) -> Option<Absence> {
        let now = self.owner.load(Ordering::Relaxed);
        (now & AWAY != 0).then_some(Absence(now))
    }

    /// Picks it up, if the owner has not been back. The helper's alone.
    pub(super) fn pick_up(&self, absence: Absence) -> bool {
        self.is_claimed.store(true, Ordering::Relaxed);
        barrier::heavy_own();
        // SYNC: baton-owner-helper, acquired.
        if Absence(self.owner.load(Ordering::Acquire)) == absence {
            return true;
        }
        self.give_back();
        false
    }

    /// Whether the owner has asked for it since `absence` began.
    pub(super) fn is_wanted(&self, absence: Absence) -> bool {
        Absence(self.owner.load(Ordering::Relaxed)) != absence
    }

    /// Gives it back. The helper's alone, after [`Baton::pick_up`].
    pub(super) fn give_back(&self) {
        // SYNC: baton-helper-owner, released.
        self.is_claimed.store(false, Ordering::Release);
    }

    /// Says that the helper is about to sleep. It must look at [`Baton::absence`] once more: whoever
    /// left before this call does not call.
    pub(super) fn fall_asleep(&self, asleep: Asleep) {
        self.asleep.store(asleep as u8, Ordering::Relaxed);
        barrier::heavy_own();
    }

    /// Says that the helper need not be called; returns whether it was.
    pub(super) fn wake(&self) -> bool {
        self.asleep.swap(Asleep::Not as u8, Ordering::Relaxed) == Asleep::Not as u8
    }
}
