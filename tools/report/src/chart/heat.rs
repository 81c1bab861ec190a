// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix of cells, darker for larger values: bytes between each pair of ranks.

use super::Place;
use super::canvas::{Anchor, Canvas, Ink, draw, width_of};
use crate::units;
use anyhow::{Result, bail};

/// Opacity of the smallest cell that is not empty.
const FAINTEST: f64 = 0.12;
/// Minimum decades that the shades span, so that nearly equal pairs look alike.
const DECADES_MIN: f64 = 3.0;

/// Bytes from each row to each column.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// Title of the chart.
    pub title: String,
    /// Names of the row axis and the column axis.
    pub axes: [String; 2],
    /// Names of rows and columns, in order.
    pub names: Vec<String>,
    /// Values by row, then column, with one row and one column per name.
    pub cells: Vec<Vec<f64>>,
}

impl Heat {
    /// Returns the chart as SVG.
    pub(super) fn svg(&self, place: Place) -> Result<String> {
        let all = self.cells.iter().flatten().copied();
        let most = all.clone().fold(0.0, f64::max);
        if most <= 0.0 {
            bail!("{}: nothing to draw", self.title);
        }
        let least = all.filter(|cell| *cell > 0.0).fold(most, f64::min);
        let font = place.font();
        let longest = self.names.iter().map(|name| width_of(name, font));
        let longest = longest.fold(0.0, f64::max);
        let left = font * 2.6 + longest;
        let title = font * if place == Place::File { 3.0 } else { 1.0 };
        // As large as fits beside the names, with limited cells.
        let thumb = font * 5.0;
        #[allow(clippy::cast_precision_loss, reason = "a few dozen of names")]
        let count = self.names.len() as f64;
        let square =
            (f64::from(place.width()) - left - font * 2.0).min(f64::from(place.height()) * 1.2);
        let sheet = Sheet {
            chart: self,
            font,
            left,
            top: title + font * 3.6,
            cell: (square / count).min(thumb),
            range: (least, most),
            label: longest,
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few hundred pixels"
        )]
        let height = (sheet.top + sheet.cell * count + font * 2.8).ceil() as u32;
        draw(&self.title, place, height, |canvas| {
            if place == Place::File {
                let style = (font * 1.2, Ink::Text, Anchor::Start);
                canvas.text(&self.title, (font * 0.8, font * 1.5), style)?;
            }
            sheet.draw(canvas, title, count)
        })
    }
}

/// Positions in a chart.
struct Sheet<'a> {
    chart: &'a Heat,
    font: f64,
    left: f64,
    top: f64,
    /// Side of a cell in pixels.
    cell: f64,
    /// Smallest and largest value of the cells that are not empty.
    range: (f64, f64),
    /// Width of the longest name in pixels.
    label: f64,
}

impl Sheet<'_> {
    /// Returns the opacity of `value`. It is logarithmic, because pairs differ by powers of ten.
    fn strength(&self, value: f64) -> f64 {
        let (least, most) = self.range;
        let decades = (most / least).log10().max(DECADES_MIN);
        1.0 - (1.0 - FAINTEST) * (most / value).log10() / decades
    }

    /// Returns the start and end of the row or column `index`.
    #[allow(clippy::cast_precision_loss, reason = "a few dozen of cells")]
    fn span(&self, index: usize, from: f64) -> (f64, f64) {
        let begin = from + self.cell * index as f64;
        // A gap separates adjacent cells if the cells are large enough.
        let gap = if self.cell > 6.0 { 1.0 } else { 0.0 };
        (begin, begin + self.cell - gap)
    }

    fn draw(&self, canvas: &Canvas<'_>, title: f64, count: f64) -> Result<()> {
        let font = self.font;
        let (least, most) = self.range;
        let muted = |anchor| (font, Ink::Muted, anchor);
        let [rows, columns] = &self.chart.axes;
        let axes = format!("{rows} (down) {columns} (across)");
        canvas.text(
            &axes,
            (font * 0.8, title + font * 0.6),
            muted(Anchor::Start),
        )?;
        for (row, cells) in self.chart.cells.iter().enumerate() {
            let (top, bottom) = self.span(row, self.top);
            for (column, value) in cells.iter().enumerate() {
                let (left, right) = self.span(column, self.left);
                if *value > 0.0 {
                    canvas.shade(
                        (left, top),
                        (right, bottom),
                        Ink::System(0),
                        self.strength(*value),
                    )?;
                }
            }
        }
        self.draw_names(canvas)?;
        let scale = format!(
            "from {} to {} (darkest)",
            units::bytes(least),
            units::bytes(most)
        );
        let bottom = self.top + self.cell * count + font * 1.4;
        canvas.text(&scale, (font * 0.8, bottom), muted(Anchor::Start))
    }

    /// Draws as many names as fit.
    fn draw_names(&self, canvas: &Canvas<'_>) -> Result<()> {
        let font = self.font;
        let (mut last_row, mut last_column) = (f64::MIN, f64::MIN);
        for (index, name) in self.chart.names.iter().enumerate() {
            let (top, bottom) = self.span(index, self.top);
            let y = f64::midpoint(top, bottom);
            if y - last_row >= font * 1.3 {
                let style = (font, Ink::Text, Anchor::End);
                canvas.text(name, (self.left - font * 0.6, y), style)?;
                last_row = y;
            }
            let (left, right) = self.span(index, self.left);
            let x = f64::midpoint(left, right);
            if x - last_column >= self.label + font {
                let style = (font, Ink::Text, Anchor::Middle);
                canvas.text(name, (x, self.top - font * 0.9), style)?;
                last_column = x;
            }
        }
        Ok(())
    }
}
