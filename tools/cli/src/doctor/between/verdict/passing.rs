// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings if jobs can run: addresses that reach no peer, and other protocols that do not pass.

use super::super::report::By;
use super::{Between, Finding, Pair, label};
use portolan_sys::net::is_of_one_link;
use std::collections::BTreeSet;

impl Between<'_> {
    /// Returns the problems that remain although UDP passes between the pairs `working`.
    pub(super) fn secondary(&self, working: &[Pair]) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.dead_ends(working));
        findings.extend(self.without_tcp(working));
        findings.extend(self.without_raw(working));
        findings.extend(self.short_packets(working));
        findings
    }

    /// Returns a finding about addresses that reach none of the other host's addresses of their
    /// family.
    fn dead_ends(&self, working: &[Pair]) -> Option<Finding> {
        let dead: Vec<String> = [0, 1]
            .into_iter()
            .flat_map(|host| self.dead_ends_of(host, working))
            .collect();
        if dead.is_empty() {
            return None;
        }
        let setting = self.selection(working);
        Some(Finding {
            is_needed: false,
            what: format!(
                "{}; jobs run, because they also try the other addresses",
                dead.join("; ")
            ),
            remedy: format!("PORTOLAN_NETWORK='{setting}' (--option 'network={setting}')"),
        })
    }

    fn dead_ends_of(&self, host: usize, working: &[Pair]) -> Vec<String> {
        let live: BTreeSet<usize> = working.iter().map(|pair| place(*pair, host)).collect();
        let other = self.hosts[1 - host];
        let ends = self.hosts[host].ends.iter().enumerate();
        let dead = ends.filter(|(at, end)| !live.contains(at) && !is_of_one_link(end.addr));
        let texts = dead.filter_map(|(_, end)| {
            let has = |test: &dyn Fn(std::net::IpAddr) -> bool| {
                other.ends.iter().any(|there| test(there.addr))
            };
            let of_family = |addr: std::net::IpAddr| addr.is_ipv4() == end.addr.is_ipv4();
            let why = if has(&|addr| addr == end.addr) {
                format!("is also an address of {}", self.name(1 - host))
            } else if has(&of_family) {
                format!("reaches no address of {}", self.name(1 - host))
            } else {
                return None;
            };
            Some(format!("{} of {} {why}", label(end), self.name(host)))
        });
        texts.collect()
    }

    /// Returns a value of the setting `network` that keeps only the working ends, per host if they
    /// differ.
    fn selection(&self, working: &[Pair]) -> String {
        let lists = [0, 1].map(|host| self.selection_of(host, working));
        if lists[0] == lists[1] {
            return lists[0].clone();
        }
        let named = |host: usize| format!("{}={}", self.name(host), lists[host]);
        format!("{};{}", named(0), named(1))
    }

    /// Returns the interfaces on which all addresses work, and the working addresses of other
    /// interfaces.
    fn selection_of(&self, host: usize, working: &[Pair]) -> String {
        let live: BTreeSet<usize> = working.iter().map(|pair| place(*pair, host)).collect();
        let ends = &self.hosts[host].ends;
        let is_whole = |interface: &str| {
            let of = |at: &usize| ends[*at].interface == interface;
            let ignores = |at: &usize| is_of_one_link(ends[*at].addr);
            (0..ends.len())
                .filter(of)
                .all(|at| live.contains(&at) || ignores(&at))
        };
        let mut terms: Vec<String> = Vec::new();
        for at in live.iter().copied() {
            let end = &ends[at];
            let term = match is_whole(&end.interface) {
                true => end.interface.clone(),
                false => end.addr.to_string(),
            };
            if !terms.contains(&term) {
                terms.push(term);
            }
        }
        terms.join(",")
    }

    fn without_tcp(&self, working: &[Pair]) -> Option<Finding> {
        let has_tcp = |pair: &Pair| {
            // One connection carries both directions.
            (0..2).any(|from| self.passed(By::Tcp, *pair, from).is_some())
        };
        // Ambiguous ends have not been tried.
        let is_tried = |pair: &&Pair| (0..2).all(|host| !self.end(**pair, host).is_ambiguous);
        let pair = working.iter().find(is_tried)?;
        if working.iter().any(has_tcp) {
            return None;
        }
        let refused = (0..2).find(|from| {
            let failure = self.failure(By::Tcp, *pair, *from);
            failure.is_some_and(|failure| failure.is_remote)
        });
        let how = match refused {
            Some(from) => format!("a firewall of {} rejects TCP", self.name(1 - from)),
            None => "TCP gets no answer".to_owned(),
        };
        Some(Finding {
            is_needed: false,
            what: format!(
                "{how} between {} of {} and {} of {}; bulk data uses UDP, which costs more processor time",
                label(self.end(*pair, 0)),
                self.name(0),
                label(self.end(*pair, 1)),
                self.name(1)
            ),
            remedy: format!(
                "{}; or --option stream=off",
                self.open_ports(&["tcp"], &[0, 1])
            ),
        })
    }

    /// Returns findings about raw Ethernet that does not pass although both interfaces share a
    /// subnet.
    fn without_raw(&self, working: &[Pair]) -> Vec<Finding> {
        if !self.both_ways(By::Raw).is_empty() {
            return Vec::new();
        }
        let refused: Vec<Finding> = [0, 1]
            .into_iter()
            .filter_map(|host| self.raw_refused(host))
            .collect();
        let near = working.iter().find(|pair| self.is_one_subnet(**pair));
        let (true, Some(pair)) = (refused.is_empty(), near) else {
            return refused;
        };
        let is_open = (0..2).all(|host| {
            let interface = &self.end(*pair, host).interface;
            let mut ends = self.hosts[host].ends.iter();
            ends.any(|end| end.interface == *interface && end.raw.is_some())
        });
        if !is_open {
            return refused;
        }
        vec![Finding {
            is_needed: false,
            what: format!(
                "EtherType 0x88b5 does not pass between {} of {} and {} of {}: a switch or a firewall of \
                 bridges drops it, or there is a router between them; small messages use UDP",
                self.end(*pair, 0).interface,
                self.name(0),
                self.end(*pair, 1).interface,
                self.name(1)
            ),
            remedy: "let EtherType 0x88b5 pass there; or use --path udp (PORTOLAN_PATH=udp), which does not need it"
                .to_owned(),
        }]
    }

    fn raw_refused(&self, host: usize) -> Option<Finding> {
        let why = self.hosts[host].raw_refused.as_ref()?;
        Some(Finding {
            is_needed: false,
            what: format!(
                "raw Ethernet, which halves the latency of small messages, cannot be opened on {}: {why}",
                self.name(host)
            ),
            remedy: format!(
                "on {}: sudo setcap cap_net_raw+ep PROGRAM, or run `portolan broker` (docs/guide/broker.md)",
                self.name(host)
            ),
        })
    }

    /// Returns findings about packets that fit the sender's MTU and do not arrive.
    fn short_packets(&self, working: &[Pair]) -> Vec<Finding> {
        let mut reported: BTreeSet<(usize, String)> = BTreeSet::new();
        let mut findings = Vec::new();
        for pair in working {
            for from in 0..2 {
                let end = self.end(*pair, from);
                let passed = self.passed(By::Udp, *pair, from).unwrap_or(0);
                if passed >= end.mtu || !reported.insert((from, end.interface.clone())) {
                    continue;
                }
                findings.push(Finding {
                    is_needed: false,
                    what: format!(
                        "packets of more than {passed} bytes from {} of {} do not reach {} of {}, although \
                         the sender's MTU is {}; Portolan detects that only by loss",
                        label(end),
                        self.name(from),
                        label(self.end(*pair, 1 - from)),
                        self.name(1 - from),
                        end.mtu
                    ),
                    remedy: format!(
                        "on {}: sudo ip link set dev {} mtu {passed}",
                        self.name(from),
                        end.interface
                    ),
                });
            }
        }
        findings
    }
}

fn place(pair: Pair, host: usize) -> usize {
    if host == 0 { pair.0 } else { pair.1 }
}
