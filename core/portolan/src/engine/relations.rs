// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers of a standalone process: their beginning, their end, and the reuse of their numbers
//! (`P18`).
//!
//! Invariant: a number is given to another peer only after the program has taken the event of the
//! former peer's end, and nothing of the former peer is left. A program that takes no events cannot
//! miss one; there a number rests for a minute.

use super::{Engine, Inner, PeerInfo};
use crate::directory::{Directory, Fresh};
use crate::meeting::{Meeting, Parting, Report, Unconnected};
use portolan_proto::{Cause, Instant, LinkId, PeerId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Minimum time before a number is used again.
const REST: Duration = Duration::from_secs(1);

/// Rest period for a program that takes no events of peers.
const REST_UNREPORTED: Duration = Duration::from_secs(60);

/// Interval at which numbers are checked for reuse.
const RELEASE_INTERVAL: Duration = Duration::from_millis(100);

/// State of a standalone process.
#[derive(Default)]
pub(crate) struct Relations {
    /// Set once the process listens: peers may come at any time.
    is_listening: bool,
    /// Number of relations that exist, and of attempts to begin one.
    live_count: usize,
    attempt_count: usize,
    /// Peers that were given up, of which the connections are still open.
    given_up: Vec<PeerId>,
    /// Peers that have parted, since when. Their numbers are not free yet.
    parted: VecDeque<(PeerId, Instant)>,
    release_at: Instant,
    /// Results of attempts to connect, by number.
    results: HashMap<u64, Result<PeerId, Unconnected>>,
}

impl Relations {
    /// Tests whether the process has no peer, and none can come.
    pub(crate) fn is_without_peers(&self) -> bool {
        !self.is_listening && self.live_count == 0 && self.attempt_count == 0
    }
}

impl Inner {
    /// Makes this a standalone process, which serves the peers of `directory`. Their sessions must
    /// open within `opening`. This process itself is its first peer. Calls are numbered from
    /// `first_call`, which is random: a late reply to a former peer then answers no call of the
    /// peer that has its number now.
    pub(crate) fn stand_alone(
        &mut self,
        directory: &Arc<Directory>,
        opening: Duration,
        first_call: u64,
    ) {
        self.calls.number_from(first_call);
        self.set_directory(directory, opening);
        self.relations = Some(Box::default());
        self.peers.push(PeerInfo::default());
        self.open_notice_ports();
    }

    /// Returns the peers of a standalone process; `None` in other processes.
    pub(crate) fn met_peers(&self) -> Option<&Directory> {
        self.relations.as_ref()?;
        self.directory.as_deref()
    }

    pub(crate) fn note_listening(&mut self) {
        if let Some(relations) = &mut self.relations {
            relations.is_listening = true;
        }
    }

    pub(crate) fn note_attempt(&mut self) {
        if let Some(relations) = &mut self.relations {
            relations.attempt_count += 1;
        }
    }

    /// Tests whether the attempt `id` has ended.
    pub(crate) fn has_result(&self, id: u64) -> bool {
        let relations = self.relations.as_ref();
        relations.is_none_or(|relations| relations.results.contains_key(&id))
    }

    /// Returns the result of the attempt `id`, which then no longer counts; `None` if it has not
    /// ended.
    pub(crate) fn take_result(&mut self, id: u64) -> Option<Result<PeerId, Unconnected>> {
        let relations = self.relations.as_mut()?;
        relations.attempt_count = relations.attempt_count.saturating_sub(1);
        relations.results.remove(&id)
    }

    /// Records that a peer of a standalone process was given up, so that its relation ends. Returns
    /// `false` in other processes.
    pub(super) fn end_relation_later(&mut self, peer: PeerId) -> bool {
        let Some(relations) = &mut self.relations else {
            return false;
        };
        // From now on the peer counts as disconnected.
        let info = &mut self.peers[peer.0 as usize];
        if !std::mem::replace(&mut info.has_ended, true) {
            relations.given_up.push(peer);
        }
        true
    }
}

impl Engine {
    /// Adds the connections of a standalone process.
    pub(crate) fn set_meeting(&mut self, meeting: Meeting) {
        self.meeting = Some(Box::new(meeting));
    }

    pub(crate) fn meeting(&mut self) -> Option<&mut Meeting> {
        self.meeting.as_deref_mut()
    }

    /// Handles what has happened to the relations of a standalone process.
    pub(super) fn handle_relations(&mut self) {
        if self.inner.relations.is_none() {
            return;
        }
        if let Some(meeting) = &self.meeting
            && meeting.has_reports()
        {
            let reports = meeting.take_reports();
            self.register_fresh();
            reports
                .into_iter()
                .for_each(|report| self.on_report(report));
        }
        self.end_given_up();
        self.release_numbers();
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Joined(peer) => {
                let has_ended = self.inner.peers[peer.0 as usize].has_ended;
                if let Some(relations) = &mut self.inner.relations
                    // A peer no longer counts once its end has been handled.
                    && (!has_ended || relations.given_up.contains(&peer))
                {
                    relations.live_count += 1;
                }
                self.inner.note_joined(peer);
            }
            Report::Unwelcome(peer) => {
                // It was never reported to the program as joined.
                self.inner.peers[peer.0 as usize].is_event_noted = true;
                self.give_up_for_good(peer, Cause::Closed);
            }
            Report::Parted {
                peer,
                generation,
                parting,
            } => {
                let directory = self.inner.directory.as_ref();
                let is_same = directory.is_some_and(|it| it.generation_of(peer) == generation);
                if is_same {
                    self.end_relation(peer, parting);
                }
            }
            Report::Connected { id, result } => {
                if let Some(relations) = &mut self.inner.relations {
                    relations.results.insert(id, result);
                }
            }
        }
    }

    /// Ends the relation with a peer after its connection has closed. Messages that it sent before are
    /// received first.
    fn end_relation(&mut self, peer: PeerId, parting: Parting) {
        self.receive_all();
        let info = &mut self.inner.peers[peer.0 as usize];
        if info.has_ended {
            return;
        }
        let report = match parting {
            Parting::InOrder => "it has disconnected",
            Parting::Lost => "its connection was lost",
        };
        info.report.get_or_insert_with(|| report.into());
        info.has_left = parting == Parting::InOrder;
        self.give_up_for_good(peer, Cause::ProcessExited);
    }

    /// Ends the relation with `peer`, which this process wants. Everything sent has arrived.
    pub(crate) fn leave_peer(&mut self, peer: PeerId) {
        let info = &mut self.inner.peers[peer.0 as usize];
        if info.has_ended {
            return;
        }
        // The program needs no event of what it did itself.
        info.is_event_noted = true;
        info.report = Some("this process has disconnected from it".into());
        if let Some(meeting) = &self.meeting {
            meeting.close(peer, true);
        }
        self.give_up_for_good(peer, Cause::ProcessExited);
        self.end_given_up();
    }

    /// Closes what is left of the peers that were given up.
    fn end_given_up(&mut self) {
        let Some(relations) = &mut self.inner.relations else {
            return;
        };
        for peer in std::mem::take(&mut relations.given_up) {
            if let Some(directory) = &self.inner.directory {
                directory.part(peer);
            }
            if let Some(meeting) = &self.meeting {
                meeting.close(peer, false);
            }
            self.inner.core.dismiss(peer);
            for link in [LinkId::SHM, LinkId::UDP, LinkId::PACKET, LinkId::UDP2] {
                self.links.disconnect(peer, link);
            }
            self.drain();
            self.flush();
            let now = self.inner.read_clock();
            if let Some(relations) = &mut self.inner.relations {
                let has_joined = self.inner.peers[peer.0 as usize].has_joined;
                relations.live_count -= usize::from(has_joined);
                relations.parted.push_back((peer, now));
            }
        }
    }

    /// Makes the numbers of former peers available.
    fn release_numbers(&mut self) {
        let Inner { relations, now, .. } = &mut self.inner;
        let now = *now;
        let Some(relations) = relations else { return };
        if relations.parted.is_empty() || now < relations.release_at {
            return;
        }
        relations.release_at = now + RELEASE_INTERVAL;
        let parted = std::mem::take(&mut relations.parted);
        let (free, kept): (Vec<_>, Vec<_>) = parted
            .into_iter()
            .partition(|&(peer, since)| self.inner.is_over(peer, now.since(since)));
        if let Some(relations) = &mut self.inner.relations {
            relations.parted = kept.into();
        }
        for (peer, _) in free {
            self.inner.forget_events(peer);
            if let Some(directory) = &self.inner.directory {
                directory.release(peer);
            }
        }
    }

    /// Resets the state of a number that another peer had before, and opens the session at once.
    pub(super) fn renew_number(&mut self, fresh: &Fresh) {
        self.inner.peers[fresh.peer.0 as usize].renew();
    }

    /// Ends all relations in order.
    pub(crate) fn end_relations(&mut self) {
        if let Some(mut meeting) = self.meeting.take() {
            meeting.end();
        }
    }
}

impl Inner {
    /// Tests whether nothing is left of a peer that has parted `rest` ago.
    fn is_over(&mut self, peer: PeerId, rest: Duration) -> bool {
        let is_known = match self.takes_peer_events() {
            true => rest >= REST && !self.has_event_of(peer),
            false => rest >= REST_UNREPORTED,
        };
        is_known && self.core.unread(peer).is_empty()
    }
}
