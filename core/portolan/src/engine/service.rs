// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helper thread that continues the work of a node or endpoint while its program computes. Messages
//! then arrive without another call. The thread sleeps most of the time.
//!
//! It runs no handlers, because they belong to the program's thread. If there are handlers, it
//! sends and retransmits but receives nothing. The exception is `progress=thread` with posted
//! buffers for all handlers; these handlers run in the program's next call. The helper gives up no
//! silent peers, because no call waits for them.
//!
//! With the setting `progress=thread` it also sleeps on the links while the program computes, and
//! serves arriving frames until the next call.

use super::{Descriptor, Engine};
use crate::error::Error;
use crate::settings;
use portolan_sys::gate::{Gate, Guard, Pending, Service, Serviced};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Name of the helper's thread, as shown by tools.
const HELPER_NAME: &str = "portolan-helper";

/// Turns made in one go, so that a returning owner waits only microseconds.
const CARRY_TURNS: u32 = 64;

/// Longest sleep on the links. Their timer expires earlier if something is due.
const GUARD_MAX: Duration = Duration::from_secs(1);

impl Engine {
    /// Puts the engine behind a gate. The helper also serves arriving frames while the program
    /// computes, if the job's settings request it.
    ///
    /// # Errors
    /// [`Error::Setting`]; [`Error::System`] if no descriptors are left.
    pub(crate) fn guard(mut self) -> Result<Gate<Engine>, Error> {
        let setting = settings::PROGRESS;
        match setting.of(&self.inner.job).as_deref() {
            None | Some("calls") => {}
            Some("thread") => self.guard = Some(Box::new(Descriptor::new()?)),
            Some(other) => {
                return Err(Error::Setting {
                    name: "progress",
                    value: other.to_owned(),
                    why: "write calls or thread".to_owned(),
                });
            }
        }
        Gate::new(self, HELPER_NAME).map_err(|errno| Error::System {
            what: "setting up the progress thread",
            errno,
        })
    }

    /// Tests whether the helper serves arriving frames. If handlers must run at once, it may not
    /// take frames from the links, because they would have woken the program.
    #[inline]
    fn is_on_guard(&self) -> bool {
        self.guard.is_some() && !self.is_armed && self.may_receive()
    }

    /// Tests whether frames may be received without the program. Either there are no handlers, or
    /// the job requests it and the handlers can run later.
    fn may_receive(&self) -> bool {
        self.handlers.is_empty() || self.guard.is_some() && self.defers
    }

    fn service_turn(&mut self) -> usize {
        let received = match self.may_receive() {
            true => self.work(None),
            false => 0,
        };
        received + self.flush()
    }
}

impl Service for Engine {
    fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    fn begin_guard(&mut self) -> Guard {
        if !self.is_on_guard() {
            return Guard::Never;
        }
        let Some(mut descriptor) = self.guard.take() else {
            return Guard::Never;
        };
        let armed = match self.arm_descriptor(&mut descriptor) {
            Ok(armed) => armed,
            Err(error) => {
                log::warn!("progress thread stopped, messages now wait for the next call: {error}");
                return Guard::Never;
            }
        };
        let fd = descriptor.as_fd().as_raw_fd();
        self.guard = Some(descriptor);
        match armed {
            // The descriptor's own timer expires first.
            true => Guard::Asleep(fd, GUARD_MAX),
            false => Guard::Awake,
        }
    }

    /// Ends the guard. The returning owner handles timers and notices.
    fn end_guard(&mut self) {
        self.links.disarm();
        self.links.poll_all(self.inner.turn);
        // Peers that a link accepted when it was disarmed.
        self.register_fresh();
    }

    #[inline(always)]
    fn settle(&mut self) {
        self.settle_rest();
    }

    /// Returns the urgency of the remaining work. Messages held back by batching, credit, a window
    /// or a full link are urgent. Frames in flight, which may be lost, and acknowledgements can
    /// wait.
    #[inline(always)]
    fn pending(&self) -> Pending {
        if self.has_more || self.full_mask != 0 || !self.inner.pending.is_empty() {
            return Pending::Urgent;
        }
        match self.inner.core.pending_work() {
            portolan_proto::PendingWork::None if !self.is_on_guard() => Pending::Nothing,
            portolan_proto::PendingWork::None => Pending::Patient,
            portolan_proto::PendingWork::Unacknowledged => Pending::Patient,
            portolan_proto::PendingWork::Unsent => Pending::Urgent,
        }
    }

    fn service(&mut self, is_wanted: &dyn Fn() -> bool) -> Serviced {
        self.set_away(true);
        let serviced = self.service_turns(is_wanted);
        self.set_away(false);
        serviced
    }

    fn on_no_helper(&mut self, error: &io::Error) {
        log::warn!(
            "cannot start thread {HELPER_NAME}, unfinished work waits for the next call: {error}"
        );
    }
}

impl Engine {
    fn set_away(&mut self, is_away: bool) {
        self.inner.is_away = is_away;
        self.inner.core.set_away(is_away);
    }

    fn service_turns(&mut self, is_wanted: &dyn Fn() -> bool) -> Serviced {
        self.settle_rest();
        self.inner.read_clock();
        self.links.heat(self.inner.turn.wrapping_add(CARRY_TURNS));
        if self.may_receive() {
            self.handle_notices();
            self.drain();
        }
        self.on_timeout();
        let (mut has_moved, begin) = (false, self.inner.turn);
        for _ in 0..CARRY_TURNS {
            let moved = self.service_turn();
            has_moved |= moved > 0;
            if moved == 0 || is_wanted() {
                break;
            }
        }
        let turns = self.inner.turn.wrapping_sub(begin);
        self.inner.carried_turns = self.inner.carried_turns.wrapping_add(turns);
        self.inner.core.refresh_pending_work();
        match (self.pending(), has_moved) {
            (Pending::Nothing, _) => Serviced::Done,
            (_, true) => Serviced::Moved,
            (_, false) => Serviced::Stuck,
        }
    }
}
