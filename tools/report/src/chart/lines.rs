// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line charts with the names at the ends of the lines.

use super::Place;
use super::canvas::{Anchor, Canvas, Ink, Point, draw, width_of};
use super::labels::{Box4, crosses, overlap, spread};
use super::scale::{Axis, Scale};
use anyhow::{Result, bail};

/// Figures of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Full name.
    pub name: String,
    /// Short name for narrow charts.
    pub short: String,
    /// Colour.
    pub ink: Ink,
    /// Set for yardsticks, which are drawn dashed.
    pub dashed: bool,
    /// Points in ascending order.
    pub points: Vec<(f64, f64)>,
}

/// Lines with common axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Title of the chart.
    pub title: String,
    /// Horizontal axis.
    pub across: Axis,
    /// Vertical axis.
    pub upwards: Axis,
    /// Lines, one per system.
    pub lines: Vec<Line>,
    /// A reference value with its name, drawn as a thin horizontal line.
    pub mark: Option<(f64, String)>,
}

/// Pixels between a name and its line.
const AIR: f64 = 9.0;

impl Lines {
    /// Returns the chart as SVG.
    pub(super) fn svg(&self, place: Place) -> Result<String> {
        let frame = Frame::new(self, place)?;
        draw(&self.title, place, place.height(), |canvas| {
            frame.draw_axes(canvas)?;
            frame.draw_lines(canvas)?;
            frame.draw_names(canvas)
        })
    }
}

/// A chart with its layout in pixels.
struct Frame<'a> {
    chart: &'a Lines,
    place: Place,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl<'a> Frame<'a> {
    fn new(chart: &'a Lines, place: Place) -> Result<Self> {
        let font = place.font();
        let letters = |line: &Line| width_of(name(line, place), font);
        let gutter = chart.lines.iter().map(letters).fold(0.0, f64::max);
        let heading = if place == Place::File { 2.2 } else { 0.0 };
        let (left, top) = (font * 5.2, font * (2.4 + heading));
        let right = f64::from(place.width()) - gutter - AIR - 4.0;
        let bottom = f64::from(place.height()) - font * 3.4;
        let points = || chart.lines.iter().flat_map(|line| &line.points);
        let marked = chart.mark.iter().map(|(value, _)| *value);
        let x = Scale::new(&chart.across, points().map(|point| point.0), (left, right));
        let y = Scale::new(
            &chart.upwards,
            points().map(|point| point.1).chain(marked),
            (bottom, top),
        );
        let (Some(x), Some(y)) = (x, y) else {
            bail!("{}: nothing to draw", chart.title);
        };
        Ok(Frame {
            chart,
            place,
            left,
            right,
            top,
            bottom,
            x,
            y,
        })
    }

    fn draw_axes(&self, canvas: &Canvas<'_>) -> Result<()> {
        let font = self.place.font();
        let words = |size, ink, anchor| (size, ink, anchor);
        if self.place == Place::File {
            let style = words(font * 1.2, Ink::Text, Anchor::Start);
            canvas.text(&self.chart.title, (font * 0.8, font * 1.5), style)?;
        }
        let upwards = &self.chart.upwards.name;
        let style = words(font, Ink::Muted, Anchor::Start);
        canvas.text(upwards, (font * 0.8, self.top - font * 1.3), style)?;
        for (at, label) in self.y.ticks(font * 1.8) {
            canvas.stroke(&[(self.left, at), (self.right, at)], Ink::Grid, 1, false)?;
            let style = words(font, Ink::Muted, Anchor::End);
            canvas.text(&label, (self.left - 6.0, at), style)?;
        }
        let ground = [(self.left, self.bottom), (self.right, self.bottom)];
        canvas.stroke(&ground, Ink::Muted, 1, false)?;
        for (at, label) in self.x.ticks(font * 4.4) {
            let mark = [(at, self.bottom), (at, self.bottom + 4.0)];
            canvas.stroke(&mark, Ink::Muted, 1, false)?;
            let style = words(font, Ink::Muted, Anchor::Middle);
            canvas.text(&label, (at, self.bottom + font * 1.2), style)?;
        }
        let middle = f64::midpoint(self.left, self.right);
        let style = words(font, Ink::Muted, Anchor::Middle);
        canvas.text(
            &self.chart.across.name,
            (middle, self.bottom + font * 2.6),
            style,
        )?;
        self.draw_mark(canvas)
    }

    fn draw_mark(&self, canvas: &Canvas<'_>) -> Result<()> {
        let Some((value, words)) = &self.chart.mark else {
            return Ok(());
        };
        let at = self.y.at(*value);
        canvas.stroke(&[(self.left, at), (self.right, at)], Ink::Muted, 1, false)?;
        let font = self.place.font();
        let width = width_of(words, font);
        let levels = [at - font * 0.8, at + font * 0.9];
        let areas = levels.into_iter().flat_map(|y| {
            const STEPS: u32 = 12;
            let free = self.right - self.left - width;
            (0..=STEPS).map(move |step| {
                let x = self.left + 4.0 + free * f64::from(step) / f64::from(STEPS);
                (x, y - font * 0.6, x + width, y + font * 0.6)
            })
        });
        let mut free = areas.filter(|area| !self.is_crossed(*area));
        let Some(area) = free.next() else {
            return Ok(());
        };
        let style = (font, Ink::Muted, Anchor::Start);
        canvas.text(words, (area.0, f64::midpoint(area.1, area.3)), style)
    }

    /// Returns true if a line crosses `area`.
    fn is_crossed(&self, area: Box4) -> bool {
        let mut lines = self.chart.lines.iter();
        lines.any(|line| crosses(&self.points(line), area))
    }

    fn points(&self, line: &Line) -> Vec<Point> {
        let pixels = |&(x, y): &(f64, f64)| (self.x.at(x), self.y.at(y));
        line.points.iter().map(pixels).collect()
    }

    fn draw_lines(&self, canvas: &Canvas<'_>) -> Result<()> {
        // Yardsticks are drawn first, below the systems.
        let (yardsticks, systems): (Vec<_>, Vec<_>) =
            self.chart.lines.iter().partition(|line| line.dashed);
        for line in yardsticks.into_iter().chain(systems) {
            let points = self.points(line);
            let width = if line.dashed { 1 } else { 2 };
            canvas.stroke(&points, line.ink, width, line.dashed)?;
            if !line.dashed {
                for point in points {
                    canvas.dot(point, 3, line.ink)?;
                }
            }
        }
        Ok(())
    }

    /// Draws the names: on the right of lines that reach the edge, and near the ends of the others.
    fn draw_names(&self, canvas: &Canvas<'_>) -> Result<()> {
        let font = self.place.font();
        let last = |line: &&Line| self.points(line).last().copied().unwrap_or_default();
        let reaches = |line: &&Line| last(line).0 >= self.right - 2.0;
        let (far, near): (Vec<&Line>, Vec<&Line>) = self.chart.lines.iter().partition(reaches);
        let mut taken: Vec<Box4> = Vec::new();
        let mut stray = Vec::new();
        for line in near {
            match self.free_spot(line, &taken) {
                Some((at, area)) => {
                    taken.push(area);
                    canvas.text(name(line, self.place), at, (font, line.ink, Anchor::Start))?;
                }
                None => stray.push(line),
            }
        }
        let far: Vec<&Line> = far.into_iter().chain(stray).collect();
        let positions: Vec<f64> = far.iter().map(|line| last(line).1).collect();
        let within = (font * 0.8, self.bottom + font * 0.4);
        let heights = spread(&positions, font * 1.3, within);
        for (line, height) in far.into_iter().zip(heights) {
            let end = last(&line);
            let moved = (height - end.1).abs() > font * 0.7 || !reaches(&line);
            if moved {
                let lead = [end, (self.right + AIR - 2.0, height)];
                canvas.stroke(&lead, Ink::Grid, 1, false)?;
            }
            let at = (self.right + AIR, height);
            canvas.text(name(line, self.place), at, (font, line.ink, Anchor::Start))?;
        }
        Ok(())
    }

    /// Returns a free place near the end of `line`.
    fn free_spot(&self, line: &Line, taken: &[Box4]) -> Option<(Point, Box4)> {
        let font = self.place.font();
        let (width, height) = (width_of(name(line, self.place), font), font * 1.2);
        let (x, y) = self.points(line).last().copied()?;
        let beside = [
            (x + AIR, y),
            (x - width, y + font * 1.3),
            (x - width, y - font * 1.3),
            (x - width / 2.0, y + font * 1.6),
            (x - width / 2.0, y - font * 1.6),
            (x - width, y + font * 2.4),
            (x, y + font * 2.0),
        ];
        let edge = self.right - width - 3.0;
        let further = [2.0, 3.0, 4.0, 5.0].map(|lines| (edge, y + font * lines));
        beside.into_iter().chain(further).find_map(|at| {
            let area = (
                at.0 - 2.0,
                at.1 - height / 2.0,
                at.0 + width,
                at.1 + height / 2.0,
            );
            let inside = area.0 > self.left
                && area.2 < self.right
                && area.1 > self.top - font
                && area.3 < self.bottom;
            let free = !taken.iter().any(|other| overlap(*other, area)) && !self.is_crossed(area);
            (inside && free).then_some((at, area))
        })
    }
}

fn name(line: &Line, place: Place) -> &str {
    if place.is_narrow() {
        &line.short
    } else {
        &line.name
    }
}
