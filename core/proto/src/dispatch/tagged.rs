// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives by match bits: post, probe, claim and cancel (`P11`).

use crate::base::request::{Announced, Request};
use crate::matching::match_list::{Arrived, Claimed, MultiRecv};
use crate::matching::port::{Posted, Waiting};
use crate::shared::Shared;
use crate::{ClaimId, Core, Data, Envelope, Event, HeldId, OpError, OpId, PeerStatus, Selector};

impl From<&Arrived> for Envelope {
    fn from(arrived: &Arrived) -> Envelope {
        Envelope {
            peer: arrived.peer,
            match_bits: arrived.match_bits,
            len: arrived.len,
        }
    }
}

impl Core {
    /// Takes the message that [`Core::post_tagged`] would deliver immediately, like
    /// [`Core::take_held`].
    #[inline]
    pub fn take_held_tagged(
        &mut self,
        selector: &Selector,
        len: usize,
    ) -> Option<(Envelope, HeldId)> {
        // Messages with pending events arrived earlier.
        if self.has_event() {
            return None;
        }
        let (arrived, held) = self.sh.matching.take_held_tagged(selector, len as u64)?;
        let len = self.sh.held.len(held);
        self.on_held_taken(&arrived.taken(held), len);
        self.sh.ctx.count_received(len as u64);
        Some((Envelope::from(&arrived), held))
    }

    /// Posts a buffer of `len` bytes for the next message that matches `selector`: the first
    /// waiting one in the order of arrival, or the next arriving one that no earlier receive takes.
    pub fn post_tagged(&mut self, selector: &Selector, op: OpId, len: u64) {
        let posted = Posted {
            op,
            base: 0,
            len,
            source: selector.source,
        };
        if let Some(arrived) = self.sh.matching.lists().take_arrived(selector) {
            self.fill_late(&arrived, posted);
            return;
        }
        match self.source_error(selector) {
            Some(error) => self.sh.ctx.emit(Event::RecvFailed { op, error }),
            None => self.sh.matching.lists().post(selector, posted, None),
        }
    }

    /// Posts a buffer of `len` bytes for many messages that match `selector`, consecutively as they
    /// match, until fewer than `free_min` bytes are left. Each is reported by an
    /// [`Event::MultiRecvSegment`] and completes as an operation of its own. A message longer than
    /// the rest of the buffer is truncated.
    pub fn post_many(&mut self, selector: &Selector, op: OpId, len: u64, free_min: u64) {
        let source = selector.source;
        let many = Some(MultiRecv { at: 0, free_min });
        // Posted first, it takes waiting messages like any other receive; no earlier receive
        // matches them.
        self.sh.matching.lists().post(
            selector,
            Posted {
                op,
                base: 0,
                len,
                source,
            },
            many,
        );
        while let Some(waiting) = self.sh.matching.lists().peek(selector) {
            let Shared { matching, ctx, .. } = &mut self.sh;
            let (peer, match_bits, len) = (waiting.peer, waiting.match_bits, waiting.len);
            let Some(part) = matching.lists().take_posted(peer, &match_bits, len, ctx) else {
                return;
            };
            matching.lists().take_arrived(selector);
            self.fill_late(&waiting, part);
        }
        if let Some(error) = self.source_error(selector)
            && self.sh.matching.lists().cancel(op)
        {
            self.sh.ctx.emit(Event::RecvFailed { op, error });
        }
    }

    /// Returns the error of a receive if its only possible source has failed.
    fn source_error(&self, selector: &Selector) -> Option<OpError> {
        let peer = selector.source?;
        match self.peer_status(peer) {
            PeerStatus::Failed(cause) => Some(OpError::PeerFailed(peer, cause)),
            _ => None,
        }
    }

    /// Cancels a posted receive. Returns `false` if a message has already matched it; the receive
    /// then completes normally.
    pub fn cancel_tagged(&mut self, op: OpId) -> bool {
        self.sh.matching.lists().cancel(op)
    }

    /// Returns the first waiting message that matches `selector`, without taking it.
    #[must_use]
    pub fn peek_tagged(&mut self, selector: &Selector) -> Option<Envelope> {
        let found = self.sh.matching.lists().peek(selector);
        found.as_ref().map(Envelope::from)
    }

    /// Claims the first waiting message that matches `selector` for [`Core::recv_claimed`], so that
    /// no other receive takes it. It keeps its memory until then. `None` also if 65,536 messages
    /// are claimed.
    pub fn claim_tagged(&mut self, selector: &Selector) -> Option<(ClaimId, Envelope)> {
        let (claim, arrived) = self.sh.matching.lists().claim(selector)?;
        Some((claim, Envelope::from(&arrived)))
    }

    /// Receives a claimed message into a buffer of `len` bytes; returns `false` if the claim does
    /// not exist.
    pub fn recv_claimed(&mut self, claim: ClaimId, op: OpId, len: u64) -> bool {
        let Some(claimed) = self.sh.matching.lists().take_claimed(claim) else {
            return false;
        };
        let source = None;
        match claimed {
            Claimed::Complete(arrived) => self.fill_late(
                &arrived,
                Posted {
                    op,
                    base: 0,
                    len,
                    source,
                },
            ),
            Claimed::Lost(error) => {
                self.sh.ctx.emit(Event::RecvFailed { op, error });
            }
        }
        true
    }

    /// Receives a waiting message into its buffer, found late.
    fn fill_late(&mut self, arrived: &Arrived, posted: Posted) {
        match arrived.what {
            Waiting::Held(held) => self.deliver_held_tagged(arrived, held, posted),
            Waiting::Request(announced) => self.begin_late_tagged(arrived, announced, posted),
        }
    }

    fn deliver_held_tagged(&mut self, arrived: &Arrived, held: HeldId, posted: Posted) {
        let len = self.sh.held.len(held);
        self.on_held_taken(&arrived.taken(held), len);
        let Some(Some(state)) = self.peers.get_mut(arrived.peer.index()) else {
            return;
        };
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        let (to, op) = (arrived.match_bits.into(), Some(posted.op));
        let (data, error) = (
            Data::Held(held),
            OpError::truncated(arrived.len, posted.len),
        );
        lanes.deliver(env, arrived.lane, &to, op, arrived.len, data, error);
    }

    /// Starts the transfer of a request that waited.
    fn begin_late_tagged(&mut self, arrived: &Arrived, announced: Announced, posted: Posted) {
        let &Arrived {
            peer, lane, len, ..
        } = arrived;
        // A message of an earlier session can be taken while its sender is dormant.
        self.is_live(peer);
        let Some(Some(state)) = self.peers.get_mut(peer.index()) else {
            return;
        };
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        lanes.on_taken(env, lane, arrived.holds_credit, arrived.what.charge(len));
        let request = Request {
            peer,
            lane,
            to: arrived.match_bits.into(),
            len,
            announced,
        };
        self.sh.start_tagged(request, posted);
        self.touch(peer);
        self.schedule_grants();
    }
}
