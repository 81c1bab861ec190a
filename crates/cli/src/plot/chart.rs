// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two kinds of chart as SVG: lines over message sizes, and bars in groups.
//!
//! The same data always give the same bytes: nothing here depends on fonts of the system, on time
//! or on the order of a hash table.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// Size of a chart in pixels, names below it not counted.
const WIDTH: u32 = 900;
const HEIGHT: u32 = 480;

/// Pixels around the plotting area: for the axes' numbers and names.
const MARGIN: u32 = 12;
const LEFT: u32 = 70;
const BELOW: u32 = 45;

/// Pixels of a row of the legend that stands below bars, and of a letter, about.
const LEGEND_ROW: u32 = 18;
const FONT: (&str, u32) = ("sans-serif", 14);
const TITLE_FONT: (&str, u32) = ("sans-serif", 18);

/// Share of a group's place that its bars take.
const BARS_SHARE: f64 = 0.8;

/// Eight colours that people with any colour vision tell apart (Okabe and Ito, "Color Universal
/// Design", 2008), the one of black first.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
];

/// A line: points of (bytes, value), in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines over message sizes, with logarithmic sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lines {
    pub(super) title: String,
    /// What is upwards, with its unit.
    pub(super) measure: String,
    pub(super) series: Vec<Series>,
}

/// Groups of bars: one bar a legend entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bars {
    pub(super) title: String,
    /// What is upwards, with its unit.
    pub(super) measure: String,
    pub(super) legend: Vec<String>,
    /// Name and values, as many as the legend has entries.
    pub(super) groups: Vec<(String, Vec<f64>)>,
    /// Logarithmic, for values that lie decades apart.
    pub(super) logarithmic: bool,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Lines {
    /// The chart as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub(super) fn svg(&self) -> Result<String> {
        drawn(HEIGHT, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (first, last) = points().fold((f64::INFINITY, 0.0_f64), |(first, last), point| {
            (first.min(point.0), last.max(point.0))
        });
        let top = points().map(|point| point.1).fold(0.0, f64::max) * 1.05;
        if !(first < last && top > 0.0) {
            return Err(anyhow!("{}: a line needs two sizes", self.title));
        }
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .caption(&self.title, TITLE_FONT)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d((first..last).log_scale().base(2.0), 0.0..top)
            .map_err(refused)?;
        chart
            .configure_mesh()
            .x_desc("message size")
            .y_desc(&self.measure)
            .x_label_formatter(&|size| bytes(*size))
            .label_style(FONT)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(refused)?;
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
            chart
                .draw_series(line.point_size(3))
                .map_err(refused)?
                .label(&series.name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(FONT)
            .draw()
            .map_err(refused)
    }
}

impl Bars {
    /// The chart as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub(super) fn svg(&self) -> Result<String> {
        let values = || self.groups.iter().flat_map(|(_, values)| values).copied();
        let top = values().fold(0.0, f64::max);
        let least = values()
            .filter(|value| *value > 0.0)
            .fold(f64::INFINITY, f64::min);
        if top <= 0.0 {
            return Err(anyhow!("{}: nothing to draw", self.title));
        }
        // Half a decade of air, so that the shortest bar is seen too.
        let (floor, ceiling) = (least / 3.0, top * 1.5);
        // The groups' names stand below, however many there are.
        let names = LEGEND_ROW * (u32::try_from(self.groups.len())? + 1);
        drawn(HEIGHT + names, |area| match self.logarithmic {
            true => self.draw(area, (floor..ceiling).log_scale(), floor),
            false => self.draw(area, 0.0..top * 1.1, 0.0),
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "a handful of groups")]
    fn draw<R>(&self, area: &Area<'_>, upwards: R, floor: f64) -> Result<()>
    where
        R: AsRangedCoord<Value = f64>,
        R::CoordDescType: ValueFormatter<f64>,
    {
        let (above, below) = area.split_vertically(HEIGHT);
        let mut chart = ChartBuilder::on(&above)
            .margin(MARGIN)
            .caption(&self.title, TITLE_FONT)
            .x_label_area_size(BELOW / 2)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..self.groups.len() as f64, upwards)
            .map_err(refused)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc(&self.measure)
            .label_style(FONT)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(refused)?;
        let width = BARS_SHARE / self.legend.len() as f64;
        for (index, name) in self.legend.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let bars = self
                .groups
                .iter()
                .enumerate()
                .filter_map(|(group, (_, values))| {
                    let value = *values.get(index)?;
                    let left = group as f64 + (1.0 - BARS_SHARE) / 2.0 + width * index as f64;
                    Some(Rectangle::new(
                        [(left, floor), (left + width, value.max(floor))],
                        colour.filled(),
                    ))
                });
            chart
                .draw_series(bars)
                .map_err(refused)?
                .label(name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .label_font(FONT)
            .draw()
            .map_err(refused)?;
        self.name_groups(&below)
    }

    /// The groups' names are sentences: too long to stand under the bars, so they are numbered from
    /// the left.
    fn name_groups(&self, area: &Area<'_>) -> Result<()> {
        for (index, (name, _)) in (0_i32..).zip(&self.groups) {
            let row = i32::try_from(LEGEND_ROW)?;
            let at = (i32::try_from(LEFT)?, row * index);
            let text = Text::new(format!("{}: {name}", index + 1), at, FONT);
            area.draw(&text).map_err(refused)?;
        }
        Ok(())
    }
}

fn drawn(height: u32, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).map_err(refused)?;
        draw(&area)?;
        area.present().map_err(refused)?;
    }
    Ok(svg)
}

fn refused(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

/// 64, 1k, 4M.
fn bytes(size: f64) -> String {
    const KILO: f64 = 1024.0;
    match size {
        _ if size >= KILO * KILO => format!("{}M", size / (KILO * KILO)),
        _ if size >= KILO => format!("{}k", size / KILO),
        _ => format!("{size}"),
    }
}
