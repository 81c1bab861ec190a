// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the committed header matches the sources, that C and C++ compilers accept it, and
//! that the library has the same functions, types and constants.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{
    Workshop, assert_all_called, assert_defines, check_cpp, checked, compare_header, declared,
    exported, succeed,
};
use std::mem::size_of;
use std::process::Command;
use vipl::types::*;

/// Environment variable. If it is set, the header is written instead of compared.
const UPDATE: &str = "VIPL_UPDATE_HEADER";

/// The sources of the C interface, in the order of the header.
const SOURCES: &[&str] = &[
    "code", "types", "nic", "memory", "queue", "vi", "connect", "work", "cq", "fault", "name",
];

fn header() -> String {
    std::fs::read_to_string(common::here().join("include/vipl.h")).unwrap()
}

#[test]
fn committed_header_matches_sources() {
    compare_header("include/vipl.h", SOURCES, UPDATE);
}

#[test]
fn library_exports_exactly_the_header() {
    let names = declared(&header(), "Vip");
    // The functions of the specification, and VipLastError().
    assert_eq!(names.len(), 42, "{names:?}");
    assert_eq!(exported("libvipl.so"), names);
}

/// Every function is called by one of the test programs.
#[test]
fn every_function_is_tested() {
    let programs = [
        include_str!("c/check.h"),
        include_str!("c/errors.h"),
        include_str!("c/messages.c"),
        include_str!("c/rdma.c"),
        include_str!("c/connections.c"),
        include_str!("c/queues.c"),
        include_str!("c/notify.c"),
        include_str!("c/single.c"),
    ];
    assert_all_called(&declared(&header(), "Vip"), &programs);
}

#[test]
fn types_match_in_c() {
    let shop = Workshop::new("vipl", "libvipl.so");
    let program = checked(&shop, "abi.c");
    let rust = format!(
        "VIP_VI_ATTRIBUTES {}\nVIP_MEM_ATTRIBUTES {}\nVIP_NIC_ATTRIBUTES {}\n\
         VIP_ERROR_DESCRIPTOR {}\nRDMAReadSupport {}\n",
        size_of::<VIP_VI_ATTRIBUTES>(),
        size_of::<VIP_MEM_ATTRIBUTES>(),
        size_of::<VIP_NIC_ATTRIBUTES>(),
        size_of::<VIP_ERROR_DESCRIPTOR>(),
        std::mem::offset_of!(VIP_NIC_ATTRIBUTES, RDMAReadSupport),
    );
    assert_eq!(succeed(&mut Command::new(program)), rust);
}

/// Constants of the original, some of each kind.
#[test]
fn published_numbers_are_unchanged() {
    let published = [
        "VIP_SUCCESS 0",
        "VIP_NOT_DONE 1",
        "VIP_INVALID_PARAMETER 2",
        "VIP_ERROR_RESOURCE 3",
        "VIP_TIMEOUT 4",
        "VIP_REJECT 5",
        "VIP_INVALID_RELIABILITY_LEVEL 6",
        "VIP_INVALID_MTU 7",
        "VIP_INVALID_QOS 8",
        "VIP_INVALID_PTAG 9",
        "VIP_INVALID_RDMAREAD 10",
        "VIP_DESCRIPTOR_ERROR 11",
        "VIP_INVALID_STATE 12",
        "VIP_ERROR_NAMESERVICE 13",
        "VIP_NO_MATCH 14",
        "VIP_NOT_REACHABLE 15",
        "VIP_ERROR_NOT_SUPPORTED 16",
        "VIP_CONTROL_OP_RDMAREAD 2",
        "VIP_CONTROL_IMMEDIATE 4",
        "VIP_CONTROL_QFENCE 8",
        "VIP_CONTROL_RESERVED 65520",
        "VIP_DESCRIPTOR_ALIGNMENT 64",
        "VIP_STATUS_RESERVED 4293983744",
        "VIP_STATUS_DONE 1",
        "VIP_STATUS_DESC_FLUSHED_ERROR 32",
        "VIP_STATUS_REMOTE_DESC_ERROR 256",
        "VIP_STATUS_ERROR_MASK 510",
        "VIP_STATUS_OP_RECEIVE 65536",
        "VIP_STATUS_OP_REMOTE_RDMA_WRITE 196608",
        "VIP_STATUS_OP_MASK 458752",
        "VIP_STATUS_IMMEDIATE 524288",
        "VIP_SERVICE_UNRELIABLE 1",
        "VIP_SERVICE_RELIABLE_DELIVERY 2",
        "VIP_SERVICE_RELIABLE_RECEPTION 4",
        "VIP_SMI_AUTODISCOVERY 1",
    ];
    assert_defines(&header(), &published);
}

#[test]
fn header_compiles_as_strict_cpp() {
    check_cpp(&Workshop::new("vipl", "libvipl.so"), "inclusion.cpp");
}
