// SPDX-License-Identifier: MIT OR Apache-2.0
//! The half-power point: the message size at which a system reaches half of its best end-to-end
//! throughput, which is the size divided by half the round trip.

use crate::args::{Metric, Path};
use crate::schema::Row;
use serde::{Deserialize, Serialize};

/// Fewer sizes make no series.
const SIZES_MIN: usize = 4;

/// Of one system on one path, from a series of ping-pongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HalfPower {
    /// As in the rows.
    pub system: String,
    /// As in the rows.
    pub path: Path,
    /// Best end-to-end throughput of the series, in 10^6 bytes per second.
    pub peak_mbytes_per_s: f64,
    /// Size of message that reached it.
    pub peak_size: usize,
    /// Size of message that would reach half of it, between the two measured sizes around.
    pub half_power_bytes: f64,
    /// Half the round trip of the shortest message, D(S_min).
    #[serde(default)]
    pub latency_us: f64,
    /// B = (S - S_min) / (D(S) - D(S_min)) of the longest message S, as GAMMA's papers define the
    /// asymptotic bandwidth; 0 where the longest is not slower.
    #[serde(default)]
    pub asymptotic_mbytes_per_s: f64,
    /// Size of message whose throughput would be B / 2; absent where none is that fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asymptotic_half_power_bytes: Option<f64>,
}

/// The half-power points of all series in `rows` that are long enough.
pub(crate) fn of(rows: &[Row]) -> Vec<HalfPower> {
    let mut points: Vec<HalfPower> = Vec::new();
    for row in rows.iter().filter(|row| row.metric == Metric::Pingpong) {
        // A condition of the row, such as a cipher, is not part of a point's name.
        let known = |point: &HalfPower| point.system == row.system && point.path == row.path;
        if !points.iter().any(known) {
            points.extend(of_series(row, rows));
        }
    }
    points
}

fn of_series(of: &Row, rows: &[Row]) -> Option<HalfPower> {
    let same = |row: &&Row| {
        (row.metric, &row.system, row.path) == (of.metric, &of.system, of.path)
            && row.conditions == of.conditions
            && row.p50_us > 0.0
    };
    let asymptote = asymptote(rows.iter().filter(same))?;
    let mut series: Vec<(usize, f64)> = rows
        .iter()
        .filter(same)
        .filter(|row| row.size > 0)
        .map(|row| (row.size, throughput(row)))
        .collect();
    series.sort_by_key(|(size, _)| *size);
    if series.len() < SIZES_MIN {
        return None;
    }
    let (peak_size, peak) = series.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(HalfPower {
        system: of.system.clone(),
        path: of.path,
        peak_mbytes_per_s: peak,
        peak_size,
        half_power_bytes: crossing(&series, peak / 2.0)?,
        latency_us: asymptote.0,
        asymptotic_mbytes_per_s: asymptote.1,
        asymptotic_half_power_bytes: crossing(&series, asymptote.1 / 2.0),
    })
}

/// D(S_min), and B of the longest message.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
fn asymptote<'a>(series: impl Iterator<Item = &'a Row> + Clone) -> Option<(f64, f64)> {
    let shortest = series.clone().min_by_key(|row| row.size)?;
    let longest = series.max_by_key(|row| row.size)?;
    let (bytes, us) = (
        (longest.size - shortest.size) as f64,
        longest.p50_us - shortest.p50_us,
    );
    Some((shortest.p50_us, if us > 0.0 { bytes / us } else { 0.0 }))
}

/// 10^6 bytes per second end to end.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
pub fn throughput(row: &Row) -> f64 {
    row.size as f64 / row.p50_us
}

/// The size at which the series first reaches `level`; straight between two sizes, whose logarithms
/// count.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
fn crossing(series: &[(usize, f64)], level: f64) -> Option<f64> {
    let after = series
        .iter()
        .position(|(_, throughput)| *throughput >= level)?;
    let (size, reached) = (series[after].0 as f64, series[after].1);
    let Some(&(below, before)) = after.checked_sub(1).and_then(|index| series.get(index)) else {
        return Some(size);
    };
    let share = (level - before) / (reached - before);
    let below = below as f64;
    Some((below.ln() + share * (size.ln() - below.ln())).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::report;

    /// A latency of 10 µs and 100 bytes a microsecond: the half-power point of the law is 1000
    /// bytes.
    fn rows(sizes: &[u32]) -> Vec<Row> {
        let row = |size: &u32| Row {
            size: *size as usize,
            p50_us: 10.0 + f64::from(*size) / 100.0,
            ..report().results[0].clone()
        };
        sizes.iter().map(row).collect()
    }

    #[test]
    fn half_of_the_best_is_found_between_two_sizes() {
        let sizes: Vec<u32> = (4..24).map(|shift| 1 << shift).collect();
        let [point] = &of(&rows(&sizes))[..] else {
            panic!("one series")
        };
        assert!(
            (950.0..1050.0).contains(&point.half_power_bytes),
            "{point:?}"
        );
        assert_eq!(point.peak_size, 1 << 23);
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.05;
        assert!(near(point.asymptotic_mbytes_per_s, 100.0), "{point:?}");
        assert!(
            near(point.asymptotic_half_power_bytes.expect("reached"), 1000.0),
            "{point:?}"
        );
    }

    #[test]
    fn few_sizes_are_no_series() {
        assert!(of(&rows(&[8, 64, 1024])).is_empty());
    }
}
