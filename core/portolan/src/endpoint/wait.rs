// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for an endpoint's operations: the calls, and their order. The waiter decides how long to
//! spin, yield and sleep.

use super::Endpoint;
use crate::raw::{Idle, RawCompletion};
use portolan_sys::wait::yield_now;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

impl Endpoint {
    /// Returns a descriptor that becomes readable when [`Endpoint::poll`] may have something. It is
    /// valid after [`Endpoint::arm`] has returned `true`.
    #[must_use]
    pub fn wait_fd(&self) -> RawFd {
        let descriptor = self.descriptor.as_ref();
        descriptor.map_or(-1, |descriptor| descriptor.as_fd().as_raw_fd())
    }

    /// Prepares for sleep on [`Endpoint::wait_fd`]. Returns `false` if there is something to poll
    /// for. The next poll undoes it.
    pub fn arm(&mut self) -> bool {
        if !self.has_nothing() {
            return false;
        }
        let Some(descriptor) = &mut self.descriptor else {
            return false;
        };
        let engine = self.engine.hold_mut();
        let armed = engine.arm_for_program(descriptor);
        self.armed_at = Some(engine.inner.last_clock_read());
        let is_armed = matches!(armed, Ok(true));
        if !is_armed {
            self.wake();
        }
        is_armed
    }

    /// Flushes, and tests whether there is nothing to poll for.
    pub(super) fn has_nothing(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        self.wake();
        // An event that the helper received while the program sleeps would not wake it.
        let engine = self.engine.hold_mut();
        engine.flush();
        !engine.inner.has_done() && !self.directory.has_fresh()
    }

    /// Undoes [`Endpoint::arm`].
    #[inline]
    pub(super) fn wake(&mut self) {
        if self.armed_at.is_some() {
            self.wake_armed();
        }
    }

    #[cold]
    fn wake_armed(&mut self) {
        if let Some(descriptor) = &self.descriptor
            && let Err(error) = descriptor.set_timer(None)
        {
            log::warn!("stopping a timer: {error}");
        }
        let engine = &mut *self.engine.enter();
        engine.disarm();
        if let Some(armed_at) = self.armed_at.take() {
            self.waiter
                .on_slept(engine.inner.last_clock_read().since(armed_at));
        }
    }

    /// Returns the action to take after a poll without events.
    #[must_use]
    pub fn idle(&self) -> Idle {
        self.waiter.idle()
    }

    /// Polls until an operation completes or `timeout` expires; spins, yields and sleeps in
    /// between. Returns the number of completions passed to `sink`.
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
                Idle::Yield => yield_now(),
                Idle::Sleep => self.sleep(left),
            }
        }
    }

    fn sleep(&mut self, most: Option<Duration>) {
        if self.has_nothing() {
            self.waiter.sleep(self.engine.hold_mut(), most);
        }
    }
}
