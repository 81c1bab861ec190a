// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of connections.

use super::harness::{AGAIN, NOT_CONNECTED, Server, Side};
use crate::abi::*;

/// Reads the shutdown event, and checks that no other event follows.
fn assert_shutdown(side: &Side) {
    let got = side.events.wait(|| side.work()).unwrap();
    assert_eq!((got.event, got.fid), (SHUTDOWN, side.fid()));
    assert_eq!(side.events.read(0, 0).unwrap_err(), AGAIN);
}

#[test]
fn shutdown_is_reported_to_both_and_ends_operations() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let (mut ours, mut theirs) = ([0], [0]);
    assert_eq!(client.recv(&mut ours, 1), 0);
    assert_eq!(accepted.recv(&mut theirs, 2), 0);
    assert_eq!(client.shutdown(), 0);
    assert_shutdown(&client);
    assert_shutdown(&accepted);
    for (side, other, context) in [(&client, &accepted, 1), (&accepted, &client, 2)] {
        let failure = side.wait(other).unwrap_err();
        assert_eq!(failure.err, libc::ECANCELED);
        assert_eq!(failure.op_context as usize, context);
        assert_eq!(side.send(b"late", 3), NOT_CONNECTED);
        assert_eq!(side.recv(&mut [0], 4), 0);
        assert_eq!(side.wait(other).unwrap_err().err, libc::ECANCELED);
        assert_eq!(side.shutdown(), 0, "it was connected");
    }
    assert_eq!(client.events.read(0, 0).unwrap_err(), AGAIN);
}

#[test]
fn data_sent_before_shutdown_arrives() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let mut got = [[0; 4]; 3];
    let posted = got.iter_mut().enumerate();
    posted.for_each(|(at, buf)| assert_eq!(accepted.recv(buf, at), 0));
    assert_eq!(client.send(b"last", 9), 0);
    assert_eq!(client.send(b"word", 9), 0);
    drop(client);
    assert_shutdown(&accepted);
    assert_eq!(accepted.wait(&accepted).ok(), Some(0));
    assert_eq!(accepted.wait(&accepted).ok(), Some(1));
    assert_eq!(accepted.wait(&accepted).unwrap_err().err, libc::ECANCELED);
    assert_eq!(&got, &[*b"last", *b"word", [0; 4]]);
}

#[test]
fn receive_posted_after_shutdown_gets_arrived_data() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let words = [*b"one ", *b"two ", *b"last"];
    words
        .iter()
        .for_each(|word| assert_eq!(client.send(word, 9), 0));
    drop(client);
    assert_shutdown(&accepted);
    // The session has ended as well, so a receive fails.
    let mut got = [0; 4];
    for (at, word) in words.iter().enumerate() {
        (0..5000).for_each(|_| accepted.work());
        assert_eq!(accepted.recv(&mut got, at), 0);
        assert_eq!(accepted.wait(&accepted).ok(), Some(at));
        assert_eq!(&got, word);
    }
    assert_eq!(accepted.recv(&mut got, 7), 0);
    assert_eq!(accepted.wait(&accepted).unwrap_err().err, libc::ECANCELED);
}

#[test]
fn operations_report_disconnect_without_events() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let mut got = [0];
    assert_eq!(accepted.recv(&mut got, 1), 0);
    drop(client);
    assert_eq!(accepted.wait(&accepted).unwrap_err().err, libc::ECANCELED);
    assert_shutdown(&accepted);
}

#[test]
fn unreceived_send_fails_when_the_peer_disconnects() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    // Too long to be copied before a receive is posted.
    let data = vec![7; 1 << 20];
    assert_eq!(client.send(&data, 1), 0);
    for _ in 0..1000 {
        client.work();
        accepted.work();
    }
    drop(accepted);
    let failure = client.wait(&client).unwrap_err();
    assert_eq!(
        (failure.op_context as usize, failure.err),
        (1, libc::ENOTCONN)
    );
    assert_shutdown(&client);
}

#[test]
fn closed_endpoint_has_no_events() {
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    drop(client);
    let begun = std::time::Instant::now();
    while server.events.read(0, PEEK).is_err() {
        assert!(begun.elapsed() < crate::tests::harness::PATIENCE);
    }
    drop(accepted);
    assert_eq!(server.events.read(0, 0).unwrap_err(), AGAIN);
}
