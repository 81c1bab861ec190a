// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint and the manager of its connection both know of it.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use portolan::EndpointAddress;

/// How far a connection is. It only goes forward.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// Nobody was asked.
    #[default]
    Idle,
    /// The peer was asked, and has not answered.
    Asking,
    /// Both have agreed.
    Connected,
    /// It has ended, or never came to be.
    Over,
}

/// A connection.
#[derive(Default)]
pub(crate) struct Conn {
    stage: AtomicU8,
    peer: OnceLock<EndpointAddress>,
    /// The addresses of the TCP connection: ours, and the peer's.
    ends: Mutex<(Option<SocketAddr>, Option<SocketAddr>)>,
}

impl Conn {
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        // SYNC: conn-stage. What was written before the stage was set is seen.
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Idle,
            1 => Stage::Asking,
            2 => Stage::Connected,
            _ => Stage::Over,
        }
    }

    /// Go forward, never back.
    pub(super) fn advance(&self, stage: Stage) {
        // SYNC: conn-stage.
        self.stage.fetch_max(stage as u8, Ordering::Release);
    }

    /// The peer's endpoint, once there is a connection.
    pub(crate) fn peer(&self) -> Option<EndpointAddress> {
        self.peer.get().copied()
    }

    pub(super) fn connect(&self, peer: EndpointAddress) {
        // Said once in the life of a connection.
        let _ = self.peer.set(peer);
        self.advance(Stage::Connected);
    }

    /// The address of this end, as far as it is known.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.ends.lock().0
    }

    /// The address of the other end.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.ends.lock().1
    }

    pub(crate) fn set_local(&self, local: Option<SocketAddr>) {
        self.ends.lock().0 = local;
    }

    pub(crate) fn set_remote(&self, remote: Option<SocketAddr>) {
        self.ends.lock().1 = remote;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_over_stays_so() {
        let conn = Conn::default();
        for stage in [Stage::Asking, Stage::Over, Stage::Connected] {
            conn.advance(stage);
        }
        assert_eq!(conn.stage(), Stage::Over);
    }
}
