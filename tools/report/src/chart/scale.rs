// SPDX-License-Identifier: MIT OR Apache-2.0
//! Axes: conversion of values to pixels, and the choice of labels.

use crate::units;

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a message.
    Bytes,
    /// Microseconds.
    Micros,
    /// 10^6 bytes per second.
    MegabytesPerSecond,
    /// Messages per second.
    Messages,
    /// Percent.
    Percent,
    /// Processor seconds per 10^9 bytes.
    SecondsPerGigabyte,
    /// A ratio.
    Times,
    /// Number of hosts or processes.
    Count,
}

impl Unit {
    /// Formats `value` with its unit.
    pub fn write(self, value: f64) -> String {
        match self {
            Unit::Bytes => units::bytes(value),
            _ if value == 0.0 => "0".into(),
            Unit::Micros => units::time(value),
            Unit::MegabytesPerSecond => units::rate(value),
            Unit::Messages => units::count(value),
            Unit::Percent => format!("{} %", units::digits(value)),
            Unit::SecondsPerGigabyte => format!("{} s", units::digits(value)),
            Unit::Times => format!("{} ×", units::digits(value)),
            Unit::Count => units::digits(value),
        }
    }
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name of the quantity.
    pub name: String,
    /// Unit of the quantity.
    pub unit: Unit,
    /// Set for a logarithmic axis; other axes start at 0.
    pub logarithmic: bool,
}

impl Axis {
    /// Creates a logarithmic axis.
    pub fn logarithmic(name: &str, unit: Unit) -> Axis {
        Axis {
            name: name.into(),
            unit,
            logarithmic: true,
        }
    }

    /// Creates a linear axis from 0.
    pub fn linear(name: &str, unit: Unit) -> Axis {
        Axis {
            name: name.into(),
            unit,
            logarithmic: false,
        }
    }
}

/// An axis in pixels.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    unit: Unit,
    logarithmic: bool,
    from: f64,
    to: f64,
    pixels: (f64, f64),
    /// Position of 0 on a logarithmic axis: one step left of the smallest value.
    zero: Option<f64>,
}

impl Scale {
    /// Creates a scale for `values` between two pixels; returns `None` if there is nothing to
    /// scale.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64> + Clone,
        pixels: (f64, f64),
    ) -> Option<Scale> {
        let positive = values.clone().filter(|value| *value > 0.0);
        let least = positive.clone().fold(f64::INFINITY, f64::min);
        let most = positive.fold(0.0, f64::max);
        if most <= 0.0 {
            return None;
        }
        let has_zero = values.into_iter().any(|value| value == 0.0);
        let step = step(axis.unit);
        let zero = (axis.logarithmic && has_zero).then(|| least / step);
        let (from, to) = match (axis.logarithmic, axis.unit) {
            (false, _) => (0.0, most * 1.06),
            (true, Unit::Bytes | Unit::Percent | Unit::Count) => (zero.unwrap_or(least), most),
            (true, _) => (least / 1.3, most * 1.3),
        };
        let to = if from < to { to } else { from * 2.0 };
        Some(Scale {
            unit: axis.unit,
            logarithmic: axis.logarithmic,
            from,
            to,
            pixels,
            zero,
        })
    }

    /// Returns the pixel of `value`.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            let value = match self.zero {
                Some(zero) if value == 0.0 => zero,
                _ => value.max(self.from),
            };
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Returns the labels with their pixels, at least `apart` pixels from each other.
    pub(super) fn ticks(&self, apart: f64) -> Vec<(f64, String)> {
        let mut ticks: Vec<(f64, String)> = Vec::new();
        if self.zero.is_some() {
            ticks.push((self.at(0.0), self.unit.write(0.0)));
        }
        for value in self.candidates(apart) {
            let at = self.at(value);
            let near = |tick: &(f64, String)| (tick.0 - at).abs() < apart;
            if !ticks.iter().any(near) {
                ticks.push((at, self.unit.write(value)));
            }
        }
        ticks
    }

    /// Returns round values within the axis: the roundest set with a distance of `apart` pixels.
    fn candidates(&self, apart: f64) -> Vec<f64> {
        let length = (self.pixels.1 - self.pixels.0).abs();
        if !self.logarithmic {
            return linear(self.to, (length / apart / 1.4).clamp(2.0, 6.0));
        }
        let within = |value: &f64| *value >= self.from * 0.999 && *value <= self.to * 1.001;
        let decades = (self.to / self.from).log10();
        if self.unit == Unit::Bytes {
            let step = if decades > 3.0 { 16.0 } else { 4.0 };
            let powers = (0..40).map(|power| f64::powi(step, power));
            return powers.filter(within).collect();
        }
        if self.unit == Unit::Count {
            let powers = (0..16).map(|power| f64::powi(2.0, power));
            return powers.filter(within).collect();
        }
        let mantissas: &[f64] = match decades {
            _ if decades < 1.3 => &[1.0, 2.0, 3.0, 5.0],
            _ if decades < 2.3 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = -6..13;
        powers
            .flat_map(|power| mantissas.iter().map(move |m| m * f64::powi(10.0, power)))
            .filter(within)
            .collect()
    }
}

/// Returns the ratio of the smallest value to the position of 0 on a logarithmic axis.
fn step(unit: Unit) -> f64 {
    match unit {
        Unit::Bytes => 4.0,
        _ => 3.0,
    }
}

/// Returns about `count` round values from 0 to `to`.
fn linear(to: f64, count: f64) -> Vec<f64> {
    let raw = to / count;
    let power = f64::powf(10.0, raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|mantissa| mantissa * power)
        .find(|step| *step >= raw)
        .unwrap_or(raw);
    (0..20)
        .map(|index| f64::from(index) * step)
        .take_while(|value| *value <= to)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(axis: &Axis, values: &[f64]) -> Scale {
        Scale::new(axis, values.iter().copied(), (0.0, 600.0)).expect("figures")
    }

    #[test]
    fn size_axis_labels_powers_within_the_axis() {
        let axis = Axis::logarithmic("message", Unit::Bytes);
        let words = |values: &[f64]| {
            let ticks = scale(&axis, values).ticks(60.0);
            assert!(
                ticks.iter().all(|(at, _)| (-0.1..600.1).contains(at)),
                "{ticks:?}"
            );
            ticks
                .into_iter()
                .map(|(_, words)| words)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(&[1.0, 1048576.0]),
            ["1 B", "16 B", "256 B", "4 KB", "64 KB", "1 MB"]
        );
        assert_eq!(words(&[0.0, 8.0, 64.0])[0], "0 B");
    }

    #[test]
    fn logarithmic_axis_labels_decades() {
        let axis = Axis::logarithmic("time", Unit::Micros);
        let scale = scale(&axis, &[0.3, 400.0]);
        let words: Vec<String> = scale
            .ticks(20.0)
            .into_iter()
            .map(|(_, words)| words)
            .collect();
        assert_eq!(words, ["1 µs", "10 µs", "100 µs"]);
        assert!(scale.at(0.3) > 0.0 && scale.at(400.0) < 600.0);
    }

    #[test]
    fn linear_axis_begins_at_zero() {
        let axis = Axis::linear("cost", Unit::SecondsPerGigabyte);
        let scale = scale(&axis, &[0.35, 0.9]);
        assert_eq!(scale.ticks(60.0)[0].1, "0");
        assert!(Scale::new(&axis, [0.0].into_iter(), (0.0, 1.0)).is_none());
    }
}
