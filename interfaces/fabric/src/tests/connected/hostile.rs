// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callers and servers that violate the protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use portolan::EndpointConfig;
use portolan::binding::Endpoint;
use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionKind, ENDPOINT_ID_LEN};

use super::harness::{AGAIN, EventQueue, Server, Side, query};
use crate::abi::*;
use crate::cm::DropReason;
use crate::tests::harness::PATIENCE;

pub(super) fn frame(
    kind: ConnectionKind,
    endpoint_id: [u8; ENDPOINT_ID_LEN],
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = [0; CONNECTION_LEN_MAX];
    let len = ConnectionFrame {
        kind,
        endpoint_id,
        data,
    }
    .emit(&mut bytes);
    bytes[..len].to_vec()
}

/// Returns the address of an open endpoint.
pub(super) fn some_address() -> (Endpoint, [u8; ENDPOINT_ID_LEN]) {
    let endpoint = Endpoint::open(&EndpointConfig::default()).unwrap();
    let bytes = *endpoint.address().as_bytes();
    (endpoint, bytes)
}

pub(super) fn caller(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_millis(1)))
        .unwrap();
    stream
}

/// Waits until the server has closed a caller's connection without a reply.
fn assert_dropped(caller: &mut TcpStream, server: &Server) {
    let begun = std::time::Instant::now();
    let mut byte = [0];
    loop {
        assert_eq!(server.events.read(0, 0).unwrap_err(), AGAIN, "an event");
        match caller.read(&mut byte) {
            Ok(0) => return,
            Ok(_) => panic!("a reply"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(_) => assert!(begun.elapsed() < PATIENCE, "the connection stays open"),
        }
    }
}

// P16.2
#[test]
fn invalid_requests_are_dropped() {
    let server = Server::listening();
    let (_endpoint, id) = some_address();
    let request = frame(ConnectionKind::Request, id, b"x");
    let mut too_long = request.clone();
    too_long[7] = 0xff;
    let words: [&[u8]; 6] = [
        b"GET / HTTP/1.0\r\n\r\n",
        &frame(ConnectionKind::Accept, id, b""),
        &frame(ConnectionKind::Reject, id, b""),
        &frame(ConnectionKind::Request, [0xa5; ENDPOINT_ID_LEN], b""),
        &too_long,
        // Incomplete requests time out after a few seconds.
        &request[..40],
    ];
    for word in words {
        let mut caller = caller(&server);
        caller.write_all(word).unwrap();
        assert_dropped(&mut caller, &server);
    }
    let dropped = |reason| server.events.dropped(reason);
    let counts = [DropReason::NoRequest, DropReason::Silent].map(dropped);
    assert_eq!(counts, [5, 1]);
    let mut disconnected = caller(&server);
    disconnected.write_all(&request[..40]).unwrap();
    drop(disconnected);
    let (client, accepted) = Side::pair(&server);
    assert_eq!(client.send(b"x", 1), 0);
    assert_eq!(client.wait(&accepted).ok(), Some(1));
}

#[test]
fn oldest_of_too_many_silent_callers_is_dropped() {
    let server = Server::listening();
    let mut first = caller(&server);
    server.events.read(0, 0).unwrap_err();
    let _others: Vec<TcpStream> = (0..64).map(|_| caller(&server)).collect();
    assert_dropped(&mut first, &server);
    let events = Rc::clone(&server.events);
    drop(server);
    let reasons = [
        DropReason::TooMany,
        DropReason::Silent,
        DropReason::ListenerClosed,
    ];
    let counts = reasons.map(|reason| events.dropped(reason));
    // On a machine that stalled for seconds, some of them timed out.
    assert!(counts == [1, 0, 64] || counts[1] > 0, "{counts:?}");
}

/// Connects, sends these bytes, which begin with a request, and is accepted.
pub(super) fn accepted_caller(server: &Server, bytes: &[u8]) -> (TcpStream, Side) {
    let mut caller = caller(server);
    caller.write_all(bytes).unwrap();
    let request = server.request(|| ());
    (caller, server.accept(request, b""))
}

pub(super) fn assert_shutdown(server: &Server, accepted: &Side) {
    let got = server.events.wait(|| ()).unwrap();
    assert_eq!((got.event, got.fid), (SHUTDOWN, accepted.fid()));
}

// P16.2
#[test]
fn excess_data_ends_the_connection() {
    let server = Server::listening();
    let (_endpoint, id) = some_address();
    let request = frame(ConnectionKind::Request, id, b"");
    for more in [&b"and now?"[..], b"P"] {
        let (mut caller, accepted) = accepted_caller(&server, &request);
        caller.write_all(more).unwrap();
        assert_shutdown(&server, &accepted);
        // The extra bytes may also arrive with the request.
        let (_stranger, accepted) = accepted_caller(&server, &[&request, more].concat());
        assert_shutdown(&server, &accepted);
    }
}

#[test]
fn peer_process_exit_is_a_shutdown() {
    let server = Server::listening();
    let (endpoint, id) = some_address();
    let (caller, accepted) = accepted_caller(&server, &frame(ConnectionKind::Request, id, b""));
    let mut got = [0];
    assert_eq!(accepted.recv(&mut got, 1), 0);
    drop((endpoint, caller));
    assert_eq!(accepted.wait(&accepted).unwrap_err().err, libc::ECANCELED);
    assert_shutdown(&server, &accepted);
}

/// Returns a client's error after a server has replied with these bytes and closed.
fn connect_error_for_reply(bytes: &[u8]) -> i32 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let info = query(Some(port), 0, |_| ()).unwrap();
    let client = Side::open(&EventQueue::open(info), info);
    assert_eq!(client.connect(b"hello"), 0);
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.events.read(0, 0).unwrap_err(), AGAIN);
    let mut request = [0; CONNECTION_LEN_MAX];
    let len = server.read(&mut request).unwrap();
    let (request, _) = ConnectionFrame::parse(&request[..len]).unwrap().unwrap();
    assert_eq!(
        (request.kind, request.data),
        (ConnectionKind::Request, &b"hello"[..])
    );
    server.write_all(bytes).unwrap();
    drop(server);
    let (failure, data) = client.events.failure(|| ());
    assert_eq!((failure.fid, data.len()), (client.fid(), 0));
    failure.err
}

#[test]
fn invalid_reply_fails_the_connect() {
    let (_endpoint, id) = some_address();
    let no_address = frame(ConnectionKind::Accept, [0xa5; ENDPOINT_ID_LEN], b"");
    assert_eq!(connect_error_for_reply(b""), libc::ECONNRESET);
    assert_eq!(
        connect_error_for_reply(b"HTTP/1.0 400 Bad Request\r\n"),
        libc::ECONNRESET
    );
    assert_eq!(connect_error_for_reply(&no_address), libc::EPROTO);
    assert_eq!(connect_error_for_reply(&no_address[..30]), libc::ECONNRESET);
    assert_eq!(
        connect_error_for_reply(&frame(ConnectionKind::Request, id, b"")),
        libc::EPROTO
    );
}
