// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publishes the state of this engine when a tool requests it.

use super::Engine;
use crate::launch::PathChoice;
use crate::model;
use crate::status::{Kind, PathState, PeerState, Status, counters_by_name};
use portolan_proto::{LinkId, PathStatus, PeerId, PeerStatus};
use portolan_sys::status_page::{STATUS_LEN_MAX, StatusPage};
use std::collections::BTreeMap;

/// Peers that are examined, so that a request takes a fraction of a millisecond.
const PEERS_MAX: usize = 4096;

/// Peers that are described at first; fewer, if the text is too long.
const DESCRIBED_MAX: usize = 128;

/// The page of an engine, and what it needs to know of the settings.
#[derive(Debug)]
pub(crate) struct Published {
    page: StatusPage,
    /// Set if a stored model of the machine selects the paths.
    has_model: bool,
}

impl Published {
    /// Creates the page. Without it, tools cannot see the process; nothing else depends on it.
    fn create(model: &model::Status) -> Option<Box<Published>> {
        let page = StatusPage::create()
            .inspect_err(|error| log::info!("tools cannot see this process: {error}"))
            .ok()?;
        let has_model = matches!(model, model::Status::Used(..));
        Some(Box::new(Published { page, has_model }))
    }
}

impl Engine {
    /// Makes the engine's state available to tools; `model` is the machine's model in use.
    pub(crate) fn published(mut self, model: &model::Status) -> Engine {
        self.published = Published::create(model);
        // For tools that find a program which does not call the library for long.
        self.publish(0);
        self
    }

    /// Publishes the state if a tool has requested it.
    #[inline]
    pub(super) fn publish_if_requested(&mut self) {
        if let Some(published) = &self.published
            && let Some(request) = published.page.request()
        {
            self.publish(request);
        }
    }

    #[cold]
    fn publish(&mut self, request: u32) {
        if self.published.is_none() {
            return;
        }
        let mut described = DESCRIBED_MAX;
        let mut text = self.status_text(described);
        while text.len() > STATUS_LEN_MAX && described > 0 {
            described /= 2;
            text = self.status_text(described);
        }
        text.truncate(STATUS_LEN_MAX);
        if let Some(published) = &mut self.published {
            published.page.publish(request, &text);
        }
    }

    fn status_text(&self, described: usize) -> Vec<u8> {
        // Numbers and texts are always valid JSON.
        serde_json::to_vec(&self.status(described)).unwrap_or_default()
    }

    fn status(&self, described: usize) -> Status {
        let inner = &self.inner;
        let waits = inner.waits();
        let mut peers: Vec<PeerState> = self.peer_states().collect();
        let peer_count = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        // Those with work first.
        peers.sort_by_key(|peer| std::cmp::Reverse((peer.waiting_grants, in_flight(peer))));
        peers.truncate(described);
        let (kind, rank) = match &inner.job {
            job if job.is_endpoint() => (Kind::Endpoint, None),
            job if job.is_standalone() => (Kind::Standalone, None),
            job => (Kind::Rank, Some(job.rank)),
        };
        let drops = inner.drops().into_iter();
        Status {
            kind,
            job: hex::encode(inner.job.job_id),
            rank,
            size: inner.job.size,
            host: inner.job.host_name(),
            time_ns: inner.now.as_nanos(),
            waits: waits.text,
            waits_on: waits.on,
            counters: counters_by_name(inner.core.counters()),
            drops: drops
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            peers,
            peer_count,
        }
    }

    /// Returns the peers with a path.
    fn peer_states(&self) -> impl Iterator<Item = PeerState> + '_ {
        let count = self.inner.peers.len().min(PEERS_MAX);
        let mut transfers: BTreeMap<PeerId, (u32, u32)> = BTreeMap::new();
        for (peer, _, is_granted) in self.inner.core.unfinished_transfers() {
            let (waiting, granted) = transfers.entry(peer).or_default();
            *waiting += u32::from(!is_granted);
            *granted += u32::from(is_granted);
        }
        let numbers = 0..u32::try_from(count).unwrap_or(0);
        numbers.filter_map(move |number| {
            let peer = PeerId(number);
            let transfers = transfers.get(&peer).copied().unwrap_or_default();
            self.peer_state(peer, transfers)
        })
    }

    fn peer_state(
        &self,
        peer: PeerId,
        (waiting_grants, transfers): (u32, u32),
    ) -> Option<PeerState> {
        let core = &self.inner.core;
        let status = |link| core.path_status(peer, link);
        let all: Vec<PathStatus> = LinkId::ALL.into_iter().filter_map(status).collect();
        let state = match core.peer_status(peer) {
            PeerStatus::Unknown => return None,
            PeerStatus::Connecting => "connecting".to_owned(),
            PeerStatus::Up => "up".to_owned(),
            PeerStatus::Failed(cause) => cause.to_string(),
        };
        Some(PeerState {
            peer: peer.0,
            host: self.inner.host_of(peer),
            state,
            paths: all.iter().map(|path| self.path_state(path, &all)).collect(),
            waiting_grants,
            transfers,
        })
    }

    fn path_state(&self, path: &PathStatus, all: &[PathStatus]) -> PathState {
        PathState {
            link: path.link.to_string(),
            up: path.up,
            small: path.small,
            bulk: path.bulk,
            why: self.why(path, all).to_owned(),
            frame_len: path.frame_len,
            rtt_min_us: path.rtt_min.map(|rtt| rtt.as_secs_f64() * 1e6),
            in_flight: path.inflight_count,
            window: path.window,
        }
    }

    /// Returns the reason of the use of `path` among `all` to a peer. `P6.5`
    fn why(&self, path: &PathStatus, all: &[PathStatus]) -> &'static str {
        let up_count = all.iter().filter(|path| path.up).count();
        let has_model = self.published.as_ref().is_some_and(|it| it.has_model);
        let is_wanted = matches!(self.inner.job.path, PathChoice::Packet | PathChoice::Xdp);
        match path {
            path if !path.up => "it does not answer",
            path if path.link == LinkId::SHM => "both processes are on one host",
            path if path.link == LinkId::STREAM => "TCP carries some long messages",
            path if path.small && path.link == LinkId::PACKET && is_wanted => "it was requested",
            path if path.bulk && shares(all) => match path.small {
                true => "lowest round trip; two networks share long messages",
                false => "two networks share long messages",
            },
            _ if up_count == 1 => "it is the only path that answers",
            path if (path.small || path.bulk) && has_model => {
                "the model of this machine selects it"
            }
            path if path.small && path.bulk => "lowest round trip, and most bytes per call",
            path if path.small => "lowest round trip (raw Ethernet counts half)",
            path if path.bulk => "most bytes per call",
            _ => "another path is better",
        }
    }
}

/// Tests whether two networks share bulk data.
fn shares(all: &[PathStatus]) -> bool {
    let carries = |link| all.iter().any(|path| path.link == link && path.bulk);
    carries(LinkId::UDP) && carries(LinkId::UDP2)
}

fn in_flight(peer: &PeerState) -> usize {
    peer.paths.iter().map(|path| path.in_flight).sum()
}
