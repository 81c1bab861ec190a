// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a path may have under way for the network's sake: a window that grows while the round
//! trip stays near its minimum, and shrinks in proportion when it does not (`P3.13`). It learns from
//! delay, as Swift (Kumar et al., SIGCOMM 2020) and LEDBAT++ do: links that lose frames by chance
//! must not look congested. What the receiver can hold bounds it from above (`P3.3`).

use crate::Instant;
use crate::time::Span;

/// Round trip beyond the path's minimum up to which the window grows. The path's own bursts must
/// fit: two calls of segmentation offload take 110 µs on a wire of 10 Gb/s, and the shortest of a
/// round's samples counts. What an acknowledgement waited at the receiver is not in a sample, so
/// its 64 frames need no room. A switch with 256 KiB a port is full at 210 µs.
const QUEUE_TARGET: Span = Span::from_micros(150);

/// Share of a round's frames, as 1 in so many, up to which loss is taken for chance.
const CHANCE_LOSS: u32 = 16;

/// Frames that may be under way however bad the network is: acknowledgements keep coming.
const WINDOW_LEAST: u32 = 8;

/// Frames that fill two calls on links without segmentation offload, as in `window_frames`.
const CALL_LEAST: usize = 32;

/// Calls of segmentation offload in the first window: above bandwidth × round trip of most
/// Ethernets (10 Gb/s × 100 µs are 85 frames), and doubled each round until the target is reached.
const CALLS_FIRST: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Frames that may be under way.
    window: u32,
    /// Frames of two full calls. Delay alone does not push the window below.
    two_calls: u32,
    /// Nothing has asked for a smaller window yet.
    ramps: bool,
    round_at: Instant,
    /// Of this round: frames acknowledged and lost, shortest round trip, whether the window was full.
    acked: u32,
    lost: u32,
    shortest: Span,
    full: bool,
}

impl Congestion {
    pub(crate) fn new(segments_max: usize) -> Congestion {
        let call = u32::try_from(segments_max.max(CALL_LEAST)).unwrap_or(64);
        Congestion {
            window: CALLS_FIRST * call,
            two_calls: 2 * call,
            ramps: true,
            round_at: Instant::default(),
            acked: 0,
            lost: 0,
            shortest: Span::MAX,
            full: false,
        }
    }

    /// Frames that may be under way.
    #[inline]
    pub(crate) fn window(&self) -> usize {
        self.window as usize
    }

    /// Frames were lost.
    pub(crate) fn on_lost(&mut self, count: u32) {
        self.lost += count;
    }

    /// A round trip was measured.
    pub(crate) fn on_sample(&mut self, sample: Span) {
        self.shortest = self.shortest.min(sample);
    }

    /// `count` frames have arrived of `flying` that were under way; the window is judged once in a
    /// smoothed round trip. `base` is the shortest one ever, `most` what the receiver holds.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        (count, flying): (usize, usize),
        (base, smoothed): (Span, Span),
        most: usize,
    ) {
        self.acked += u32::try_from(count).unwrap_or(0);
        // Half of a window: what is sent in calls seldom fills it to the last frame.
        self.full |= flying * 2 >= self.window();
        if self.shortest == Span::MAX || now < self.round_at + smoothed {
            return;
        }
        let queued = self.shortest.saturating_sub(base);
        self.judge(queued);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.window = self.window.min(most).max(WINDOW_LEAST);
        self.round_at = now;
        (self.acked, self.lost, self.full) = (0, 0, false);
        self.shortest = Span::MAX;
    }

    fn judge(&mut self, queued: Span) {
        let sent = self.acked + self.lost;
        // Beyond two deviations of that share: a round has few frames, and chance comes in lumps.
        if self.lost > sent / CHANCE_LOSS + sent.isqrt() / 2 {
            // As many as got through.
            self.ramps = false;
            self.scale(self.acked.max(sent / 2), sent);
        } else if queued > QUEUE_TARGET {
            self.ramps = false;
            // Loss beside delay is a queue that overflows, not the delay of the path's own bursts.
            let floor = if self.lost > 0 { 1 } else { self.two_calls };
            if self.window > floor {
                // Down to what would have waited for the target, at most by half.
                let part = (QUEUE_TARGET * 256 / queued).max(128);
                self.scale(u32::try_from(part).unwrap_or(256), 256);
                self.window = self.window.max(floor);
            }
        } else if self.full {
            // A quarter of a call for each round: shares of several paths become equal.
            let step = if self.ramps {
                self.window
            } else {
                (self.two_calls / 8).min(self.window / 8).max(1)
            };
            self.window = self.window.saturating_add(step);
        }
    }

    fn scale(&mut self, part: u32, whole: u32) {
        let scaled = u64::from(self.window) * u64::from(part) / u64::from(whole.max(1));
        self.window = u32::try_from(scaled).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Span = Span::from_micros(20);

    /// Rounds of a full window, each with this delay and loss; returns the window after them.
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
    fn loss_by_chance_changes_nothing_and_heavy_loss_shrinks_in_proportion() {
        let mut congestion = Congestion::new(44);
        assert_eq!(rounds(&mut congestion, 5, Span::ZERO, 6), 2848);
        assert_eq!(rounds(&mut congestion, 1, Span::ZERO, 25), 2848 * 4 / 5);
        assert_eq!(rounds(&mut congestion, 99, Span::ZERO, 400), 8);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut congestion = Congestion::new(44);
        congestion.on_sample(BASE);
        let now = Instant::from_nanos(1_000_000_000);
        congestion.on_acked(now, (1, 1), (BASE, BASE), 2848);
        assert_eq!(congestion.window(), 176);
    }
}
