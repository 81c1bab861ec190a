// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects how bulk payload is received: directly in user memory, or in a bounce buffer and copied.
//! The setting decides, or the measured cost.
//!
//! The cost depends on the machine, the frame length and the other traffic, so it is measured with
//! the traffic itself. At intervals, a probe receives batches by both methods alternately and times
//! each: the system call, the core's work and the copies. The method with the lower median cost per
//! byte is used until the next probe.

use crate::clock::Clock;
use crate::error::Error;
use portolan_proto::Instant;

/// Batches of each method in a probe. They are enough for a median that a few interrupts do not
/// move. Both methods together are 2 MB of full batches.
const SAMPLES: usize = 16;

/// Batches between probes. The more expensive method then takes one batch in 64. This costs less
/// than 0.5 % even if that method is 25 % more expensive.
const BETWEEN_PROBES: u32 = 1024;

/// Length in bytes below which a batch is not measured: the cost of the call hides that of the
/// copy.
const BATCH_LEN_MIN: usize = 16 << 10;

/// Inverse of the saving that justifies a switch (1/20, 5 %). Medians of two equal methods differ
/// by a few per cent, and needless switches make measurements hard to repeat.
const MARGIN: u64 = 20;

/// Way to receive bulk payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Speculative,
    Bounce,
    Auto,
}

/// Measured choice between the methods; see the module documentation.
#[derive(Debug)]
pub(crate) struct Placement {
    mode: Mode,
    /// Way that is in use: speculative or bounced.
    is_speculative: bool,
    /// Batches until the next probe; 0 during a probe.
    batches_left: u32,
    /// Cost of bounced and of speculative batches, in picoseconds per byte.
    costs: [Costs; 2],
    batch: Option<Batch>,
    clock: Clock,
}

/// Batch that is being received.
#[derive(Debug)]
struct Batch {
    is_speculative: bool,
    len: usize,
    /// Start time, in probes only.
    started: Option<Instant>,
}

#[derive(Debug, Default)]
struct Costs {
    ps_per_byte: [u64; SAMPLES],
    count: usize,
}

impl Costs {
    fn is_full(&self) -> bool {
        self.count == SAMPLES
    }

    fn push(&mut self, cost: u64) {
        if !self.is_full() {
            self.ps_per_byte[self.count] = cost;
            self.count += 1;
        }
    }

    fn take_median(&mut self) -> u64 {
        self.count = 0;
        self.ps_per_byte.sort_unstable();
        self.ps_per_byte[SAMPLES / 2]
    }
}

impl Placement {
    /// Creates the selection for the value of the setting, if there is one.
    pub(crate) fn new(value: Option<String>, clock: Clock) -> Result<Placement, Error> {
        let mode = match value.as_deref() {
            None | Some("auto") => Mode::Auto,
            Some("speculative") => Mode::Speculative,
            Some("bounce") => Mode::Bounce,
            Some(other) => {
                return Err(Error::Setting {
                    name: "placement",
                    value: other.to_owned(),
                    why: "write speculative, bounce or auto".to_owned(),
                });
            }
        };
        Ok(Placement {
            mode,
            // Until a measurement is made, use the method with a cost that does not depend on
            // predictions.
            is_speculative: mode == Mode::Speculative,
            batches_left: 0,
            costs: Default::default(),
            batch: None,
            clock,
        })
    }

    /// Tests whether payload is ever received directly in user memory.
    #[inline]
    pub(crate) fn may_speculate(&self) -> bool {
        self.mode != Mode::Bounce
    }

    /// Begins a batch in which bulk payload is expected. Returns `true` if it must be received
    /// directly in user memory.
    #[inline]
    pub(crate) fn begin_batch(&mut self) -> bool {
        if self.mode != Mode::Auto {
            return self.is_speculative;
        }
        let probes = self.batches_left == 0;
        // Alternate, so that both methods see the same traffic.
        let is_speculative = match probes {
            true => self.costs[1].count <= self.costs[0].count && !self.costs[1].is_full(),
            false => self.is_speculative,
        };
        self.batch = Some(Batch {
            is_speculative,
            len: 0,
            started: probes.then(|| self.clock.now()),
        });
        is_speculative
    }

    /// Counts a frame of the batch.
    #[inline]
    pub(crate) fn count(&mut self, len: usize) {
        if let Some(batch) = &mut self.batch {
            batch.len += len;
        }
    }

    /// Ends the batch, if there is one, after it was received and handled.
    #[inline]
    pub(crate) fn end_batch(&mut self) {
        if self.batch.is_some()
            && let Some(batch) = self.batch.take()
            && batch.len >= BATCH_LEN_MIN
        {
            self.on_batch(&batch);
        }
    }

    fn on_batch(&mut self, batch: &Batch) {
        let Some(started) = batch.started else {
            self.batches_left = self.batches_left.saturating_sub(1);
            return;
        };
        let ns = u64::try_from(self.clock.now().since(started).as_nanos()).unwrap_or(u64::MAX);
        let cost = ns.saturating_mul(1000) / batch.len as u64;
        self.costs[usize::from(batch.is_speculative)].push(cost);
        if self.costs.iter().all(Costs::is_full) {
            self.decide();
        }
    }

    fn decide(&mut self) {
        let [bounced, speculative] = [0, 1].map(|method: usize| self.costs[method].take_median());
        let (own, other) = match self.is_speculative {
            true => (speculative, bounced),
            false => (bounced, speculative),
        };
        if other + own / MARGIN < own {
            self.is_speculative = !self.is_speculative;
        }
        log::debug!("placement: {bounced} ps/B bounced, {speculative} ps/B speculative");
        self.batches_left = BETWEEN_PROBES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> Placement {
        Placement::new(Some(value.to_owned()), Clock::new()).unwrap()
    }

    /// Runs a probe in which batches have the given costs.
    fn probe(placement: &mut Placement, bounced: u64, speculative: u64) {
        for _ in 0..SAMPLES {
            placement.costs[0].push(bounced);
            placement.costs[1].push(speculative);
        }
        placement.decide();
    }

    /// Receives a batch. Returns `true` if it was speculative.
    fn receive(placement: &mut Placement, len: usize) -> bool {
        let is_speculative = placement.begin_batch();
        placement.count(len);
        placement.end_batch();
        is_speculative
    }

    #[test]
    fn fixed_settings_never_change() {
        for (value, expected) in [("speculative", true), ("bounce", false)] {
            let mut placement = with(value);
            for _ in 0..3000 {
                assert_eq!(receive(&mut placement, 64_000), expected);
            }
        }
        let error = Placement::new(Some("sometimes".to_owned()), Clock::new()).unwrap_err();
        assert!(error.to_string().contains("speculative, bounce or auto"));
    }

    #[test]
    fn probe_alternates_and_skips_short_batches() {
        let mut placement = with("auto");
        let mut methods = [0, 0];
        for _ in 0..2 * SAMPLES {
            receive(&mut placement, 100);
            methods[usize::from(receive(&mut placement, 64_000))] += 1;
        }
        assert_eq!(methods, [SAMPLES, SAMPLES]);
        assert_eq!(placement.batches_left, BETWEEN_PROBES);
        let chosen = placement.is_speculative;
        for _ in 0..BETWEEN_PROBES {
            assert_eq!(receive(&mut placement, 64_000), chosen);
        }
        assert_eq!(placement.batches_left, 0);
    }

    #[test]
    fn clearly_cheaper_method_wins() {
        let mut placement = with("auto");
        probe(&mut placement, 100, 96);
        assert!(!placement.is_speculative);
        probe(&mut placement, 100, 90);
        assert!(placement.is_speculative);
        probe(&mut placement, 100, 104);
        assert!(placement.is_speculative);
        probe(&mut placement, 100, 110);
        assert!(!placement.is_speculative);
    }
}
