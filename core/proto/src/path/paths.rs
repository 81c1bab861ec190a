// SPDX-License-Identifier: MIT OR Apache-2.0
//! All paths to one peer, and the choice between them.

use super::congestion::Congestion;
use super::failover::{Suspicion, TIMEOUTS};
use super::probe::ProbeReply;
use super::{Path, Paths};
use crate::base::config::Times;
use crate::base::context::Context;
use crate::base::poll_gap::PollGap;
use crate::base::time::Span;
use crate::{Event, Instant, LinkId, LinkParams, PathStatus, PeerId};
use alloc::boxed::Box;

impl Paths {
    pub(crate) fn new() -> Self {
        Paths {
            by_link: [const { None }; LinkId::PATH_COUNT],
            small: None,
            bulk: None,
            second: None,
            suspicion: Suspicion::default(),
        }
    }

    /// Adds a path on `link`.
    pub(crate) fn add(&mut self, ctx: &Context, link: LinkId, params: LinkParams) {
        let mut path = Path::new(link, params, ctx.window_frames(&params));
        if ctx.limits().congestion_control && !params.lossless {
            path.control_congestion();
        }
        self.by_link[link.index()] = Some(Box::new(path));
    }

    #[inline]
    pub(crate) fn get(&self, link: LinkId) -> Option<&Path> {
        self.by_link.get(link.index())?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, link: LinkId) -> Option<&mut Path> {
        self.by_link.get_mut(link.index())?.as_deref_mut()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> + Clone {
        self.by_link.iter().flatten().map(|path| &**path)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.by_link.iter_mut().flatten().map(|path| &mut **path)
    }

    /// Returns the link that bulk data uses now.
    #[inline]
    pub(crate) fn bulk(&self) -> Option<LinkId> {
        self.bulk
    }

    #[cfg(test)]
    pub(crate) fn set_bulk(&mut self, link: LinkId) {
        self.bulk = Some(link);
    }

    /// Returns true if small messages use `link` now.
    #[inline]
    pub(crate) fn is_small(&self, link: LinkId) -> bool {
        self.small == Some(link)
    }

    /// Returns true if bulk data uses `link` now.
    #[inline]
    pub(crate) fn is_bulk(&self, link: LinkId) -> bool {
        self.bulk == Some(link)
    }

    /// Returns the path that small messages use now.
    #[inline]
    pub(crate) fn small_path(&self) -> Option<&Path> {
        self.get(self.small?)
    }

    #[inline]
    pub(crate) fn small_mut(&mut self) -> Option<&mut Path> {
        self.get_mut(self.small?)
    }

    /// Returns the path that bulk data uses now.
    #[inline]
    pub(crate) fn bulk_path(&self) -> Option<&Path> {
        self.get(self.bulk?)
    }

    pub(crate) fn bulk_mut(&mut self) -> Option<&mut Path> {
        self.get_mut(self.bulk?)
    }

    /// Returns the path for a message of `len` bytes that fills several frames. `P6.5`
    pub(crate) fn run_path_mut(&mut self, ctx: &Context, len: usize) -> Option<&mut Path> {
        self.get_mut(self.run_link(ctx, len)?)
    }

    /// Returns the path for a message of several frames, or any other network path if there is none
    /// now. The message moves if that path is abandoned.
    pub(crate) fn any_run_path_mut(&mut self, ctx: &Context, len: usize) -> Option<&mut Path> {
        let first = || self.iter().find(|path| !path.is_lossless()).map(Path::link);
        let link = self.run_link(ctx, len).or_else(first)?;
        self.get_mut(link)
    }

    #[inline]
    fn run_link(&self, ctx: &Context, len: usize) -> Option<LinkId> {
        match self.bulk {
            Some(bulk) if len > ctx.choice().small_run_len_max => Some(self.less_loaded(bulk)),
            _ => self.small,
        }
    }

    /// Returns true if `lane` may add another message to frames for small messages.
    pub(crate) fn has_small_room(&self, lane: usize) -> bool {
        self.small_path().is_some_and(|path| path.has_room(lane))
    }

    /// Returns the link that will carry data announced on `link`, and whether it is lossless. It is
    /// the one for bulk data, which the peer chooses in the same way.
    pub(crate) fn data_link(&self, link: LinkId) -> (LinkId, bool) {
        let link = self.bulk.unwrap_or(link);
        (link, self.get(link).is_some_and(Path::is_lossless))
    }

    /// Chooses the paths by measurement: the likely shortest round trip for small messages, and the
    /// most bytes per call for bulk data. `P6.5`
    pub(crate) fn choose(&mut self, preferred: Option<LinkId>) {
        let up = || self.iter().filter(|path| path.is_usable());
        let small = up().min_by_key(|path| {
            // Shared memory is chosen before its first round trip, because it is lossless.
            if path.is_lossless() || preferred == Some(path.link()) {
                Span::ZERO
            } else {
                path.likely_rtt().unwrap_or(Span::MAX)
            }
        });
        let bulk = up().max_by_key(|path| {
            (
                path.is_lossless(),
                path.segments_max().max(1) * path.frame_len(),
                path.link() == LinkId::UDP,
            )
        });
        (self.small, self.bulk) = (small.map(Path::link), bulk.map(Path::link));
        let second = match self.bulk {
            Some(LinkId::UDP) => self.get(LinkId::UDP2),
            Some(LinkId::UDP2) => self.get(LinkId::UDP),
            _ => None,
        };
        let second = second.filter(|path| path.is_usable());
        self.second = second.map(Path::link);
    }

    /// Returns true if more measurements would hardly change the choice: there is one network path, or
    /// raw Ethernet is the likely shortest.
    fn is_choice_clear(&self) -> bool {
        let mut networks = self.iter().filter(|path| !path.is_lossless());
        let raw = self.get(LinkId::PACKET).filter(|path| path.is_usable());
        let only = networks
            .clone()
            .next()
            .filter(|_| networks.clone().count() == 1);
        let Some(likely) = only.or(raw).filter(|path| path.probe.has_measured()) else {
            return false;
        };
        // If the peer sleeps, a path has few measurements for seconds; one is enough.
        networks.all(|path| {
            path.likely_rtt()
                .is_some_and(|rtt| Some(rtt) >= likely.likely_rtt())
        })
    }

    /// Chooses paths, and uses `link`, on which a frame of the peer arrived, until a path is
    /// verified in both directions.
    pub(crate) fn choose_or(&mut self, link: LinkId, preferred: Option<LinkId>) {
        self.choose(preferred);
        self.small = self.small.or(Some(link));
        self.bulk = self.bulk.or(Some(link));
    }

    pub(crate) fn status(&self, link: LinkId) -> Option<PathStatus> {
        let path = self.get(link)?;
        Some(PathStatus {
            link,
            up: path.is_usable(),
            validated: path.probe.best().is_some(),
            small: self.is_small(link),
            bulk: self.is_bulk(link) || self.second == Some(link),
            frame_len: path.frame_len,
            rtt_min: path.probe.best().or(path.rtt.min()).map(Into::into),
            rtt: path.rtt.smoothed().into(),
            inflight_count: path.unacked.len(),
            window: path.congestion.as_ref().map(Congestion::window),
        })
    }

    /// Probes the peer on the path of small messages, if that is a network. A probe wakes a
    /// sleeping peer, and a peer that has given up the session replies with a reset on any path.
    /// `P9.3`
    pub(crate) fn send_keepalive(&mut self) {
        if let Some(path) = self.small_mut()
            && !path.is_lossless()
        {
            path.send_keepalive();
        }
    }

    #[inline]
    pub(crate) fn ack_is_due(&self, now: Instant) -> bool {
        self.iter().any(|path| path.ack_due() <= now)
    }

    /// Returns true if received frames on any path are not acknowledged yet.
    #[inline]
    pub(crate) fn has_acks(&self) -> bool {
        self.iter().any(|path| path.rx.unacked_count() > 0)
    }

    /// Writes the pending acknowledgements that fit; returns the bytes written. `P3.5`
    #[inline]
    pub(crate) fn emit_acks(&mut self, now: Instant, gap: &PollGap, out: &mut [u8]) -> usize {
        let mut len = 0;
        for path in &mut self.by_link {
            if let Some(path) = path
                && path.rx.unacked_count() > 0
            {
                len += path.emit_ack(now, gap, &mut out[len..]);
            }
        }
        len
    }

    /// Returns the time of the next [`Paths::on_timer`]. Acknowledgements are sent only if `up`.
    pub(crate) fn timer(&self, times: &Times, up: bool) -> Instant {
        let networks = self.iter().filter(|path| !path.is_lossless());
        let path_timer = |path: &Path| {
            let due = if up { path.ack_due() } else { Instant::NEVER };
            let timer = path.timer(times).min(path.retry_timer());
            timer.min(due).min(path.probe_timer())
        };
        let first = networks.map(path_timer).min();
        first.unwrap_or(Instant::NEVER).min(self.suspicion_timer())
    }

    /// Ends a round of probes. Returns the path that was abandoned, if any; its frames must be
    /// moved.
    pub(crate) fn on_round_timer(&mut self, now: Instant, ctx: &mut Context) -> Option<LinkId> {
        let left = self.on_suspicion_timer(now, ctx.preferred());
        if left.is_some() {
            ctx.counters_mut().paths_left += 1;
        }
        left
    }

    /// Handles the timers of all paths.
    pub(crate) fn on_timer(&mut self, now: Instant, peer: PeerId, ctx: &mut Context) {
        let mut suspected = false;
        for path in self.iter_mut() {
            path.on_probe_timer(now);
            let outcome = path.on_timer(now, ctx.times());
            if outcome.timed_out {
                ctx.counters_mut().timeouts += 1;
                suspected |= path.loss.timeouts() >= TIMEOUTS;
                path.suspect_frame_len(now);
            }
            if outcome.suspect {
                let link = path.link;
                ctx.emit(Event::Suspect { peer, link });
            }
        }
        if suspected {
            self.suspect(now);
        }
    }

    /// Handles a reply to a probe on `link`. Returns the new frame length if it has shrunk;
    /// longer frames must be moved.
    pub(crate) fn on_probe_reply(
        &mut self,
        now: Instant,
        link: LinkId,
        nonce: u32,
        preferred: Option<LinkId>,
    ) -> Option<usize> {
        match self.get_mut(link)?.on_probe_reply(now, nonce) {
            ProbeReply::Stale => None,
            ProbeReply::SignOfLife => {
                self.on_keepalive_reply(link, preferred);
                None
            }
            ProbeReply::Measured => {
                self.choose(preferred);
                if self.is_choice_clear() {
                    self.iter_mut().for_each(|path| path.probe.end_rounds());
                }
                None
            }
            ProbeReply::Shrunk(frame_len) => {
                self.choose(preferred);
                Some(frame_len)
            }
        }
    }
}
