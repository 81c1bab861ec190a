// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions between processes without a common launcher (`P2.10` to `P2.13`).
//!
//! Such a process is known by its card: the address at which it is reached, with a random token in
//! it. The key of its handshakes is derived from the card by the engine, so who does not have the
//! card cannot say hello; and each hello brings the card of its sender, so the answer can be keyed.
//! Peers are numbered by the engine as it meets them, and each side has numbers of its own.

use super::{authenticator, is_equal};
use crate::{Cause, Core, DropReason, Event, Instant, LinkId, OpError, PeerId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use portolan_wire::{Card, Hello, OPEN_JOB_ID, card_of};

/// The key of a peer that was never introduced; nobody has it.
const NO_KEY: [u8; 32] = [0; 32];

/// Peers at most: the index part of a session token.
const PEERS_MAX: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Open {
    card: Card,
    key: [u8; 32],
    by_card: BTreeMap<Card, PeerId>,
    /// By number of the peer.
    keys: Vec<[u8; 32]>,
}

impl Open {
    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    /// What the hellos to `peer` are keyed with.
    pub(crate) fn key_of(&self, peer: PeerId) -> &[u8; 32] {
        self.keys.get(peer.index()).unwrap_or(&NO_KEY)
    }

    /// Checks a handshake frame, and says whose it is: a peer's, or the card of a stranger. `P2.11`
    pub(crate) fn check_handshake(
        &self,
        link: LinkId,
        frame: &[u8],
    ) -> Result<(Hello, Result<PeerId, Box<Card>>), DropReason> {
        let (hello, body, mac) = Hello::parse(frame)?;
        if hello.job_id != OPEN_JOB_ID {
            return Err(DropReason::OtherJob);
        }
        let card = card_of(frame)?;
        if !is_equal(authenticator(&self.key, body, &card), mac) {
            return Err(DropReason::BadMac);
        }
        if hello.path != link.as_u8() {
            return Err(DropReason::WrongRank);
        }
        let from = self.by_card.get(&card).copied();
        Ok((hello, from.ok_or_else(|| Box::new(card))))
    }
}

impl Core {
    /// Makes this a process without a job, that is known by `card`; hellos to it are keyed with
    /// `key`. Before any peer is introduced.
    pub fn open(&mut self, card: Card, key: [u8; 32]) {
        self.sh.open = Some(Box::new(Open {
            card,
            key,
            by_card: BTreeMap::new(),
            keys: Vec::new(),
        }));
    }

    /// Tells of a process that `card` belongs to: from now on it is `peer`, reached by `links`, and
    /// hellos to it are keyed with `key`. `false` if the number is beyond what sessions can name.
    pub fn introduce(&mut self, peer: PeerId, card: Card, key: [u8; 32], links: &[LinkId]) -> bool {
        let index = peer.index();
        let Some(open) = self.sh.open.as_mut().filter(|_| index < PEERS_MAX) else {
            return false;
        };
        if index >= self.peers.len() {
            self.peers.resize_with(index + 1, || None);
            self.allowed.resize(index + 1, 0);
            open.keys.resize(index + 1, NO_KEY);
        }
        open.keys[index] = key;
        open.by_card.insert(card, peer);
        self.allow(peer, links);
        true
    }

    /// Answers a stranger's hello with one of this side, without insisting on a session. `P2.12`
    pub fn greet(&mut self, now: Instant, peer: PeerId) {
        if !self.is_awake(peer) && peer.index() < self.peers.len() {
            self.renew(now, peer);
        }
    }

    /// Ends the receives that only `peer` could have filled, and that no message of it has found:
    /// the program has removed it. `P2.13`
    pub fn end_receives_from(&mut self, peer: PeerId, cause: Cause) {
        let error = OpError::PeerGone(peer, cause);
        for op in self.sh.matching.take_sourced(peer) {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }

    /// Ends the session with `peer`, and forgets who it was; its number is not given to another. `P2.13`
    pub fn dismiss(&mut self, peer: PeerId) {
        self.fail_peer(peer, Cause::Closed);
        if let Some(allowed) = self.allowed.get_mut(peer.index()) {
            *allowed = 0;
        }
        if let Some(open) = &mut self.sh.open {
            open.by_card.retain(|_, known| *known != peer);
        }
    }
}
