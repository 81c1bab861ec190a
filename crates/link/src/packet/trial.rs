// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trial, when a link is opened, of what a frame costs by each way of receiving.
//!
//! The socket is bound to the loopback for it and sends frames to itself: they take the kernel's whole
//! way but for the driver, and nobody else hears them, since no other process has this endpoint. What
//! it does not show is what frames cost that come from another core.

use super::{ETHER_TYPE, HEADER_LEN, header};
use portolan_sys::net::{self, MacAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Frames by each way, which takes 0.2 ms. What their fastest quarter takes is steady; others wait for
/// what else the machine does.
const ROUNDS: usize = 64;

/// Looks for a frame. The loopback delivers within the call that sends, or soon after where the kernel
/// puts it off.
const LOOKS_MAX: usize = 10_000;

/// Bytes of a frame, its header counted: a short message.
const FRAME_LEN: usize = HEADER_LEN + 64;

/// See the module documentation.
pub(super) struct Trial {
    frame: [u8; FRAME_LEN],
}

impl Trial {
    /// Binds `socket`, which belongs to `endpoint`, to the interface number `loopback`; `None` if that
    /// cannot be.
    pub(super) fn begin(socket: BorrowedFd<'_>, loopback: u32, endpoint: u16) -> Option<Trial> {
        net::bind_packet(socket, loopback, ETHER_TYPE).ok()?;
        // The loopback's own address is all zeroes.
        let mac = MacAddr([0; 6]);
        let mut frame = [0; FRAME_LEN];
        frame[..HEADER_LEN].copy_from_slice(&header(mac, endpoint, mac, endpoint));
        Some(Trial { frame })
    }

    /// The cost of a frame that `take` takes, from sending to having it, with what it waits
    /// on average for the end of a look in vain that it comes during; `None` if a frame fails to
    /// arrive.
    pub(super) fn cost(
        &self,
        socket: BorrowedFd<'_>,
        mut take: impl FnMut() -> bool,
    ) -> Option<Duration> {
        let mut costs = [Duration::ZERO; ROUNDS];
        for cost in &mut costs {
            let begin = Instant::now();
            let stray = take();
            let looked = Instant::now();
            net::send(socket, &self.frame).ok()?;
            let has_come = (0..LOOKS_MAX).any(|_| take());
            if stray || !has_come {
                return None;
            }
            *cost = looked.elapsed() + (looked - begin) / 2;
        }
        costs.sort_unstable();
        Some(costs[ROUNDS / 4])
    }
}
