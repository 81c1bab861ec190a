// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint asks of its engine: peers by their numbers, operations with cookies, and what of
//! them has ended.

use super::{Call, Engine, Inner, PeerInfo};
use crate::directory::{EndpointAddress, Fresh};
use crate::error::Error;
use crate::ops::{Memory, OpKind};
use crate::raw::{Cookie, PeerIndex, RawCompletion, RawKind, RawWhat, SubmitError};
use portolan_proto::{
    Cause, EndpointId, FlushHint, LinkId, OpError, OpId, PeerId, PeerStatus, RemoteSpec, SendSpec,
};
use std::ptr;

impl Engine {
    #[inline]
    pub(crate) fn check_forked(&self) -> Result<(), SubmitError> {
        match self.inner.owner.is_another() {
            true => Err(SubmitError::Forked),
            false => Ok(()),
        }
    }

    /// The peer, if it can be sent to.
    #[inline]
    pub(crate) fn check_index(&self, peer: PeerIndex) -> Result<PeerId, SubmitError> {
        self.check_forked()?;
        match self.inner.peers.get(peer.0 as usize) {
            Some(info) if !info.is_removed => Ok(PeerId(peer.0)),
            _ => Err(SubmitError::NoSuchPeer),
        }
    }

    /// Only `peer` can end the operation that was just submitted: its silence counts, from the last
    /// look at the clock, since one costs as much as the rest of a receive.
    #[inline]
    fn wait_for(&mut self, peer: PeerId) {
        let inner = &mut self.inner;
        let count = &mut inner.peers[peer.0 as usize].awaited_count;
        *count += 1;
        if *count == 1 {
            let now = inner.now;
            self.watch(peer, now);
        }
    }

    /// The peer, if it can be asked for something now.
    pub(crate) fn check_ask(&self, peer: PeerIndex) -> Result<PeerId, SubmitError> {
        let peer = self.check_index(peer)?;
        self.inner.check_room()?;
        Ok(peer)
    }

    /// Sends what goes into a frame at once; `false` if it must wait, or ask.
    #[inline(always)]
    pub(crate) fn submit_now(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        let turn = self.inner.turn;
        let waits = self.inner.peers[peer.0 as usize].note_send(turn);
        if !waits && self.send_direct(peer, spec, bytes) {
            return true;
        }
        let inner = &mut self.inner;
        let is_open = !inner.pending.has(peer, spec);
        let accepted = is_open && inner.core.append(peer, spec, bytes).is_some()
            || match inner.stage(peer, spec, &[bytes]) {
                Ok(Some(hint)) => {
                    inner.flush_wanted |= hint == FlushHint::Full;
                    true
                }
                _ => false,
            };
        if !waits || inner.flush_wanted {
            self.flush();
        }
        accepted
    }

    /// The same for a message of two pieces that is too long to share a frame.
    pub(crate) fn submit_two_now(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        pieces: [&[u8]; 2],
    ) -> bool {
        let inner = &mut self.inner;
        let waits = inner.peers[peer.0 as usize].note_send(inner.turn);
        let Ok(Some(hint)) = inner.stage(peer, spec, &pieces) else {
            return false;
        };
        inner.flush_wanted |= hint == FlushHint::Full;
        if !waits || inner.flush_wanted {
            self.flush();
        }
        true
    }

    /// Queues or announces a message; its operation ends later.
    pub(crate) fn submit_later(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        self.inner.submit_raw(peer, spec, op);
        self.drain();
        self.flush();
    }

    /// Acts on what a call has caused.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.drain();
        if self.inner.flush_wanted || self.inner.core.wants_transmit() {
            self.flush();
        }
    }

    /// Enters an operation; the silence of who alone can end it counts from now.
    #[inline]
    pub(crate) fn enter_op(
        &mut self,
        kind: OpKind,
        memory: Memory,
        asked: (RawKind, RawWhat, Cookie),
    ) -> OpId {
        let op = self.inner.enter_raw(kind, memory, asked);
        if let Some(peer) = kind.awaited_peer() {
            self.wait_for(peer);
        }
        op
    }

    pub(crate) fn put(
        &mut self,
        peer: PeerId,
        spec: RemoteSpec,
        memory: Memory,
        what: RawWhat,
        cookie: Cookie,
    ) {
        let op = self.enter_op(OpKind::Remote(peer), memory, (RawKind::Put, what, cookie));
        self.ask(peer, op, spec, Call::Put);
    }

    /// Submits what `op` asks of `peer`.
    pub(crate) fn ask(&mut self, peer: PeerId, op: OpId, spec: RemoteSpec, call: Call<'_>) {
        let inner = &mut self.inner;
        let gone = match inner.core.peer_status(peer) {
            PeerStatus::Failed(cause @ (Cause::ProcessGone | Cause::Violation(_))) => Some(cause),
            _ => match inner.submit_remote(peer, op, spec, call) {
                Ok(()) => None,
                Err(_) => Some(Cause::NoPath),
            },
        };
        if let Some(cause) = gone {
            inner.complete_send(op, peer, Err(OpError::PeerGone(peer, cause)));
        }
        self.settle();
    }

    /// Tells core, links and liveness of peers that the directory has made known.
    pub(crate) fn meet_fresh(&mut self) {
        let Some(directory) = &self.inner.directory else {
            return;
        };
        if directory.has_fresh() {
            for fresh in directory.take_fresh() {
                self.meet(&fresh);
            }
        }
    }

    fn meet(&mut self, fresh: &Fresh) {
        let Engine {
            inner, liveness, ..
        } = self;
        let index = fresh.peer.0 as usize;
        if index >= inner.peers.len() {
            inner.peers.resize_with(index + 1, PeerInfo::default);
            inner.job.size = fresh.peer.0 + 1;
        }
        let links = inner.table.links_to(fresh.peer);
        let (endpoint_id, key) = (*fresh.address.as_bytes(), fresh.address.key());
        inner.core.introduce(fresh.peer, endpoint_id, key, &links);
        if let Some(liveness) = liveness {
            liveness.add(fresh.peer, &key);
        }
        self.tell_ways(fresh.peer);
        if fresh.is_unsolicited {
            let now = self.inner.read_clock();
            self.inner.core.greet(now, fresh.peer);
        }
    }

    /// What is left between this endpoint and a peer that was removed ends, and it is forgotten.
    pub(crate) fn dismiss(&mut self, peer: PeerId) {
        self.inner.core.dismiss(peer);
        self.give_up(peer, Cause::Closed);
        self.links.disconnect(peer, LinkId::UDP);
        self.links.disconnect(peer, LinkId::PACKET);
        self.drain();
        self.flush();
    }

    /// The process lives on: its peers should not hear that it has ended.
    pub(crate) fn disconnect_all(&mut self) {
        for peer in 0..self.inner.size() {
            self.links.disconnect(PeerId(peer), LinkId::SHM);
        }
    }
}

impl Inner {
    /// Completions or notices wait to be handed out.
    #[inline]
    pub(crate) fn has_done(&self) -> bool {
        !self.completions.is_empty() || self.has_notices()
    }

    #[inline]
    pub(crate) fn hand_out(&mut self, sink: &mut (impl FnMut(RawCompletion) + ?Sized)) -> usize {
        let done = self.completions.drain();
        let mut count = done.len();
        done.for_each(&mut *sink);
        while let Some(notice) = self.next_notice() {
            count += 1;
            sink(notice);
        }
        count
    }

    /// A process that knows this endpoint's address has said hello over a network. It will be
    /// introduced, and greeted, in the next turn.
    #[cold]
    pub(crate) fn meet_unsolicited(&mut self, endpoint_id: &EndpointId) {
        match EndpointAddress::from_bytes(endpoint_id) {
            Ok(address)
                if self
                    .directory
                    .as_ref()
                    .is_some_and(|d| d.meet(&address).is_some()) => {}
            _ => {
                *self
                    .link_drops
                    .entry("unsolicited peer without a place")
                    .or_default() += 1
            }
        }
    }

    /// Whether more may be asked of peers now.
    #[inline]
    pub(crate) fn check_room(&self) -> Result<(), SubmitError> {
        match self.completions.is_full() {
            true => Err(SubmitError::Again),
            false => Ok(()),
        }
    }

    /// As [`Inner::submit_op`], and opens a session where there is none.
    fn submit_raw(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        let has_session = matches!(
            self.core.peer_status(peer),
            PeerStatus::Up | PeerStatus::Connecting
        );
        if !has_session {
            let connected = match self.core.peer_status(peer) {
                PeerStatus::Failed(cause @ (Cause::ProcessGone | Cause::Violation(_))) => {
                    Err(cause)
                }
                _ => self.connect(peer).map_err(|_: Error| Cause::NoPath),
            };
            if let Err(cause) = connected {
                self.complete_send(op, peer, Err(OpError::PeerGone(peer, cause)));
                return;
            }
        }
        self.submit_op(peer, spec, op);
    }

    #[inline]
    fn next_notice(&mut self) -> Option<RawCompletion> {
        let notice = self.take_notice()?;
        Some(RawCompletion {
            cookie: Cookie::default(),
            kind: RawKind::RemotePut,
            peer: Some(PeerIndex(notice.peer.0)),
            len: notice.len,
            tag: 0,
            imm: Some(notice.imm),
            buf: ptr::null_mut(),
            released: false,
            error: None,
        })
    }

    pub(crate) fn is_removed(&self, peer: PeerId) -> bool {
        let info = self.peers.get(peer.0 as usize);
        info.is_some_and(|info| info.is_removed)
    }

    pub(crate) fn set_removed(&mut self, peer: PeerId, is_removed: bool) {
        self.peers[peer.0 as usize].is_removed = is_removed;
    }

    /// Whether only `peer` can end something that has not ended.
    pub(crate) fn is_awaited(&self, peer: PeerId) -> bool {
        self.peers[peer.0 as usize].awaited_count > 0
    }
}
