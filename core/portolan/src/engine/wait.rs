// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: spin for a short time, then yield, then sleep on descriptors.
//!
//! A [`Waiter`] receives the result of each turn and decides what follows. It serves calls that
//! wait here ([`Waiter::until`]) and callers that poll in a loop of their own.
//!
//! The spin time adapts. A wait that ended soon after going to sleep should have spun longer. A
//! long sleep should have been preceded by a spin no longer than falling asleep and waking up cost.

mod descriptor;
mod interrupt;
mod share;

pub(crate) use descriptor::Descriptor;
pub use interrupt::{Interrupter, Interruption};

use super::{Awaited, Engine, Inner};
use crate::error::Error;
use crate::launch::Launch;
use crate::raw::Idle;
use portolan_link::WakeSet;
use portolan_proto::{Instant, LinkId, PeerId};
use portolan_sys::wait::{wait_readable, yield_now};
use share::Share;
use std::time::Duration;

/// Minimum spin time while each process has a core: about the cost of a sleep, including the
/// wake-up of a halted core. With a shorter time, two processes that answer one another promptly
/// would take turns sleeping.
const SPIN_MIN: Duration = Duration::from_micros(60);
/// Maximum spin time: an idle process must not show up in `top`.
const SPIN_MAX: Duration = Duration::from_millis(1);
/// Spin time if other processes need the core, because spinning takes the core from the awaited
/// process. Like all spin times here, it counts from the first check.
const SPIN_CONTENDED: Duration = Duration::from_micros(1);

/// Turns that a wait makes before it is set up as a long one. Most waits end within them and need
/// no set-up.
pub(crate) const FIRST_TURNS: u32 = 64;

/// Empty turns between checks of the elapsed time and of the core's other users: 1 µs on shared
/// memory.
const CHECK_TURNS: u32 = 32;

/// Limit of the count of empty turns; the count stays a multiple of the intervals.
const EMPTY_TURNS_MAX: u32 = 1 << 31;

/// Yields before going to sleep. Each gives other processes of a crowded host a turn.
const YIELDS: u32 = 16;

/// Longest sleep while a link is full, because it might not signal when it has room again.
pub(crate) const SLEEP_FULL: Duration = Duration::from_millis(1);

/// State of a process's waiting.
pub(crate) struct Waiter {
    /// Spin time while no other process needs the core.
    spin: Duration,
    contention: Contention,
    /// Set while waits leave the core to other threads of the program.
    is_sleepy: bool,
    phase: Phase,
    /// Turns since the last event.
    empty_turns: u32,
    /// Start of the time without events, not counting time in which other processes had the core.
    empty_since: Instant,
    /// Start of the time without events and without yields.
    kept_since: Instant,
    wake: WakeSet,
}

/// Demand for the core by other processes.
enum Contention {
    /// Known by counting processes and cores.
    Counted(bool),
    /// Measured by yielding. Always crowded with more neighbours than `cores`.
    Measured { share: Share, cores: usize },
}

/// Action after an empty turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Spin,
    /// Yield, since this number of empty turns.
    Yield(u32),
    /// Sleep: the last sleep was long, and nothing has arrived since.
    Drowsy,
}

impl Waiter {
    /// Creates the waiter for one of `process_count` processes of a job on `core_count` cores.
    pub(crate) fn of_job(process_count: u32, core_count: usize) -> Self {
        Self::new(Contention::Counted(process_count as usize > core_count))
    }

    /// Creates the waiter for an endpoint, which cannot count its neighbours.
    pub(crate) fn of_endpoint(cores: usize) -> Self {
        let share = Share::default();
        Self::new(Contention::Measured { share, cores })
    }

    fn new(contention: Contention) -> Self {
        Waiter {
            spin: SPIN_MIN,
            contention,
            is_sleepy: false,
            phase: Phase::Spin,
            empty_turns: 0,
            empty_since: Instant::default(),
            kept_since: Instant::default(),
            wake: WakeSet::default(),
        }
    }

    /// Drives `engine` until `done`; `awaited` describes that condition. Silent peers of `about`,
    /// on which the wait depends, are sent liveness probes.
    #[inline]
    pub(crate) fn until(
        &mut self,
        engine: &mut Engine,
        about: &[PeerId],
        awaited: Awaited,
        done: impl Fn(&Inner) -> bool,
    ) {
        for _ in 0..FIRST_TURNS {
            engine.work(None);
            if done(&engine.inner) {
                engine.leave_to_caller();
                return;
            }
            engine.leave();
            // No `pause` here: it takes as long as a cache line between cores (140 cycles since
            // Skylake). A turn is long enough to leave a sibling hyperthread its share.
        }
        self.long(engine, about, awaited, None, &done);
    }

    /// Drives `engine` like [`Waiter::until`], at most until `deadline` or an interruption. A program
    /// that repeats such waits polls: the peers of `about` are watched across them.
    pub(crate) fn until_deadline(
        &mut self,
        engine: &mut Engine,
        about: &[PeerId],
        awaited: Awaited,
        deadline: Instant,
        done: impl Fn(&Inner) -> bool,
    ) {
        self.long(engine, about, awaited, Some(deadline), &|inner| {
            done(inner) || inner.last_clock_read() >= deadline || inner.is_interrupted()
        });
    }

    #[cold]
    fn long(
        &mut self,
        engine: &mut Engine,
        about: &[PeerId],
        awaited: Awaited,
        deadline: Option<Instant>,
        done: &dyn Fn(&Inner) -> bool,
    ) {
        let begin = engine.inner.read_clock();
        match deadline {
            None => about.iter().for_each(|peer| engine.watch(*peer, begin)),
            Some(_) => engine.catch_up_on(about),
        }
        engine.inner.awaited = Some((awaited, begin));
        self.begin();
        loop {
            let received = engine.work(None);
            engine.inner.is_idle &= received == 0;
            engine.advance_background();
            // A forked child of the process that has joined never receives an event.
            if done(&engine.inner) || engine.inner.owner.is_another() {
                engine.leave_to_caller();
                break;
            }
            let sent = engine.leave();
            // Probes that are sent after a wake-up do not prevent the next sleep; their answers
            // wake the process.
            let is_drowsy = self.phase == Phase::Drowsy;
            if self.note(if is_drowsy { received } else { received + sent }, engine) {
                self.yield_core(engine);
            }
            match self.idle() {
                Idle::Spin => {}
                Idle::Yield => yield_now(),
                Idle::Sleep => {
                    let most = deadline.map(|deadline| deadline.since(engine.inner.now));
                    engine.inner.is_idle |= self.sleep(engine, most);
                    if deadline.is_some() {
                        engine.catch_up_on(about);
                    }
                }
            }
        }
        (engine.inner.awaited, engine.inner.is_idle) = (None, false);
        if deadline.is_none() {
            about.iter().for_each(|peer| engine.unwatch(*peer));
        }
    }

    /// Restarts the spin: an event has arrived, or a wait begins.
    #[inline]
    fn begin(&mut self) {
        self.phase = Phase::Spin;
        self.empty_turns = 0;
    }

    /// Records the result of a turn. Returns `true` if the caller should yield the core before the
    /// next turn, because other processes seem to need it.
    #[inline]
    #[must_use]
    pub(crate) fn note(&mut self, count: usize, engine: &mut Engine) -> bool {
        if count > 0 {
            self.begin();
            if let Contention::Measured { share, .. } = &mut self.contention {
                share.on_found();
            }
            return false;
        }
        self.empty_turns += 1;
        self.empty_turns.is_multiple_of(CHECK_TURNS) && self.check(engine)
    }

    #[cold]
    fn check(&mut self, engine: &mut Engine) -> bool {
        let now = engine.inner.read_clock();
        if let Contention::Measured { share, cores } = &mut self.contention
            && engine.links.connected_count(LinkId::SHM) + 1 > *cores
        {
            share.on_contention();
        }
        self.should_yield(now)
    }

    /// Yields the core, and determines from it whether other processes need the core.
    #[cold]
    pub(crate) fn yield_core(&mut self, engine: &mut Engine) {
        let begin = engine.inner.read_clock();
        yield_now();
        self.on_yielded(begin, engine.inner.read_clock());
    }

    /// Records that nothing arrived until `now`. Returns `true` if the core should be yielded
    /// before the next turn.
    fn should_yield(&mut self, now: Instant) -> bool {
        if self.empty_turns == EMPTY_TURNS_MAX {
            self.empty_turns /= 2;
        }
        if self.empty_turns == CHECK_TURNS {
            (self.empty_since, self.kept_since) = (now, now);
        }
        if self.phase == Phase::Spin && now.since(self.empty_since) >= self.spin() {
            self.phase = Phase::Yield(self.empty_turns);
        }
        match &mut self.contention {
            Contention::Counted(_) => false,
            Contention::Measured { share, .. } => {
                share.on_nothing();
                now.since(self.kept_since) >= share.yield_interval()
            }
        }
    }

    /// Records that other processes had the core from `begin` to `end`.
    pub(crate) fn on_yielded(&mut self, begin: Instant, end: Instant) {
        let took = end.since(begin);
        self.kept_since = end;
        // Another thread may have received something meanwhile.
        self.empty_since = (self.empty_since + took).min(end);
        if let Contention::Measured { share, .. } = &mut self.contention {
            share.on_yield(took);
        }
    }

    /// Makes waits sleep instead of spinning, or reverts that.
    pub(crate) fn set_sleepy(&mut self, is_sleepy: bool) {
        self.is_sleepy = is_sleepy;
    }

    fn spin(&self) -> Duration {
        match &self.contention {
            _ if self.is_sleepy => SPIN_CONTENDED,
            Contention::Counted(true) => SPIN_CONTENDED,
            Contention::Measured { share, .. } if share.is_contended() => SPIN_CONTENDED,
            _ => self.spin,
        }
    }

    /// Returns the action after a turn without events.
    pub(crate) fn idle(&self) -> Idle {
        match self.phase {
            Phase::Spin => Idle::Spin,
            Phase::Yield(since) if self.empty_turns.wrapping_sub(since) < YIELDS => Idle::Yield,
            Phase::Yield(_) | Phase::Drowsy => Idle::Sleep,
        }
    }

    /// Sleeps until an event is possible, at most for `most`. Returns `false` if an event had
    /// already occurred before the sleep.
    pub(crate) fn sleep(&mut self, engine: &mut Engine, most: Option<Duration>) -> bool {
        let begin = engine.inner.read_clock();
        let timeout = engine.arm(&mut self.wake, begin);
        let timeout = timeout.map(|timeout| most.map_or(timeout, |most| most.min(timeout)));
        if let Some(timeout) = timeout
            && let Err(error) = wait_readable(&self.wake.fds, Some(timeout))
        {
            log::warn!("sleeping: {error}");
        }
        engine.disarm();
        let slept = engine.inner.now.since(begin);
        engine.inner.note_slept(slept, timeout);
        self.on_slept(slept);
        timeout.is_some()
    }

    /// Adapts the spin time after a sleep of length `slept`. A short sleep right after a long one
    /// was ended by the answer to a liveness probe, so it is not evidence of prompt messages.
    pub(crate) fn on_slept(&mut self, slept: Duration) {
        let was_drowsy = self.phase == Phase::Drowsy;
        self.begin();
        if slept > SPIN_MAX {
            self.phase = Phase::Drowsy;
            self.spin = (self.spin / 2).max(SPIN_MIN);
        } else if !was_drowsy && !self.is_sleepy {
            self.spin = (self.spin * 2).min(SPIN_MAX);
        }
    }
}

impl Engine {
    /// Arms all sources of events to signal the descriptors in `wake`. Returns the longest allowed
    /// sleep, or `None` if an event has already occurred.
    pub(crate) fn arm(&mut self, wake: &mut WakeSet, now: Instant) -> Option<Duration> {
        wake.fds.clear();
        let has_reports = self.meeting.as_ref().is_some_and(|it| it.has_reports());
        if self.has_more || has_reports || !self.links.arm(wake) {
            return None;
        }
        let launcher = self.launch.as_ref().map(Launch::fd);
        // A launcher that can send nothing more has no descriptor.
        wake.fds.extend(launcher.filter(|fd| *fd >= 0));
        if let Some(meeting) = &self.meeting {
            wake.fds.push(meeting.fd());
        }
        wake.fds
            .extend(self.inner.interrupter.as_ref().map(Interrupter::fd));
        let most = match self.full_mask {
            0 => self.inner.sleep_max(),
            _ => SLEEP_FULL,
        };
        let most = self.inner.arm_multicasts(wake, now, most);
        Some(self.inner.core.poll_timeout().since(now).min(most))
    }

    /// Ends what [`Engine::arm`] began, and handles what has become due: timers and notices of
    /// peers.
    pub(crate) fn disarm(&mut self) {
        self.is_armed = false;
        self.links.disarm();
        self.links.poll_all(self.inner.turn);
        self.inner.read_clock();
        self.run_slow_checks();
        self.on_timeout();
    }

    /// Arms like [`Engine::arm_descriptor`], for a program that is about to sleep. The helper
    /// thread stays off the links meanwhile, because it would consume the awaited events.
    pub(crate) fn arm_for_program(&mut self, descriptor: &mut Descriptor) -> Result<bool, Error> {
        let armed = self.arm_descriptor(descriptor)?;
        self.is_armed = armed;
        Ok(armed)
    }

    /// Arms `descriptor` to signal when an event is possible or a timer expires. Returns `false`,
    /// with nothing armed, if an event has already occurred.
    ///
    /// # Errors
    /// [`Error::System`] if a system call fails; nothing is armed then.
    pub(crate) fn arm_descriptor(&mut self, descriptor: &mut Descriptor) -> Result<bool, Error> {
        let now = self.inner.read_clock();
        let after = self.arm(&mut descriptor.wake, now);
        // The set of descriptors may have changed: UDP opens one for a busy peer.
        let armed = match after {
            Some(_) => descriptor
                .watch()
                .and_then(|()| descriptor.set_timer(after)),
            None => Ok(()),
        };
        if after.is_none() || armed.is_err() {
            self.links.disarm();
        }
        armed.map(|()| after.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_nanos(30);

    /// Makes empty turns of `TURN` each from `now` until the action differs from `from`; returns
    /// their number.
    fn pass(waiter: &mut Waiter, now: &mut Instant, from: Idle) -> u32 {
        for turns in 0..1_000_000 {
            if waiter.idle() != from {
                return turns;
            }
            *now = *now + TURN;
            waiter.empty_turns += 1;
            if waiter.empty_turns.is_multiple_of(CHECK_TURNS) && waiter.should_yield(*now) {
                waiter.on_yielded(*now, *now);
            }
        }
        panic!("{from:?} for ever");
    }

    /// Returns the number of turns that are spun and yielded before a sleep.
    fn turns(waiter: &mut Waiter) -> (u32, u32) {
        waiter.begin();
        let mut now = Instant::from_nanos(1_000_000);
        let spin_turns = pass(waiter, &mut now, Idle::Spin);
        let yielded = pass(waiter, &mut now, Idle::Yield);
        assert_eq!(waiter.idle(), Idle::Sleep);
        (spin_turns, yielded)
    }

    /// Returns the turns of a spin of `time`, rounded up to whole checks, after the first check.
    fn spin_turns(time: Duration) -> u32 {
        let checks = time
            .as_nanos()
            .div_ceil(TURN.as_nanos() * u128::from(CHECK_TURNS));
        (u32::try_from(checks).unwrap() + 1) * CHECK_TURNS
    }

    #[test]
    fn wait_spins_then_yields_then_sleeps() {
        assert_eq!(
            turns(&mut Waiter::of_job(2, 2)),
            (spin_turns(SPIN_MIN), YIELDS)
        );
        assert_eq!(
            turns(&mut Waiter::of_job(3, 2)),
            (spin_turns(SPIN_CONTENDED), YIELDS)
        );
    }

    #[test]
    fn endpoint_without_competitors_spins_long() {
        let mut waiter = Waiter::of_endpoint(2);
        assert_eq!(
            turns(&mut waiter).0,
            spin_turns(SPIN_CONTENDED),
            "nothing is known"
        );
        // Yields that take no time let no other process run.
        assert_eq!(turns(&mut waiter).0, spin_turns(SPIN_MIN));
    }

    #[test]
    fn short_sleeps_lengthen_spin_and_long_sleeps_shorten_it() {
        let mut waiter = Waiter::of_job(1, 2);
        (0..20).for_each(|_| waiter.on_slept(SPIN_MIN));
        assert_eq!(turns(&mut waiter), (spin_turns(SPIN_MAX), YIELDS));
        (0..20).for_each(|_| waiter.on_slept(SPIN_MAX * 2));
        assert_eq!(waiter.idle(), Idle::Sleep, "nothing has come since");
        waiter.on_slept(SPIN_MIN);
        assert_eq!(turns(&mut waiter), (spin_turns(SPIN_MIN), YIELDS));
    }

    #[test]
    fn sleepy_waits_sleep_at_once() {
        let mut waiter = Waiter::of_job(1, 2);
        waiter.set_sleepy(true);
        (0..20).for_each(|_| waiter.on_slept(SPIN_MIN));
        assert_eq!(turns(&mut waiter), (spin_turns(SPIN_CONTENDED), YIELDS));
        waiter.set_sleepy(false);
        assert_eq!(turns(&mut waiter), (spin_turns(SPIN_MIN), YIELDS));
    }

    #[test]
    fn time_of_other_processes_does_not_count_as_spin() {
        let mut waiter = Waiter::of_endpoint(2);
        turns(&mut waiter);
        waiter.begin();
        waiter.empty_turns = CHECK_TURNS;
        let begin = Instant::from_nanos(1_000_000);
        waiter.should_yield(begin);
        let end = begin + SPIN_MAX;
        waiter.on_yielded(begin, end);
        waiter.empty_turns += CHECK_TURNS;
        waiter.should_yield(end);
        assert_eq!(waiter.idle(), Idle::Spin);
    }
}
