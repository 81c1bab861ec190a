// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path failover. If frames stay unacknowledged, all paths are probed at once, in rounds. A path
//! that is silent while another answers is abandoned, and its frames move (`P6.7`). If none
//! answers, the peer may be busy or have failed, which the engine must find out (`P9.1`).

use super::{Contents, Path, Paths, TxState};
use crate::base::time::Span;
use crate::{Instant, LinkId};

/// Time for the replies of one round. A sleeping peer answers within it. A peer that is not running
/// answers on no path, and no path is blamed.
const ROUND: Span = Span::from_millis(10);

/// Rounds for each sign of trouble: enough to blame a path, whatever the outcome of the first.
const ROUNDS: u8 = MISSES + 1;

/// Consecutive rounds that a path may miss before it is abandoned. With 20 % loss, one probed path
/// in twenty is abandoned in vain, and returns with the next reply.
const MISSES: u8 = 3;

/// Pause between probes on an abandoned path, or on all if none answered, and how often it doubles.
const RETRY: Span = Span::from_millis(100);
const RETRY_DOUBLINGS: u32 = 3;

/// Consecutive timeouts that make a path suspect. The first may be due to a lost acknowledgement.
pub(crate) const TIMEOUTS: u32 = 2;

/// Rounds of probes on a peer's paths.
#[derive(Debug)]
pub(super) struct Suspicion {
    next_at: Instant,
    rounds_left: u8,
    /// Time before which no path is probed again. Set if no path answered in the last rounds, most
    /// likely because the peer's program computes.
    quiet_until: Instant,
    /// Number of times in a row that no path answered.
    quiet_count: u32,
}

impl Default for Suspicion {
    fn default() -> Self {
        Suspicion {
            next_at: Instant::NEVER,
            rounds_left: 0,
            quiet_until: Instant::default(),
            quiet_count: 0,
        }
    }
}

/// Result of the rounds for one path.
#[derive(Debug)]
pub(crate) struct PathHealth {
    queried_at: Option<Instant>,
    has_replied: bool,
    misses: u8,
    /// Set while the path is abandoned for another, until it answers.
    silent: bool,
    retry_at: Instant,
    retries: u32,
}

impl Default for PathHealth {
    fn default() -> Self {
        PathHealth {
            queried_at: None,
            has_replied: false,
            misses: 0,
            silent: false,
            retry_at: Instant::NEVER,
            retries: 0,
        }
    }
}

impl PathHealth {
    /// Returns true if the path is abandoned for another, until it answers.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns true if the path is not suspect.
    pub(crate) fn is_calm(&self) -> bool {
        !self.silent && self.retry_at == Instant::NEVER
    }
}

impl Path {
    /// Returns the time of the next probe on an abandoned path.
    pub(super) fn retry_timer(&self) -> Instant {
        self.health.retry_at
    }

    fn retry(&mut self, now: Instant) {
        if now < self.health.retry_at {
            return;
        }
        self.send_keepalive();
        let pause = RETRY.doubled(self.health.retries.min(RETRY_DOUBLINGS));
        self.health.retries += 1;
        self.health.retry_at = now + pause;
    }

    /// Returns the path to use. The numbers of frames with moved contents must still be filled, see
    /// [`Contents::Nothing`].
    fn resume(&mut self) {
        self.health = PathHealth::default();
        self.loss.restart();
        self.free_left = 0;
        let mut num = self.base_num;
        for entry in &mut self.unacked {
            if entry.state == TxState::Sent && matches!(entry.contents, Contents::Nothing) {
                entry.state = TxState::Lost;
                self.in_flight -= 1;
                self.lost.push_back(num);
            }
            num = num.wrapping_add(1);
        }
    }
}

impl Paths {
    /// Returns the time of the next [`Paths::on_suspicion_timer`].
    pub(crate) fn suspicion_timer(&self) -> Instant {
        self.suspicion.next_at
    }

    /// Starts probing all paths because frames stay unacknowledged, if there is a choice.
    pub(crate) fn suspect(&mut self, now: Instant) {
        if self
            .by_link
            .iter()
            .flatten()
            .filter(|path| path.is_usable())
            .count()
            < 2
        {
            return;
        }
        if now < self.suspicion.quiet_until {
            return;
        }
        self.suspicion.rounds_left = ROUNDS;
        if self.suspicion.next_at == Instant::NEVER {
            self.suspicion.next_at = now;
        }
    }

    /// Evaluates the round that ends and starts the next one. Returns the path that was abandoned,
    /// if any.
    pub(super) fn on_suspicion_timer(
        &mut self,
        now: Instant,
        preferred: Option<LinkId>,
    ) -> Option<LinkId> {
        for path in self.by_link.iter_mut().flatten() {
            path.retry(now);
        }
        if now < self.suspicion.next_at {
            return None;
        }
        let someone = self.by_link.iter().flatten();
        let someone = someone
            .filter(|path| path.is_usable())
            .any(|path| path.health.has_replied);
        let (mut blamed, mut has_probed) = (None, false);
        for path in self
            .by_link
            .iter_mut()
            .flatten()
            .filter(|path| path.is_usable())
        {
            let acked_at = path.loss.acked_at();
            let health = &mut path.health;
            let Some(queried_at) = health.queried_at.take() else {
                continue;
            };
            has_probed = true;
            // Frames received on a path in only one direction are acknowledged on another.
            if health.has_replied || acked_at > queried_at {
                health.misses = 0;
            } else if someone {
                health.misses += 1;
                if health.misses >= MISSES {
                    blamed = Some(path.link);
                }
            }
        }
        if let Some(link) = blamed {
            self.leave(now, link, preferred);
        }
        if someone {
            self.suspicion.quiet_count = 0;
        } else if self.suspicion.rounds_left == 0 || has_probed && self.suspicion.quiet_count > 0 {
            // The peer does not poll. One round is enough to detect that it still does not.
            self.suspicion.rounds_left = 0;
            let pause = RETRY.doubled(self.suspicion.quiet_count.min(RETRY_DOUBLINGS));
            self.suspicion.quiet_until = now + pause;
            self.suspicion.quiet_count += 1;
        }
        self.begin_round(now);
        blamed
    }

    fn begin_round(&mut self, now: Instant) {
        if self.suspicion.rounds_left == 0 {
            self.suspicion.next_at = Instant::NEVER;
            return;
        }
        self.suspicion.rounds_left -= 1;
        self.suspicion.next_at = now + ROUND;
        for path in self
            .by_link
            .iter_mut()
            .flatten()
            .filter(|path| path.is_usable())
        {
            path.health.queried_at = Some(now);
            path.health.has_replied = false;
            path.send_keepalive();
        }
    }

    /// Handles the reply on this path to a probe that measures nothing.
    pub(super) fn on_keepalive_reply(&mut self, link: LinkId, preferred: Option<LinkId>) {
        let Some(path) = self.get_mut(link) else {
            return;
        };
        path.health.has_replied = true;
        if path.health.silent {
            path.resume();
            self.choose(preferred);
        }
    }

    /// Abandons a path in favour of those that work.
    fn leave(&mut self, now: Instant, link: LinkId, preferred: Option<LinkId>) {
        let Some(path) = self.get_mut(link) else {
            return;
        };
        path.health = PathHealth {
            silent: true,
            retry_at: now + RETRY,
            ..PathHealth::default()
        };
        path.probe.stop();
        self.choose(preferred);
    }
}
