// SPDX-License-Identifier: MIT OR Apache-2.0
//! LogP parameters per message size, and LogGP's G.
//!
//! Three loops are those of the evaluation of GM and BIP on Myrinet; the fourth is new:
//!
//! (a) A ping-pong measures half the round trip.
//!
//! (b) A sender sends and then spins for D. With D = 0 the interval is g; with D longer than g it
//! is o_s + D.
//!
//! (c) A receiver receives and then spins for D, behind a sender that is ahead of it. The interval
//! is o_r + D.
//!
//! (d) A ping-pong in which the answerer reports how long it held each message.
//!
//! The paper computes L as the remainder of half the round trip, so the sum is the half round trip
//! by definition. Here loop (d) measures the one-way time independently. It is half of the round
//! trip less the holding time and the clock reads. Each clock is compared only with itself, so the
//! method also works between hosts. L is the one-way time less o_s and o_r. If the sum agrees with
//! the half round trip of (a), the loops did not disturb each other. If the kernel delivers a
//! message before the sender's call returns, both ends work at once and L is negative.
//!
//! Messages of (b) and (c) are not echoed, so their acknowledgements are part of o_s and o_r. In
//! (a) and (d) the answer carries the acknowledgement.

use crate::measure::{Pace, Pass, Sample, drive};
use crate::pattern::{Flags, stamp, verify};
use crate::rounds::median;
use crate::rows::pass_flags;
use crate::spec::{Spec, window};
use anyhow::{Result, ensure};
use quanta::Clock;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Number of loops that share a row's time.
const LOOPS: u32 = 5;

/// D of loops (b) and (c) in half round trips. It exceeds the interval of a sender that does not
/// spin, and a message is received before the next is sent.
const DELAY_HALF_TRIPS: f64 = 4.0;

/// Minimum D, long compared with a clock read.
const DELAY_MIN: Duration = Duration::from_micros(2);

/// Messages between two replies of the receiver in loops (b), (c) and (d).
const BURST_MAX: u64 = 32;

/// Reply of the receiver after a complete window.
const ACK: [u8; 4] = *b"done";

/// Bytes of a time in the answerer's reply.
const TIME: usize = 8;

/// LogP parameters for one size, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogP {
    /// Time from the end of the sender's work to the start of the receiver's work.
    pub l_us: f64,
    /// Sender's work per message.
    pub os_us: f64,
    /// Receiver's work per message.
    pub or_us: f64,
    /// Interval between messages sent back to back.
    pub g_us: f64,
}

impl LogP {
    /// Returns the one-way time of a message: o_s + L + o_r.
    pub fn sum_us(&self) -> f64 {
        self.os_us + self.l_us + self.or_us
    }

    /// Returns the medians of `rounds`.
    pub(crate) fn of_rounds(rounds: &[LogP]) -> Option<LogP> {
        let of = |field: fn(&LogP) -> f64| median(rounds.iter().map(field).collect());
        (!rounds.is_empty()).then(|| LogP {
            l_us: of(|logp| logp.l_us),
            os_us: of(|logp| logp.os_us),
            or_us: of(|logp| logp.or_us),
            g_us: of(|logp| logp.g_us),
        })
    }
}

/// One end of a row, as the loops use it.
pub(crate) trait Endpoint {
    /// Sends `message`. The caller may reuse the buffer when the peer has answered, and free it after
    /// [`Endpoint::release`].
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Waits until the buffers of all sent messages may be freed.
    fn release(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits for a message that fills `message`.
    fn receive(&mut self, message: &mut [u8]) -> Result<()>;

    /// Runs the sender of loop (b) without delay: windows as in the metric `rate`, or `stream` for
    /// long messages.
    fn send_windows(&mut self, spec: &Spec) -> Result<Sample> {
        let mut message = vec![0; spec.size];
        let mut ack = [0; ACK.len()];
        let mut seq = 0;
        let sample = drive(spec.pace, Pass::one_way(window(spec.size)), |last| {
            stamp(&mut message, seq, pass_flags(seq, last));
            for _ in 0..window(spec.size) {
                self.send(&message)?;
            }
            seq += 1;
            self.receive(&mut ack)?;
            ensure!(ack == ACK, "the acknowledgement is {ack:?}");
            Ok(())
        })?;
        self.release()?;
        Ok(sample)
    }

    /// Runs the receiver of [`Endpoint::send_windows`].
    fn receive_windows(&mut self, spec: &Spec) -> Result<()> {
        let mut message = vec![0; spec.size];
        for seq in 0.. {
            for _ in 0..window(spec.size) {
                self.receive(&mut message)?;
            }
            let flags = verify(&message, seq)?;
            self.send(&ACK)?;
            if flags.last {
                break;
            }
        }
        Ok(())
    }
}

/// Runs the driver.
///
/// # Errors
/// A payload was wrong, or the other end has failed.
pub(crate) fn measure(endpoint: &mut impl Endpoint, spec: &Spec) -> Result<Sample> {
    let spec = share_of_loop(spec);
    let mut loops = Loops::new(endpoint, &spec);
    let mut sample = loops.round_trips(1)?;
    let delay = delay(&sample);
    // The delay travels in a message of its own.
    let delay_ns = u64::try_from(delay.as_nanos())?;
    loops.endpoint.send(&delay_ns.to_le_bytes())?;
    let gap = loops.endpoint.send_windows(&spec)?;
    let os_us = loops.send_delayed(delay)?;
    let or_us = loops.send_ahead()?;
    let one_way_us = loops.one_way_time()?;
    loops.endpoint.release()?;
    sample.extra.logp = Some(LogP {
        l_us: one_way_us - os_us - or_us,
        os_us,
        or_us,
        g_us: gap.p50_us,
    });
    Ok(sample)
}

/// Runs the answerer.
///
/// # Errors
/// A payload was wrong, or the other end has failed.
pub(crate) fn answer(endpoint: &mut impl Endpoint, spec: &Spec) -> Result<()> {
    let spec = share_of_loop(spec);
    let mut loops = Loops::new(endpoint, &spec);
    loops.answer_round_trips()?;
    let mut delay_ns = [0; 8];
    loops.endpoint.receive(&mut delay_ns)?;
    loops.endpoint.receive_windows(&spec)?;
    loops.receive_at_once()?;
    let delay = Duration::from_nanos(u64::from_le_bytes(delay_ns));
    loops.receive_delayed(delay)?;
    loops.echo_with_hold_times()?;
    loops.endpoint.release()
}

/// Runs the driver of loop (a) alone, with `messages` round trips per pass.
///
/// # Errors
/// See [`measure`].
pub(crate) fn ping(endpoint: &mut impl Endpoint, spec: &Spec, messages: u64) -> Result<Sample> {
    let mut loops = Loops::new(endpoint, spec);
    let sample = loops.round_trips(messages)?;
    loops.endpoint.release()?;
    Ok(sample)
}

/// Runs the answerer of loop (a) alone.
///
/// # Errors
/// See [`answer`].
pub(crate) fn pong(endpoint: &mut impl Endpoint, spec: &Spec) -> Result<()> {
    let mut loops = Loops::new(endpoint, spec);
    loops.answer_round_trips()?;
    loops.endpoint.release()
}

/// Returns `spec` with one loop's share of the time or count.
fn share_of_loop(spec: &Spec) -> Spec {
    let pace = match spec.pace {
        Pace::Seconds(seconds) => Pace::Seconds(seconds / f64::from(LOOPS)),
        Pace::Iterations(count) => Pace::Iterations(count.div_ceil(u64::from(LOOPS))),
    };
    Spec {
        pace,
        ..spec.clone()
    }
}

fn delay(round_trips: &Sample) -> Duration {
    let trips = round_trips.p50_us * DELAY_HALF_TRIPS;
    DELAY_MIN.max(Duration::from_secs_f64(trips / 1e6))
}

struct Loops<'a, T> {
    endpoint: &'a mut T,
    clock: Clock,
    pace: Pace,
    burst: u64,
    message: Vec<u8>,
}

impl<'a, T: Endpoint> Loops<'a, T> {
    fn new(endpoint: &'a mut T, spec: &Spec) -> Self {
        Loops {
            endpoint,
            clock: Clock::new(),
            pace: spec.pace,
            burst: window(spec.size).min(BURST_MAX),
            message: vec![0; spec.size],
        }
    }

    /// Runs loop (a) with `messages` round trips per pass.
    fn round_trips(&mut self, messages: u64) -> Result<Sample> {
        let mut seq = 0;
        drive(self.pace, Pass::round_trips(messages), |last| {
            for index in 1..=messages {
                let flags = pass_flags(seq, last && index == messages);
                stamp(&mut self.message, seq, flags);
                self.endpoint.send(&self.message)?;
                self.endpoint.receive(&mut self.message)?;
                let echoed = verify(&self.message, seq)?;
                ensure!(echoed == flags, "the reply differs from the request");
                seq += 1;
            }
            Ok(())
        })
    }

    fn answer_round_trips(&mut self) -> Result<()> {
        for seq in 0.. {
            self.endpoint.receive(&mut self.message)?;
            let flags = verify(&self.message, seq)?;
            stamp(&mut self.message, seq, flags);
            self.endpoint.send(&self.message)?;
            if flags.last {
                break;
            }
        }
        Ok(())
    }

    /// Runs loop (b) with a long delay and returns o_s.
    fn send_delayed(&mut self, delay: Duration) -> Result<f64> {
        let spin_us = self.spin_cost_us(delay);
        let mut intervals = Vec::new();
        let mut ack = [0; ACK.len()];
        let mut seq = 0;
        drive(self.pace, Pass::one_way(self.burst), |last| {
            stamp(&mut self.message, seq, pass_flags(seq, last));
            let began = self.clock.raw();
            for _ in 0..self.burst {
                self.endpoint.send(&self.message)?;
                self.spin(delay);
            }
            intervals.push(self.since_us(began) / messages(self.burst) - spin_us);
            self.endpoint.receive(&mut ack)?;
            ensure!(ack == ACK, "the acknowledgement is {ack:?}");
            seq += 1;
            Ok(())
        })?;
        Ok(median(intervals))
    }

    /// Runs the receiver of loop (b).
    fn receive_at_once(&mut self) -> Result<()> {
        for seq in 0.. {
            for _ in 0..self.burst {
                self.endpoint.receive(&mut self.message)?;
            }
            let flags = verify(&self.message, seq)?;
            self.endpoint.send(&ACK)?;
            if flags.last {
                break;
            }
        }
        Ok(())
    }

    /// Runs loop (d) and returns the one-way time of a message, from its send to the end of its
    /// receive.
    fn one_way_time(&mut self) -> Result<f64> {
        let clock_us = self.clock_cost_us();
        let mut times = Vec::new();
        let mut trips = Vec::new();
        let mut reply = vec![0; usize::try_from(self.burst)? * TIME];
        let mut seq = 0;
        drive(self.pace, Pass::round_trips(self.burst), |last| {
            trips.clear();
            for index in 1..=self.burst {
                let flags = pass_flags(seq, last && index == self.burst);
                stamp(&mut self.message, seq, flags);
                let began = self.clock.raw();
                self.endpoint.send(&self.message)?;
                self.endpoint.receive(&mut self.message)?;
                trips.push(self.since_us(began));
                let echoed = verify(&self.message, seq)?;
                ensure!(echoed == flags, "the reply differs from the request");
                seq += 1;
            }
            self.endpoint.receive(&mut reply)?;
            for (trip_us, held) in trips.iter().zip(reply.chunks_exact(TIME)) {
                let mut held_us = [0; TIME];
                held_us.copy_from_slice(held);
                // The time contains two clock reads, one at each end.
                times.push((trip_us - f64::from_le_bytes(held_us)) / 2.0 - clock_us);
            }
            Ok(())
        })?;
        Ok(median(times))
    }

    /// Runs the answerer of loop (d), which reports how long it held each message.
    fn echo_with_hold_times(&mut self) -> Result<()> {
        let mut reply = Vec::new();
        let mut seq = 0;
        loop {
            reply.clear();
            let mut flags = Flags::NONE;
            for _ in 0..self.burst {
                self.endpoint.receive(&mut self.message)?;
                let arrived = self.clock.raw();
                flags = verify(&self.message, seq)?;
                stamp(&mut self.message, seq, flags);
                let held_us = self.since_us(arrived);
                self.endpoint.send(&self.message)?;
                reply.extend(held_us.to_le_bytes());
                seq += 1;
            }
            self.endpoint.send(&reply)?;
            if flags.last {
                return Ok(());
            }
        }
    }

    /// Runs the sender of loop (c). The receiver replies with its interval less the delay.
    fn send_ahead(&mut self) -> Result<f64> {
        let mut intervals = Vec::new();
        let mut reply = [0; 8];
        let mut seq = 0;
        drive(self.pace, Pass::one_way(self.burst + 1), |last| {
            stamp(&mut self.message, seq, pass_flags(seq, last));
            for _ in 0..=self.burst {
                self.endpoint.send(&self.message)?;
            }
            self.endpoint.receive(&mut reply)?;
            intervals.push(f64::from_le_bytes(reply));
            seq += 1;
            Ok(())
        })?;
        Ok(median(intervals))
    }

    /// Runs the receiver of loop (c). The first message is not timed.
    fn receive_delayed(&mut self, delay: Duration) -> Result<()> {
        let spin_us = self.spin_cost_us(delay);
        for seq in 0.. {
            self.endpoint.receive(&mut self.message)?;
            let flags = verify(&self.message, seq)?;
            let began = self.clock.raw();
            for _ in 0..self.burst {
                self.spin(delay);
                self.endpoint.receive(&mut self.message)?;
            }
            let interval = self.since_us(began) / messages(self.burst) - spin_us;
            self.endpoint.send(&interval.to_le_bytes())?;
            if flags.last {
                break;
            }
        }
        Ok(())
    }

    fn spin(&self, delay: Duration) {
        let until = delay.as_nanos();
        let began = self.clock.raw();
        while u128::from(self.clock.delta_as_nanos(began, self.clock.raw())) < until {}
    }

    /// Returns the actual duration of a spin of `delay`.
    fn spin_cost_us(&self, delay: Duration) -> f64 {
        const TRIALS: u64 = 64;
        let trial = |_| {
            let began = self.clock.raw();
            self.spin(delay);
            self.since_us(began)
        };
        median((0..TRIALS).map(trial).collect())
    }

    /// Returns the duration of a clock read.
    fn clock_cost_us(&self) -> f64 {
        const READS: u32 = 1024;
        let began = self.clock.raw();
        for _ in 0..READS {
            std::hint::black_box(self.clock.raw());
        }
        self.since_us(began) / f64::from(READS)
    }

    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    fn since_us(&self, began: u64) -> f64 {
        self.clock.delta_as_nanos(began, self.clock.raw()) as f64 / 1e3
    }
}

#[allow(clippy::cast_precision_loss, reason = "at most BURST_MAX")]
fn messages(burst: u64) -> f64 {
    burst as f64
}

/// LogGP's G of one system on one path: time per byte of long messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongGap {
    /// System, as in the rows.
    pub system: String,
    /// Path, as in the rows.
    pub path: crate::args::Path,
    /// Nanoseconds per byte: the slope of g over the long sizes.
    pub ns_per_byte: f64,
}

/// Minimum bytes of a long message. Its sender exposes the buffer instead of copying it.
pub(crate) const LONG_MIN: usize = 16 << 10;

/// Returns G of each system and path with at least two long sizes in `rows`: the least-squares
/// slope.
pub(crate) fn long_gaps(rows: &[crate::schema::Row]) -> Vec<LongGap> {
    let mut gaps: Vec<LongGap> = Vec::new();
    for row in rows {
        let known = |gap: &LongGap| gap.system == row.system && gap.path == row.path;
        if gaps.iter().any(known) {
            continue;
        }
        let same = rows.iter().filter(|other| {
            (&other.system, other.path) == (&row.system, row.path) && other.size >= LONG_MIN
        });
        #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
        let points: Vec<(f64, f64)> = same
            .filter_map(|row| Some((row.size as f64, row.extra.logp?.g_us * 1e3)))
            .collect();
        gaps.extend(slope(&points).map(|ns_per_byte| LongGap {
            system: row.system.clone(),
            path: row.path,
            ns_per_byte,
        }));
    }
    gaps
}

#[allow(clippy::cast_precision_loss, reason = "a handful of points")]
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let (xy, xx) = points.iter().fold((0.0, 0.0), |(xy, xx), point| {
        let dx = point.0 - x;
        (xy + dx * (point.1 - y), xx + dx * dx)
    });
    (points.len() > 1 && xx > 0.0).then(|| xy / xx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_is_fitted_to_the_line() {
        let line = |x: f64| (x, 7.0 + 0.25 * x);
        let slope_of = slope(&[line(1.0), line(2.0), line(10.0)]).expect("a line");
        assert!((slope_of - 0.25).abs() < 1e-12);
        assert_eq!(slope(&[line(1.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn sum_is_the_one_way_time() {
        let rounds = [1.0, 3.0, 2.0].map(|us| LogP {
            l_us: us,
            os_us: 0.5,
            or_us: 0.25,
            g_us: 0.1,
        });
        let logp = LogP::of_rounds(&rounds).expect("rounds");
        assert!((logp.sum_us() - 2.75).abs() < 1e-12);
        assert_eq!(LogP::of_rounds(&[]), None);
    }
}
