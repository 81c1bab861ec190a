// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping without missing a frame, and waking.
//!
//! The flags of all rings are set first; then one fence orders them before a final poll of all
//! rings. A sender that committed before the fence is found by that poll. A sender that commits
//! after the fence finds the flag and rings. The same applies to space in a full ring.

use super::Shm;
use crate::WakeSet;
use portolan_sys::barrier;
use std::os::fd::{AsFd, AsRawFd};

impl Shm {
    pub(super) fn arm_rings(&mut self, wake: &mut WakeSet) -> bool {
        // This also accepts connections: a first frame may wait behind one.
        self.service();
        // No event wakes this process when a pending connection becomes possible.
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

    /// Requests doorbells from senders, and from receivers of full rings.
    fn set_flags(&mut self) {
        for inbound in &mut self.inbound {
            // Consumed space must be returned before sleeping.
            let bell = inbound.ring.publish();
            inbound.notify(bell);
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
        let mut has_space = false;
        for outbound in self.outbound.iter_mut().flatten() {
            let Some(len) = outbound.blocked_len else {
                continue;
            };
            // A broken ring counts as space: the next transmit reports it.
            if outbound.ring.has_space(len).unwrap_or(true) {
                outbound.ring.disarm();
                // Reported once; the next send finds out if the space suffices.
                outbound.blocked_len = None;
                has_space = true;
            }
        }
        frames || has_space
    }
}

/// Orders our flags before the final poll, for all peers. Without membarrier, each sender issues
/// its own fence. If membarrier fails now although senders rely on it, sleeping is forbidden.
fn fence() -> bool {
    barrier::heavy() || !barrier::register()
}
