// SPDX-License-Identifier: MIT OR Apache-2.0
//! When an endpoint's caller should spin, yield and sleep; the sleep itself is the engine's.

use super::Endpoint;
use super::share::Share;
use crate::engine::{Descriptor, Engine};
use crate::error::Error;
use crate::links::Links;
use crate::raw::{Idle, RawCompletion};
use portolan_proto::LinkId;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Empty turns before a wait sleeps, where nobody else wants the core: some 60 µs, two round trips
/// over a quiet Ethernet with a sleeping receiver.
const SPIN_TURNS: u32 = 2048;
/// The same where others use the core, so that spinning keeps it from the one that is waited for.
const SPIN_TURNS_CROWDED: u32 = 64;
/// Empty turns between looks whether others should have the core: 1 µs on shared memory, and 20 times
/// as much where each turn asks sockets.
const LOOK_TURNS: u32 = 32;
/// Empty turns are not counted beyond this, so that they never stop being a multiple of something.
const IDLE_TURNS_MAX: u32 = 1 << 31;
/// Yields before going to sleep: each lets the others of a crowded host have a turn.
const YIELDS: u32 = 16;

/// How an endpoint waits.
pub(super) struct Rest {
    descriptor: Descriptor,
    is_armed: bool,
    idle_turns: u32,
    cores: usize,
    share: Share,
    /// Nothing has come since, and no yield was made.
    idle_since: Instant,
}

impl Rest {
    pub(super) fn new(links: &mut Links) -> Result<Rest, Error> {
        let mut descriptor = Descriptor::new()?;
        links.arm(&mut descriptor.wake);
        links.disarm();
        descriptor.watch()?;
        Ok(Rest {
            descriptor,
            is_armed: false,
            idle_turns: 0,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            share: Share::default(),
            idle_since: Instant::now(),
        })
    }

    /// Notes what a turn has brought; lets others have the core when it is nothing again and again
    /// and somebody else has a use for it.
    #[inline]
    pub(super) fn note(&mut self, count: usize, engine: &Engine) {
        if count > 0 {
            self.idle_turns = 0;
            self.share.on_found();
            return;
        }
        self.idle_turns += 1;
        if self.idle_turns.is_multiple_of(LOOK_TURNS) {
            self.give_way(engine);
        }
    }

    #[cold]
    fn give_way(&mut self, engine: &Engine) {
        let now = Instant::now();
        if self.idle_turns == IDLE_TURNS_MAX {
            self.idle_turns /= 2;
        }
        if self.idle_turns == LOOK_TURNS {
            self.idle_since = now;
        }
        self.share.on_nothing();
        if engine.links.connected_count(LinkId::SHM) + 1 > self.cores {
            self.share.on_crowd();
        }
        if now - self.idle_since >= self.share.patience() {
            portolan_sys::wait::yield_now();
            self.idle_since = Instant::now();
            self.share.on_yield(self.idle_since - now);
        }
    }

    fn idle(&self) -> Idle {
        let spin_turns = match self.share.is_crowded() {
            true => SPIN_TURNS_CROWDED,
            false => SPIN_TURNS,
        };
        match self.idle_turns {
            turns if turns < spin_turns => Idle::Spin,
            turns if turns < spin_turns + YIELDS => Idle::Yield,
            _ => Idle::Sleep,
        }
    }
}

impl Endpoint {
    /// A descriptor that is readable when [`Endpoint::poll`] may have something, after
    /// [`Endpoint::arm`] has said that it has nothing now.
    #[must_use]
    pub fn wait_fd(&self) -> RawFd {
        self.rest.descriptor.as_fd().as_raw_fd()
    }

    /// Prepares for sleep on [`Endpoint::wait_fd`]; `false` if there is something to poll for. The
    /// next poll undoes it.
    pub fn arm(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        self.wake();
        // What the helper received while the program sleeps would not wake it.
        let engine = self.engine.hold_mut();
        engine.flush();
        if engine.inner.has_done() || self.directory.has_fresh() {
            return false;
        }
        self.rest.is_armed = true;
        let now = engine.inner.read_clock();
        let descriptor = &mut self.rest.descriptor;
        let timer = engine.arm(&mut descriptor.wake, now);
        // A link may sleep on other descriptors than before: UDP opens one for a busy peer.
        let is_set = descriptor.watch().is_ok() && descriptor.set_timer(timer).is_ok();
        if timer.is_none() || !is_set {
            self.wake();
            return false;
        }
        true
    }

    /// Undoes [`Endpoint::arm`].
    #[inline]
    pub(super) fn wake(&mut self) {
        if self.rest.is_armed {
            self.wake_armed();
        }
    }

    #[cold]
    fn wake_armed(&mut self) {
        self.rest.is_armed = false;
        if let Err(error) = self.rest.descriptor.set_timer(None) {
            log::warn!("stopping a timer: {error}");
        }
        let engine = &mut *self.engine.enter();
        engine.disarm();
    }

    /// What to do after a poll that brought nothing.
    #[must_use]
    pub fn idle(&self) -> Idle {
        self.rest.idle()
    }

    /// Polls until something has ended, or `timeout` is over; spins, yields and sleeps between.
    /// Returns how many completions `sink` was handed.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(RawCompletion),
    ) -> usize {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut count = 0;
        loop {
            self.poll(&mut |completion| {
                count += 1;
                sink(completion);
            });
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if count > 0 || left.is_some_and(|left| left.is_zero()) {
                return count;
            }
            match self.idle() {
                Idle::Spin => {}
                Idle::Yield => portolan_sys::wait::yield_now(),
                Idle::Sleep => self.sleep(left),
            }
        }
    }

    fn sleep(&mut self, most: Option<Duration>) {
        if !self.arm() {
            return;
        }
        let fds = [self.wait_fd()];
        if let Err(error) = portolan_sys::wait::wait_readable(&fds, most) {
            log::warn!("sleeping: {error}");
        }
    }
}
