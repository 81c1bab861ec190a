// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prediction of a program's time on another network, its bottleneck there, and the network that it
//! needs.
//!
//! A trace of a run ([`Trace`]) contains the computation of each process between its calls of MPI,
//! and the effects of the calls. It is replayed on a network with LogGP parameters ([`Network`]).
//! Waits take the time of that network, and computation takes its recorded time. This crate
//! measures nothing and reads no files.

mod collective;
mod network;
mod program;
mod replay;
mod trace;

pub use network::{EAGER_MAX, Network, NetworkError, Point, Progress, of_the_paper};
pub use program::TraceError;
pub use trace::{Action, Event, Matching, Process, Received, Shape, Trace};

use network::Parts;
use program::Program;
use replay::{Place, replay};
use serde::{Deserialize, Serialize};

/// Main reason for a program's time beyond its computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Computation: no network would save 5 % of the time.
    Computing,
    /// Waiting for processes with more computation.
    Imbalance,
    /// Latency of short messages.
    Latency,
    /// Work per message.
    Rate,
    /// Length of messages.
    Bandwidth,
}

/// Prediction for a program on a network. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Network between hosts.
    pub network: String,
    /// Number of hosts; processes are assigned to them in blocks.
    pub hosts: usize,
    /// Predicted time.
    pub seconds: f64,
    /// Computation of all processes, divided by the predicted time. It is the speed-up over one
    /// process that does all the computation at the same speed.
    pub speedup: f64,
    /// Time saved if short messages had no latency.
    pub latency_s: f64,
    /// Time saved if messages caused no work.
    pub rate_s: f64,
    /// Time saved if bytes took no time.
    pub bandwidth_s: f64,
    /// Time lost on an ideal network because processes compute for different times.
    pub imbalance_s: f64,
    /// Largest of these contributions.
    pub bound: Bound,
}

/// A program that is ready for replays.
#[derive(Clone, Debug)]
pub struct Replayer {
    program: Program,
    computing_s: Vec<f64>,
}

/// Minimum saving, as a share of the time, that justifies another network. The evaluation of VIA
/// considers a network sufficient within 5 % of the best.
const SAVING_MIN: f64 = 0.05;

impl Replayer {
    /// Prepares the replay of a trace.
    ///
    /// # Errors
    /// Returns an error if the trace is empty, names processes that it does not contain, or has
    /// times that decrease.
    pub fn new(trace: &Trace) -> Result<Replayer, TraceError> {
        let program = Program::of(trace)?;
        let computing = program.computing_us();
        Ok(Replayer {
            computing_s: computing.into_iter().map(|us| us / 1e6).collect(),
            program,
        })
    }

    /// Returns the number of processes of the program.
    pub fn process_count(&self) -> usize {
        self.program.steps.len()
    }

    /// Returns the time that each process computes outside MPI, in seconds.
    pub fn computing_s(&self) -> &[f64] {
        &self.computing_s
    }

    /// Returns the number of sends without a receive and receives without a send in the trace. They
    /// are treated as matched.
    pub fn unmatched_count(&self) -> usize {
        let messages = self.program.messages.iter();
        messages
            .filter(|message| !(message.has_send && message.has_receive))
            .count()
    }

    /// Predicts the time of the program on `hosts` hosts, at most one per process. `between`
    /// connects the hosts, and processes of one host use `within`. Both networks must be valid
    /// ([`Network::check`]).
    ///
    /// # Errors
    /// Returns an error if a process waits for a message that no process sends.
    pub fn predict(
        &self,
        between: &Network,
        within: &Network,
        hosts: usize,
    ) -> Result<Prediction, TraceError> {
        let count = self.process_count();
        let hosts = hosts.clamp(1, count);
        let per_host = count.div_ceil(hosts);
        let seconds_with = |parts| {
            let place = Place {
                between_hosts: between,
                within_host: within,
                per_host,
                parts,
            };
            replay(&self.program, &place).map(|us| us / 1e6)
        };
        let all = Parts::ALL;
        let seconds = seconds_with(all)?;
        let saved = |parts| Ok::<f64, TraceError>((seconds - seconds_with(parts)?).max(0.0));
        let computing: f64 = self.computing_s.iter().sum();
        let mut prediction = Prediction {
            network: between.name.clone(),
            hosts,
            seconds,
            speedup: if seconds > 0.0 {
                computing / seconds
            } else {
                0.0
            },
            latency_s: saved(Parts {
                latency: false,
                ..all
            })?,
            rate_s: saved(Parts { rate: false, ..all })?,
            bandwidth_s: saved(Parts {
                bandwidth: false,
                ..all
            })?,
            imbalance_s: (seconds_with(Parts::NONE)? - computing / count as f64).max(0.0),
            bound: Bound::Computing,
        };
        prediction.bound = prediction.largest();
        Ok(prediction)
    }
}

impl Prediction {
    fn largest(&self) -> Bound {
        let parts = [
            (self.imbalance_s, Bound::Imbalance),
            (self.latency_s, Bound::Latency),
            (self.rate_s, Bound::Rate),
            (self.bandwidth_s, Bound::Bandwidth),
        ];
        let [first, rest @ ..] = parts;
        let most = rest.into_iter().fold(
            first,
            |most, part| if part.0 > most.0 { part } else { most },
        );
        if most.0 > SAVING_MIN * self.seconds {
            most.1
        } else {
            Bound::Computing
        }
    }
}

/// Returns the first of `predictions` that takes at most 5 % longer than the best. With predictions
/// in ascending order of network cost, that is the cheapest sufficient network. Returns `None` for
/// an empty slice.
pub fn smallest_sufficient(predictions: &[Prediction]) -> Option<&Prediction> {
    let best = predictions.iter().map(|one| one.seconds).reduce(f64::min)?;
    predictions
        .iter()
        .find(|one| one.seconds <= best * (1.0 + SAVING_MIN))
}

#[cfg(test)]
mod tests;
