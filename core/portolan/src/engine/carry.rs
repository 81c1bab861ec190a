// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a node or an endpoint has left when its program computes: a thread that sleeps otherwise
//! carries it on, so that what was sent arrives without another call.
//!
//! It runs no handler: those are the program's, on the program's thread. Where there are any, it
//! sends, and sends again, but receives nothing, unless all of them get posted buffers and
//! `progress=thread` is set: then they run when the program is back. Nor does it lose patience with silent peers: nobody
//! waits for them.
//!
//! With the setting `progress=thread` it does more: it sleeps on the links while the program computes,
//! and serves what comes, until the next call.

use super::{Descriptor, Engine};
use crate::error::Error;
use crate::settings;
use portolan_sys::gate::{Carried, Carry, Gate, Guard, Left};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The helper's thread, as tools show it.
const HELPER_NAME: &str = "portolan-carry";

/// Turns in one go, so that the owner, when it comes back, waits microseconds.
const CARRY_TURNS: u32 = 64;

/// Longest sleep on the links, whose timer rings earlier when something is due.
const GUARD_MAX: Duration = Duration::from_secs(1);

impl Engine {
    /// Puts the engine behind a gate. Its helper also serves what comes while the program computes, if the
    /// job's settings say so.
    ///
    /// # Errors
    /// [`Error::Setting`]; [`Error::System`] for want of descriptors.
    pub(crate) fn guard(mut self) -> Result<Gate<Engine>, Error> {
        let setting = settings::PROGRESS;
        match setting.of(&self.inner.job).as_deref() {
            None | Some("calls") => {}
            Some("thread") => self.guard = Some(Box::new(Descriptor::new()?)),
            Some(other) => {
                return Err(Error::Setting {
                    name: "progress",
                    value: other.to_owned(),
                    why: "it is calls or thread".to_owned(),
                });
            }
        }
        Gate::new(self, HELPER_NAME).map_err(|errno| Error::System {
            what: "setting up a thread that serves what comes",
            errno,
        })
    }

    /// The helper is there for what comes: where handlers must run at once nobody may take off the links what
    /// would ring.
    #[inline]
    fn is_on_guard(&self) -> bool {
        self.guard.is_some() && !self.is_armed && self.may_hear()
    }

    /// Whether what comes may be received without the program: there are no handlers, or the job wants it and
    /// they can run later.
    fn may_hear(&self) -> bool {
        self.handlers.is_empty() || self.guard.is_some() && self.defers
    }

    fn carry_turn(&mut self) -> usize {
        let received = match self.may_hear() {
            true => self.work(None),
            false => 0,
        };
        received + self.flush()
    }
}

impl Carry for Engine {
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
                log::warn!("what comes waits for calls from now on: {error}");
                return Guard::Never;
            }
        };
        let fd = descriptor.as_fd().as_raw_fd();
        self.guard = Some(descriptor);
        match armed {
            // The descriptor's own timer rings first.
            true => Guard::Asleep(fd, GUARD_MAX),
            false => Guard::Awake,
        }
    }

    /// Timers and notices are left to whoever is back.
    fn end_guard(&mut self) {
        self.links.disarm();
        self.links.rouse(self.inner.turn);
        // Whom a link took in when it was disarmed.
        self.meet_fresh();
    }

    /// What gathered, or what credit, a window or a full link held back, soon; frames under way, which
    /// may be lost, and acknowledgements, when the program stays away for longer.
    #[inline]
    fn left(&self) -> Left {
        if self.has_more || self.full_mask != 0 || !self.inner.pending.is_empty() {
            return Left::Urgent;
        }
        match self.inner.core.left() {
            portolan_proto::Left::Nothing if !self.is_on_guard() => Left::Nothing,
            portolan_proto::Left::Nothing => Left::Patient,
            portolan_proto::Left::Unacknowledged => Left::Patient,
            portolan_proto::Left::Unsent => Left::Urgent,
        }
    }

    fn carry(&mut self, is_wanted: &dyn Fn() -> bool) -> Carried {
        self.set_away(true);
        let carried = self.carry_turns(is_wanted);
        self.set_away(false);
        carried
    }

    fn on_no_helper(&mut self, error: &io::Error) {
        log::warn!(
            "what calls have left waits for the next call: no thread {HELPER_NAME}: {error}"
        );
    }
}

impl Engine {
    fn set_away(&mut self, is_away: bool) {
        self.inner.is_away = is_away;
        self.inner.core.set_away(is_away);
    }

    fn carry_turns(&mut self, is_wanted: &dyn Fn() -> bool) -> Carried {
        self.inner.read_clock();
        self.links.heat(self.inner.turn.wrapping_add(CARRY_TURNS));
        if self.may_hear() {
            self.hear();
            self.drain();
        }
        self.on_timeout();
        let (mut has_moved, begin) = (false, self.inner.turn);
        for _ in 0..CARRY_TURNS {
            let moved = self.carry_turn();
            has_moved |= moved > 0;
            if moved == 0 || is_wanted() {
                break;
            }
        }
        let turns = self.inner.turn.wrapping_sub(begin);
        self.inner.carried_turns = self.inner.carried_turns.wrapping_add(turns);
        self.inner.core.look_for_left();
        match (self.left(), has_moved) {
            (Left::Nothing, _) => Carried::Done,
            (_, true) => Carried::Moved,
            (_, false) => Carried::Stuck,
        }
    }
}
