// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going to sleep without missing a frame, and waking.
//!
//! The flags of all rings are set first, then one fence orders them before one more look at all
//! rings. A sender that committed before the fence is found by the look; one that commits after it
//! finds the flag and rings. The same holds for space in a ring that was full.

use super::Shm;
use crate::WakeSet;
use portolan_sys::barrier;
use std::os::fd::{AsFd, AsRawFd};

impl Shm {
    pub(super) fn arm_rings(&mut self, wake: &mut WakeSet) -> bool {
        // Accepts, too: a first frame may wait behind a connection.
        self.service();
        // A pending connection has nothing that would wake us when it can be made.
        if !self.notices.is_empty() || !self.pending.is_empty() {
            return false;
        }
        self.set_flags();
        if !fence() || self.is_anything_waiting() {
            self.disarm_rings();
            return false;
        }
        wake.fds.push(self.epoll.as_fd().as_raw_fd());
        true
    }

    /// Asks senders, and receivers of full rings, to ring.
    fn set_flags(&mut self) {
        for inbound in &mut self.inbound {
            // Nothing that was consumed is kept back over a sleep.
            let bell = inbound.ring.publish();
            inbound.answer(bell);
            inbound.ring.arm();
        }
        for outbound in self.outbound.iter_mut().flatten() {
            if outbound.blocked_len.is_some() {
                outbound.ring.arm();
            }
        }
    }

    pub(super) fn disarm_rings(&mut self) {
        for inbound in &mut self.inbound {
            inbound.ring.disarm();
        }
        for outbound in self.outbound.iter_mut().flatten() {
            if outbound.blocked_len.is_some() {
                outbound.ring.disarm();
            }
        }
    }

    fn is_anything_waiting(&mut self) -> bool {
        let frames = self.inbound.iter().any(|inbound| inbound.ring.has_entry());
        let mut room = false;
        for outbound in self.outbound.iter_mut().flatten() {
            let Some(len) = outbound.blocked_len else {
                continue;
            };
            // A broken ring counts: the next transmit reports it.
            if outbound.ring.has_room(len).unwrap_or(true) {
                outbound.ring.disarm();
                // Said once; who still wants to send finds out whether it is enough.
                outbound.blocked_len = None;
                room = true;
            }
        }
        frames || room
    }
}

/// Orders our flags before our look, for all peers. Without membarrier each sender fences itself; a
/// membarrier that fails now, although it is what senders rely on, forbids to sleep.
fn fence() -> bool {
    barrier::heavy() || !barrier::register()
}
