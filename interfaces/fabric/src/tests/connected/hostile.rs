// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strangers that connect, and servers that violate the protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use portolan::{Endpoint, EndpointConfig};
use portolan_wire::{CONNECTION_LEN_MAX, ConnectionFrame, ConnectionWord, ENDPOINT_ID_LEN};

use super::harness::{AGAIN, Desk, Server, Side, ask};
use crate::abi::*;
use crate::cm::DropReason;
use crate::tests::harness::PATIENCE;

pub(super) fn frame(
    word: ConnectionWord,
    endpoint_id: [u8; ENDPOINT_ID_LEN],
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = [0; CONNECTION_LEN_MAX];
    let len = ConnectionFrame {
        word,
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

pub(super) fn stranger(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream
        .set_read_timeout(Some(std::time::Duration::from_millis(1)))
        .unwrap();
    stream
}

/// Waits until the server has closed a stranger's connection without an answer.
fn is_shown_the_door(stranger: &mut TcpStream, server: &Server) {
    let begun = std::time::Instant::now();
    let mut byte = [0];
    loop {
        assert_eq!(server.desk.read(0, 0).unwrap_err(), AGAIN, "an event");
        match stranger.read(&mut byte) {
            Ok(0) => return,
            Ok(_) => panic!("an answer"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(_) => assert!(begun.elapsed() < PATIENCE, "it may stay"),
        }
    }
}

// P16.2
#[test]
fn who_does_not_ask_for_a_connection_is_shown_the_door_and_costs_others_nothing() {
    let server = Server::listening();
    let (_endpoint, id) = some_address();
    let request = frame(ConnectionWord::Request, id, b"x");
    let mut too_long = request.clone();
    too_long[7] = 0xff;
    let words: [&[u8]; 6] = [
        b"GET / HTTP/1.0\r\n\r\n",
        &frame(ConnectionWord::Accept, id, b""),
        &frame(ConnectionWord::Reject, id, b""),
        &frame(ConnectionWord::Request, [0xa5; ENDPOINT_ID_LEN], b""),
        &too_long,
        // Incomplete requests time out after some seconds.
        &request[..40],
    ];
    for word in words {
        let mut stranger = stranger(&server);
        stranger.write_all(word).unwrap();
        is_shown_the_door(&mut stranger, &server);
    }
    let dropped = |reason| server.desk.dropped(reason);
    let counts = [DropReason::NoRequest, DropReason::Silent].map(dropped);
    assert_eq!(counts, [5, 1]);
    let mut gone = stranger(&server);
    gone.write_all(&request[..40]).unwrap();
    drop(gone);
    let (client, accepted) = Side::pair(&server);
    assert_eq!(client.send(b"x", 1), 0);
    assert_eq!(client.wait(&accepted).ok(), Some(1));
}

#[test]
fn of_many_who_say_nothing_the_oldest_goes() {
    let server = Server::listening();
    let mut first = stranger(&server);
    server.desk.read(0, 0).unwrap_err();
    let _others: Vec<TcpStream> = (0..64).map(|_| stranger(&server)).collect();
    is_shown_the_door(&mut first, &server);
    let desk = Rc::clone(&server.desk);
    drop(server);
    let reasons = [DropReason::Crowded, DropReason::Silent, DropReason::Unheard];
    let counts = reasons.map(|reason| desk.dropped(reason));
    // On a machine that stalled for seconds, some of them timed out.
    assert!(counts == [1, 0, 64] || counts[1] > 0, "{counts:?}");
}

/// Connects, sends these bytes, which begin with a request, and is accepted.
pub(super) fn asker_with(server: &Server, bytes: &[u8]) -> (TcpStream, Side) {
    let mut stranger = stranger(server);
    stranger.write_all(bytes).unwrap();
    let request = server.request(|| ());
    (stranger, server.accept(request, b""))
}

pub(super) fn hears_the_end(server: &Server, accepted: &Side) {
    let got = server.desk.wait(|| ()).unwrap();
    assert_eq!((got.event, got.fid), (SHUTDOWN, accepted.fid()));
}

// P16.2
#[test]
fn who_says_more_than_its_turn_is_hung_up_on() {
    let server = Server::listening();
    let (_endpoint, id) = some_address();
    let request = frame(ConnectionWord::Request, id, b"");
    for more in [&b"and now?"[..], b"P"] {
        let (mut stranger, accepted) = asker_with(&server, &request);
        stranger.write_all(more).unwrap();
        hears_the_end(&server, &accepted);
        // The extra bytes may also arrive with the request.
        let (_stranger, accepted) = asker_with(&server, &[&request, more].concat());
        hears_the_end(&server, &accepted);
    }
}

#[test]
fn a_peer_whose_process_is_gone_has_hung_up() {
    let server = Server::listening();
    let (endpoint, id) = some_address();
    let (stranger, accepted) = asker_with(&server, &frame(ConnectionWord::Request, id, b""));
    let mut got = [0];
    assert_eq!(accepted.recv(&mut got, 1), 0);
    drop((endpoint, stranger));
    assert_eq!(accepted.wait(&accepted).unwrap_err().err, libc::ECANCELED);
    hears_the_end(&server, &accepted);
}

/// Returns a client's error after a server has answered with these bytes and closed.
fn answered_by(bytes: &[u8]) -> i32 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let info = ask(Some(port), 0, |_| ()).unwrap();
    let client = Side::open(&Desk::open(info), info);
    assert_eq!(client.connect(b"hello"), 0);
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.desk.read(0, 0).unwrap_err(), AGAIN);
    let mut request = [0; CONNECTION_LEN_MAX];
    let len = server.read(&mut request).unwrap();
    let (asked, _) = ConnectionFrame::parse(&request[..len]).unwrap().unwrap();
    assert_eq!(
        (asked.word, asked.data),
        (ConnectionWord::Request, &b"hello"[..])
    );
    server.write_all(bytes).unwrap();
    drop(server);
    let (failure, data) = client.desk.failure(|| ());
    assert_eq!((failure.fid, data.len()), (client.fid(), 0));
    failure.err
}

#[test]
fn a_server_that_does_not_keep_to_the_protocol_is_a_failure() {
    let (_endpoint, id) = some_address();
    let no_address = frame(ConnectionWord::Accept, [0xa5; ENDPOINT_ID_LEN], b"");
    assert_eq!(answered_by(b""), libc::ECONNRESET);
    assert_eq!(
        answered_by(b"HTTP/1.0 400 Bad Request\r\n"),
        libc::ECONNRESET
    );
    assert_eq!(answered_by(&no_address), libc::EPROTO);
    assert_eq!(answered_by(&no_address[..30]), libc::ECONNRESET);
    assert_eq!(
        answered_by(&frame(ConnectionWord::Request, id, b"")),
        libc::EPROTO
    );
}
