// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts as SVG: lines, bars, stacked bars and matrices.
//!
//! A chart is drawn for a place: a file, with its own colours on white, or a page with a
//! style sheet that sets the colours. Equal figures always give equal bytes. The output does not
//! depend on system fonts, the time or the order of hash tables.

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

/// Destination of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A separate file, with a white background.
    File,
    /// A page on a screen of normal width. Colours are variables of its style sheet.
    Page,
    /// A page on a phone.
    Phone,
}

impl Place {
    /// Returns the width in pixels.
    fn width(self) -> u32 {
        match self {
            Place::File | Place::Page => 760,
            Place::Phone => 360,
        }
    }

    /// Returns the height of a line chart in pixels.
    fn height(self) -> u32 {
        match self {
            Place::File | Place::Page => 430,
            Place::Phone => 340,
        }
    }

    /// Returns the font size in pixels.
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

/// A chart of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Line chart.
    Lines(Lines),
    /// Bar chart.
    Bars(Bars),
    /// Stacked bars.
    Stacks(Stacks),
    /// Matrix of cells.
    Heat(Heat),
}

impl Chart {
    /// Returns the chart as SVG.
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

    /// Returns the title.
    pub fn title(&self) -> &str {
        match self {
            Chart::Lines(lines) => &lines.title,
            Chart::Bars(bars) => &bars.title,
            Chart::Stacks(stacks) => &stacks.title,
            Chart::Heat(heat) => &heat.title,
        }
    }
}
