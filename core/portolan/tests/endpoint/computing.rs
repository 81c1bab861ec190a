// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs without a call for longer than the timeout of a silent peer, or than their sent
//! messages can wait.

use crate::common::{ANY, PLAIN, Side, bytes, from, pump, shm, udp};
use portolan::binding::{Endpoint, RawSend};
use portolan::{EndpointConfig, PathChoice};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than the timeout of a silent peer in a job (`P9.3`).
const AWAY: Duration = Duration::from_millis(1500);
/// Long enough for a wrong declaration of death.
const ALONE: Duration = Duration::from_millis(200);

/// Polls one side alone.
fn poll_alone(side: &mut Side) {
    let begin = Instant::now();
    while begin.elapsed() < ALONE {
        side.poll();
    }
}

/// Each side computes in turn while the other one waits for it.
fn computing_peer_is_alive(open: fn() -> Endpoint) {
    let (mut a, mut b) = (Side::new(open()), Side::new(open()));
    let to_b = a.end.insert(&b.end.address()).unwrap();
    let to_a = b.end.insert(&a.end.address()).unwrap();
    let (ahoy, mut buf) = (bytes(100, 1), [0xa5; 128]);
    b.recv(&from(to_a), &mut buf, 1);
    a.send(to_b, &PLAIN, &ahoy, 2);
    pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
    pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(2));
    b.recv(&from(to_a), &mut buf, 3);
    thread::sleep(AWAY);
    poll_alone(&mut b);
    assert!(b.done.is_empty(), "given up: {:?}", b.done);
    let long = bytes(1_000_000, 2);
    let mut place = vec![0xa5; long.len()];
    b.recv(&from(to_a), &mut place, 4);
    a.send(to_b, &PLAIN, &ahoy, 5);
    a.send(to_b, &PLAIN, &long, 6);
    thread::sleep(AWAY);
    poll_alone(&mut a);
    for context in [3, 4] {
        let got = pump(&mut [&mut a, &mut b], |sides| sides[1].take(context));
        assert_eq!(got.error, None);
    }
    assert_eq!(place, long);
    for context in [5, 6] {
        pump(&mut [&mut a, &mut b], |sides| sides[0].take_sent(context));
    }
}

#[test]
fn computing_peer_is_alive_by_shm() {
    computing_peer_is_alive(shm);
}

#[test]
fn computing_peer_is_alive_by_udp() {
    computing_peer_is_alive(udp);
}

#[test]
fn peer_that_computes_first_is_awaited() {
    // Longer than the time limit for opening a session in a job (`P9.5`).
    const LONG: Duration = Duration::from_millis(10_500);
    let mut pairs = [udp, shm].map(|open| (Side::new(open()), Side::new(open())));
    let ahoy = bytes(100, 1);
    for (a, b) in &mut pairs {
        let to_b = a.end.insert(&b.end.address()).unwrap();
        // Completes when the message has arrived, not when it was sent.
        let spec = RawSend {
            delivered: true,
            ..PLAIN
        };
        a.send(to_b, &spec, &ahoy, 1);
    }
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        for (a, _) in &mut pairs {
            // Often enough for the clock to be read, see `CLOCK_TURNS`.
            (0..32).for_each(|_| a.poll());
            assert!(a.done.is_empty(), "{:?}", a.done);
        }
        thread::sleep(Duration::from_millis(1));
    }
    for (a, b) in &mut pairs {
        let mut buf = [0xa5; 128];
        b.recv(&ANY, &mut buf, 2);
        let got = pump(&mut [a, b], |sides| sides[1].take(2));
        assert_eq!((got.len, got.error), (100, None));
    }
}

/// Sends a few messages, and makes no further call.
fn pending_messages_leave_without_another_call(open: fn() -> Endpoint) {
    const COUNT: u64 = 8;
    let (mut a, mut b) = (Side::new(open()), Side::new(open()));
    let to_b = a.end.insert(&b.end.address()).unwrap();
    let (ahoy, mut bufs) = (bytes(8, 1), [[0xa5; 8]; COUNT as usize]);
    b.recv(&ANY, &mut bufs[0], COUNT);
    a.end.inject(to_b, &PLAIN, &ahoy).unwrap();
    pump(&mut [&mut a, &mut b], |sides| sides[1].take(COUNT));
    a.poll();
    for (context, buf) in (0..).zip(&mut bufs) {
        b.recv(&ANY, buf, context);
        a.end.inject(to_b, &PLAIN, &ahoy).unwrap();
    }
    for context in 0..COUNT {
        let got = pump(&mut [&mut b], |sides| sides[0].take(context));
        assert_eq!((got.len, got.error), (8, None));
    }
}

#[test]
fn pending_messages_leave_without_another_call_by_shm() {
    pending_messages_leave_without_another_call(shm);
}

#[test]
fn pending_messages_leave_without_another_call_by_udp() {
    pending_messages_leave_without_another_call(udp);
}

/// A new process contacts an endpoint while the program of the endpoint computes. The progress
/// thread of the endpoint serves it.
fn newly_connected_peer_is_served(path: PathChoice) {
    let mut config = EndpointConfig::default();
    (config.path, config.interface) = (path, Some("lo".to_owned()));
    for _ in 0..20 {
        config.progress_thread = true;
        let mut a = Side::new(Endpoint::open(&config).unwrap());
        let mut buf = [0xa5; 128];
        a.recv(&ANY, &mut buf, 1);
        a.poll();
        config.progress_thread = false;
        let mut b = Side::new(Endpoint::open(&config).unwrap());
        let to_a = b.end.insert(&a.end.address()).unwrap();
        let ahoy = bytes(100, 1);
        // Completes when the message has arrived.
        let spec = RawSend {
            delivered: true,
            ..PLAIN
        };
        b.send(to_a, &spec, &ahoy, 2);
        pump(&mut [&mut b], |sides| sides[0].take_sent(2));
        let got = pump(&mut [&mut a], |sides| sides[0].take(1));
        assert_eq!((got.error, got.len), (None, ahoy.len() as u64));
        assert_eq!(buf[..ahoy.len()], ahoy);
    }
}

#[test]
fn peer_that_connects_to_a_computing_peer_is_served() {
    newly_connected_peer_is_served(PathChoice::Auto);
    newly_connected_peer_is_served(PathChoice::Udp);
}
