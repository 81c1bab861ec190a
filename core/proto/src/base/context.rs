// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the process that all mechanisms use: settings, links, counters, and the queue of events
//! to the engine.

use super::config::Times;
use super::narrow::narrow;
use super::poll_gap::PollGap;
use super::time::Span;
use crate::{Choice, Config, Counters, DropReason, Event, Instant, Limits, LinkId, LinkParams};
use alloc::collections::VecDeque;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Context {
    config: Config,
    times: Times,
    links: [Option<LinkParams>; LinkId::COUNT],
    events: VecDeque<Event>,
    counters: Counters,
    /// Link for small messages wherever it works.
    preferred: Option<LinkId>,
    /// Choice of a measured model, or the default; its eager limits are also stored in `config`.
    choice: Choice,
    /// Configured eager limits, before a choice lowered them: longest eager message that is sent or
    /// accepted (on networks, on lossless links).
    eager_bounds: [usize; 2],
    poll_gap: PollGap,
    /// Set while short messages pass, which wait for each part that leaves by a stream.
    latency_sensitive: bool,
    /// Set when the program accepts no more messages.
    closing: bool,
    /// Set when requests for remote memory are no longer served.
    leaving: bool,
}

impl Context {
    pub(crate) fn new(config: Config) -> Self {
        let limits = &config.limits;
        Context {
            times: Times::from(limits),
            eager_bounds: [limits.eager_len_max, limits.eager_len_max_lossless],
            links: [None; LinkId::COUNT],
            events: VecDeque::new(),
            counters: Counters::default(),
            preferred: None,
            choice: Choice::default(),
            poll_gap: PollGap::default(),
            latency_sensitive: false,
            closing: false,
            leaving: false,
            config,
        }
    }

    #[inline]
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    #[inline]
    pub(crate) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    #[cfg(test)]
    pub(crate) fn limits_mut(&mut self) -> &mut Limits {
        &mut self.config.limits
    }

    #[cfg(test)]
    pub(crate) fn links_mut(&mut self) -> impl Iterator<Item = &mut LinkParams> {
        self.links.iter_mut().flatten()
    }

    #[inline]
    pub(crate) fn times(&self) -> &Times {
        &self.times
    }

    /// Returns the bytes of eager messages that each peer may have in flight in a lane.
    #[inline]
    pub(crate) fn credit_len(&self) -> u32 {
        self.config.limits.credit_len
    }

    pub(crate) fn add_link(&mut self, link: LinkId, params: LinkParams) {
        self.links[link.index()] = Some(params);
    }

    /// Returns the parameters of `link`, if it exists.
    #[inline]
    pub(crate) fn link(&self, link: LinkId) -> Option<LinkParams> {
        self.links[link.index()]
    }

    #[inline]
    pub(crate) fn is_lossless(&self, link: LinkId) -> bool {
        self.links[link.index()].is_some_and(|params| params.lossless)
    }

    /// Returns the number of frames that a peer may have in flight towards this process on one
    /// path: as many as the link buffers. `P3.3`
    pub(crate) fn window_frames(&self, params: &LinkParams) -> u16 {
        let frames = params.rx_buffer_len / params.frame_len_max.max(1);
        // At least four runs of segments, so that neither end waits for the other. A link may
        // buffer more than it reports when it is opened, and overflow of a socket is repaired, not
        // fatal.
        let floor = params.segments_max.max(32) * 4;
        let frames = frames
            .max(floor)
            .min(usize::from(self.config.limits.window_frames_max));
        narrow(frames)
    }

    /// Queues an event for the engine.
    #[inline]
    pub(crate) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Removes the queued events that are not `is_selected`, because their subject no longer
    /// exists.
    pub(crate) fn retain_events(&mut self, is_selected: impl Fn(&Event) -> bool) {
        self.events.retain(is_selected);
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Counts a drop.
    #[cold]
    pub(crate) fn drop_for(&mut self, reason: DropReason) {
        self.counters.drop(reason);
    }

    /// Counts a delivered message of `len` bytes.
    #[inline]
    pub(crate) fn count_received(&mut self, len: u64) {
        self.count_all_received(1, len);
    }

    /// Counts `count` delivered messages of `len` bytes together.
    #[inline]
    pub(crate) fn count_all_received(&mut self, count: u32, len: u64) {
        self.counters.messages_received += u64::from(count);
        self.counters.bytes_received += len;
    }

    #[inline]
    pub(crate) fn preferred(&self) -> Option<LinkId> {
        self.preferred
    }

    pub(crate) fn prefer(&mut self, link: LinkId) {
        self.preferred = Some(link);
    }

    #[inline]
    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Applies `choice` from now on. It may lower the configured eager limits but not raise them,
    /// because peers accept no more.
    pub(crate) fn choose(&mut self, choice: Choice) {
        let [eager, lossless] = self.eager_bounds;
        let limits = &mut self.config.limits;
        limits.eager_len_max = choice.eager_len_max.min(eager);
        limits.eager_len_max_lossless = choice.eager_len_max_lossless.min(lossless);
        self.choice = choice;
    }

    /// Returns the length of the longest message that is sent eagerly.
    #[inline]
    pub(crate) fn eager_len_max(&self, lossless: bool) -> usize {
        match lossless {
            true => self.config.limits.eager_len_max_lossless,
            false => self.config.limits.eager_len_max,
        }
    }

    /// Returns the length of the longest piece of a message in one record on a lossless link.
    /// [`Context::choose`] does not lower it.
    pub(crate) fn lossless_record_len_max(&self) -> usize {
        self.eager_bounds[1]
    }

    /// Returns the length of the longest message that a peer may send eagerly.
    pub(crate) fn eager_taken_max(&self) -> usize {
        let [eager, lossless] = self.eager_bounds;
        eager.max(lossless)
    }

    /// Returns the number of bulk frames after which an acknowledgement is sent at once. A run of
    /// segments is acknowledged as a unit.
    #[inline]
    fn bulk_ack_every(&self) -> u32 {
        self.config.limits.ack_every.max(BULK_ACK_EVERY)
    }

    /// Returns the number of bulk frames, and the delay, after which an acknowledgement is due.
    /// `P3.5`
    #[inline]
    pub(crate) fn bulk_ack_times(&self) -> (u32, Span) {
        (self.bulk_ack_every(), self.times.ack_delay)
    }

    /// Returns the number of other frames, and the delay, after which an acknowledgement is due.
    #[inline]
    pub(crate) fn ack_times(&self) -> (u32, Span) {
        (self.config.limits.ack_every, self.times.ack_delay)
    }

    /// Returns the poll gap, which covers the times of frames that may have waited for this
    /// process.
    #[inline]
    pub(crate) fn poll_gap(&self) -> &PollGap {
        &self.poll_gap
    }

    #[inline]
    pub(crate) fn set_latency_sensitive(&mut self, is_latency_sensitive: bool) {
        self.latency_sensitive = is_latency_sensitive;
    }

    /// Returns true while short messages pass; parts of transfers must then be short too. `P15.4`
    #[inline]
    pub(crate) fn is_latency_sensitive(&self) -> bool {
        self.latency_sensitive
    }

    /// Begins a poll gap: frames handled from now on may have waited for this process.
    pub(crate) fn begin_poll_gap(&mut self, now: Instant) {
        self.poll_gap.begin(now);
    }

    /// Ends the poll gap: all frames that may have waited have been handled.
    pub(crate) fn end_poll_gap(&mut self, now: Instant) {
        self.poll_gap.end(now);
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }
}

/// Bulk frames per acknowledgement. More than one call of segmentation offload (45 frames at 1500
/// bytes), so that an acknowledgement follows every second call.
const BULK_ACK_EVERY: u32 = 64;
