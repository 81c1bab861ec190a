// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every mechanism needs of the process around it: its settings, its links, its counters, and
//! the queue of events to the engine.

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
    /// Small messages take this link where it works.
    preferred: Option<LinkId>,
    /// Of a model, or none; its eager limits are among those of `config`.
    choice: Choice,
    /// The limits that were configured, before a choice lowered them: longest eager message that
    /// is sent (on networks, on lossless links) or taken.
    eager_bounds: [usize; 2],
    poll_gap: PollGap,
    /// Short messages pass, which wait for what leaves by a stream.
    hurried: bool,
    /// The program has no more use for messages.
    closing: bool,
    /// Requests for remote memory are not served any more.
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
            hurried: false,
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

    /// Bytes of eager messages that each peer may have under way in a lane.
    #[inline]
    pub(crate) fn credit_len(&self) -> u32 {
        self.config.limits.credit_len
    }

    pub(crate) fn add_link(&mut self, link: LinkId, params: LinkParams) {
        self.links[link.index()] = Some(params);
    }

    /// What `link` can do, if there is such a link.
    #[inline]
    pub(crate) fn link(&self, link: LinkId) -> Option<LinkParams> {
        self.links[link.index()]
    }

    #[inline]
    pub(crate) fn is_lossless(&self, link: LinkId) -> bool {
        self.links[link.index()].is_some_and(|params| params.lossless)
    }

    /// Frames that a peer may have under way towards this process on one path: what the link buffers.
    /// `P3.3`
    pub(crate) fn window_frames(&self, params: &LinkParams) -> u16 {
        let frames = params.rx_buffer_len / params.frame_len_max.max(1);
        // At least four runs of segments, so that neither end waits for the other: links may hold more
        // than they know when they are opened, and a full socket is repaired, not fatal.
        let floor = params.segments_max.max(32) * 4;
        let frames = frames
            .max(floor)
            .min(usize::from(self.config.limits.window_frames_max));
        narrow(frames)
    }

    /// Tells the engine.
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

    /// Takes back the events that are not `wanted`: what they are about is gone.
    pub(crate) fn retain_events(&mut self, wanted: impl Fn(&Event) -> bool) {
        self.events.retain(wanted);
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Counts what was dropped.
    #[cold]
    pub(crate) fn drop_for(&mut self, reason: DropReason) {
        self.counters.drop(reason);
    }

    /// Counts a message of `len` bytes that is delivered.
    #[inline]
    pub(crate) fn count_received(&mut self, len: u64) {
        self.counters.messages_received += 1;
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

    /// Sends by `choice` from now on. It may lower the configured eager limits, never raise them:
    /// peers take no more.
    pub(crate) fn choose(&mut self, choice: Choice) {
        let [eager, lossless] = self.eager_bounds;
        let limits = &mut self.config.limits;
        limits.eager_len_max = choice.eager_len_max.min(eager);
        limits.eager_len_max_lossless = choice.eager_len_max_lossless.min(lossless);
        self.choice = choice;
    }

    /// Longest message that is sent without asking.
    #[inline]
    pub(crate) fn eager_len_max(&self, lossless: bool) -> usize {
        match lossless {
            true => self.config.limits.eager_len_max_lossless,
            false => self.config.limits.eager_len_max,
        }
    }

    /// Longest piece of a message that a record takes on a lossless link; [`Context::choose`] does not lower it.
    pub(crate) fn lossless_record_len_max(&self) -> usize {
        self.eager_bounds[1]
    }

    /// Longest message that a peer may send without asking.
    pub(crate) fn eager_taken_max(&self) -> usize {
        let [eager, lossless] = self.eager_bounds;
        eager.max(lossless)
    }

    /// Bulk frames after which an acknowledgement does not wait: a run of segments is acknowledged
    /// as one.
    #[inline]
    fn bulk_ack_every(&self) -> u32 {
        self.config.limits.ack_every.max(BULK_ACK_EVERY)
    }

    /// After how many frames of bulk data, and when, an acknowledgement is due. `P3.5`
    #[inline]
    pub(crate) fn bulk_ack_times(&self) -> (u32, Span) {
        (self.bulk_ack_every(), self.times.ack_delay)
    }

    /// The same of other frames.
    #[inline]
    pub(crate) fn ack_times(&self) -> (u32, Span) {
        (self.config.limits.ack_every, self.times.ack_delay)
    }

    /// Whether what is handled at `at` may have waited for this process.
    #[inline]
    pub(crate) fn poll_gap(&self) -> &PollGap {
        &self.poll_gap
    }

    #[inline]
    pub(crate) fn set_hurried(&mut self, is_hurried: bool) {
        self.hurried = is_hurried;
    }

    /// Short messages pass: parts of transfers are short, too. `P15.4`
    #[inline]
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried
    }

    /// Frames handed in from now on may have waited for this process.
    pub(crate) fn begin_poll_gap(&mut self, now: Instant) {
        self.poll_gap.begin(now);
    }

    /// All those have been handed in.
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

/// Bulk frames per acknowledgement: above one call of segmentation offload (45 frames at 1500
/// bytes), so that an acknowledgement comes with every other call.
const BULK_ACK_EVERY: u32 = 64;
