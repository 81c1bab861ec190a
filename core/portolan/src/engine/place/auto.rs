// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether bulk payload is received at its place, or in a bounce buffer and copied: as the setting
//! says, or as costs less here.
//!
//! What costs less depends on the machine, the frame length and what else arrives, so it is
//! measured with the traffic itself. From time to time batches are received in both ways in turn,
//! each is timed (the system call, the core's work and the copies), and the way with the lower
//! median cost per byte is taken until the next such probe.

use crate::clock::Clock;
use crate::error::Error;
use portolan_proto::Instant;

/// Batches of each way in a probe: enough for a median that a few interrupts do not move; both
/// ways together are 2 MB of full batches.
const SAMPLES: usize = 16;

/// Batches between probes. The dearer way then takes one batch in 64, which costs less than half a
/// per cent even where it is a quarter dearer.
const BETWEEN_PROBES: u32 = 1024;

/// Bytes below which a batch says little: the price of the call hides that of the copy.
const BATCH_LEN_MIN: usize = 16 << 10;

/// The other way must be cheaper by this part (5 %) to be taken: medians of two equal ways differ
/// by some per cent, and changing for nothing only makes measurements hard to repeat.
const MARGIN: u64 = 20;

/// How bulk payload is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Speculative,
    Bounce,
    Auto,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Placement {
    mode: Mode,
    /// Of the two ways, the one in use.
    speculates: bool,
    /// Batches until the next probe; 0 while one goes on.
    batches_left: u32,
    /// Cost of bounced and of speculative batches, in picoseconds per byte.
    costs: [Costs; 2],
    batch: Option<Batch>,
    clock: Clock,
}

/// A batch that is being received.
#[derive(Debug)]
struct Batch {
    speculates: bool,
    len: usize,
    /// In probes only.
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
    /// By the value of the setting, if there is one.
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
            // Until something was measured, what no wrong guess can make dearer.
            speculates: mode == Mode::Speculative,
            batches_left: 0,
            costs: Default::default(),
            batch: None,
            clock,
        })
    }

    /// Whether anything is ever received at its place.
    #[inline]
    pub(crate) fn may_speculate(&self) -> bool {
        self.mode != Mode::Bounce
    }

    /// A batch is about to be received of which bulk payload is expected; whether it is to be
    /// received at its place.
    #[inline]
    pub(crate) fn begin_batch(&mut self) -> bool {
        if self.mode != Mode::Auto {
            return self.speculates;
        }
        let probes = self.batches_left == 0;
        // In turn, so that both ways see the same traffic.
        let speculates = match probes {
            true => self.costs[1].count <= self.costs[0].count && !self.costs[1].is_full(),
            false => self.speculates,
        };
        self.batch = Some(Batch {
            speculates,
            len: 0,
            started: probes.then(|| self.clock.now()),
        });
        speculates
    }

    /// A frame of the batch was handed over.
    #[inline]
    pub(crate) fn count(&mut self, len: usize) {
        if let Some(batch) = &mut self.batch {
            batch.len += len;
        }
    }

    /// The batch has been received and acted upon, if there was one.
    #[inline]
    pub(crate) fn end_batch(&mut self) {
        if let Some(batch) = self.batch.take()
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
        self.costs[usize::from(batch.speculates)].push(cost);
        if self.costs.iter().all(Costs::is_full) {
            self.decide();
        }
    }

    fn decide(&mut self) {
        let [bounced, speculative] = [0, 1].map(|way: usize| self.costs[way].take_median());
        let (own, other) = match self.speculates {
            true => (speculative, bounced),
            false => (bounced, speculative),
        };
        if other + own / MARGIN < own {
            self.speculates = !self.speculates;
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

    /// Goes through a probe in which batches cost so much.
    fn probe(placement: &mut Placement, bounced: u64, speculative: u64) {
        for _ in 0..SAMPLES {
            placement.costs[0].push(bounced);
            placement.costs[1].push(speculative);
        }
        placement.decide();
    }

    /// Receives a batch; whether it was speculative.
    fn receive(placement: &mut Placement, len: usize) -> bool {
        let speculates = placement.begin_batch();
        placement.count(len);
        placement.end_batch();
        speculates
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
    fn a_probe_takes_both_ways_in_turn_and_short_batches_do_not_count() {
        let mut placement = with("auto");
        let mut ways = [0, 0];
        for _ in 0..2 * SAMPLES {
            receive(&mut placement, 100);
            ways[usize::from(receive(&mut placement, 64_000))] += 1;
        }
        assert_eq!(ways, [SAMPLES, SAMPLES]);
        assert_eq!(placement.batches_left, BETWEEN_PROBES);
        let chosen = placement.speculates;
        for _ in 0..BETWEEN_PROBES {
            assert_eq!(receive(&mut placement, 64_000), chosen);
        }
        assert_eq!(placement.batches_left, 0);
    }

    #[test]
    fn the_cheaper_way_is_taken_when_it_is_clearly_cheaper() {
        let mut placement = with("auto");
        probe(&mut placement, 100, 96);
        assert!(!placement.speculates);
        probe(&mut placement, 100, 90);
        assert!(placement.speculates);
        probe(&mut placement, 100, 104);
        assert!(placement.speculates);
        probe(&mut placement, 100, 110);
        assert!(!placement.speculates);
    }
}
