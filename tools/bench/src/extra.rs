// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that only some rows have, beyond times and throughput.

use crate::costs::Costs;
use crate::cpu::Cpu;
use crate::logp::LogP;
use crate::rounds::median;
use crate::verdict::Versus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Half round trips of a ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
}

/// A receiver's contribution to the sender's sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Processor seconds per 10^9 bytes received.
    pub(crate) cpu_s_per_gb: Option<f64>,
    /// Cost of a message at the receiver.
    #[serde(default, rename = "effort")]
    pub(crate) costs: Costs,
    /// Counters by name.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, u64>,
}

/// Fields of a row that only some metrics have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// Processor time per byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// `loaded`: the same ping-pong without the stream. The row's own times are with the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Latency>,
    /// `loaded`: throughput of the stream during the ping-pong, in 10^6 bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bulk_mbytes_per_s: Option<f64>,
    /// Throughput relative to the same work without loss or interference, or to a single sender
    /// (`incast`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relative: Option<f64>,
    /// Comparisons with the same work by other systems, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versus: BTreeMap<String, Versus>,
    /// `incast`: throughput of a single sender in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_mbytes_per_s: Option<f64>,
    /// `incast`: completion time of each sender's message, in the order of the senders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) finish_us: Vec<f64>,
    /// `logp`: the model's parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logp: Option<LogP>,
    /// Cost of a message at each end, if requested.
    #[serde(default, flatten)]
    pub(crate) costs: Costs,
    /// Counters of both ends, summed over all rounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

impl Extra {
    /// Combines the rounds: medians of measured values, sums of counters.
    pub(crate) fn of_rounds(rounds: &[Extra]) -> Extra {
        let figure = |field: fn(&Extra) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(field).collect();
            (!values.is_empty()).then(|| median(values))
        };
        let cpu = figure(|extra| Some(extra.cpu?.sender_s_per_gb))
            .zip(figure(|extra| Some(extra.cpu?.receiver_s_per_gb)));
        let idle =
            figure(|extra| Some(extra.idle?.p50_us)).zip(figure(|extra| Some(extra.idle?.p99_us)));
        let mut counters = BTreeMap::new();
        for (name, count) in rounds.iter().flat_map(|extra| &extra.counters) {
            *counters.entry(name.clone()).or_insert(0) += count;
        }
        Extra {
            cpu: cpu.map(|(sender_s_per_gb, receiver_s_per_gb)| Cpu {
                sender_s_per_gb,
                receiver_s_per_gb,
            }),
            idle: idle.map(|(p50_us, p99_us)| Latency { p50_us, p99_us }),
            bulk_mbytes_per_s: figure(|extra| extra.bulk_mbytes_per_s),
            relative: None,
            versus: BTreeMap::new(),
            single_mbytes_per_s: figure(|extra| extra.single_mbytes_per_s),
            finish_us: finishing_times(rounds),
            logp: LogP::of_rounds(
                &rounds
                    .iter()
                    .filter_map(|extra| extra.logp)
                    .collect::<Vec<_>>(),
            ),
            costs: Costs::of_rounds(rounds.iter().map(|extra| &extra.costs)),
            counters,
        }
    }
}

fn finishing_times(rounds: &[Extra]) -> Vec<f64> {
    let senders = rounds
        .iter()
        .map(|extra| extra.finish_us.len())
        .min()
        .unwrap_or(0);
    let of = |index: usize| median(rounds.iter().map(|extra| extra.finish_us[index]).collect());
    (0..senders).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_averaged_and_counts_added() {
        let round = |value: f64, count: u64| Extra {
            cpu: Some(Cpu {
                sender_s_per_gb: value,
                receiver_s_per_gb: 2.0 * value,
            }),
            finish_us: vec![value, 3.0 * value],
            counters: [("retransmits".to_owned(), count)].into(),
            ..Extra::default()
        };
        let all = Extra::of_rounds(&[round(1.0, 1), round(5.0, 2), round(2.0, 4)]);
        let cpu = all.cpu.expect("every round has it");
        assert_eq!((cpu.sender_s_per_gb, cpu.receiver_s_per_gb), (2.0, 4.0));
        assert_eq!(all.finish_us, [2.0, 6.0]);
        assert_eq!(all.counters["retransmits"], 7);
        assert_eq!(all.idle, None);
        assert_eq!(Extra::of_rounds(&[]), Extra::default());
    }
}
