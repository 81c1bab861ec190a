// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of `fi_getinfo` for connected endpoints.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::net::SocketAddr;
use std::ptr::null_mut;

use super::harness::query;
use crate::abi::*;
use crate::sockaddr::{self, CAddr};
use crate::tests::harness::{free, getinfo};

/// Returns source, destination and format of a result, and frees it.
fn addresses(info: *mut Info) -> (Option<SocketAddr>, Option<SocketAddr>, u32) {
    // SAFETY: a valid result, which is not freed yet.
    let found = unsafe {
        let info = &*info;
        assert!(info.next.is_null(), "one result");
        (
            sockaddr::read(info.src_addr, info.src_addrlen),
            sockaddr::read(info.dest_addr, info.dest_addrlen),
            info.addr_format,
        )
    };
    free(info);
    found
}

#[test]
fn node_and_service_set_source_or_destination() {
    let here: SocketAddr = "127.0.0.1:4711".parse().unwrap();
    let listen = addresses(query(Some(4711), SOURCE, |_| ()).unwrap());
    assert_eq!(listen, (Some(here), None, SOCKADDR_IN));
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let connect = addresses(query(Some(4711), NUMERICHOST, |_| ()).unwrap());
    assert_eq!(connect, (Some(any), Some(here), SOCKADDR_IN));
}

/// MPICH's `MPIR_CVAR_DEBUG_SUMMARY` formats the source of every result and ignores its length.
#[test]
fn every_result_has_a_source_of_its_format() {
    for format in [FORMAT_UNSPEC, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6] {
        let (source, dest, result_format) =
            addresses(query(None, 0, |hints| hints.addr_format = format).unwrap());
        let source = source.unwrap();
        assert!(sockaddr::is_any(&source) && dest.is_none(), "{format}");
        assert_eq!(source.is_ipv6(), result_format == SOCKADDR_IN6, "{format}");
    }
}

#[test]
fn addresses_and_format_of_hints_are_returned() {
    let source: SocketAddr = "127.0.0.1:99".parse().unwrap();
    let passed = CAddr::of(&source);
    let result = query(Some(4711), 0, |hints| {
        hints.addr_format = SOCKADDR;
        hints.src_addr = passed.bytes().as_ptr().cast_mut().cast();
        hints.src_addrlen = passed.bytes().len();
    });
    let dest = "127.0.0.1:4711".parse().ok();
    assert_eq!(addresses(result.unwrap()), (Some(source), dest, SOCKADDR));
    let v6_only = query(Some(4711), 0, |hints| hints.addr_format = SOCKADDR_IN6);
    assert_eq!(v6_only.err(), Some(-libc::ENODATA), "that node has none");
}

#[test]
fn connectionless_kind_is_offered_first() {
    let info = getinfo(|_| ()).unwrap();
    // SAFETY: a list of results.
    let kinds = unsafe {
        let second = (*info).next;
        let last = (*second).next;
        let kind = |info: *mut Info| (*(*info).ep_attr).ep_type;
        (kind(info), kind(second), last)
    };
    free(info);
    assert_eq!(kinds, (EP_RDM, EP_MSG, null_mut()));
}

#[test]
fn core_provider_query_has_no_connected_kind() {
    let result = query(None, CORE_PROV_ONLY, |_| ());
    assert_eq!(result.err(), Some(-libc::ENODATA));
}
