// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's services for a simulation, which sleeps, wakes and delivers probes in virtual time.

use super::{Engine, Inner};
use portolan_link::WakeSet;
use portolan_sys::gate::Gate;
use std::net::SocketAddr;
use std::time::Duration;

impl Engine {
    /// Puts the engine behind a gate without a helper thread.
    pub(crate) fn unguarded(self) -> Gate<Engine> {
        Gate::without_thread(self)
    }

    /// Prepares to sleep, as a waiter does. Returns the longest sleep; `None`, with nothing armed, if
    /// there is work already.
    pub(crate) fn fall_asleep(&mut self) -> Option<Duration> {
        let now = self.inner.read_clock();
        let after = self.arm(&mut WakeSet::default(), now);
        if after.is_none() {
            self.links.disarm();
        }
        after
    }

    /// Handles a datagram of a liveness probe, as the liveness thread does.
    pub(crate) fn receive_probe(&self, bytes: &[u8], from: SocketAddr) {
        if let Some(liveness) = &self.liveness {
            liveness.receive(bytes, from);
        }
    }

    /// Handles the refusal of a datagram that was sent to `destination`.
    pub(crate) fn receive_refusal(&self, quoted: &[u8], destination: SocketAddr) {
        if let Some(liveness) = &self.liveness {
            liveness.receive_refusal(quoted, destination);
        }
    }
}

/// Memory in use, by number of pieces. All are zero once nothing is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Frame buffers.
    pub frames: usize,
    /// Bytes of held messages.
    pub held_len: usize,
    /// Transfers.
    pub transfers: usize,
    /// Operations that have not ended.
    pub operations: usize,
}

impl Inner {
    /// Returns the memory in use, for checks of a simulation.
    pub(crate) fn in_use(&self) -> InUse {
        let (frames, held_len, transfers) = self.core.usage();
        InUse {
            frames,
            held_len,
            transfers,
            operations: self.ops.pending().count(),
        }
    }
}
