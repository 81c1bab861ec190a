// SPDX-License-Identifier: MIT OR Apache-2.0
//! Second socket of the UDP link, for peers with addresses of the other family, such as IPv6 second
//! IPv4.
//!
//! This is another UDP link with the same port. With one socket for both families, the kernel would
//! search a route for each datagram to an IPv4 address, even on a connected socket (`udpv6_sendmsg`
//! of net/ipv6/udp.c).
//!
//! Invariant: a peer is connected on at most one of the two.

use super::{Udp, UdpConfig};
use crate::{Link, LinkAddr, LinkError, Notice, PeerId, Receiver, TxError, TxFrame, WakeSet};
use std::io;
use std::net::IpAddr;

/// Ports to try until one is free in both families. The other processes of a host use hundreds of
/// 28,000 ports.
const PORTS_TRIED: usize = 8;

/// Receives of the first link per receive of this one while no peer uses it: one system call in
/// about 10 µs of polling.
const RECEIVES_PER_POLL: u32 = 32;

/// Opens both links.
///
/// # Errors
/// See [`Udp::open`].
pub(super) fn open(config: &UdpConfig, also: IpAddr) -> Result<Udp, LinkError> {
    for _ in 1..PORTS_TRIED {
        match try_port(config, also) {
            Err(LinkError::System { errno, .. })
                if errno.kind() == io::ErrorKind::AddrInUse && config.port == 0 => {}
            other => return other,
        }
    }
    try_port(config, also)
}

fn try_port(config: &UdpConfig, also: IpAddr) -> Result<Udp, LinkError> {
    let mut first = Udp::open_one(config)?;
    let second = UdpConfig {
        bind: also,
        also: None,
        port: first.local.port(),
        ..config.clone()
    };
    first.second = Some(Second::new(Udp::open_one(&second)?));
    Ok(first)
}

/// UDP link for peers of the other address family.
pub(super) struct Second {
    link: Box<Udp>,
    /// Set after a peer was connected on this link, or a frame arrived on it.
    is_used: bool,
    /// Receives of the first link until the next receive of this one.
    skips_left: u32,
}

impl Second {
    fn new(link: Udp) -> Second {
        Second {
            link: Box::new(link),
            is_used: false,
            skips_left: 0,
        }
    }

    /// Receives, but polls an unused link only once in [`RECEIVES_PER_POLL`] calls.
    #[inline]
    pub(super) fn receive_if_due<R: Receiver + ?Sized>(
        &mut self,
        budget: usize,
        receiver: &mut R,
    ) -> usize {
        if !self.is_used && self.skips_left > 0 {
            self.skips_left -= 1;
            return 0;
        }
        self.skips_left = RECEIVES_PER_POLL;
        let delivered = self.link.receive_runs(budget, receiver);
        self.is_used |= delivered > 0;
        delivered
    }

    #[inline]
    pub(super) fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.link.send_frame(peer, frame)
    }

    #[inline]
    pub(super) fn send(&mut self, peer: PeerId, frame: &[u8]) -> Result<(), TxError> {
        self.link.send_whole(peer, frame)
    }

    pub(super) fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        self.is_used = true;
        self.link.connect(peer, addr)
    }

    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.link.disconnect(peer);
    }

    pub(super) fn poll_notice(&mut self) -> Option<Notice> {
        // The first link reports the capacity of its receive buffer, which has the same length.
        std::iter::from_fn(|| self.link.poll_notice())
            .find(|notice| !matches!(notice, Notice::Capacity(_)))
    }

    pub(super) fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.link.arm(wake)
    }
}
