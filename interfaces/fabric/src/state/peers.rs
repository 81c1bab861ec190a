// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers of an endpoint, by index in its address vector and by the engine's number.

use portolan::Cause;
use portolan::binding::{EndpointAddress, PeerIndex, RawError};

use crate::abi::ADDR_NOTAVAIL;
use crate::errno::{self, Errno};

/// Address book of an endpoint's peers.
#[derive(Default)]
pub(super) struct Peers {
    /// Peers by their index in the address vector.
    by_index: Vec<Option<PeerIndex>>,
    /// Indices in the address vector, by peer.
    sources: Vec<u64>,
    /// Addresses of the peers, for error messages.
    owners: Vec<Option<EndpointAddress>>,
    /// Failed peers that the user was notified of.
    failed: Vec<PeerIndex>,
    /// Set if the one peer is that of a connection.
    is_connected: bool,
}

impl Peers {
    /// Returns the peer at an index of the vector.
    #[inline]
    pub(super) fn find(&self, addr: u64) -> Result<PeerIndex, Errno> {
        let at = usize::try_from(addr).unwrap_or(usize::MAX);
        self.by_index.get(at).copied().flatten().ok_or(Errno::INVAL)
    }

    /// Returns the index of a peer in the vector.
    #[inline]
    pub(super) fn source(&self, peer: Option<PeerIndex>) -> u64 {
        let index = peer.map_or(usize::MAX, |peer| peer.0 as usize);
        self.sources.get(index).copied().unwrap_or(ADDR_NOTAVAIL)
    }

    /// Adds a peer at its index in the vector.
    pub(super) fn insert(&mut self, at: usize, peer: PeerIndex, address: &EndpointAddress) {
        if self.by_index.len() <= at {
            self.by_index.resize(at + 1, None);
        }
        self.by_index[at] = Some(peer);
        let index = peer.0 as usize;
        if self.sources.len() <= index {
            self.sources.resize(index + 1, ADDR_NOTAVAIL);
            self.owners.resize(index + 1, None);
        }
        self.owners[index] = Some(*address);
        // If an address was inserted twice, its first index is reported as the source of messages.
        if self.sources[index] == ADDR_NOTAVAIL {
            self.sources[index] = at as u64;
        }
    }

    /// Adds the one peer of a connected endpoint, which has no index.
    pub(super) fn set_only(&mut self, peer: PeerIndex, address: &EndpointAddress) {
        let index = peer.0 as usize;
        self.owners.resize(index + 1, None);
        self.owners[index] = Some(*address);
        self.is_connected = true;
    }

    /// Returns true if a peer has failed and the user was notified.
    pub(super) fn has_failed_peer(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Returns the number that a completion with this error carries.
    #[cold]
    pub(super) fn errno_of(&self, error: &RawError) -> Errno {
        match error {
            RawError::PeerGone(_) if self.is_connected => Errno::NOTCONN,
            other => errno::of_completion(other),
        }
    }

    /// Removes an address. Returns the peer if this was its last index.
    pub(super) fn forget(&mut self, at: usize) -> Option<PeerIndex> {
        let peer = self.by_index.get_mut(at).and_then(Option::take)?;
        let other = self.by_index.iter().position(|&other| other == Some(peer));
        if let Some(source) = self.sources.get_mut(peer.0 as usize) {
            *source = other.map_or(ADDR_NOTAVAIL, |at| at as u64);
        }
        other.is_none().then_some(peer)
    }

    /// Returns an error message with the peer and the cause.
    #[cold]
    pub(super) fn sentence(&self, peer: Option<PeerIndex>, error: &RawError) -> String {
        match peer {
            None => error.to_string(),
            Some(peer) => format!("{}: {error}", self.describe(peer)),
        }
    }

    /// Describes a peer. Its index in the address vector is usually, but not always, its rank.
    fn describe(&self, peer: PeerIndex) -> String {
        let owner = self.owners.get(peer.0 as usize).copied().flatten();
        let owner = owner.map_or_else(
            || "a process that was not inserted".to_owned(),
            |owner| format!("process {} on {}", owner.pid(), owner.ip()),
        );
        match self.source(Some(peer)) {
            ADDR_NOTAVAIL => owner,
            index => format!("{owner} (peer {index} of the address vector)"),
        }
    }

    /// Prints one message for each failed peer. Some programs exit at the first failure without
    /// naming the peer.
    #[cold]
    pub(super) fn report_failure(&mut self, peer: Option<PeerIndex>, error: &RawError) {
        if !matches!(error, RawError::PeerGone(cause) if *cause != Cause::Closed) {
            return;
        }
        let Some(failed) = peer.filter(|peer| !self.failed.contains(peer)) else {
            return;
        };
        self.failed.push(failed);
        // One call writes one line, because other processes write to the same terminal.
        let line = format!("portolan: {}\n", self.sentence(peer, error));
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }
}
