// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strokes and text on an SVG, in inks that a style sheet may change.

use super::Place;
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colour of an element. Systems have the colours of Okabe and Ito ("Color Universal Design",
/// 2008), which can be distinguished with any colour vision. Colours that are pale on white are
/// darkened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Text.
    Text,
    /// Less important text.
    Muted,
    /// Grid lines.
    Grid,
    /// Background.
    Ground,
    /// A system, by its number.
    System(usize),
}

/// Blue, vermilion, green, purple, brown, sky; grey and near-black are for yardsticks.
const SYSTEMS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 140, 102),
    RGBColor(180, 82, 140),
    RGBColor(148, 104, 0),
    RGBColor(66, 150, 205),
    RGBColor(34, 34, 36),
    RGBColor(118, 118, 122),
];

impl Ink {
    /// The kernel's protocols between hosts.
    pub const KERNEL: Ink = Ink::System(6);
    /// The kernel's protocols within a host.
    pub const KERNEL_LOCAL: Ink = Ink::System(7);

    fn colour(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(28, 28, 30),
            Ink::Muted => RGBColor(92, 92, 96),
            Ink::Grid => RGBColor(224, 224, 228),
            Ink::Ground => RGBColor(255, 255, 255),
            Ink::System(index) => SYSTEMS[index % SYSTEMS.len()],
        }
    }

    /// Returns the CSS variable of the ink.
    fn variable(self) -> String {
        match self {
            Ink::Text => "var(--text)".into(),
            Ink::Muted => "var(--muted)".into(),
            Ink::Grid => "var(--grid)".into(),
            Ink::Ground => "var(--ground)".into(),
            Ink::System(index) => format!("var(--system-{})", index % SYSTEMS.len()),
        }
    }

    fn all() -> impl Iterator<Item = Ink> {
        [Ink::Text, Ink::Muted, Ink::Grid, Ink::Ground]
            .into_iter()
            .chain((0..SYSTEMS.len()).map(Ink::System))
    }
}

/// Horizontal alignment of text at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A point in pixels.
pub(super) type Point = (f64, f64);

/// A drawing area for one chart.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Draws a chart with the title `title` by calling `draw`.
///
/// # Errors
/// The errors of `draw`.
pub(super) fn draw(
    title: &str,
    place: Place,
    height: u32,
    draw: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (place.width(), height)).into_drawing_area();
        if place == Place::File {
            area.fill(&Ink::Ground.colour()).map_err(refused)?;
        }
        let canvas = Canvas { area };
        draw(&canvas)?;
        canvas.area.present().map_err(refused)?;
    }
    Ok(dressed(&svg, title, place))
}

/// Adds the title for screen readers. On a page, leaves colours and width to the style sheet.
fn dressed(svg: &str, title: &str, place: Place) -> String {
    let title = title
        .replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;");
    let named = svg.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{title}\" "),
        1,
    );
    if place == Place::File {
        return named;
    }
    Ink::all().fold(named, |svg, ink| {
        let RGBColor(red, green, blue) = ink.colour();
        svg.replace(
            &format!("\"#{red:02X}{green:02X}{blue:02X}\""),
            &format!("\"{}\"", ink.variable()),
        )
    })
}

impl Canvas<'_> {
    /// Draws a line through `points`.
    pub(super) fn stroke(
        &self,
        points: &[Point],
        ink: Ink,
        width: u32,
        dashed: bool,
    ) -> Result<()> {
        let style = ink.colour().stroke_width(width);
        let points: Vec<(i32, i32)> = points.iter().copied().map(pixel).collect();
        if dashed {
            const DASH: u32 = 5;
            const GAP: u32 = 4;
            let line = DashedPathElement::new(points, DASH, GAP, style);
            self.area.draw(&line).map_err(refused)
        } else {
            self.area
                .draw(&PathElement::new(points, style))
                .map_err(refused)
        }
    }

    /// Draws a filled dot.
    pub(super) fn dot(&self, at: Point, radius: i32, ink: Ink) -> Result<()> {
        let dot = Circle::new(pixel(at), radius, ink.colour().filled());
        self.area.draw(&dot).map_err(refused)
    }

    /// Draws a filled rectangle.
    pub(super) fn block(&self, from: Point, to: Point, ink: Ink) -> Result<()> {
        let block = Rectangle::new([pixel(from), pixel(to)], ink.colour().filled());
        self.area.draw(&block).map_err(refused)
    }

    /// Draws a translucent rectangle with an opacity of `strength`, from 0 to 1.
    pub(super) fn shade(&self, from: Point, to: Point, ink: Ink, strength: f64) -> Result<()> {
        let colour = ink.colour().mix(strength);
        let block = Rectangle::new([pixel(from), pixel(to)], colour.filled());
        self.area.draw(&block).map_err(refused)
    }

    /// Draws text, vertically centred at `at`.
    pub(super) fn text(
        &self,
        words: &str,
        at: Point,
        (size, ink, anchor): (f64, Ink, Anchor),
    ) -> Result<()> {
        /// Divisor that plotters' SVG backend applies to font sizes.
        const FONT_SCALE: f64 = 1.24;
        let horizontal = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let colour = ink.colour();
        let style = TextStyle::from(("sans-serif", size * FONT_SCALE).into_font())
            .color(&colour)
            .pos(Pos::new(horizontal, VPos::Center));
        self.area
            .draw(&Text::new(words.to_owned(), pixel(at), style))
            .map_err(refused)
    }
}

/// Returns the approximate width of `words` in pixels. It uses no font and is rather too large than
/// too small.
pub(super) fn width_of(words: &str, size: f64) -> f64 {
    // Widths of the widest common sans-serif fonts.
    let letter = |letter: char| match letter {
        'm' | 'w' | 'M' | 'W' => 0.95,
        'A'..='Z' => 0.7,
        _ => 0.59,
    };
    words.chars().map(letter).sum::<f64>() * size
}

#[allow(clippy::cast_possible_truncation, reason = "within the chart")]
fn pixel((x, y): Point) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}

fn refused(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}
