// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: spin for a short time, then yield, then sleep on descriptors.
//!
//! A [`Waiter`] is told what each turn has brought and decides what comes after it, for calls that
//! wait here ([`Waiter::until`]) and for callers that poll in a loop of their own.
//!
//! How long to spin adapts: a wait that ended soon after going to sleep should have spun on; one
//! that slept long should have spun no longer than falling asleep and waking cost.

mod descriptor;
mod share;

pub(crate) use descriptor::Descriptor;

use super::{Awaited, Engine, Inner};
use crate::error::Error;
use crate::launch::Launch;
use crate::raw::Idle;
use portolan_link::WakeSet;
use portolan_proto::{Instant, LinkId, PeerId};
use portolan_sys::wait::{wait_readable, yield_now};
use share::Share;
use std::time::Duration;

/// Never spins shorter, while each process has a core: about what a sleep costs, with the wake-up of
/// a halted core. Whoever spins shorter than that makes two processes that answer one another
/// promptly sleep in turns.
const SPIN_MIN: Duration = Duration::from_micros(60);
/// Never spins longer: an idle process must not be seen in `top`.
const SPIN_MAX: Duration = Duration::from_millis(1);
/// Where others want the core, spinning takes it from the one that is waited for. Counted, as all
/// of these, from the first look.
const SPIN_CROWDED: Duration = Duration::from_micros(1);

/// Turns of a wait before it counts as one: most end within them, and do not pay for the set-up of a
/// long one.
pub(crate) const FIRST_TURNS: u32 = 64;

/// Empty turns between looks at how long this has lasted, and at who else wants the core: 1 µs on
/// shared memory.
const LOOK_TURNS: u32 = 32;

/// Empty turns are not counted beyond this, so that they never stop being a multiple of something.
const EMPTY_TURNS_MAX: u32 = 1 << 31;

/// Yields before going to sleep: each lets the others of a crowded host have a turn.
const YIELDS: u32 = 16;

/// Longest sleep while a link had no room and might not ring.
pub(crate) const SLEEP_FULL: Duration = Duration::from_millis(1);

/// How a process waits.
pub(crate) struct Waiter {
    /// How long to spin where nobody else wants the core.
    spin: Duration,
    crowd: Crowd,
    phase: Phase,
    /// Turns since something has come.
    empty_turns: u32,
    /// Nothing has come since; time that others had the core for is not counted.
    empty_since: Instant,
    /// Neither has anything come since, nor was the core yielded.
    kept_since: Instant,
    wake: WakeSet,
}

/// Whether others want the core.
enum Crowd {
    /// Known by counting processes and cores.
    Counted(bool),
    /// Found out by yielding; known to be so with more neighbours than `cores`.
    Felt { share: Share, cores: usize },
}

/// What turns in vain are followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Spin,
    /// Since that many turns in vain.
    Yield(u32),
    /// The last sleep was long, and nothing has come since.
    Drowsy,
}

impl Waiter {
    /// For a process that is one of `process_count` of its job that have `core_count` cores.
    pub(crate) fn of_job(process_count: u32, core_count: usize) -> Self {
        Self::new(Crowd::Counted(process_count as usize > core_count))
    }

    /// For an endpoint, whose neighbours cannot be counted.
    pub(crate) fn of_endpoint(cores: usize) -> Self {
        let share = Share::default();
        Self::new(Crowd::Felt { share, cores })
    }

    fn new(crowd: Crowd) -> Self {
        Waiter {
            spin: SPIN_MIN,
            crowd,
            phase: Phase::Spin,
            empty_turns: 0,
            empty_since: Instant::default(),
            kept_since: Instant::default(),
            wake: WakeSet::default(),
        }
    }

    /// Drives `engine` until `done`, which `awaited` describes. `about` are the peers that the wait depends
    /// on: they are asked whether they live when they stay silent.
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
            // No `pause` here: it takes as long as a cache line does between cores (140 cycles since
            // Skylake), and a turn is long enough to leave a sibling hyperthread its share.
        }
        self.long(engine, about, awaited, &done);
    }

    #[cold]
    fn long(
        &mut self,
        engine: &mut Engine,
        about: &[PeerId],
        awaited: Awaited,
        done: &dyn Fn(&Inner) -> bool,
    ) {
        let begin = engine.inner.read_clock();
        for peer in about {
            engine.watch(*peer, begin);
        }
        engine.inner.awaited = Some((awaited, begin));
        self.begin();
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
            let is_drowsy = self.phase == Phase::Drowsy;
            self.note(if is_drowsy { received } else { received + sent }, engine);
            match self.idle() {
                Idle::Spin => {}
                Idle::Yield => yield_now(),
                Idle::Sleep => engine.inner.is_idle |= self.sleep(engine, None),
            }
        }
        (engine.inner.awaited, engine.inner.is_idle) = (None, false);
        for peer in about {
            engine.unwatch(*peer);
        }
    }

    /// Something has come, or a wait begins.
    #[inline]
    fn begin(&mut self) {
        self.phase = Phase::Spin;
        self.empty_turns = 0;
    }

    /// Notes what a turn has brought; lets others have the core when it is nothing again and again
    /// and somebody is felt to have a use for it.
    #[inline]
    pub(crate) fn note(&mut self, count: usize, engine: &mut Engine) {
        if count > 0 {
            self.begin();
            if let Crowd::Felt { share, .. } = &mut self.crowd {
                share.on_found();
            }
            return;
        }
        self.empty_turns += 1;
        if self.empty_turns.is_multiple_of(LOOK_TURNS) {
            self.look(engine);
        }
    }

    #[cold]
    fn look(&mut self, engine: &mut Engine) {
        let now = engine.inner.read_clock();
        if let Crowd::Felt { share, cores } = &mut self.crowd
            && engine.links.connected_count(LinkId::SHM) + 1 > *cores
        {
            share.on_crowd();
        }
        if self.wants_to_share(now) {
            yield_now();
            self.on_shared(now, engine.inner.read_clock());
        }
    }

    /// Nothing has come until `now`. Whether others should have the core before more turns are made.
    fn wants_to_share(&mut self, now: Instant) -> bool {
        if self.empty_turns == EMPTY_TURNS_MAX {
            self.empty_turns /= 2;
        }
        if self.empty_turns == LOOK_TURNS {
            (self.empty_since, self.kept_since) = (now, now);
        }
        if self.phase == Phase::Spin && now.since(self.empty_since) >= self.spin() {
            self.phase = Phase::Yield(self.empty_turns);
        }
        match &mut self.crowd {
            Crowd::Counted(_) => false,
            Crowd::Felt { share, .. } => {
                share.on_nothing();
                now.since(self.kept_since) >= share.patience()
            }
        }
    }

    /// Others had the core for that time.
    fn on_shared(&mut self, begin: Instant, end: Instant) {
        let took = end.since(begin);
        self.kept_since = end;
        self.empty_since = self.empty_since + took;
        if let Crowd::Felt { share, .. } = &mut self.crowd {
            share.on_yield(took);
        }
    }

    fn spin(&self) -> Duration {
        match &self.crowd {
            Crowd::Counted(true) => SPIN_CROWDED,
            Crowd::Felt { share, .. } if share.is_crowded() => SPIN_CROWDED,
            _ => self.spin,
        }
    }

    /// What to do after a turn that has brought nothing.
    pub(crate) fn idle(&self) -> Idle {
        match self.phase {
            Phase::Spin => Idle::Spin,
            Phase::Yield(since) if self.empty_turns.wrapping_sub(since) < YIELDS => Idle::Yield,
            Phase::Yield(_) | Phase::Drowsy => Idle::Sleep,
        }
    }

    /// Sleeps until something may have happened, or for `most`; returns whether there was nothing
    /// before.
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

    /// A sleep has lasted so long. A short one right after a long one was the answer to a question
    /// whether the peer lives: it says nothing of how soon messages come.
    pub(crate) fn on_slept(&mut self, slept: Duration) {
        let was_drowsy = self.phase == Phase::Drowsy;
        self.begin();
        if slept > SPIN_MAX {
            self.phase = Phase::Drowsy;
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
        if self.has_more || !self.links.arm(wake) {
            return None;
        }
        let launcher = self.launch.as_ref().map(Launch::fd);
        // One that has nothing to say has none.
        wake.fds.extend(launcher.filter(|fd| *fd >= 0));
        let most = match self.full_mask {
            0 => self.inner.sleep_max(),
            _ => SLEEP_FULL,
        };
        let most = self.inner.arm_multicasts(wake, now, most);
        Some(self.inner.core.poll_timeout().since(now).min(most))
    }

    /// Ends what [`Engine::arm`] began, and does what has become due: timers, news of peers.
    pub(crate) fn disarm(&mut self) {
        self.is_armed = false;
        self.links.disarm();
        self.links.rouse(self.inner.turn);
        self.inner.read_clock();
        self.look_around();
        self.on_timeout();
    }

    /// As [`Engine::arm_descriptor`], for the program, which is about to sleep on it: its helper would take
    /// what it sleeps for.
    pub(crate) fn arm_for_program(&mut self, descriptor: &mut Descriptor) -> Result<bool, Error> {
        let armed = self.arm_descriptor(descriptor)?;
        self.is_armed = armed;
        Ok(armed)
    }

    /// Has `descriptor` ring when something may happen, or a timer is due. `false`, and nothing is
    /// armed: something has happened.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses; nothing is armed then.
    pub(crate) fn arm_descriptor(&mut self, descriptor: &mut Descriptor) -> Result<bool, Error> {
        let now = self.inner.read_clock();
        let after = self.arm(&mut descriptor.wake, now);
        // A link may sleep on other descriptors than before: UDP opens one for a busy peer.
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

    /// Turns in vain of `TURN` each from `now` until the answer is another than `from`, and how many.
    fn pass(waiter: &mut Waiter, now: &mut Instant, from: Idle) -> u32 {
        for turns in 0..1_000_000 {
            if waiter.idle() != from {
                return turns;
            }
            *now = *now + TURN;
            waiter.empty_turns += 1;
            if waiter.empty_turns.is_multiple_of(LOOK_TURNS) && waiter.wants_to_share(*now) {
                waiter.on_shared(*now, *now);
            }
        }
        panic!("{from:?} for ever");
    }

    /// How many turns are spun and yielded before a sleep.
    fn turns(waiter: &mut Waiter) -> (u32, u32) {
        waiter.begin();
        let mut now = Instant::from_nanos(1_000_000);
        let spun = pass(waiter, &mut now, Idle::Spin);
        let yielded = pass(waiter, &mut now, Idle::Yield);
        assert_eq!(waiter.idle(), Idle::Sleep);
        (spun, yielded)
    }

    /// Turns that last so long, in whole looks, behind the first.
    fn spun(time: Duration) -> u32 {
        let looks = time
            .as_nanos()
            .div_ceil(TURN.as_nanos() * u128::from(LOOK_TURNS));
        (u32::try_from(looks).unwrap() + 1) * LOOK_TURNS
    }

    #[test]
    fn a_wait_spins_then_yields_then_sleeps() {
        assert_eq!(turns(&mut Waiter::of_job(2, 2)), (spun(SPIN_MIN), YIELDS));
        assert_eq!(
            turns(&mut Waiter::of_job(3, 2)),
            (spun(SPIN_CROWDED), YIELDS)
        );
    }

    #[test]
    fn an_endpoint_spins_long_once_it_finds_itself_alone() {
        let mut waiter = Waiter::of_endpoint(2);
        assert_eq!(turns(&mut waiter).0, spun(SPIN_CROWDED), "nothing is known");
        // Yields that take no time let nobody run.
        assert_eq!(turns(&mut waiter).0, spun(SPIN_MIN));
    }

    #[test]
    fn short_sleeps_lengthen_the_spin_and_long_ones_shorten_it() {
        let mut waiter = Waiter::of_job(1, 2);
        (0..20).for_each(|_| waiter.on_slept(SPIN_MIN));
        assert_eq!(turns(&mut waiter), (spun(SPIN_MAX), YIELDS));
        (0..20).for_each(|_| waiter.on_slept(SPIN_MAX * 2));
        assert_eq!(waiter.idle(), Idle::Sleep, "nothing has come since");
        waiter.on_slept(SPIN_MIN);
        assert_eq!(turns(&mut waiter), (spun(SPIN_MIN), YIELDS));
    }

    #[test]
    fn time_that_others_had_the_core_for_is_not_spun() {
        let mut waiter = Waiter::of_endpoint(2);
        turns(&mut waiter);
        waiter.begin();
        waiter.empty_turns = LOOK_TURNS;
        let begin = Instant::from_nanos(1_000_000);
        waiter.wants_to_share(begin);
        let end = begin + SPIN_MAX;
        waiter.on_shared(begin, end);
        waiter.empty_turns += LOOK_TURNS;
        waiter.wants_to_share(end);
        assert_eq!(waiter.idle(), Idle::Spin);
    }
}
