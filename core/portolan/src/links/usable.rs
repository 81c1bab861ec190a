// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of this host that a job uses: those to publish, those to bind to, and the reason if
//! there are none.
//!
//! Invariant: sockets are bound so that a peer reaches them at every published address.

use super::selection::Candidate;
use crate::address::HostAddress;
use portolan_link::{Interface, InterfaceKind};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Share of the first network's speed, as 1 in N, that a second one must have to be used unasked. A
/// slower one would gain little, and delay the end of each transfer.
const SPEED_SHARE_MIN: u32 = 4;

/// Maximum number of interfaces that an error names.
const NAMED_MAX: usize = 4;

/// Addresses of this host that a job uses.
#[derive(Clone, Debug)]
pub(crate) struct Usable {
    /// The most likely to reach other hosts first.
    pub(crate) addresses: Vec<HostAddress>,
    /// Reason why there are none, with the remedy.
    pub(crate) unusable: Option<String>,
    /// Address to bind the first socket to.
    pub(crate) bind: IpAddr,
    /// Address of the other family to bind the second socket to.
    pub(crate) also: Option<IpAddr>,
    /// Largest MTU of the interfaces.
    pub(crate) mtu: Option<usize>,
    /// Interfaces of the addresses.
    pub(crate) over: Vec<Interface>,
}

impl Usable {
    /// Builds the value for `candidates` among `interfaces`. Without candidates, sockets bind to
    /// `fallback`.
    pub(crate) fn new(
        candidates: &[Candidate<'_>],
        interfaces: &[Interface],
        fallback: IpAddr,
    ) -> Usable {
        let addresses: Vec<HostAddress> = candidates.iter().map(published).collect();
        let of_family = |is_v4| move |address: &&HostAddress| address.addr.is_ipv4() == is_v4;
        let v4 = bound(
            addresses.iter().filter(of_family(true)),
            Ipv4Addr::UNSPECIFIED,
        );
        let v6 = bound(
            addresses.iter().filter(of_family(false)),
            Ipv6Addr::UNSPECIFIED,
        );
        let mut over: Vec<Interface> = Vec::new();
        for candidate in candidates {
            if !over
                .iter()
                .any(|known| known.index == candidate.interface.index)
            {
                over.push(candidate.interface.clone());
            }
        }
        Usable {
            unusable: addresses.is_empty().then(|| reason(interfaces)),
            addresses,
            bind: v4.or(v6).unwrap_or(fallback),
            also: v4.and(v6),
            mtu: over.iter().map(|interface| interface.mtu).max(),
            over,
        }
    }

    /// Sorts addresses of equal rank by speed, the fastest first. For hosts without a chosen order.
    pub(crate) fn sort_by_speed(&mut self) {
        let key = |it: &HostAddress| (it.kind.clone(), it.addr.is_ipv4(), it.is_of_one_link());
        for alike in self.addresses.chunk_by_mut(|a, b| key(a) == key(b)) {
            alike.sort_by_key(|address| std::cmp::Reverse(address.speed));
        }
    }

    /// Returns the interfaces of the first network and of another one that a second link can use.
    /// The setting `network` has selected it (`is_selected`), or it has at least a quarter of the
    /// first one's speed, as far as the kernel has it.
    pub(crate) fn two_networks(&self, is_selected: bool) -> Option<[&str; 2]> {
        let first = self.addresses.first()?;
        let is_worthy = |second: &HostAddress| match (first.speed, second.speed) {
            (Some(first), Some(second)) if !is_selected => second >= first / SPEED_SHARE_MIN,
            _ => true,
        };
        let mut others = self.addresses.iter().filter(|other| {
            other.interface != first.interface && !other.is_of_one_link() && is_worthy(other)
        });
        let second = others.next().filter(|_| !first.is_of_one_link())?;
        Some([&first.interface, &second.interface])
    }

    /// Returns the address to bind a socket for both families to.
    pub(crate) fn bind_both(&self) -> IpAddr {
        match self.also {
            Some(_) => Ipv6Addr::UNSPECIFIED.into(),
            None => self.bind,
        }
    }
}

/// Returns the only address, or the unspecified one. Binding to a link-local address would need its
/// interface.
fn bound<'a>(
    mut addresses: impl Iterator<Item = &'a HostAddress>,
    all: impl Into<IpAddr>,
) -> Option<IpAddr> {
    let first = addresses.next()?;
    let is_only = addresses.next().is_none() && !first.is_of_one_link();
    Some(if is_only { first.addr } else { all.into() })
}

fn published(candidate: &Candidate<'_>) -> HostAddress {
    let interface = candidate.interface;
    HostAddress {
        addr: candidate.network.addr,
        prefix_len: candidate.network.prefix_len,
        interface: interface.name.clone(),
        kind: interface.kind.to_string(),
        speed: speed(&interface.name),
        index: interface.index,
    }
}

/// Reads the speed of an interface in Mbit/s. For an unknown speed the kernel returns -1 or an
/// error.
fn speed(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    text.trim().parse().ok()
}

/// Returns the reason why no address of `interfaces` is usable, with the remedy.
fn reason(interfaces: &[Interface]) -> String {
    let leads_elsewhere = |interface: &&Interface| {
        !interface.loopback
            && !matches!(
                interface.kind,
                InterfaceKind::ContainerBridge | InterfaceKind::VirtualMachineBridge
            )
    };
    let reasons = interfaces
        .iter()
        .filter(leads_elsewhere)
        .map(unusable_reason);
    // The first interfaces are the most likely ones.
    let reasons: Vec<String> = reasons.take(NAMED_MAX).collect();
    match reasons.is_empty() {
        true => "it has no network interface except loopback".to_owned(),
        false => reasons.join("; "),
    }
}

fn unusable_reason(interface: &Interface) -> String {
    let name = &interface.name;
    match interface {
        Interface { up: false, .. } => format!("{name} is down (`ip link set {name} up`)"),
        Interface { running: false, .. } => format!("{name} has no carrier (is its cable in?)"),
        _ => format!("{name} has no address (`ip address add ADDRESS/PREFIX dev {name}`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_link::Network;

    fn interface(name: &str, index: u32, networks: &[(&str, u8)]) -> Interface {
        let network = |(addr, prefix_len): &(&str, u8)| Network {
            addr: addr.parse().unwrap(),
            prefix_len: *prefix_len,
        };
        Interface {
            name: name.into(),
            index,
            mac: None,
            mtu: 1500,
            up: true,
            running: true,
            loopback: false,
            kind: InterfaceKind::Veth,
            networks: networks.iter().map(network).collect(),
        }
    }

    fn usable(interfaces: &[Interface]) -> Usable {
        let candidates: Vec<Candidate<'_>> = interfaces
            .iter()
            .flat_map(|interface| {
                let networks = interface.networks.iter();
                networks.map(move |network| Candidate {
                    interface,
                    network: *network,
                })
            })
            .collect();
        Usable::new(&candidates, interfaces, Ipv4Addr::LOCALHOST.into())
    }

    fn binds(networks: &[(&str, u8)]) -> (String, Option<String>, String) {
        let usable = usable(&[interface("eth0", 7, networks)]);
        let also = usable.also.map(|addr| addr.to_string());
        (
            usable.bind.to_string(),
            also,
            usable.bind_both().to_string(),
        )
    }

    #[test]
    fn sockets_bind_single_address_or_wildcard() {
        let one = ("10.0.0.1", 24);
        assert_eq!(binds(&[one]), ("10.0.0.1".into(), None, "10.0.0.1".into()));
        let two = binds(&[one, ("10.1.0.1", 24)]);
        assert_eq!(two, ("0.0.0.0".into(), None, "0.0.0.0".into()));
        let both = binds(&[one, ("fe80::1", 64)]);
        assert_eq!(both, ("10.0.0.1".into(), Some("::".into()), "::".into()));
        assert_eq!(binds(&[("fd00::1", 64)]).0, "fd00::1");
        assert_eq!(binds(&[("fe80::1", 64)]).0, "::");
    }

    #[test]
    fn fastest_interface_comes_first() {
        let names = [("eth0", 1, "10.0.0.1"), ("eth1", 2, "10.1.0.1")];
        let both = names.map(|(name, index, addr)| interface(name, index, &[(addr, 24)]));
        let mut usable = usable(&both);
        usable.addresses[1].speed = Some(10_000);
        usable.sort_by_speed();
        assert_eq!(usable.addresses[0].interface, "eth1");
    }

    #[test]
    fn second_network_is_another_interface_of_similar_speed() {
        let two = [
            interface("eth0", 1, &[("10.0.0.1", 24), ("fd00::1", 64)]),
            interface("eth1", 2, &[("10.1.0.1", 24), ("fe80::2", 64)]),
        ];
        let mut both = usable(&two);
        assert_eq!(both.two_networks(false), Some(["eth0", "eth1"]));
        for address in &mut both.addresses {
            let is_first = address.interface == "eth0";
            address.speed = Some(if is_first { 10_000 } else { 1000 });
        }
        assert_eq!(both.two_networks(false), None, "a tenth of the speed");
        assert_eq!(both.two_networks(true), Some(["eth0", "eth1"]));
        assert_eq!(usable(&two[..1]).two_networks(true), None);
    }

    #[test]
    fn missing_address_is_explained() {
        let mut down = interface("eth0", 1, &[]);
        down.up = false;
        let usable_addresses = usable(&[down, interface("eth1", 2, &[])]);
        let why = usable_addresses.unusable.unwrap();
        assert!(why.contains("ip link set eth0 up"), "{why}");
        assert!(why.contains("dev eth1"), "{why}");
        assert_eq!(usable_addresses.bind.to_string(), "127.0.0.1");
    }
}
