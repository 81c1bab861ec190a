// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a row relative to another row of the same run.

use crate::args::Metric;
use crate::mpi::OVER_PORTOLAN;
use crate::schema::Row;
use crate::verdict::{Versus, compare};
use std::collections::BTreeMap;

/// Returns `rows` with [`crate::extra::Extra::relative`] filled in where a base row exists.
pub(crate) fn related(mut rows: Vec<Row>) -> Vec<Row> {
    let relative: Vec<Option<f64>> = rows.iter().map(|row| base(row, &rows)).collect();
    let versus: Vec<_> = rows.iter().map(|row| versus(row, &rows)).collect();
    for ((row, relative), versus) in rows.iter_mut().zip(relative).zip(versus) {
        row.extra.relative = relative;
        row.extra.versus = versus;
    }
    rows
}

/// Compares `row` with the limit, the kernel's protocols, and an MPI's own transport.
fn versus(row: &Row, rows: &[Row]) -> BTreeMap<String, Versus> {
    const YARDSTICKS: [&str; 3] = ["limit", "tcp", "udp"];
    let of = |system: &str| {
        let same = |other: &&Row| {
            other.system == system
                && (other.path, other.size) == (row.path, row.size)
                && other.conditions.of_network() == row.conditions.of_network()
        };
        let other = rows.iter().find(same).filter(|_| row.system != system)?;
        Some((system.to_owned(), compare(row, other)?))
    };
    // The row of the same MPI over its own transport.
    let own = row.system.strip_suffix(OVER_PORTOLAN);
    YARDSTICKS.into_iter().chain(own).filter_map(of).collect()
}

fn base(row: &Row, rows: &[Row]) -> Option<f64> {
    let base = match row.metric {
        Metric::Incast => row.extra.single_mbytes_per_s?,
        Metric::Stream => undisturbed(row, rows)?.mbytes_per_s,
        Metric::Pingpong | Metric::Rate | Metric::Loaded | Metric::Bidir | Metric::Logp => {
            return None;
        }
    };
    (base > 0.0).then(|| row.mbytes_per_s / base)
}

/// Returns the row of the same system and settings without loss and interference.
fn undisturbed<'a>(row: &Row, rows: &'a [Row]) -> Option<&'a Row> {
    let disturbed = row.conditions.loss_ppm > 0 || row.conditions.interfere > 0;
    let mut conditions = row.conditions;
    (conditions.loss_ppm, conditions.interfere) = (0, 0);
    let same = |other: &&Row| {
        (&other.system, other.path, other.size, other.conditions)
            == (&row.system, row.path, row.size, conditions)
    };
    rows.iter().filter(|_| disturbed).find(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::{Conditions, Placement};
    use crate::schema::tests::report;

    #[test]
    fn mpi_over_portolan_is_compared_with_its_own_transport() {
        let row = |system: &str, p50_us| Row {
            system: system.into(),
            p50_us,
            per_round: vec![p50_us; 3],
            ..report().results[0].clone()
        };
        let rows = related(vec![
            row("openmpi-portolan", 2.0),
            row("mpich", 3.0),
            row("openmpi", 4.0),
        ]);
        let names = |row: &Row| row.extra.versus.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&rows[0]), ["openmpi"]);
        assert_eq!(rows[0].extra.versus["openmpi"].ratio, 0.5);
        assert!(names(&rows[2]).is_empty());
    }

    #[test]
    fn lossy_row_is_compared_with_the_same_row_without_loss() {
        let row = |placement, loss_ppm, mbytes_per_s| Row {
            metric: Metric::Stream,
            conditions: Conditions {
                placement,
                loss_ppm,
                ..Conditions::default()
            },
            mbytes_per_s,
            ..report().results[0].clone()
        };
        let (bounce, auto) = (Some(Placement::Bounce), Some(Placement::Auto));
        let rows = related(vec![
            row(bounce, 0, 100.0),
            row(auto, 0, 200.0),
            row(auto, 10_000, 150.0),
            row(None, 10_000, 150.0),
        ]);
        let relative: Vec<_> = rows.iter().map(|row| row.extra.relative).collect();
        assert_eq!(relative, [None, None, Some(0.75), None]);
    }
}
