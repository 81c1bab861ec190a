// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings if UDP does not pass, with causes and remedies.

use super::super::report::{By, End, HostReport, Nic};
use super::{Between, Finding, Pair, label};
use ipnet::IpNet;
use std::net::IpAddr;

/// Largest number of interfaces that a sentence names.
const NAMED_MAX: usize = 4;

impl Between<'_> {
    /// Explains why UDP does not pass between the ends of `pair`, although raw Ethernet does.
    pub(super) fn without_udp(&self, pair: Pair) -> Finding {
        let cause = self.explain(pair);
        Finding {
            is_needed: false,
            what: format!("{}; jobs run by raw Ethernet", cause.what),
            remedy: format!(
                "--path packet (PORTOLAN_PATH=packet); for UDP: {}",
                cause.remedy
            ),
        }
    }

    /// Explains why no packets pass.
    pub(super) fn nothing_passes(&self) -> Vec<Finding> {
        let without = [0, 1]
            .into_iter()
            .filter(|host| self.hosts[*host].ends.is_empty());
        let without: Vec<Finding> = without.map(|host| no_address(self.hosts[host])).collect();
        if !without.is_empty() {
            return without;
        }
        let pairs = self.plausible();
        let Some(best) = self.most_informative(&pairs) else {
            return vec![match self.pairs().iter().any(|pair| self.is_alike(*pair)) {
                true => self.same_addresses(),
                false => self.no_family(),
            }];
        };
        let mut findings = vec![self.explain(best)];
        findings.extend(
            [0, 1]
                .into_iter()
                .filter_map(|host| self.interfaces_down(host)),
        );
        findings
    }

    /// Returns the pair with the most information: first one where packets arrived, then one where
    /// another host reported an error.
    fn most_informative(&self, pairs: &[Pair]) -> Option<Pair> {
        let score = |pair: &Pair| {
            let probes = [By::Udp, By::Tcp, By::Raw].map(|by| [(by, 0), (by, 1)]);
            let probes = probes.iter().flatten();
            probes
                .map(|(by, from)| {
                    let has_come = self.passed(*by, *pair, *from).is_some();
                    let failure = self.failure(*by, *pair, *from);
                    let is_answered = failure.is_some_and(|failure| failure.is_remote);
                    2 * u32::from(has_come) + u32::from(is_answered)
                })
                .sum::<u32>()
        };
        // Among equal pairs take the first: pairs of one subnet come first.
        pairs.iter().rev().max_by_key(|pair| score(pair)).copied()
    }

    /// Explains why UDP does not pass between the ends of `pair`.
    fn explain(&self, pair: Pair) -> Finding {
        let blocked = (0..2).filter(|from| self.passed(By::Udp, pair, *from).is_none());
        let blocked: Vec<usize> = blocked.collect();
        let causes = blocked.iter().map(|from| self.cause(pair, *from));
        // An error report of a kernel or a host is more specific than silence.
        let found = causes.flatten().next();
        found.unwrap_or_else(|| self.silence(pair, &blocked))
    }

    /// Returns the finding for a reported error of host `from`.
    fn cause(&self, pair: Pair, from: usize) -> Option<Finding> {
        let failure = self.failure(By::Udp, pair, from)?;
        let (own, other) = (self.name(from), self.name(1 - from));
        let (end, there) = (self.end(pair, from), self.end(pair, 1 - from));
        let (at, to) = (label(end), label(there));
        let what = |why: &str| format!("UDP from {at} of {own} to {to} of {other}: {why}");
        let (why, remedy) = match (failure.errno, failure.is_remote) {
            (libc::EPERM | libc::EACCES, false) => (
                format!("a firewall of {own} forbids UDP output (EPERM)"),
                format!(
                    "on {own}: nft insert rule inet filter output udp accept (`nft list ruleset` shows the rule that \
                     forbids it)"
                ),
            ),
            (libc::ECONNREFUSED, _) => (
                format!("a firewall of {other} rejects it (port unreachable)"),
                self.open_ports(&["udp", "tcp"], &[from, 1 - from]),
            ),
            (libc::ENETUNREACH, false) => (
                format!("{own} has no route to it (ENETUNREACH)"),
                route(own, end, there),
            ),
            (_, true) => (
                format!("a host on the path rejects it ({})", errno(failure.errno)),
                self.open_ports(&["udp", "tcp"], &[from, 1 - from]),
            ),
            (libc::EHOSTUNREACH, false) if self.is_one_subnet(pair) => (
                "it does not answer ARP or neighbour discovery (EHOSTUNREACH): the two interfaces are \
                 not on one Ethernet"
                    .to_owned(),
                format!(
                    "check cable, switch port and VLAN of {} on {own} and {} on {other}",
                    end.interface, there.interface
                ),
            ),
            (libc::EHOSTUNREACH, false) => (
                format!("the router of {own} does not answer (EHOSTUNREACH)"),
                route(own, end, there),
            ),
            (other_errno, false) => (
                errno(other_errno),
                format!("`ip route get {}` on {own} shows the route that the system would use", there.addr),
            ),
        };
        Some(Finding {
            is_needed: true,
            what: what(&why),
            remedy,
        })
    }

    /// Returns true if packets pass by `by` in one of the directions `blocked`. A TCP connection
    /// needs both directions.
    fn passes_otherwise(&self, by: By, pair: Pair, blocked: &[usize]) -> bool {
        let directions = match by {
            By::Tcp => &[0, 1],
            By::Udp | By::Raw => blocked,
        };
        let mut directions = directions.iter();
        directions.any(|from| self.passed(by, pair, *from).is_some())
    }

    /// Returns the finding for probes that got no answer and no error.
    fn silence(&self, pair: Pair, blocked: &[usize]) -> Finding {
        let ends =
            [0, 1].map(|host| format!("{} of {}", label(self.end(pair, host)), self.name(host)));
        let others: Vec<&str> = [(By::Tcp, "TCP"), (By::Raw, "raw Ethernet")]
            .iter()
            .filter(|(by, _)| self.passes_otherwise(*by, pair, blocked))
            .map(|(_, name)| *name)
            .collect();
        let direction = match blocked {
            [from] => format!("from {} to {}", ends[*from], ends[1 - *from]),
            _ => format!("between {} and {}", ends[0], ends[1]),
        };
        let (why, remedy) = if !others.is_empty() || blocked.len() == 1 {
            let passes = match others.is_empty() {
                true => "the other direction passes".to_owned(),
                false if others.len() > 1 => format!("{} pass", others.join(" and ")),
                false => format!("{} passes", others[0]),
            };
            (
                format!("{passes}, so a firewall drops UDP"),
                self.open_ports(&["udp", "tcp"], &[0, 1]),
            )
        } else if self.is_one_subnet(pair) {
            (
                "no other probe passes either: a firewall drops everything, or the interfaces are not on \
                 one Ethernet"
                    .to_owned(),
                format!(
                    "{}; check cable, switch port and VLAN",
                    self.open_ports(&["udp", "tcp"], &[0, 1])
                ),
            )
        } else {
            let (own, other) = (self.end(pair, 0), self.end(pair, 1));
            (
                "no other probe passes either, and the two are in different subnets: a route is missing, \
                 or a firewall drops everything"
                    .to_owned(),
                format!(
                    "{}; {}; {}",
                    route(self.name(0), own, other),
                    route(self.name(1), other, own),
                    self.open_ports(&["udp", "tcp"], &[0, 1])
                ),
            )
        };
        Finding {
            is_needed: true,
            what: format!("UDP {direction} gets no answer; {why}"),
            remedy,
        }
    }

    fn same_addresses(&self) -> Finding {
        let end = &self.hosts[0].ends[0];
        Finding {
            is_needed: true,
            what: format!(
                "{} and {} have the same addresses ({}): each reaches only itself",
                self.name(0),
                self.name(1),
                label(end)
            ),
            remedy: format!(
                "on one of the hosts: ip address add ADDRESS/{} dev {}, with an address that no other host has",
                end.prefix_len, end.interface
            ),
        }
    }

    fn no_family(&self) -> Finding {
        let families = [0, 1].map(|host| {
            let ends = &self.hosts[host].ends;
            let has = |is_v4: bool| ends.iter().any(|end| end.addr.is_ipv4() == is_v4);
            match (has(true), has(false)) {
                (true, false) => "only IPv4",
                (false, true) => "only IPv6",
                _ => "no address of the other family",
            }
        });
        let v4 = usize::from(families[0] == "only IPv6");
        let lacking = 1 - v4;
        let interface = self.hosts[lacking]
            .ends
            .first()
            .map_or("eth0", |end| &end.interface);
        Finding {
            is_needed: true,
            what: format!(
                "{} has {}, {} has {}: neither can reach an address of the other",
                self.name(0),
                families[0],
                self.name(1),
                families[1]
            ),
            remedy: format!(
                "on {}: ip address add ADDRESS/PREFIX dev {interface}, with an address of the subnet of {}",
                self.name(lacking),
                self.name(v4)
            ),
        }
    }

    /// Returns a finding about interfaces of a host that are down and might otherwise be usable.
    fn interfaces_down(&self, host: usize) -> Option<Finding> {
        let nics = self.hosts[host].nics.iter();
        let down: Vec<&Nic> = nics.filter(|nic| !nic.is_inner && !nic.up).collect();
        let first = down.first()?;
        Some(Finding {
            is_needed: false,
            what: format!("{}: {} is down", self.name(host), first.name),
            remedy: format!(
                "on {}: sudo ip link set dev {} up",
                self.name(host),
                first.name
            ),
        })
    }
}

/// Explains why a host has no address that a job could use.
fn no_address(host: &HostReport) -> Finding {
    let outer: Vec<&Nic> = host.nics.iter().filter(|nic| !nic.is_inner).collect();
    let states = outer.iter().take(NAMED_MAX).map(|nic| {
        let state = match nic {
            Nic { up: false, .. } => "is down",
            Nic { running: false, .. } => "has no carrier",
            Nic { addrs, .. } if addrs.is_empty() => "has no address",
            _ => {
                "has only addresses that a setting excludes, or for which duplicate address detection has not \
                 finished"
            }
        };
        format!("{} {state}", nic.name)
    });
    let states: Vec<String> = states.collect();
    let remedies = outer.iter().take(NAMED_MAX).map(|nic| match nic {
        Nic { up: false, .. } => format!("sudo ip link set dev {} up", nic.name),
        Nic { running: false, .. } => format!("check the cable of {}", nic.name),
        Nic { name, .. } => format!("sudo ip address add ADDRESS/PREFIX dev {name}"),
    });
    let remedies: Vec<String> = remedies.collect();
    let name = &host.host;
    match outer.is_empty() {
        true => Finding {
            is_needed: true,
            what: format!("host {name} has no interface to other hosts"),
            remedy: format!("connect {name} to a network"),
        },
        false => Finding {
            is_needed: true,
            what: format!("host {name}: {}", states.join(", ")),
            remedy: format!("on {name}: {}", remedies.join("; ")),
        },
    }
}

/// Returns a command that adds a route to the subnet of `there`.
fn route(host: &str, end: &End, there: &End) -> String {
    let subnet = IpNet::new_assert(there.addr, there.prefix_len.min(width(there.addr))).trunc();
    format!(
        "on {host}: sudo ip route add {subnet} via GATEWAY dev {}",
        end.interface
    )
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

fn errno(number: i32) -> String {
    std::io::Error::from_raw_os_error(number).to_string()
}
