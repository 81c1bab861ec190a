// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conclusions of `doctor --between` from the two reports: what passes, what is wrong, and the
//! remedies. They use no other data.
//!
//! Invariant: a cause is named only if no other cause explains the observations. Otherwise the text
//! lists the possible causes.

mod blocked;
mod passing;

use super::report::{By, End, Failure, HostReport, ProbePath};
use portolan_sys::net::is_of_one_link;
use serde::Serialize;

/// A problem between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Set if jobs between the two hosts fail because of it.
    pub(super) is_needed: bool,
    /// Observation, with the host.
    pub(super) what: String,
    /// A setting or a command.
    pub(super) remedy: String,
}

/// Path of a job between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reach {
    Udp,
    Raw,
    Nothing,
}

/// The two reports, in the order of the hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between<'a> {
    pub(super) hosts: [&'a HostReport; 2],
}

/// A pair of ends: of the first host and of the second.
pub(super) type Pair = (usize, usize);

impl<'a> Between<'a> {
    /// Returns the path by which jobs reach the other host, and all problems.
    pub(super) fn verdict(&self) -> (Reach, Vec<Finding>) {
        let working = self.both_ways(By::Udp);
        if !working.is_empty() {
            return (Reach::Udp, self.secondary(&working));
        }
        match self.by_raw() {
            Some(pair) => (Reach::Raw, vec![self.without_udp(pair)]),
            None => (Reach::Nothing, self.nothing_passes()),
        }
    }

    /// Returns a pair of one subnet if raw frames pass between its interfaces. Jobs send raw frames
    /// only within a subnet.
    fn by_raw(&self) -> Option<Pair> {
        let raw = self.both_ways(By::Raw);
        let is_of = |pair: Pair, raw: Pair| {
            (0..2).all(|host| self.end(pair, host).interface == self.end(raw, host).interface)
        };
        let mut near = self
            .plausible()
            .into_iter()
            .filter(|pair| self.is_one_subnet(*pair));
        near.find(|pair| raw.iter().any(|raw| is_of(*pair, *raw)))
    }

    /// Returns all pairs of ends.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let [a, b] = self.hosts;
        let seconds = || 0..b.ends.len();
        let firsts = 0..a.ends.len();
        firsts
            .flat_map(|i| seconds().map(move |j| (i, j)))
            .collect()
    }

    /// Returns the pairs of one address family with different addresses, those of one subnet first.
    pub(super) fn plausible(&self) -> Vec<Pair> {
        let mut pairs = self.pairs();
        pairs.retain(|pair| self.is_alike(*pair) && !self.is_same_address(*pair));
        pairs.sort_by_key(|pair| !self.is_one_subnet(*pair));
        pairs
    }

    /// Returns the pairs between which packets pass by `by` in both directions.
    pub(super) fn both_ways(&self, by: By) -> Vec<Pair> {
        let mut pairs = self.pairs();
        pairs.retain(|pair| (0..2).all(|from| self.passed(by, *pair, from).is_some()));
        pairs
    }

    /// Returns the bytes of the longest packet that has passed from host `from` to the other.
    pub(super) fn passed(&self, by: By, pair: Pair, from: usize) -> Option<usize> {
        self.hosts[1 - from].arrived(probe_path(by, pair, from))
    }

    /// Returns the reason for which host `from` could not send.
    pub(super) fn failure(&self, by: By, pair: Pair, from: usize) -> Option<Failure> {
        self.hosts[from].failure(probe_path(by, pair, from))
    }

    pub(super) fn end(&self, pair: Pair, host: usize) -> &'a End {
        let place = if host == 0 { pair.0 } else { pair.1 };
        &self.hosts[host].ends[place]
    }

    pub(super) fn name(&self, host: usize) -> &'a str {
        &self.hosts[host].host
    }

    fn is_alike(&self, pair: Pair) -> bool {
        let [a, b] = [0, 1].map(|host| self.end(pair, host).addr);
        a.is_ipv4() == b.is_ipv4() && is_of_one_link(a) == is_of_one_link(b)
    }

    fn is_same_address(&self, pair: Pair) -> bool {
        self.end(pair, 0).addr == self.end(pair, 1).addr
    }

    fn is_one_subnet(&self, pair: Pair) -> bool {
        let end = self.end(pair, 0);
        let network = portolan_link::Network {
            addr: end.addr,
            prefix_len: end.prefix_len,
        };
        network.contains(self.end(pair, 1).addr)
    }
}

/// Returns the path of a probe from host `from` to the other between the ends of `pair`.
fn probe_path(by: By, (first, second): Pair, from: usize) -> ProbePath {
    match from {
        0 => ProbePath {
            by,
            from: first,
            to: second,
        },
        _ => ProbePath {
            by,
            from: second,
            to: first,
        },
    }
}

/// Formats an end of a host for a message.
pub(super) fn label(end: &End) -> String {
    format!("{} {}", end.interface, end.addr)
}

/// Port range that a remedy proposes where none is set. It is below the range that Linux assigns to
/// clients, so that no other program gets one of its ports by chance.
const PORTS_PROPOSED: &str = "20000-20100";

impl Between<'_> {
    /// Returns the commands that open the job's ports for `protocols` on `hosts`, and the setting
    /// that keeps the job on these ports.
    fn open_ports(&self, protocols: &[&str], hosts: &[usize]) -> String {
        let set = self.hosts.iter().find_map(|host| host.ports.as_deref());
        let ports = set.unwrap_or(PORTS_PROPOSED);
        let rules = protocols.iter().map(|protocol| {
            format!("nft insert rule inet filter input {protocol} dport {ports} accept")
        });
        let rules: Vec<String> = rules.collect();
        let names: Vec<&str> = hosts.iter().map(|host| self.name(*host)).collect();
        let rules = format!("on {}: {}", names.join(" and "), rules.join("; "));
        match set {
            Some(_) => format!("{rules} (or the same with the tool of that firewall)"),
            None => format!(
                "PORTOLAN_PORTS={ports} (--option ports={ports}), and open that range {rules} (or the \
                 same with the tool of that firewall)"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
