// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking the process at the other end of a connected socket, and noticing that it is gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use std::os::fd::AsFd;

/// Bells taken off a socket in one call. Each sleep is rung once, so one is the rule; a peer that
/// floods us is read on with the next call.
const DRAIN_MAX: usize = 64;

/// What a look at the socket found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The other end is there, with so many bells taken off.
    Bells(usize),
    /// The other end is closed.
    HungUp,
}

/// Rings. A full socket buffer is as good as a ring: bells are waiting there. A closed other end is
/// noticed when it is looked at.
pub fn ring(socket: impl AsFd) {
    let _ = net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes off the bells that have been rung.
pub fn drain(socket: impl AsFd) -> Drained {
    let mut byte = [0u8];
    for bells in 0..DRAIN_MAX {
        match net::recv(socket.as_fd(), &mut byte, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Drained::HungUp,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Drained::Bells(bells),
            Err(_) => return Drained::HungUp,
        }
    }
    Drained::Bells(DRAIN_MAX)
}

/// Whether the other end is closed, whatever waits to be read.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap()
    }

    #[test]
    fn bells_are_counted_and_taken_off() {
        let (ours, theirs) = pair();
        ring(&theirs);
        ring(&theirs);
        assert_eq!(drain(&ours), Drained::Bells(2));
        assert_eq!(drain(&ours), Drained::Bells(0));
    }

    #[test]
    fn full_socket_neither_blocks_nor_fails() {
        let (ours, theirs) = pair();
        for _ in 0..100_000 {
            ring(&theirs);
        }
        assert_eq!(drain(&ours), Drained::Bells(DRAIN_MAX));
    }

    #[test]
    fn hang_up_is_seen_behind_bells() {
        let (ours, theirs) = pair();
        assert!(!is_hung_up(&ours));
        ring(&theirs);
        drop(theirs);
        assert!(is_hung_up(&ours));
        assert_eq!(drain(&ours), Drained::HungUp);
        ring(&ours);
    }
}
