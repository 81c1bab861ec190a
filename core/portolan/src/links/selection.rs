// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setting `network`: the addresses of a host that a job may use.
//!
//! A value is a list of terms, `10.1.0.0/16,eth*,!docker0`. A term is a subnet, an address, the
//! name of an interface, or a pattern for names; `!` excludes. `a=eth0;b*=eth1;10.1.0.0/16` has a
//! list for host `a`, one for hosts that match `b*`, and one for all other hosts. The first list
//! that matches applies.
//!
//! This module filters and sorts. It does not test whether an address reaches other hosts. The one
//! invariant: without a value, every interface that may lead to another host is a candidate.

use ipnet::IpNet;
use portolan_link::{Interface, InterfaceKind, Network};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use thiserror::Error;
use wildmatch::WildMatch;

/// An address that a job may use on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    /// The interface that has the address.
    pub(crate) interface: &'a Interface,
    /// The address and the length of its subnet's prefix.
    pub(crate) network: Network,
}

/// Value of the setting `network`. The default selects every address that may lead to another host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selection {
    lists: Vec<List>,
}

/// Terms for the hosts that match a pattern.
#[derive(Clone, Debug, PartialEq)]
struct List {
    host: Option<WildMatch>,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    is_excluded: bool,
    what: Matcher,
}

#[derive(Clone, Debug, PartialEq)]
enum Matcher {
    Subnet(IpNet),
    /// One interface.
    Name(String),
    /// Interfaces by a pattern; it selects loopback in exclusions only.
    Pattern(WildMatch),
}

/// Reason why a value of `network` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum Malformed {
    /// Two commas, or no name after `!` or `=`.
    #[error("a term is empty; write terms such as 10.1.0.0/16,eth*,!docker0")]
    Empty,
    /// A term with a slash, which names of interfaces cannot contain, that is not a subnet.
    #[error("{0} is not a subnet; write one such as 10.1.0.0/16 or fd00::/8")]
    Subnet(String),
    /// A term that cannot be the name of an interface.
    #[error(
        "{0} is not an interface name, which has at most 15 characters and no spaces; write a \
         name or a pattern such as eth*"
    )]
    Name(String),
}

/// Longest name of an interface: `IFNAMSIZ` of `linux/if.h` without the final zero.
const NAME_LEN_MAX: usize = 15;

impl Selection {
    /// Selects the addresses of one interface.
    pub(crate) fn of_interface(name: &str) -> Selection {
        let term = Term {
            is_excluded: false,
            what: Matcher::Name(name.to_owned()),
        };
        let list = List {
            host: None,
            terms: vec![term],
        };
        Selection { lists: vec![list] }
    }

    /// Returns the selected addresses of `interfaces`, the interfaces of `host`. The most likely to
    /// reach other hosts come first: by the order of the terms, then by the kind of interface, then
    /// IPv4 before IPv6. Interfaces that are down or have no carrier are left out.
    pub(crate) fn candidates<'a>(
        &self,
        host: &str,
        interfaces: &'a [Interface],
    ) -> Vec<Candidate<'a>> {
        let terms = self.terms(host);
        let mut found: Vec<_> = addresses(interfaces)
            .filter(is_usable)
            .filter_map(|candidate| Some((preference(terms, &candidate)?, candidate)))
            .collect();
        // Stable: the kernel's order decides among equals.
        found.sort_by_key(|(preference, _)| *preference);
        found.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// Tests whether the terms for `host` select `candidate`.
    pub(crate) fn allows(&self, host: &str, candidate: &Candidate<'_>) -> bool {
        preference(self.terms(host), candidate).is_some()
    }

    fn terms(&self, host: &str) -> &[Term] {
        let is_for = |list: &&List| list.host.as_ref().is_none_or(|name| name.matches(host));
        let list = self.lists.iter().find(is_for);
        list.map_or(&[], |list| &list.terms)
    }
}

impl FromStr for Selection {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Selection, Malformed> {
        let lists = text.split(';').map(list).collect::<Result<_, _>>()?;
        Ok(Selection { lists })
    }
}

fn list(text: &str) -> Result<List, Malformed> {
    let (host, terms) = match text.split_once('=') {
        Some((host, _)) if host.trim().is_empty() => return Err(Malformed::Empty),
        Some((host, terms)) => (Some(WildMatch::new(host.trim())), terms),
        None => (None, text),
    };
    let terms = terms.split(',').map(term).collect::<Result<_, _>>()?;
    Ok(List { host, terms })
}

fn term(text: &str) -> Result<Term, Malformed> {
    let text = text.trim();
    let (is_excluded, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    let what = matcher(text)?;
    Ok(Term { is_excluded, what })
}

fn matcher(text: &str) -> Result<Matcher, Malformed> {
    if text.is_empty() {
        return Err(Malformed::Empty);
    }
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Ok(Matcher::Subnet(IpNet::from(addr)));
    }
    if text.contains('/') {
        let subnet = text.parse();
        return subnet
            .map(Matcher::Subnet)
            .map_err(|_| Malformed::Subnet(text.to_owned()));
    }
    if text.len() > NAME_LEN_MAX || text.contains(char::is_whitespace) {
        return Err(Malformed::Name(text.to_owned()));
    }
    Ok(match text.contains(['*', '?']) {
        true => Matcher::Pattern(WildMatch::new(text)),
        false => Matcher::Name(text.to_owned()),
    })
}

impl Term {
    /// Tests whether the term describes `candidate`.
    fn matches(&self, candidate: &Candidate<'_>) -> bool {
        let interface = candidate.interface;
        match &self.what {
            Matcher::Subnet(subnet) => subnet.contains(&candidate.network.addr),
            Matcher::Name(name) => *name == interface.name,
            Matcher::Pattern(pattern) => {
                (self.is_excluded || !interface.loopback) && pattern.matches(&interface.name)
            }
        }
    }
}

/// Returns all addresses with their interfaces.
fn addresses(interfaces: &[Interface]) -> impl Iterator<Item = Candidate<'_>> {
    interfaces.iter().flat_map(|interface| {
        let candidate = move |network: &Network| Candidate {
            interface,
            network: *network,
        };
        interface.networks.iter().map(candidate)
    })
}

/// Tests whether the interface of `candidate` can send.
fn is_usable(candidate: &Candidate<'_>) -> bool {
    candidate.interface.up && candidate.interface.running
}

/// Place of a candidate in the order of candidates: term, kind of interface, scope of the address.
type Preference = (usize, u8, u8);

/// Returns the place of `candidate`, or `None` if `terms` do not select it. A term may select an
/// interface of a kind that is not selected by default.
fn preference(terms: &[Term], candidate: &Candidate<'_>) -> Option<Preference> {
    let (excluding, including): (Vec<_>, Vec<_>) = terms.iter().partition(|term| term.is_excluded);
    if excluding.iter().any(|term| term.matches(candidate)) {
        return None;
    }
    let kind = rank(candidate.interface.kind);
    let (term, kind) = if including.is_empty() {
        (0, kind?)
    } else {
        let term = including.iter().position(|term| term.matches(candidate))?;
        (term, kind.unwrap_or(u8::MAX))
    };
    Some((term, kind, scope(candidate.network.addr)))
}

/// Ranks kinds of interface by the likelihood that they connect the hosts of a cluster: hardware
/// first, virtual interfaces later. `None` for loopback and for bridges of containers and virtual
/// machines, which do not lead to other hosts.
fn rank(kind: InterfaceKind) -> Option<u8> {
    match kind {
        InterfaceKind::Device | InterfaceKind::Bond => Some(0),
        InterfaceKind::Veth => Some(1),
        InterfaceKind::Vlan | InterfaceKind::Bridge => Some(2),
        InterfaceKind::Tunnel | InterfaceKind::Other => Some(3),
        InterfaceKind::Loopback
        | InterfaceKind::ContainerBridge
        | InterfaceKind::VirtualMachineBridge => None,
    }
}

/// Ranks addresses of one interface: link-local addresses are last. Hosts give themselves such an
/// IPv4 address when nothing configured the network, and an IPv6 one in any case.
fn scope(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(addr) if addr.is_link_local() => 2,
        IpAddr::V6(addr) if addr.is_unicast_link_local() => 3,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

/// Interfaces and addresses of a host, for an error that lists them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inventory<'a>(pub(super) &'a [Interface]);

impl fmt::Display for Inventory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no interface");
        }
        for (place, interface) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}{}", interface.name)?;
            if !interface.up {
                f.write_str(" (down)")?;
            } else if !interface.running {
                f.write_str(" (no carrier)")?;
            }
            if interface.networks.is_empty() {
                f.write_str(" without an address")?;
            }
            for (place, network) in interface.networks.iter().enumerate() {
                let separator = if place == 0 { " " } else { ", " };
                write!(f, "{separator}{}/{}", network.addr, network.prefix_len)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
