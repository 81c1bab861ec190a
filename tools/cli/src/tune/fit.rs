// SPDX-License-Identifier: MIT OR Apache-2.0
//! Least squares with coefficients that are never negative, because costs are not.
//!
//! There are at most eight columns. Every subset is solved by its normal equations, and the best
//! solution without a negative coefficient is taken. This is exact and short; C. Lawson and R.
//! Hanson, Solving Least Squares Problems, chapter 23, prove that the solution is one of these.

/// An observation: its components, its time, and its weight.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) columns: Vec<f64>,
    pub(super) y: f64,
    pub(super) weight: f64,
}

/// Threshold below which two columns count as equal except for rounding.
const SINGULAR: f64 = 1e-9;

/// Share of the remaining error that another column must explain to be included: simpler models
/// predict better.
const GAIN_MIN: f64 = 0.02;

/// Returns the coefficients, one per column; zeros without observations.
pub(super) fn nonnegative(rows: &[Row]) -> Vec<f64> {
    let width = rows.first().map_or(0, |row| row.columns.len());
    let mut subsets: Vec<u32> = (0..1 << width).collect();
    subsets.sort_by_key(|subset| subset.count_ones());
    let mut best = vec![0.0; width];
    let mut least = squares(rows, &best);
    for subset in subsets {
        let Some(solution) = solve(rows, width, subset) else {
            continue;
        };
        let left = squares(rows, &solution);
        if solution.iter().all(|cost| *cost >= 0.0) && left < least * (1.0 - GAIN_MIN) {
            (best, least) = (solution, left);
        }
    }
    best
}

/// Returns coefficients as [`nonnegative`], but of either sign.
pub(super) fn signed(rows: &[Row]) -> Vec<f64> {
    let doubled: Vec<Row> = rows
        .iter()
        .map(|row| {
            let minus = row.columns.iter().map(|column| -column);
            Row {
                columns: row.columns.iter().copied().chain(minus).collect(),
                ..row.clone()
            }
        })
        .collect();
    let both = nonnegative(&doubled);
    let (plus, minus) = both.split_at(both.len() / 2);
    plus.iter()
        .zip(minus)
        .map(|(plus, minus)| plus - minus)
        .collect()
}

/// Returns the weighted sum of squares of the errors of `solution`.
fn squares(rows: &[Row], solution: &[f64]) -> f64 {
    let left = rows.iter().map(|row| {
        let got: f64 = row.columns.iter().zip(solution).map(|(x, c)| x * c).sum();
        ((row.y - got) * row.weight).powi(2)
    });
    left.sum()
}

/// Solves for the columns of `subset` only.
fn solve(rows: &[Row], width: usize, subset: u32) -> Option<Vec<f64>> {
    let used: Vec<usize> = (0..width)
        .filter(|column| subset >> column & 1 == 1)
        .collect();
    if used.is_empty() || used.len() > rows.len() {
        return None;
    }
    // Scale the columns: calls and bytes differ by a factor of a million.
    let scale: Vec<f64> = used.iter().map(|column| norm(rows, *column)).collect();
    if scale.contains(&0.0) {
        return None;
    }
    let at = |row: &Row, i: usize| row.columns[used[i]] / scale[i] * row.weight;
    let mut matrix: Vec<Vec<f64>> = (0..used.len())
        .map(|i| {
            let mut line: Vec<f64> = (0..used.len())
                .map(|j| rows.iter().map(|row| at(row, i) * at(row, j)).sum())
                .collect();
            line.push(rows.iter().map(|row| at(row, i) * row.y * row.weight).sum());
            line
        })
        .collect();
    eliminate(&mut matrix)?;
    let mut solution = vec![0.0; width];
    for (i, column) in used.iter().enumerate() {
        solution[*column] = matrix[i][used.len()] / matrix[i][i] / scale[i];
    }
    Some(solution)
}

fn norm(rows: &[Row], column: usize) -> f64 {
    let squares = rows
        .iter()
        .map(|row| (row.columns[column] * row.weight).powi(2));
    squares.sum::<f64>().sqrt()
}

/// Performs Gauss-Jordan elimination with pivots; `None` if the columns are dependent.
fn eliminate(matrix: &mut [Vec<f64>]) -> Option<()> {
    let size = matrix.len();
    for pivot in 0..size {
        let row = (pivot..size)
            .max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, row);
        if matrix[pivot][pivot].abs() < SINGULAR {
            return None;
        }
        for other in (0..size).filter(|other| *other != pivot) {
            let factor = matrix[other][pivot] / matrix[pivot][pivot];
            let from = matrix[pivot].clone();
            for (to, from) in matrix[other].iter_mut().zip(from) {
                *to -= factor * from;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    fn rows(costs: [f64; 3], noise: f64, seed: u64) -> Vec<Row> {
        let mut rng = StdRng::seed_from_u64(seed);
        (6..16)
            .map(|shift| {
                let bytes = f64::from(1 << shift);
                let columns = vec![1.0, (bytes / 1432.0).ceil(), bytes];
                let y: f64 = columns.iter().zip(costs).map(|(x, c)| x * c).sum();
                let y = y * (1.0 + rng.random_range(-noise..=noise));
                let weight = 1.0 / y;
                Row { columns, y, weight }
            })
            .collect()
    }

    #[test]
    fn fit_is_exact_without_noise() {
        let costs = [2.5, 0.15, 0.0003];
        for (got, want) in nonnegative(&rows(costs, 0.0, 1)).iter().zip(costs) {
            assert!((got / want - 1.0).abs() < 1e-6, "{got} instead of {want}");
        }
    }

    #[test]
    fn fit_predicts_within_noise() {
        for seed in 0..50 {
            let costs = [2.5, 0.15, 0.0003];
            let got = nonnegative(&rows(costs, 0.05, seed));
            assert!(
                (got[0] / costs[0] - 1.0).abs() < 0.15,
                "seed {seed}: {got:?}"
            );
            for row in rows(costs, 0.0, seed) {
                let y: f64 = row.columns.iter().zip(&got).map(|(x, c)| x * c).sum();
                assert!(
                    (y / row.y - 1.0).abs() < 0.06,
                    "seed {seed}: {y} for {}",
                    row.y
                );
            }
        }
    }

    #[test]
    fn only_signed_fit_returns_negative_costs() {
        let row = |x: f64, y: f64| Row {
            columns: vec![1.0, x],
            y,
            weight: 1.0,
        };
        let falling = [row(0.0, 3.0), row(1.0, 2.0), row(2.0, 1.0)];
        assert!(nonnegative(&falling).iter().all(|cost| *cost >= 0.0));
        let got = signed(&falling);
        assert!(
            (got[0] - 3.0).abs() < 1e-9 && (got[1] + 1.0).abs() < 1e-9,
            "{got:?}"
        );
    }

    #[test]
    fn dependent_columns_are_used_once() {
        let row = |x: f64| Row {
            columns: vec![x, x],
            y: 2.0 * x,
            weight: 1.0,
        };
        let got = nonnegative(&[row(1.0), row(2.0), row(3.0)]);
        assert!(
            (got[0] + got[1] - 2.0).abs() < 1e-9 && got.contains(&0.0),
            "{got:?}"
        );
        assert_eq!(nonnegative(&[]), Vec::<f64>::new());
    }
}
