// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of this process's peers: all processes of a job, from the launcher, or the peers that
//! an endpoint has discovered.

use crate::address::{Address, HostAddress, Target, targets};
use crate::directory::Directory;
use crate::links::simulated_address;
use portolan_link::{HostId, LinkAddr};
use portolan_proto::{LinkId, PeerId};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Addresses of this process and of its peers.
pub(crate) struct Table {
    own: Address,
    others: Others,
}

enum Others {
    Job {
        /// Indexed by rank, without the addresses of the hosts.
        addresses: Vec<Address>,
        hosts: HashMap<HostId, Host>,
    },
    /// Addresses as they were received, in compact form. They are expanded when a peer is
    /// connected.
    Met(Arc<Directory>),
    /// Ranks of a simulated job, which follow from the ports of the network: `size` ranks, starting
    /// at port `first_port`.
    Simulated { first_port: u32, size: u32 },
}

/// Addresses that the processes of one host share.
struct Host {
    addresses: Box<[HostAddress]>,
    /// Targets for this process, the most likely one first.
    targets: Vec<Target>,
}

impl Host {
    /// Tests whether it is on a subnet of this host.
    fn is_near(&self) -> bool {
        self.targets.iter().any(Target::is_near)
    }
}

/// Returns the first of `targets` that leads to another interface of each host than the first
/// target, if both targets are on subnets of both hosts.
fn second_of<'a>(
    targets: &'a [Target],
    own: &[HostAddress],
    other: &[HostAddress],
) -> Option<&'a Target> {
    let ends = |target: &Target| {
        let (here, there) = target.places();
        (&own[here].interface, &other[there].interface)
    };
    let first = targets.first().filter(|first| first.is_near())?;
    let (here, there) = ends(first);
    let mut near = targets.iter().filter(|target| target.is_near());
    near.find(|target| ends(target).0 != here && ends(target).1 != there)
}

impl Table {
    /// Builds the table of a job from the addresses by rank; `ours` are those of this host.
    pub(crate) fn of_job(mut addresses: Vec<Address>, rank: u32, ours: Vec<HostAddress>) -> Table {
        let own = Address {
            addresses: ours.into(),
            ..addresses[rank as usize].clone()
        };
        let mut hosts = HashMap::new();
        for address in &mut addresses {
            let published = std::mem::take(&mut address.addresses);
            if !published.is_empty() && address.host != own.host {
                let targets = targets(&own.addresses, &published);
                let addresses = published;
                hosts.insert(address.host.clone(), Host { addresses, targets });
            }
        }
        Table {
            own,
            others: Others::Job { addresses, hosts },
        }
    }

    /// Creates the table of an endpoint, which adds peers as it discovers them.
    pub(crate) fn of_endpoint(own: Address, directory: Arc<Directory>) -> Table {
        Table {
            own,
            others: Others::Met(directory),
        }
    }

    /// Creates the table of a simulated job, with this process at port `own_port` of the network.
    pub(crate) fn simulated(own_port: u32, first_port: u32, size: u32) -> Table {
        Table {
            own: simulated_address(own_port),
            others: Others::Simulated { first_port, size },
        }
    }

    pub(crate) fn own(&self) -> &Address {
        &self.own
    }

    pub(crate) fn of(&self, peer: PeerId) -> Option<Cow<'_, Address>> {
        match &self.others {
            Others::Job { addresses, .. } => addresses.get(peer.0 as usize).map(Cow::Borrowed),
            Others::Met(directory) => {
                let short = directory.address_of(peer)?;
                Some(Cow::Owned(short.write_out(&self.own)))
            }
            Others::Simulated { first_port, size } => {
                let address = || Cow::Owned(simulated_address(first_port + peer.0));
                (peer.0 < *size).then(address)
            }
        }
    }

    /// Returns whether `peer` is another endpoint of this process.
    pub(crate) fn is_in_this_process(&self, peer: PeerId) -> bool {
        match &self.others {
            Others::Job { .. } | Others::Simulated { .. } => false,
            Others::Met(directory) => directory.is_here(peer),
        }
    }

    /// Returns the links to `peer`. Raw frames reach a host on a common subnet by any of its
    /// addresses. `P6.6`
    pub(crate) fn links_to(&self, peer: PeerId) -> Vec<LinkId> {
        let Some(other) = self.of(peer) else {
            return Vec::new();
        };
        let mut links = self.own.common_links(&other);
        links.retain(|link| *link != LinkId::UDP || !self.addresses_of(&other).is_empty());
        if let Some(host) = self.host_of(&other)
            && !links.contains(&LinkId::SHM)
            && !links.contains(&LinkId::PACKET)
            && self.own.on(LinkId::PACKET).is_some()
            && other.on(LinkId::PACKET).is_some()
            && host.is_near()
        {
            links.push(LinkId::PACKET);
        }
        if links.contains(&LinkId::UDP) && self.second_address_of(&other).is_some() {
            links.push(LinkId::UDP2);
        }
        links
    }

    /// Returns the address of `other` on a second network of both hosts, if both have opened a
    /// link for it. `P6.8`
    pub(crate) fn second_address_of(&self, other: &Address) -> Option<SocketAddr> {
        let (Some(_), Some(LinkAddr::Udp { socket })) =
            (self.own.on(LinkId::UDP2), other.on(LinkId::UDP2))
        else {
            return None;
        };
        let host = self.host_of(other)?;
        let target = second_of(&host.targets, &self.own.addresses, &host.addresses)?;
        Some(target.socket(socket.port()))
    }

    /// Returns the addresses of `other` for UDP, the most likely one first.
    pub(crate) fn addresses_of(&self, other: &Address) -> Vec<SocketAddr> {
        match other.on(LinkId::UDP) {
            Some(LinkAddr::Udp { socket }) => self.with_port(other, *socket),
            _ => Vec::new(),
        }
    }

    /// Returns the addresses of `other` for liveness probes, the most likely one first.
    pub(crate) fn liveness_of(&self, other: &Address) -> Vec<SocketAddr> {
        match other.liveness {
            Some(socket) => self.with_port(other, socket),
            None => Vec::new(),
        }
    }

    /// Returns the addresses of the host of `other` with the port of `socket`; for this host, only
    /// its first address.
    fn with_port(&self, other: &Address, socket: SocketAddr) -> Vec<SocketAddr> {
        let is_elsewhere = other.host != self.own.host;
        let port = socket.port();
        if let Some(host) = self.host_of(other) {
            let targets = host.targets.iter();
            return targets.map(|target| target.socket(port)).collect();
        }
        if is_elsewhere && !matches!(self.others, Others::Job { .. }) {
            let targets = targets(&self.own.addresses, &other.addresses).into_iter();
            return targets.map(|target| target.socket(port)).collect();
        }
        if is_elsewhere && (other.unusable.is_some() || self.own.unusable.is_some()) {
            // A process without a usable address binds to loopback.
            return Vec::new();
        }
        if !socket.ip().is_unspecified() {
            return vec![socket];
        }
        if is_elsewhere {
            // The process that publishes for its host is in another network namespace.
            let addr = other
                .network
                .map(|(addr, _)| SocketAddr::new(addr, socket.port()));
            return addr.into_iter().collect();
        }
        let own = self.own.addresses.first();
        own.map(|own| own.socket_here(socket.port()))
            .into_iter()
            .collect()
    }

    /// Returns the host of `other` if it is another host and has published addresses.
    fn host_of(&self, other: &Address) -> Option<&Host> {
        match &self.others {
            Others::Job { hosts, .. } if other.host != self.own.host => hosts.get(&other.host),
            _ => None,
        }
    }

    /// Returns the published addresses of the host of `other`.
    pub(crate) fn published<'a>(&'a self, other: &'a Address) -> &'a [HostAddress] {
        match &self.others {
            Others::Job { hosts, .. } => hosts.get(&other.host).map_or(&[], |it| &it.addresses),
            Others::Met(_) | Others::Simulated { .. } => &other.addresses,
        }
    }
}
