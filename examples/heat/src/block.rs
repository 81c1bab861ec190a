// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the field that one process owns, with a ring of ghost cells around it.
//!
//! Coordinates are relative to the block: column 0, row 0 is its first own cell. The cells have two
//! copies, for the current and the next step. Cells on the field's boundary are equal in both and
//! are never written.

use crate::decompose::{Direction, Layout, Rect};
use crate::field::diffuse;

/// A block of cells.
pub struct Block {
    width: usize,
    height: usize,
    now: Vec<f64>,
    next: Vec<f64>,
    areas: Areas,
}

/// Cells that change, grouped by the cells that they need.
struct Areas {
    /// Needs no ghost cell, and is computed while the halo is in flight.
    inner: Rect,
    /// The other cells, in four strips that do not overlap.
    rim: [Rect; 4],
}

impl Block {
    /// Creates `rank`'s block from its `cells`, row by row.
    ///
    /// # Panics
    /// When `cells` does not fill the block.
    #[must_use]
    pub fn new(layout: &Layout, rank: usize, cells: &[f64]) -> Self {
        let rect = layout.rect(rank);
        let (width, height) = (rect.x.len(), rect.y.len());
        assert_eq!(cells.len(), width * height, "cells of the block");
        let mut now = vec![0.0; (width + 2) * (height + 2)];
        for (y, row) in cells.chunks_exact(width).enumerate() {
            now[(y + 1) * (width + 2) + 1..][..width].copy_from_slice(row);
        }
        Block {
            width,
            height,
            next: now.clone(),
            now,
            areas: Areas::new(layout, &rect),
        }
    }

    /// Returns the cells, row by row, without ghosts.
    #[must_use]
    pub fn cells(&self) -> Vec<f64> {
        let rows = (0..self.height).map(|y| self.index(0, y));
        rows.flat_map(|start| &self.now[start..][..self.width])
            .copied()
            .collect()
    }

    /// Returns the own cells along the edge in `direction`.
    pub fn edge(&self, direction: Direction) -> impl ExactSizeIterator<Item = &f64> {
        let (start, stride, len) = self.edge_line(direction);
        self.now[start..].iter().step_by(stride).take(len)
    }

    /// Returns the ghost cells beyond the edge in `direction`.
    pub fn ghosts_mut(&mut self, direction: Direction) -> impl ExactSizeIterator<Item = &mut f64> {
        let (start, stride, len) = self.ghost_line(direction);
        self.now[start..].iter_mut().step_by(stride).take(len)
    }

    /// Computes the next step of the cells that need no ghosts.
    pub fn relax_inner(&mut self, alpha: f64) {
        let inner = self.areas.inner.clone();
        self.relax(&inner, alpha);
    }

    /// Computes the next step of the remaining cells, and makes the next step the current one.
    pub fn relax_rim(&mut self, alpha: f64) {
        for strip in self.areas.rim.clone() {
            self.relax(&strip, alpha);
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    fn relax(&mut self, area: &Rect, alpha: f64) {
        let (stride, len) = (self.stride(), area.x.len());
        for y in area.y.clone() {
            let start = self.index(area.x.start, y);
            let row = |from: usize| self.now[from..][..len].iter();
            let sides = row(start - 1).zip(row(start + 1));
            let poles = row(start - stride).zip(row(start + stride));
            let next = self.next[start..][..len].iter_mut();
            for (((cell, centre), (west, east)), (north, south)) in
                next.zip(row(start)).zip(sides).zip(poles)
            {
                *cell = diffuse(*centre, [*west, *east, *north, *south], alpha);
            }
        }
    }

    /// Returns the number of cells in a stored row: the own cells and two ghosts.
    fn stride(&self) -> usize {
        self.width + 2
    }

    /// Returns the index of the own cell at column `x`, row `y`.
    fn index(&self, x: usize, y: usize) -> usize {
        (y + 1) * self.stride() + x + 1
    }

    /// Returns first index, distance between cells and number of the own cells along an edge.
    fn edge_line(&self, direction: Direction) -> (usize, usize, usize) {
        let (start, along_column) = match direction {
            Direction::West => (self.index(0, 0), true),
            Direction::East => (self.index(self.width - 1, 0), true),
            Direction::North => (self.index(0, 0), false),
            Direction::South => (self.index(0, self.height - 1), false),
        };
        if along_column {
            (start, self.stride(), self.height)
        } else {
            (start, 1, self.width)
        }
    }

    /// Returns the same for the ghost cells one step outwards.
    fn ghost_line(&self, direction: Direction) -> (usize, usize, usize) {
        let (start, stride, len) = self.edge_line(direction);
        let outwards = match direction {
            Direction::West => start - 1,
            Direction::East => start + 1,
            Direction::North => start - self.stride(),
            Direction::South => start + self.stride(),
        };
        (outwards, stride, len)
    }
}

impl Areas {
    fn new(layout: &Layout, rect: &Rect) -> Self {
        let (x, left, right) = split(&rect.x, layout.width);
        let (y, top, bottom) = split(&rect.y, layout.height);
        let across = left.start..right.end;
        let rim = [
            Rect {
                x: across.clone(),
                y: top,
            },
            Rect {
                x: across,
                y: bottom,
            },
            Rect {
                x: left,
                y: y.clone(),
            },
            Rect {
                x: right,
                y: y.clone(),
            },
        ];
        Areas {
            inner: Rect { x, y },
            rim,
        }
    }
}

type Span = std::ops::Range<usize>;

/// Splits the changing part of one dimension of a block. `own` is the block's part of a field of
/// `len` cells. Returns the part that needs no ghost, and the parts before and after it.
fn split(own: &Span, len: usize) -> (Span, Span, Span) {
    let start = own.start.max(1) - own.start;
    // A block may consist entirely of the field's boundary.
    let end = (own.end.min(len - 1)).saturating_sub(own.start).max(start);
    let inner_start = start.max(1).min(end);
    let inner_end = end.min(own.len() - 1).max(inner_start);
    (inner_start..inner_end, start..inner_start, inner_end..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(layout: &Layout, rank: usize) -> Block {
        let count = u32::try_from(layout.rect(rank).cell_count()).unwrap();
        let cells: Vec<f64> = (0..count).map(f64::from).collect();
        Block::new(layout, rank, &cells)
    }

    #[test]
    fn areas_cover_what_changes_exactly_once() {
        for (width, height, ranks) in [(3, 3, 1), (3, 3, 9), (4, 9, 6), (12, 12, 9), (30, 5, 7)] {
            let layout = Layout::new(width, height, ranks).unwrap();
            for rank in 0..ranks {
                let rect = layout.rect(rank);
                let areas = Areas::new(&layout, &rect);
                let mut visits = vec![0; rect.cell_count()];
                for area in areas.rim.iter().chain([&areas.inner]) {
                    for y in area.y.clone() {
                        area.x
                            .clone()
                            .for_each(|x| visits[y * rect.x.len() + x] += 1);
                    }
                }
                for (index, count) in visits.into_iter().enumerate() {
                    let x = rect.x.start + index % rect.x.len();
                    let y = rect.y.start + index / rect.x.len();
                    let changes = (1..width - 1).contains(&x) && (1..height - 1).contains(&y);
                    assert_eq!(
                        count,
                        usize::from(changes),
                        "{layout:?} rank {rank} ({x}, {y})"
                    );
                }
            }
        }
    }

    #[test]
    fn edges_are_the_outermost_own_cells() {
        let layout = Layout::new(4, 3, 1).unwrap();
        let block = numbered(&layout, 0);
        let edge = |direction| block.edge(direction).copied().collect::<Vec<_>>();
        assert_eq!(edge(Direction::North), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(edge(Direction::South), [8.0, 9.0, 10.0, 11.0]);
        assert_eq!(edge(Direction::West), [0.0, 4.0, 8.0]);
        assert_eq!(edge(Direction::East), [3.0, 7.0, 11.0]);
    }

    #[test]
    fn ghosts_are_beside_the_edges_and_not_among_the_own_cells() {
        let layout = Layout::new(6, 6, 4).unwrap();
        let mut block = numbered(&layout, 3);
        let before = block.cells();
        for direction in Direction::ALL {
            block.ghosts_mut(direction).for_each(|cell| *cell = 100.0);
        }
        assert_eq!(block.cells(), before);
        let ghosts = block.now.iter().filter(|cell| **cell == 100.0).count();
        assert_eq!(ghosts, 12);
    }
}
