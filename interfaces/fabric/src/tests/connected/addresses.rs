// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address that was reported to a program stays in use, also after a call that failed.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::null;

use super::harness::{Server, Side, name_of, query};
use crate::abi::*;
use crate::sockaddr::{self, CAddr};

/// A multicast address, for which a TCP connect fails immediately.
const NOWHERE: &str = "224.0.0.1:9";

fn name_client(client: &Side, addr: SocketAddr) -> c_int {
    let addr = CAddr::of(&addr);
    let (at, len) = (addr.bytes().as_ptr().cast_mut(), addr.bytes().len());
    (client.cm().setname)(client.fid(), at.cast(), len)
}

fn name_server(server: &Server, addr: SocketAddr) -> c_int {
    let addr = CAddr::of(&addr);
    let (at, len) = (addr.bytes().as_ptr().cast_mut(), addr.bytes().len());
    // SAFETY: an open passive endpoint, whose tables are static.
    unsafe { ((*(*server.pep).cm).setname)(&raw mut (*server.pep).fid, at.cast(), len) }
}

#[test]
fn endpoint_keeps_address_after_failed_connect() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(name_client(&client, "127.0.0.1:0".parse().unwrap()), 0);
    let name = || name_of(client.fid(), client.cm().getname).unwrap();
    let from = name();
    let nowhere = CAddr::of(&NOWHERE.parse().unwrap());
    let to = nowhere.bytes().as_ptr().cast();
    assert!((client.cm().connect)(client.ep, to, null(), 0) < 0);
    assert_eq!((name(), client.connect(b"")), (from, 0));
    let request = server.request(|| client.work());
    // SAFETY: information that was passed to the program.
    let asker = unsafe { sockaddr::read((*request.info).dest_addr, (*request.info).dest_addrlen) };
    assert_eq!((asker, name()), (Some(from), from));
    drop(server.accept(request, b""));
}

#[test]
fn passive_endpoint_keeps_address_after_failed_listen() {
    let (first, second) = (Server::bound(), Server::bound());
    let at = first.addr();
    // Two endpoints may have the same address, but only one of them may listen.
    assert_eq!((name_server(&second, at), first.listen()), (0, 0));
    assert_eq!(second.listen(), -libc::EADDRINUSE);
    assert_eq!(second.addr(), at);
    drop(first);
    assert_eq!((second.listen(), second.addr()), (0, at));
    drop(Side::pair(&second));
}

#[test]
fn failed_bind_keeps_previous_address() {
    let (taken, server) = (Server::listening(), Server::bound());
    let at = server.addr();
    assert_eq!(name_server(&server, taken.addr()), -libc::EADDRINUSE);
    assert_eq!((server.listen(), server.addr()), (0, at));
    let client = Side::client(&server);
    assert_eq!(name_client(&client, "127.0.0.1:0".parse().unwrap()), 0);
    let name = || name_of(client.fid(), client.cm().getname).unwrap();
    let from = name();
    assert_eq!(name_client(&client, taken.addr()), -libc::EADDRINUSE);
    assert_eq!((name_client(&client, from), name()), (0, from));
}

#[test]
fn passive_endpoint_without_its_socket_does_not_listen() {
    let (server, source) = (Server::listening(), Server::bound());
    let from = source.addr();
    // SAFETY: an open passive endpoint.
    let handle = unsafe { &raw mut (*source.pep).fid };
    let port = Some(server.addr().port());
    let info = query(port, 0, |hints| hints.handle = handle).unwrap();
    let client = Side::open(&source.events, info);
    assert_eq!((source.listen(), source.addr()), (-EOPBADSTATE, from));
    drop(client);
}
