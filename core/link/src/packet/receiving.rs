// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two methods of receiving frames: from a ring that the kernel fills, or by one call per
//! frame.
//!
//! With the ring, neither a frame nor an empty poll costs a system call. Receiving by calls costs
//! one more copy.

use super::{HEADER_LEN, PacketConfig, ReceiveBy, frame_len_max};
use crate::ethernet::ETHERNET_LEN;
use crate::{LinkError, Receiver, RxFrame};
use portolan_sys::net::{self, Interface, PacketRing};
use portolan_sys::shortage::Explained;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum memory that the kernel charges for a waiting frame, in lengths of a full frame. With
/// drivers that give each frame a page, a full frame costs three, and a short one as much.
const CHARGED_MAX: usize = 4;

/// Polls for notices of a silent ring per check of its socket for an error: after about 10 ms of
/// spinning.
const POLLS_PER_CHECK: u32 = 64;

/// Location of received frames.
enum Method {
    Ring(PacketRing),
    /// Copied into this buffer by one system call each.
    Call(Box<[u8]>),
}

/// Receive state, with the counters of dropped frames.
pub(super) struct Intake {
    method: Method,
    /// Bytes of payload that can wait, in full frames.
    pub(super) buffer_len: usize,
    /// Set if the last poll found nothing.
    polled_empty: bool,
    /// Frames in a row without an empty poll.
    backlog: usize,
    /// Waiting frames below which the kernel drops none.
    backlog_min: usize,
    /// Set if the kernel may have dropped frames since the last check.
    may_have_dropped: bool,
    /// Polls for notices since the last frame.
    idle_polls: u32,
    /// Received frames refused by this link, to be reported as notices.
    pub(super) refused: u32,
}

/// Creates a socket with `prepare` and attaches its ring; the caller binds it afterwards. A bound
/// socket would lose frames while it gets a ring.
pub(super) fn open(
    config: &PacketConfig,
    interface: &Interface,
    prepare: &dyn Fn() -> Result<OwnedFd, LinkError>,
) -> Result<(OwnedFd, Intake), LinkError> {
    if config.receive_by == ReceiveBy::Ring {
        let socket = prepare()?;
        if let Some(ring) = attach(config, interface, socket.as_fd()) {
            return Ok((socket, Intake::by_ring(ring, interface.mtu)));
        }
    }
    let socket = prepare()?;
    let intake = Intake::by_calls(socket.as_fd(), interface.mtu);
    Ok((socket, intake))
}

fn attach(
    config: &PacketConfig,
    interface: &Interface,
    socket: BorrowedFd<'_>,
) -> Option<PacketRing> {
    let frame_len = ETHERNET_LEN + interface.mtu;
    PacketRing::attach(socket, frame_len, config.receive_buffer_len)
        .inspect_err(|error| {
            let (name, why) = (&interface.name, Explained(error, None));
            log::warn!(
                "raw Ethernet on {name} has no receive ring, so each frame costs a system call: {why}"
            );
        })
        .ok()
}

impl Intake {
    pub(super) fn by_ring(ring: PacketRing, mtu: usize) -> Intake {
        let slot_count = ring.slot_count();
        let buffer_len = slot_count * frame_len_max(mtu);
        // The frame being delivered may occupy one slot.
        Intake::new(Method::Ring(ring), buffer_len, slot_count - 1)
    }

    fn by_calls(socket: BorrowedFd<'_>, mtu: usize) -> Intake {
        let frame_len = ETHERNET_LEN + mtu;
        let charged_len = net::receive_buffer_len(socket).unwrap_or(0);
        // The kernel charges a full frame with about 1.6 times its length where drivers use 2 KiB
        // buffers, and about three times where they give each frame a page. Much shorter frames
        // cost more: at least 768 bytes each.
        let buffer_len = charged_len / 3;
        let method = Method::Call(vec![0; frame_len].into_boxed_slice());
        Intake::new(method, buffer_len, charged_len / (CHARGED_MAX * frame_len))
    }

    fn new(method: Method, buffer_len: usize, backlog_min: usize) -> Intake {
        Intake {
            method,
            buffer_len,
            polled_empty: true,
            backlog: 0,
            backlog_min: backlog_min.max(1),
            may_have_dropped: false,
            idle_polls: 0,
            refused: 0,
        }
    }

    /// Delivers at most `budget` frames of `socket` to `receiver`, until it has enough. Returns
    /// their number.
    #[inline]
    pub(super) fn receive<R: Receiver + ?Sized>(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        receiver: &mut R,
    ) -> io::Result<usize> {
        match self.method {
            Method::Ring(_) => Ok(self.receive_by_ring(budget, receiver)),
            Method::Call(_) => self.receive_by_calls(socket, budget, receiver),
        }
    }

    #[inline]
    fn receive_by_ring<R: Receiver + ?Sized>(&mut self, budget: usize, receiver: &mut R) -> usize {
        let Method::Ring(ring) = &mut self.method else {
            return 0;
        };
        let (mut taken, mut refused) = (0, 0);
        let mut is_empty = false;
        while taken < budget && (taken == 0 || !receiver.has_enough()) {
            let frame = ring.take(|frame| {
                self.may_have_dropped |= frame.behind_drops;
                deliver(frame.bytes, frame.len, receiver)
            });
            let Some(is_valid) = frame else {
                is_empty = true;
                break;
            };
            taken += 1;
            refused += usize::from(!is_valid);
        }
        if taken > 0 {
            self.note(taken, refused);
        }
        if is_empty {
            self.backlog = 0;
        }
        taken - refused
    }

    /// Stops after a frame that followed an empty poll, as the UDP link does: its reply need not
    /// wait for one more system call.
    #[inline]
    fn receive_by_calls<R: Receiver + ?Sized>(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        receiver: &mut R,
    ) -> io::Result<usize> {
        let Method::Call(buf) = &mut self.method else {
            return Ok(0);
        };
        let (mut taken, mut refused) = (0, 0);
        let mut failure = None;
        let mut is_empty = false;
        while taken < budget && (taken == 0 || !receiver.has_enough()) {
            match net::recv(socket, buf) {
                Ok(Some(len)) => {
                    taken += 1;
                    refused += usize::from(!deliver(buf, len, receiver));
                    if std::mem::replace(&mut self.polled_empty, false) {
                        break;
                    }
                }
                Ok(None) => {
                    is_empty = true;
                    break;
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if taken > 0 {
            self.note(taken, refused);
        }
        if is_empty {
            self.polled_empty = true;
            self.backlog = 0;
        }
        match failure {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(taken - refused),
        }
    }

    /// Counts `taken` consecutive frames, `refused` of which were invalid.
    #[inline]
    fn note(&mut self, taken: usize, refused: usize) {
        self.idle_polls = 0;
        self.backlog += taken;
        if self.backlog >= self.backlog_min {
            self.backlog = 0;
            self.may_have_dropped = true;
        }
        if refused > 0 {
            let refused = u32::try_from(refused).unwrap_or(u32::MAX);
            self.refused = self.refused.saturating_add(refused);
        }
    }

    /// Returns the frames that the kernel dropped since the last call. Makes the system call only
    /// if enough frames waited for a drop to be possible.
    pub(super) fn drops(&mut self, socket: BorrowedFd<'_>) -> u32 {
        match std::mem::take(&mut self.may_have_dropped) {
            true => net::packet_drops(socket).unwrap_or(0),
            false => 0,
        }
    }

    /// Returns an error of the interface. A receive call reports it itself; with a ring the socket
    /// is checked from time to time while no frames arrive.
    pub(super) fn error(&mut self, socket: BorrowedFd<'_>) -> Option<io::Error> {
        let Method::Ring(_) = self.method else {
            return None;
        };
        self.idle_polls = self.idle_polls.wrapping_add(1);
        match self.idle_polls.is_multiple_of(POLLS_PER_CHECK) {
            true => net::pending_error(socket),
            false => None,
        }
    }

    /// Returns `true` if a frame is waiting.
    pub(super) fn has_frame(&self, socket: BorrowedFd<'_>) -> bool {
        match &self.method {
            Method::Ring(ring) => ring.has_frame(),
            Method::Call(_) => net::readiness(socket).readable,
        }
    }

    /// Returns `true` if a poll costs no system call.
    pub(super) fn is_ring(&self) -> bool {
        matches!(self.method, Method::Ring(_))
    }
}

/// Delivers the bytes behind the header of a frame of `len` bytes, of which `captured` holds the
/// captured part. Returns `false` for a truncated or too short frame, which is refused.
#[inline]
fn deliver<R: Receiver + ?Sized>(captured: &[u8], len: usize, receiver: &mut R) -> bool {
    let Some(head) = captured.get(HEADER_LEN..len) else {
        return false;
    };
    receiver.frame(RxFrame {
        from: None,
        head,
        body: None,
        marked: false,
    });
    true
}
