// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of a simulated process: one port of a network in memory, in place of UDP.

use super::{AnyLink, Links};
use crate::address::{Address, HostAddress};
use portolan_link::sim::SimLink;
use portolan_link::{
    HostId, Link, LinkAddr, LinkCaps, LinkError, LinkKind, Notice, PeerId, RxFrame, TxError,
    TxFrame, WakeSet,
};
use portolan_proto::LinkId;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// UDP port of every simulated process for messages, and for liveness probes.
const MESSAGE_PORT: u16 = 9000;
const LIVENESS_PORT: u16 = 9001;

/// Bits of the subnet that all simulated hosts share, 10.0.0.0/8.
const PREFIX_LEN: u8 = 8;

/// Returns the IP address of the simulated host at a port of the network. Each port is a host.
pub(crate) fn ip_of(port: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + port)
}

/// Returns the port of the network to which `ip` leads.
fn port_of(ip: IpAddr) -> Option<u32> {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().checked_sub(ip_of(0).to_bits()),
        IpAddr::V6(_) => None,
    }
}

/// Returns the port of the network at which the simulated process with the liveness address `addr`
/// is.
#[must_use]
pub fn simulated_port(addr: SocketAddr) -> Option<u32> {
    port_of(addr.ip()).filter(|_| addr.port() == LIVENESS_PORT)
}

/// Returns the liveness address of the simulated process at `port` of the network.
#[must_use]
pub fn simulated_liveness(port: u32) -> SocketAddr {
    SocketAddr::new(ip_of(port).into(), LIVENESS_PORT)
}

/// Returns the addresses of the simulated process at `port` of the network.
pub(crate) fn simulated_address(port: u32) -> Address {
    let addr = IpAddr::from(ip_of(port));
    Address {
        host_name: addr.to_string(),
        host: HostId {
            boot_id: "simulated".to_owned(),
            netns: port.into(),
        },
        links: vec![LinkAddr::Udp {
            socket: SocketAddr::new(addr, MESSAGE_PORT),
        }],
        network: Some((addr, PREFIX_LEN)),
        liveness: Some(simulated_liveness(port)),
        addresses: Box::new([HostAddress {
            addr,
            prefix_len: PREFIX_LEN,
            interface: "simulated".to_owned(),
            kind: "device".to_owned(),
            speed: None,
            index: 0,
        }]),
        unusable: None,
    }
}

/// Port of a simulated network that is reached by UDP addresses.
struct Addressed {
    link: SimLink,
    caps: LinkCaps,
}

impl Links {
    /// Creates the links of a simulated process at the port `link`.
    pub(crate) fn simulated(link: SimLink) -> Links {
        let mut links = Links::none();
        let caps = LinkCaps {
            kind: LinkKind::Udp,
            // The core expects a network here.
            lossless: false,
            // As a socket: a poll is a system call.
            polls_memory: false,
            ..link.caps().clone()
        };
        let link = Addressed { link, caps };
        links.add(LinkId::UDP, false, AnyLink::Other(Box::new(link)));
        links
    }
}

impl Link for Addressed {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    fn local_addr(&self) -> LinkAddr {
        LinkAddr::Udp {
            socket: SocketAddr::new(ip_of(self.link.index()).into(), MESSAGE_PORT),
        }
    }

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        let port = match addr {
            LinkAddr::Udp { socket } => port_of(socket.ip()),
            _ => None,
        };
        let Some(port) = port else {
            return Err(LinkError::Unreachable {
                kind: LinkKind::Udp,
                peer,
                why: "its address is not one of a simulated host",
            });
        };
        self.link.connect(peer, &LinkAddr::Sim { port })
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.link.disconnect(peer);
    }

    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.link.transmit(peer, frame)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.link.receive(budget, sink)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.link.poll_notice()
    }

    /// Adds no descriptor: the simulation wakes the process itself.
    fn arm(&mut self, _: &mut WakeSet) -> bool {
        !self.link.has_arrived()
    }

    fn disarm(&mut self) {}
}
