// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of a peer, and the result of the probes to each.
//!
//! An address is no proof: two hosts may have the same one, and two networks may use the same
//! subnet. So probes go to all addresses at once, and only an answer with the right hash proves
//! that an address leads to the peer (`P9.11`).
//!
//! Invariant: the result at an unproven address does not count as death of the peer.

use crate::address::TARGETS_MAX;
use portolan_proto::Instant;
use std::io;
use std::net::SocketAddr;

/// Bits of a nonce for the index of the address.
const INDEX_BITS: u64 = TARGETS_MAX as u64 - 1;

/// Unanswered probes to the proven address after which all are probed again.
const UNANSWERED_MAX: u8 = 3;

/// Result of the last probes to an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No probe was sent, or no answer arrived.
    #[default]
    Silent,
    /// The system call failed with this errno.
    Unsent(i32),
    /// An ICMP error quoted a probe: no process listens there, or a firewall rejects UDP.
    Refused,
    /// The peer has answered.
    Answered,
}

/// Addresses of one peer, with the results of the probes.
#[derive(Debug, Default)]
pub(super) struct PeerAddresses {
    tried: Box<[(SocketAddr, Outcome)]>,
    /// Index of the proven address. Small, since there can be a record for each of many thousand
    /// peers.
    proven: Option<u8>,
    /// Probes to the proven address since its last answer.
    unanswered: u8,
}

impl PeerAddresses {
    /// Keeps the first [`TARGETS_MAX`] of `addrs`, which are sorted by likelihood.
    pub(super) fn new(addrs: impl IntoIterator<Item = SocketAddr>) -> PeerAddresses {
        let addrs = addrs.into_iter().take(TARGETS_MAX);
        PeerAddresses {
            tried: addrs.map(|addr| (addr, Outcome::Silent)).collect(),
            ..PeerAddresses::default()
        }
    }

    /// Sends a probe to the proven address, or to all addresses. `send` gets an address and its
    /// nonce. Returns `true` if a probe was sent.
    pub(super) fn probe(
        &mut self,
        now: Instant,
        mut send: impl FnMut(SocketAddr, u64) -> io::Result<()>,
    ) -> bool {
        let proven = self.proven.filter(|_| self.unanswered < UNANSWERED_MAX);
        let proven = proven.map(usize::from);
        self.unanswered = self.unanswered.saturating_add(1);
        let mut has_sent = false;
        for (index, (addr, outcome)) in self.tried.iter_mut().enumerate() {
            if proven.is_some_and(|proven| proven != index) {
                continue;
            }
            match send(*addr, nonce(now, index)) {
                Ok(()) if matches!(outcome, Outcome::Unsent(_)) => *outcome = Outcome::Silent,
                Ok(()) => {}
                Err(error) => *outcome = Outcome::Unsent(error.raw_os_error().unwrap_or(0)),
            }
            has_sent |= !matches!(outcome, Outcome::Unsent(_));
        }
        has_sent
    }

    /// Records an answer to the probe with `nonce`. The first address that answers stays the proven
    /// one while it answers.
    pub(super) fn on_answer(&mut self, nonce: u64) {
        let index = index_of(nonce);
        let Some((_, outcome)) = self.tried.get_mut(index) else {
            return;
        };
        *outcome = Outcome::Answered;
        let is_kept = self.proven.is_some() && self.unanswered < UNANSWERED_MAX;
        let index = u8::try_from(index).ok();
        if !is_kept {
            self.proven = index;
        }
        if self.proven == index {
            self.unanswered = 0;
        }
    }

    /// Records that the probe with `nonce` was returned as undeliverable. Returns `true` if it went
    /// to the proven address.
    pub(super) fn on_refusal(&mut self, nonce: u64) -> bool {
        let index = index_of(nonce);
        if let Some((_, outcome)) = self.tried.get_mut(index) {
            *outcome = Outcome::Refused;
        }
        self.proven.map(usize::from) == Some(index)
    }

    /// Records that a frame to the host of `addr` was returned as undeliverable.
    pub(super) fn note_refused(&mut self, addr: SocketAddr) {
        let mut tried = self.tried.iter_mut();
        if let Some((_, outcome)) = tried.find(|(tried, _)| is_same_place(*tried, addr))
            && *outcome != Outcome::Answered
        {
            *outcome = Outcome::Refused;
        }
    }

    /// Records that a session proved the host of `addr`, whatever the port.
    pub(super) fn prove(&mut self, addr: SocketAddr) {
        if self.proven.is_none() {
            let mut tried = self.tried.iter();
            let index = tried.position(|(tried, _)| is_same_place(*tried, addr));
            self.proven = index.and_then(|index| u8::try_from(index).ok());
            self.unanswered = 0;
        }
    }

    pub(super) fn proven(&self) -> Option<SocketAddr> {
        Some(self.tried.get(usize::from(self.proven?))?.0)
    }

    /// Tests whether `addr` is the proven address.
    pub(super) fn is_proven(&self, addr: SocketAddr) -> bool {
        self.proven() == Some(addr)
    }

    /// Returns all addresses with their results.
    pub(super) fn outcomes(&self) -> &[(SocketAddr, Outcome)] {
        &self.tried
    }
}

/// Tests whether two addresses differ at most in the port. The same link-local address on another
/// interface counts as different.
pub(crate) fn is_same_place(a: SocketAddr, b: SocketAddr) -> bool {
    let place = |mut addr: SocketAddr| {
        addr.set_port(0);
        addr
    };
    place(a) == place(b)
}

/// Returns the nonce of a probe to the address at `index`: the time, rounded up so that it is not
/// earlier than the reason for the probe. An answer takes longer than the rounding.
fn nonce(now: Instant, index: usize) -> u64 {
    let rounded = now.as_nanos().saturating_add(INDEX_BITS) & !INDEX_BITS;
    rounded | (index as u64 & INDEX_BITS)
}

fn index_of(nonce: u64) -> usize {
    usize::try_from(nonce & INDEX_BITS).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 9))
    }

    fn three() -> PeerAddresses {
        PeerAddresses::new([addr(1), addr(2), addr(3)])
    }

    /// Sends probes, and returns their nonces by address.
    fn probe_all(addresses: &mut PeerAddresses, at: u64) -> Vec<(SocketAddr, u64)> {
        let mut sent = Vec::new();
        addresses.probe(Instant::from_nanos(at), |addr, nonce| {
            sent.push((addr, nonce));
            Ok(())
        });
        sent
    }

    #[test]
    fn all_addresses_are_probed_until_one_answers() {
        let mut addresses = three();
        let sent = probe_all(&mut addresses, 1000);
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|(_, nonce)| (1000..1032).contains(nonce)));
        addresses.on_answer(sent[1].1);
        assert_eq!(addresses.proven(), Some(addr(2)));
        assert_eq!(probe_all(&mut addresses, 2000)[..], [(addr(2), 2000 | 1)]);
    }

    #[test]
    fn all_addresses_are_probed_again_after_silence() {
        let mut addresses = three();
        let first = probe_all(&mut addresses, 1000)[0].1;
        addresses.on_answer(first);
        for _ in 0..UNANSWERED_MAX {
            assert_eq!(probe_all(&mut addresses, 2000).len(), 1);
        }
        let sent = probe_all(&mut addresses, 3000);
        assert_eq!(sent.len(), 3);
        addresses.on_answer(sent[2].1);
        assert_eq!(addresses.proven(), Some(addr(3)));
    }

    #[test]
    fn refusal_counts_only_at_the_proven_address() {
        let mut addresses = three();
        let sent = probe_all(&mut addresses, 1000);
        assert!(!addresses.on_refusal(sent[0].1));
        addresses.on_answer(sent[1].1);
        assert!(!addresses.on_refusal(sent[2].1));
        assert!(addresses.on_refusal(sent[1].1));
    }

    #[test]
    fn send_errno_is_recorded() {
        let mut addresses = PeerAddresses::new([addr(1)]);
        let refuse = |_, _| Err(io::Error::from_raw_os_error(101));
        assert!(!addresses.probe(Instant::from_nanos(1), refuse));
        assert_eq!(addresses.outcomes(), [(addr(1), Outcome::Unsent(101))]);
    }

    #[test]
    fn session_proves_address_for_any_port() {
        let mut addresses = three();
        addresses.prove(SocketAddr::from(([10, 0, 0, 3], 77)));
        assert!(addresses.is_proven(addr(3)));
        addresses.prove(addr(1));
        assert!(addresses.is_proven(addr(3)), "the first one is kept");
    }
}
