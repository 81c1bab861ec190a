// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of the link: the common one, to which all peers send, and one with the same address that
//! is connected to the busy peer.
//!
//! A connected socket saves a route lookup at each end of a datagram's path, a tenth of a half
//! round trip. There is at most one, because each socket needs a system call of its own to poll.
//! The busy peer is the one to which many frames in a row were sent. Invariant: both sockets are
//! polled, so a datagram may arrive at either.
//!
//! Each socket also records how the kernel cuts outgoing data ([`Segmentation`]), and when a call requests
//! congestion marks ([`MarkSchedule`]). A control message with each call would cost more.

use super::UdpConfig;
use crate::PeerId;
use portolan_sys::net::{self, SockAddr};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};

/// Indices of the common socket and of the busy peer's socket.
pub(super) const COMMON: usize = 0;
pub(super) const BUSY: usize = 1;

/// Frames in a row to a peer that make it the busy one. Opening another socket costs as much as
/// sending ten.
const FRAMES_IN_ROW: u32 = 256;

/// Maximum number of polls of the busy peer's socket per poll of the common one while that is
/// empty: about 2 µs.
const SKIPPED_POLLS_MAX: u32 = 8;

/// Datagrams in a row after which the kernel's segmentation is switched off. A datagram that might
/// be cut costs the kernel a page of its own; switching costs as much as a few such datagrams.
const DATAGRAMS_IN_ROW: u32 = 4;

/// Calls that receive data per call that requests marks, while there are none. The first round trip
/// of a growing queue is detected this way.
const CALLS_PER_REQUEST: u32 = 8;

/// Calls after a mark that all request marks: the full runs in flight while a queue persists.
const REQUESTS_AFTER_MARK: u32 = 256;

/// Bytes received by a call after which the next one requests marks: bulk data, which fills queues.
const BULK_LEN: usize = 48 << 10;

/// Segmentation state of a socket. The segment length is a socket option, changed only when it
/// differs, instead of a control message with each run, which costs the kernel about 300 ns.
#[derive(Debug, Default)]
struct Segmentation {
    segment_len: u16,
    /// Datagrams sent since the last run.
    datagrams_in_row: u32,
}

/// Schedule of the calls that request marks and the lengths of a run's datagrams. `recvmsg` with
/// control messages costs 200 to 400 ns more than `recv`.
#[derive(Debug, Default)]
pub(super) struct MarkSchedule {
    /// Remaining calls without a request.
    calls_left: u32,
    /// Remaining calls with a request, whatever they return.
    requests_left: u32,
}

impl MarkSchedule {
    /// Returns `true` if the next call requests marks.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.requests_left > 0 || self.calls_left == 0
    }

    /// Records that a call without a request received `len` bytes.
    #[inline]
    pub(super) fn on_call(&mut self, len: usize) {
        self.calls_left = self.calls_left.saturating_sub(1);
        self.requests_left = u32::from(len >= BULK_LEN);
    }

    /// Records that a call with a request received `len` bytes, with or without marks.
    #[inline]
    pub(super) fn on_request(&mut self, len: usize, marked: bool) {
        self.calls_left = CALLS_PER_REQUEST - 1;
        self.requests_left = match marked {
            true => REQUESTS_AFTER_MARK,
            false => self
                .requests_left
                .saturating_sub(1)
                .max(u32::from(len >= BULK_LEN)),
        };
    }
}

/// A socket with its state.
pub(super) struct Socket {
    pub(super) socket: UdpSocket,
    /// Set if the kernel reports marks. Reporting is enabled when the first run arrives: it costs
    /// about 40 ns per call, and a process that receives only short messages fills no queue.
    pub(super) reports_marks: bool,
    /// Set if the last poll found nothing.
    pub(super) polled_empty: bool,
    /// Schedule of requests for marks.
    pub(super) mark_schedule: MarkSchedule,
    /// Segmentation state.
    segmentation: Segmentation,
    /// Kernel's drop count when last read.
    drops_seen: u32,
}

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> Socket {
        Socket {
            socket,
            reports_marks: false,
            polled_empty: true,
            mark_schedule: MarkSchedule::default(),
            segmentation: Segmentation::default(),
            drops_seen: 0,
        }
    }

    /// Returns the datagrams that the kernel dropped since the last call.
    pub(super) fn drops(&mut self) -> u32 {
        let drops = net::receive_drops(self.as_fd()).unwrap_or(self.drops_seen);
        let seen = std::mem::replace(&mut self.drops_seen, drops);
        drops.wrapping_sub(seen)
    }

    /// Returns `true` if the next call requests marks and the lengths of a run's datagrams.
    #[inline]
    pub(super) fn requests_marks(&self) -> bool {
        self.reports_marks && self.mark_schedule.is_due()
    }

    /// Prepares to send a run: makes the kernel cut it into datagrams of `segment_len` bytes.
    #[inline]
    pub(super) fn cut_run(&mut self, segment_len: u16) -> io::Result<()> {
        self.segmentation.datagrams_in_row = 0;
        self.set_cut(segment_len)
    }

    /// Prepares to send a datagram of `len` bytes, which must not be cut.
    #[inline]
    pub(super) fn cut_datagram(&mut self, len: usize) -> io::Result<()> {
        if self.segmentation.segment_len == 0 {
            return Ok(());
        }
        self.segmentation.datagrams_in_row += 1;
        let is_short = len <= usize::from(self.segmentation.segment_len);
        match is_short && self.segmentation.datagrams_in_row < DATAGRAMS_IN_ROW {
            true => Ok(()),
            false => self.set_cut(0),
        }
    }

    #[inline]
    fn set_cut(&mut self, segment_len: u16) -> io::Result<()> {
        if self.segmentation.segment_len != segment_len {
            net::set_segment_len(self.as_fd(), segment_len)?;
            self.segmentation.segment_len = segment_len;
        }
        Ok(())
    }

    /// Switches segmentation off until the next run.
    pub(super) fn cut_nothing(&mut self) {
        if let Err(error) = self.set_cut(0) {
            log::debug!("cannot switch off segmentation: {error}");
        }
    }

    /// Closes a socket opened by [`open_connected`].
    pub(super) fn close_connected(self) {
        if let Err(error) = net::close_connected(self.socket) {
            log::debug!("cannot redirect a connected socket before closing it: {error}");
        }
    }
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Choice of the busy peer, and schedule of polls of the common socket.
pub(super) struct BusyPeer {
    /// The busy peer.
    peer: Option<PeerId>,
    /// Destination of the last frames, if it is not the busy peer, and their number.
    other: PeerId,
    in_row: u32,
    /// Polls until the common socket is polled again, and the interval between two.
    skips_left: u32,
    skips_between: u32,
    /// Set if a frame was sent to any peer since the last [`BusyPeer::take_sent`].
    has_sent: bool,
}

impl BusyPeer {
    pub(super) fn new() -> BusyPeer {
        BusyPeer {
            peer: None,
            other: PeerId::MAX,
            in_row: 0,
            skips_left: 0,
            skips_between: 0,
            has_sent: false,
        }
    }

    /// Records a frame to `peer` and returns the index of the socket to send by.
    #[inline]
    pub(super) fn place_of(&mut self, peer: PeerId) -> usize {
        self.has_sent = true;
        if self.peer == Some(peer) {
            self.in_row = 0;
            return BUSY;
        }
        if self.other != peer {
            (self.other, self.in_row) = (peer, 0);
        }
        self.in_row = self.in_row.saturating_add(1);
        COMMON
    }

    /// Returns `true` if the peer of the last frame should become the busy one.
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        self.in_row == FRAMES_IN_ROW
    }

    /// Returns `true` if a frame was sent since the last call.
    pub(super) fn take_sent(&mut self) -> bool {
        std::mem::take(&mut self.has_sent)
    }

    pub(super) fn peer(&self) -> Option<PeerId> {
        self.peer
    }

    pub(super) fn set(&mut self, peer: Option<PeerId>) {
        self.peer = peer;
        self.in_row = 0;
    }

    /// Returns `true` if the common socket must be polled in addition to the busy peer's.
    #[inline]
    pub(super) fn common_is_due(&mut self) -> bool {
        if self.skips_left > 0 {
            self.skips_left -= 1;
            return false;
        }
        true
    }

    /// Records that a poll of the common socket found data or nothing.
    #[inline]
    pub(super) fn on_common_poll(&mut self, has_data: bool) {
        self.skips_between = match has_data {
            true => 0,
            false => (2 * self.skips_between + 1).min(SKIPPED_POLLS_MAX),
        };
        self.skips_left = self.skips_between;
    }
}

/// Opens a second socket with the address of `common`, connected to the peer at `to`.
///
/// # Errors
/// Returns the error of the system call.
pub(super) fn open_connected(
    common: &Socket,
    to: &SockAddr,
    config: &UdpConfig,
) -> io::Result<Socket> {
    net::open_connected(&common.socket, to, |fd| super::prepare(fd, config)).map(Socket::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `count` calls request marks if each receives `len` bytes.
    fn request_count(schedule: &mut MarkSchedule, count: usize, len: usize) -> usize {
        let requests = |_: &usize| {
            let is_due = schedule.is_due();
            match is_due {
                true => schedule.on_request(len, false),
                false => schedule.on_call(len),
            }
            is_due
        };
        (0..count).filter(requests).count()
    }

    #[test]
    fn marks_are_requested_periodically_and_after_bulk_or_marks() {
        let mut schedule = MarkSchedule::default();
        assert_eq!(request_count(&mut schedule, 80, 2000), 10);
        assert!(request_count(&mut schedule, 80, BULK_LEN) >= 72);
        schedule.on_request(2000, true);
        assert_eq!(
            request_count(&mut schedule, REQUESTS_AFTER_MARK as usize, 100),
            256
        );
        assert_eq!(request_count(&mut schedule, 80, 100), 10);
    }

    #[test]
    fn peer_with_many_consecutive_frames_becomes_busy() {
        let mut busy = BusyPeer::new();
        for round in 0..2 * FRAMES_IN_ROW {
            assert_eq!(busy.place_of(round % 2), COMMON);
            assert!(!busy.has_changed(), "two alternating peers");
        }
        for _ in 0..FRAMES_IN_ROW {
            assert!(!busy.has_changed());
            assert_eq!(busy.place_of(7), COMMON);
        }
        assert!(busy.has_changed());
        busy.set(Some(7));
        assert!(!busy.has_changed());
        assert_eq!((busy.place_of(7), busy.place_of(1)), (BUSY, COMMON));
    }

    #[test]
    fn common_socket_is_polled_less_while_empty() {
        let mut busy = BusyPeer::new();
        let mut schedule = |count: u32, has_data: bool| -> u32 {
            let mut due = 0;
            for _ in 0..count {
                if busy.common_is_due() {
                    due += 1;
                    busy.on_common_poll(has_data);
                }
            }
            due
        };
        assert_eq!(schedule(100, true), 100);
        assert_eq!(schedule(2 + 4 + 8, false), 3);
        assert_eq!(schedule(9 * 10, false), 10);
        assert_eq!(schedule(10, true), 10);
    }
}
