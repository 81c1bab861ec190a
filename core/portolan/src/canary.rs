// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberate faults of the engine, which the checkers of a simulation must find. In builds
//! without debug assertions they have no effect.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

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
    /// All faults.
    pub const ALL: [Canary; 4] = [
        Canary::LostRetry,
        Canary::CompleteTwice,
        Canary::NoTimers,
        Canary::LostPart,
    ];

    /// Returns the name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Canary::LostRetry => "lost-retry",
            Canary::CompleteTwice => "complete-twice",
            Canary::NoTimers => "no-timers",
            Canary::LostPart => "lost-part",
        }
    }

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

impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Canary {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Canary::ALL.into_iter();
        all.find(|canary| canary.name() == name).ok_or_else(|| {
            let names = Canary::ALL.map(Canary::name);
            format!("no canary of this name; there are {}", names.join(", "))
        })
    }
}
