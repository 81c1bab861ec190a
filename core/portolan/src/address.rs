// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of a process, which the launcher distributes to all processes of the job.

use portolan_link::{HostId, LinkAddr};
use portolan_proto::LinkId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Addresses of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Name of its host, for messages to people.
    pub host_name: String,
    /// Its host. Processes of one host can share memory.
    pub host: HostId,
    /// One entry per open link.
    pub links: Vec<LinkAddr>,
    /// Network of its Ethernet interface. Raw frames reach only processes on the same network.
    pub network: Option<(IpAddr, u8)>,
    /// Address for liveness probes.
    pub liveness: Option<SocketAddr>,
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
    /// Returns the address on `link`.
    pub(crate) fn on(&self, link: LinkId) -> Option<&LinkAddr> {
        self.links.iter().find(|addr| link_of(addr) == Some(link))
    }

    /// Returns the links by which a process with address `self` reaches `other`. Processes of one
    /// user on one host use shared memory only. All others use the links that both have, raw frames
    /// only on a common network. `P6.6`
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

    /// Returns whether both are on the same network.
    pub(crate) fn same_network(&self, other: &Address) -> bool {
        let (Some((a, prefix_len)), Some((b, other_len))) = (self.network, other.network) else {
            return false;
        };
        let own = portolan_sys::net::Network {
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
        }
    }

    #[test]
    fn paths_follow_from_the_two_addresses() {
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
