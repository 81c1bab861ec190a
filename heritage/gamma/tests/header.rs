// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the committed header matches the sources, that C and C++ compilers accept it, and
//! that the library has the same functions, types and constants.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{Workshop, assert_defines, check_cpp, checked, compare_header, exported, succeed};
use gamma::port::{GO_BACK, GO_FORTH, gamma_active_port, gamma_handler_t, gamma_msglen};
use gamma::time::gamma_time_t;
use std::mem::{align_of, size_of};
use std::process::Command;

/// Environment variable. If it is set, the header is written instead of compared.
const UPDATE: &str = "GAMMA_UPDATE_HEADER";

/// The sources of the C interface, in the order of the header.
const SOURCES: &[&str] = &[
    "code",
    "init",
    "port",
    "send",
    "semaphore",
    "group",
    "memory",
    "time",
];

/// Functions and variables for users of GAMMA, without `gamma_`, and the error description.
const NAMES: &[&str] = &[
    "init",
    "exit",
    "abort",
    "set_active_port",
    "set_passive_port",
    "post_recv",
    "handle_at_once",
    "send",
    "send_flowctl",
    "send_2p",
    "send_2p_flowctl",
    "isend",
    "isend_flowctl",
    "isend_2p",
    "isend_2p_flowctl",
    "wsend",
    "tsend",
    "signal",
    "sigerr",
    "wait",
    "test",
    "atomic",
    "sync",
    "broadcast",
    "my_node",
    "how_many_nodes",
    "my_par_pid",
    "how_many_groups",
    "group_par_pid",
    "group_nodes",
    "mlock",
    "munlock",
    "munlockall",
    "time",
    "time_diff",
    "active_port",
    "msglen",
    "last_error",
];

#[test]
fn committed_header_matches_sources() {
    compare_header("include/gamma.h", SOURCES, UPDATE);
}

#[test]
fn library_exports_exactly_the_functions_of_gamma() {
    let names = NAMES.iter().map(|name| format!("gamma_{name}")).collect();
    assert_eq!(exported("libgamma.so"), names);
}

/// Every function is called by one of the test programs.
#[test]
fn every_function_is_tested() {
    let programs = [
        include_str!("c/ports.c"),
        include_str!("c/misuse.c"),
        include_str!("c/abort.c"),
        include_str!("c/sides.c"),
        include_str!("c/at_once.c"),
    ];
    for name in NAMES {
        let called = format!("gamma_{name}");
        assert!(
            programs.iter().any(|program| program.contains(&called)),
            "{called}"
        );
    }
}

fn size_of_variable<T>(_at: *const T) -> usize {
    size_of::<T>()
}

#[test]
fn types_and_numbers_match_in_c() {
    let shop = Workshop::new("gamma", "libgamma.so");
    let program = checked(&shop, "abi.c");
    let rust = format!(
        "gamma_time_t {} {}\ngamma_handler_t {}\ngamma_active_port {}\ngamma_msglen {}\n\
         GO_BACK {GO_BACK}\nGO_FORTH {GO_FORTH}\n",
        size_of::<gamma_time_t>(),
        align_of::<gamma_time_t>(),
        size_of::<gamma_handler_t>(),
        size_of_variable(&raw const gamma_active_port),
        size_of_variable(&raw const gamma_msglen),
    );
    assert_eq!(succeed(&mut Command::new(program)), rust);
}

/// Constants that existing programs may have been built with. Lines may be added but not changed.
#[test]
fn published_numbers_are_unchanged() {
    let header = std::fs::read_to_string(common::here().join("include/gamma.h")).unwrap();
    let published = [
        "GAMMA_ERR_NOT_INITIALISED -1",
        "GAMMA_ERR_EXITED -2",
        "GAMMA_ERR_ALREADY -3",
        "GAMMA_ERR_LAUNCH -4",
        "GAMMA_ERR_NULL -5",
        "GAMMA_ERR_ARGUMENT -6",
        "GAMMA_ERR_NODE -7",
        "GAMMA_ERR_PAR_PID -8",
        "GAMMA_ERR_PORT -9",
        "GAMMA_ERR_IN_HANDLER -10",
        "GAMMA_ERR_SIGNALLED -11",
        "GAMMA_ERR_NODE_GONE -12",
        "GAMMA_ERR_SYSTEM -13",
        "GAMMA_ERR_INTERNAL -14",
        "GAMMA_ERR_FORKED -15",
        "GAMMA_ERR_OTHER -99",
        "GO_BACK 0",
        "GO_FORTH 1",
    ];
    assert_defines(&header, &published);
    let defined = header
        .lines()
        .filter(|line| line.starts_with("#define G") && line.contains(' '))
        .filter(|line| line.split(' ').count() == 3);
    assert_eq!(defined.count(), published.len(), "one is not listed here");
}

#[test]
fn header_compiles_as_strict_cpp() {
    check_cpp(&Workshop::new("gamma", "libgamma.so"), "inclusion.cpp");
}
