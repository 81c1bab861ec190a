// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ways in which frames come in: by a ring that the kernel fills, or by a call for each.
//!
//! By the ring neither a frame nor a look costs a system call; what is called for is copied once more.

use super::{ETHERNET_LEN, HEADER_LEN, PacketConfig, ReceiveBy, frame_len_max};
use crate::{LinkError, Receiver, RxFrame};
use portolan_sys::lack::Explained;
use portolan_sys::net::{self, Interface, PacketRing};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most that the kernel books for a waiting frame, in lengths of a full one: where drivers give
/// each a page, a full frame costs three, and a short one as much.
const BOOKED_MAX: usize = 4;

/// A silent ring's socket is asked for an error once in so many times that notices are: after some
/// 10 ms of spinning.
const SILENT_ASKS: u32 = 64;

/// Where received frames are.
enum Way {
    Ring(PacketRing),
    /// Behind a system call, which copies one to the buffer.
    Call(Box<[u8]>),
}

/// What frames come in by, and what is known of those that did not.
pub(super) struct Intake {
    way: Way,
    /// Bytes of payload that wait at most, in full frames.
    pub(super) buffer_len: usize,
    /// The last look found nothing waiting.
    polled_empty: bool,
    /// Frames in a row without a look that found nothing.
    backlog: usize,
    /// With fewer than these waiting the kernel drops none.
    backlog_min: usize,
    /// The kernel may have dropped frames since it was last asked.
    may_have_dropped: bool,
    /// How often notices were asked for since something came.
    silent_asks: u32,
    /// Received frames that were refused here, to be reported as notices.
    pub(super) refused: u32,
}

/// Makes a socket by `prepare`, which is still to be bound: where a bound one gets a ring, it loses
/// frames meanwhile.
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
            log::warn!("raw Ethernet on {name} takes a call for each frame, having no ring: {why}");
        })
        .ok()
}

impl Intake {
    pub(super) fn by_ring(ring: PacketRing, mtu: usize) -> Intake {
        let slot_count = ring.slot_count();
        let buffer_len = slot_count * frame_len_max(mtu);
        // The frame that is being handed over may hold one.
        Intake::new(Way::Ring(ring), buffer_len, slot_count - 1)
    }

    fn by_calls(socket: BorrowedFd<'_>, mtu: usize) -> Intake {
        let frame_len = ETHERNET_LEN + mtu;
        let booked_len = net::receive_buffer_len(socket).unwrap_or(0);
        // The kernel books a full frame with about 1.6 times its length where drivers use 2 KiB
        // buffers, with about three times where they give each frame a page. Much shorter frames
        // cost more: at least 768 bytes each.
        let buffer_len = booked_len / 3;
        let way = Way::Call(vec![0; frame_len].into_boxed_slice());
        Intake::new(way, buffer_len, booked_len / (BOOKED_MAX * frame_len))
    }

    fn new(way: Way, buffer_len: usize, backlog_min: usize) -> Intake {
        Intake {
            way,
            buffer_len,
            polled_empty: true,
            backlog: 0,
            backlog_min: backlog_min.max(1),
            may_have_dropped: false,
            silent_asks: 0,
            refused: 0,
        }
    }

    /// Hands at most `budget` frames of `socket` to `receiver`, until it has enough, and returns how
    /// many.
    #[inline]
    pub(super) fn receive<R: Receiver + ?Sized>(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        receiver: &mut R,
    ) -> io::Result<usize> {
        match self.way {
            Way::Ring(_) => Ok(self.receive_by_ring(budget, receiver)),
            Way::Call(_) => self.receive_by_calls(socket, budget, receiver),
        }
    }

    #[inline]
    fn receive_by_ring<R: Receiver + ?Sized>(&mut self, budget: usize, receiver: &mut R) -> usize {
        let Way::Ring(ring) = &mut self.way else {
            return 0;
        };
        let (mut taken, mut refused) = (0, 0);
        let (mut is_empty, mut behind_drops) = (false, false);
        while taken < budget && (taken == 0 || !receiver.has_enough()) {
            let frame = ring.take(|frame| {
                behind_drops |= frame.behind_drops;
                hand_over(frame.bytes, frame.len, receiver)
            });
            match frame {
                Some(true) => {}
                Some(false) => refused += 1,
                None => {
                    is_empty = true;
                    break;
                }
            }
            taken += 1;
        }
        if taken > 0 {
            self.may_have_dropped |= behind_drops;
            self.note(taken, refused);
        }
        if is_empty {
            self.backlog = 0;
        }
        taken - refused
    }

    /// Stops after a frame that came right behind a look that found nothing, for the same reason
    /// as the UDP link: its answer need not wait for one more system call.
    #[inline]
    fn receive_by_calls<R: Receiver + ?Sized>(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        receiver: &mut R,
    ) -> io::Result<usize> {
        let Way::Call(buf) = &mut self.way else {
            return Ok(0);
        };
        let (mut taken, mut refused) = (0, 0);
        let mut failure = None;
        let mut is_empty = false;
        while taken < budget && (taken == 0 || !receiver.has_enough()) {
            match net::recv(socket, buf) {
                Ok(Some(len)) => {
                    taken += 1;
                    refused += usize::from(!hand_over(buf, len, receiver));
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

    /// `taken` frames have come in a row, of which `refused` were no frames.
    #[inline]
    fn note(&mut self, taken: usize, refused: usize) {
        self.silent_asks = 0;
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

    /// Frames that the kernel dropped since the last time; asks it only if so many have waited that
    /// there may be some.
    pub(super) fn drops(&mut self, socket: BorrowedFd<'_>) -> u32 {
        match std::mem::take(&mut self.may_have_dropped) {
            true => net::packet_drops(socket).unwrap_or(0),
            false => 0,
        }
    }

    /// What is wrong with the interface. A call that receives would have told; beside a ring the
    /// kernel is asked now and then, while nothing comes.
    pub(super) fn error(&mut self, socket: BorrowedFd<'_>) -> Option<io::Error> {
        let Way::Ring(_) = self.way else { return None };
        self.silent_asks = self.silent_asks.wrapping_add(1);
        match self.silent_asks.is_multiple_of(SILENT_ASKS) {
            true => net::pending_error(socket),
            false => None,
        }
    }

    /// Whether a frame waits.
    pub(super) fn has_frame(&self, socket: BorrowedFd<'_>) -> bool {
        match &self.way {
            Way::Ring(ring) => ring.has_frame(),
            Way::Call(_) => net::readiness(socket).readable,
        }
    }

    /// Whether a look costs no system call.
    pub(super) fn is_ring(&self) -> bool {
        matches!(self.way, Way::Ring(_))
    }
}

/// Hands over what stands behind the header of a frame of `len` bytes, of which `kept` has what there
/// was room for; `false` if that is not all, or nothing: the frame is refused.
#[inline]
fn hand_over<R: Receiver + ?Sized>(kept: &[u8], len: usize, receiver: &mut R) -> bool {
    let Some(head) = kept.get(HEADER_LEN..len) else {
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
