// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two published congestion controls: DCTCP (RFC 8257) and Swift (Kumar et al., SIGCOMM 2020).

/// First window of a flow in frames (RFC 6928).
const WINDOW_FIRST: f64 = 10.0;

/// Gain of DCTCP's average (RFC 8257, section 4.2).
const DCTCP_GAIN: f64 = 1.0 / 16.0;

/// Least window of DCTCP in frames. It has none below one frame.
const DCTCP_LEAST: f64 = 1.0;

/// Swift's constants (section 3): increase per round trip in frames, decrease by delay, largest
/// decrease, least window, and timeouts in a row after which the window is the least one. The
/// increase is not published. This one was chosen on the incasts of the comparison, together with
/// timeouts that do not double.
const SWIFT_INCREASE: f64 = 0.1;
const SWIFT_BETA: f64 = 0.8;
const SWIFT_DECREASE_MAX: f64 = 0.5;
const SWIFT_LEAST: f64 = 0.001;
const SWIFT_TIMEOUTS: u32 = 5;

/// Swift's target beyond the shortest round trip, for a large window and, in addition, for a small
/// one. Together they are 45 µs: the switch's buffer of 64 KiB takes 52 µs.
const SWIFT_TARGET_NS: f64 = 15_000.0;
const SWIFT_RANGE_NS: f64 = 30_000.0;

/// Windows between which the target grows (section 3.5).
const SWIFT_SCALED: (f64, f64) = (0.1, 100.0);

/// An acknowledgement of one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub(super) now_ns: u64,
    pub(super) rtt_ns: u64,
    pub(super) is_marked: bool,
}

/// Congestion control of one flow.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Dctcp(Dctcp),
    Swift(Swift),
}

impl Control {
    pub(super) fn dctcp() -> Control {
        Control::Dctcp(Dctcp {
            window: WINDOW_FIRST,
            threshold: f64::INFINITY,
            // RFC 8257, section 3.3: the first marks halve the window.
            alpha: 1.0,
            acked: 0,
            marked: 0,
            round_end_ns: 0,
            cut_until_ns: 0,
        })
    }

    pub(super) fn swift(base_rtt_ns: u64) -> Control {
        Control::Swift(Swift {
            window: WINDOW_FIRST,
            base_ns: base_rtt_ns as f64,
            cut_at_ns: 0,
            timeouts: 0,
        })
    }

    /// Returns the window in frames. Below 1 it is the reciprocal of the round trips between two
    /// frames.
    pub(super) fn window(&self) -> f64 {
        match self {
            Control::Dctcp(dctcp) => dctcp.window,
            Control::Swift(swift) => swift.window,
        }
    }

    pub(super) fn on_ack(&mut self, acked: Acked) {
        match self {
            Control::Dctcp(dctcp) => dctcp.on_ack(acked),
            Control::Swift(swift) => swift.on_ack(acked),
        }
    }

    /// Handles a loss that a later frame has shown.
    pub(super) fn on_loss(&mut self, now_ns: u64, rtt_ns: u64) {
        match self {
            Control::Dctcp(dctcp) if now_ns >= dctcp.cut_until_ns => {
                dctcp.cut_until_ns = now_ns + rtt_ns;
                dctcp.window = (dctcp.window / 2.0).max(DCTCP_LEAST);
                dctcp.threshold = dctcp.window;
            }
            Control::Dctcp(_) => {}
            Control::Swift(swift) => {
                swift.timeouts = 0;
                swift.cut(now_ns, rtt_ns, SWIFT_DECREASE_MAX);
            }
        }
    }

    /// Handles a timeout.
    pub(super) fn on_timeout(&mut self, now_ns: u64, rtt_ns: u64) {
        match self {
            Control::Dctcp(dctcp) => {
                dctcp.threshold = (dctcp.window / 2.0).max(DCTCP_LEAST);
                dctcp.window = DCTCP_LEAST;
            }
            Control::Swift(swift) => {
                swift.timeouts += 1;
                match swift.timeouts >= SWIFT_TIMEOUTS {
                    true => swift.window = SWIFT_LEAST,
                    false => swift.cut(now_ns, rtt_ns, SWIFT_DECREASE_MAX),
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Dctcp {
    window: f64,
    /// Window at which slow start ends.
    threshold: f64,
    /// Smoothed share of marked frames.
    alpha: f64,
    acked: u32,
    marked: u32,
    round_end_ns: u64,
    /// Time until which further losses belong to the last one.
    cut_until_ns: u64,
}

impl Dctcp {
    fn on_ack(&mut self, acked: Acked) {
        self.acked += 1;
        self.marked += u32::from(acked.is_marked);
        if acked.is_marked {
            self.threshold = self.threshold.min(self.window);
        } else if self.window < self.threshold {
            self.window += 1.0;
        } else {
            self.window += 1.0 / self.window;
        }
        if acked.now_ns < self.round_end_ns {
            return;
        }
        self.round_end_ns = acked.now_ns + acked.rtt_ns;
        let share = f64::from(self.marked) / f64::from(self.acked);
        self.alpha = self.alpha * (1.0 - DCTCP_GAIN) + share * DCTCP_GAIN;
        if self.marked > 0 {
            self.window = (self.window * (1.0 - self.alpha / 2.0)).max(DCTCP_LEAST);
            self.threshold = self.window;
        }
        (self.acked, self.marked) = (0, 0);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Swift {
    window: f64,
    base_ns: f64,
    cut_at_ns: u64,
    /// Timeouts since the last acknowledgement.
    timeouts: u32,
}

impl Swift {
    fn target_ns(&self) -> f64 {
        let (least, most) = SWIFT_SCALED;
        let alpha = SWIFT_RANGE_NS / (1.0 / least.sqrt() - 1.0 / most.sqrt());
        let scaled = alpha / self.window.sqrt() - alpha / most.sqrt();
        self.base_ns + SWIFT_TARGET_NS + scaled.clamp(0.0, SWIFT_RANGE_NS)
    }

    fn on_ack(&mut self, acked: Acked) {
        self.timeouts = 0;
        let (delay_ns, target_ns) = (acked.rtt_ns as f64, self.target_ns());
        if delay_ns < target_ns {
            self.window += SWIFT_INCREASE / self.window.max(1.0);
        } else {
            let part = SWIFT_BETA * (delay_ns - target_ns) / delay_ns;
            self.cut(acked.now_ns, acked.rtt_ns, part.min(SWIFT_DECREASE_MAX));
        }
    }

    /// Shrinks the window by `part`, at most once per round trip.
    fn cut(&mut self, now_ns: u64, rtt_ns: u64, part: f64) {
        if now_ns >= self.cut_at_ns + rtt_ns {
            self.cut_at_ns = now_ns;
            self.window = (self.window * (1.0 - part)).max(SWIFT_LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(control: &mut Control, now_ns: u64, rtt_ns: u64, is_marked: bool) -> f64 {
        control.on_ack(Acked {
            now_ns,
            rtt_ns,
            is_marked,
        });
        control.window()
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn dctcp_cuts_by_half_of_alpha_once_per_round() {
        let mut control = Control::dctcp();
        // The first acknowledgement ends a round of one frame; slow start adds a frame each.
        assert!(is_near(ack(&mut control, 1_000, 10_000, false), 11.0));
        assert!(is_near(ack(&mut control, 2_000, 10_000, false), 12.0));
        assert!(is_near(ack(&mut control, 3_000, 10_000, true), 12.0));
        assert!(is_near(ack(&mut control, 10_999, 10_000, true), 12.0));
        // Two of this round's four frames were marked. Alpha was 15/16 after the first round.
        let alpha = 15.0 / 16.0 * 15.0 / 16.0 + 2.0 / 4.0 / 16.0;
        let window = ack(&mut control, 11_000, 10_000, false);
        assert!(is_near(window, (12.0 + 1.0 / 12.0) * (1.0 - alpha / 2.0)));
    }

    #[test]
    fn dctcp_halves_by_loss_and_starts_again_after_a_timeout() {
        let mut control = Control::dctcp();
        control.on_loss(1, 10_000);
        control.on_loss(2, 10_000);
        assert!(is_near(control.window(), 5.0), "two losses of one round");
        control.on_timeout(3, 10_000);
        assert!(is_near(control.window(), 1.0));
        assert!(is_near(ack(&mut control, 4, 10_000, false), 2.0));
    }

    #[test]
    fn swift_grows_below_its_target_and_shrinks_in_proportion_above() {
        let mut control = Control::swift(12_000);
        assert!(is_near(ack(&mut control, 100_000, 20_000, false), 10.01));
        let Control::Swift(swift) = &control else {
            panic!("another control");
        };
        // 30 µs over the span of the reciprocal roots of 0.1 and 100.
        let alpha = 30_000.0 / (10.0_f64.sqrt() - 0.1);
        let target = 27_000.0 + alpha * (1.0 / 10.01_f64.sqrt() - 0.1);
        assert!(is_near(swift.target_ns(), target));
        let window = ack(&mut control, 200_000, 40_000, false);
        let part = 0.8 * (40_000.0 - target) / 40_000.0;
        assert!(is_near(window, 10.01 * (1.0 - part)));
        assert!(is_near(ack(&mut control, 201_000, 40_000, false), window));
    }

    #[test]
    fn swift_window_falls_below_a_frame_and_grows_from_there() {
        let mut control = Control::swift(12_000);
        for round in 1..=4 {
            control.on_timeout(round * 100_000, 10_000);
        }
        assert!(is_near(control.window(), 10.0 / 16.0));
        control.on_timeout(500_000, 10_000);
        assert!(is_near(control.window(), SWIFT_LEAST));
        assert!(is_near(ack(&mut control, 600_000, 20_000, false), 0.101));
    }
}
