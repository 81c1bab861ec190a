// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tagged messages and the receives that wait for them, and their matching (`P11.2`, `P11.3`).
//!
//! Invariant: no waiting message matches a waiting receive.

use super::port::{Posted, TakenHeld, Waiting};
use super::remains::{Discarded, Remains};
use super::tag_queue::{Listed, TagQueue};
use super::unexpected::UnexpectedList;
use crate::base::context::Context;
use crate::mem::held::HeldPool;
use crate::mem::slab::Slab;
use crate::{Event, HeldId, OpError, OpId, PeerId};
use alloc::vec::Vec;
use portolan_wire::{LaneId, MatchBits, Space};

/// Criteria by which a receive selects messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Matching space.
    pub space: Space,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that are ignored.
    pub ignore: u64,
    /// Sender; `None` for any.
    pub source: Option<PeerId>,
}

impl Selector {
    #[inline]
    pub(crate) fn takes(&self, peer: PeerId, tag: u64) -> bool {
        (tag ^ self.tag) & !self.ignore == 0 && self.source.is_none_or(|source| source == peer)
    }
}

/// Description of a waiting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Sender.
    pub peer: PeerId,
    /// Match bits.
    pub match_bits: MatchBits,
    /// Length of the message in bytes.
    pub len: u64,
}

/// Message that was claimed for a later receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimId(pub(crate) u32);

/// Message that no receive has taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    pub(crate) match_bits: MatchBits,
    pub(crate) len: u64,
    /// Set if it holds credit of its lane until it is taken, because its session is open.
    pub(crate) holds_credit: bool,
    pub(crate) what: Waiting,
}

impl Arrived {
    /// Returns this message, which is in `held`, in the form passed to the receive that took it.
    #[inline]
    pub(crate) fn taken(&self, held: HeldId) -> TakenHeld {
        TakenHeld {
            peer: self.peer,
            lane: self.lane,
            holds_credit: self.holds_credit,
            held,
        }
    }
}

/// Result of the search for a receive with match bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fitting {
    /// A receive, which was taken.
    Taken(OpId),
    /// Receive with too short a buffer, or a multi-receive. It stays posted.
    Unfit,
    /// No receive.
    Nothing,
}

/// Message that was claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimed {
    Complete(Arrived),
    /// The sender failed before it had sent the message.
    Lost(OpError),
}

/// Posted receive, with the tag bits that it ignores.
#[derive(Clone, Copy, Debug)]
struct PostedTagged {
    /// For a multi-receive, the rest of its buffer.
    posted: Posted,
    ignore: u64,
    many: Option<MultiRecv>,
}

/// State of a receive that takes messages until its buffer is used up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MultiRecv {
    /// Offset of the first unused byte.
    pub(crate) at: u64,
    /// Minimum free space in bytes; with less, it takes no more messages.
    pub(crate) free_min: u64,
}

impl PostedTagged {
    /// Takes a part of the buffer for a message of `len` bytes. Returns it with its event, and
    /// whether it is the last part.
    fn take_part(&mut self, len: u64, count: &mut u64) -> Option<(Posted, Event, bool)> {
        let many = self.many.as_mut()?;
        let (off, len) = (many.at, len.min(self.posted.len));
        let part = OpId::part(*count);
        *count += 1;
        many.at += len;
        self.posted.len -= len;
        let is_last = self.posted.len < many.free_min.max(1);
        let event = Event::MultiRecvSegment {
            op: self.posted.op,
            part,
            off,
            len,
            is_last,
        };
        let part = Posted {
            op: part,
            base: 0,
            len,
            source: self.posted.source,
        };
        Some((part, event, is_last))
    }

    #[inline]
    fn is_for(&self, peer: PeerId) -> bool {
        self.posted.source.is_none_or(|source| source == peer)
    }
}

/// Queues of one [`Space`].
#[derive(Debug)]
struct Queues {
    /// Receives for one tag are in its bin; those that ignore bits are in the list for all tags.
    posted: TagQueue<PostedTagged>,
    arrived: UnexpectedList,
}

impl Queues {
    fn new(space: Space) -> Self {
        Queues {
            posted: TagQueue::default(),
            arrived: UnexpectedList::new(space),
        }
    }

    /// Finds the first receive that matches a message.
    #[inline]
    fn find_posted(&self, peer: PeerId, tag: u64) -> Option<u32> {
        let exact = self
            .posted
            .find_tag(tag, |posted_tagged| posted_tagged.is_for(peer));
        let wild = self.posted.find_any(|other, posted_tagged| {
            (tag ^ other) & !posted_tagged.ignore == 0 && posted_tagged.is_for(peer)
        });
        match (exact, wild) {
            (Some(a), Some(b)) if self.posted.stamp(b) < self.posted.stamp(a) => Some(b),
            (None, other) => other,
            (exact, _) => exact,
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct MatchLists {
    spaces: [Queues; 2],
    claimed: Slab<Claimed>,
    part_count: u64,
    /// Set after a search for a message that has not arrived.
    missed: bool,
}

impl MatchLists {
    pub(crate) fn new() -> Self {
        MatchLists {
            spaces: [Space::Tagged, Space::Plain].map(Queues::new),
            claimed: Slab::new(),
            part_count: 0,
            missed: false,
        }
    }

    /// Takes the first receive, or a part of it, for a message with these match bits and `len`
    /// bytes from `peer`.
    #[inline]
    pub(crate) fn take_posted(
        &mut self,
        peer: PeerId,
        match_bits: &MatchBits,
        len: u64,
        ctx: &mut Context,
    ) -> Option<Posted> {
        let queues = &mut self.spaces[match_bits.space.index()];
        let index = queues.find_posted(peer, match_bits.tag)?;
        let posted_tagged = queues.posted.get_mut(index)?;
        if posted_tagged.many.is_some() {
            let (part, event, is_last) = posted_tagged.take_part(len, &mut self.part_count)?;
            ctx.emit(event);
            if is_last {
                queues.posted.remove(index);
            }
            return Some(part);
        }
        queues
            .posted
            .remove(index)
            .map(|posted_tagged| posted_tagged.posted)
    }

    /// Takes such a receive if it is for one message and has a buffer of at least `len` bytes.
    #[inline]
    pub(crate) fn take_fitting(
        &mut self,
        peer: PeerId,
        match_bits: &MatchBits,
        len: usize,
    ) -> Fitting {
        let queues = &mut self.spaces[match_bits.space.index()];
        if queues.posted.is_empty() {
            return Fitting::Nothing;
        }
        let Some(index) = queues.find_posted(peer, match_bits.tag) else {
            return Fitting::Nothing;
        };
        let Some(posted_tagged) = queues.posted.get(index) else {
            return Fitting::Nothing;
        };
        if posted_tagged.posted.len < len as u64 || posted_tagged.many.is_some() {
            return Fitting::Unfit;
        }
        let op = posted_tagged.posted.op;
        queues.posted.discard(index);
        Fitting::Taken(op)
    }

    /// Returns true if neither a receive nor a message waits.
    #[inline]
    pub(crate) fn is_quiet(&self, space: Space) -> bool {
        let queues = &self.spaces[space.index()];
        queues.posted.is_empty() && queues.arrived.is_empty()
    }

    /// Returns true if a receive is left for a message with these match bits after `used` other
    /// receives were taken.
    pub(crate) fn would_take(&self, peer: PeerId, match_bits: &MatchBits, used: usize) -> bool {
        let takes = |posted_tagged: &PostedTagged, tag: u64| {
            (tag ^ match_bits.tag) & !posted_tagged.ignore == 0 && posted_tagged.is_for(peer)
        };
        let posted = &self.spaces[match_bits.space.index()].posted;
        // A multi-receive may take only one more message.
        posted.count_where(|tag, posted_tagged| takes(posted_tagged, tag)) > used
    }

    /// Appends a receive that matches no waiting message.
    pub(crate) fn post(&mut self, selector: &Selector, posted: Posted, many: Option<MultiRecv>) {
        let listed = match selector.ignore {
            0 => Listed::ByTag,
            _ => Listed::Among,
        };
        let ignore = selector.ignore;
        let queue = &mut self.spaces[selector.space.index()].posted;
        let posted_tagged = PostedTagged {
            posted,
            ignore,
            many,
        };
        queue.push(selector.tag, listed, posted_tagged);
    }

    /// Appends a message that matches no waiting receive.
    pub(crate) fn queue_unexpected(&mut self, arrived: &Arrived) {
        self.spaces[arrived.match_bits.space.index()]
            .arrived
            .push(arrived);
    }

    /// Takes the first message that the receive matches.
    pub(crate) fn take_arrived(&mut self, selector: &Selector) -> Option<Arrived> {
        let arrived = &mut self.spaces[selector.space.index()].arrived;
        let index = arrived.find(selector)?;
        Some(arrived.remove(index))
    }

    /// Takes the first message that a receive of `len` bytes matches, if it is held, not longer,
    /// and accepted by `is_next`.
    pub(crate) fn take_held(
        &mut self,
        selector: &Selector,
        len: u64,
        is_next: impl FnOnce(&Arrived) -> bool,
    ) -> Option<(Arrived, HeldId)> {
        let arrived = &mut self.spaces[selector.space.index()].arrived;
        let index = arrived.find(selector)?;
        let found = arrived.get(index);
        let Waiting::Held(held) = found.what else {
            return None;
        };
        if found.len > len || !is_next(&found) {
            return None;
        }
        arrived.discard(index);
        Some((found, held))
    }

    /// Finds such a message without taking it. A failed search counts as waiting (`P4.14`).
    pub(crate) fn peek(&mut self, selector: &Selector) -> Option<Arrived> {
        let arrived = &mut self.spaces[selector.space.index()].arrived;
        let index = arrived.find(selector);
        self.missed |= index.is_none();
        Some(arrived.get(index?))
    }

    /// Records that a search for a message at a port has failed; see [`MatchLists::peek`].
    pub(super) fn note_missed(&mut self) {
        self.missed = true;
    }

    /// Claims the first message that the receive matches, for one later receive.
    pub(crate) fn claim(&mut self, selector: &Selector) -> Option<(ClaimId, Arrived)> {
        let arrived = self.peek(selector)?;
        let id = self.claimed.insert(Claimed::Complete(arrived)).ok()?;
        self.take_arrived(selector);
        Some((ClaimId(id), arrived))
    }

    /// Takes a claimed message.
    pub(crate) fn take_claimed(&mut self, claim: ClaimId) -> Option<Claimed> {
        self.claimed.remove(claim.0)
    }

    /// Returns the bytes in tables of waiting messages, without held memory.
    pub(crate) fn table_len(&self) -> usize {
        self.spaces.iter().map(|one| one.arrived.table_len()).sum()
    }

    /// Returns true if a receive waits for a message that `peer` may send.
    pub(crate) fn expects_from(&self, peer: PeerId) -> bool {
        let mut posted = self.spaces.iter().map(|one| &one.posted);
        self.missed || posted.any(|posted| posted.any(|posted_tagged| posted_tagged.is_for(peer)))
    }

    /// Clears the record of failed searches; returns true if there was one.
    pub(crate) fn forget_missed(&mut self) -> bool {
        core::mem::take(&mut self.missed)
    }

    /// Takes all waiting messages that were not claimed, and cancels the receives.
    pub(crate) fn discard(&mut self) -> Vec<Discarded> {
        self.take_where(|_| true);
        let mut discarded = Vec::new();
        for queues in &mut self.spaces {
            for item in queues.arrived.take_all() {
                discarded.push(Discarded {
                    peer: item.peer,
                    lane: item.lane,
                    holds_credit: item.holds_credit,
                    len: item.len,
                    what: item.what,
                });
            }
        }
        discarded
    }

    /// Cancels a receive; returns `false` if it is not waiting.
    pub(crate) fn cancel(&mut self, op: OpId) -> bool {
        self.take_where(|posted| posted.op == op).len() == 1
    }

    /// Cancels the receives that only `peer` could have satisfied.
    pub(crate) fn take_sourced(&mut self, peer: PeerId) -> Vec<OpId> {
        self.take_where(|posted| posted.source == Some(peer))
    }

    /// Cancels the receives that are `is_selected`, in the order of posting.
    pub(crate) fn take_where(&mut self, is_selected: impl Fn(&Posted) -> bool) -> Vec<OpId> {
        let mut ops = Vec::new();
        for queues in &mut self.spaces {
            let posted = &mut queues.posted;
            for index in posted.places_where(|posted_tagged| is_selected(&posted_tagged.posted)) {
                ops.extend(
                    posted
                        .remove(index)
                        .map(|posted_tagged| posted_tagged.posted.op),
                );
            }
        }
        ops
    }

    /// Keeps the waiting messages of a failed peer that are complete and not preceded by a missing
    /// one. All other messages are added to `remains`. `P9.7`, `P11.8`
    pub(crate) fn end_waiting(
        &mut self,
        peer: PeerId,
        error: OpError,
        pool: &mut HeldPool,
        remains: &mut Remains,
    ) {
        for queues in &mut self.spaces {
            // Removing a message may shrink the table and move others.
            let mut broken = Vec::new();
            for index in queues.arrived.places_from(peer) {
                let item = queues.arrived.get(index);
                let keeps = remains.holds_at(item.lane, &item.match_bits.into());
                if let (true, Waiting::Held(held)) = (keeps, item.what) {
                    queues.arrived.forget_credit(index);
                    pool.mark_orphaned(held);
                    continue;
                }
                remains.broken.push((item.lane, item.match_bits.into()));
                if let Waiting::Held(held) = item.what {
                    remains.held.push(held);
                }
                broken.push(index);
            }
            queues.arrived.remove_all(&broken);
        }
        for key in self.claimed.keys_where(|claimed| claimed.is_from(peer)) {
            match self.claimed.get_mut(key) {
                Some(Claimed::Complete(Arrived {
                    what: Waiting::Held(held),
                    holds_credit,
                    ..
                })) => {
                    *holds_credit = false;
                    pool.mark_orphaned(*held);
                }
                Some(claimed) => *claimed = Claimed::Lost(error),
                None => {}
            }
        }
    }
}

impl Claimed {
    fn is_from(&self, peer: PeerId) -> bool {
        match self {
            Claimed::Complete(arrived) => arrived.peer == peer,
            Claimed::Lost(..) => false,
        }
    }
}
