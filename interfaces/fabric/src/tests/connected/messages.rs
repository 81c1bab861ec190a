// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on a connection behave like those of connectionless endpoints.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::harness::{Server, Side};
use crate::abi::*;
use crate::tests::harness::close;

#[test]
fn receives_may_be_posted_before_connection() {
    let server = Server::listening();
    let client = Side::client(&server);
    let (mut early, mut late) = ([0; 5], [0; 5]);
    assert_eq!(client.recv(&mut early, 1), 0);
    assert_eq!(client.connect(b""), 0);
    let request = server.request(|| client.work());
    let accepted = Side::open(&server.events, request.info);
    assert_eq!(accepted.recv(&mut late, 2), 0);
    assert_eq!(accepted.accept(b""), 0);
    assert_eq!(server.events.wait(|| ()).unwrap().event, CONNECTED);
    // The accepting side may send first, before the peer has read its event.
    assert_eq!(accepted.send(b"hello", 3), 0);
    assert_eq!(accepted.wait(&client).ok(), Some(3));
    assert_eq!(client.wait(&accepted).ok(), Some(1));
    assert_eq!(client.events.wait(|| ()).unwrap().event, CONNECTED);
    assert_eq!(client.send(b"there", 4), 0);
    assert_eq!(client.wait(&accepted).ok(), Some(4));
    assert_eq!(accepted.wait(&client).ok(), Some(2));
    assert_eq!((&early, &late), (b"hello", b"there"));
}

#[test]
fn long_messages_arrive_intact() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let data: Vec<u8> = (0..1_000_003u32).map(|i| i.to_le_bytes()[0]).collect();
    let mut got = vec![0xa5; data.len()];
    assert_eq!(accepted.recv(&mut got, 1), 0);
    assert_eq!(client.send(&data, 2), 0);
    assert_eq!(accepted.wait(&client).ok(), Some(1));
    assert_eq!(client.wait(&accepted).ok(), Some(2));
    assert!(got == data);
}

#[test]
fn tags_rma_and_atomics_work_over_a_connection() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let mut number = [5u64, 0];
    let (mut got, mut old, one) = ([0u8; 3], [0u64], [1u64]);
    // SAFETY: open objects. The memory outlives the operations, which the test waits for.
    unsafe {
        let (ep, other) = (client.ep, accepted.ep);
        let into = got.as_mut_ptr().cast();
        let recv = (*(*other).tagged).recv;
        assert_eq!(
            recv(other, into, 3, null_mut(), 0, 7, 0, 9 as *mut c_void),
            0
        );
        let send = (*(*ep).tagged).send;
        assert_eq!(
            send(
                ep,
                b"tag".as_ptr().cast(),
                3,
                null_mut(),
                0,
                7,
                2 as *mut c_void
            ),
            0
        );
        assert_eq!(
            (accepted.wait(&client).ok(), client.wait(&accepted).ok()),
            (Some(9), Some(2))
        );
        let (reg, mut mr) = ((*(*accepted.domain).mr).reg, null_mut());
        let fid = &raw mut (*accepted.domain).fid;
        let access = REMOTE_READ | REMOTE_WRITE;
        let at = number.as_mut_ptr();
        assert_eq!(
            reg(fid, at.cast(), 16, access, 0, 7, 0, &raw mut mr, null_mut()),
            0
        );
        let key = (*mr).key;
        let write = (*(*ep).rma).write;
        let place = at as u64 + 8;
        let from = one.as_ptr().cast();
        assert_eq!(
            write(ep, from, 8, null_mut(), 0, place, key, 3 as *mut c_void),
            0
        );
        assert_eq!(client.wait(&accepted).ok(), Some(3));
        // FI_UINT64 is 7, FI_SUM 2.
        let add = (*(*ep).atomic).readwrite;
        let (desc, result) = (null_mut(), old.as_mut_ptr().cast());
        let context = 4 as *mut c_void;
        assert_eq!(
            add(
                ep, from, 1, desc, result, desc, 0, at as u64, key, 7, 2, context
            ),
            0
        );
        assert_eq!(client.wait(&accepted).ok(), Some(4));
        assert_eq!(close(&raw mut (*mr).fid), 0);
    }
    assert_eq!((&got, old, number), (b"tag", [5], [6, 1]));
}
