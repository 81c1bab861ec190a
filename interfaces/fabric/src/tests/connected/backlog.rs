// SPDX-License-Identifier: MIT OR Apache-2.0
//! More callers than can be accepted, or than the program answers: they wait, and no process spins.

#![allow(
    unsafe_code,
    reason = "sets a limit of the process, and calls as C does"
)]

use std::ffi::c_int;
use std::io::Write;
use std::net::TcpStream;
use std::ptr::null_mut;
use std::time::Instant;

use portolan_wire::{ConnectionKind, EndpointId as Id};

use super::harness::{AGAIN, ReadEvent, Server, runs_in_own_process, wait_fd};
use super::hostile::{caller, frame, some_address};
use crate::abi::*;
use crate::tests::harness::{PATIENCE, free, is_readable};

/// Default limit of unanswered callers.
const UNANSWERED_MAX: u8 = 128;

fn event_fd(server: &Server) -> c_int {
    // SAFETY: an open queue.
    wait_fd(unsafe { &raw mut (*server.events.eq).fid })
}

/// Reads an empty queue until its descriptor is no longer readable.
fn wait_until_idle(server: &Server) {
    let fd = event_fd(server);
    let begun = Instant::now();
    loop {
        assert_eq!(server.events.read(0, 0).unwrap_err(), AGAIN, "an event");
        if !is_readable(fd, 0) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "it spins");
    }
}

/// Returns the next event of a program that sleeps on the descriptor.
fn wait_for_request(server: &Server) -> ReadEvent {
    let patience_ms = c_int::try_from(PATIENCE.as_millis()).unwrap();
    loop {
        match server.events.read(1024, 0) {
            Ok(got) => return got,
            Err(code) => assert_eq!(code, AGAIN),
        }
        assert!(
            is_readable(event_fd(server), patience_ms),
            "it sleeps for ever"
        );
    }
}

/// Connects as the endpoint `id` and sends a request that contains a number.
fn send_request(server: &Server, id: Id, number: u8) -> TcpStream {
    let mut caller = caller(server);
    let request = frame(ConnectionKind::Request, id, &[number]);
    caller.write_all(&request).unwrap();
    caller
}

fn rejects(server: &Server, request: &ReadEvent) {
    // SAFETY: information that was passed to the program.
    let handle = unsafe { (*request.info).handle };
    assert_eq!(server.reject(handle, b""), 0);
    free(request.info);
}

/// Sets the limit of open descriptors to `count`. Returns the previous limit.
fn limit_descriptors(count: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is on the stack. It is filled before it is set with another number.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = count;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

#[test]
fn callers_wait_while_descriptors_are_exhausted() {
    if !runs_in_own_process(
        "tests::connected::backlog::callers_wait_while_descriptors_are_exhausted",
    ) {
        return;
    }
    let server = Server::listening();
    let (_endpoint, id) = some_address();
    let _caller = send_request(&server, id, 7);
    let before = limit_descriptors(3);
    wait_until_idle(&server);
    limit_descriptors(before);
    let request = wait_for_request(&server);
    assert_eq!(
        (request.event, request.data.as_slice()),
        (CONNREQ, &[7][..])
    );
    rejects(&server, &request);
}

#[test]
fn excess_requests_wait_until_earlier_ones_are_answered() {
    let server = Server::listening();
    let (_endpoint, id) = some_address();
    let query = |number| (send_request(&server, id, number), wait_for_request(&server));
    let (_callers, requests): (Vec<_>, Vec<_>) = (0..UNANSWERED_MAX).map(query).unzip();
    for (request, number) in requests.iter().zip(0..) {
        assert_eq!((request.event, request.data[0]), (CONNREQ, number));
    }
    let more = [200, 201].map(|number| send_request(&server, id, number));
    wait_until_idle(&server);
    for (request, number) in requests.iter().zip([200, 201]) {
        rejects(&server, request);
        let next = wait_for_request(&server);
        assert_eq!((next.event, next.data[0]), (CONNREQ, number));
        rejects(&server, &next);
    }
    requests[2..]
        .iter()
        .for_each(|request| rejects(&server, request));
    drop(more);
}

#[test]
fn longer_backlog_raises_the_request_limit() {
    let server = Server::bound();
    let mut backlog = c_int::from(UNANSWERED_MAX) + 1;
    // SAFETY: an open passive endpoint; the backlog is an `int`.
    let code = unsafe {
        let fid = &raw mut (*server.pep).fid;
        ((*(*fid).ops).control)(fid, BACKLOG, (&raw mut backlog).cast())
    };
    assert_eq!((code, server.listen()), (0, 0));
    let (_endpoint, id) = some_address();
    let query = |number| (send_request(&server, id, number), wait_for_request(&server));
    let (_callers, requests): (Vec<_>, Vec<_>) = (0..=UNANSWERED_MAX).map(query).unzip();
    requests
        .iter()
        .for_each(|request| rejects(&server, request));
}

#[test]
fn request_waits_while_the_event_queue_is_full() {
    let server = Server::listening();
    let eq = server.events.eq;
    let entry = EqCmEntry {
        fid: null_mut(),
        info: null_mut(),
    };
    let len = size_of::<EqCmEntry>();
    // SAFETY: an open queue, and an entry of that length.
    let write = || unsafe { ((*(*eq).ops).write)(eq, 1000, (&raw const entry).cast(), len, 0) };
    let written = std::iter::repeat_with(write).take_while(|&code| code != AGAIN);
    let count = written
        .inspect(|&code| assert_eq!(code, len.cast_signed()))
        .count();
    let (_endpoint, id) = some_address();
    let _caller = send_request(&server, id, 7);
    for _ in 0..count {
        assert_eq!(server.events.read(0, PEEK).unwrap().event, 1000);
        assert_eq!(server.events.read(0, 0).unwrap().event, 1000);
    }
    let request = wait_for_request(&server);
    assert_eq!(
        (request.event, request.data.as_slice()),
        (CONNREQ, &[7][..])
    );
    rejects(&server, &request);
}
