// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of measurements by `portolan bench`, `tune`, `profile` and `scripts/cast-figures.sh`, and
//! a page with the main results. The page compares current figures with those printed in papers.
//!
//! This crate measures nothing. It computes only ratios and the formulas of the papers.

mod answers;
mod casts;
mod chart;
mod competitors;
mod data;
mod figures;
mod interfaces;
mod moving;
mod mpi;
mod npb;
mod page;
mod papers;
mod profiles;
mod programs;
mod systems;
mod tune;
mod units;

pub use chart::{Axis, Bars, Chart, Group, Heat, Ink, Line, Lines, Place, Stacks, Unit};
pub use figures::Figure;
pub use npb::{NPB_FORMAT, Network, Npb, NpbRun, PROGRAMS, Wire};
pub use page::{Material, page};

use portolan_bench::Report;
use serde_json::Value;

/// Returns the charts for which `json` has figures. Returns `None` if it was not written by
/// `bench`, `tune`, `profile`, `report npb` or `scripts/cast-figures.sh`.
pub fn figures(json: &Value) -> Option<Vec<Figure>> {
    if let Ok(report) = serde_json::from_value::<Report>(json.clone()) {
        let figures = figures::of_bench(&report);
        return Some(
            figures
                .into_iter()
                .map(|figure| titled(figure, report.machine.mtu))
                .collect(),
        );
    }
    tune::of_tune(json)
        .or_else(|| casts::of_casts(json))
        .or_else(|| profiles::of_profile(json))
        .or_else(|| of_npb(json))
}

fn of_npb(json: &Value) -> Option<Vec<Figure>> {
    let npb: Npb = serde_json::from_value(json.clone()).ok()?;
    (npb.format == NPB_FORMAT).then(|| npb::figures(&npb))
}

/// Adds the MTU to the title, for separate charts.
fn titled(mut figure: Figure, mtu: usize) -> Figure {
    let title = match &mut figure.chart {
        Chart::Lines(lines) => &mut lines.title,
        Chart::Bars(bars) => &mut bars.title,
        Chart::Stacks(_) | Chart::Heat(_) => return figure,
    };
    title.push_str(&format!(", MTU {mtu}"));
    figure
}

#[cfg(test)]
mod tests;
