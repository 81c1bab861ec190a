// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of one process of `doctor --between`: what arrived, and which sends failed. Data without
//! the token of the other process is ignored.

use super::seen::{By, Failure, Mark, Offer, Way};
use std::collections::BTreeMap;

/// Largest number of addresses that are tried on a host; each is tried with each of the other host.
pub(super) const ENDS_MAX: usize = 8;

/// Arrivals from the other process, and failures of sends to it.
pub(super) struct Ways<'a> {
    token: u64,
    pub(super) other: &'a Offer,
    arrived: BTreeMap<Way, usize>,
    failed: BTreeMap<Way, Failure>,
}

impl<'a> Ways<'a> {
    /// Creates empty results for a process with `token` that tests the way to the process of
    /// `other`.
    pub(super) fn new(token: u64, other: &'a Offer) -> Ways<'a> {
        Ways {
            token,
            other,
            arrived: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Returns the ways by which packets arrived, with the bytes of the longest packet.
    pub(super) fn arrived(&self) -> Vec<(Way, usize)> {
        let arrived = self.arrived.iter();
        arrived.map(|(way, len)| (*way, *len)).collect()
    }

    /// Returns the ways by which sending failed.
    pub(super) fn failed(&self) -> Vec<(Way, Failure)> {
        let failed = self.failed.iter();
        failed.map(|(way, failure)| (*way, *failure)).collect()
    }

    /// Records a received packet; `overhead_len` is the number of header bytes in front of it.
    pub(super) fn take(&mut self, by: By, bytes: &[u8], overhead_len: usize) {
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
        let longest = self.arrived.entry(Way { by, from, to }).or_default();
        *longest = (*longest).max(len + overhead_len);
    }

    /// Records a failure to send. A report of another host replaces one of this host.
    pub(super) fn fail(&mut self, way: Way, failure: Failure) {
        let known = self.failed.entry(way).or_insert(failure);
        if failure.is_remote {
            *known = failure;
        }
    }

    /// Returns the mark of `len` bytes by `way`.
    pub(super) fn mark(&self, way: Way, len: usize) -> Mark {
        let number = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
        Mark {
            token: self.token,
            from: number(way.from),
            to: number(way.to),
            len: u16::try_from(len).unwrap_or(u16::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seen::End;
    use super::*;

    #[test]
    fn marks_survive_and_what_is_none_is_dropped() {
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
    fn strangers_and_this_process_itself_are_not_believed() {
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
        let mut ways = Ways::new(7, &other);
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
            ways.take(By::Udp, &wrong.to_bytes(), 28);
        }
        assert!(ways.arrived.is_empty());
        ways.take(By::Udp, &mark(8, 0, 16).to_bytes(), 28);
        let way = Way {
            by: By::Udp,
            from: 0,
            to: 0,
        };
        assert_eq!(ways.arrived.get(&way), Some(&44));
    }
}
