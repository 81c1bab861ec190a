// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a program would take on another network, what bounds it there, and which network it needs.
//!
//! A trace of a run ([`Trace`]) has what each process computed between its calls of MPI, and what the
//! calls did. It is replayed on a network by LogGP's parameters ([`Network`]): waits take what they
//! take there, computing takes what it took. Nothing is measured here and no file is read.

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

/// What most of a program's time beyond its computing is due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Computing: no network would save a twentieth.
    Computing,
    /// Processes wait for others that have more to compute.
    Imbalance,
    /// The time that a short message is on its way.
    Latency,
    /// The work for each message.
    Rate,
    /// The length of messages.
    Bandwidth,
}

/// A program on a network. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The network between hosts.
    pub network: String,
    /// Hosts; processes are on them in blocks.
    pub hosts: usize,
    /// What it takes.
    pub seconds: f64,
    /// What all processes compute, divided by it: how many times as fast as one process that computes
    /// all would be, if it computed as fast.
    pub speedup: f64,
    /// What would be saved if short messages arrived at once.
    pub latency_s: f64,
    /// What would be saved if messages were no work.
    pub rate_s: f64,
    /// What would be saved if bytes took no time.
    pub bandwidth_s: f64,
    /// What is lost on an ideal network since processes compute differently long.
    pub imbalance_s: f64,
    /// The largest of these.
    pub bound: Bound,
}

/// A program, ready for replays.
#[derive(Clone, Debug)]
pub struct Replayer {
    program: Program,
    computing_s: Vec<f64>,
}

/// Less than this of the time saved is not worth another network: the evaluation of VIA takes a
/// network for good enough within 5 % of the best.
const WORTH_IT: f64 = 0.05;

impl Replayer {
    /// # Errors
    /// The trace is empty, names processes that it does not have, or its times run backwards.
    pub fn new(trace: &Trace) -> Result<Replayer, TraceError> {
        let program = Program::of(trace)?;
        let computing = program.computing_us();
        Ok(Replayer {
            computing_s: computing.into_iter().map(|us| us / 1e6).collect(),
            program,
        })
    }

    /// Processes of the program.
    pub fn process_count(&self) -> usize {
        self.program.steps.len()
    }

    /// Seconds that each process computes, outside MPI.
    pub fn computing_s(&self) -> &[f64] {
        &self.computing_s
    }

    /// Sends whose receive, and receives whose send, is not in the trace. They are taken as met.
    pub fn unmatched_count(&self) -> usize {
        let messages = self.program.messages.iter();
        messages
            .filter(|message| !(message.has_send && message.has_receive))
            .count()
    }

    /// The program on `hosts` hosts, at most one a process, that `between` connects; processes of one
    /// host use `within`. Both networks have to be sound ([`Network::check`]).
    ///
    /// # Errors
    /// A process waits for what none sends.
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
        if most.0 > WORTH_IT * self.seconds {
            most.1
        } else {
            Bound::Computing
        }
    }
}

/// The first of `predictions` that takes at most a twentieth longer than the best: given in ascending
/// order of what the networks cost, the cheapest one that will do. `None` if there are none.
pub fn smallest_sufficient(predictions: &[Prediction]) -> Option<&Prediction> {
    let best = predictions.iter().map(|one| one.seconds).reduce(f64::min)?;
    predictions
        .iter()
        .find(|one| one.seconds <= best * (1.0 + WORTH_IT))
}

#[cfg(test)]
mod tests;
