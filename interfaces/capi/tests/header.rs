// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the committed header matches the sources, that C and C++ compilers accept it, and
//! that both languages agree on the layout of shared structures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
use common::{
    STRICT, Workshop, check_cpp, compare_header, compare_header_of, exported, here, succeed,
};
use portolan_c::types::*;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

/// The sources of the C interface, in the header's order.
const SOURCES: &[&str] = &[
    "code",
    "failure",
    "types",
    "handle",
    "node",
    "port",
    "message",
    "request",
    "tagged",
    "probe",
    "call",
    "server",
    "event",
    "group",
    "collective",
    "block",
    "combine",
    "memory",
    "remote",
    "atomic",
    "counters",
    "model",
];

/// Variable that requests writing the header instead of comparing it.
const UPDATE: &str = "PORTOLAN_UPDATE_HEADER";

fn committed() -> String {
    std::fs::read_to_string(here().join("include/portolan.h")).unwrap()
}

#[test]
fn committed_header_matches_the_sources() {
    compare_header("include/portolan.h", SOURCES, UPDATE);
}

/// The crate of Open MPI's component has no tests of its own.
#[test]
fn open_mpi_header_matches_its_sources() {
    let root = here().join("../openmpi");
    let path = "include/portolan_btl.h";
    compare_header_of(&root, path, &["types", "calls"], UPDATE);
}

/// Returns the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = committed();
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut found = BTreeSet::new();
    let mut rest = header.as_str();
    for word in words {
        let at = rest.find(word).unwrap() + word.len();
        rest = &rest[at..];
        // In comments a function's name is followed by an empty pair of parentheses.
        if word.starts_with("portolan_") && rest.starts_with('(') && !rest.starts_with("()") {
            found.insert(word.to_owned());
        }
    }
    found
}

#[test]
fn library_exports_exactly_what_the_header_declares() {
    let exported = exported("libportolan_c.so");
    let mut expected = declared();
    for none in [
        "portolan_error_name",
        "portolan_last_error",
        "portolan_version",
    ] {
        assert!(committed().contains(none), "{none} is not in the header");
    }
    // Functions without arguments are declared as `(void)`, so they are found like all other
    // functions.
    expected.retain(|name| !name.ends_with("_t"));
    assert_eq!(exported, expected);
}

#[test]
fn every_result_has_a_name_a_text_and_a_unique_number() {
    let header = committed();
    let codes: Vec<(&str, i32)> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define PORTOLAN_ERR_"))
        .map(|rest| {
            let (name, number) = rest.split_once(' ').unwrap();
            (name, number.trim().parse().unwrap())
        })
        .collect();
    assert!(codes.len() > 20, "{codes:?}");
    let numbers: BTreeSet<i32> = codes.iter().map(|code| code.1).collect();
    assert_eq!(numbers.len(), codes.len(), "a number is used twice");
    let mut program = String::from(
        "#include <portolan.h>\n#include <string.h>\nint main(void) { int wrong = 0;\n",
    );
    for (name, _) in &codes {
        writeln!(
            program,
            "wrong += strcmp(portolan_error_name(PORTOLAN_ERR_{name}), \"PORTOLAN_ERR_{name}\") != 0;
             wrong += strcmp(portolan_strerror(PORTOLAN_ERR_{name}), portolan_strerror(12345)) == 0;"
        )
        .unwrap();
    }
    program.push_str("return wrong; }\n");
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let source = shop.path().join("codes.c");
    std::fs::write(&source, program).unwrap();
    succeed(&mut Command::new(shop.build("cc", &source, &[])));
}

/// Numbers that existing programs may have been built with. Lines may be added here, but never
/// changed.
#[test]
fn published_numbers_do_not_change() {
    for line in [
        "PORTOLAN_OK 0",
        "PORTOLAN_PENDING 1",
        "PORTOLAN_ERR_NULL -1",
        "PORTOLAN_ERR_ARGUMENT -2",
        "PORTOLAN_ERR_STRUCT_SIZE -3",
        "PORTOLAN_ERR_HANDLE -4",
        "PORTOLAN_ERR_CLOSED -5",
        "PORTOLAN_ERR_WRONG_THREAD -6",
        "PORTOLAN_ERR_IN_HANDLER -7",
        "PORTOLAN_ERR_INTERNAL -8",
        "PORTOLAN_ERR_PORT -9",
        "PORTOLAN_ERR_LAUNCH -10",
        "PORTOLAN_ERR_LINK -11",
        "PORTOLAN_ERR_SYSTEM -12",
        "PORTOLAN_ERR_SETTING -13",
        "PORTOLAN_ERR_NO_OPTION -14",
        "PORTOLAN_ERR_FORKED -15",
        "PORTOLAN_ERR_NO_SUCH_RANK -20",
        "PORTOLAN_ERR_PEER_GONE -21",
        "PORTOLAN_ERR_NO_PATH -22",
        "PORTOLAN_ERR_NO_ANSWER -23",
        "PORTOLAN_ERR_UNDELIVERED -24",
        "PORTOLAN_ERR_NOBODY_LEFT -25",
        "PORTOLAN_ERR_SELF_FULL -26",
        "PORTOLAN_ERR_NO_SERVER -27",
        "PORTOLAN_ERR_SERVER_REFUSED -28",
        "PORTOLAN_ERR_ADDRESS -29",
        "PORTOLAN_ERR_TRUNCATED -30",
        "PORTOLAN_ERR_REFUSED -31",
        "PORTOLAN_ERR_PORT_CLOSED -32",
        "PORTOLAN_ERR_PORT_IN_USE -33",
        "PORTOLAN_ERR_STALE_REQUEST -34",
        "PORTOLAN_ERR_CANCELLED -35",
        "PORTOLAN_ERR_LENGTH_MISMATCH -36",
        "PORTOLAN_ERR_NO_CLAIM -37",
        "PORTOLAN_ERR_COLLECTIVE_MISMATCH -38",
        "PORTOLAN_ERR_GROUP_BUSY -39",
        "PORTOLAN_ERR_NO_MEMORY -42",
        "PORTOLAN_ERR_FAULT -43",
        "PORTOLAN_ERR_PEER_FAULT -44",
        "PORTOLAN_ERR_TIMEOUT -45",
        "PORTOLAN_ERR_REMOTE_REFUSED -40",
        "PORTOLAN_ERR_NO_REGION -41",
        "PORTOLAN_ERR_OTHER -99",
    ] {
        let defined = format!("#define {line}\n");
        assert!(committed().contains(&defined), "missing: {defined}");
    }
}

/// Prints one line for each structure: its size, its alignment, and the offsets of its fields.
macro_rules! layouts {
    ($($type:ident { $($field:ident),* })*) => {{
        let mut rust = String::new();
        let mut c = String::from(
            "#include <portolan.h>\n#include <stdio.h>\nint main(void) {\n",
        );
        $(
            write!(rust, "{} {} {}", stringify!($type), size_of::<$type>(), align_of::<$type>())
                .unwrap();
            writeln!(
                c,
                "printf(\"{0} %zu %zu\", sizeof({0}), _Alignof({0}));",
                stringify!($type)
            )
            .unwrap();
            $(
                write!(rust, " {}", offset_of!($type, $field)).unwrap();
                writeln!(
                    c,
                    "printf(\" %zu\", offsetof({}, {}));",
                    stringify!($type),
                    stringify!($field).trim_start_matches("r#")
                )
                .unwrap();
            )*
            rust.push('\n');
            c.push_str("puts(\"\");\n");
        )*
        c.push_str("return 0; }\n");
        (rust, c)
    }};
}

#[test]
fn both_languages_agree_on_sizes_and_offsets() {
    let (rust, c) = layouts! {
        portolan_piece_t { bytes, len }
        portolan_received_t { size, len, source }
        portolan_completion_t { size, len, buffer, source, has_imm, tag, imm }
        portolan_envelope_t { size, len, tag, imm, source, has_imm }
        portolan_remote_t { size, key, offset, notice, rank, flags }
        portolan_atomic_t { size, operation, r#type, count, operands, compare, before }
        portolan_reply_t { size, len, status }
        portolan_call_t { size, number, memory, len, source }
        portolan_notice_t { size, word, key, offset, len, source }
        portolan_peer_t { size, rank, generation }
        portolan_peer_event_t { size, rank, kind, generation, reason }
        portolan_message_t { size, bytes, len, message_len, buffer, buffer_len, source, port }
        portolan_counters_t {
            size, frames_sent, frames_received, retransmits, timeouts, paths_left, messages_sent,
            messages_received, bytes_received, messages_held, best_effort_lost, placement_hits,
            placement_misses, placement_repaired_bytes, link_full, drops, remote_requests,
            frames_marked, marks_heard, stream_bytes
        }
        portolan_lone_pieces_t { message_len_max, call_len }
        portolan_choices_t {
            size, eager_len_max, eager_len_max_shm, packet_len_max, lone, lone_count
        }
    };
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let source = shop.path().join("layout.c");
    std::fs::write(&source, c).unwrap();
    let program = shop.build("cc", &source, &["-std=c11"]);
    assert_eq!(succeed(&mut Command::new(program)), rust);
}

#[test]
fn strict_c_and_cpp_compilers_accept_the_header() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let c = shop.path().join("inclusion.c");
    let text = "#include <portolan.h>\n#include <portolan.h>\nint main(void) { \
                portolan_received_t got = PORTOLAN_SIZED(portolan_received_t); \
                return got.size == sizeof got ? 0 : 1; }\n";
    std::fs::write(&c, text).unwrap();
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        let program = shop.build("cc", &c, &[STRICT, &[standard]].concat());
        succeed(&mut Command::new(program));
    }
    check_cpp(&shop, "inclusion.cpp");
}
