// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports: which messages wait for which buffers. Those with labels wait in [`crate::matching`].

use crate::closing::Discarded;
use crate::leave::Remains;
use crate::rendezvous::Asked;
use crate::{Event, HeldId, OpId, PeerId, PortId, PortMode};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use portolan_wire::LaneId;

/// Ports per page of the table; two levels of 256 cover 16-bit numbers.
const PAGE_LEN: usize = 256;

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) op: OpId,
    /// First byte in the memory of `op`.
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) source: Option<PeerId>,
}

/// What an unexpected message consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    Held(HeldId),
    Request(Asked),
    /// Its buffer was found late and is being filled.
    Transferring {
        transfer: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Unexpected {
    pub(crate) peer: PeerId,
    pub(crate) lane: LaneId,
    pub(crate) len: u64,
    /// Credit to give back when it is consumed.
    pub(crate) charge: u32,
    pub(crate) what: Waiting,
    /// The buffer that was posted for it; no other message may take it.
    pub(crate) buffer: Option<Posted>,
}

#[derive(Debug, Default)]
pub(crate) struct Port {
    /// `None` until the program opens it; reliable messages wait meanwhile.
    pub(crate) mode: Option<PortMode>,
    pub(crate) posted: VecDeque<Posted>,
    pub(crate) unexpected: VecDeque<Unexpected>,
    /// Takes messages in place for nobody: the process closes.
    pub(crate) discards: bool,
}

/// What a message in its turn finds at its port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Match {
    Posted(Posted),
    InPlace,
    Nothing,
}

impl Port {
    /// Finds a buffer for the next message of (`peer`, `lane`); `eager` ones may go in place.
    #[inline]
    pub(crate) fn find(&mut self, peer: PeerId, lane: LaneId, eager: bool) -> Match {
        let behind = !self.unexpected.is_empty()
            && self
                .unexpected
                .iter()
                .any(|item| item.peer == peer && item.lane == lane);
        if behind {
            return Match::Nothing;
        }
        if eager && self.mode == Some(PortMode::InPlace) {
            return Match::InPlace;
        }
        self.take_posted(peer).map_or(Match::Nothing, Match::Posted)
    }

    /// What there is to tell before a message of `peer` begins to wait here: the program may have
    /// forgotten to open the port.
    pub(crate) fn first_unopened(&self, port: PortId, peer: PeerId) -> Option<Event> {
        let is_news = self.mode.is_none() && self.unexpected.is_empty() && !port.system;
        is_news.then_some(Event::PortUnopened { port, peer })
    }

    /// Neither a receive nor a message waits.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }

    /// Whether [`Port::find`] would find a buffer after `used` others were taken.
    pub(crate) fn would_take(&self, peer: PeerId, lane: LaneId, eager: bool, used: usize) -> bool {
        let mut waiting = self.unexpected.iter();
        if waiting.any(|item| item.peer == peer && item.lane == lane) {
            return false;
        }
        let fits = |post: &&Posted| post.source.is_none_or(|source| source == peer);
        eager && self.mode == Some(PortMode::InPlace)
            || self.posted.iter().filter(fits).nth(used).is_some()
    }

    /// [`Port::find`] for an eager message of `len` bytes, but only where the first buffer is the
    /// one to take, and holds the message.
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

    /// Keeps the answer to a [`Event::BufferWanted`] for the message that wanted it: the first from
    /// that source which it is long enough for. `false` if there is none.
    pub(crate) fn reserve(&mut self, posted: Posted) -> bool {
        if self.mode != Some(PortMode::InPlace) {
            return false;
        }
        let wanting = self.unexpected.iter_mut().find(|item| {
            let waits = matches!(item.what, Waiting::Request(_)) && item.buffer.is_none();
            waits && posted.source == Some(item.peer) && item.len <= posted.len
        });
        wanting.is_some_and(|item| item.buffer.replace(posted).is_none())
    }

    /// Asks for a buffer for each request that came before the port was opened.
    pub(crate) fn want_buffers(&self, port: PortId, events: &mut VecDeque<Event>) {
        for item in &self.unexpected {
            if matches!(item.what, Waiting::Request(_)) {
                let (peer, len) = (item.peer, item.len);
                events.push_back(Event::BufferWanted { port, peer, len });
            }
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

    /// The first unexpected message that can be served now, with its buffer (`None`: in place).
    /// Messages of one (peer, lane) are served in order; not before what their lane `owes` this
    /// port: a message that was matched earlier and is not all there yet.
    pub(crate) fn next_served(
        &mut self,
        owes: impl Fn(PeerId, LaneId) -> bool,
    ) -> Option<(usize, Option<Posted>)> {
        let mut seen: Vec<(PeerId, LaneId)> = Vec::new();
        for index in 0..self.unexpected.len() {
            let item = self.unexpected[index];
            if seen.contains(&(item.peer, item.lane)) {
                continue;
            }
            seen.push((item.peer, item.lane));
            if owes(item.peer, item.lane) {
                continue;
            }
            match item.what {
                Waiting::Transferring { .. } => {}
                Waiting::Held(_) if self.mode == Some(PortMode::InPlace) => {
                    return Some((index, None));
                }
                _ => {
                    let own = self.unexpected[index].buffer.take();
                    if let Some(posted) = own.or_else(|| self.take_posted(item.peer)) {
                        return Some((index, Some(posted)));
                    }
                }
            }
        }
        None
    }
}

type Page = [Option<Box<Port>>; PAGE_LEN];

/// All ports of the process.
#[derive(Debug)]
pub(crate) struct Ports {
    user: Vec<Option<Box<Page>>>,
    system: Vec<Option<Box<Page>>>,
    /// Every port throws away what nobody takes.
    discards: bool,
}

impl Ports {
    pub(crate) fn new() -> Self {
        let pages = || (0..PAGE_LEN).map(|_| None).collect();
        Ports {
            user: pages(),
            system: pages(),
            discards: false,
        }
    }

    /// The port, if anything was ever done with it.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        let pages = if id.system {
            &mut self.system
        } else {
            &mut self.user
        };
        pages[usize::from(id.number >> 8)].as_mut()?[usize::from(id.number & 0xff)].as_deref_mut()
    }

    /// The port, made if need be.
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
                mode: discards.then_some(PortMode::InPlace),
                discards,
                ..Port::default()
            })
        })
    }

    /// Makes every port that does not take messages in place do so, whether it is open or not; returns
    /// what has waited there and is not under way.
    pub(crate) fn discard(&mut self) -> Vec<Discarded> {
        self.discards = true;
        let mut discarded = Vec::new();
        for (_, port) in self.iter_mut() {
            if port.mode == Some(PortMode::InPlace) {
                continue;
            }
            (port.mode, port.discards) = (Some(PortMode::InPlace), true);
            port.unexpected.retain(|item| {
                let stays = matches!(item.what, Waiting::Transferring { .. });
                if !stays {
                    discarded.push(Discarded {
                        peer: item.peer,
                        lane: item.lane,
                        charge: item.charge,
                        what: item.what,
                    });
                }
                stays
            });
        }
        discarded
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Port)> {
        numbered(&mut self.user, false).chain(numbered(&mut self.system, true))
    }

    /// Whether anything of `peer` waits at a port.
    pub(crate) fn has_waiting_from(&mut self, peer: PeerId) -> bool {
        self.iter_mut()
            .any(|(_, port)| port.unexpected.iter().any(|item| item.peer == peer))
    }

    /// Withdraws a posted receive; `false` if it is not waiting (any more).
    pub(crate) fn cancel(&mut self, id: PortId, op: OpId) -> bool {
        let Some(port) = self.get_mut(id) else {
            return false;
        };
        let before = port.posted.len();
        port.posted.retain(|posted| posted.op != op);
        let reserved = port.unexpected.iter_mut();
        let reserved = reserved.filter_map(|item| item.buffer.take_if(|posted| posted.op == op));
        reserved.count() > 0 || port.posted.len() < before
    }

    /// Keeps of what waits from a peer that is gone the messages that are whole, and before which
    /// none is missing; the rest goes to the `remains`. `P9.7`
    pub(crate) fn end_waiting(&mut self, peer: PeerId, remains: &mut Remains) {
        for (id, port) in self.iter_mut() {
            port.unexpected.retain_mut(|item| {
                if item.peer != peer {
                    return true;
                }
                match item.what {
                    Waiting::Held(_) if remains.keeps_at(item.lane, &id.into()) => {
                        item.charge = 0;
                        return true;
                    }
                    Waiting::Held(held) => remains.held.push(held),
                    Waiting::Request(_) | Waiting::Transferring { .. } => {
                        remains.broken.push((item.lane, id.into()));
                    }
                }
                remains.ops.extend(item.buffer.map(|posted| posted.op));
                false
            });
        }
    }

    /// Withdraws the receives that only `peer` could have filled.
    pub(crate) fn take_sourced(&mut self, peer: PeerId) -> Vec<OpId> {
        let mut ops = Vec::new();
        for (_, port) in self.iter_mut() {
            port.posted.retain(|posted| {
                if posted.source == Some(peer) {
                    ops.push(posted.op);
                }
                posted.source != Some(peer)
            });
        }
        ops
    }

    /// Messages from `peer` that wait whole: how many at each port, per lane.
    pub(crate) fn unread(&mut self, peer: PeerId) -> Vec<(PortId, LaneId, usize)> {
        let mut found = Vec::new();
        for (id, port) in self.iter_mut() {
            for lane in LaneId::ALL {
                let is_whole = |item: &&Unexpected| {
                    let from = (item.peer, item.lane) == (peer, lane);
                    from && matches!(item.what, Waiting::Held(_))
                };
                let count = port.unexpected.iter().filter(is_whole).count();
                if count > 0 {
                    found.push((id, lane, count));
                }
            }
        }
        found
    }
}

/// The ports that exist, with their numbers.
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
