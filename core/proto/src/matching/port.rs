// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports: messages that wait for buffers, by destination port. Tagged messages wait in
//! [`super::match_list`].

mod late;

pub(crate) use late::LateMessage;

use super::queues::{Place, Queues};
use super::remains::{Discarded, Remains};
use crate::base::context::Context;
use crate::base::credit::charge;
use crate::base::narrow::narrow;
use crate::base::request::Announced;
use crate::mem::held::{HeldPool, WAITING_LEN};
use crate::{Dest, Event, HeldId, OpId, PeerId, PortId, PortMode};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use late::next_unserved;
use portolan_wire::LaneId;

/// Ports per page of the table; two levels of 256 cover 16-bit numbers.
const PAGE_LEN: usize = 256;

/// Posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) op: OpId,
    /// Offset of the first byte in the memory of `op`.
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) source: Option<PeerId>,
}

impl Posted {
    /// Returns the event that places a part of the message, as far as the buffer reaches.
    pub(crate) fn place(&self, off: u64, src: Range<usize>) -> Option<Event> {
        let room = self.len.saturating_sub(off);
        let len = src.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        (len > 0).then(|| Event::Place {
            dest: Dest::Op(self.op, self.base + off),
            src: src.start..src.start + len,
        })
    }
}

/// Content of a message that waits for a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    Held(HeldId),
    Request(Announced),
}

impl Waiting {
    /// Returns the lane credit that such a message of `len` bytes costs. `P4.3`
    pub(crate) fn charge(&self, len: u64) -> u32 {
        match self {
            Waiting::Held(_) => charge(narrow(len)),
            Waiting::Request(_) => charge(0),
        }
    }
}

/// Waiting message. Its size is kept small, since there may be a million of them.
#[derive(Debug)]
struct Unexpected {
    /// Position in the order of arrival at the port.
    stamp: u64,
    step: Step,
}

/// State of a waiting message.
#[derive(Debug)]
enum Step {
    Held {
        held: HeldId,
        holds_credit: bool,
    },
    Request(Box<Pending>),
    /// A buffer was found late and is being filled.
    Transferring(u32),
    /// The transfer is complete. An earlier message of the lane is not.
    Transferred(Box<LateMessage>),
}

impl Step {
    /// Returns true if the message has its buffer.
    fn has_buffer(&self) -> bool {
        matches!(self, Step::Transferring(_) | Step::Transferred(_))
    }
}

/// Request to send that waits at a port.
#[derive(Debug)]
struct Pending {
    announced: Announced,
    len: u64,
    holds_credit: bool,
    /// Buffer that was posted for it; no other message may take it.
    buffer: Option<Posted>,
}

const _: () = assert!(WAITING_LEN == 2 * size_of::<Unexpected>());

/// Held message that a receive has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenHeld {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    /// Set if it holds credit of its lane.
    pub(crate) holds_credit: bool,
    pub(crate) held: HeldId,
}

impl TakenHeld {
    /// Returns the waiting message `item` if it is complete.
    #[inline(always)]
    fn of((peer, lane): (PeerId, LaneId), item: &Unexpected) -> Option<TakenHeld> {
        let Step::Held { held, holds_credit } = item.step else {
            return None;
        };
        Some(TakenHeld {
            peer,
            lane,
            holds_credit,
            held,
        })
    }
}

/// Reason why [`Core::take_held`](crate::Core::take_held) takes no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// Neither a message nor a receive waits at the port.
    Nothing,
    /// The receive must be posted: the message is incomplete or too long, is from another sender,
    /// or earlier receives or events come first. Or the port is not open.
    Other,
}

/// Held message that was copied to its receiver; see [`Core::take_held`](crate::Core::take_held).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMessage {
    /// Sender.
    pub peer: PeerId,
    /// Lane.
    pub lane: LaneId,
    /// Length in bytes.
    pub len: usize,
}

/// Request that has its buffer. It stays in the queue until [`Port::pop_transferred`].
#[derive(Debug)]
pub(crate) struct ServedRequest {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    /// Set if it holds credit of its lane.
    pub(crate) holds_credit: bool,
    pub(crate) announced: Announced,
    pub(crate) len: u64,
    pub(crate) posted: Posted,
}

/// Waiting message that is served now.
#[derive(Debug)]
pub(crate) enum Served {
    /// Delivered in place if there is no buffer.
    Held(TakenHeld, Option<Posted>),
    Request(ServedRequest),
}

#[derive(Debug, Default)]
pub(crate) struct Port {
    /// `None` until the program opens the port; reliable messages wait meanwhile.
    mode: Option<PortMode>,
    posted: VecDeque<Posted>,
    /// Set if messages that would have to wait are discarded, because the process closes.
    discards: bool,
    /// Waiting messages.
    unexpected: Queues<Unexpected>,
    next_stamp: u64,
}

/// Receiver of a port's next message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Match {
    Posted(Posted),
    InPlace,
    Nothing,
    /// None, because the process closes.
    Discarded,
}

impl Port {
    /// Finds a buffer for the next message of (`peer`, `lane`); `eager` messages may be delivered
    /// in place.
    #[inline]
    pub(crate) fn find(&mut self, peer: PeerId, lane: LaneId, eager: bool) -> Match {
        if self.is_behind(peer, lane) {
            return Match::Nothing;
        }
        if eager && self.mode == Some(PortMode::InPlace) {
            return Match::InPlace;
        }
        self.take_posted(peer).map_or(Match::Nothing, Match::Posted)
    }

    pub(super) fn open(&mut self, mode: PortMode) {
        self.mode = Some(mode);
    }

    #[inline]
    pub(crate) fn is(&self, mode: PortMode) -> bool {
        self.mode == Some(mode)
    }

    #[inline]
    pub(super) fn discards(&self) -> bool {
        self.discards
    }

    /// Posts a receive for the request that needs it, or for the next message.
    pub(super) fn post(&mut self, posted: Posted) {
        if !self.reserve(posted) {
            self.posted.push_back(posted);
        }
    }

    /// Returns the event to emit before a first message of `peer` waits here, because the program
    /// may have forgotten to open the port.
    pub(super) fn first_unopened(&self, port: PortId, peer: PeerId) -> Option<Event> {
        let is_news = self.mode.is_none() && self.unexpected.is_empty() && !port.system;
        is_news.then_some(Event::PortUnopened { port, peer })
    }

    /// Returns true if an earlier message of this lane waits.
    #[inline]
    fn is_behind(&self, peer: PeerId, lane: LaneId) -> bool {
        self.unexpected.find((peer, lane)).is_some()
    }

    /// Returns true if a message waits.
    #[inline]
    pub(crate) fn has_unexpected(&self) -> bool {
        !self.unexpected.is_empty()
    }

    /// Returns true if a message from `peer` waits.
    pub(crate) fn has_unexpected_from(&self, peer: PeerId) -> bool {
        LaneId::ALL.iter().any(|&lane| self.is_behind(peer, lane))
    }

    /// Queues a message of `len` bytes until a buffer is posted; [`Ports::begin_waiting`] has
    /// counted it. `P4.7`
    #[inline]
    pub(super) fn queue_unexpected(
        &mut self,
        from: (PeerId, LaneId),
        len: u64,
        holds_credit: bool,
        what: Waiting,
    ) {
        let step = match what {
            Waiting::Held(held) => Step::Held { held, holds_credit },
            Waiting::Request(announced) => Step::Request(Box::new(Pending {
                announced,
                len,
                holds_credit,
                buffer: None,
            })),
        };
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.unexpected.push(from, Unexpected { stamp, step });
    }

    /// Returns true if neither a receive nor a message waits.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }

    /// Returns true if [`Port::find`] would find a buffer after `used` other buffers were taken.
    pub(crate) fn would_take(&self, peer: PeerId, lane: LaneId, eager: bool, used: usize) -> bool {
        if self.is_behind(peer, lane) {
            return false;
        }
        let fits = |post: &&Posted| post.source.is_none_or(|source| source == peer);
        eager && (self.discards || self.mode == Some(PortMode::InPlace))
            || self.posted.iter().filter(fits).nth(used).is_some()
    }

    /// Returns true if the next message of its lane must be held: the port is open, and neither a
    /// receive nor a handler takes the message.
    #[inline]
    pub(crate) fn must_hold(&self, peer: PeerId, lane: LaneId) -> bool {
        self.mode == Some(PortMode::Posted) && !self.would_take(peer, lane, true, 0)
    }

    /// Finds a buffer like [`Port::find`], for an eager message of `len` bytes, but only if the
    /// first buffer matches and is long enough.
    #[inline]
    pub(crate) fn find_fitting(&mut self, peer: PeerId, len: u64) -> Match {
        if !self.unexpected.is_empty() {
            return Match::Nothing;
        }
        if self.mode == Some(PortMode::InPlace) {
            return Match::InPlace;
        }
        let fits =
            |post: &&Posted| post.len >= len && post.source.is_none_or(|source| source == peer);
        if self.posted.front().filter(fits).is_none() {
            return Match::Nothing;
        }
        self.posted
            .pop_front()
            .map_or(Match::Nothing, Match::Posted)
    }

    /// Reserves a buffer for a message that needed it ([`Event::BufferNeeded`]): the first from
    /// that source that fits. Returns `false` if there is none.
    fn reserve(&mut self, posted: Posted) -> bool {
        if self.mode != Some(PortMode::InPlace) {
            return false;
        }
        let items = self.unexpected.iter_mut();
        let items = items.filter(|((peer, _), _)| posted.source == Some(*peer));
        let unbuffered = items.filter_map(|(_, item)| match &mut item.step {
            Step::Request(pending) if pending.buffer.is_none() && pending.len <= posted.len => {
                Some((item.stamp, pending))
            }
            _ => None,
        });
        let first = unbuffered.min_by_key(|(stamp, _)| *stamp);
        first.is_some_and(|(_, pending)| pending.buffer.replace(posted).is_none())
    }

    /// Requests a buffer for each request that arrived before the port was opened.
    pub(crate) fn request_buffers(&self, port: PortId, ctx: &mut Context) {
        let items = self.unexpected.iter();
        let unbuffered = items.filter_map(|((peer, _), item)| match &item.step {
            Step::Request(pending) => Some((item.stamp, peer, pending.len)),
            _ => None,
        });
        let mut unbuffered: Vec<_> = unbuffered.collect();
        unbuffered.sort_unstable();
        for (_, peer, len) in unbuffered {
            ctx.emit(Event::BufferNeeded { port, peer, len });
        }
    }

    #[inline]
    fn take_posted(&mut self, peer: PeerId) -> Option<Posted> {
        let first = self.posted.front()?;
        if first.source.is_none_or(|source| source == peer) {
            return self.posted.pop_front();
        }
        let index = self
            .posted
            .iter()
            .position(|post| post.source.is_none_or(|source| source == peer))?;
        self.posted.remove(index)
    }

    /// Returns true if a waiting message could be served as the first of its lane.
    fn can_serve(&self, peer: PeerId, item: &Unexpected) -> bool {
        match &item.step {
            Step::Transferring(_) | Step::Transferred(_) => return false,
            Step::Held { .. } if self.mode == Some(PortMode::InPlace) => return true,
            Step::Request(pending) if pending.buffer.is_some() => return true,
            _ => {}
        }
        let mut posted = self.posted.iter();
        posted.any(|post| post.source.is_none_or(|source| source == peer))
    }

    /// Takes the first waiting message that can be served now. Messages of one (peer, lane) are
    /// served in order, several requests at once. A lane is skipped while it `has_undelivered` this
    /// port an earlier message that was matched but is incomplete.
    fn next_served(&mut self, has_undelivered: impl Fn(PeerId, LaneId) -> bool) -> Option<Served> {
        let can_serve = |peer, item: &Unexpected| self.can_serve(peer, item);
        let place = self
            .first_waiting(&has_undelivered, can_serve)
            .or_else(|| self.first_behind(&has_undelivered))?;
        let is_waiting = |item: &Unexpected| !item.step.has_buffer();
        let ((peer, lane), front) = self.unexpected.find_mut(place, is_waiting)?;
        if let Step::Request(pending) = &mut front.step {
            let (announced, len, holds_credit) =
                (pending.announced, pending.len, pending.holds_credit);
            let own = pending.buffer.take();
            let posted = own.or_else(|| self.take_posted(peer))?;
            return Some(Served::Request(ServedRequest {
                peer,
                lane,
                holds_credit,
                announced,
                len,
                posted,
            }));
        }
        let taken = self.pop_held(place)?;
        let posted = match self.mode {
            Some(PortMode::InPlace) => None,
            _ => Some(self.take_posted(peer)?),
        };
        Some(Served::Held(taken, posted))
    }

    /// Returns the message that a receive from `source` would get if it were posted now, if the
    /// message is complete and all waiting ones are of one sender and lane.
    #[inline(always)]
    pub(crate) fn only_held(&self, source: Option<PeerId>) -> Option<(Place, TakenHeld)> {
        // A receive that was posted earlier takes precedence.
        if self.mode != Some(PortMode::Posted) || !self.posted.is_empty() {
            return None;
        }
        let (place, from, item) = self.unexpected.only_front()?;
        let taken = TakenHeld::of(from, item)?;
        let is_wanted = source.is_none_or(|source| source == taken.peer);
        is_wanted.then_some((place, taken))
    }

    /// Returns the same message if messages of several senders or lanes wait.
    pub(crate) fn first_held(
        &self,
        source: Option<PeerId>,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<(Place, TakenHeld)> {
        if self.mode != Some(PortMode::Posted) || !self.posted.is_empty() {
            return None;
        }
        let place = self.first_waiting(has_undelivered, |peer, item| {
            source.is_none_or(|source| source == peer) && !item.step.has_buffer()
        })?;
        let (from, item) = self.unexpected.front_with(place)?;
        Some((place, TakenHeld::of(from, item)?))
    }

    /// Removes the first message of a queue. The caller calls [`Ports::note_taken`] for it.
    #[inline(always)]
    pub(crate) fn drop_front(&mut self, place: Place) {
        self.unexpected.drop_front(place);
    }

    /// Returns sender, content and length of the message that a receive from `source` would get if
    /// it were posted now and no other one were. The length of a held message is in its memory.
    fn peek(
        &self,
        source: Option<PeerId>,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<(PeerId, Waiting, u64)> {
        let next = self
            .unexpected
            .queues()
            .filter_map(|(_, (peer, lane), items)| {
                let is_wanted = source.is_none_or(|source| source == peer);
                let item =
                    next_unserved(items).filter(|_| is_wanted && !has_undelivered(peer, lane))?;
                Some((peer, item))
            });
        let (peer, first) = next.min_by_key(|(_, item)| item.stamp)?;
        match &first.step {
            Step::Held { held, .. } => Some((peer, Waiting::Held(*held), 0)),
            Step::Request(pending) => {
                Some((peer, Waiting::Request(pending.announced), pending.len))
            }
            Step::Transferring(_) | Step::Transferred(_) => None,
        }
    }

    /// Finds the queue with the oldest first message that `is_selected` accepts. Queues are left
    /// out while their lane `has_undelivered` this port an earlier message.
    #[inline(always)]
    fn first_waiting(
        &self,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
        is_selected: impl Fn(PeerId, &Unexpected) -> bool,
    ) -> Option<Place> {
        if let Some((place, (peer, lane), item)) = self.unexpected.only_front() {
            let is_it = is_selected(peer, item) && !has_undelivered(peer, lane);
            return is_it.then_some(place);
        }
        self.first_of_many(|peer, lane, item| {
            is_selected(peer, item) && !has_undelivered(peer, lane)
        })
    }

    #[inline(never)]
    fn first_of_many(
        &self,
        is_selected: impl Fn(PeerId, LaneId, &Unexpected) -> bool,
    ) -> Option<Place> {
        let mut first: Option<(u64, Place)> = None;
        for (place, (peer, lane), item) in self.unexpected.fronts() {
            let is_first = first.is_none_or(|(stamp, _)| item.stamp < stamp);
            if is_first && is_selected(peer, lane, item) {
                first = Some((item.stamp, place));
            }
        }
        first.map(|(_, place)| place)
    }

    /// Takes the first message of a queue if it is held.
    fn pop_held(&mut self, place: Place) -> Option<TakenHeld> {
        let (from, item) = self.unexpected.pop(place)?;
        TakenHeld::of(from, &item)
    }

    /// See [`Ports::end_waiting`].
    fn end_waiting(
        &mut self,
        id: PortId,
        peer: PeerId,
        pool: &mut HeldPool,
        remains: &mut Remains,
    ) -> usize {
        let mut taken = 0;
        self.unexpected.retain(|(from, lane), item| {
            if from != peer {
                return true;
            }
            match &mut item.step {
                Step::Held { held, holds_credit } if remains.holds_at(lane, &id.into()) => {
                    *holds_credit = false;
                    pool.mark_orphaned(*held);
                    return true;
                }
                Step::Held { held, .. } => remains.held.push(*held),
                Step::Request(pending) => {
                    remains.broken.push((lane, id.into()));
                    remains.ops.extend(pending.buffer.map(|posted| posted.op));
                }
                Step::Transferring(_) => remains.broken.push((lane, id.into())),
                // Not delivered: an earlier message of its lane is incomplete.
                Step::Transferred(message) => remains.ops.push(message.op),
            }
            taken += 1;
            false
        });
        taken
    }

    /// Removes the waiting messages that are not being transferred.
    fn discard_waiting(&mut self, discarded: &mut Vec<Discarded>) {
        self.unexpected.retain(|(peer, lane), item| {
            let (holds_credit, len, what) = match &item.step {
                Step::Transferring(_) | Step::Transferred(_) => return true,
                &Step::Held { held, holds_credit } => (holds_credit, 0, Waiting::Held(held)),
                Step::Request(pending) => {
                    let what = Waiting::Request(pending.announced);
                    (pending.holds_credit, pending.len, what)
                }
            };
            discarded.push(Discarded {
                peer,
                lane,
                holds_credit,
                len,
                what,
            });
            false
        });
    }

    /// Returns the complete waiting messages, by sender, in the order in which they are served.
    pub(crate) fn held(&self) -> impl Iterator<Item = (PeerId, HeldId)> + '_ {
        let items = self.unexpected.iter();
        items.filter_map(|((peer, _), item)| match item.step {
            Step::Held { held, .. } => Some((peer, held)),
            _ => None,
        })
    }

    /// Cancels the buffer that was posted for a request; returns `false` if the operation has none.
    fn cancel_reserved(&mut self, op: OpId) -> bool {
        let items = self.unexpected.iter_mut();
        let mut reserved = items.filter_map(|(_, item)| match &mut item.step {
            Step::Request(pending) => pending.buffer.take_if(|posted| posted.op == op),
            _ => None,
        });
        reserved.next().is_some()
    }
}

type Page = [Option<Box<Port>>; PAGE_LEN];

/// All ports of the process.
#[derive(Debug)]
pub(crate) struct Ports {
    user: Vec<Option<Box<Page>>>,
    system: Vec<Option<Box<Page>>>,
    /// Set if ports used for the first time discard messages.
    discards: bool,
    /// Number of messages that wait at all ports.
    waiting_count: usize,
}

impl Ports {
    pub(crate) fn new() -> Self {
        let pages = || (0..PAGE_LEN).map(|_| None).collect();
        Ports {
            user: pages(),
            system: pages(),
            discards: false,
            waiting_count: 0,
        }
    }

    /// Returns the bytes in queues of waiting messages, without held memory.
    #[inline]
    pub(super) fn table_len(&self) -> usize {
        self.waiting_count * WAITING_LEN
    }

    /// Counts a message that is about to wait at a port, and returns the port.
    #[inline]
    pub(super) fn begin_waiting(&mut self, id: PortId) -> &mut Port {
        self.waiting_count += 1;
        self.entry(id)
    }

    /// See [`Port::next_served`].
    pub(super) fn next_served(
        &mut self,
        id: PortId,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<Served> {
        let served = self.get_mut(id)?.next_served(has_undelivered)?;
        if let Served::Held(..) = served {
            self.waiting_count -= 1;
        }
        Some(served)
    }

    /// Records that a message was removed from its port.
    #[inline]
    pub(super) fn note_taken(&mut self) {
        self.waiting_count -= 1;
    }

    /// See [`Port::peek`].
    pub(super) fn peek(
        &mut self,
        id: PortId,
        source: Option<PeerId>,
        has_undelivered: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<(PeerId, Waiting, u64)> {
        self.get_mut(id)?.peek(source, has_undelivered)
    }

    /// Returns the port, if it was ever used.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        let pages = if id.system {
            &mut self.system
        } else {
            &mut self.user
        };
        pages[usize::from(id.number >> 8)].as_mut()?[usize::from(id.number & 0xff)].as_deref_mut()
    }

    /// Returns the port, and creates it if necessary.
    pub(crate) fn entry(&mut self, id: PortId) -> &mut Port {
        let pages = if id.system {
            &mut self.system
        } else {
            &mut self.user
        };
        let page = pages[usize::from(id.number >> 8)]
            .get_or_insert_with(|| Box::new([const { None }; PAGE_LEN]));
        let discards = self.discards;
        page[usize::from(id.number & 0xff)].get_or_insert_with(|| {
            Box::new(Port {
                discards,
                ..Port::default()
            })
        })
    }

    /// Makes all ports discard messages, open or not, except those that deliver in place. Cancels
    /// their receives; returns the waiting messages that are not being transferred.
    pub(crate) fn discard(&mut self) -> Vec<Discarded> {
        self.discards = true;
        let mut discarded = Vec::new();
        for (_, port) in self.iter_mut() {
            if port.mode == Some(PortMode::InPlace) {
                continue;
            }
            (port.mode, port.discards) = (None, true);
            port.posted.clear();
            port.discard_waiting(&mut discarded);
        }
        self.waiting_count -= discarded.len();
        discarded
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Port)> {
        numbered(&mut self.user, false).chain(numbered(&mut self.system, true))
    }

    /// Returns true if any message of `peer` waits at a port.
    pub(crate) fn has_waiting_from(&mut self, peer: PeerId) -> bool {
        self.iter_mut()
            .any(|(_, port)| port.has_unexpected_from(peer))
    }

    /// Cancels a posted receive; returns `false` if it is not waiting.
    pub(crate) fn cancel(&mut self, id: PortId, op: OpId) -> bool {
        let Some(port) = self.get_mut(id) else {
            return false;
        };
        let before = port.posted.len();
        port.posted.retain(|posted| posted.op != op);
        port.posted.len() < before || port.cancel_reserved(op)
    }

    /// Keeps the waiting messages of a failed peer that are complete and not preceded by a missing
    /// one. All other messages are added to `remains`. `P9.7`
    pub(crate) fn end_waiting(&mut self, peer: PeerId, pool: &mut HeldPool, remains: &mut Remains) {
        let ports = self.iter_mut();
        let taken: usize = ports
            .map(|(id, port)| port.end_waiting(id, peer, pool, remains))
            .sum();
        self.waiting_count -= taken;
    }

    /// Returns true if a receive or a program's handler waits for a message that `peer` may send.
    pub(crate) fn expects_from(&mut self, peer: PeerId) -> bool {
        let takes = |post: &Posted| post.source.is_none_or(|source| source == peer);
        self.iter_mut().any(|(id, port)| {
            let is_handled = port.mode == Some(PortMode::InPlace) && !id.system;
            is_handled || port.posted.iter().any(takes)
        })
    }

    /// Cancels the receives that only `peer` could have satisfied.
    pub(crate) fn take_sourced(&mut self, peer: PeerId) -> Vec<OpId> {
        self.take_where(|posted| posted.source == Some(peer))
    }

    /// Cancels the receives that are `is_selected`.
    pub(crate) fn take_where(&mut self, is_selected: impl Fn(&Posted) -> bool) -> Vec<OpId> {
        let mut ops = Vec::new();
        for (_, port) in self.iter_mut() {
            port.posted.retain(|posted| {
                let matches = is_selected(posted);
                ops.extend(matches.then_some(posted.op));
                !matches
            });
        }
        ops
    }

    /// Returns the number of complete waiting messages from `peer`, per port and lane.
    pub(crate) fn unread(&mut self, peer: PeerId) -> Vec<(PortId, LaneId, usize)> {
        let mut found = Vec::new();
        for (id, port) in self.iter_mut() {
            for lane in LaneId::ALL {
                let is_complete = |item: &Unexpected| matches!(item.step, Step::Held { .. });
                let waiting = port.unexpected.iter();
                let count = waiting
                    .filter(|(from, item)| *from == (peer, lane) && is_complete(item))
                    .count();
                if count > 0 {
                    found.push((id, lane, count));
                }
            }
        }
        found
    }
}

/// Returns the existing ports with their numbers.
fn numbered(
    pages: &mut [Option<Box<Page>>],
    system: bool,
) -> impl Iterator<Item = (PortId, &mut Port)> {
    let pages = pages.iter_mut().enumerate();
    let pages = pages.filter_map(|(high, page)| Some((high, page.as_deref_mut()?)));
    pages.flat_map(move |(high, page)| {
        page.iter_mut().enumerate().filter_map(move |(low, port)| {
            let number = u16::try_from(high * PAGE_LEN + low).ok()?;
            Some((PortId { number, system }, port.as_deref_mut()?))
        })
    })
}
