// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling before a sleep, as configured.
//!
//! Polling takes the core from the process that is waited for if processes outnumber cores. A
//! yield shows this: it is long if another thread ran. The process then pauses its polling, and
//! longer after each further such yield, up to a limit.
#![allow(unsafe_code)]

use crate::settings;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rounds between two yields.
const ROUNDS: u32 = 200;

/// A yield without another thread takes less than a microsecond. A switch to another thread and
/// back takes longer than this time.
const SHARED_CORE_NS: u64 = 4_000;

/// Shortest and longest pause.
const PAUSE_NS: [u64; 2] = [1_000_000, 128_000_000];

static PAUSE: Pause = Pause::new();

/// Time without polling, after another thread needed the core.
struct Pause {
    until_ns: AtomicU64,
    /// Length of the last pause in nanoseconds, halved each time that polling saved a sleep.
    len_ns: AtomicU64,
}

impl Pause {
    const fn new() -> Pause {
        Pause {
            until_ns: AtomicU64::new(0),
            len_ns: AtomicU64::new(0),
        }
    }

    fn has(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Begins a pause. Threads may race, and then lose an extension.
    fn begin(&self, now_ns: u64) {
        let last = self.len_ns.load(Ordering::Relaxed);
        let len = last.saturating_mul(2).clamp(PAUSE_NS[0], PAUSE_NS[1]);
        self.len_ns.store(len, Ordering::Relaxed);
        self.until_ns
            .store(now_ns.saturating_add(len), Ordering::Relaxed);
    }

    /// Halves the next pause after polling that saved a sleep.
    fn shorten(&self) {
        let last = self.len_ns.load(Ordering::Relaxed);
        if last > 0 {
            self.len_ns.store(last / 2, Ordering::Relaxed);
        }
    }
}

/// Returns the monotonic clock's time.
fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is valid, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Polls until `is_active`, or the time for it is over. Calls `check` now and then, which may end
/// it. Returns at once during a pause, and begins one if another thread needs the core.
pub(crate) fn until(is_active: &dyn Fn() -> bool, check: &mut dyn FnMut() -> bool) {
    if is_active() {
        return;
    }
    let start = now_ns();
    if PAUSE.has(start) {
        return;
    }
    let limit = start.saturating_add(settings::spin_ns());
    let mut rounds = 0_u32;
    while !is_active() {
        rounds = rounds.wrapping_add(1);
        std::hint::spin_loop();
        if !rounds.is_multiple_of(ROUNDS) {
            continue;
        }
        let before = now_ns();
        std::thread::yield_now();
        let after = now_ns();
        if after - before > SHARED_CORE_NS {
            return PAUSE.begin(after);
        }
        if after >= limit || check() {
            return;
        }
    }
    PAUSE.shorten();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_shrink_after_success() {
        let pause = Pause::new();
        assert!(!pause.has(5));
        pause.begin(5);
        assert!(pause.has(5) && pause.has(PAUSE_NS[0] + 4) && !pause.has(PAUSE_NS[0] + 5));
        for _ in 0..20 {
            pause.begin(0);
        }
        assert!(pause.has(PAUSE_NS[1] - 1) && !pause.has(PAUSE_NS[1]));
        for _ in 0..40 {
            pause.shorten();
        }
        pause.begin(0);
        assert!(pause.has(PAUSE_NS[0] - 1) && !pause.has(PAUSE_NS[0]));
    }
}
