// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion control of a path (`P3.13`). A window grows while the round trip stays near its
//! minimum, and shrinks in proportion when it does not. It reacts to delay, like Swift (Kumar et
//! al., SIGCOMM 2020) and LEDBAT++, because random loss must not look like congestion. If switches
//! mark frames, it also reacts to the share of marked frames, like DCTCP (RFC 8257; `P3.14`). The
//! receiver's buffer is its upper bound (`P3.3`).

use crate::Instant;
use crate::base::narrow::narrow;
use crate::base::time::Span;

/// Queueing delay up to which the window grows: round trip beyond the path's minimum. The path's
/// own bursts must fit: two calls of segmentation offload take 110 µs at 10 Gb/s, and the shortest
/// sample of a round counts. Delay at the receiver is not part of a sample, so its 64 frames per
/// acknowledgement need no room. A switch with 256 KiB per port is full at 210 µs.
const QUEUE_TARGET: Span = Span::from_micros(150);

/// Share of a round's frames, as 1 in N, up to which loss counts as random.
const CHANCE_LOSS: u32 = 16;

/// Minimum window in frames on any network, so that acknowledgements keep arriving.
const WINDOW_LEAST: u32 = 8;

/// Frames that fill two calls on links without segmentation offload, as in `window_frames`.
const BATCH_LEAST: usize = 32;

/// Frames sent with a minimum window to measure the share lost at random: 64 of 256 are a quarter,
/// with a deviation of about one twentieth.
const CHANCE_FRAMES: u32 = 256;

/// Frames of a round that suffice to show that the share has fallen: 4 lost of 64 are one in
/// sixteen, with a deviation of as many.
const CHANCE_ROUND: u32 = 64;

/// Largest window that counts as minimal for that measurement.
const CHANCE_WINDOW_MAX: u32 = 2 * WINDOW_LEAST;

/// Value of a share of 100 % for marked frames (RFC 8257, section 3.3).
const SHARE_ONE: u32 = 1024;

/// Rounds over which the share is smoothed (RFC 8257, section 4.2: g is 1/16).
const SHARE_ROUNDS: u32 = 16;

/// Calls of segmentation offload in the first window. It exceeds bandwidth × round trip of most
/// Ethernets (10 Gb/s × 100 µs are 85 frames), and doubles each round until the target is reached.
const BATCHES_FIRST: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Congestion window in frames.
    window: u32,
    /// Frames of two full calls. Delay alone does not shrink the window below it.
    two_batches: u32,
    /// Set until anything has required a smaller window.
    ramps: bool,
    round_at: Instant,
    /// In this round: frames acknowledged and lost, shortest round trip, whether the window was
    /// full.
    acked: u32,
    lost: u32,
    shortest: Span,
    full: bool,
    /// Share of frames, in units of 1/[`SHARE_ONE`], lost with a minimum window.
    chance: u32,
    /// Frames sent and lost in its current measurement.
    least_sent: u32,
    least_lost: u32,
    /// In this round: set if some round trips are known only as an upper bound.
    bound: bool,
    /// In this round: frames that the peer reported as marked.
    marked: u32,
    /// Total count of marked frames that the peer reported last.
    ecn_reported: u32,
    /// Smoothed share of marked frames, in units of 1/[`SHARE_ONE`].
    share: u32,
    /// Set if marks shrank the window in the last round. Marks of frames that were then in flight
    /// are still being reported, and carry no new information.
    obeyed: bool,
}

impl Congestion {
    pub(crate) fn new(segments_max: usize) -> Congestion {
        let call: u32 = narrow(segments_max.max(BATCH_LEAST));
        Congestion {
            window: BATCHES_FIRST * call,
            two_batches: 2 * call,
            ramps: true,
            round_at: Instant::default(),
            acked: 0,
            lost: 0,
            shortest: Span::MAX,
            full: false,
            chance: 0,
            least_sent: 0,
            least_lost: 0,
            bound: false,
            marked: 0,
            ecn_reported: 0,
            // Initial value: the first marks halve the window.
            share: SHARE_ONE,
            obeyed: false,
        }
    }

    /// Returns the window in frames.
    #[inline]
    pub(crate) fn window(&self) -> usize {
        self.window as usize
    }

    /// Counts lost frames.
    pub(crate) fn on_lost(&mut self, count: u32) {
        self.lost += count;
    }

    /// Handles the peer's count of marked frames and returns its increase. Ignores a count that a
    /// later one has overtaken.
    pub(crate) fn on_ecn_count(&mut self, count: u32) -> u32 {
        let more = count.wrapping_sub(self.ecn_reported);
        if more >= 1 << 31 {
            return 0;
        }
        self.ecn_reported = count;
        self.marked = self.marked.saturating_add(more);
        more
    }

    /// Records a measured round trip.
    pub(crate) fn on_sample(&mut self, sample: Span) {
        self.shortest = self.shortest.min(sample);
    }

    /// Records a round trip that includes an unknown delay of a process.
    pub(crate) fn on_bound(&mut self) {
        self.bound = true;
    }

    /// Handles the arrival of `count` of the `in_flight` frames. The window is adjusted once per
    /// smoothed round trip. `base` is the shortest round trip, `most` the receiver's limit.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        (count, in_flight): (usize, usize),
        (base, smoothed): (Span, Span),
        most: usize,
    ) {
        self.acked += narrow::<_, u32>(count);
        // Half of a window counts as full, since frames sent in calls seldom fill it to the last
        // frame.
        self.full |= in_flight * 2 >= self.window();
        let is_measured = self.shortest != Span::MAX;
        if !is_measured && !self.bound || now < self.round_at + smoothed {
            return;
        }
        // A round without a measurement reacts to loss and marks, not to queueing delay.
        let queued = if is_measured {
            self.shortest.saturating_sub(base)
        } else {
            Span::ZERO
        };
        self.evaluate(queued);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.window = self.window.min(most).max(WINDOW_LEAST);
        self.round_at = now;
        (self.acked, self.lost, self.marked) = (0, 0, 0);
        (self.full, self.bound) = (false, false);
        self.shortest = Span::MAX;
    }

    fn evaluate(&mut self, queued: Span) {
        let is_marked = self.apply_marks();
        let sent = self.acked + self.lost;
        self.estimate_random_loss(sent);
        let share = self.chance.max(SHARE_ONE / CHANCE_LOSS);
        if self.lost > lost_by_chance(sent, share) {
            // Shrink to the number of frames that arrived.
            self.ramps = false;
            self.scale(self.acked.max(sent / 2), sent);
        } else if queued > QUEUE_TARGET {
            self.ramps = false;
            // Loss with delay indicates an overflowing queue, not the delay of the path's own
            // bursts.
            let floor = if self.lost > 0 { 1 } else { self.two_batches };
            if self.window > floor {
                // Shrink to the window that would have caused the target delay, at most by half.
                let part = (QUEUE_TARGET * 256 / queued).max(128);
                self.scale(u32::try_from(part).unwrap_or(256), 256);
                self.window = self.window.max(floor);
            }
        } else if self.full && !is_marked {
            // Grow by a quarter of a call per round, so that the shares of several paths converge.
            let step = if self.ramps {
                self.window
            } else {
                (self.two_batches / 8).min(self.window / 8).max(1)
            };
            self.window = self.window.saturating_add(step);
        }
    }

    /// Measures the share of random loss. Loss with a minimum window is not congestion that a
    /// smaller window would end.
    fn estimate_random_loss(&mut self, sent: u32) {
        if self.window > CHANCE_WINDOW_MAX {
            if sent >= CHANCE_ROUND && self.lost <= lost_by_chance(sent, SHARE_ONE / CHANCE_LOSS) {
                self.chance -= self.chance.div_ceil(8);
            }
            return;
        }
        self.least_sent += sent;
        self.least_lost += self.lost;
        if self.least_sent >= CHANCE_FRAMES {
            self.chance = (self.least_lost * SHARE_ONE / self.least_sent).min(SHARE_ONE / 2);
            self.ramps |= self.chance > SHARE_ONE / CHANCE_LOSS;
            (self.least_sent, self.least_lost) = (0, 0);
        }
    }

    /// Shrinks the window by half of the share of marked frames; returns true if marks prevent its
    /// growth. `P3.14`
    fn apply_marks(&mut self) -> bool {
        // At most the frames that arrived, whatever the peer reports.
        let marked = self.marked.min(self.acked);
        let now = u64::from(marked) * u64::from(SHARE_ONE) / u64::from(self.acked.max(1));
        let now: u32 = narrow(now);
        self.share = (self.share * (SHARE_ROUNDS - 1) + now) / SHARE_ROUNDS;
        let shrinks = marked > 0 && !self.obeyed;
        if shrinks {
            self.ramps = false;
            self.scale(2 * SHARE_ONE - self.share, 2 * SHARE_ONE);
        }
        core::mem::replace(&mut self.obeyed, shrinks) || marked > 0
    }

    fn scale(&mut self, part: u32, whole: u32) {
        let scaled = u64::from(self.window) * u64::from(part) / u64::from(whole.max(1));
        self.window = u32::try_from(scaled).unwrap_or(u32::MAX);
    }
}

/// Returns the maximum number of `sent` frames that are lost at random, if the expected share is
/// `share` of [`SHARE_ONE`]. It is two deviations above the mean, since a round has few frames and
/// random loss is bursty.
fn lost_by_chance(sent: u32, share: u32) -> u32 {
    let one = u64::from(SHARE_ONE);
    let (sent, share) = (u64::from(sent), u64::from(share));
    let deviations = (4 * sent * share * (one - share) / (one * one)).isqrt();
    narrow(sent * share / one + deviations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Span = Span::from_micros(20);

    /// Runs rounds of a full window with this delay and loss; returns the window after them.
    fn rounds(congestion: &mut Congestion, count: u32, queued: Span, lost: u32) -> usize {
        for _ in 0..count {
            let now = congestion.round_at + Span::from_millis(1);
            congestion.on_lost(lost);
            congestion.on_sample(BASE + queued);
            congestion.on_acked(now, (100, 4096), (BASE, BASE), 2848);
        }
        congestion.window()
    }

    // P3.13
    #[test]
    fn window_ramps_up_shrinks_by_delay_and_recovers() {
        let mut congestion = Congestion::new(44);
        assert_eq!(congestion.window(), 176);
        assert_eq!(rounds(&mut congestion, 5, Span::ZERO, 0), 2848);
        let after = rounds(&mut congestion, 1, QUEUE_TARGET * 5 / 4, 0);
        assert!((2200..2300).contains(&after), "{after}");
        let floor = rounds(&mut congestion, 50, Span::from_millis(5), 0);
        assert_eq!(floor, 88, "two calls");
        assert_eq!(rounds(&mut congestion, 10, Span::ZERO, 0), 88 + 10 * 11);
    }

    // P3.13
    #[test]
    fn random_loss_is_tolerated_and_heavy_loss_shrinks_window() {
        let mut congestion = Congestion::new(44);
        assert_eq!(rounds(&mut congestion, 5, Span::ZERO, 6), 2848);
        assert_eq!(rounds(&mut congestion, 1, Span::ZERO, 25), 2848 * 4 / 5);
        assert_eq!(rounds(&mut congestion, 99, Span::ZERO, 400), 8);
    }

    /// Runs rounds of a full window in which `marked` of 100 frames were marked.
    fn marked_rounds(congestion: &mut Congestion, count: u32, marked: u32) -> usize {
        for _ in 0..count {
            congestion.on_ecn_count(congestion.ecn_reported.wrapping_add(marked));
            rounds(congestion, 1, Span::ZERO, 0);
        }
        congestion.window()
    }

    // P3.14
    #[test]
    fn marks_shrink_window_by_half_their_share_once_per_rtt() {
        let mut congestion = Congestion::new(44);
        // After many rounds without a mark the share is 0 again.
        assert_eq!(rounds(&mut congestion, 200, Span::ZERO, 0), 2848);
        let first = marked_rounds(&mut congestion, 1, 100);
        assert_eq!(
            first,
            2848 * (2048 - 64) / 2048,
            "a sixteenth of all, so far"
        );
        assert_eq!(
            marked_rounds(&mut congestion, 1, 100),
            first,
            "heard before"
        );
        assert_eq!(rounds(&mut congestion, 1, Span::ZERO, 0), first + 11);
        let light = marked_rounds(&mut congestion, 100, 5);
        assert!(light > 200, "{light} frames at 5 in 100");
        let heavy = marked_rounds(&mut congestion, 100, 100);
        assert_eq!(heavy, 8, "all are marked");
        assert_eq!(rounds(&mut congestion, 3, Span::ZERO, 0), 8 + 3);
    }

    // P3.14
    #[test]
    fn false_marks_neither_grow_nor_stall_a_window() {
        let mut congestion = Congestion::new(44);
        for count in [u32::MAX >> 1, u32::MAX - 5, 3, 2, u32::MAX, 1 << 30] {
            congestion.on_ecn_count(count);
            let window = rounds(&mut congestion, 1, Span::ZERO, 0);
            assert!((8..=2848).contains(&window), "{window}");
        }
        let marked = congestion.ecn_reported;
        assert_eq!(
            congestion.on_ecn_count(marked.wrapping_sub(1)),
            0,
            "overtaken"
        );
        assert_eq!(congestion.on_ecn_count(marked), 0, "reported twice");
        rounds(&mut congestion, 1, Span::ZERO, 0);
        let before = congestion.window();
        assert!(rounds(&mut congestion, 4, Span::ZERO, 0) > before);
    }

    // P3.7, P3.13
    #[test]
    fn receiver_delay_is_not_queueing_but_loss_counts() {
        let mut congestion = Congestion::new(44);
        let mut round = |lost| {
            let now = congestion.round_at + Span::from_millis(1);
            congestion.on_lost(lost);
            congestion.on_bound();
            congestion.on_acked(now, (100, 4096), (BASE, BASE), 2848);
            congestion.window()
        };
        assert_eq!((round(0), round(0)), (352, 704));
        assert_eq!(round(25), 704 * 4 / 5);
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut congestion = Congestion::new(44);
        congestion.on_sample(BASE);
        let now = Instant::from_nanos(1_000_000_000);
        congestion.on_acked(now, (1, 1), (BASE, BASE), 2848);
        assert_eq!(congestion.window(), 176);
    }

    /// Runs rounds of full windows. Each frame is lost with a probability of `percent`. The queue
    /// grows as the window exceeds `fits`, and frames beyond it are lost too. Returns the mean
    /// window of the last quarter.
    fn random_rounds(congestion: &mut Congestion, count: u32, percent: u32, fits: u32) -> u32 {
        let mut state = 12_345_u64;
        let mut sum = 0;
        for round in 0..count {
            let window = congestion.window;
            let overflow = window.saturating_sub(fits);
            let mut lost = overflow;
            for _ in overflow..window {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                lost += u32::from(state >> 33 < (1 << 31) * u64::from(percent) / 100);
            }
            let now = congestion.round_at + Span::from_millis(1);
            congestion.on_lost(lost);
            congestion.on_sample(BASE);
            let (landed, all) = ((window - lost) as usize, window as usize);
            congestion.on_acked(now, (landed, all), (BASE, BASE), 2848);
            if round >= count / 4 * 3 {
                sum += window;
            }
        }
        sum / (count / 4)
    }

    // P3.13
    #[test]
    fn window_stays_large_if_shrinking_does_not_reduce_loss() {
        for (percent, least) in [(1, 2800), (5, 2000), (10, 88), (20, 88), (30, 88)] {
            let mut congestion = Congestion::new(44);
            let mean = random_rounds(&mut congestion, 2000, percent, 2848);
            assert!(mean >= least, "{percent} %: {mean}");
        }
    }

    // P3.13
    #[test]
    fn loss_in_a_shallow_queue_shrinks_the_window() {
        for percent in [0, 1, 5, 20] {
            let mut congestion = Congestion::new(44);
            let mean = random_rounds(&mut congestion, 2000, percent, 60);
            assert!(mean <= 90, "{percent} %: {mean}");
        }
    }

    // P3.13
    #[test]
    fn random_loss_estimate_resets_when_loss_ends() {
        let mut congestion = Congestion::new(44);
        random_rounds(&mut congestion, 400, 25, 2848);
        assert!(congestion.chance > SHARE_ONE / 8, "{}", congestion.chance);
        random_rounds(&mut congestion, 100, 0, 2848);
        assert_eq!(congestion.chance, 0);
    }
}
