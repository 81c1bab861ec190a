// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a process for tools of its user, such as `portolan top`.
//!
//! A process with links has a [status page](portolan_sys::status_page). The engine polls the page in
//! its slow checks, and publishes a [`Status`] as JSON when a tool has requested one. Messages
//! cost nothing for it.

use portolan_proto::{Counters, DropReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of a job's process, of a libfabric endpoint, or of a standalone process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Kind of process.
    pub kind: Kind,
    /// Random number of the job, in hexadecimal.
    pub job: String,
    /// Rank in the job; an endpoint has none.
    pub rank: Option<u32>,
    /// Number of processes in the job.
    pub size: u32,
    /// Name of the host, as errors have it.
    pub host: String,
    /// Time of the process's clock in nanoseconds, which counts from any moment.
    pub time_ns: u64,
    /// Description of the current wait, with its duration.
    pub waits: String,
    /// Peers that alone can end the wait.
    pub waits_on: Vec<u32>,
    /// Counters since the start, by name.
    pub counters: BTreeMap<String, u64>,
    /// Dropped frames, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Peers with a path; not all, if they are many.
    pub peers: Vec<PeerState>,
    /// Number of peers with a path.
    pub peer_count: u32,
}

/// Kind of process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Process of a job.
    #[default]
    Rank,
    /// Endpoint of libfabric, for example of an MPI process.
    Endpoint,
    /// Server or client without a launcher.
    Standalone,
}

/// State of a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerState {
    /// Its rank, or its number in an endpoint.
    pub peer: u32,
    /// Name of its host.
    pub host: String,
    /// State of the session: connecting, up, or the cause of its failure.
    pub state: String,
    /// Paths that were tried.
    pub paths: Vec<PathState>,
    /// Long messages to it that wait for a grant.
    pub waiting_grants: u32,
    /// Long messages to it in transfer.
    pub transfers: u32,
}

/// State of a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathState {
    /// Name of its link.
    pub link: String,
    /// Set if the peer answers on it.
    pub up: bool,
    /// Set if small messages use it.
    pub small: bool,
    /// Set if bulk data uses it.
    pub bulk: bool,
    /// Reason of this use.
    pub why: String,
    /// Length in bytes of the largest frame that has passed.
    pub frame_len: usize,
    /// Shortest round trip measured, in microseconds.
    pub rtt_min_us: Option<f64>,
    /// Frames in flight.
    pub in_flight: usize,
    /// Congestion window in frames, if there is one.
    pub window: Option<usize>,
}

/// Returns the counters by their names.
pub(crate) fn counters_by_name(counters: &Counters) -> BTreeMap<String, u64> {
    // Without `..`, so that a new counter is not forgotten.
    let Counters {
        frames_sent,
        frames_received,
        retransmits,
        timeouts,
        paths_left,
        messages_sent,
        messages_received,
        bytes_received,
        remote_requests,
        messages_held,
        best_effort_lost,
        placement_hits,
        placement_misses,
        placement_repaired_bytes,
        frames_marked,
        marks_heard,
        stream_bytes,
        pushes_placed,
        pushes_missed,
        link_full,
        drops_by_reason: _,
    } = *counters;
    let named = [
        ("frames_sent", frames_sent),
        ("frames_received", frames_received),
        ("retransmits", retransmits),
        ("timeouts", timeouts),
        ("paths_left", paths_left),
        ("messages_sent", messages_sent),
        ("messages_received", messages_received),
        ("bytes_received", bytes_received),
        ("remote_requests", remote_requests),
        ("messages_held", messages_held),
        ("best_effort_lost", best_effort_lost),
        ("placement_hits", placement_hits),
        ("placement_misses", placement_misses),
        ("placement_repaired_bytes", placement_repaired_bytes),
        ("frames_marked", frames_marked),
        ("marks_heard", marks_heard),
        ("stream_bytes", stream_bytes),
        ("pushes_placed", pushes_placed),
        ("pushes_missed", pushes_missed),
        ("link_full", link_full),
    ];
    let owned = named.map(|(name, value)| (name.to_owned(), value));
    owned.into_iter().collect()
}

/// Returns the names of all reasons of drops, for tools that list them before they occur.
#[must_use]
pub fn drop_reasons() -> Vec<&'static str> {
    DropReason::ALL.iter().map(|reason| reason.name()).collect()
}
