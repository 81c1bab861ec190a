// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening sessions: who says hello, and to which life of a peer it belongs (`P2`).

use crate::base::narrow::narrow;
use crate::session::directory::{Directory, PEERS_MAX};
use crate::session::{authenticator, is_equal, token_index};
use crate::{Cause, Core, DropReason, Event, Instant, LinkId, OpError, PeerId, SessionIds};
use alloc::boxed::Box;
use portolan_wire::{EndpointId, FrameHeader, FrameKind, Hello};

impl Core {
    /// What sets the present session with `peer` apart, once the peer has named itself on a network;
    /// also of a session that was given up.
    #[must_use]
    pub fn session_ids(&self, peer: PeerId) -> Option<SessionIds> {
        match self.peers.get(peer.index())? {
            Some(peer) => peer.session().ids(),
            None => self.dormant.get(&peer)?.session().ids(),
        }
    }

    /// Whose session a frame's header names.
    ///
    /// # Errors
    /// [`DropReason::Reflected`] for one that this process hands out to nobody but sends to others,
    /// [`DropReason::StaleSession`] for any other that it does not honour.
    pub fn find_session(&self, token: u64) -> Result<(PeerId, SessionIds), DropReason> {
        let index = narrow(token_index(token));
        let ids = self.session_ids(PeerId(index));
        if let Some(ids) = ids.filter(|ids| ids.mine.1 == token) {
            return Ok((PeerId(index), ids));
        }
        // Tokens with this process's own number in them are what peers hand it for its frames. (It may
        // have a session with itself, too.)
        Err(if index == self.sh.ctx.config().rank {
            DropReason::Reflected
        } else {
            DropReason::StaleSession
        })
    }

    /// Counts a frame that the engine dropped before the core saw it.
    pub fn note_dropped(&mut self, reason: DropReason) {
        self.sh.ctx.drop_for(reason);
    }

    /// A hello or its answer. `false` if it came from a process that is not known yet.
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
        let is_answer = header.kind == FrameKind::HelloAck;
        self.meet(now, from, &hello, is_answer)?;
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::WrongRank);
        };
        peer.on_hello(now, &mut self.sh, link, &hello, is_answer)?;
        self.touch(from);
        Ok(true)
    }

    /// Checks what all handshake frames have in common: job, authenticator, ranks and link.
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

    /// Makes the peer's state fit the epoch of its hello (`P2.4`).
    fn meet(
        &mut self,
        now: Instant,
        from: PeerId,
        hello: &Hello,
        is_answer: bool,
    ) -> Result<(), DropReason> {
        self.revive(from);
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            if is_answer {
                return Err(DropReason::StaleSession);
            }
            self.renew(now, from);
            return Ok(());
        };
        if !peer.session().check_epoch(hello, is_answer)? {
            self.fail_peer(from, Cause::Restarted);
            self.renew(now, from);
        }
        Ok(())
    }
}

impl Core {
    /// Makes this a process without a job, that is known by `endpoint_id`; hellos to it are keyed with
    /// `key`. Before any peer is introduced.
    pub fn open(&mut self, endpoint_id: EndpointId, key: [u8; 32]) {
        self.sh.directory = Some(Box::new(Directory::new(endpoint_id, key)));
    }

    /// Tells of a process that `endpoint_id` belongs to: from now on it is `peer`, reached by `links`, and
    /// hellos to it are keyed with `key`. `false` if the number is beyond what sessions can name.
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

    /// Answers an unsolicited hello with one of this side, without insisting on a session. `P2.12`
    pub fn greet(&mut self, now: Instant, peer: PeerId) {
        if !self.is_live(peer) && peer.index() < self.peers.len() {
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
        if let Some(directory) = &mut self.sh.directory {
            directory.forget(peer);
        }
    }
}
