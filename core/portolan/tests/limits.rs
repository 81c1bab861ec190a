// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that `docs/reference/limits.md` matches the code: each row that names a constant is
//! compared with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the value of a constant, or of a field of a default, in `source`. Times are in
/// milliseconds.
fn value_in(source: &str, name: &str) -> Option<u64> {
    let defined = |line: &&str| {
        let line = line.trim_start();
        let constant = line.split("const ").nth(1).is_some_and(|rest| {
            rest.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(':'))
        });
        let is_value = |rest: &str| {
            rest.trim_start()
                .starts_with(|first: char| first.is_ascii_digit())
        };
        let field = line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(':'));
        constant || field.is_some_and(is_value)
    };
    let line = source.lines().find(defined)?;
    let (_, text) = line.split_once(" = ").or_else(|| line.split_once(": "))?;
    evaluate(source, text.trim_end_matches([';', ',']))
}

/// Evaluates a product, quotient or shift of numbers and other constants, or a time of one.
fn evaluate(source: &str, text: &str) -> Option<u64> {
    for (call, factor) in [("from_millis(", 1), ("from_secs(", 1000)] {
        if let Some((_, inner)) = text.split_once(call) {
            return Some(evaluate(source, inner.strip_suffix(')')?)? * factor);
        }
    }
    for sign in [" << ", " * ", " / "] {
        if let Some((left, right)) = text.split_once(sign) {
            let (left, right) = (evaluate(source, left)?, evaluate(source, right)?);
            return Some(match sign {
                " << " => left << right,
                " * " => left * right,
                _ => left / right,
            });
        }
    }
    if text == "u16::MAX" {
        return Some(u64::from(u16::MAX));
    }
    let digits = text.replace('_', "");
    digits.parse().ok().or_else(|| value_in(source, text))
}

/// Parses a number in the form of the table. Times are in milliseconds.
fn written(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "ms" => 1,
        "s" => 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    Some(number.replace(',', "").parse::<u64>().ok()? * factor)
}

/// Reads `file`, a path that begins with the name of a crate. Returns an empty text if no group has
/// it.
fn source_of(file: &str) -> String {
    let groups = ["core", "interfaces", "heritage", "tools", "verify"];
    let mut paths = groups
        .iter()
        .map(|group| workspace().join(group).join(file));
    paths
        .find_map(|path| fs::read_to_string(path).ok())
        .unwrap_or_default()
}

#[test]
fn documented_limits_match_the_code() {
    let text = fs::read_to_string(workspace().join("docs/reference/limits.md")).unwrap();
    let mut compared = 0;
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let quoted: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        let (Some(limit), [name, file, ..]) = (written(cells[2]), &quoted[..]) else {
            continue;
        };
        let value = value_in(&source_of(file), name);
        // The table has the number after the last one.
        let value = value.map(|value| value - u64::from(*name == "GROUP_MAX"));
        assert_eq!(value, Some(limit), "{}: {name} in {file}", cells[1]);
        compared += 1;
    }
    assert!(compared >= 20, "only {compared} rows were compared");
}

#[test]
fn constant_expressions_are_evaluated() {
    let source = "const BITS: u32 = 4;\npub(crate) const A: usize = 1 << BITS;\n\
                  const B: Duration = Duration::from_secs(2);\n    c: 3 * 1_000,\n    d: u32,\n";
    let of = |name| value_in(source, name);
    assert_eq!(
        (of("A"), of("B"), of("c")),
        (Some(16), Some(2000), Some(3000))
    );
    assert_eq!((of("d"), of("E")), (None, None));
    assert_eq!(
        (written("64 KiB"), written("1,000 ms")),
        (Some(65_536), Some(1000))
    );
    assert_eq!(written("no limit"), None);
}
