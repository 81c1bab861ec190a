// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleepers on a completion queue's descriptor wake when the state of a connection changes.

use std::time::Instant;

use portolan_wire::ConnectionKind;

use super::harness::{Server, Side, wait_fd};
use super::hostile::{accepted_caller, assert_shutdown, frame, some_address};
use crate::abi::*;
use crate::tests::harness::{PATIENCE, is_readable};

/// Makes progress until no work is pending and the descriptor is not readable.
fn wait_until_idle(side: &Side) {
    let (queue, begun) = (side.queue(), Instant::now());
    while side.events.trywait(queue) != 0 || is_readable(wait_fd(queue), 0) {
        assert!(begun.elapsed() < PATIENCE, "it spins");
    }
}

/// Waits in a receive for a peer that disconnects. `tell` reads the shutdown event before the
/// sleeper polls.
fn wakes_when_its_peer_hangs_up(tell: impl FnOnce(&Server, &Side)) {
    let server = Server::listening();
    // A killed process sends nothing on its session.
    let (endpoint, id) = some_address();
    let (caller, accepted) = accepted_caller(&server, &frame(ConnectionKind::Request, id, b""));
    let mut got = [0];
    assert_eq!(accepted.recv(&mut got, 7), 0);
    wait_until_idle(&accepted);
    drop(caller);
    tell(&server, &accepted);
    let failure = accepted.sleep().unwrap_err();
    assert_eq!(
        (failure.op_context as usize, failure.err),
        (7, libc::ECANCELED)
    );
    wait_until_idle(&accepted);
    drop(endpoint);
}

#[test]
fn sleeper_wakes_when_its_peer_disconnects() {
    wakes_when_its_peer_hangs_up(|_, _| ());
}

#[test]
fn sleeper_wakes_after_shutdown_event_was_read() {
    wakes_when_its_peer_hangs_up(assert_shutdown);
}

#[test]
fn descriptor_opened_before_connection_wakes_for_disconnect() {
    let server = Server::listening();
    let client = Side::client(&server);
    let mut got = [0];
    assert_eq!(client.recv(&mut got, 7), 0);
    wait_until_idle(&client);
    assert_eq!(client.connect(b""), 0);
    let request = server.request(|| client.work());
    let accepted = server.accept(request, b"");
    assert_eq!(client.events.wait(|| ()).unwrap().event, CONNECTED);
    wait_until_idle(&client);
    assert_eq!(accepted.shutdown(), 0);
    assert_eq!(client.sleep().unwrap_err().err, libc::ECANCELED);
    wait_until_idle(&client);
}
