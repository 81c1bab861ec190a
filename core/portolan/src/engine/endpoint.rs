// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's services for an endpoint: peers by number, operations with cookies, and
//! completions.

use super::{Call, Engine, Inner, PeerInfo};
use crate::directory::{EndpointAddress, Fresh};
use crate::error::Error;
use crate::ops::{Memory, OpKind};
use crate::raw::{Cookie, PeerIndex, RawCompletion, RawKind, RawWhat, SubmitError};
use portolan_proto::{
    Cause, EndpointId, FlushHint, LinkId, OpError, OpId, PeerId, PeerStatus, RemoteSpec, SendSpec,
};
use portolan_sys::memory;
use std::mem::MaybeUninit;
use std::ptr;

/// Longest message for which both pieces are joined before sending: about the payload of a frame,
/// which has a shorter send path. The pieces of a longer message are copied into its frames
/// separately.
const JOINED_LEN_MAX: usize = 1400;

impl Engine {
    #[inline]
    pub(crate) fn check_forked(&self) -> Result<(), SubmitError> {
        match self.inner.owner.is_another() {
            true => Err(SubmitError::Forked),
            false => Ok(()),
        }
    }

    /// Returns the peer if messages can be sent to it.
    #[inline]
    pub(crate) fn check_index(&self, peer: PeerIndex) -> Result<PeerId, SubmitError> {
        self.check_forked()?;
        match self.inner.peers.get(peer.0 as usize) {
            Some(info) if !info.is_removed => Ok(PeerId(peer.0)),
            _ => Err(SubmitError::NoSuchPeer),
        }
    }

    /// Records that only `peer` can complete the operation just submitted, so its silence counts
    /// from now. Uses the last clock read, because a new one costs as much as the rest of a
    /// receive.
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

    /// Returns the peer if a new operation may be submitted to it now.
    pub(crate) fn check_ask(&self, peer: PeerIndex) -> Result<PeerId, SubmitError> {
        let peer = self.check_index(peer)?;
        self.inner.check_capacity()?;
        Ok(peer)
    }

    /// Sends a message in two pieces that needs no rendezvous at once. Returns `false` if it must
    /// wait or needs one.
    #[inline(always)]
    pub(crate) fn submit_now(&mut self, peer: PeerId, spec: &SendSpec, pieces: [&[u8]; 2]) -> bool {
        let turn = self.inner.turn;
        // A frame of shared memory costs no more than a message that shares one.
        let waits =
            !self.inner.core.is_direct(peer) && self.inner.peers[peer.0 as usize].note_send(turn);
        if !waits && self.send_pieces(peer, spec, pieces) {
            return true;
        }
        let inner = &mut self.inner;
        let is_open = !inner.pending.has(peer, spec);
        let accepted = is_open && inner.core.append(peer, spec, pieces).is_some()
            || self.stage_pieces(peer, spec, pieces);
        // A completion leaves with the message, which the caller queues and flushes.
        let is_late = !accepted && self.inner.core.has_late_done(peer);
        if !is_late && (!waits || self.inner.flush_wanted) {
            self.flush();
        }
        accepted
    }

    /// Sends a message directly, as [`Engine::send_direct`]. Short pieces are joined first.
    #[inline(always)]
    fn send_pieces(&mut self, peer: PeerId, spec: &SendSpec, [head, body]: [&[u8]; 2]) -> bool {
        if body.is_empty() {
            return self.send_direct(peer, spec, head);
        }
        if head.len() + body.len() > JOINED_LEN_MAX {
            return false;
        }
        let mut room = [MaybeUninit::uninit(); JOINED_LEN_MAX];
        self.send_direct(peer, spec, memory::joined(&mut room, head, body))
    }

    fn stage_pieces(&mut self, peer: PeerId, spec: &SendSpec, pieces: [&[u8]; 2]) -> bool {
        let count = if pieces[1].is_empty() { 1 } else { 2 };
        let Ok(Some(hint)) = self.inner.stage(peer, spec, &pieces[..count]) else {
            return false;
        };
        self.inner.flush_wanted |= hint == FlushHint::Full;
        true
    }

    /// Queues or announces a message. Its operation completes later.
    pub(crate) fn submit_later(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        self.inner.submit_raw(peer, spec, op);
        self.drain();
        self.flush();
    }

    /// Handles the events that a call has caused, and flushes if necessary.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.drain();
        if self.inner.flush_wanted || self.inner.core.needs_transmit() {
            self.flush();
        }
    }

    /// Enters an operation. If a single peer can complete it, the silence of that peer counts from
    /// now.
    #[inline]
    pub(crate) fn enter_op(
        &mut self,
        kind: OpKind,
        memory: Memory,
        raw: (RawKind, RawWhat, Cookie),
    ) -> OpId {
        let op = self.inner.enter_raw(kind, memory, raw);
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
        self.submit_request(peer, op, spec, Call::Put);
    }

    /// Submits the request of `op` to `peer`.
    pub(crate) fn submit_request(
        &mut self,
        peer: PeerId,
        op: OpId,
        spec: RemoteSpec,
        call: Call<'_>,
    ) {
        let inner = &mut self.inner;
        let failure = match inner.core.peer_status(peer) {
            PeerStatus::Failed(cause @ (Cause::ProcessExited | Cause::Violation(_))) => Some(cause),
            _ => match inner.submit_remote(peer, op, spec, call) {
                Ok(()) => None,
                Err(_) => Some(Cause::NoPath),
            },
        };
        if let Some(cause) = failure {
            inner.complete_send(op, peer, Err(OpError::PeerFailed(peer, cause)));
        }
        self.settle();
    }

    /// Passes peers that the directory has added to the core, the links and the liveness thread.
    #[inline]
    pub(crate) fn register_fresh(&mut self) {
        let directory = self.inner.directory.as_ref();
        if directory.is_some_and(|directory| directory.has_fresh()) {
            self.register_all_fresh();
        }
    }

    #[cold]
    fn register_all_fresh(&mut self) {
        let directory = self.inner.directory.as_ref();
        let all = directory.map(|directory| directory.take_fresh());
        for fresh in all.into_iter().flatten() {
            self.register(&fresh);
        }
    }

    fn register(&mut self, fresh: &Fresh) {
        let inner = &mut self.inner;
        let index = fresh.peer.0 as usize;
        if index >= inner.peers.len() {
            inner.peers.resize_with(index + 1, PeerInfo::default);
            inner.job.size = fresh.peer.0 + 1;
        }
        if fresh.is_reused {
            self.renew_number(fresh);
        }
        let Engine {
            inner, liveness, ..
        } = self;
        let links = inner.table.links_to(fresh.peer);
        let (endpoint_id, key) = (*fresh.address.as_bytes(), fresh.address.key());
        let handshake_key = inner.auth.handshake_key(&key);
        (inner.core).introduce(fresh.peer, endpoint_id, handshake_key, &links);
        if let (Some(seals), Some(secret)) = (&mut inner.seals, &fresh.pair_secret) {
            seals.set_pair(fresh.peer, secret);
        }
        if let Some(liveness) = liveness {
            liveness.add(fresh.peer, &key);
        }
        self.pass_addresses(fresh.peer);
        if fresh.is_unsolicited {
            let now = self.inner.read_clock();
            self.inner.core.greet(now, fresh.peer);
        }
        if fresh.is_reused
            && let Err(error) = self.inner.connect(fresh.peer)
        {
            log::debug!("{} joins: {error}", fresh.peer);
        }
    }

    /// Gives up everything pending with a removed peer, and forgets the peer.
    pub(crate) fn dismiss(&mut self, peer: PeerId) {
        self.inner.core.dismiss(peer);
        self.give_up(peer, Cause::Closed);
        self.links.disconnect(peer, LinkId::UDP);
        self.links.disconnect(peer, LinkId::UDP2);
        self.links.disconnect(peer, LinkId::PACKET);
        self.drain();
        self.flush();
    }

    /// Disconnects from all peers. Their rings must not report that this process has ended, because
    /// it lives on.
    pub(crate) fn disconnect_all(&mut self) {
        for peer in 0..self.inner.size() {
            self.links.disconnect(PeerId(peer), LinkId::SHM);
        }
    }
}

impl Inner {
    /// Tests whether completions or notices are ready to be handed out.
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

    /// Registers a process that has this endpoint's address and has sent a hello over a network.
    /// The next turn introduces it to the links and answers it.
    #[cold]
    pub(crate) fn register_unsolicited(&mut self, endpoint_id: &EndpointId) {
        match EndpointAddress::from_bytes(endpoint_id) {
            Ok(address)
                if self
                    .directory
                    .as_ref()
                    .is_some_and(|d| d.accept_hello(&address).is_some()) => {}
            _ => {
                *self
                    .link_drops
                    .entry("unsolicited peer without a place")
                    .or_default() += 1
            }
        }
    }

    /// Checks that another operation may be submitted now.
    #[inline]
    pub(crate) fn check_capacity(&self) -> Result<(), SubmitError> {
        match self.completions.is_full() {
            true => Err(SubmitError::Again),
            false => Ok(()),
        }
    }

    /// Submits like [`Inner::submit_op`], and opens a session first if there is none.
    fn submit_raw(&mut self, peer: PeerId, spec: SendSpec, op: OpId) {
        let has_session = matches!(
            self.core.peer_status(peer),
            PeerStatus::Up | PeerStatus::Connecting
        );
        if !has_session {
            let connected = match self.core.peer_status(peer) {
                PeerStatus::Failed(cause @ (Cause::ProcessExited | Cause::Violation(_))) => {
                    Err(cause)
                }
                _ => self.connect(peer).map_err(|_: Error| Cause::NoPath),
            };
            if let Err(cause) = connected {
                self.complete_send(op, peer, Err(OpError::PeerFailed(peer, cause)));
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

    /// Tests whether an incomplete operation can be completed by `peer` alone.
    pub(crate) fn is_awaited(&self, peer: PeerId) -> bool {
        self.peers[peer.0 as usize].awaited_count > 0
    }
}
