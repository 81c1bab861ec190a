// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the committed header matches the sources, and that C and C++ compile it. Checks that
//! the library exports the declared functions, with the types and numbers of the original.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    Workshop, assert_all_called, assert_defines, check_cpp, checked, compare_header, declared,
    exported, succeed,
};
use gm::alarm::gm_alarm_t;
use gm::event::gm_recv_event_t;
use gm::util::mark::gm_mark_t;
use std::mem::{align_of, size_of};
use std::process::Command;

/// Environment variable that writes the header instead of comparing it.
const UPDATE: &str = "GM_UPDATE_HEADER";

/// Sources of the C interface, in the header's order.
const SOURCES: &[&str] = &[
    "code",
    "event",
    "numbers",
    "conn",
    "port",
    "tokens",
    "buffer",
    "receive",
    "send",
    "simple",
    "recover",
    "memory",
    "alarm",
    "name",
    "misc",
    "util/hash",
    "util/keys",
    "util/lookaside",
    "util/crc",
    "util/mutex",
    "util/mark",
];

fn header() -> String {
    std::fs::read_to_string(common::here().join("include/gm.h")).unwrap()
}

#[test]
fn committed_header_matches_sources() {
    compare_header("include/gm.h", SOURCES, UPDATE);
}

#[test]
fn library_exports_exactly_the_header() {
    let names = declared(&header(), "gm_");
    assert!(names.len() > 80, "{names:?}");
    assert_eq!(exported("libgm.so"), names);
}

/// Checks that a test program calls every function.
#[test]
fn every_function_is_tested() {
    let programs = [
        include_str!("c/check.h"),
        include_str!("c/messages.c"),
        include_str!("c/errors.c"),
        include_str!("c/single.c"),
        include_str!("c/utilities.c"),
    ];
    assert_all_called(&declared(&header(), "gm_"), &programs);
}

#[test]
fn types_match_in_c() {
    let shop = Workshop::new("gm", "libgm.so");
    let program = checked(&shop, "abi.c");
    let rust = format!(
        "gm_recv_event_t {} {}\ngm_alarm_t {}\ngm_mark_t {}\ntype 25\n",
        size_of::<gm_recv_event_t>(),
        align_of::<gm_recv_event_t>(),
        size_of::<gm_alarm_t>(),
        size_of::<gm_mark_t>(),
    );
    assert_eq!(succeed(&mut Command::new(program)), rust);
}

/// Some numbers of the original of each kind, and numbers of Portolan's own.
#[test]
fn published_numbers_are_unchanged() {
    let published = [
        "GM_API_VERSION_1_0 256",
        "GM_API_VERSION_2_0_16 131088",
        "GM_MAX_HOST_NAME_LEN 128",
        "GM_HIGH_PRIORITY 1",
        "GM_SUCCESS 0",
        "GM_BUSY 5",
        "GM_INVALID_PARAMETER 8",
        "GM_PERMISSION_DENIED 11",
        "GM_SEND_TIMED_OUT 15",
        "GM_SEND_REJECTED 16",
        "GM_SEND_TARGET_PORT_CLOSED 17",
        "GM_SEND_TARGET_NODE_UNREACHABLE 18",
        "GM_SEND_DROPPED 19",
        "GM_INVALID_PORT_NUMBER 42",
        "GM_FIRMWARE_ABORT 47",
        "GM_ALARM_EVENT 2",
        "GM_SENT_EVENT 3",
        "GM_RECV_EVENT 11",
        "GM_HIGH_PEER_RECV_EVENT 14",
        "GM_FAST_RECV_EVENT 15",
        "GM_FAST_HIGH_PEER_RECV_EVENT 18",
        "GM_PLUS_INLINE 1",
        "GM_PLUS_UNACKNOWLEDGED 2",
        "GM_PLUS_BEST_EFFORT 4",
        "GM_PLUS_LEN_MAX 256",
    ];
    assert_defines(&header(), &published);
}

/// Each enumerator has the number of the constant with its name.
#[test]
fn enumerations_match_the_constants() {
    let text = header();
    let mut compared = 0;
    for line in text.lines().filter(|line| line.starts_with("  GM_")) {
        let (name, number) = line.trim().trim_end_matches(',').split_once(" = ").unwrap();
        let defined = text
            .lines()
            .find(|line| line.starts_with(&format!("#define {name} ")));
        if let Some(defined) = defined {
            assert_eq!(defined, format!("#define {name} {number}"));
            compared += 1;
        }
    }
    assert!(compared > 70, "only {compared} enumerators were compared");
    assert!(text.contains("  _GM_SLEEP_EVENT = 4,"));
}

#[test]
fn header_compiles_as_strict_cpp() {
    check_cpp(&Workshop::new("gm", "libgm.so"), "inclusion.cpp");
}
