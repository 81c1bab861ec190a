// SPDX-License-Identifier: MIT OR Apache-2.0
//! The right to use a value, held by its owner, or by a helper while the owner is away.
//!
//! Each side writes a word of its own and then reads the other side's word (Dekker). The owner,
//! which enters and leaves with each call, needs only plain stores and loads. The helper, which
//! polls rarely, executes the fences of both ([`barrier`]). Each absence of the owner has a number,
//! from which the helper detects that the owner has returned since.

use crate::barrier;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Bit of the owner's word: the owner is away.
const AWAY: u32 = 1;
/// Bit of the owner's word: it left urgent work.
const URGENT: u32 = 2;
/// Step of the absence number in the remaining bits.
const NUMBER: u32 = 4;

/// Identifies an absence of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence(u32);

impl Absence {
    /// Returns `true` if the owner left urgent work.
    pub(super) fn is_urgent(self) -> bool {
        self.0 & URGENT != 0
    }
}

/// State of the helper's sleep, which determines for what it must be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Asleep {
    /// Polls soon by itself.
    Not,
    /// Polls by itself for work that is not urgent.
    Lightly,
    /// Polls only when woken.
    Deeply,
}

/// State of the right to use a value.
#[derive(Debug)]
pub(super) struct Baton {
    /// Written only by the owner.
    owner: AtomicU32,
    /// Written only by the helper: it holds the baton, or is checking if it may.
    is_claimed: AtomicBool,
    /// An [`Asleep`]; written by the helper, and by the owner when it wakes the helper.
    asleep: AtomicU8,
    /// Set if the helper's fences reach the owner's thread.
    has_light_fence: bool,
}

impl Baton {
    /// Creates a baton held by the owner.
    pub(super) fn new() -> Baton {
        Baton {
            owner: AtomicU32::new(0),
            is_claimed: AtomicBool::new(false),
            asleep: AtomicU8::new(Asleep::Not as u8),
            has_light_fence: barrier::register_own(),
        }
    }

    /// Issues the owner's half of the fence between its store and its load.
    #[inline]
    fn fence(&self) {
        if self.has_light_fence {
            barrier::light();
        } else {
            barrier::full();
        }
    }

    /// Releases the baton. For the owner only, while it holds the baton. Returns `true` if the
    /// helper must be woken.
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

    /// Requests the baton. For the owner only, after [`Baton::put_down`]. The owner holds it once
    /// [`Baton::is_back`] returns `true`.
    #[inline]
    pub(super) fn take_back(&self) {
        let number = self.owner.load(Ordering::Relaxed) & !(AWAY | URGENT);
        self.owner.store(number, Ordering::Relaxed);
        self.fence();
    }

    /// Returns `true` if the owner, after a request, holds the baton.
    #[inline]
    pub(super) fn is_back(&self) -> bool {
        // SYNC: baton-helper-owner, acquired.
        !self.is_claimed.load(Ordering::Acquire)
    }

    /// Returns the current absence of the owner, or `None` while it is present.
    pub(super) fn absence(&self) -> Option<Absence> {
        let now = self.owner.load(Ordering::Relaxed);
        (now & AWAY != 0).then_some(Absence(now))
    }

    /// Acquires the baton, unless the owner has returned. For the helper only.
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

    /// Returns `true` if the owner has requested the baton since `absence` began.
    pub(super) fn is_requested(&self, absence: Absence) -> bool {
        Absence(self.owner.load(Ordering::Relaxed)) != absence
    }

    /// Releases the baton. For the helper only, after [`Baton::pick_up`].
    pub(super) fn give_back(&self) {
        // SYNC: baton-helper-owner, released.
        self.is_claimed.store(false, Ordering::Release);
    }

    /// Announces that the helper is about to sleep. It must check [`Baton::absence`] once more,
    /// because an owner that left before this call does not wake it.
    pub(super) fn fall_asleep(&self, asleep: Asleep) {
        self.asleep.store(asleep as u8, Ordering::Relaxed);
        barrier::heavy_own();
    }

    /// Announces that the helper is awake. Returns `true` if it was woken.
    pub(super) fn wake(&self) -> bool {
        self.asleep.swap(Asleep::Not as u8, Ordering::Relaxed) == Asleep::Not as u8
    }
}
