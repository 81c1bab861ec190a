// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of a process, which the launcher distributes to all processes of the job.

mod targets;

pub(crate) use targets::{TARGETS_MAX, Target, targets};

use ipnet::IpNet;
use portolan_link::{HostId, LinkAddr};
use portolan_proto::LinkId;
use portolan_sys::net::{Network, is_of_one_link};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Maximum number of IPv4 addresses in the address of an endpoint.
pub(crate) const ENDPOINT_IPV4_MAX: usize = 4;

/// Addresses of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Name of its host, for messages to users.
    pub host_name: String,
    /// Host of the process. Processes of one host can share memory.
    pub host: HostId,
    /// One entry per open link.
    pub links: Vec<LinkAddr>,
    /// Network of its Ethernet interface. Raw frames reach only processes on the same network.
    pub network: Option<(IpAddr, u8)>,
    /// Address for liveness probes.
    pub liveness: Option<SocketAddr>,
    /// Addresses of its host, the most likely to be reached first. Only one process of each host
    /// publishes them, so that the table of a large job stays short.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub addresses: Box<[HostAddress]>,
    /// Reason why its host has no address, with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<Box<str>>,
}

/// Address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// IP address.
    pub addr: IpAddr,
    /// Leading bits that all hosts of its subnet share.
    pub prefix_len: u8,
    /// Name of its interface.
    pub interface: String,
    /// Kind of its interface as far as it is known, such as "device" or "tunnel".
    pub kind: String,
    /// Speed of its interface in Mbit/s, if the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<u32>,
    /// Index of its interface, which is valid only on its host.
    #[serde(skip)]
    pub index: u32,
}

impl HostAddress {
    /// Tests whether it is an IPv6 address that is valid on one link only.
    pub(crate) fn is_of_one_link(&self) -> bool {
        is_of_one_link(self.addr)
    }

    /// Returns the address with a port, in the form that this host itself can use.
    pub(crate) fn socket_here(&self, port: u16) -> SocketAddr {
        match self.addr {
            IpAddr::V6(ip) if self.is_of_one_link() => {
                SocketAddrV6::new(ip, port, 0, self.index).into()
            }
            ip => SocketAddr::new(ip, port),
        }
    }

    /// Tests whether `other` is of the same subnet.
    pub(crate) fn shares_subnet(&self, other: &HostAddress) -> bool {
        self.prefix_len == other.prefix_len && self.network().contains(other.addr)
    }

    /// Returns the first address of its subnet.
    fn subnet(&self) -> IpAddr {
        IpNet::new(self.addr, self.prefix_len).map_or(self.addr, |net| net.network())
    }

    /// Returns the address with its subnet.
    pub(crate) fn network(&self) -> Network {
        Network {
            addr: self.addr,
            prefix_len: self.prefix_len,
        }
    }
}

/// Returns the protocol's number of the link that an address belongs to.
pub(crate) fn link_of(addr: &LinkAddr) -> Option<LinkId> {
    match addr {
        LinkAddr::Shm { .. } => Some(LinkId::SHM),
        LinkAddr::Udp { .. } => Some(LinkId::UDP),
        LinkAddr::Packet { .. } => Some(LinkId::PACKET),
        LinkAddr::Sim { .. } => None,
    }
}

impl Address {
    pub(crate) fn on(&self, link: LinkId) -> Option<&LinkAddr> {
        // The second entry of UDP is of the link on the second network.
        let (kind, place) = match link {
            LinkId::UDP2 => (LinkId::UDP, 1),
            link => (link, 0),
        };
        let mut alike = (self.links.iter()).filter(|addr| link_of(addr) == Some(kind));
        alike.nth(place)
    }

    /// Returns the links by which a process with address `self` reaches `other`. Processes of one
    /// user on one host use shared memory only. All other processes use the links that both have,
    /// raw frames only on a common network. `P6.6`
    pub(crate) fn common_links(&self, other: &Address) -> Vec<LinkId> {
        let both = |link| self.on(link).is_some() && other.on(link).is_some();
        if self.host == other.host && both(LinkId::SHM) && self.user() == other.user() {
            return vec![LinkId::SHM];
        }
        let mut links = Vec::new();
        if both(LinkId::UDP) {
            links.push(LinkId::UDP);
        }
        if both(LinkId::PACKET) && self.same_network(other) && self.host != other.host {
            links.push(LinkId::PACKET);
        }
        links
    }

    /// Returns the user that shares memory.
    fn user(&self) -> Option<u32> {
        match self.on(LinkId::SHM) {
            Some(LinkAddr::Shm { uid, .. }) => Some(*uid),
            _ => None,
        }
    }

    /// Tests whether both are on the same network.
    pub(crate) fn same_network(&self, other: &Address) -> bool {
        let (Some((a, prefix_len)), Some((b, other_len))) = (self.network, other.network) else {
            return false;
        };
        let own = Network {
            addr: a,
            prefix_len,
        };
        prefix_len == other_len && own.contains(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(netns: u64, ip: [u8; 4], packet: bool) -> Address {
        let host = HostId {
            boot_id: "boot".into(),
            netns,
        };
        let socket = SocketAddr::from((ip, 9000));
        let mut links = vec![
            LinkAddr::Shm {
                host: host.clone(),
                uid: 0,
                pid: 1,
                name: "x".into(),
            },
            LinkAddr::Udp { socket },
        ];
        if packet {
            links.push(LinkAddr::Packet {
                mac: [2; 6],
                endpoint: 9000,
            });
        }
        let network = Some((IpAddr::from(ip), 16));
        Address {
            host_name: "h".into(),
            host,
            links,
            network,
            liveness: None,
            addresses: Box::default(),
            unusable: None,
        }
    }

    #[test]
    fn links_follow_from_both_addresses() {
        let a = address(1, [10, 77, 0, 1], true);
        assert_eq!(
            a.common_links(&address(1, [10, 77, 0, 1], true)),
            [LinkId::SHM]
        );
        let both = [LinkId::UDP, LinkId::PACKET];
        assert_eq!(a.common_links(&address(2, [10, 77, 0, 2], true)), both);
        assert_eq!(
            a.common_links(&address(2, [10, 77, 0, 2], false)),
            [LinkId::UDP]
        );
        assert_eq!(
            a.common_links(&address(2, [10, 78, 0, 2], true)),
            [LinkId::UDP]
        );
    }
}
