// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of one process of `doctor --between`: what arrived, and which sends failed. Data without
//! the token of the other process is ignored.

use super::report::{By, Failure, Mark, Offer, ProbePath};
use std::collections::BTreeMap;

/// Largest number of addresses that are tried on a host; each is tried with each of the other host.
pub(super) const ENDS_MAX: usize = 8;

/// Arrivals from the other process, and failures of sends to it.
pub(super) struct Results<'a> {
    token: u64,
    pub(super) other: &'a Offer,
    arrived: BTreeMap<ProbePath, usize>,
    failed: BTreeMap<ProbePath, Failure>,
}

impl<'a> Results<'a> {
    /// Creates empty results for a process with `token` that tests the paths to the process of
    /// `other`.
    pub(super) fn new(token: u64, other: &'a Offer) -> Results<'a> {
        Results {
            token,
            other,
            arrived: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Returns the paths by which packets arrived, with the bytes of the longest packet.
    pub(super) fn arrived(&self) -> Vec<(ProbePath, usize)> {
        let arrived = self.arrived.iter();
        arrived.map(|(path, len)| (*path, *len)).collect()
    }

    /// Returns the paths by which sending failed.
    pub(super) fn failed(&self) -> Vec<(ProbePath, Failure)> {
        let failed = self.failed.iter();
        failed.map(|(path, failure)| (*path, *failure)).collect()
    }

    /// Records a received packet; `overhead_len` is the number of header bytes in front of it.
    pub(super) fn record_packet(&mut self, by: By, bytes: &[u8], overhead_len: usize) {
        let Some(mark) = Mark::parse(bytes) else {
            return;
        };
        let len = usize::from(mark.len);
        let (from, to) = (usize::from(mark.from), usize::from(mark.to));
        // Other programs may send anything. So may this process, to an address that both hosts
        // have.
        let is_sound = mark.token == self.other.token && from < self.other.ends.len();
        if !is_sound || to >= ENDS_MAX || len > bytes.len() {
            return;
        }
        let longest = self.arrived.entry(ProbePath { by, from, to }).or_default();
        *longest = (*longest).max(len + overhead_len);
    }

    /// Records a failure to send. A report of another host replaces one of this host.
    pub(super) fn record_failure(&mut self, path: ProbePath, failure: Failure) {
        let known = self.failed.entry(path).or_insert(failure);
        if failure.is_remote {
            *known = failure;
        }
    }

    /// Returns the mark of `len` bytes by `path`.
    pub(super) fn mark(&self, path: ProbePath, len: usize) -> Mark {
        let number = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
        Mark {
            token: self.token,
            from: number(path.from),
            to: number(path.to),
            len: u16::try_from(len).unwrap_or(u16::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::End;
    use super::*;

    #[test]
    fn mark_round_trips() {
        let mark = Mark {
            token: 7,
            from: 1,
            to: 2,
            len: 99,
        };
        assert_eq!(Mark::parse(&mark.to_bytes()), Some(mark));
        assert_eq!(Mark::parse(&mark.to_bytes()[..15]), None);
        assert_eq!(Mark::parse(&[0xa5; 64]), None);
    }

    #[test]
    fn foreign_and_own_packets_are_ignored() {
        let end = End {
            interface: "eth0".into(),
            index: 1,
            addr: "10.0.0.1".parse().unwrap(),
            prefix_len: 24,
            mtu: 1500,
            port: 1,
            is_ambiguous: false,
            raw: None,
        };
        let other = Offer {
            token: 8,
            ends: vec![end],
        };
        let mut results = Results::new(7, &other);
        let mark = |token, from, len| Mark {
            token,
            from,
            to: 0,
            len,
        };
        for wrong in [
            mark(7, 0, 16),
            mark(9, 0, 16),
            mark(8, 1, 16),
            mark(8, 0, 17),
        ] {
            results.record_packet(By::Udp, &wrong.to_bytes(), 28);
        }
        assert!(results.arrived.is_empty());
        results.record_packet(By::Udp, &mark(8, 0, 16).to_bytes(), 28);
        let path = ProbePath {
            by: By::Udp,
            from: 0,
            to: 0,
        };
        assert_eq!(results.arrived.get(&path), Some(&44));
    }
}
