// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decomposition of the field into rectangles, one for each process.

use crate::HeatError;
use std::ops::Range;

/// The four directions to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Towards smaller columns.
    West,
    /// Towards larger columns.
    East,
    /// Towards smaller rows.
    North,
    /// Towards larger rows.
    South,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 4] = [
        Direction::West,
        Direction::East,
        Direction::North,
        Direction::South,
    ];

    /// Returns the opposite direction.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Direction::West => Direction::East,
            Direction::East => Direction::West,
            Direction::North => Direction::South,
            Direction::South => Direction::North,
        }
    }
}

/// A rectangle of cells; empty ranges are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Columns.
    pub x: Range<usize>,
    /// Rows.
    pub y: Range<usize>,
}

impl Rect {
    /// Returns the number of cells.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.x.len() * self.y.len()
    }
}

/// Layout of a field as rows and columns of blocks, one for each process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Cells across the whole field.
    pub width: usize,
    /// Cells down the whole field.
    pub height: usize,
    /// Blocks across.
    pub columns: usize,
    /// Blocks down.
    pub rows: usize,
}

impl Layout {
    /// Cuts a field for `ranks` processes so that the fewest cells lie along the cuts. For a square
    /// field the blocks are as square as possible.
    ///
    /// # Errors
    /// [`HeatError::TooManyRanks`] when a process would own no cell.
    pub fn new(width: usize, height: usize, ranks: usize) -> Result<Self, HeatError> {
        (1..=ranks)
            .filter(|columns| ranks.is_multiple_of(*columns))
            .map(|columns| Layout {
                width,
                height,
                columns,
                rows: ranks / columns,
            })
            .filter(|layout| layout.columns <= width && layout.rows <= height)
            .min_by_key(Layout::cut_len)
            .ok_or(HeatError::TooManyRanks {
                ranks,
                width,
                height,
            })
    }

    /// Returns the number of processes.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.columns * self.rows
    }

    /// Returns the cells that `rank` owns.
    #[must_use]
    pub fn rect(&self, rank: usize) -> Rect {
        Rect {
            x: share(self.width, self.columns, rank % self.columns),
            y: share(self.height, self.rows, rank / self.columns),
        }
    }

    /// Returns the owner of the cells beyond `rank`'s edge in `direction`; `None` at the rim of the
    /// field.
    #[must_use]
    pub fn neighbour(&self, rank: usize, direction: Direction) -> Option<usize> {
        let (column, row) = (rank % self.columns, rank / self.columns);
        match direction {
            Direction::West => (column > 0).then(|| rank - 1),
            Direction::East => (column + 1 < self.columns).then(|| rank + 1),
            Direction::North => (row > 0).then(|| rank - self.columns),
            Direction::South => (row + 1 < self.rows).then(|| rank + self.columns),
        }
    }

    /// Returns the number of cells along the cuts, which must be exchanged in every step.
    fn cut_len(&self) -> usize {
        (self.columns - 1) * self.height + (self.rows - 1) * self.width
    }
}

/// Returns part `index` of `parts` nearly equal parts of `len` cells.
fn share(len: usize, parts: usize, index: usize) -> Range<usize> {
    index * len / parts..(index + 1) * len / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_each_cell_exactly_once() {
        for (width, height, ranks) in [
            (3, 3, 1),
            (5, 4, 3),
            (17, 3, 7),
            (8, 8, 8),
            (9, 31, 12),
            (100, 7, 16),
            (13, 13, 169),
        ] {
            let layout = Layout::new(width, height, ranks).unwrap();
            assert_eq!(layout.ranks(), ranks);
            let mut owners = vec![0; width * height];
            for rank in 0..ranks {
                let rect = layout.rect(rank);
                assert!(
                    rect.cell_count() > 0,
                    "{layout:?} leaves rank {rank} without a cell"
                );
                for y in rect.y.clone() {
                    rect.x.clone().for_each(|x| owners[y * width + x] += 1);
                }
            }
            assert!(owners.iter().all(|count| *count == 1), "{layout:?}");
        }
    }

    #[test]
    fn blocks_differ_by_at_most_one_row_and_column() {
        let layout = Layout::new(101, 53, 12).unwrap();
        let rects: Vec<Rect> = (0..12).map(|rank| layout.rect(rank)).collect();
        let spread = |len: &dyn Fn(&Rect) -> usize| {
            rects.iter().map(len).max().unwrap() - rects.iter().map(len).min().unwrap()
        };
        assert!(spread(&|rect| rect.x.len()) <= 1);
        assert!(spread(&|rect| rect.y.len()) <= 1);
    }

    #[test]
    fn square_fields_get_square_blocks_and_flat_ones_are_cut_across() {
        let shape = |width, height, ranks| {
            Layout::new(width, height, ranks)
                .map(|layout| (layout.columns, layout.rows))
                .unwrap()
        };
        assert_eq!(shape(64, 64, 16), (4, 4));
        assert_eq!(shape(1000, 10, 4), (4, 1));
        assert_eq!(shape(10, 1000, 4), (1, 4));
        assert_eq!(shape(3, 300, 7), (1, 7));
    }

    #[test]
    fn neighbours_see_one_another_along_equal_edges() {
        let layout = Layout::new(29, 23, 12).unwrap();
        for rank in 0..12 {
            for direction in Direction::ALL {
                let Some(peer) = layout.neighbour(rank, direction) else {
                    continue;
                };
                assert_eq!(layout.neighbour(peer, direction.opposite()), Some(rank));
                let (here, there) = (layout.rect(rank), layout.rect(peer));
                match direction {
                    Direction::East => assert_eq!((here.x.end, here.y), (there.x.start, there.y)),
                    Direction::South => assert_eq!((here.y.end, here.x), (there.y.start, there.x)),
                    Direction::West | Direction::North => {}
                }
            }
        }
    }

    #[test]
    fn a_field_that_cannot_be_cut_is_refused_with_its_size() {
        let error = Layout::new(5, 5, 7).unwrap_err().to_string();
        assert!(
            error.contains("7 processes") && error.contains("5 x 5"),
            "{error}"
        );
    }
}
