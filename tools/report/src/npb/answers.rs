// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network requirements of the programs, as a sentence and as rows of a comparison.

use super::{Network, Npb, NpbRun, PROGRAMS, Wire};
use crate::units;
use portolan_bench::apart;

/// Maximum ratio to the fastest time that counts as equally good.
const AS_GOOD: f64 = 1.05;

/// Microseconds per second.
pub(super) const MICROS: f64 = 1e6;

/// Times of one program over Portolan's best network and over the MPI's own transport.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Beside {
    pub(super) program: &'static str,
    pub(super) ours: String,
    /// Name of Portolan's best network.
    pub(super) over: String,
    pub(super) own: String,
    /// Portolan's speed relative to the MPI's own transport.
    pub(super) verdict: String,
}

/// Describes the programs for which the network between hosts matters, for each wire.
pub(super) fn answers(npb: &Npb) -> Vec<String> {
    let wires = npb.wires().into_iter();
    wires
        .flat_map(|wire| answers_over(&npb.over(wire), wire))
        .collect()
}

fn answers_over(npb: &Npb, wire: Option<Wire>) -> Vec<String> {
    let Some(most) = npb.most() else {
        return Vec::new();
    };
    let (mut hardly, mut much): (Vec<&str>, Vec<String>) = Default::default();
    for program in PROGRAMS {
        let between = Network::ALL
            .into_iter()
            .filter(|network| !network.is_within());
        let mut runs: Vec<&NpbRun> = between
            .filter_map(|network| npb.run(program, network, most))
            .collect();
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let [fastest, .., slowest] = runs.as_slice() else {
            continue;
        };
        let alike = apart(&fastest.per_round, &slowest.per_round) == Some(false);
        if alike || slowest.seconds <= fastest.seconds * AS_GOOD {
            hardly.push(program);
        } else if let (Some(fast), Some(slow)) = (fastest.network, slowest.network) {
            much.push(format!(
                "{program} takes {} times as long over {} as over {}",
                precise(slowest.seconds / fastest.seconds),
                slow.name(),
                fast.name()
            ));
        }
    }
    let on = wire.map_or_else(
        || format!("{most} processes"),
        |wire| format!("{most} processes with {}", wire.name()),
    );
    let mut sentences = Vec::new();
    if !hardly.is_empty() {
        sentences.push(format!(
            "On {on} the network between hosts hardly matters to {}.",
            hardly.join(" and ")
        ));
    }
    if !much.is_empty() {
        sentences.push(format!("It matters on {on}: {}.", much.join("; ")));
    }
    sentences
}

/// Returns one row per program, either between hosts or within one host.
pub(super) fn beside(npb: &Npb, within: bool) -> Vec<Beside> {
    let Some(most) = npb.most() else {
        return Vec::new();
    };
    let row = |program: &'static str| {
        let runs = |ours: bool| {
            Network::ALL
                .into_iter()
                .filter(move |network| network.is_within() == within)
                .filter(move |network| network.is_portolan() == ours)
                .filter_map(move |network| npb.run(program, network, most))
        };
        let ours = runs(true).min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        let own = runs(false).next()?;
        let verdict = match apart(&ours.per_round, &own.per_round) {
            Some(false) => "alike".to_owned(),
            _ => precise(own.seconds / ours.seconds),
        };
        Some(Beside {
            program,
            ours: units::time(ours.seconds * MICROS),
            over: ours.network?.name(),
            own: units::time(own.seconds * MICROS),
            verdict,
        })
    };
    PROGRAMS.into_iter().filter_map(row).collect()
}

/// Formats a ratio, with two decimals near 1, because fewer would hide the difference.
fn precise(ratio: f64) -> String {
    const NEAR: std::ops::Range<f64> = 0.5..1.95;
    if NEAR.contains(&ratio) {
        format!("{ratio:.2}")
    } else {
        units::ratio(ratio)
    }
}
