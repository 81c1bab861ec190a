// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the committed header matches the sources, that C and C++ compilers accept it, and
//! that the library has the same functions, types and constants.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use bip::init::{BIPMAXTAG, BIPSMALLSIZE};
use common::{Workshop, assert_defines, check_cpp, checked, compare_header, exported, succeed};
use std::process::Command;

/// Environment variable. If it is set, the header is written instead of compared.
const UPDATE: &str = "BIP_UPDATE_HEADER";

/// The sources of the C interface, in the order of the header.
const SOURCES: &[&str] = &["init", "send", "receive"];

/// Functions and variables for users of BIP, without `bip_`.
const NAMES: &[&str] = &[
    "init", "taginit", "send", "recv", "isend", "irecv", "tsend", "trecv", "trecvx", "tisend",
    "tirecv", "swait", "stest", "rwait", "rtest", "rwaitx", "rtestx", "tnrecv", "tnrecvx",
    "tgetmsg", "tngetmsg", "tfreemsg", "mynode", "numnodes",
];

#[test]
fn committed_header_matches_sources() {
    compare_header("include/bip.h", SOURCES, UPDATE);
}

#[test]
fn library_exports_exactly_the_functions_of_bip() {
    let names = NAMES.iter().map(|name| format!("bip_{name}")).collect();
    assert_eq!(exported("libbip.so"), names);
}

/// Every function is called by one of the test programs.
#[test]
fn every_function_is_tested() {
    let program = include_str!("c/messages.c");
    for name in NAMES {
        assert!(program.contains(&format!("bip_{name}")), "{name}");
    }
}

#[test]
fn types_and_numbers_match_in_c() {
    let shop = Workshop::new("bip", "libbip.so");
    let program = checked(&shop, "abi.c");
    let rust = format!("BIPSMALLSIZE {BIPSMALLSIZE}\nBIPMAXTAG {BIPMAXTAG}\nbefore -1 0\n");
    assert_eq!(succeed(&mut Command::new(program)), rust);
}

/// Constants that existing programs may have been built with. Lines may be added but not changed.
#[test]
fn published_numbers_are_unchanged() {
    let header = std::fs::read_to_string(common::here().join("include/bip.h")).unwrap();
    let published = ["BIPSMALLSIZE 64", "BIPMAXTAG 65535"];
    assert_defines(&header, &published);
    let defined = header
        .lines()
        .filter(|line| line.starts_with("#define B") && line.split(' ').count() == 3);
    assert_eq!(defined.count(), published.len(), "one is not listed here");
}

#[test]
fn header_compiles_as_strict_cpp() {
    check_cpp(&Workshop::new("bip", "libbip.so"), "inclusion.cpp");
}
