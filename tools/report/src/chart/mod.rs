// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts as SVG: lines with their names at their ends, and bars.
//!
//! A chart is drawn for a place: a file, with colours of its own on white, or a page, whose style
//! sheet chooses them. The same figures always give the same bytes: nothing here depends on fonts
//! of the system, on time or on the order of a hash table.

mod bars;
mod canvas;
mod heat;
mod labels;
mod legend;
mod lines;
mod scale;
mod stacks;

pub use bars::{Bars, Group};
pub use canvas::Ink;
pub use heat::Heat;
pub use lines::{Line, Lines};
pub use scale::{Axis, Unit};
pub use stacks::Stacks;

use anyhow::Result;

/// Where a chart is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file of its own: on white, whatever is around it.
    File,
    /// A page, on a screen of ordinary width; colours are variables of its style sheet.
    Page,
    /// The same on a phone.
    Phone,
}

impl Place {
    /// Pixels.
    fn width(self) -> u32 {
        match self {
            Place::File | Place::Page => 760,
            Place::Phone => 360,
        }
    }

    /// Pixels of a chart with lines.
    fn height(self) -> u32 {
        match self {
            Place::File | Place::Page => 430,
            Place::Phone => 340,
        }
    }

    /// Pixels of a letter's height.
    fn font(self) -> f64 {
        match self {
            Place::File | Place::Page => 13.0,
            Place::Phone => 11.0,
        }
    }

    fn is_narrow(self) -> bool {
        self == Place::Phone
    }
}

/// Any chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Lines.
    Lines(Lines),
    /// Bars.
    Bars(Bars),
    /// Bars made of parts.
    Stacks(Stacks),
    /// Cells.
    Heat(Heat),
}

impl Chart {
    /// The chart as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn svg(&self, place: Place) -> Result<String> {
        match self {
            Chart::Lines(lines) => lines.svg(place),
            Chart::Bars(bars) => bars.svg(place),
            Chart::Stacks(stacks) => stacks.svg(place),
            Chart::Heat(heat) => heat.svg(place),
        }
    }

    /// What it shows.
    pub fn title(&self) -> &str {
        match self {
            Chart::Lines(lines) => &lines.title,
            Chart::Bars(bars) => &bars.title,
            Chart::Stacks(stacks) => &stacks.title,
            Chart::Heat(heat) => &heat.title,
        }
    }
}
