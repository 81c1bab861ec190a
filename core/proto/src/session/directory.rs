// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions between processes without a common launcher (`P2.10` to `P2.13`).
//!
//! Such a process is identified by its endpoint id: its address and a random token. The engine
//! derives the key of its handshakes from the endpoint id, so only a process that has the endpoint
//! id can send a valid hello. Each hello contains the endpoint id of its sender, so the answer can
//! be keyed. The engine numbers peers as they are introduced; each side has its own numbers.

use super::{authenticator, is_equal};
use crate::{DropReason, LinkId, PeerId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use portolan_wire::{EndpointId, Hello, OPEN_JOB_ID, endpoint_id_of};

/// Key of a peer that was never introduced; no process has it.
const NO_KEY: [u8; 32] = [0; 32];

/// Maximum number of peers: the index part of a session token.
pub(crate) const PEERS_MAX: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Directory {
    endpoint_id: EndpointId,
    key: [u8; 32],
    by_endpoint_id: BTreeMap<EndpointId, PeerId>,
    /// Keys by peer number.
    keys: Vec<[u8; 32]>,
}

impl Directory {
    pub(crate) fn endpoint_id(&self) -> &EndpointId {
        &self.endpoint_id
    }

    /// Returns the key of hellos to `peer`.
    pub(crate) fn key_of(&self, peer: PeerId) -> &[u8; 32] {
        self.keys.get(peer.index()).unwrap_or(&NO_KEY)
    }

    /// Verifies a handshake frame. Returns its sender: a peer, or the endpoint id of an unsolicited
    /// one. `P2.11`
    pub(crate) fn check_handshake(
        &self,
        link: LinkId,
        frame: &[u8],
    ) -> Result<(Hello, Result<PeerId, Box<EndpointId>>), DropReason> {
        let (hello, body, mac) = Hello::parse(frame)?;
        if hello.job_id != OPEN_JOB_ID {
            return Err(DropReason::OtherJob);
        }
        let endpoint_id = endpoint_id_of(frame)?;
        if !is_equal(authenticator(&self.key, body, &endpoint_id), mac) {
            return Err(DropReason::BadMac);
        }
        if hello.path != link.as_u8() {
            return Err(DropReason::WrongRank);
        }
        let from = self.by_endpoint_id.get(&endpoint_id).copied();
        Ok((hello, from.ok_or_else(|| Box::new(endpoint_id))))
    }

    /// Returns the directory of a process with this `endpoint_id`, to which hellos are keyed with
    /// `key`.
    pub(crate) fn new(endpoint_id: EndpointId, key: [u8; 32]) -> Self {
        Directory {
            endpoint_id,
            key,
            by_endpoint_id: BTreeMap::new(),
            keys: Vec::new(),
        }
    }

    /// Assigns `endpoint_id` and the key of hellos to it to `peer`.
    pub(crate) fn introduce(&mut self, peer: PeerId, endpoint_id: EndpointId, key: [u8; 32]) {
        if peer.index() >= self.keys.len() {
            self.keys.resize(peer.index() + 1, NO_KEY);
        }
        self.keys[peer.index()] = key;
        self.by_endpoint_id.insert(endpoint_id, peer);
    }

    /// Removes the endpoint id of `peer`.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.by_endpoint_id.retain(|_, known| *known != peer);
    }
}
