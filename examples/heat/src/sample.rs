// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample field to start from without an image.

use crate::HeatError;
use crate::field::Field;

/// Centre, radius (in units of the field's sides) and temperature of the hot discs.
const DISCS: [(f64, f64, f64, f64); 4] = [
    (0.30, 0.35, 0.16, 1.0),
    (0.72, 0.28, 0.09, 0.8),
    (0.62, 0.70, 0.20, 0.6),
    (0.2, 0.8, 0.05, 1.0),
];

/// Creates hot discs on a cold ground, between a warm western and a cold eastern rim.
///
/// # Errors
/// [`HeatError::BadSize`].
pub fn field(width: usize, height: usize) -> Result<Field, HeatError> {
    let mut field = Field::new(width, height)?;
    for (y, row) in field.cells_mut().chunks_exact_mut(width).enumerate() {
        for (x, cell) in row.iter_mut().enumerate() {
            *cell = temperature(middle(x, width), middle(y, height));
        }
    }
    Ok(field)
}

/// Returns the position of cell `index` of `len` between 0 and 1.
fn middle(index: usize, len: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "sides are far below 2^52")]
    let (index, len) = (index as f64, len as f64);
    (index + 0.5) / len
}

fn temperature(x: f64, y: f64) -> f64 {
    let hottest = DISCS
        .iter()
        .filter(|(cx, cy, radius, _)| (x - cx).hypot(y - cy) < *radius)
        .map(|disc| disc.3);
    hottest.fold(0.25 * (1.0 - x), f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_covers_the_range_without_exceeding_it() {
        let field = field(64, 48).unwrap();
        let hottest = field.cells().iter().copied().fold(f64::MIN, f64::max);
        let coldest = field.cells().iter().copied().fold(f64::MAX, f64::min);
        assert_eq!(hottest, 1.0);
        assert!((0.0..0.01).contains(&coldest), "{coldest}");
    }
}
