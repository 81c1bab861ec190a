// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole field, the arithmetic of one cell, and the sequential solution.

use crate::HeatError;
use crate::decompose::Rect;

/// Largest stable `alpha`: the explicit five-point scheme needs (D dt / dx^2) <= 1/4 in two
/// dimensions (von Neumann analysis; Courant, Friedrichs and Lewy 1928).
pub const ALPHA_MAX: f64 = 0.25;

/// Smallest side: one inner cell between two boundary cells.
pub const SIDE_MIN: usize = 3;

/// Largest side: a square field of that size takes 8 GiB, which is as much as rank 0 should hold.
pub const SIDE_MAX: usize = 32768;

/// Temperatures, row by row; 0 is black in the image and 1 is white.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    width: usize,
    height: usize,
    cells: Vec<f64>,
}

impl Field {
    /// Creates a field of equal cells.
    ///
    /// # Errors
    /// [`HeatError::BadSize`] when a side is too short or too long.
    pub fn new(width: usize, height: usize) -> Result<Self, HeatError> {
        check_size(width, height)?;
        Ok(Field {
            width,
            height,
            cells: vec![0.0; width * height],
        })
    }

    /// Returns the number of cells across.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of cells down.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns all cells, row by row.
    #[must_use]
    pub fn cells(&self) -> &[f64] {
        &self.cells
    }

    /// Returns all cells for writing, row by row.
    pub fn cells_mut(&mut self) -> &mut [f64] {
        &mut self.cells
    }

    /// Copies a rectangle out, row by row.
    ///
    /// # Panics
    /// When `rect` reaches beyond the field.
    #[must_use]
    pub fn cut(&self, rect: &Rect) -> Vec<f64> {
        let rows = rect.y.clone();
        rows.flat_map(|y| &self.cells[y * self.width..][rect.x.clone()])
            .copied()
            .collect()
    }

    /// Copies a rectangle in, row by row.
    ///
    /// # Panics
    /// When `rect` reaches beyond the field or `cells` does not fill it.
    pub fn paste(&mut self, rect: &Rect, cells: &[f64]) {
        assert_eq!(cells.len(), rect.cell_count(), "cells of the rectangle");
        for (y, row) in rect.y.clone().zip(cells.chunks_exact(rect.x.len())) {
            self.cells[y * self.width..][rect.x.clone()].copy_from_slice(row);
        }
    }

    /// Returns the field after `steps` steps, computed in the simplest way by one process. It
    /// shares only [`diffuse`] with the parallel solution, so that it can verify that solution.
    #[must_use]
    pub fn diffused(&self, alpha: f64, steps: u64) -> Field {
        let mut now = self.clone();
        let mut next = self.clone();
        let at = |field: &Field, x: usize, y: usize| field.cells[y * field.width + x];
        for _ in 0..steps {
            for y in 1..self.height - 1 {
                for x in 1..self.width - 1 {
                    let (west, east) = (at(&now, x - 1, y), at(&now, x + 1, y));
                    let (north, south) = (at(&now, x, y - 1), at(&now, x, y + 1));
                    let cell = diffuse(at(&now, x, y), [west, east, north, south], alpha);
                    next.cells[y * self.width + x] = cell;
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        now
    }

    /// Returns column and row of the first cell whose bits differ from those of `other`, and the
    /// number of such cells.
    #[must_use]
    pub fn difference(&self, other: &Field) -> Option<((usize, usize), usize)> {
        let pairs = self.cells.iter().zip(&other.cells).enumerate();
        let mut unequal = pairs.filter(|(_, (a, b))| a.to_bits() != b.to_bits());
        let (first, _) = unequal.next()?;
        Some((
            (first % self.width, first / self.width),
            1 + unequal.count(),
        ))
    }
}

/// Returns the next value of a cell from its own value and those of its western, eastern, northern
/// and southern neighbours. The order of the operations is part of the result.
#[inline]
#[must_use]
pub fn diffuse(centre: f64, [west, east, north, south]: [f64; 4], alpha: f64) -> f64 {
    centre + alpha * ((west + east) + (north + south) - 4.0 * centre)
}

/// Returns an error for an `alpha` for which the scheme is unstable.
///
/// # Errors
/// [`HeatError::Unstable`].
pub fn check_alpha(alpha: f64) -> Result<(), HeatError> {
    if alpha > 0.0 && alpha <= ALPHA_MAX {
        return Ok(());
    }
    Err(HeatError::Unstable {
        alpha,
        most: ALPHA_MAX,
    })
}

/// Returns an error for a field without interior, or one that is too large for memory.
///
/// # Errors
/// [`HeatError::BadSize`].
pub fn check_size(width: usize, height: usize) -> Result<(), HeatError> {
    let how = match (width.min(height), width.max(height)) {
        (..SIDE_MIN, _) => "small",
        (_, ..=SIDE_MAX) => return Ok(()),
        _ => "large",
    };
    Err(HeatError::BadSize {
        width,
        height,
        how,
        least: SIDE_MIN,
        most: SIDE_MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak() -> Field {
        let mut field = Field::new(5, 5).unwrap();
        field.cells_mut()[12] = 1.0;
        field
    }

    #[test]
    fn heat_spreads_to_four_neighbours_and_is_conserved_inside() {
        let after = peak().diffused(0.125, 1);
        let expected = [(12, 0.5), (11, 0.125), (13, 0.125), (7, 0.125), (17, 0.125)];
        for (index, value) in expected {
            assert_eq!(after.cells()[index], value);
        }
        assert_eq!(after.cells().iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn a_linear_profile_is_steady_and_the_boundary_stays() {
        let mut field = Field::new(9, 4).unwrap();
        for (index, cell) in field.cells_mut().iter_mut().enumerate() {
            *cell = f64::from(u32::try_from(index % 9).unwrap()) / 8.0;
        }
        assert_eq!(field.diffused(0.25, 50), field);
    }

    #[test]
    fn extracted_block_is_restored_unchanged() {
        let mut field = peak();
        let rect = Rect { x: 1..4, y: 2..5 };
        let cells = field.cut(&rect);
        assert_eq!(cells[1], 1.0);
        field.paste(&rect, &cells);
        assert_eq!(field, peak());
    }

    #[test]
    fn a_difference_names_the_cell() {
        let mut other = peak();
        assert_eq!(peak().difference(&other), None);
        other.cells_mut()[13] = -0.0;
        other.cells_mut()[24] = 1e-300;
        assert_eq!(peak().difference(&other), Some(((3, 2), 2)));
    }

    #[test]
    fn alpha_beyond_the_stability_limit_is_refused() {
        assert!(check_alpha(ALPHA_MAX).is_ok());
        for alpha in [0.0, -0.1, 0.2500001, f64::NAN, f64::INFINITY] {
            assert!(check_alpha(alpha).is_err(), "{alpha}");
        }
    }

    #[test]
    fn fields_without_interior_and_giants_are_refused() {
        assert!(check_size(3, SIDE_MAX).is_ok());
        assert!(
            check_size(2, 9)
                .unwrap_err()
                .to_string()
                .contains("too small")
        );
        assert!(
            check_size(9, SIDE_MAX + 1)
                .unwrap_err()
                .to_string()
                .contains("too large")
        );
    }
}
