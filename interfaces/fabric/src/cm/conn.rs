// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint and the manager of its connection both know of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use portolan::EndpointAddress;

use crate::wake::Wake;

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
    /// What wakes who sleeps on a completion queue, made for the first of them.
    wake: Mutex<Option<Wake>>,
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
        if stage >= Stage::Connected
            && let Some(wake) = &mut *self.wake.lock()
        {
            wake.ring_now();
        }
    }

    /// A descriptor that is readable when the connection is further than `seen`, or when there is news
    /// by its `socket`, which is watched from now on.
    ///
    /// # Errors
    /// For want of descriptors.
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
        self.calm(seen);
        Ok(fd)
    }

    /// The same, if somebody has opened it.
    pub(crate) fn wake_fd(&self) -> Option<RawFd> {
        self.wake.lock().as_ref().map(Wake::fd)
    }

    /// Wake nobody for what was seen; for what has come after it, on.
    pub(crate) fn calm(&self, seen: Stage) {
        if let Some(wake) = &mut *self.wake.lock() {
            wake.arm();
            if self.stage() > seen.max(Stage::Asking) {
                wake.ring_now();
            }
        }
    }

    /// Wake who sleeps for news by the socket, too.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub(super) fn watch(&self, socket: impl AsFd) -> io::Result<()> {
        let watched = |wake: &Wake| wake.watch(socket.as_fd().as_raw_fd());
        self.wake.lock().as_ref().map_or(Ok(()), watched)
    }

    /// The socket is closed after this.
    pub(super) fn forget(&self, socket: impl AsFd) {
        if let Some(wake) = &*self.wake.lock() {
            wake.forget(socket.as_fd().as_raw_fd());
        }
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
