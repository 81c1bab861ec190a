// SPDX-License-Identifier: MIT OR Apache-2.0
//! The committed header is what the sources say, C and C++ take it, and the library has what it
//! declares, in the same types and with the numbers of the original.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../capi/tests/common/mod.rs"]
mod common;

use common::{compare_header, exported};
use std::collections::BTreeSet;

/// Set to write the header instead of comparing it.
const UPDATE: &str = "VIPL_UPDATE_HEADER";

/// The sources that hold what C sees, in the header's order.
const SOURCES: &[&str] = &[
    "code", "types", "nic", "memory", "queue", "vi", "connect", "work", "cq", "fault", "name",
];

fn header() -> String {
    std::fs::read_to_string(common::here().join("include/vipl.h")).unwrap()
}

#[test]
fn the_committed_header_is_what_the_sources_say() {
    compare_header("include/vipl.h", SOURCES, UPDATE);
}

/// The names before an opening bracket, as far as they are functions.
fn declared(header: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/']))
    {
        if let Some((before, _)) = line.split_once('(')
            && let Some(name) = before.split([' ', '*']).next_back()
            && name.starts_with("Vip")
        {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let names = declared(&header());
    // Those of the specification, and VipLastError().
    assert_eq!(names.len(), 42, "{names:?}");
    assert_eq!(exported("libvipl.so"), names);
}
