// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: spin for a short time, then yield, then sleep on descriptors.
//!
//! How long to spin adapts: a wait that ended soon after going to sleep should have spun on; one
//! that slept long should have spun no longer than falling asleep and waking cost.

mod descriptor;

pub(crate) use descriptor::Descriptor;

use super::{Engine, Inner};
use crate::launch::Launch;
use portolan_link::WakeSet;
use portolan_proto::{Instant, PeerId};
use std::time::Duration;

/// Never spins shorter, while each process has a core: about what a sleep costs, with the wake-up of
/// a halted core. Whoever spins shorter than that makes two processes that answer one another
/// promptly sleep in turns.
const SPIN_MIN: Duration = Duration::from_micros(60);
/// Never spins longer: an idle process must not be seen in `top`.
const SPIN_MAX: Duration = Duration::from_millis(1);
/// With more processes than cores, spinning takes the core from the one that is waited for.
const SPIN_CROWDED: Duration = Duration::from_micros(2);

/// Turns between looks at how long this has lasted while spinning.
pub(crate) const LOOK_TURNS: u32 = 64;

/// Yields before going to sleep: each lets the others of a crowded host have a turn.
const YIELDS: u32 = 16;

/// Longest sleep while a link had no room and might not ring.
pub(crate) const SLEEP_FULL: Duration = Duration::from_millis(1);

/// How this process waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    spin: Duration,
    crowded: bool,
    wake: WakeSet,
}

impl Waiter {
    /// For a process that shares `core_count` cores with `local_size` processes of its job.
    pub(crate) fn new(local_size: u32, core_count: usize) -> Self {
        let crowded = local_size as usize > core_count;
        let spin = if crowded { SPIN_CROWDED } else { SPIN_MIN };
        Waiter {
            spin,
            crowded,
            wake: WakeSet::default(),
        }
    }

    /// Drives `engine` until `done`. `about` are the peers that the wait depends on: they are asked
    /// whether they live when they stay silent.
    #[inline]
    pub(crate) fn until(
        &mut self,
        engine: &mut Engine,
        about: &[PeerId],
        done: impl Fn(&Inner) -> bool,
    ) {
        // Most waits end within the first turns; they should not pay for the set-up of long ones.
        for _ in 0..LOOK_TURNS {
            engine.work(None);
            if done(&engine.inner) {
                engine.leave_to_caller();
                return;
            }
            engine.leave();
            // No `pause` here: it takes as long as a cache line does between cores (140 cycles since
            // Skylake), and a turn is long enough to leave a sibling hyperthread its share.
        }
        self.long(engine, about, &done);
    }

    #[cold]
    fn long(&mut self, engine: &mut Engine, about: &[PeerId], done: &dyn Fn(&Inner) -> bool) {
        let begin = engine.inner.read_clock();
        for peer in about {
            engine.watch(*peer, begin);
        }
        engine.inner.in_wait = true;
        let mut idle_since = begin;
        let mut yields = 0;
        let mut turn = 0u32;
        // The last sleep was long, and nothing has come since.
        let mut drowsy = false;
        loop {
            let received = engine.work(None);
            engine.inner.is_idle &= received == 0;
            // In a child of the process that has joined nothing ever comes.
            if done(&engine.inner) || engine.inner.owner.is_another() {
                engine.leave_to_caller();
                break;
            }
            let sent = engine.leave();
            // Questions that are sent at a waking do not keep awake; their answers will wake.
            if received > 0 || sent > 0 && !drowsy {
                turn = 0;
                yields = 0;
                drowsy = false;
                idle_since = engine.inner.now;
                continue;
            }
            turn += 1;
            if !drowsy && !turn.is_multiple_of(LOOK_TURNS) && yields == 0 {
                continue;
            }
            // The turns have read the clock.
            if !drowsy && engine.inner.now.since(idle_since) < self.spin {
                continue;
            }
            if !drowsy && yields < YIELDS {
                yields += 1;
                portolan_sys::wait::yield_now();
                continue;
            }
            let now = engine.inner.read_clock();
            let slept = self.sleep(engine, now);
            self.adapt(slept, drowsy);
            drowsy = slept > SPIN_MAX;
            idle_since = engine.inner.now;
            yields = 0;
        }
        (engine.inner.in_wait, engine.inner.is_idle) = (false, false);
        for peer in about {
            engine.unwatch(*peer);
        }
    }

    /// Sleeps until something may have happened; returns for how long.
    fn sleep(&mut self, engine: &mut Engine, now: Instant) -> Duration {
        if let Some(timeout) = engine.arm(&mut self.wake, now) {
            engine.inner.is_idle = true;
            if let Err(error) = portolan_sys::wait::wait_readable(&self.wake.fds, Some(timeout)) {
                log::warn!("sleeping: {error}");
            }
        }
        engine.disarm();
        engine.inner.now.since(now)
    }

    /// A short sleep right after a long one was the answer to a question whether the peer lives: it
    /// says nothing of how soon messages come.
    fn adapt(&mut self, slept: Duration, was_drowsy: bool) {
        if self.crowded {
            return;
        }
        if slept > SPIN_MAX {
            self.spin = (self.spin / 2).max(SPIN_MIN);
        } else if !was_drowsy {
            self.spin = (self.spin * 2).min(SPIN_MAX);
        }
    }
}

impl Engine {
    /// Has all that may happen ring the descriptors that `wake` names then; says how long to sleep on
    /// them at most. `None`: something has happened.
    pub(crate) fn arm(&mut self, wake: &mut WakeSet, now: Instant) -> Option<Duration> {
        wake.fds.clear();
        if !self.links.arm(wake) {
            return None;
        }
        wake.fds.extend(self.launch.as_ref().map(Launch::fd));
        let most = match self.full_mask {
            0 => self.inner.sleep_max(),
            _ => SLEEP_FULL,
        };
        Some(self.inner.core.poll_timeout().since(now).min(most))
    }

    /// Ends what [`Engine::arm`] began, and does what has become due: timers, news of peers.
    pub(crate) fn disarm(&mut self) {
        self.links.disarm();
        self.links.rouse(self.inner.turn);
        self.inner.read_clock();
        self.look_around();
        self.on_timeout();
    }
}
