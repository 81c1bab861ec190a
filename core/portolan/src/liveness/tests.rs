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
fn asker(peer: &UdpSocket) -> Liveness {
    let addr = peer.local_addr().unwrap();
    let asking = start(bind(), 0, &[addr]);
    asking.prove(PeerId(1), addr);
    asking
}

/// Starts rank `rank` of a job with the addresses of the ranks after it.
fn start(end: Unstarted, rank: u32, others: &[SocketAddr]) -> Liveness {
    let started = end.start(rank, 3, &SECRET, Clock::new()).unwrap();
    for (peer, addr) in (0..).filter(|peer| *peer != rank).zip(others) {
        started.set_ways(PeerId(peer), [*addr]);
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
fn reading_ends_with_the_socket() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Returns ENOTCONN, but has shut the socket down.
    let _ = shutdown(&socket, Shutdown::Read);
    assert_eq!(receive(&socket, &mut [0; LEN]), Ok(None));
}

#[test]
fn the_living_answer_and_the_kernel_answers_for_the_dead() {
    let (asking, living, dead) = (bind(), bind(), bind());
    let addrs = [&living, &dead].map(|end| end.addr().unwrap());
    let asking = start(asking, 0, &addrs);
    let _living = start(living, 1, &[]);
    asking.prove(PeerId(2), addrs[1]);
    drop(dead);
    asking.ask(PeerId(1));
    assert!(wait_for(|| asking.seen(PeerId(1)) > Instant::default()));
    asking.ask(PeerId(2));
    let standing = |rank| asking.standing(PeerId(rank));
    assert!(wait_for(|| standing(2) == Standing::Gone));
    assert_eq!(standing(1), Standing::Trusted);
}

#[test]
fn a_message_of_another_job_is_no_sign_of_life() {
    let (a, b) = (bind(), bind());
    let to = b.addr().unwrap();
    let a = a.start(0, 2, &[1; 32], Clock::new()).unwrap();
    a.set_ways(PeerId(1), [to]);
    let _b = b.start(1, 2, &[2; 32], Clock::new()).unwrap();
    a.ask(PeerId(1));
    std::thread::sleep(WHILE);
    assert_eq!(a.seen(PeerId(1)), Instant::default());
    assert_eq!(a.proven(PeerId(1)), None);
}

#[test]
fn recorded_answers_and_questions_are_no_sign_of_life() {
    let peer = peer_socket();
    let asking = asker(&peer);
    asking.ask(PeerId(1));
    let (question, asker) = question_at(&peer);
    let answer = from_peer(Kind::Answer, question.nonce);
    peer.send_to(&answer, asker).unwrap();
    let asked = Instant::from_nanos(question.nonce);
    assert!(wait_for(|| asking.seen(PeerId(1)) == asked));
    // The same answer again, one for a probe that was never sent, and a recorded probe.
    peer.send_to(&answer, asker).unwrap();
    let early = from_peer(Kind::Answer, u64::MAX);
    peer.send_to(&early, asker).unwrap();
    let recorded = from_peer(Kind::Question, question.nonce);
    peer.send_to(&recorded, asker).unwrap();
    let mut bytes = [0xa5; LEN];
    peer.recv_from(&mut bytes).unwrap();
    let reply = Message::decode(&bytes, &Key::derive(&SECRET)).unwrap();
    assert_eq!(reply.kind, Kind::Answer, "a question is answered");
    assert_eq!(asking.seen(PeerId(1)), asked);
}

#[test]
fn doubt_asks_at_once_and_an_answer_ends_it() {
    let peer = peer_socket();
    let asking = asker(&peer);
    asking.doubt(PeerId(1));
    asking.doubt(PeerId(1));
    assert_eq!(asking.standing(PeerId(1)), Standing::Doubted);
    let (question, asker) = question_at(&peer);
    let answer = from_peer(Kind::Answer, question.nonce);
    peer.send_to(&answer, asker).unwrap();
    assert!(wait_for(|| asking.standing(PeerId(1)) == Standing::Trusted));
    peer.set_read_timeout(Some(WHILE)).unwrap();
    let more = peer.recv_from(&mut [0; LEN]);
    assert!(more.is_err(), "one doubt, one question");
}

#[test]
fn doubt_without_an_answer_stays_doubt() {
    let peer = peer_socket();
    let asking = asker(&peer);
    asking.doubt(PeerId(1));
    std::thread::sleep(WHILE);
    assert_eq!(asking.standing(PeerId(1)), Standing::Doubted);
}

#[test]
fn an_answer_tells_how_long_the_program_has_not_looked_at_its_links() {
    let (asking, answering) = (bind(), bind());
    let at = answering.addr().unwrap();
    let clock = Clock::new();
    let asking = asking.start(0, 3, &SECRET, clock).unwrap();
    asking.set_ways(PeerId(1), [at]);
    let answering = answering.start(1, 3, &SECRET, clock).unwrap();
    answering.note_look(clock.now());
    std::thread::sleep(WHILE);
    asking.ask(PeerId(1));
    assert!(wait_for(|| asking.answer(PeerId(1)).idle >= WHILE));
    // As if the program polled in that moment, however late the answer is.
    answering.note_look(Instant::from_nanos(u64::MAX));
    asking.ask(PeerId(1));
    assert!(wait_for(|| asking.answer(PeerId(1)).idle == Duration::ZERO));
}

#[test]
fn a_refusal_where_nothing_is_proven_is_nobodys_death() {
    let gone = peer_socket();
    let addr = gone.local_addr().unwrap();
    drop(gone);
    let asking = start(bind(), 0, &[addr]);
    asking.ask(PeerId(1));
    assert!(wait_for(
        || asking.outcomes(PeerId(1)) == [(addr, Outcome::Refused)]
    ));
    asking.doubt(PeerId(1));
    assert_eq!(asking.standing(PeerId(1)), Standing::Trusted);
}

#[test]
fn the_address_that_leads_to_the_peer_is_found_among_others() {
    let (silent, stranger) = (peer_socket(), start(bind(), 2, &[]));
    let (asking, living) = (bind(), bind());
    let at = [
        silent.local_addr().unwrap(),
        stranger.shared.socket.local_addr().unwrap(),
        living.addr().unwrap(),
    ];
    let asking = asking.start(0, 3, &SECRET, Clock::new()).unwrap();
    asking.set_ways(PeerId(1), at);
    let _living = start(living, 1, &[]);
    asking.ask(PeerId(1));
    assert!(wait_for(|| asking.proven(PeerId(1)) == Some(at[2])));
}

#[test]
fn a_socket_of_both_families_asks_by_either() {
    let Ok(asking) = Unstarted::bind(Ipv6Addr::UNSPECIFIED.into(), PortRange::default()) else {
        return eprintln!("SKIPPED: this host has no IPv6");
    };
    let asking = asking.start(0, 3, &SECRET, Clock::new()).unwrap();
    let living = bind();
    asking.set_ways(PeerId(1), [living.addr().unwrap()]);
    let _living = start(living, 1, &[]);
    asking.ask(PeerId(1));
    assert!(wait_for(|| asking.proven(PeerId(1)).is_some()));
}
