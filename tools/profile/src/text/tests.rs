// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the text for two processes.

use crate::record::tests::record_of;
use crate::{Profile, read_directory, render};
use std::fs;

/// Returns a profile of two processes, of which `ranks` left a record.
fn profile(ranks: &[u32]) -> Profile {
    let directory = tempfile::tempdir().unwrap();
    for rank in ranks {
        let path = directory.path().join(format!("1-{rank}.record"));
        fs::write(path, record_of(*rank)).unwrap();
    }
    let (records, refused) = read_directory(directory.path()).unwrap();
    assert!(refused.is_empty());
    Profile::new(vec!["mpirun".into()], &records, vec!["a note".into()])
}

/// Returns the words of the line that begins with `name`.
fn line<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .split_whitespace()
        .collect()
}

#[test]
fn tables_show_counts_sizes_shares_and_rates() {
    let text = render(&profile(&[0, 1]));
    let head =
        "program: 2 processes on 1 host, Some MPI 1.0, 2.000 s from MPI_Init to MPI_Finalize";
    assert!(text.starts_with(head), "{text}");
    assert_eq!(
        line(&text, "between two")[3..],
        ["0", "6", "0", "0", "0", "0"]
    );
    let volume = text
        .lines()
        .filter(|line| line.starts_with("between two"))
        .nth(1);
    let volume: Vec<&str> = volume.unwrap().split_whitespace().skip(3).collect();
    assert_eq!(volume, ["6", "0.000", "0.070", "0.000"]);
    assert_eq!(
        line(&text, "computation"),
        ["computation", "50.0", "50.0", "(0)", "50.0", "(1)"]
    );
    assert_eq!(
        line(&text, "Send"),
        ["Send", "6", "20.0", "20.0", "(0)", "20.0", "(1)"]
    );
    assert_eq!(line(&text, "MPI_Recv")[..3], ["MPI_Recv", "6", "1.200"]);
    assert!(text.contains("note: a note"), "{text}");
    assert!(!text.contains("left no record"), "{text}");
}

#[test]
fn processes_without_a_record_are_named() {
    let text = render(&profile(&[1]));
    let expected = "1 process of 2 left no record, rank 0 first";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn profile_round_trips_through_json() {
    let profile = profile(&[0, 1]);
    let json = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
    assert!(json.contains(r#""format":"portolan-profile-1""#), "{json}");
}

/// Collects the names of all fields in `json`.
fn fields<'a>(json: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match json {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                found.push(name);
                fields(value, found);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_json_is_documented() {
    let document = include_str!("../../../../docs/guide/profile.md");
    let json = serde_json::to_value(profile(&[0, 1])).unwrap();
    let mut found = Vec::new();
    fields(&json, &mut found);
    assert!(found.len() > 50, "{found:?}");
    for name in found {
        assert!(document.contains(&format!("`{name}`")), "{name}");
    }
}
