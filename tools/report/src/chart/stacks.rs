// SPDX-License-Identifier: MIT OR Apache-2.0
//! Horizontal stacked bars, for the parts of a whole.

use super::Place;
use super::canvas::{Anchor, Canvas, Ink, draw, width_of};
use super::legend::Legend;
use anyhow::{Result, bail};

/// Rows of equal length, divided into one part per kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Stacks {
    /// Title of the chart.
    pub title: String,
    /// Label under the bars.
    pub across: String,
    /// Kinds of the parts, with their colours.
    pub kinds: Vec<(String, Ink)>,
    /// Names, and one part of the whole per kind, each from 0 to 1.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Stacks {
    /// Returns the chart as SVG.
    pub(super) fn svg(&self, place: Place) -> Result<String> {
        if self.rows.is_empty() || self.kinds.is_empty() {
            bail!("{}: nothing to draw", self.title);
        }
        let font = place.font();
        let margin = font * 0.8;
        let longest = self.rows.iter().map(|(name, _)| width_of(name, font));
        let sheet = Sheet {
            chart: self,
            font,
            left: margin + longest.fold(0.0, f64::max) + font * 0.6,
            right: f64::from(place.width()) - font * 2.0,
            edge: f64::from(place.width()),
        };
        let legend = Legend {
            kinds: &self.kinds,
            place,
            left: margin,
        };
        let title = font * if place == Place::File { 3.0 } else { 1.0 };
        let top = title + legend.height();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few hundred pixels"
        )]
        let height = (top + sheet.body() + font * 3.6).ceil() as u32;
        draw(&self.title, place, height, |canvas| {
            if place == Place::File {
                let style = (font * 1.2, Ink::Text, Anchor::Start);
                canvas.text(&self.title, (margin, font * 1.5), style)?;
            }
            legend.draw(canvas, title)?;
            sheet.draw(canvas, top)
        })
    }
}

/// Positions in a chart.
struct Sheet<'a> {
    chart: &'a Stacks,
    font: f64,
    left: f64,
    right: f64,
    edge: f64,
}

impl Sheet<'_> {
    /// Returns the pixels from one bar to the next.
    fn pitch(&self) -> f64 {
        self.font * 1.5
    }

    #[allow(clippy::cast_precision_loss, reason = "a handful of rows")]
    fn body(&self) -> f64 {
        self.pitch() * self.chart.rows.len() as f64
    }

    /// Returns the position where the share `part` of the whole ends.
    fn at(&self, part: f64) -> f64 {
        self.left + (self.right - self.left) * part.clamp(0.0, 1.0)
    }

    fn draw(&self, canvas: &Canvas<'_>, top: f64) -> Result<()> {
        let bottom = top + self.body();
        for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
            let at = self.at(percent / 100.0);
            canvas.stroke(&[(at, top), (at, bottom)], Ink::Grid, 1, false)?;
            let style = (self.font, Ink::Muted, Anchor::Middle);
            canvas.text(&format!("{percent}"), (at, bottom + self.font), style)?;
        }
        let style = (self.font, Ink::Muted, Anchor::Middle);
        // Centred under the bars as far as it fits: row names may be long, and a phone is narrow.
        let half = width_of(&self.chart.across, self.font) / 2.0;
        let middle = f64::midpoint(self.left, self.right).min(self.edge - half);
        let at = (middle.max(half), bottom + self.font * 2.5);
        canvas.text(&self.chart.across, at, style)?;
        let mut y = top + self.pitch() / 2.0;
        for (name, parts) in &self.chart.rows {
            let style = (self.font, Ink::Text, Anchor::End);
            canvas.text(name, (self.left - self.font * 0.6, y), style)?;
            let thick = self.pitch() * 0.4;
            let mut begin = 0.0;
            for (part, (_, ink)) in parts.iter().zip(&self.chart.kinds) {
                let (from, to) = (self.at(begin), self.at(begin + part));
                // A part of less than half a pixel would be drawn one pixel wide.
                if to - from >= 0.5 {
                    canvas.block((from, y - thick), (to, y + thick), *ink)?;
                }
                begin += part;
            }
            y += self.pitch();
        }
        Ok(())
    }
}
