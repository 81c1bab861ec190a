// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers: the time of the next one, and their handling.

use crate::{Core, Instant};

impl Core {
    /// Returns the time of the next [`Core::handle_timeout`]; at once while events are pending.
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
            .min(self.dormancy_timer())
            .min(self.sh.shortage.timer())
    }

    /// Handles everything that is due: acknowledgements, retransmissions, handshakes. Events and
    /// transmits follow.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.retire_quiet_peers(now);
        self.check_shortage(now);
        let mut index = 0;
        while let Some(&id) = self.timed.get(index) {
            let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
                self.timed.swap_remove(index);
                continue;
            };
            let times = self.sh.ctx.times();
            if peer.unmark_timed(times) {
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
