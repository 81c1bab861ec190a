// SPDX-License-Identifier: MIT OR Apache-2.0
//! Half-power point: the message size at which a system reaches half of its best end-to-end
//! throughput. Throughput is the size divided by half the round trip.

use crate::args::{Metric, Path};
use crate::schema::Row;
use serde::{Deserialize, Serialize};

/// Minimum number of sizes in a series.
const SIZES_MIN: usize = 4;

/// Half-power point of one system on one path, from a series of ping-pongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HalfPower {
    /// System, as in the rows.
    pub system: String,
    /// Path, as in the rows.
    pub path: Path,
    /// Best end-to-end throughput of the series, in 10^6 bytes per second.
    pub peak_mbytes_per_s: f64,
    /// Message size that reached the peak.
    pub peak_size: usize,
    /// Message size that would reach half of the peak, interpolated between the two nearest
    /// measured sizes.
    pub half_power_bytes: f64,
    /// Half the round trip of the shortest message, D(S_min), in microseconds.
    #[serde(default)]
    pub latency_us: f64,
    /// B = (S - S_min) / (D(S) - D(S_min)) of the longest message S, the asymptotic bandwidth as
    /// defined in GAMMA's papers. It is 0 if the longest message is not slower than the shortest.
    #[serde(default)]
    pub asymptotic_mbytes_per_s: f64,
    /// Message size with a throughput of B / 2; absent if no size is that fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asymptotic_half_power_bytes: Option<f64>,
}

/// Returns the half-power points of all series in `rows` that are long enough.
pub(crate) fn of(rows: &[Row]) -> Vec<HalfPower> {
    let mut points: Vec<HalfPower> = Vec::new();
    for row in rows.iter().filter(|row| row.metric == Metric::Pingpong) {
        // Conditions of a row, such as a cipher, are not part of a point's name.
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

/// Returns D(S_min), and B of the longest message.
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

/// Returns the end-to-end throughput in 10^6 bytes per second.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^30")]
pub fn throughput(row: &Row) -> f64 {
    row.size as f64 / row.p50_us
}

/// Returns the size at which the series first reaches `level`, interpolated linearly in the
/// logarithm of the size.
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

    /// Returns rows with a latency of 10 µs and 100 bytes per microsecond. Their half-power point
    /// is 1000 bytes.
    fn rows(sizes: &[u32]) -> Vec<Row> {
        let row = |size: &u32| Row {
            size: *size as usize,
            p50_us: 10.0 + f64::from(*size) / 100.0,
            ..report().results[0].clone()
        };
        sizes.iter().map(row).collect()
    }

    #[test]
    fn half_power_point_is_interpolated() {
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
    fn too_few_sizes_are_no_series() {
        assert!(of(&rows(&[8, 64, 1024])).is_empty());
    }
}
