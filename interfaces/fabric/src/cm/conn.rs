// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a connection that its endpoint shares with the manager.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use portolan::binding::EndpointAddress;

use crate::wake::Wake;

/// Stage of a connection. It only advances.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// No request was sent.
    #[default]
    Idle,
    /// A request was sent; the reply is pending.
    Requesting,
    /// Both sides have agreed.
    Connected,
    /// The connection has ended, or was never established.
    Closed,
}

/// A connection.
#[derive(Default)]
pub(crate) struct Conn {
    stage: AtomicU8,
    peer: OnceLock<EndpointAddress>,
    /// Local and remote address of the TCP connection.
    ends: Mutex<(Option<SocketAddr>, Option<SocketAddr>)>,
    /// Wakes threads that sleep on a completion queue. Created for the first sleeper.
    wake: Mutex<Option<Wake>>,
}

impl Conn {
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        // SYNC: conn-stage. Makes all writes before the stage was set visible.
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Idle,
            1 => Stage::Requesting,
            2 => Stage::Connected,
            _ => Stage::Closed,
        }
    }

    /// Advances the stage. An earlier stage has no effect.
    pub(super) fn advance(&self, stage: Stage) {
        // SYNC: conn-stage.
        self.stage.fetch_max(stage as u8, Ordering::Release);
        if stage >= Stage::Connected
            && let Some(wake) = &mut *self.wake.lock()
        {
            wake.notify_now();
        }
    }

    /// Returns a descriptor that is readable when the connection has advanced beyond `seen`, or
    /// when its `socket` is ready. The socket is watched from now on.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(crate) fn open_wake(
        &self,
        seen: Stage,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<RawFd> {
        let wake = Wake::new()?;
        if let Some(socket) = socket {
            wake.watch(socket.as_raw_fd())?;
        }
        let fd = wake.fd();
        *self.wake.lock() = Some(wake);
        self.clear_wake(seen);
        Ok(fd)
    }

    /// Returns the same descriptor, if it was opened.
    pub(crate) fn wake_fd(&self) -> Option<RawFd> {
        self.wake.lock().as_ref().map(Wake::fd)
    }

    /// Clears the wake-up for stages up to `seen`. A later stage still wakes the sleeper.
    pub(crate) fn clear_wake(&self, seen: Stage) {
        if let Some(wake) = &mut *self.wake.lock() {
            wake.arm();
            if self.stage() > seen.max(Stage::Requesting) {
                wake.notify_now();
            }
        }
    }

    /// Also wakes the sleeper when `socket` is ready.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    pub(super) fn watch(&self, socket: impl AsFd) -> io::Result<()> {
        let watched = |wake: &Wake| wake.watch(socket.as_fd().as_raw_fd());
        self.wake.lock().as_ref().map_or(Ok(()), watched)
    }

    /// Stops watching `socket`, which the caller closes next.
    pub(super) fn forget(&self, socket: impl AsFd) {
        if let Some(wake) = &*self.wake.lock() {
            wake.forget(socket.as_fd().as_raw_fd());
        }
    }

    /// Returns the peer's endpoint, once the connection is established.
    pub(crate) fn peer(&self) -> Option<EndpointAddress> {
        self.peer.get().copied()
    }

    pub(super) fn connect(&self, peer: EndpointAddress) {
        // Set once in the life of a connection.
        let _ = self.peer.set(peer);
        self.advance(Stage::Connected);
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.ends.lock().0
    }

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
    fn closed_connection_stays_closed() {
        let conn = Conn::default();
        for stage in [Stage::Requesting, Stage::Closed, Stage::Connected] {
            conn.advance(stage);
        }
        assert_eq!(conn.stage(), Stage::Closed);
    }
}
