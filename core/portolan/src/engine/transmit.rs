// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending: passes what the core transmits to its link, with payload from user memory. Single
//! messages can bypass the core's frame queues.

use super::fault::unreadable;
use super::gather::{pieces_of, two_pieces_of};
use super::{Engine, Inner};
use crate::links::Links;
use crate::ops::Ops;
use crate::seal::Seals;
use portolan_link::{LinkAddr, Segments, TxError, TxFrame};
use portolan_proto::{
    Address, Cause, Instant, LinkId, MatchBits, Payload, PeerId, Refused, SendSpec, Transmit,
};
use portolan_sys::usage;
use std::io::IoSlice;

impl Engine {
    /// Sends a message directly, if no earlier frame is queued. Returns `false` if the bypass does
    /// not apply.
    #[inline(always)]
    pub(crate) fn send_direct(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        match spec.to {
            Address::Port(_) => self.send_direct_as::<8>(peer, spec, bytes),
            Address::MatchBits(MatchBits { imm: None, .. }) => {
                self.send_direct_as::<16>(peer, spec, bytes)
            }
            Address::MatchBits(_) => self.send_direct_as::<24>(peer, spec, bytes),
        }
    }

    /// Sends directly a message with a header of `N` bytes.
    #[inline(always)]
    fn send_direct_as<const N: usize>(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> bool {
        self.send_by_shm::<N>(peer, spec, bytes)
            || self.send_over_network(peer, &spec.clone(), bytes)
    }

    /// Sends a message with a header of `N` bytes by shared memory, if nothing is queued before it
    /// and the ring has room.
    #[inline(always)]
    pub(crate) fn send_by_shm<const N: usize>(
        &mut self,
        peer: PeerId,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> bool {
        if self.inner.pending.has(peer, spec) {
            return false;
        }
        let Some(direct) = self.inner.core.direct::<N>(peer, spec, bytes.len()) else {
            return false;
        };
        let sent = self.links.send_message(peer, &direct, bytes);
        if sent.is_err() {
            self.inner.core.direct_refused(peer, spec.lane, bytes.len());
            return false;
        }
        if self.inner.core.needs_transmit() {
            self.flush();
        }
        true
    }

    /// Sends a message over a network at once, if nothing is queued before it.
    #[inline(never)]
    fn send_over_network(&mut self, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        if self.inner.owner.is_another()
            || !self.links.has_lossy()
            || self.inner.pending.has(peer, spec)
        {
            return false;
        }
        let now = self.inner.read_clock();
        let Inner {
            core, seals, turn, ..
        } = &mut self.inner;
        let frame = match core.submit(now, peer, spec, bytes) {
            Ok(frame) => frame,
            Err(Refused::TooLong) => return self.send_run(now, peer, spec, bytes),
            Err(_) => return false,
        };
        usage::count_copy();
        let link = frame.link;
        let sent = match seals {
            None => self.links.send_whole(*turn, (peer, link), frame.bytes),
            Some(seals) => self
                .links
                .send_sealed(*turn, seals, (peer, link), frame.bytes),
        };
        if let Err(error) = sent {
            self.on_unsent(now, (peer, link), error);
        }
        self.inner.note_short();
        self.flush_rest();
        true
    }

    /// Sends a message of several frames as [`Engine::send_over_network`] does.
    #[inline(never)]
    fn send_run(&mut self, now: Instant, peer: PeerId, spec: &SendSpec, bytes: &[u8]) -> bool {
        let Inner {
            core,
            ops,
            seals,
            turn,
            ..
        } = &mut self.inner;
        let Ok(run) = core.submit_run(now, peer, spec, bytes) else {
            return false;
        };
        usage::count_copy();
        let (_, link, result) = self.links.hand_over(*turn, ops, seals.as_deref_mut(), &run);
        core.keep_message(bytes);
        if let Err(error) = result {
            self.on_unsent(now, (peer, link), error);
        }
        self.flush_rest();
        true
    }

    /// Sends what was held back behind a message that was sent at once, if anything.
    #[inline]
    fn flush_rest(&mut self) {
        if self.inner.core.needs_transmit() || self.full_mask != 0 {
            self.flush();
        }
    }

    /// Flushes if a queued frame must leave before the call returns.
    #[inline]
    pub(crate) fn flush_if_wanted(&mut self) {
        if self.inner.flush_wanted {
            self.flush();
        }
    }

    /// Sends everything that the core has ready. Returns the number of frames or runs sent.
    pub(crate) fn flush(&mut self) -> usize {
        #[cfg(test)]
        {
            self.flush_count += 1;
        }
        if self.inner.owner.is_another() {
            return self.abandon();
        }
        self.inner.flush_wanted = false;
        if self.full_mask != 0 {
            for link in LinkId::ALL
                .into_iter()
                .filter(|l| self.full_mask >> l.as_u8() & 1 == 1)
            {
                self.inner.core.link_ready(link);
            }
            self.full_mask = 0;
        }
        // Shared memory needs no time stamps.
        let now = if self.links.has_lossy() {
            self.inner.read_clock()
        } else {
            self.inner.now
        };
        let turn = self.inner.turn;
        let in_latency_mode = self.inner.in_latency_mode();
        self.inner.core.set_latency_sensitive(in_latency_mode);
        self.has_more = false;
        // First peer that yielded to other peers in this flush.
        let mut yielded = None;
        let mut count = 0;
        loop {
            if !self.inner.unreached.is_empty() {
                self.reach();
            }
            if yielded.is_some() && yielded == self.inner.core.next_peer() {
                self.has_more = true;
                break;
            }
            let Inner {
                core, ops, seals, ..
            } = &mut self.inner;
            let Some(transmit) = core.poll_transmit(now) else {
                break;
            };
            let is_bulk = matches!(transmit, Transmit::Bulk { .. });
            if is_bulk && let Some(bad) = unreadable(ops, &transmit) {
                self.on_unreadable(bad);
                continue;
            }
            let (peer, link, result) =
                self.links
                    .hand_over(turn, ops, seals.as_deref_mut(), &transmit);
            match result {
                Ok(()) => count += 1,
                Err(error) => self.on_unsent(now, (peer, link), error),
            }
            // Short messages are polled for between runs and parts of transfers, so each peer gets
            // one per flush.
            if in_latency_mode && is_bulk && link != LinkId::SHM {
                self.inner.core.yield_peer();
                yielded = yielded.or(Some(peer));
            }
        }
        count
    }

    /// Handles the link's refusal of the frame that the core transmitted last.
    #[cold]
    fn on_unsent(&mut self, now: Instant, (peer, link): (PeerId, LinkId), error: TxError) {
        let Inner {
            core, link_drops, ..
        } = &mut self.inner;
        match error {
            TxError::Full => {
                core.transmit_refused();
                self.full_mask |= 1 << link.as_u8();
            }
            // The stream's content is sent on a path instead.
            _ if link == LinkId::STREAM => core.stream_refused(now, peer),
            TxError::NotConnected(_) if !self.links.is_connected(peer, link) => {
                core.transmit_refused();
                core.link_ready(link);
                self.inner.unreached.push(peer);
            }
            // Treated like a lost frame: the core retransmits it or detects that the path has
            // failed.
            error => {
                *link_drops.entry("transmit_failed").or_default() += 1;
                log::debug!("{link} to {peer}: {error}");
            }
        }
    }

    /// Connects the links to peers to which they have never sent.
    #[cold]
    fn reach(&mut self) {
        for peer in std::mem::take(&mut self.inner.unreached) {
            self.reach_peer(peer);
        }
    }

    pub(crate) fn reach_peer(&mut self, peer: PeerId) {
        self.pass_addresses(peer);
        let mut has_left = false;
        let mut lacking = None;
        for (link, addr) in self.unconnected(peer) {
            if let LinkAddr::Udp { socket } = addr
                && link == LinkId::UDP
            {
                self.begin_scout(peer, socket);
            }
            if let Err(error) = self.links.connect(peer, link, &addr) {
                log::debug!("{link} to {peer}: {error}");
                match error.shortage() {
                    Some(lack) => lacking = Some((lack, error.to_string())),
                    None => has_left |= link == LinkId::SHM,
                }
            }
        }
        if let Some((lack, what)) = lacking {
            return self.on_exhausted(peer, &lack, what);
        }
        if has_left {
            // No process listens there now, or the link has just detected that the peer left and
            // has the reason. Messages that the peer sent before still count. They may have come on
            // a connection of its own that is newer than the last poll. `P8.11`
            self.receive_all();
            self.await_report(peer);
            self.inner.core.fail_peer(peer, Cause::ProcessExited);
        }
    }
}

impl Engine {
    /// Returns the links that lead to `peer` but are not connected to it, with its address on each.
    fn unconnected(&self, peer: PeerId) -> Vec<(LinkId, LinkAddr)> {
        let table = &self.inner.table;
        let Some(other) = table.of(peer) else {
            return Vec::new();
        };
        let mut links = table.links_to(peer);
        links.retain(|link| !self.links.is_connected(peer, *link));
        let addr = |link| match link {
            LinkId::UDP => Some(LinkAddr::Udp {
                socket: self.address_of(peer)?,
            }),
            LinkId::UDP2 => Some(LinkAddr::Udp {
                socket: table.second_address_of(&other)?,
            }),
            link => other.on(link).cloned(),
        };
        let links = links.into_iter();
        links.filter_map(|link| Some((link, addr(link)?))).collect()
    }
}

impl Links {
    /// Sends one transmit of the core on its link, sealed if the job uses seals.
    #[inline]
    fn hand_over(
        &mut self,
        turn: u32,
        ops: &Ops,
        seals: Option<&mut Seals>,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        if transmit.payload().len() > 1
            && (transmit.payload().iter()).any(|part| two_pieces_of(ops, part).is_none())
        {
            return self.hand_over_parts(turn, ops, seals, transmit);
        }
        match seals {
            None if transmit.destination().1 == LinkId::STREAM => self.transmit_part(ops, transmit),
            None => self.transmit(turn, ops, transmit),
            Some(seals) => self.transmit_sealed(turn, ops, seals, transmit),
        }
    }

    /// Sends one frame, sealed.
    #[inline(never)]
    fn send_sealed(
        &mut self,
        turn: u32,
        seals: &mut Seals,
        (peer, link): (PeerId, LinkId),
        bytes: &[u8],
    ) -> Result<(), TxError> {
        let transmit = Transmit::Frame { peer, link, bytes };
        let send = |frame: &TxFrame<'_>| self.send(turn, peer, link, frame);
        seals.transmit(&transmit, &[], send)
    }

    /// Sends each part of a transmit separately after an operation was forgotten, since the parts
    /// of the other operations must still leave.
    #[cold]
    fn hand_over_parts(
        &mut self,
        turn: u32,
        ops: &Ops,
        mut seals: Option<&mut Seals>,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        let (peer, link) = transmit.destination();
        for part in transmit.each_payload() {
            let (.., result) = self.hand_over(turn, ops, seals.as_deref_mut(), &part);
            if result.is_err() {
                return (peer, link, result);
            }
        }
        (peer, link, Ok(()))
    }

    /// Sends as [`Links::transmit`] does, sealed if the link is a network.
    pub(super) fn transmit_sealed(
        &mut self,
        turn: u32,
        ops: &Ops,
        seals: &mut Seals,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        let (peer, link) = transmit.destination();
        if link == LinkId::SHM {
            return self.transmit(turn, ops, transmit);
        }
        let send = |frame: &TxFrame<'_>| self.send(turn, peer, link, frame);
        let result = match payload_of(ops, transmit) {
            Some(payload) => seals.transmit(transmit, payload, send),
            None => match pieces_of(ops, transmit) {
                Some(pieces) => seals.transmit_pieces(transmit, &pieces, send),
                None => Ok(()),
            },
        };
        (peer, link, result)
    }

    /// Sends one transmit of the core on its link.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        turn: u32,
        ops: &Ops,
        transmit: &Transmit<'_>,
    ) -> (PeerId, LinkId, Result<(), TxError>) {
        match *transmit {
            Transmit::Frame { peer, link, bytes } => {
                (peer, link, self.send_whole(turn, (peer, link), bytes))
            }
            Transmit::Run {
                peer,
                link,
                bytes,
                more,
                segment_len,
            } => {
                let payload = [IoSlice::new(bytes), IoSlice::new(more)];
                let payload = &payload[..if more.is_empty() { 1 } else { 2 }];
                let segments = Some(Segments {
                    header_len: 0,
                    payload_len: segment_len,
                });
                let frame = TxFrame {
                    head: &[],
                    payload,
                    segments,
                };
                (peer, link, self.send(turn, peer, link, &frame))
            }
            Transmit::Bulk {
                peer,
                link,
                headers,
                header_len,
                fragment_len,
                ..
            } => {
                let Some(bytes) = payload_of(ops, transmit) else {
                    return self.transmit_pieces(turn, ops, transmit);
                };
                let payload = [IoSlice::new(bytes)];
                let cut = Segments {
                    header_len,
                    payload_len: fragment_len,
                };
                let segments = (headers.len() > header_len).then_some(cut);
                let frame = TxFrame {
                    head: headers,
                    payload: &payload,
                    segments,
                };
                (peer, link, self.send(turn, peer, link, &frame))
            }
            // Streams have their own call.
            Transmit::Message { peer, .. } => (peer, LinkId::STREAM, Ok(())),
        }
    }
}

/// Returns the part of an operation's buffer that leaves with a transmit. Returns `None` if it lies
/// in several pieces (`gather`), or if the operation was forgotten. Its transfer then fails at the
/// peer.
#[inline]
pub(super) fn payload_of<'a>(ops: &'a Ops, transmit: &Transmit<'_>) -> Option<&'a [u8]> {
    match *transmit.payload() {
        [] => Some(&[]),
        [Payload { op, off, len }] => {
            let off = usize::try_from(off).unwrap_or(usize::MAX);
            ops.bytes(op).get(off..)?.get(..len)
        }
        _ => None,
    }
}
