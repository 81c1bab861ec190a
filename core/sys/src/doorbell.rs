// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking the process at the other end of a connected socket, and detecting that it has left.

use crate::shortage::Shortage;
use crate::usage::{self, Call};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use std::os::fd::AsFd;

/// Doorbells read in one call. Each sleep is rung once, so one is typical. The rest of a flood is
/// read by the next call.
const DRAIN_MAX: usize = 64;

/// Record types: doorbell, farewell, and the prefix of a shortage.
const BELL: u8 = 1;
const FAREWELL: u8 = 2;
const SHORTAGE: u8 = 3;

/// Bytes of the longest record, and one to detect a longer one.
const RECORD_LEN: usize = 1 + Shortage::LEN + 1;

/// Result of draining a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The other end is open; this many doorbells were read.
    Bells(usize),
    /// The process at the other end reports a shortage; more records may wait.
    Shortage(Shortage),
    /// The other end is being closed by a live process.
    Farewell,
    /// The other end is closed.
    HungUp,
}

/// Rings the doorbell. With a full socket buffer, doorbells are waiting already. A closed other end
/// is detected by the next [`drain`].
pub fn ring(socket: impl AsFd) {
    send(socket, &[BELL]);
}

/// Reports that this end is about to be closed by a live process. If this is missing, or does not
/// fit, the other end assumes that the process died.
pub fn bid_farewell(socket: impl AsFd) {
    send(socket, &[FAREWELL]);
}

/// Reports a shortage in this process. `P8.13`
pub fn report_shortage(socket: impl AsFd, shortage: &Shortage) {
    let mut record = [SHORTAGE; 1 + Shortage::LEN];
    record[1..].copy_from_slice(&shortage.encode());
    send(socket, &record);
}

fn send(socket: impl AsFd, record: &[u8]) {
    usage::count_call(Call::Sendto);
    let _ = net::send(socket, record, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Reads the waiting records up to the first that is not a doorbell.
pub fn drain(socket: impl AsFd) -> Drained {
    let mut record = [0u8; RECORD_LEN];
    for bells in 0..DRAIN_MAX {
        usage::count_call(Call::Recvfrom);
        match net::recv(socket.as_fd(), &mut record, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Drained::HungUp,
            Ok(_) if record[0] == FAREWELL => return Drained::Farewell,
            Ok((len, _)) if record[0] == SHORTAGE => {
                if let Some(shortage) = record.get(1..len).and_then(Shortage::decode) {
                    return Drained::Shortage(shortage);
                }
            }
            // A reset means that the other end left doorbells unread; it is returned before the
            // data that the other end sent.
            Ok(_) | Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return Drained::Bells(bells),
            Err(_) => return Drained::HungUp,
        }
    }
    Drained::Bells(DRAIN_MAX)
}

/// Returns `true` if the other end is closed, even if data is waiting.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    usage::count_call(Call::Poll);
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(closed)
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
    fn drain_counts_and_removes_bells() {
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
    fn farewell_is_distinguished_from_hang_up_with_unread_bells() {
        let (ours, theirs) = pair();
        ring(&ours);
        ring(&theirs);
        bid_farewell(&theirs);
        assert_eq!(drain(&ours), Drained::Farewell);
        let (ours, theirs) = pair();
        ring(&ours);
        bid_farewell(&theirs);
        drop(theirs);
        assert_eq!(drain(&ours), Drained::Farewell);
        assert_eq!(drain(&ours), Drained::HungUp);
    }

    #[test]
    fn shortage_is_read_in_order_and_garbage_is_ignored() {
        let (ours, theirs) = pair();
        let shortage = Shortage::memory();
        ring(&theirs);
        report_shortage(&theirs, &shortage);
        bid_farewell(&theirs);
        drop(theirs);
        assert_eq!(drain(&ours), Drained::Shortage(shortage));
        assert_eq!(drain(&ours), Drained::Farewell);
        let (ours, theirs) = pair();
        for garbage in [
            &[SHORTAGE][..],
            &[SHORTAGE, 200],
            &[SHORTAGE; 9],
            &[SHORTAGE; 4000],
        ] {
            send(&theirs, garbage);
        }
        assert_eq!(drain(&ours), Drained::Bells(4));
    }

    #[test]
    fn hang_up_is_detected_behind_bells() {
        let (ours, theirs) = pair();
        assert!(!is_hung_up(&ours));
        ring(&theirs);
        drop(theirs);
        assert!(is_hung_up(&ours));
        assert_eq!(drain(&ours), Drained::HungUp);
        ring(&ours);
    }
}
