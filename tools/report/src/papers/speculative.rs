// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of speculative defragmentation: zero-copy streams, and the effect of wrong predictions.

use super::{Table, name, table, words};
use crate::answers::float;
use crate::data::Data;
use crate::units;
use portolan_bench::{Metric, Path, Row};

const COPIES: &str = "Speculative defragmentation on Gigabit Ethernet, Figures 1 and 5";
const INTERFERENCE: &str = "Speculative defragmentation on Gigabit Ethernet, Table 1 and Figure 6";
const SUCCESS: &str = "Speculative defragmentation on Gigabit Ethernet, Table 2";

/// Returns the table of streams by placement of their payload.
pub(super) fn copies(data: &Data<'_>) -> Option<Table> {
    let streams = data.report.results.iter().filter(|row| {
        row.metric == Metric::Stream
            && (row.conditions.loss_ppm, row.conditions.interfere) == (0, 0)
            && row.conditions.describe().starts_with("placement ")
    });
    let size = streams.clone().map(|row| row.size).max()?;
    let mut now: Vec<Vec<String>> = streams
        .filter(|row| row.size == size && row.path != Path::Auto)
        .map(|row| {
            let name = format!(
                "{}, {}",
                name(("portolan", row.path)),
                row.conditions.describe()
            );
            vec![name, units::rate(row.mbytes_per_s)]
        })
        .collect();
    let tcp = data.tcp(Metric::Stream, false, size);
    now.extend(tcp.map(|row| vec!["TCP".to_owned(), units::rate(row.mbytes_per_s)]));
    table(Table {
        title: "Streams with and without a copy at the receiver".into(),
        source: COPIES,
        head: vec!["system", "throughput"],
        then: words(&[
            ["TCP, Gigabit Ethernet", "42 MB/s"],
            ["speculation alone", "45 MB/s"],
            ["speculation, pages remapped", "65 MB/s"],
            ["speculation, fbufs", "75 MB/s"],
        ]),
        now,
        caption: format!("Messages of {}.", units::bytes(float(size))),
    })
}

/// Returns Portolan's streams without loss, with the longest messages among the rows selected by
/// `is_selected`. Other streams may have longer messages.
fn streams<'a>(data: &Data<'a>, is_selected: impl Fn(&Row) -> bool) -> Vec<&'a Row> {
    let rows = data.report.results.iter().filter(|row| {
        row.metric == Metric::Stream
            && (row.system.as_str(), row.conditions.loss_ppm) == ("portolan", 0)
    });
    let size = rows
        .clone()
        .filter(|row| is_selected(row))
        .map(|row| row.size)
        .max();
    rows.filter(|row| Some(row.size) == size).collect()
}

fn is_disturbed(row: &Row) -> bool {
    row.conditions.interfere > 0
}

/// Returns true if a placement was configured.
fn is_placed(row: &Row) -> bool {
    row.conditions.describe().starts_with("placement ")
}

/// Returns the configured placement, or `as it chooses`.
fn setting(row: &Row) -> String {
    let mut plain = row.conditions;
    plain.interfere = 0;
    let setting = plain.describe();
    let setting = if setting.is_empty() {
        "auto".into()
    } else {
        setting
    };
    format!("{}, {setting}", name(("portolan", row.path)))
}

/// Datagrams of the stream that the number of foreign datagrams is based on.
const OF: f64 = 1e5;

fn foreign(row: &Row) -> f64 {
    match row.conditions.interfere {
        0 => 0.0,
        each => OF / f64::from(each),
    }
}

/// Returns the numbers of correctly and wrongly placed frames.
#[allow(clippy::cast_precision_loss, reason = "a share is shown")]
fn guesses(row: &Row) -> Option<(f64, f64)> {
    let count = |what: &str| {
        let count = row.extra.counters.get(&format!("receiver: {what}"));
        count.map_or(0.0, |count| *count as f64)
    };
    let (right, wrong) = (count("frames placed"), count("frames misplaced"));
    (right + wrong > 0.0).then_some((right, wrong))
}

pub(super) fn interference(data: &Data<'_>) -> Option<Table> {
    let now = streams(data, is_disturbed).into_iter().map(|row| {
        let failed = guesses(row).map_or_else(
            || "–".into(),
            |(right, wrong)| units::digits(OF * wrong / (right + wrong)),
        );
        let foreign = units::digits(foreign(row));
        vec![setting(row), foreign, failed, units::rate(row.mbytes_per_s)]
    });
    table(Table {
        title: "Foreign packets among those of a stream".into(),
        source: INTERFERENCE,
        head: vec!["system", "foreign of 100,000", "wrong predictions", "throughput"],
        then: words(&[
            ["speculation", "0", "2", "75 MB/s"],
            ["speculation", "100", "15", "73 MB/s"],
            ["speculation", "10,000", "28", "63 MB/s"],
        ]),
        now: now.collect(),
        caption:
            "A packet from elsewhere lands where one of the stream was expected, and the guess \
                  has failed. Failures are of 100,000 packets then, and of 100,000 frames whose place was \
                  guessed now."
                .into(),
    })
}

/// Returns the table of the two fallbacks: a receiver without prediction, and the most frequent
/// wrong predictions.
pub(super) fn fallback(data: &Data<'_>) -> Option<Table> {
    let rows = streams(data, is_disturbed);
    let with = |placement: &str, row: &&&Row| row.conditions.describe().contains(placement);
    let bounced = rows
        .iter()
        .find(|row| with("bounce", row) && !is_disturbed(row));
    let guessed = || rows.iter().filter(|row| with("speculative", row));
    let worst = guessed()
        .filter(|row| is_disturbed(row))
        .min_by_key(|row| row.conditions.interfere);
    let best = guessed().find(|row| !is_disturbed(row));
    let row = |name: &str, row: &Row| vec![name.to_owned(), units::rate(row.mbytes_per_s)];
    let mut now: Vec<Vec<String>> = Vec::new();
    if let (Some(bounced), Some(worst)) = (bounced, worst) {
        now.extend(best.map(|best| row("all predictions right, or nearly", best)));
        now.push(row("no prediction (bounce)", bounced));
        let disturbed = format!("{} foreign of 100,000", units::digits(foreign(worst)));
        now.push(row(&disturbed, worst));
    }
    table(Table {
        title: "Without a prediction, or with a wrong one".into(),
        source: INTERFERENCE,
        head: vec!["receiver", "throughput"],
        then: words(&[
            ["TCP, standard", "42 MB/s"],
            [
                "not prepared for fragments of the driver",
                "slightly above 42 MB/s",
            ],
            ["every prediction wrong", "35 MB/s"],
        ]),
        now,
        caption:
            "Then, a receiver with only wrong predictions had a sixth less throughput than one without predictions. The cost of wrong predictions now is the difference between today's rows."
                .into(),
    })
}

/// Returns the table of the success rate of predictions.
pub(super) fn success(data: &Data<'_>) -> Option<Table> {
    const PERCENT: f64 = 100.0;
    let placed = streams(data, is_placed);
    let all = match placed.is_empty() {
        true => streams(data, |row| row.path != Path::Shm),
        false => placed,
    };
    let now = all.into_iter().filter_map(|row| {
        let (right, wrong) = guesses(row)?;
        let from = match row.conditions.interfere {
            0 => String::new(),
            _ => format!(", {} foreign of 100,000", units::digits(foreign(row))),
        };
        Some(vec![
            format!("{}{from}", setting(row)),
            units::digits(right + wrong),
            units::digits(right),
            format!("{:.1} %", PERCENT * right / (right + wrong)),
        ])
    });
    table(Table {
        title: "Share of right predictions".into(),
        source: SUCCESS,
        head: vec!["receiver", "could be", "were", "right"],
        then: words(&[
            ["TPC-D, master", "26,505", "12,745", "48 %"],
            ["TPC-D, host 1", "12,611", "12,611", "100 %"],
            ["TPC-D, host 2", "13,894", "13,894", "100 %"],
            ["SOR on TreadMarks, master", "14,670", "14,458", "99 %"],
            ["SOR on TreadMarks, host 1", "10,231", "10,225", "100 %"],
            ["SOR on TreadMarks, host 2", "10,135", "10,133", "100 %"],
        ]),
        now: now.collect(),
        caption: "Packets then, frames now, that could be received at their place, and that were. Two hosts \
                  that send at once to a master were what made its guesses wrong."
            .into(),
    })
}
