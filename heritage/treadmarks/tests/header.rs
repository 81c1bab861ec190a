// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the committed header matches the sources, that C and C++ compilers accept it, and
//! that the library has the same functions, types and constants.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    Workshop, assert_all_called, assert_defines, check_cpp, checked, compare_header, declared,
    exported, here, succeed,
};
use std::process::Command;
use tmk::startup::{TMK_NBARRIERS, TMK_NCONDS, TMK_NLOCKS, TMK_NPROCS};

/// Environment variable. If it is set, the header is written instead of compared.
const UPDATE: &str = "TMK_UPDATE_HEADER";

/// The sources of the C interface, in the order of the header.
const SOURCES: &[&str] = &["startup", "memory", "sync"];

const VARIABLES: [&str; 3] = ["Tmk_proc_id", "Tmk_nprocs", "Tmk_page_size"];

fn header() -> String {
    std::fs::read_to_string(here().join("include/tmk.h")).unwrap()
}

#[test]
fn committed_header_matches_sources() {
    compare_header("include/tmk.h", SOURCES, UPDATE);
}

#[test]
fn library_exports_exactly_what_the_header_declares() {
    let mut names = declared(&header(), "Tmk_");
    names.extend(VARIABLES.map(str::to_owned));
    assert!(names.len() > 10, "{names:?}");
    assert_eq!(exported("libtmk.so"), names);
}

#[test]
fn every_function_is_tested() {
    assert_all_called(&declared(&header(), "Tmk_"), &[include_str!("c/sharing.c")]);
}

#[test]
fn types_and_numbers_match_in_c() {
    let shop = Workshop::new("tmk", "libtmk.so");
    let program = checked(&shop, "abi.c");
    let rust = format!(
        "TMK_NPROCS {TMK_NPROCS}\nTMK_NLOCKS {TMK_NLOCKS}\nTMK_NBARRIERS {TMK_NBARRIERS}\n\
         TMK_NCONDS {TMK_NCONDS}\nbefore 0 1\n"
    );
    assert_eq!(succeed(&mut Command::new(program)), rust);
}

/// Constants that existing programs may have been built with. Lines may be added but not changed.
#[test]
fn published_numbers_are_unchanged() {
    let published = [
        "TMK_NPROCS 32",
        "TMK_NLOCKS 1024",
        "TMK_NBARRIERS 32",
        "TMK_NCONDS 32",
    ];
    assert_defines(&header(), &published);
}

#[test]
fn header_compiles_as_strict_cpp() {
    check_cpp(&Workshop::new("tmk", "libtmk.so"), "inclusion.cpp");
}
