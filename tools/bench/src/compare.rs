// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of two runs: changes that exceed the variation between their rounds.

use crate::schema::{Machine, Report, Row};
use crate::table::size;
use crate::verdict::compare;
use std::fmt::Write;

/// Returns the changes from `before` to `after` as text.
pub fn changes(before: &Report, after: &Report) -> String {
    let mut text = differences(&before.machine, &after.machine);
    let (mut alike, mut unknown, mut missing) = (0, 0, 0);
    let (mut better, mut worse) = (Vec::new(), Vec::new());
    for old in &before.results {
        let Some(new) = after.results.iter().find(|new| same(old, new)) else {
            missing += 1;
            continue;
        };
        let versus = compare(new, old);
        match versus.and_then(|versus| versus.distinguishable) {
            Some(true) if new.beats(old) => better.push((old, new)),
            Some(true) => worse.push((old, new)),
            Some(false) => alike += 1,
            None => unknown += 1,
        }
    }
    let known = |new: &&Row| before.results.iter().any(|old| same(old, new));
    let added = after.results.len() - after.results.iter().filter(known).count();
    for (what, rows) in [("worse", worse), ("better", better)] {
        text.push_str(&section(what, &rows));
    }
    let counts = [
        (alike, "not distinguishable"),
        (unknown, "with fewer than 3 rounds"),
        (missing, "only in the first"),
        (added, "only in the second"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{count} {what}");
    }
    text
}

fn same(one: &Row, other: &Row) -> bool {
    (&one.system, one.path, one.metric, one.size, one.conditions)
        == (
            &other.system,
            other.path,
            other.metric,
            other.size,
            other.conditions,
        )
}

/// Returns the differences between the machines.
fn differences(before: &Machine, after: &Machine) -> String {
    let facts = [
        ("processor", &before.cpu, &after.cpu),
        ("kernel", &before.kernel, &after.kernel),
        ("hypervisor", &before.hypervisor, &after.hypervisor),
    ];
    let mut text = String::new();
    for (what, before, after) in facts {
        if before != after {
            let _ = writeln!(text, "note: another {what}: {before}, then {after}");
        }
    }
    if before.mtu != after.mtu {
        let _ = writeln!(
            text,
            "note: another MTU: {}, then {}",
            before.mtu, after.mtu
        );
    }
    if before.link != after.link {
        let wire = |machine: &Machine| machine.link.clone().unwrap_or_else(|| "veth".into());
        let _ = writeln!(
            text,
            "note: another wire: {}, then {}",
            wire(before),
            wire(after)
        );
    }
    text
}

fn section(what: &str, rows: &[(&Row, &Row)]) -> String {
    let mut text = String::new();
    for (old, new) in rows {
        let percent = (new.headline() / old.headline() - 1.0) * 100.0;
        let conditions = new.conditions.describe();
        let conditions = if conditions.is_empty() {
            conditions
        } else {
            format!(", {conditions}")
        };
        let _ = writeln!(
            text,
            "{what}: {} {} over {} at {}{conditions}: {} -> {} ({percent:+.0} %)",
            new.metric,
            new.system,
            new.path,
            size(new.size),
            figure(old),
            figure(new)
        );
    }
    text
}

fn figure(row: &Row) -> String {
    let headline = row.headline();
    if row.metric.is_time() {
        format!("{headline:.3} us")
    } else if row.metric == crate::Metric::Rate {
        format!("{:.3} Mmsg/s", headline / 1e6)
    } else {
        format!("{headline:.1} MB/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::report;

    fn with(per_round: &[f64], size: usize) -> Row {
        Row {
            per_round: per_round.to_vec(),
            p50_us: per_round[1],
            size,
            ..report().results[0].clone()
        }
    }

    #[test]
    fn differences_within_noise_are_no_change() {
        let of = |rows: Vec<Row>| Report {
            results: rows,
            ..report()
        };
        let before = of(vec![
            with(&[1.0, 1.1, 1.2], 8),
            with(&[1.0, 1.1, 1.2], 64),
            with(&[1.0, 1.1, 1.2], 65),
            with(&[1.0, 1.1, 1.2], 66),
        ]);
        let mut after = of(vec![
            with(&[2.0, 2.2, 2.4], 8),
            with(&[1.05, 1.15, 1.2], 64),
            with(&[0.5, 0.55, 0.6], 65),
        ]);
        after.machine.kernel = "7.0".into();
        let text = changes(&before, &after);
        assert!(
            text.contains("worse: pingpong limit over packet at 8: 1.100 us -> 2.200 us (+100 %)"),
            "{text}"
        );
        assert!(
            text.contains("better: pingpong limit over packet at 65"),
            "{text}"
        );
        assert!(text.contains("1 not distinguishable") && text.contains("1 only in the first"));
        assert!(
            text.contains("another kernel") && !text.contains("at 64"),
            "{text}"
        );
    }
}
