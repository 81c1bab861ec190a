// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short ways of small messages: from the caller's memory straight to a lossless link or into
//! a frame that is being filled, and from an arrived frame to its port, past queues and events.
//!
//! Everything here is a shortcut: where it does not apply it says `None` and changes nothing, and
//! the message takes the ordinary way.

use crate::base::credit::charge;
use crate::matching::Matching;
use crate::matching::match_list::Fitting;
use crate::matching::port::Match;
use crate::mem::copy::copy;
use crate::shared::Shared;
use crate::{Address, Core, LinkId, OpId, PeerId, PortId, PortMode, Selector, SendSpec};
use core::ops::Range;
use portolan_wire::{BestEffortPart, MESSAGE_LEN, MatchBits, Message};

/// A message that may leave at once: its header of `N` bytes, and by which link.
#[derive(Clone, Copy, Debug)]
pub struct Direct<const N: usize> {
    /// The link.
    pub link: LinkId,
    /// To stand in front of the payload.
    pub header: [u8; N],
}

/// A frame whose header was found good, and how far its records have been taken.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    /// The sender.
    pub from: PeerId,
    /// By which link.
    pub(crate) link: LinkId,
    /// It has a number or came by a lossless link: it may carry what must not be lost.
    pub(crate) reliable: bool,
    /// First byte of the next record.
    pub(crate) at: usize,
    /// Bytes of the frame, padding left out.
    pub(crate) total_len: usize,
}

impl Admitted {
    /// Nothing is left of it.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at >= self.total_len
    }

    /// The next bytes behind a header of `header_len`: where `len` of payload lie, if `head` has all
    /// of them.
    #[inline]
    fn payload(&self, head: &[u8], header_len: usize, len: usize) -> Option<Range<usize>> {
        let off = self.at + header_len;
        let is_here = off + len <= head.len().min(self.total_len);
        is_here.then_some(off..off + len)
    }
}

/// A receive that is waited for without having been posted: it takes the next message that is at hand
/// in its frame. The caller has seen that nothing else [waits](Core::is_quiet).
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Which messages it takes.
    pub what: Wanted,
    /// Bytes of the buffer.
    pub len: usize,
}

/// Which messages a [`Want`] takes.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// To this port, from this peer only.
    Port(PortId, Option<PeerId>),
    /// With match bits.
    MatchBits(Selector),
}

impl Want {
    #[inline]
    fn takes(&self, to: PortId, from: PeerId, len: usize) -> bool {
        match self.what {
            Wanted::Port(port, source) => {
                port == to && self.len >= len && source.is_none_or(|source| source == from)
            }
            Wanted::MatchBits(_) => false,
        }
    }

    #[inline]
    fn takes_tagged(&self, to: &MatchBits, from: PeerId, len: usize) -> bool {
        match &self.what {
            Wanted::Port(..) => false,
            Wanted::MatchBits(selector) => {
                selector.space == to.space && self.len >= len && selector.takes(from, to.tag)
            }
        }
    }
}

/// Where a [`Whole`] message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeDest {
    /// To its port's handler, in place.
    Handler,
    /// Into the buffer of this operation.
    Posted(OpId),
    /// To the receive that was wanted.
    Wanted,
    /// No receive yet: the core holds a copy until one takes it.
    Held,
}

/// A message that may be delivered at once, at `off..off + len` of its frame.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// Its port.
    pub port: PortId,
    /// What takes it.
    pub dest: WholeDest,
    /// First byte of the payload.
    pub off: usize,
    /// Bytes of payload.
    pub len: usize,
}

/// A tagged message that may be delivered at once, at `off..off + len` of its frame.
#[derive(Clone, Copy, Debug)]
pub struct Tagged {
    /// Destination; never a handler.
    pub dest: WholeDest,
    /// Match bits of the message.
    pub match_bits: MatchBits,
    /// First byte of the payload.
    pub off: usize,
    /// Bytes of payload.
    pub len: usize,
}

impl Core {
    /// Accepts a message of `len` bytes to be sent this instant, ahead of nothing. `N` must be its
    /// [`SendSpec::header_len`]: known when compiled, it costs messages to ports nothing that there
    /// are others.
    #[inline]
    pub fn direct<const N: usize>(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        len: usize,
    ) -> Option<Direct<N>> {
        let state = self.peers.get_mut(peer.index())?.as_deref_mut()?;
        let (link, message) = state.direct::<N>(&mut self.sh.ctx, spec, len)?;
        let mut header = [0; N];
        message.emit(&mut header);
        Some(Direct { link, header })
    }

    /// The link had no room for the message that [`Core::direct`] has just accepted: it was never
    /// sent.
    pub fn direct_refused(&mut self, peer: PeerId, spec: &SendSpec, len: usize) {
        if let Some(Some(state)) = self.peers.get_mut(peer.index()) {
            state.lanes_mut().tx(spec.lane).cancel(charge(len));
            self.sh.ctx.counters_mut().messages_sent -= 1;
        }
    }

    /// Appends a message to the frame that its lane is filling, if there is one with room.
    #[inline]
    pub fn append(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> Option<()> {
        let state = self.peers.get_mut(peer.index())?.as_deref_mut()?;
        state.append(&mut self.sh, spec, bytes)
    }

    /// Whether nothing waits where a message would be looked for: neither a receive nor a message at an
    /// open port, or with match bits.
    #[inline]
    pub fn is_quiet(&mut self, wanted: &Wanted) -> bool {
        let matching = &mut self.sh.matching;
        match wanted {
            Wanted::Port(port, _) => matching.port(*port).is_some_and(|port| port.is_quiet()),
            Wanted::MatchBits(selector) => matching.lists().is_quiet(selector.space),
        }
    }

    /// The messages that wait whole at `port`, by sender, in the order in which they are served.
    pub fn waiting_at(&mut self, port: PortId) -> impl Iterator<Item = (PeerId, &[u8])> + '_ {
        let Shared { matching, held, .. } = &mut self.sh;
        let port = matching.port(port);
        let waiting = port.into_iter().flat_map(|port| port.held());
        waiting.map(|(peer, id)| (peer, held.bytes(id)))
    }

    /// Takes the next message of an admitted frame, if it is the next of its lane and finds a
    /// buffer that holds it. `head` is what [`Core::admit`] was given.
    #[inline]
    pub fn take_whole(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        want: Option<&Want>,
    ) -> Option<Whole> {
        let Some(message) = Message::peek(head.get(frame.at..)?) else {
            if let Some(want) = want {
                self.await_assembled(frame, head, want);
            }
            return None;
        };
        let len = usize::from(message.len);
        if message.best_effort {
            return self.take_best_effort(frame, head, &message, want?);
        }
        let (port, from, lane) = (PortId::of(&message), frame.from, message.lane);
        let find = |matching: &mut Matching| {
            let found = matching.port(port)?;
            match found.find_fitting(from, len as u64) {
                Match::InPlace => Some(WholeDest::Handler),
                Match::Posted(posted) => Some(WholeDest::Posted(posted.op)),
                Match::Nothing
                    if want.is_some_and(|want| want.takes(port, from, len)) && found.is_quiet() =>
                {
                    Some(WholeDest::Wanted)
                }
                Match::Nothing => found.must_hold(from, lane).then_some(WholeDest::Held),
                Match::Discarded => None,
            }
        };
        let (dest, Range { start: off, .. }) =
            self.take(frame, head, &message, MESSAGE_LEN, find)?;
        Some(Whole {
            port,
            dest,
            off,
            len,
        })
    }

    /// [`Core::take_whole`] for a tagged message.
    #[inline]
    pub fn take_tagged(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        want: Option<&Want>,
    ) -> Option<Tagged> {
        let message = Message::peek_tagged(head.get(frame.at..)?)?;
        let match_bits = message.match_bits?;
        let (from, len) = (frame.from, usize::from(message.len));
        let is_closing = self.sh.ctx.is_closing();
        let find = |matching: &mut Matching| {
            if matching.must_wait((from, message.lane), &match_bits) {
                return None;
            }
            let lists = matching.lists();
            match lists.take_fitting(from, &match_bits, len) {
                Fitting::Taken(op) => return Some(WholeDest::Posted(op)),
                Fitting::Unfit => return None,
                Fitting::Nothing => {}
            }
            let is_wanted = want.is_some_and(|want| want.takes_tagged(&match_bits, from, len));
            match is_wanted && lists.is_quiet(match_bits.space) {
                true => Some(WholeDest::Wanted),
                false => (!is_closing).then_some(WholeDest::Held),
            }
        };
        let header_len = message.header_len();
        let (dest, Range { start: off, .. }) =
            self.take(frame, head, &message, header_len, find)?;
        Some(Tagged {
            dest,
            match_bits,
            off,
            len,
        })
    }

    /// Takes `message`, the next of `frame`, if it is the next of its lane and `find` has a place for
    /// it. Returns the place, and where its payload lies in `head`.
    #[inline(always)]
    fn take(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        message: &Message,
        header_len: usize,
        find: impl FnOnce(&mut Matching) -> Option<WholeDest>,
    ) -> Option<(WholeDest, Range<usize>)> {
        let payload = frame.payload(head, header_len, usize::from(message.len))?;
        if !frame.reliable {
            return None;
        }
        let state = self.peers.get_mut(frame.from.index())?.as_deref_mut()?;
        let (lanes, charge) = (state.lanes_mut(), charge(payload.len()));
        if !lanes.may_take(message.lane, message.seq, charge) {
            return None;
        }
        let dest = find(&mut self.sh.matching)?;
        frame.at = payload.end;
        if dest == WholeDest::Held {
            self.hold(frame.from, message, &head[payload.clone()]);
            return Some((dest, payload));
        }
        self.sh.ctx.count_received(payload.len() as u64);
        if lanes.take(message.lane, charge, self.sh.ctx.credit_len()) {
            self.touch(frame.from);
        }
        Some((dest, payload))
    }

    /// Copies a message that is the next of its lane, and that no receive takes, into held memory.
    fn hold(&mut self, from: PeerId, message: &Message, bytes: &[u8]) {
        let Some(Some(state)) = self.peers.get_mut(from.index()) else {
            return;
        };
        let held = self.sh.held.take(bytes.len());
        copy(self.sh.held.bytes_mut(held), bytes);
        self.sh.ctx.counters_mut().messages_held += 1;
        let to = Address::of(message);
        let (lanes, env) = &mut state.lanes(&mut self.sh);
        if lanes.hold_next(env, message.lane, &to, (held, bytes.len())) {
            self.touch(from);
        }
    }
}

impl Core {
    /// Notes it if the receive that is waited for would take the best-effort message that a part of is
    /// next: posted or not, that is a buffer.
    #[cold]
    fn await_assembled(&mut self, frame: &Admitted, head: &[u8], want: &Want) {
        let part = head.get(frame.at..).and_then(BestEffortPart::peek);
        let Some(part) = part.filter(|part| {
            let port = PortId {
                number: part.port,
                system: part.system,
            };
            want.takes(port, frame.from, part.message_len as usize)
        }) else {
            return;
        };
        if let Some(Some(state)) = self.peers.get_mut(frame.from.index()) {
            state.lanes_mut().await_assembled(&part);
        }
    }

    /// [`Core::take_whole`] for a best-effort message, for a receive that is waited for only: it would
    /// find no buffer. All others get theirs by an event.
    #[cold]
    fn take_best_effort(
        &mut self,
        frame: &mut Admitted,
        head: &[u8],
        message: &Message,
        want: &Want,
    ) -> Option<Whole> {
        let (port, len) = (PortId::of(message), usize::from(message.len));
        let payload = frame.payload(head, MESSAGE_LEN, len)?;
        let found = self.sh.matching.port(port)?;
        let is_wanted = want.takes(port, frame.from, len);
        if !is_wanted || !found.is(PortMode::Posted) || !found.is_quiet() {
            return None;
        }
        let state = self.peers.get_mut(frame.from.index())?.as_deref_mut()?;
        let lanes = state.lanes_mut();
        lanes.note_best_effort(&mut self.sh.ctx, message).ok()?;
        frame.at = payload.end;
        self.sh.ctx.count_received(len as u64);
        Some(Whole {
            port,
            dest: WholeDest::Wanted,
            off: payload.start,
            len,
        })
    }
}
