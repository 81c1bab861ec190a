// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers: when something is due, and what is done then.

use crate::base::config::Times;
use crate::path::Path;
use crate::path::failover::TIMEOUTS;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Core, Event, Instant};

impl Core {
    /// When [`Core::handle_timeout`] has something to do; at once while events wait.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        if self.sh.ctx.has_event() {
            return Instant::default();
        }
        let times = self.sh.ctx.times();
        self.timed
            .iter()
            .filter_map(|id| self.peers[id.index()].as_deref())
            .map(|peer| peer.timer(times))
            .min()
            .unwrap_or(Instant::NEVER)
            .min(self.rest_timer())
            .min(self.sh.shortage.timer())
    }

    /// Does what is due: acknowledgements, retransmissions, handshakes. Events and transmits follow.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.rest_the_quiet(now);
        self.look_at_shortage(now);
        let mut index = 0;
        while let Some(&id) = self.timed.get(index) {
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                self.timed.swap_remove(index);
                continue;
            };
            let times = self.sh.ctx.times();
            if peer.timer(times) == Instant::NEVER && !peer.queued && !peer.is_blocked() {
                peer.timed = false;
                self.timed.swap_remove(index);
                continue;
            }
            index += 1;
            if now >= peer.timer(self.sh.ctx.times()) {
                peer.on_timer(now, &mut self.sh);
                self.touch(id);
            }
        }
    }
}

impl Peer {
    fn is_blocked(&self) -> bool {
        self.paths.iter().flatten().any(|path| path.blocked)
    }

    pub(crate) fn timer(&self, times: &Times) -> Instant {
        if self.session.failed.is_some() {
            return Instant::NEVER;
        }
        let paths = self
            .paths
            .iter()
            .flatten()
            .filter(|path| !path.params.lossless);
        let path_timer = |path: &Path| {
            let due = if self.session.up {
                path.rx.due()
            } else {
                Instant::NEVER
            };
            let path_timer = path.timer(times).min(path.retry_timer());
            path_timer.min(due).min(path.probe_timer())
        };
        paths
            .map(|path| path_timer(path))
            .min()
            .unwrap_or(Instant::NEVER)
            .min(self.session.timer())
            .min(self.doubt_timer())
    }

    fn on_timer(&mut self, now: Instant, sh: &mut Shared) {
        self.on_hello_timer(now);
        self.on_doubt_timer(now, sh);
        let mut doubtful = false;
        for path in self.paths.iter_mut().flatten() {
            path.on_probe_timer(now);
            let outcome = path.on_timer(now, sh.ctx.times());
            if outcome.timed_out {
                sh.ctx.counters_mut().timeouts += 1;
                doubtful |= path.loss.timeouts >= TIMEOUTS;
                path.doubt_frame_len(now);
            }
            if outcome.suspect {
                sh.ctx.emit(Event::Suspect {
                    peer: self.id,
                    link: path.link,
                });
            }
        }
        if doubtful {
            self.doubt_paths(now);
        }
    }
}
