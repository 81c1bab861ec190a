// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round-trip estimation (RFC 6298, with the gains of Jacobson and Karels). `P3.7`

use crate::base::time::Span;

/// Initial estimate: a sleeping receiver on a quiet Ethernet answers within it.
const INITIAL: Span = Span::from_millis(1);

/// Smoothed round trip of one path.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    smoothed: Span,
    variance: Span,
    min: Span,
    sample_count: u32,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Rtt {
            smoothed: INITIAL,
            variance: INITIAL / 2,
            min: Span::MAX,
            sample_count: 0,
        }
    }

    pub(crate) fn on_sample(&mut self, sample: Span) {
        self.min = self.min.min(sample);
        self.sample_count = self.sample_count.saturating_add(1);
        if self.sample_count == 1 {
            self.smoothed = sample;
            self.variance = sample / 2;
            return;
        }
        let error = sample.abs_diff(self.smoothed);
        self.variance = (self.variance * 3 + error) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
    }

    pub(crate) fn smoothed(&self) -> Span {
        self.smoothed
    }

    /// Returns the lowest sample; `None` before the first.
    pub(crate) fn min(&self) -> Option<Span> {
        (self.sample_count > 0).then_some(self.min)
    }

    /// Returns the timeout of RFC 6298: smoothed round trip plus four times its variance, within
    /// bounds. `P3.9`
    pub(crate) fn timeout(&self, floor: Span, ceiling: Span) -> Span {
        (self.smoothed + self.variance * 4).clamp(floor, ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_converges_and_timeout_is_bounded() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.min(), None);
        for _ in 0..100 {
            rtt.on_sample(Span::from_micros(10));
        }
        assert_eq!(rtt.min(), Some(Span::from_micros(10)));
        assert!(rtt.smoothed() <= Span::from_micros(11));
        let floor = Span::from_micros(500);
        assert_eq!(rtt.timeout(floor, Span::from_millis(1000)), floor);
        rtt.on_sample(Span::from_millis(9000));
        assert_eq!(
            rtt.timeout(floor, Span::from_millis(1000)),
            Span::from_millis(1000)
        );
    }
}
