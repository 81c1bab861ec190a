// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colour legend, laid out in rows above the bars.

use super::Place;
use super::canvas::{Anchor, Canvas, Ink, width_of};
use anyhow::Result;

/// Names with their colours. An empty legend takes no space.
pub(super) struct Legend<'a> {
    pub(super) kinds: &'a [(String, Ink)],
    pub(super) place: Place,
    pub(super) left: f64,
}

impl Legend<'_> {
    /// Returns the height in pixels.
    #[allow(clippy::cast_precision_loss, reason = "a handful of rows")]
    pub(super) fn height(&self) -> f64 {
        if self.kinds.is_empty() {
            return 0.0;
        }
        self.place.font() * (1.0 + 1.6 * self.rows().len() as f64)
    }

    /// Returns the kinds by row. No row is wider than the chart.
    fn rows(&self) -> Vec<Vec<usize>> {
        let font = self.place.font();
        let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
        let mut width = 0.0;
        for (index, (name, _)) in self.kinds.iter().enumerate() {
            let needed = width_of(name, font) + font * 2.6;
            if width + needed > f64::from(self.place.width()) - self.left && width > 0.0 {
                rows.push(Vec::new());
                width = 0.0;
            }
            width += needed;
            if let Some(row) = rows.last_mut() {
                row.push(index);
            }
        }
        rows
    }

    /// Draws the legend from the height `top` on.
    pub(super) fn draw(&self, canvas: &Canvas<'_>, top: f64) -> Result<()> {
        if self.kinds.is_empty() {
            return Ok(());
        }
        let font = self.place.font();
        let mut y = top + font * 0.8;
        for row in self.rows() {
            let mut x = self.left;
            for index in row {
                let (name, ink) = &self.kinds[index];
                canvas.dot((x + font * 0.4, y), 5, *ink)?;
                let style = (font, Ink::Text, Anchor::Start);
                canvas.text(name, (x + font * 1.2, y), style)?;
                x += width_of(name, font) + font * 2.6;
            }
            y += font * 1.6;
        }
        Ok(())
    }
}
