// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compact state of a dormant peer's paths: only what cannot be reconstructed.

use super::ack::RxMemory;
use super::congestion::Congestion;
use super::probe::ProbeMemory;
use super::rtt::Rtt;
use super::{Path, Paths};
use crate::base::context::Context;
use crate::base::narrow::narrow;
use crate::{Instant, LinkId, PathStatus};
use alloc::boxed::Box;

/// Paths of a dormant peer.
#[derive(Debug)]
pub(crate) struct DormantPaths {
    small: Option<LinkId>,
    bulk: Option<LinkId>,
    second: Option<LinkId>,
    paths: Box<[DormantPath]>,
}

#[derive(Debug)]
struct DormantPath {
    link: LinkId,
    frame_len: u32,
    frame_len_bound: u32,
    checked: bool,
    window_frames: u32,
    base_num: u32,
    rtt: Rtt,
    rx: RxMemory,
    probe: ProbeMemory,
    congestion: Option<Congestion>,
}

impl Paths {
    /// Returns the time when the last numbered frame was sent.
    pub(crate) fn last_sent_at(&self) -> Instant {
        let sent = self.iter().map(|path| path.loss.last_sent_at()).max();
        sent.unwrap_or_default()
    }

    /// Returns true if nothing is in flight, being measured or pending on any path.
    pub(crate) fn are_settled(&self) -> bool {
        self.iter().all(Path::is_settled)
    }

    /// Returns the state to keep of paths that [are settled](Paths::are_settled).
    pub(crate) fn into_dormant(self) -> DormantPaths {
        let Paths {
            by_link,
            small,
            bulk,
            second,
            // Its pause ended when everything was acknowledged.
            suspicion: _,
        } = self;
        let paths = by_link.into_iter().flatten();
        DormantPaths {
            small,
            bulk,
            second,
            paths: paths.map(|path| DormantPath::from(*path)).collect(),
        }
    }
}

impl Path {
    fn is_settled(&self) -> bool {
        self.up
            && !self.blocked
            && self.unacked.is_empty()
            && self.runs.is_empty()
            && self.best_effort_runs.is_empty()
            && !self.has_frames()
            && self.health.is_calm()
            && self.rx.memory().is_some()
            && self.probe.memory().is_some()
    }
}

impl From<Path> for DormantPath {
    /// Each field is named, so that a new one is not forgotten.
    fn from(path: Path) -> DormantPath {
        let Path {
            link,
            // Parameters come from the link.
            params: _,
            // A dormant path is up.
            up: _,
            frame_len,
            frame_len_bound,
            checked,
            window_frames,
            rtt,
            rx,
            probe,
            base_num,
            unacked: _,
            lost: _,
            in_flight: _,
            // It concerns only frames in flight.
            loss: _,
            congestion,
            health: _,
            open: _,
            closed: _,
            runs: _,
            best_effort_runs: _,
            batch_end: _,
            blocked: _,
            // It is counted again for the next message.
            free_left: _,
        } = path;
        DormantPath {
            link,
            frame_len: narrow(frame_len),
            frame_len_bound: narrow(frame_len_bound),
            checked,
            window_frames,
            base_num,
            rtt,
            rx: rx.memory().unwrap_or_default(),
            probe: probe.memory().unwrap_or_default(),
            congestion,
        }
    }
}

impl DormantPaths {
    /// Restores the paths, except those of removed links.
    pub(crate) fn revive(self, ctx: &Context) -> Paths {
        let mut paths = Paths::new();
        (paths.small, paths.bulk) = (self.small, self.bulk);
        paths.second = self.second;
        for path in self.paths.into_vec() {
            let index = path.link.index();
            paths.by_link[index] = path.revive(ctx).map(Box::new);
        }
        paths
    }

    /// Same as [`Paths::status`].
    pub(crate) fn status(&self, link: LinkId) -> Option<PathStatus> {
        let path = self.paths.iter().find(|path| path.link == link)?;
        Some(PathStatus {
            link,
            up: true,
            validated: path.probe.best().is_some(),
            small: self.small == Some(link),
            bulk: self.bulk == Some(link) || self.second == Some(link),
            frame_len: path.frame_len as usize,
            rtt_min: path.probe.best().or(path.rtt.min()).map(Into::into),
            rtt: path.rtt.smoothed().into(),
            inflight_count: 0,
            window: path.congestion.as_ref().map(Congestion::window),
        })
    }
}

impl DormantPath {
    fn revive(self, ctx: &Context) -> Option<Path> {
        let params = ctx.link(self.link)?;
        let mut path = Path::new(self.link, params, ctx.window_frames(&params));
        path.up = true;
        path.frame_len = self.frame_len as usize;
        path.frame_len_bound = self.frame_len_bound as usize;
        path.checked = self.checked;
        path.window_frames = self.window_frames;
        path.base_num = self.base_num;
        path.rtt = self.rtt;
        path.rx.restore(self.rx);
        path.probe.restore(self.probe);
        path.congestion = self.congestion;
        Some(path)
    }
}
