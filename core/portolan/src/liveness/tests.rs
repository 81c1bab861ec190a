// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of processes that probe each other over loopback, and of foreign messages to them.

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant as Time;

const SECRET: [u8; 32] = [7; 32];

/// Longer than the delay of a message over loopback on a busy machine.
const WHILE: Duration = Duration::from_millis(50);

fn wait_for(what: impl Fn() -> bool) -> bool {
    let end = Time::now() + Duration::from_secs(60);
    while Time::now() < end {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn bind() -> Unstarted {
    Unstarted::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), PortRange::default()).unwrap()
}

/// Rank 0 of two, which has reached rank 1 at `peer`.
fn prober(peer: &UdpSocket) -> Liveness {
    let addr = peer.local_addr().unwrap();
    let prober = start(bind(), 0, &[addr]);
    prober.prove(PeerId(1), addr);
    prober
}

/// Starts rank `rank` of a job with the addresses of the ranks after it.
fn start(end: Unstarted, rank: u32, others: &[SocketAddr]) -> Liveness {
    let started = end.start(rank, 3, &SECRET, Clock::new()).unwrap();
    for (peer, addr) in (0..).filter(|peer| *peer != rank).zip(others) {
        started.set_addresses(PeerId(peer), [*addr]);
    }
    started
}

fn from_peer(kind: Kind, nonce: u64) -> [u8; LEN] {
    let message = Message {
        kind,
        from: 1,
        to: 0,
        nonce,
        idle: Duration::ZERO,
    };
    message.encode(&Key::derive(&SECRET))
}

/// Receives the probe that waits at `socket`.
fn question_at(socket: &UdpSocket) -> (Message, SocketAddr) {
    let mut bytes = [0xa5; LEN];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    let question = Message::decode(&bytes[..len], &Key::derive(&SECRET)).unwrap();
    (question, from)
}

fn peer_socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    socket
}

#[test]
fn reader_ends_with_the_socket() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Returns ENOTCONN, but has shut the socket down.
    let _ = shutdown(&socket, Shutdown::Read);
    assert_eq!(receive(&socket, &mut [0; LEN]), Ok(None));
}

#[test]
fn live_peer_answers_and_kernel_refuses_for_dead_peer() {
    let (prober, living, dead) = (bind(), bind(), bind());
    let addrs = [&living, &dead].map(|end| end.addr().unwrap());
    let prober = start(prober, 0, &addrs);
    let _living = start(living, 1, &[]);
    prober.prove(PeerId(2), addrs[1]);
    drop(dead);
    prober.probe(PeerId(1));
    assert!(wait_for(|| prober.seen(PeerId(1)) > Instant::default()));
    prober.probe(PeerId(2));
    let state = |rank| prober.state(PeerId(rank));
    assert!(wait_for(|| state(2) == PeerState::Gone));
    assert_eq!(state(1), PeerState::Trusted);
}

#[test]
fn message_of_another_job_is_ignored() {
    let (a, b) = (bind(), bind());
    let to = b.addr().unwrap();
    let a = a.start(0, 2, &[1; 32], Clock::new()).unwrap();
    a.set_addresses(PeerId(1), [to]);
    let _b = b.start(1, 2, &[2; 32], Clock::new()).unwrap();
    a.probe(PeerId(1));
    std::thread::sleep(WHILE);
    assert_eq!(a.seen(PeerId(1)), Instant::default());
    assert_eq!(a.proven(PeerId(1)), None);
}

#[test]
fn replayed_messages_are_ignored() {
    let peer = peer_socket();
    let prober = prober(&peer);
    prober.probe(PeerId(1));
    let (question, from) = question_at(&peer);
    let answer = from_peer(Kind::Answer, question.nonce);
    peer.send_to(&answer, from).unwrap();
    let probed_at = Instant::from_nanos(question.nonce);
    assert!(wait_for(|| prober.seen(PeerId(1)) == probed_at));
    // The same answer again, one for a probe that was never sent, and a recorded probe.
    peer.send_to(&answer, from).unwrap();
    let early = from_peer(Kind::Answer, u64::MAX);
    peer.send_to(&early, from).unwrap();
    let recorded = from_peer(Kind::Question, question.nonce);
    peer.send_to(&recorded, from).unwrap();
    let mut bytes = [0xa5; LEN];
    peer.recv_from(&mut bytes).unwrap();
    let reply = Message::decode(&bytes, &Key::derive(&SECRET)).unwrap();
    assert_eq!(reply.kind, Kind::Answer, "a question is answered");
    assert_eq!(prober.seen(PeerId(1)), probed_at);
}

#[test]
fn doubt_probes_at_once_and_answer_clears_it() {
    let peer = peer_socket();
    let prober = prober(&peer);
    prober.doubt(PeerId(1));
    prober.doubt(PeerId(1));
    assert_eq!(prober.state(PeerId(1)), PeerState::Doubted);
    let (question, from) = question_at(&peer);
    let answer = from_peer(Kind::Answer, question.nonce);
    peer.send_to(&answer, from).unwrap();
    assert!(wait_for(|| prober.state(PeerId(1)) == PeerState::Trusted));
    peer.set_read_timeout(Some(WHILE)).unwrap();
    let more = peer.recv_from(&mut [0; LEN]);
    assert!(more.is_err(), "one doubt, one question");
}

#[test]
fn unanswered_doubt_persists() {
    let peer = peer_socket();
    let prober = prober(&peer);
    prober.doubt(PeerId(1));
    std::thread::sleep(WHILE);
    assert_eq!(prober.state(PeerId(1)), PeerState::Doubted);
}

#[test]
fn answer_contains_time_since_last_poll() {
    let (prober, answering) = (bind(), bind());
    let at = answering.addr().unwrap();
    let clock = Clock::new();
    let prober = prober.start(0, 3, &SECRET, clock).unwrap();
    prober.set_addresses(PeerId(1), [at]);
    let answering = answering.start(1, 3, &SECRET, clock).unwrap();
    answering.note_poll(clock.now());
    std::thread::sleep(WHILE);
    prober.probe(PeerId(1));
    assert!(wait_for(|| prober.answer(PeerId(1)).idle >= WHILE));
    // As if the program polled in that moment, however late the answer is.
    answering.note_poll(Instant::from_nanos(u64::MAX));
    prober.probe(PeerId(1));
    assert!(wait_for(|| prober.answer(PeerId(1)).idle == Duration::ZERO));
}

#[test]
fn refusal_at_unproven_address_is_no_death() {
    let gone = peer_socket();
    let addr = gone.local_addr().unwrap();
    drop(gone);
    let prober = start(bind(), 0, &[addr]);
    prober.probe(PeerId(1));
    assert!(wait_for(
        || prober.outcomes(PeerId(1)) == [(addr, Outcome::Refused)]
    ));
    prober.doubt(PeerId(1));
    assert_eq!(prober.state(PeerId(1)), PeerState::Trusted);
}

#[test]
fn working_address_is_found() {
    let (silent, unknown) = (peer_socket(), start(bind(), 2, &[]));
    let (prober, living) = (bind(), bind());
    let at = [
        silent.local_addr().unwrap(),
        unknown.shared.wire.socket().unwrap().local_addr().unwrap(),
        living.addr().unwrap(),
    ];
    let prober = prober.start(0, 3, &SECRET, Clock::new()).unwrap();
    prober.set_addresses(PeerId(1), at);
    let _living = start(living, 1, &[]);
    prober.probe(PeerId(1));
    assert!(wait_for(|| prober.proven(PeerId(1)) == Some(at[2])));
}

#[test]
fn dual_stack_socket_probes_both_families() {
    let Ok(prober) = Unstarted::bind(Ipv6Addr::UNSPECIFIED.into(), PortRange::default()) else {
        return eprintln!("SKIPPED: this host has no IPv6");
    };
    let prober = prober.start(0, 3, &SECRET, Clock::new()).unwrap();
    let living = bind();
    prober.set_addresses(PeerId(1), [living.addr().unwrap()]);
    let _living = start(living, 1, &[]);
    prober.probe(PeerId(1));
    assert!(wait_for(|| prober.proven(PeerId(1)).is_some()));
}
