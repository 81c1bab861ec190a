// SPDX-License-Identifier: MIT OR Apache-2.0
//! The half of the link that reaches peers by the other family of addresses: IPv6 beside IPv4.
//!
//! It is a link of its own with the same port. A socket for both families would look up a route for every
//! datagram to an IPv4 address, also when it is connected (`udpv6_sendmsg` of net/ipv6/udp.c).
//!
//! The one invariant: a peer is connected in one half at most.

use super::{Udp, UdpConfig};
use crate::{Link, LinkAddr, LinkError, Notice, PeerId, Receiver, TxError, TxFrame, WakeSet};
use std::io;
use std::net::IpAddr;

/// Ports that are tried until one is free in both families: others of the host have some hundreds of
/// 28,000.
const PORTS_TRIED: usize = 8;

/// Receives of the first half for one of this, while no peer has been reached by this: a system call in
/// some 10 µs of turns.
const RECEIVES_PER_LOOK: u32 = 32;

/// Opens both halves.
///
/// # Errors
/// As [`Udp::open`].
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
    let beside = UdpConfig {
        bind: also,
        also: None,
        port: first.local.port(),
        ..config.clone()
    };
    first.second = Some(Second::new(Udp::open_one(&beside)?));
    Ok(first)
}

/// See the module documentation.
pub(super) struct Second {
    link: Box<Udp>,
    /// A peer was reached by it, or has reached this process.
    is_used: bool,
    /// Receives of the first half until the next look here.
    looks_left: u32,
}

impl Second {
    fn new(link: Udp) -> Second {
        Second {
            link: Box::new(link),
            is_used: false,
            looks_left: 0,
        }
    }

    /// Receives, if this half is in use or it is time to look whether it should be.
    #[inline]
    pub(super) fn receive_if_due<R: Receiver + ?Sized>(
        &mut self,
        budget: usize,
        receiver: &mut R,
    ) -> usize {
        if !self.is_used && self.looks_left > 0 {
            self.looks_left -= 1;
            return 0;
        }
        self.looks_left = RECEIVES_PER_LOOK;
        let handed = self.link.receive_runs(budget, receiver);
        self.is_used |= handed > 0;
        handed
    }

    #[inline]
    pub(super) fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.link.send_frame(peer, frame)
    }

    pub(super) fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        self.is_used = true;
        self.link.connect(peer, addr)
    }

    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.link.disconnect(peer);
    }

    pub(super) fn poll_notice(&mut self) -> Option<Notice> {
        // Its buffer is as long as the first half's, which has been measured.
        std::iter::from_fn(|| self.link.poll_notice())
            .find(|notice| !matches!(notice, Notice::Capacity(_)))
    }

    pub(super) fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.link.arm(wake)
    }
}
