// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistical comparison of two results.

use crate::schema::Row;
use serde::{Deserialize, Serialize};

/// Minimum number of rounds for a comparison of their spread.
const ROUNDS_MIN: usize = 3;

/// A row compared with another system's row of the same path, size and network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// Headline figure divided by the other row's.
    pub ratio: f64,
    /// Set if the interquartile ranges of the rounds do not overlap; absent if there are too few
    /// rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinguishable: Option<bool>,
}

/// Compares `row` with `other`; returns `None` if the other row has no figure.
pub fn compare(row: &Row, other: &Row) -> Option<Versus> {
    (other.headline() > 0.0).then(|| Versus {
        ratio: row.headline() / other.headline(),
        distinguishable: apart(&row.per_round, &other.per_round),
    })
}

/// Returns true if the interquartile ranges of two systems' rounds do not overlap; `None` if there
/// are too few rounds.
pub fn apart(one: &[f64], other: &[f64]) -> Option<bool> {
    let enough = one.len() >= ROUNDS_MIN && other.len() >= ROUNDS_MIN;
    let ((low, high), (other_low, other_high)) = (quartiles(one)?, quartiles(other)?);
    enough.then_some(high < other_low || other_high < low)
}

/// Returns the lower and upper quartile, interpolated linearly between values.
pub fn quartiles(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of a handful of rounds"
    )]
    let at = |share: f64| {
        let place = share * last as f64;
        let below = place.floor() as usize;
        let above = (below + 1).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * place.fract()
    };
    Some((at(0.25), at(0.75)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::report;

    fn row(per_round: &[f64]) -> Row {
        Row {
            per_round: per_round.to_vec(),
            ..report().results[0].clone()
        }
    }

    #[test]
    fn overlapping_interquartile_ranges_are_not_distinguishable() {
        let verdict = |one: &[f64], other: &[f64]| {
            let versus = compare(&row(one), &row(other)).expect("figures");
            versus.distinguishable
        };
        let base = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(verdict(&base, &[3.9, 4.9, 5.9, 6.9, 7.9]), Some(true));
        assert_eq!(verdict(&base, &[2.5, 3.5, 3.9, 4.9, 5.9]), Some(false));
        assert_eq!(verdict(&[5.9, 6.9, 7.9], &base), Some(true));
        assert_eq!(verdict(&base[..2], &base), None);
        assert_eq!(quartiles(&base), Some((2.0, 4.0)));
        assert_eq!(quartiles(&[]), None);
    }
}
