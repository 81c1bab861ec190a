// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberate faults of the engine, which the checkers of a simulation must find. In builds
//! without debug assertions they have no effect.

use std::cell::Cell;

/// Deliberate fault of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Submissions that the core has refused are never tried again.
    LostRetry,
    /// The completion of some operations is handed out twice.
    CompleteTwice,
    /// Timers of the core do not expire.
    NoTimers,
    /// A part of some messages is not copied to its place.
    LostPart,
}

impl Canary {
    /// All faults, with their names on a command line.
    pub const NAMES: [(Canary, &'static str); 4] = [
        (Canary::LostRetry, "lost-retry"),
        (Canary::CompleteTwice, "complete-twice"),
        (Canary::NoTimers, "no-timers"),
        (Canary::LostPart, "lost-part"),
    ];

    /// Tests whether the engines of this thread have the fault.
    #[inline(always)]
    pub(crate) fn strikes(self) -> bool {
        cfg!(debug_assertions) && IS_ON.get() == Some(self)
    }
}

thread_local! {
    static IS_ON: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// Adds a fault to all engines of this thread, or removes it.
pub fn set_canary(canary: Option<Canary>) {
    IS_ON.set(canary);
}
