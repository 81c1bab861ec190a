// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of sessions: handling of hellos, and assignment to incarnations of a peer (`P2`).

use crate::base::narrow::narrow;
use crate::session::directory::{Directory, PEERS_MAX};
use crate::session::{authenticator, is_equal, token_index};
use crate::{Cause, Core, DropReason, Event, Instant, LinkId, OpError, PeerId, SessionIds};
use alloc::boxed::Box;
use portolan_wire::{EndpointId, FrameHeader, FrameKind, Hello};

impl Core {
    /// Returns the identity of the current session with `peer`, failed or not, once the peer's
    /// token is known from a network.
    #[must_use]
    pub fn session_ids(&self, peer: PeerId) -> Option<SessionIds> {
        match self.peers.get(peer.index())? {
            Some(peer) => peer.session().ids(),
            None => self.dormant.get(&peer)?.session().ids(),
        }
    }

    /// Returns the peer and session that a frame's header refers to.
    ///
    /// # Errors
    /// [`DropReason::Reflected`] for a token that this process only sends and never gives out;
    /// [`DropReason::StaleSession`] for any other unknown token.
    pub fn find_session(&self, token: u64) -> Result<(PeerId, SessionIds), DropReason> {
        let index = narrow(token_index(token));
        let ids = self.session_ids(PeerId(index));
        if let Some(ids) = ids.filter(|ids| ids.mine.1 == token) {
            return Ok((PeerId(index), ids));
        }
        // Tokens with this process's own rank are those that peers gave it for its frames. (It may
        // also have a session with itself.)
        Err(if index == self.sh.ctx.config().rank {
            DropReason::Reflected
        } else {
            DropReason::StaleSession
        })
    }

    /// Counts a frame that the engine dropped before it reached the core.
    pub fn note_dropped(&mut self, reason: DropReason) {
        self.sh.ctx.drop_for(reason);
    }

    /// Handles a hello or its answer. Returns `false` if it came from an unknown process.
    pub(crate) fn on_handshake(
        &mut self,
        now: Instant,
        link: LinkId,
        header: &FrameHeader,
        frame: &[u8],
    ) -> Result<bool, DropReason> {
        let (hello, from) = match &self.sh.directory {
            None => self.check_handshake(link, frame)?,
            Some(directory) => match directory.check_handshake(link, frame)? {
                (hello, Ok(from)) => (hello, from),
                (_, Err(endpoint_id)) => {
                    self.sh.ctx.emit(Event::Unsolicited { endpoint_id });
                    return Ok(false);
                }
            },
        };
        if self.allowed[from.index()] >> link.as_u8() & 1 == 0 {
            return Err(DropReason::NoPath);
        }
        let is_reply = header.kind == FrameKind::HelloAck;
        self.update_session(now, from, &hello, is_reply)?;
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::WrongRank);
        };
        peer.on_hello(now, &mut self.sh, link, &hello, is_reply)?;
        self.touch(from);
        Ok(true)
    }

    /// Verifies the fields common to all handshake frames: job, authenticator, ranks and link.
    fn check_handshake(&self, link: LinkId, frame: &[u8]) -> Result<(Hello, PeerId), DropReason> {
        let (hello, body, mac) = Hello::parse(frame)?;
        let config = self.sh.ctx.config();
        // P2.2
        if hello.job_id != config.job_id {
            return Err(DropReason::OtherJob);
        }
        if !is_equal(authenticator(&config.secret, body, &[]), mac) {
            return Err(DropReason::BadMac);
        }
        if hello.from == config.rank && hello.to != config.rank {
            return Err(DropReason::Reflected);
        }
        let from = PeerId(hello.from);
        if hello.to != config.rank || hello.from >= config.size || hello.path != link.as_u8() {
            return Err(DropReason::WrongRank);
        }
        Ok((hello, from))
    }

    /// Updates the peer's state for the epoch of its hello (`P2.4`).
    fn update_session(
        &mut self,
        now: Instant,
        from: PeerId,
        hello: &Hello,
        is_reply: bool,
    ) -> Result<(), DropReason> {
        self.revive(from);
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            if is_reply {
                return Err(DropReason::StaleSession);
            }
            self.renew(now, from);
            return Ok(());
        };
        if !peer.session().check_epoch(hello, is_reply)? {
            self.fail_peer(from, Cause::Restarted);
            self.renew(now, from);
        }
        Ok(())
    }
}

impl Core {
    /// Makes this a process outside any job, known by `endpoint_id`; hellos to it are keyed with
    /// `key`. Set `hides_ids` to encrypt endpoint ids in hellos; all peers must use the same value.
    /// Must be called before any peer is introduced.
    pub fn open(&mut self, endpoint_id: EndpointId, key: [u8; 32], hides_ids: bool) {
        let directory = Directory::new(endpoint_id, key, hides_ids);
        self.sh.directory = Some(Box::new(directory));
    }

    /// Introduces a process with this `endpoint_id` as `peer`, reached by `links`, with hellos to
    /// it keyed with `key`. Returns `false` if the number exceeds the range of session tokens.
    pub fn introduce(
        &mut self,
        peer: PeerId,
        endpoint_id: EndpointId,
        key: [u8; 32],
        links: &[LinkId],
    ) -> bool {
        let index = peer.index();
        let directory = self.sh.directory.as_mut();
        let Some(directory) = directory.filter(|_| index < PEERS_MAX) else {
            return false;
        };
        if index >= self.peers.len() {
            self.peers.resize_with(index + 1, || None);
            self.allowed.resize(index + 1, 0);
        }
        directory.introduce(peer, endpoint_id, key);
        self.allow(peer, links);
        true
    }

    /// Answers an unsolicited hello with a hello of this side, without retrying the session.
    /// `P2.12`
    pub fn greet(&mut self, now: Instant, peer: PeerId) {
        if !self.is_live(peer) && peer.index() < self.peers.len() {
            self.renew(now, peer);
        }
    }

    /// Fails the unmatched receives that only `peer` could have satisfied, because the program
    /// removed it. `P2.13`
    pub fn end_receives_from(&mut self, peer: PeerId, cause: Cause) {
        let error = OpError::PeerFailed(peer, cause);
        for op in self.sh.matching.take_sourced(peer) {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }

    /// Ends the session with `peer` and removes its endpoint id. The number may be introduced again
    /// once [`Core::unread`] returns nothing for it. `P2.13`
    pub fn dismiss(&mut self, peer: PeerId) {
        self.fail_peer(peer, Cause::Closed);
        if let Some(allowed) = self.allowed.get_mut(peer.index()) {
            *allowed = 0;
        }
        if let Some(directory) = &mut self.sh.directory {
            directory.forget(peer);
        }
    }
}
