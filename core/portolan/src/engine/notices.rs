// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notices of links and of the launcher: failed peers, missing resources, changes of links.

use super::Engine;
use crate::launch::Launch;
use portolan_link::Notice;
use portolan_proto::{Cause, LinkId, PeerId};
use portolan_wire::SEAL_LEN;
use std::net::IpAddr;

/// Turns in which all frames are received that a process sent before it ended: a ring of the
/// shortest frames takes 256, and sockets hold less.
const RECEIVE_ALL_TURNS: u32 = 1024;

impl Engine {
    /// Returns the address of the interface for network traffic, as reported to the launcher.
    pub(crate) fn network_addr(&self) -> Option<IpAddr> {
        let (addr, _) = self.inner.table.own().network?;
        Some(addr)
    }

    /// Handles the notices of links and of the launcher.
    pub(super) fn handle_notices(&mut self) {
        self.handle_link_notices();
        self.handle_launcher();
        self.handle_relations();
    }

    pub(super) fn handle_launcher(&mut self) {
        while let Some(ended) = self.launch.as_mut().and_then(Launch::poll) {
            let Some(info) = self.inner.peers.get_mut(ended.rank as usize) else {
                continue;
            };
            let peer = PeerId(ended.rank);
            // A missing resource explains more than the way in which the process then ended.
            if info.report.is_none() {
                info.report = Some(format!("its host's agent reports: {}", ended.cause).into());
            }
            (info.has_ended, info.has_left) = (true, ended.is_success);
            self.inner.ended_count += 1;
            self.receive_all();
            self.give_up_for_good(peer, Cause::ProcessExited);
        }
        self.handle_inquiry_replies();
        self.explain_if_requested();
    }

    /// Receives everything that has arrived so far, because messages sent before a process ended
    /// still count.
    pub(super) fn receive_all(&mut self) {
        // The connection may not even have been accepted yet.
        self.handle_link_notices();
        for _ in 0..RECEIVE_ALL_TURNS {
            self.links.heat(self.inner.turn);
            if self.receive(self.inner.turn, None).0 == 0 {
                return;
            }
        }
    }

    /// Handles the notices of the links. A link that is polled for notices also accepts connecting
    /// peers, which must be registered before anything is received from them.
    pub(super) fn handle_link_notices(&mut self) {
        while let Some((link, notice)) = self.links.poll_notice() {
            self.register_fresh();
            self.on_notice(link, notice);
        }
        self.register_fresh();
    }

    fn on_notice(&mut self, link: LinkId, notice: Notice) {
        match notice {
            Notice::PeerDied(rank) => self.on_departure(PeerId(rank), link, Cause::ProcessExited),
            Notice::PeerClosed(rank) => self.on_departure(PeerId(rank), link, Cause::Closed),
            Notice::PeerShortage { peer, shortage } => {
                if let Some(info) = self.inner.peers.get_mut(peer as usize) {
                    info.exhausted = Some(shortage.resource.summary());
                    info.report = Some(shortage.to_string().into());
                }
            }
            Notice::Shortage {
                peer,
                shortage,
                what,
            } => self.on_exhausted(PeerId(peer), &shortage, what),
            Notice::Refused(rank) => {
                self.note_refused(PeerId(rank));
                self.doubt(PeerId(rank));
            }
            Notice::MtuShrunk {
                peer,
                frame_len_max,
            } => {
                let seal_len = self.inner.seals.as_ref().map_or(0, |_| SEAL_LEN);
                let frame_len_max = frame_len_max.saturating_sub(seal_len);
                self.inner
                    .core
                    .shrink_path(PeerId(peer), link, frame_len_max);
            }
            Notice::Capacity(len) => self.inner.core.set_buffer_len(link, len),
            Notice::Dropped(name) => *self.inner.link_drops.entry(name).or_default() += 1,
            Notice::Down(error) => log::warn!("link {link} is down: {error}"),
            _ => {}
        }
    }
}
