// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a value: its owner, or a helper while the owner is away.
//!
//! The owner holds the baton until it puts it down, and takes it back when it returns. A helper may
//! pick up only what lies there, and gives way when it is asked to. Each time the owner puts the
//! baton down has a number, by which the helper sees whether the owner has been back since.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// The lower bits say who has it; the rest is the number of the last time it was put down.
const WHO: u32 = 3;
const OWNER: u32 = 0;
const NOBODY: u32 = 1;
const HELPER: u32 = 2;
/// The helper has it, and the owner waits for it.
const WANTED: u32 = 3;
const ONE: u32 = WHO + 1;

/// A time at which the owner put the baton down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence(u32);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Baton(AtomicU32);

impl Baton {
    /// One that the owner holds.
    pub(super) fn new() -> Baton {
        Baton(AtomicU32::new(OWNER))
    }

    /// Puts it down; the owner's alone, while it holds it.
    #[inline]
    pub(super) fn put_down(&self) {
        let number = self.0.load(Ordering::Relaxed) & !WHO;
        // SYNC: baton-owner-helper, released. Sequentially consistent with the flag by which the
        // owner learns that the helper sleeps: one of the two sees the other.
        self.0
            .swap(number.wrapping_add(ONE) | NOBODY, Ordering::SeqCst);
    }

    /// Takes it back if nobody has it; else asks for it. The owner's alone.
    #[inline]
    pub(super) fn try_take_back(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        let (who, number) = (now & WHO, now & !WHO);
        let next = if who == NOBODY { OWNER } else { WANTED };
        // SYNC: baton-helper-owner, acquired.
        let swapped =
            self.0
                .compare_exchange(now, number | next, Ordering::Acquire, Ordering::Relaxed);
        who == NOBODY && swapped.is_ok()
    }

    /// Since when it lies there; `None` while somebody has it.
    pub(super) fn absence(&self) -> Option<Absence> {
        let now = self.0.load(Ordering::SeqCst);
        (now & WHO == NOBODY).then_some(Absence(now & !WHO))
    }

    /// Picks it up, if the owner has not been back. The helper's alone.
    pub(super) fn pick_up(&self, absence: Absence) -> bool {
        let Absence(number) = absence;
        // SYNC: baton-owner-helper, acquired.
        self.0
            .compare_exchange(
                number | NOBODY,
                number | HELPER,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Whether the owner waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WHO == WANTED
    }

    /// Gives it back. The helper's alone, after [`Baton::pick_up`].
    pub(super) fn give_back(&self, absence: Absence) {
        let Absence(number) = absence;
        // SYNC: baton-helper-owner, released.
        self.0.swap(number | NOBODY, Ordering::Release);
    }
}
