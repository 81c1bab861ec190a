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
use portolan_wire::{ENDPOINT_ID_LEN, EndpointId, Hello, OPEN_JOB_ID, endpoint_id_of};

/// Key of a peer that was never introduced; no process has it.
const NO_KEY: [u8; 32] = [0; 32];

/// Maximum number of peers: the index part of a session token.
pub(crate) const PEERS_MAX: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Directory {
    endpoint_id: EndpointId,
    key: [u8; 32],
    /// Set if endpoint ids are encrypted in hellos, because they permit sending (`P10.7`).
    hides_ids: bool,
    by_endpoint_id: BTreeMap<EndpointId, PeerId>,
    /// Keys by peer number.
    keys: Vec<[u8; 32]>,
}

impl Directory {
    pub(crate) fn hides_ids(&self) -> bool {
        self.hides_ids
    }

    /// Returns the own endpoint id as it follows `hello` to a process with this `key`.
    pub(crate) fn endpoint_id_for(&self, key: &[u8; 32], hello: &Hello) -> EndpointId {
        let mut endpoint_id = self.endpoint_id;
        if self.hides_ids {
            mask(&mut endpoint_id, key, hello);
        }
        endpoint_id
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
        let mut endpoint_id = endpoint_id_of(frame)?;
        if !is_equal(authenticator(&self.key, body, &endpoint_id), mac) {
            return Err(DropReason::BadMac);
        }
        if hello.path != link.as_u8() {
            return Err(DropReason::WrongRank);
        }
        if self.hides_ids {
            mask(&mut endpoint_id, &self.key, &hello);
        }
        let from = self.by_endpoint_id.get(&endpoint_id).copied();
        Ok((hello, from.ok_or_else(|| Box::new(endpoint_id))))
    }

    /// Returns the directory of a process with this `endpoint_id`, to which hellos are keyed with
    /// `key`.
    pub(crate) fn new(endpoint_id: EndpointId, key: [u8; 32], hides_ids: bool) -> Self {
        Directory {
            endpoint_id,
            key,
            hides_ids,
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

/// Encrypts or decrypts the endpoint id that follows `hello`, which is keyed with `key`. `P10.7`
fn mask(endpoint_id: &mut EndpointId, key: &[u8; 32], hello: &Hello) {
    let mut hasher = blake3::Hasher::new_derive_key("portolan 2026 hidden endpoint id");
    hasher.update(key);
    // The epoch never repeats within a process, and the token is random, so no two sessions use the
    // same key stream.
    hasher.update(&hello.epoch.to_le_bytes());
    hasher.update(&hello.token.to_le_bytes());
    let mut stream = [0; ENDPOINT_ID_LEN];
    hasher.finalize_xof().fill(&mut stream);
    for (byte, mask) in endpoint_id.iter_mut().zip(stream) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_wire::{FRAME_HEADER_LEN, HELLO_LEN};

    const KEY: [u8; 32] = [4; 32];

    /// Returns a hello of a process with this endpoint id to a process with [`KEY`].
    fn hello_from(endpoint_id: EndpointId, epoch: u64, hides_ids: bool) -> Vec<u8> {
        let hello = Hello {
            job_id: OPEN_JOB_ID,
            from: 0,
            to: 0,
            epoch,
            token: 9,
            echo_token: 0,
            credits: [1000; 2],
            frame_len_max: 1400,
            window_frames: 64,
            path: LinkId::UDP.as_u8(),
            checksum: false,
            hidden_id: hides_ids,
        };
        let sender = Directory::new(endpoint_id, [5; 32], hides_ids);
        let id = sender.endpoint_id_for(&KEY, &hello);
        let mut frame = alloc::vec![0xa5; FRAME_HEADER_LEN + HELLO_LEN + id.len()];
        frame[FRAME_HEADER_LEN + HELLO_LEN..].copy_from_slice(&id);
        hello.emit(&mut frame, |body| authenticator(&KEY, body, &id));
        frame
    }

    #[test]
    fn hidden_endpoint_id_is_read_by_its_receiver_only() {
        let id = [7; ENDPOINT_ID_LEN];
        let receiver = Directory::new([8; ENDPOINT_ID_LEN], KEY, true);
        let frames = [1, 2].map(|epoch| hello_from(id, epoch, true));
        for frame in &frames {
            let (_, from) = receiver.check_handshake(LinkId::UDP, frame).unwrap();
            assert_eq!(*from.unwrap_err(), id);
            assert!(!frame.windows(8).any(|bytes| bytes == [7; 8]));
        }
        let ids = frames.map(|frame| frame[FRAME_HEADER_LEN + HELLO_LEN..].to_vec());
        assert_ne!(ids[0], ids[1], "two hellos are hidden alike");
        let other = Directory::new([8; ENDPOINT_ID_LEN], [3; 32], true);
        let refused = other.check_handshake(LinkId::UDP, &hello_from(id, 1, true));
        assert_eq!(refused.unwrap_err(), DropReason::BadMac);
    }

    #[test]
    fn endpoint_id_that_is_not_hidden_is_sent_as_it_is() {
        let id = [7; ENDPOINT_ID_LEN];
        let mut receiver = Directory::new([8; ENDPOINT_ID_LEN], KEY, false);
        receiver.introduce(PeerId(3), id, [6; 32]);
        let frame = hello_from(id, 1, false);
        assert_eq!(frame[FRAME_HEADER_LEN + HELLO_LEN..], id);
        let (_, from) = receiver.check_handshake(LinkId::UDP, &frame).unwrap();
        assert_eq!(from, Ok(PeerId(3)));
    }
}
