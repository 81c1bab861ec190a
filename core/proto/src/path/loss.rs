// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time-based loss detection (similar to RACK-TLP, RFC 8985). A frame is lost if a later one has
//! arrived and 1.25 round trips have passed (`P3.8`). A silent tail is probed by a timeout
//! (`P3.9`).

use super::scoreboard::Scoreboard;
use super::{Contents, InFlight, Path, TxState};
use crate::base::config::Times;
use crate::base::narrow::narrow;
use crate::base::poll_gap::DELAY_UNKNOWN;
use crate::base::time::Span;
use crate::{DropReason, Instant};
use portolan_wire::Ack;

/// Minimum tolerance for reordering, in addition to a quarter of the round trip. Frames of one path
/// seldom overtake one another; a path that reorders is detected soon (`P3.8`).
const REORDER_MIN: Span = Span::from_micros(5);

/// Maximum tolerance for reordering: two scheduler ticks of the kernel. Beyond that, an unnecessary
/// retransmission costs less than the wait.
const REORDER_MAX: Span = Span::from_millis(1);

/// Share of the tolerance, as 1 in N, that each confirmed loss removes. A path that reordered once
/// is trusted again after hundreds of losses.
const REORDER_DECAY: u64 = 64;

/// Minimum of the first timeout after progress. It probes for a lost tail (RFC 8985, section 7) and
/// costs one frame if the tail has arrived. So it need only exceed the delay of an acknowledgement
/// (50 µs) and one turn of an awake receiver. Later timeouts mean a silent path and start from
/// [`crate::Limits::rto_min`].
const TAIL_MIN: Span = Span::from_micros(200);

/// Doublings after which the timeout grows no further; the maximum usually applies first.
const BACKOFF_MAX: u32 = 16;

#[derive(Debug)]
pub(crate) struct LossState {
    /// Newest frame that has arrived: time sent, and number.
    newest: (Instant, u32),
    /// Contents of the last acknowledgement.
    scoreboard: Scoreboard,
    /// Time when the next frame counts as lost, if nothing arrives before.
    lost_at: Instant,
    /// Tolerance for reordering in addition to the round trip.
    reorder: Span,
    /// Time when the last numbered frame was sent.
    last_sent_at: Instant,
    /// Set if the path has gone silent. One frame may then be retransmitted beyond the congestion
    /// window, which may be smaller than the frames in flight that will never be acknowledged.
    /// `P3.9`
    probes: bool,
    /// Timeouts since the last acknowledgement.
    timeouts: u32,
    /// Time of the last acknowledgement.
    acked_at: Instant,
    /// Time of the last acknowledgement, or of the last frame sent with nothing else in flight.
    progress_at: Instant,
    /// Time of the last request to check a silent peer.
    suspected_at: Instant,
}

impl Default for LossState {
    fn default() -> Self {
        LossState {
            newest: (Instant::default(), 0),
            scoreboard: Scoreboard::default(),
            lost_at: Instant::NEVER,
            reorder: REORDER_MIN,
            last_sent_at: Instant::default(),
            probes: false,
            timeouts: 0,
            acked_at: Instant::default(),
            progress_at: Instant::default(),
            suspected_at: Instant::default(),
        }
    }
}

impl LossState {
    /// Records a frame sent with nothing else in flight.
    #[inline]
    pub(super) fn on_first_sent(&mut self, now: Instant) {
        self.progress_at = now;
    }

    /// Records a numbered frame that was sent.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.last_sent_at = now;
    }

    /// Records that everything in flight has arrived.
    #[inline]
    pub(super) fn on_all_landed(&mut self, now: Instant) {
        self.timeouts = 0;
        (self.progress_at, self.acked_at) = (now, now);
        self.lost_at = Instant::NEVER;
    }

    /// Records a retransmission.
    pub(super) fn on_repaired(&mut self, now: Instant) {
        self.last_sent_at = now;
        self.probes = false;
    }

    /// Returns the time when the last numbered frame was sent.
    pub(super) fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// Returns the time of the last acknowledgement.
    pub(super) fn acked_at(&self) -> Instant {
        self.acked_at
    }

    /// Returns the number of timeouts since the last acknowledgement.
    pub(super) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Resets the state of a path that works again.
    pub(super) fn restart(&mut self) {
        self.timeouts = 0;
        self.lost_at = Instant::NEVER;
    }
}

/// Result of a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimerOutcome {
    pub(crate) timed_out: bool,
    pub(crate) suspect: bool,
}

impl Path {
    /// Applies an acknowledgement. Calls `acked` with the contents and length of each newly arrived
    /// frame.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        words: &[u8],
        mut acked: impl FnMut(Contents, u16),
    ) -> Result<(), DropReason> {
        let ahead = ack.base.wrapping_sub(self.base_num);
        let old = ahead >= 1 << 31;
        // P3.6
        if !old && ahead as usize > self.unacked.len() {
            return Err(DropReason::BadAck);
        }
        self.sample(now, ack);
        let before = self.in_flight;
        let mut progress = Progress::default();
        if !old {
            for entry in self.unacked.range_mut(..ahead as usize) {
                take(entry, &mut self.in_flight, &mut progress, &mut acked);
            }
        }
        self.loss.scoreboard.update(ack.base, words, |num| {
            let index = num.wrapping_sub(self.base_num) as usize;
            if let Some(entry) = self.unacked.get_mut(index) {
                take(entry, &mut self.in_flight, &mut progress, &mut acked);
            }
        });
        self.pop_acked();
        if progress.refuted {
            self.on_reordered();
        }
        if progress.landed {
            self.loss.timeouts = 0;
            self.loss.progress_at = now;
            self.loss.acked_at = now;
        }
        self.detect(now);
        self.update_window(now, before);
        Ok(())
    }

    pub(super) fn sample(&mut self, now: Instant, ack: &Ack) {
        let Some(entry) = self.entry_mut(ack.echo_num) else {
            return;
        };
        if entry.state == TxState::Acked {
            return;
        }
        // P3.7
        if entry.attempt != ack.echo_attempt {
            // P3.8: retransmitted without a timeout, and the echo is of an earlier attempt.
            if entry.state == TxState::Sent && self.loss.timeouts == 0 {
                self.on_reordered();
            }
            return;
        }
        let sent_at = entry.sent_at;
        // Only an upper bound, if part of it was spent waiting for a process that did not poll.
        let is_bound = ack.delay_us == DELAY_UNKNOWN;
        let delay_us = if is_bound { 0 } else { ack.delay_us };
        let delay = Span::from_micros(u64::from(delay_us));
        let sample = now.span_since(sent_at).saturating_sub(delay);
        self.rtt.on_sample(sample);
        match &mut self.congestion {
            Some(congestion) if is_bound => congestion.on_bound(),
            Some(congestion) => congestion.on_sample(sample),
            None => {}
        }
        if sent_at >= self.loss.newest.0 {
            self.loss.newest = (sent_at, ack.echo_num);
        }
    }

    /// Updates the congestion window after some of `before` frames in flight have arrived. `P3.13`
    pub(super) fn update_window(&mut self, now: Instant, before: usize) {
        if let Some(congestion) = &mut self.congestion
            && let Some(base) = self.rtt.min()
        {
            let landed = before.saturating_sub(self.in_flight);
            let times = (base, self.rtt.smoothed());
            let window = congestion.window();
            congestion.on_acked(now, (landed, before), times, self.window_frames as usize);
            if congestion.window() < window {
                self.free_left = 0;
            }
        }
    }

    pub(super) fn pop_acked(&mut self) {
        while self
            .unacked
            .front()
            .is_some_and(|entry| entry.state == TxState::Acked)
        {
            self.unacked.pop_front();
            self.base_num = self.base_num.wrapping_add(1);
        }
        if self.unacked.is_empty() {
            self.lost.clear();
            self.loss.scoreboard.clear();
            // Most peers are idle most of the time and should not keep the table of a burst.
            if self.unacked.capacity() > 256 {
                self.unacked.shrink_to(64);
            }
        }
    }

    /// Marks frames as lost that were sent well before the newest one that has arrived.
    fn detect(&mut self, now: Instant) {
        self.loss.lost_at = Instant::NEVER;
        let mut lost_count = 0;
        let (newest_at, newest_num) = self.loss.newest;
        let rtt = self.rtt.smoothed();
        let patience = rtt + (rtt / 4).max(self.loss.reorder);
        let mut num = self.base_num;
        loop {
            num = self.loss.scoreboard.next_unreported(num);
            let index = num.wrapping_sub(self.base_num) as usize;
            let Some(entry) = self.unacked.get_mut(index) else {
                break;
            };
            if self.loss.scoreboard.may_hide(num) {
                break;
            }
            let before = entry.sent_at < newest_at
                || (entry.sent_at == newest_at && num.wrapping_sub(newest_num) >= 1 << 31);
            if entry.state == TxState::Sent && before {
                if now >= entry.sent_at + patience {
                    entry.state = TxState::Lost;
                    self.lost.push_back(num);
                    self.in_flight -= 1;
                    lost_count += 1;
                } else {
                    self.loss.lost_at = self.loss.lost_at.min(entry.sent_at + patience);
                }
            } else if !before && entry.attempt == 0 {
                // First transmissions are sent in the order of their numbers: nothing older
                // follows.
                break;
            }
            num = num.wrapping_add(1);
        }
        if lost_count > 0 {
            self.on_lost(lost_count);
        }
    }

    #[cold]
    fn on_lost(&mut self, count: u32) {
        self.free_left = 0;
        if let Some(congestion) = &mut self.congestion {
            congestion.on_lost(count);
        }
        let trust = self.loss.reorder / REORDER_DECAY;
        self.loss.reorder = self.loss.reorder.saturating_sub(trust).max(REORDER_MIN);
    }

    /// Raises the tolerance, because a frame that counted as lost has arrived from its first
    /// transmission. `P3.8`
    #[cold]
    fn on_reordered(&mut self) {
        self.loss.reorder = (self.loss.reorder * 2).min(REORDER_MAX);
    }

    /// Returns the time of the next [`Path::on_timer`].
    pub(super) fn timer(&self, times: &Times) -> Instant {
        if self.unacked.is_empty() || self.health.is_silent() {
            return Instant::NEVER;
        }
        self.loss.lost_at.min(self.timeout_at(times))
    }

    fn timeout_at(&self, times: &Times) -> Instant {
        let floor = match self.loss.timeouts {
            0 => TAIL_MIN.min(times.rto_min),
            _ => times.rto_min,
        };
        let timeout = self.rtt.timeout(floor, times.rto_max);
        let backed_off = timeout.doubled(self.loss.timeouts.min(BACKOFF_MAX));
        self.loss.last_sent_at + backed_off.min(times.rto_max)
    }

    /// Declares losses that are due and, if the path is silent, retransmits its first frame. `P3.9`
    pub(super) fn on_timer(&mut self, now: Instant, times: &Times) -> TimerOutcome {
        let mut outcome = TimerOutcome::default();
        if self.unacked.is_empty() || self.health.is_silent() {
            return outcome;
        }
        if now >= self.loss.lost_at {
            self.detect(now);
        }
        if now < self.timeout_at(times) {
            return outcome;
        }
        outcome.timed_out = true;
        self.loss.probes = true;
        self.loss.timeouts += 1;
        self.loss.last_sent_at = now;
        let first = self
            .unacked
            .iter()
            .position(|entry| entry.state == TxState::Sent);
        if let Some(index) = first {
            self.unacked[index].state = TxState::Lost;
            self.in_flight -= 1;
            self.free_left = 0;
            self.lost
                .push_back(self.base_num.wrapping_add(narrow(index)));
        }
        // P9.1
        let silent_for = now.span_since(self.loss.progress_at);
        if silent_for >= times.suspect_after
            && now.span_since(self.loss.suspected_at) >= times.suspect_after
        {
            self.loss.suspected_at = now;
            outcome.suspect = true;
        }
        outcome
    }

    /// Returns true if a lost frame waits and may be retransmitted.
    #[inline]
    pub(crate) fn may_repair(&self) -> bool {
        !self.lost.is_empty() && (self.in_flight_left() > 0 || self.loss.probes)
    }

    /// Puts back a frame that the link refused. It is retransmitted when there is room.
    pub(crate) fn put_back(&mut self, num: u32) {
        if let Some(entry) = self.entry_mut(num)
            && entry.state == TxState::Sent
        {
            entry.state = TxState::Lost;
            self.in_flight -= 1;
            self.free_left = 0;
            self.lost.push_front(num);
        }
    }
}

/// Effect of an acknowledgement.
#[derive(Default)]
struct Progress {
    /// Set if a frame has newly arrived.
    landed: bool,
    /// Set if one of them had counted as lost and was not retransmitted.
    refuted: bool,
}

#[inline]
fn take(
    entry: &mut InFlight,
    in_flight: &mut usize,
    progress: &mut Progress,
    acked: &mut impl FnMut(Contents, u16),
) {
    match entry.state {
        TxState::Acked => return,
        TxState::Sent => *in_flight -= 1,
        TxState::Lost => progress.refuted = true,
    }
    progress.landed = true;
    entry.state = TxState::Acked;
    acked(
        core::mem::replace(&mut entry.contents, Contents::Nothing),
        entry.len,
    );
}

#[cfg(test)]
mod tests {
    use super::super::ack::WORDS_MAX;
    use super::*;
    use crate::{LinkId, LinkParams};
    use alloc::vec::Vec;

    // P3.8
    #[test]
    fn numbers_beyond_the_bitmap_are_not_declared_lost() {
        let params = LinkParams {
            frame_len_max: 1472,
            segments_max: 44,
            lossless: false,
            pull: false,
            checksum: false,
            sum: None,
            rx_buffer_len: 4 << 20,
        };
        let mut path = Path::new(LinkId::UDP, params, 2048);
        let sent_at = Instant::from_nanos(1_000_000);
        let reported_max: u32 = narrow(WORDS_MAX * 64);
        for _ in 0..reported_max + 500 {
            path.number(sent_at, Contents::Nothing, 1472);
        }
        // All but the first have arrived.
        let ack_of = |word_count: usize, base| Ack {
            path: 1,
            word_count: narrow(word_count),
            echo_attempt: 0,
            delay_us: 0,
            base,
            echo_num: reported_max + 499,
        };
        let mut ack = |after: Span, ack: &Ack| {
            let words = [0xff; WORDS_MAX * 8];
            let words = &words[..usize::from(ack.word_count) * 8];
            path.on_ack(sent_at + after, ack, words, |_, _| {}).unwrap();
            path.lost.iter().copied().collect::<Vec<_>>()
        };
        let times = [Span::from_micros(20), Span::from_millis(20)];
        assert!(ack(times[0], &ack_of(WORDS_MAX, 0)).is_empty(), "too early");
        assert_eq!(ack(times[1], &ack_of(WORDS_MAX, 0)), [0]);
        assert_eq!(path.frame_counts(), (499, reported_max as usize + 500));
        path.on_ack(
            sent_at + times[1],
            &ack_of(0, reported_max + 500),
            &[],
            |_, _| {},
        )
        .unwrap();
        assert_eq!(path.frame_counts(), (0, 0));
    }
}
