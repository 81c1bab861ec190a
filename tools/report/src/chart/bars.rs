// SPDX-License-Identifier: MIT OR Apache-2.0
//! Horizontal bars, each followed by its figure. On a logarithmic axis they are dots, because bars
//! would have no origin.

use super::Place;
use super::canvas::{Anchor, Canvas, Ink, draw, width_of};
use super::legend::Legend;
use super::scale::{Axis, Scale};
use anyhow::{Result, bail};

/// Figures of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Name of the system.
    pub name: String,
    /// Colour, used if there is only one kind.
    pub ink: Ink,
    /// One value per kind.
    pub values: Vec<f64>,
}

/// Groups of bars, with one bar per kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// Horizontal axis.
    pub across: Axis,
    /// Kinds of the bars in a group, with their colours.
    pub kinds: Vec<(String, Ink)>,
    /// Groups, one per system.
    pub groups: Vec<Group>,
}

impl Bars {
    /// Returns the chart as SVG.
    pub(super) fn svg(&self, place: Place) -> Result<String> {
        let font = place.font();
        let sheet = Sheet {
            chart: self,
            place,
            left: font * 0.8,
            right: f64::from(place.width()) - font * 6.5,
            top: font * if place == Place::File { 3.0 } else { 1.0 },
        };
        let values = self.groups.iter().flat_map(|group| &group.values).copied();
        let Some(x) = Scale::new(&self.across, values, (sheet.left, sheet.right)) else {
            bail!("{}: nothing to draw", self.title);
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few hundred pixels"
        )]
        let height =
            (sheet.top + sheet.legend().height() + sheet.body() + font * 3.6).ceil() as u32;
        draw(&self.title, place, height, |canvas| sheet.draw(canvas, &x))
    }
}

/// Returns the labels under the bars, spaced so that none overlap.
fn ticks(x: &Scale, font: f64) -> Vec<(f64, String)> {
    let close = x.ticks(font * 4.6);
    let widest = close.iter().map(|(_, label)| width_of(label, font));
    let gap = widest.fold(0.0, f64::max) + font * 0.6;
    if gap > font * 4.6 {
        x.ticks(gap)
    } else {
        close
    }
}

struct Sheet<'a> {
    chart: &'a Bars,
    place: Place,
    left: f64,
    right: f64,
    top: f64,
}

impl Sheet<'_> {
    fn font(&self) -> f64 {
        self.place.font()
    }

    /// Returns the pixels from one bar to the next.
    fn pitch(&self) -> f64 {
        self.font()
            * if self.chart.across.logarithmic {
                1.25
            } else {
                1.35
            }
    }

    /// Returns the legend of the kinds. A single kind needs none.
    fn legend(&self) -> Legend<'_> {
        let kinds = &self.chart.kinds;
        Legend {
            kinds: if kinds.len() < 2 { &[] } else { kinds },
            place: self.place,
            left: self.left,
        }
    }

    /// Returns the pixels of a group: its name, its bars and a margin.
    fn group(&self) -> f64 {
        self.font() * 2.2 + self.pitch() * self.chart.kinds.len() as f64
    }

    #[allow(clippy::cast_precision_loss, reason = "a handful of groups")]
    fn body(&self) -> f64 {
        self.group() * self.chart.groups.len() as f64
    }

    fn draw(&self, canvas: &Canvas<'_>, x: &Scale) -> Result<()> {
        let font = self.font();
        if self.place == Place::File {
            let style = (font * 1.2, Ink::Text, Anchor::Start);
            canvas.text(&self.chart.title, (self.left, font * 1.5), style)?;
        }
        let legend = self.legend();
        legend.draw(canvas, self.top)?;
        let top = self.top + legend.height();
        let bottom = top + self.body();
        for (at, label) in ticks(x, font) {
            canvas.stroke(&[(at, top), (at, bottom)], Ink::Grid, 1, false)?;
            let style = (font, Ink::Muted, Anchor::Middle);
            canvas.text(&label, (at.max(self.left + font), bottom + font), style)?;
        }
        let style = (font, Ink::Muted, Anchor::Middle);
        let middle = f64::midpoint(self.left, self.right);
        canvas.text(
            &self.chart.across.name,
            (middle, bottom + font * 2.5),
            style,
        )?;
        let mut at = top;
        for group in &self.chart.groups {
            self.draw_group(canvas, x, group, at)?;
            at += self.group();
        }
        Ok(())
    }

    fn draw_group(&self, canvas: &Canvas<'_>, x: &Scale, group: &Group, top: f64) -> Result<()> {
        let font = self.font();
        let style = (font, Ink::Text, Anchor::Start);
        canvas.text(&group.name, (self.left, top + font), style)?;
        let mut at = top + font * 1.9 + self.pitch() / 2.0;
        let several = self.chart.kinds.len() > 1;
        for (value, (_, ink)) in group.values.iter().zip(&self.chart.kinds) {
            let ink = if several { ink } else { &group.ink };
            let end = x.at(*value);
            if self.chart.across.logarithmic {
                canvas.stroke(&[(self.left, at), (end, at)], Ink::Grid, 1, false)?;
                canvas.dot((end, at), 5, *ink)?;
            } else {
                let thick = self.pitch() * 0.38;
                canvas.block(
                    (self.left, at - thick),
                    (end.max(self.left + 1.0), at + thick),
                    *ink,
                )?;
            }
            let figure = self.chart.across.unit.write(*value);
            canvas.text(
                &figure,
                (end + font * 0.7, at),
                (font, Ink::Text, Anchor::Start),
            )?;
            at += self.pitch();
        }
        Ok(())
    }
}
