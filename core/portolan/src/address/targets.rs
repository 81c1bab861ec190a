// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order in which the addresses of another host are tried, modelled on RFC 8305: first addresses on
//! a subnet of this host, then routed ones, then those valid on one link only.

use super::HostAddress;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Maximum number of a peer's addresses to try: the lowest 4 bits of a probe's nonce are the index
/// of the address.
pub(crate) const TARGETS_MAX: usize = 16;

/// Reachability of an address. Earlier variants are tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// Address on a subnet of this host.
    SameSubnet,
    /// Address that needs a route.
    Routed,
    /// Address that is valid on one link only, while this host may be on another.
    OneLink,
}

/// Address of another host in the form that this host can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    reach: Reach,
    ip: IpAddr,
    /// First address of the subnet.
    subnet: IpAddr,
    /// Index of this host's interface; 0 if the address needs none.
    scope: u32,
    /// Positions of the two addresses in the lists of their hosts.
    places: (usize, usize),
}

impl Target {
    /// Returns the positions of this host's address and of the other host's in their lists.
    pub(crate) fn places(&self) -> (usize, usize) {
        self.places
    }

    /// Tests whether this host is on the same subnet.
    pub(crate) fn is_near(&self) -> bool {
        self.reach == Reach::SameSubnet
    }

    pub(crate) fn socket(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope).into(),
        }
    }
}

/// Returns the addresses in `other` that a host with the addresses `own` can try, the most likely
/// one first. An address that both hosts have would lead to this host, and is left out.
pub(crate) fn targets(own: &[HostAddress], other: &[HostAddress]) -> Vec<Target> {
    let is_own = |theirs: &HostAddress| own.iter().any(|ours| ours.addr == theirs.addr);
    let others = other.iter().enumerate();
    let mut found: Vec<Target> = others
        .filter(|(_, theirs)| !is_own(theirs))
        .flat_map(|(place, theirs)| to_one(own, theirs, place))
        .collect();
    // A stable sort keeps the order of the other host, except among subnets of both hosts, for which
    // both hosts find the same order.
    found.sort_by_key(|target| {
        let subnet = Some(target.subnet).filter(|_| target.is_near());
        (target.reach, target.places.0 + target.places.1, subnet)
    });
    found.truncate(TARGETS_MAX);
    found
}

/// Returns the targets for the address `theirs`, which is at `place` in the list of its host.
fn to_one(own: &[HostAddress], theirs: &HostAddress, place: usize) -> Vec<Target> {
    let target = |reach, scope, own_place| Target {
        reach,
        ip: theirs.addr,
        subnet: theirs.subnet(),
        scope,
        places: (own_place, place),
    };
    let ours = || own.iter().enumerate();
    if theirs.is_of_one_link() {
        let links = ours().filter(|(_, ours)| ours.is_of_one_link());
        return links
            .map(|(own_place, ours)| target(Reach::OneLink, ours.index, own_place))
            .collect();
    }
    let near = ours().find(|(_, ours)| ours.shares_subnet(theirs));
    let of_family =
        |ours: &HostAddress| ours.addr.is_ipv4() == theirs.addr.is_ipv4() && !ours.is_of_one_link();
    let far = || ours().find(|(_, ours)| of_family(ours));
    match (near, far()) {
        (Some((own_place, _)), _) => vec![target(Reach::SameSubnet, 0, own_place)],
        (None, Some((own_place, _))) => vec![target(Reach::Routed, 0, own_place)],
        (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(addresses: &[&str]) -> Vec<HostAddress> {
        let one = |(index, text): (u32, &&str)| {
            let (addr, prefix_len) = text.split_once('/').unwrap();
            HostAddress {
                addr: addr.parse().unwrap(),
                prefix_len: prefix_len.parse().unwrap(),
                interface: format!("eth{index}"),
                kind: "device".into(),
                speed: None,
                index: index + 1,
            }
        };
        (0..).zip(addresses).map(one).collect()
    }

    fn order(own: &[&str], other: &[&str]) -> Vec<String> {
        let targets = targets(&host(own), &host(other));
        let text = |target: &Target| target.socket(7).to_string();
        targets.iter().map(text).collect()
    }

    #[test]
    fn targets_are_ordered_by_reach() {
        let own = ["fe80::1/64", "10.1.0.1/24", "10.2.0.1/24"];
        let other = ["fe80::2/64", "10.9.0.2/24", "10.2.0.2/24"];
        assert_eq!(
            order(&own, &other),
            ["10.2.0.2:7", "10.9.0.2:7", "[fe80::2%1]:7"]
        );
    }

    #[test]
    fn address_on_both_hosts_is_skipped() {
        let own = ["10.0.2.15/24", "192.168.56.1/24"];
        let other = ["10.0.2.15/24", "192.168.56.2/24"];
        assert_eq!(order(&own, &other), ["192.168.56.2:7"]);
    }

    #[test]
    fn link_local_address_is_tried_on_every_link() {
        let both = order(&["fe80::1/64", "fe80::3/64"], &["fe80::2/64"]);
        assert_eq!(both, ["[fe80::2%1]:7", "[fe80::2%2]:7"]);
    }

    #[test]
    fn address_families_do_not_mix() {
        assert!(order(&["10.1.0.1/24", "fe80::1/64"], &["fd00::2/64"]).is_empty());
        assert!(order(&["fd00::1/64"], &["10.1.0.1/24"]).is_empty());
    }
}
