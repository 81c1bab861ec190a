// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sockets of the link: the one that everybody sends to, and, beside it with the same address, one
//! connected to the peer that is busy.
//!
//! A connected socket saves a lookup of routes at each end of a datagram's way: a tenth of a half
//! round trip. There is one at most, since each is looked at by a system call of its own; who is busy
//! is who so many frames in a row went to. The one invariant: both are looked at, so it does not
//! matter by which of them something comes.
//!
//! Of each socket is also kept how the kernel cuts what is sent by it ([`Cut`]), and when a call asks the
//! kernel for marks ([`Looks`]): what a control message with each call would say costs more.

use super::UdpConfig;
use crate::PeerId;
use portolan_sys::net::{self, SockAddr};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};

/// Place of the socket that everybody sends to, and of the one connected to the busy peer.
pub(super) const COMMON: usize = 0;
pub(super) const BUSY: usize = 1;

/// Frames in a row to a peer that make it the busy one: another socket costs as much as ten.
const FRAMES_IN_ROW: u32 = 256;

/// Looks at the busy peer's socket for one at the other, while that brings nothing: some 2 µs.
const LOOKS_MAX: u32 = 8;

/// Datagrams in a row after which the kernel is told to cut nothing: one that it might have to cut costs
/// it a page of its own, and telling costs as much as a few of those.
const DATAGRAMS_IN_ROW: u32 = 4;

/// Calls that bring something, for one of them that asks for marks, while there are none: of a queue that
/// fills up the first round trip's marks are seen so.
const CALLS_PER_LOOK: u32 = 8;

/// Calls that ask each time after one with marks: what is under way while a queue stands, of full runs.
const LOOKS_AFTER_MARK: u32 = 256;

/// Bytes of a call after which the next one asks: bulk data, for which a queue fills up.
const BULK_LEN: usize = 48 << 10;

/// How the kernel cuts what is sent. It is told by an option that stays, where it differs, and not by a
/// control message with each run, which costs the kernel some 300 ns.
#[derive(Debug, Default)]
struct Cut {
    segment_len: u16,
    /// Sent since the last run.
    datagrams_in_row: u32,
}

/// When a call asks the kernel for marks, and for the lengths of a run's datagrams: `recvmsg` with control
/// messages costs 200 to 400 ns more than `recv`.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Calls without.
    calls_left: u32,
    /// Calls with, whatever they bring.
    looks_left: u32,
}

impl Looks {
    /// Whether the next call asks.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.looks_left > 0 || self.calls_left == 0
    }

    /// A call that did not ask has brought `len` bytes.
    #[inline]
    pub(super) fn on_call(&mut self, len: usize) {
        self.calls_left = self.calls_left.saturating_sub(1);
        self.looks_left = u32::from(len >= BULK_LEN);
    }

    /// A call that asked has brought `len` bytes, with marks or without.
    #[inline]
    pub(super) fn on_look(&mut self, len: usize, marked: bool) {
        self.calls_left = CALLS_PER_LOOK - 1;
        self.looks_left = match marked {
            true => LOOKS_AFTER_MARK,
            false => self
                .looks_left
                .saturating_sub(1)
                .max(u32::from(len >= BULK_LEN)),
        };
    }
}

/// A socket, and what was found at it.
pub(super) struct Socket {
    pub(super) socket: UdpSocket,
    /// The kernel tells of marks. It is asked to when the first run arrives: it tells with each call,
    /// which costs some 40 ns, and who gets short messages alone fills no queue.
    pub(super) sees_marks: bool,
    /// The last look found nothing waiting.
    pub(super) polled_empty: bool,
    /// When the kernel is asked for marks.
    pub(super) looks: Looks,
    /// How the kernel cuts what is sent.
    cut: Cut,
    /// Its own count of drops when last read.
    drops_seen: u32,
}

impl Socket {
    pub(super) fn new(socket: UdpSocket) -> Socket {
        Socket {
            socket,
            sees_marks: false,
            polled_empty: true,
            looks: Looks::default(),
            cut: Cut::default(),
            drops_seen: 0,
        }
    }

    /// Datagrams that the kernel dropped since the last time.
    pub(super) fn drops(&mut self) -> u32 {
        let drops = net::receive_drops(self.as_fd()).unwrap_or(self.drops_seen);
        let seen = std::mem::replace(&mut self.drops_seen, drops);
        drops.wrapping_sub(seen)
    }

    /// Whether the next call asks the kernel for marks, and for the lengths of a run's datagrams.
    #[inline]
    pub(super) fn asks_for_marks(&self) -> bool {
        self.sees_marks && self.looks.is_due()
    }

    /// A run is about to be sent: has the kernel cut it into datagrams of so many bytes.
    ///
    /// # Errors
    /// What the system says.
    #[inline]
    pub(super) fn cut_run(&mut self, segment_len: u16) -> io::Result<()> {
        self.cut.datagrams_in_row = 0;
        self.set_cut(segment_len)
    }

    /// A datagram of `len` bytes is about to be sent, which is not to be cut.
    ///
    /// # Errors
    /// What the system says.
    #[inline]
    pub(super) fn cut_datagram(&mut self, len: usize) -> io::Result<()> {
        if self.cut.segment_len == 0 {
            return Ok(());
        }
        self.cut.datagrams_in_row += 1;
        let is_short = len <= usize::from(self.cut.segment_len);
        match is_short && self.cut.datagrams_in_row < DATAGRAMS_IN_ROW {
            true => Ok(()),
            false => self.set_cut(0),
        }
    }

    #[inline]
    fn set_cut(&mut self, segment_len: u16) -> io::Result<()> {
        if self.cut.segment_len != segment_len {
            net::set_segment_len(self.as_fd(), segment_len)?;
            self.cut.segment_len = segment_len;
        }
        Ok(())
    }

    /// Nothing is cut from now on, until the next run.
    pub(super) fn cut_nothing(&mut self) {
        if let Err(error) = self.set_cut(0) {
            log::debug!("the kernel goes on to cut what is sent: {error}");
        }
    }

    /// Closes one that [`open_beside`] has opened.
    pub(super) fn close_beside(self) {
        if let Err(error) = net::close_beside(self.socket) {
            log::debug!(
                "a socket connected to one peer could not be turned from it before it was closed: {error}"
            );
        }
    }
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Who is busy, and when to look where.
pub(super) struct Busy {
    /// The peer that has a socket to itself.
    peer: Option<PeerId>,
    /// Whom the last frames went to, and how many, if that is somebody else.
    other: PeerId,
    in_row: u32,
    /// Looks until the next at the common socket, and how many are between two.
    looks_left: u32,
    looks_between: u32,
}

impl Busy {
    pub(super) fn new() -> Busy {
        Busy {
            peer: None,
            other: PeerId::MAX,
            in_row: 0,
            looks_left: 0,
            looks_between: 0,
        }
    }

    /// A frame leaves for `peer`: the place of the socket that it leaves by.
    #[inline]
    pub(super) fn place_of(&mut self, peer: PeerId) -> usize {
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

    /// Whether the peer that the last frame went to should have a socket to itself.
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        self.in_row == FRAMES_IN_ROW
    }

    pub(super) fn peer(&self) -> Option<PeerId> {
        self.peer
    }

    pub(super) fn set(&mut self, peer: Option<PeerId>) {
        self.peer = peer;
        self.in_row = 0;
    }

    /// Whether to look at the common socket, too, beside the busy peer's.
    #[inline]
    pub(super) fn common_is_due(&mut self) -> bool {
        if self.looks_left > 0 {
            self.looks_left -= 1;
            return false;
        }
        true
    }

    /// The common socket, when looked at, has brought something or nothing.
    #[inline]
    pub(super) fn on_common_look(&mut self, has_brought: bool) {
        self.looks_between = match has_brought {
            true => 0,
            false => (2 * self.looks_between + 1).min(LOOKS_MAX),
        };
        self.looks_left = self.looks_between;
    }
}

/// Opens a socket beside `common` that is connected to the peer at `to`.
///
/// # Errors
/// What the system says.
pub(super) fn open_beside(
    common: &Socket,
    to: &SockAddr,
    config: &UdpConfig,
) -> io::Result<Socket> {
    net::connect_beside(&common.socket, to, |fd| super::prepare(fd, config)).map(Socket::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` calls ask, of which each brings `len` bytes.
    fn asking(looks: &mut Looks, count: usize, len: usize) -> usize {
        let asks = |_: &usize| {
            let is_due = looks.is_due();
            match is_due {
                true => looks.on_look(len, false),
                false => looks.on_call(len),
            }
            is_due
        };
        (0..count).filter(asks).count()
    }

    #[test]
    fn marks_are_asked_for_now_and_then_and_always_where_there_may_be_some() {
        let mut looks = Looks::default();
        assert_eq!(asking(&mut looks, 80, 2000), 10);
        assert!(asking(&mut looks, 80, BULK_LEN) >= 72);
        looks.on_look(2000, true);
        assert_eq!(asking(&mut looks, LOOKS_AFTER_MARK as usize, 100), 256);
        assert_eq!(asking(&mut looks, 80, 100), 10);
    }

    #[test]
    fn busy_is_who_has_most_frames_in_a_row() {
        let mut busy = Busy::new();
        for round in 0..2 * FRAMES_IN_ROW {
            assert_eq!(busy.place_of(round % 2), COMMON);
            assert!(!busy.has_changed(), "two in turn");
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
    fn common_socket_is_looked_at_less_while_it_brings_nothing() {
        let mut busy = Busy::new();
        let mut looks = |count: u32, has_brought: bool| -> u32 {
            let mut due = 0;
            for _ in 0..count {
                if busy.common_is_due() {
                    due += 1;
                    busy.on_common_look(has_brought);
                }
            }
            due
        };
        assert_eq!(looks(100, true), 100);
        assert_eq!(looks(2 + 4 + 8, false), 3);
        assert_eq!(looks(9 * 10, false), 10);
        assert_eq!(looks(10, true), 10);
    }
}
