// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that ask one another over the loopback, and what others send them.

use super::*;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant as Time};

const SECRET: [u8; 32] = [7; 32];

/// Longer than a message takes over the loopback of a busy machine.
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
    Unstarted::bind(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()
}

/// Rank 0, which knows the sockets of ranks 1 and up.
fn asker(others: &[SocketAddr]) -> Liveness {
    let own = bind();
    let mut addrs = vec![own.addr()];
    addrs.extend(others.iter().copied().map(Some));
    own.start(0, &SECRET, Clock::new(), addrs).unwrap()
}

fn from_peer(kind: Kind, nonce: u64) -> [u8; LEN] {
    let message = Message {
        kind,
        from: 1,
        to: 0,
        nonce,
    };
    message.encode(&Key::derive(&SECRET))
}

/// The question that waits at `socket`.
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
    // Says that it is not connected, and has done it.
    let _ = shutdown(&socket, Shutdown::Read);
    assert_eq!(receive(&socket, &mut [0; LEN]), Ok(None));
}

#[test]
fn the_living_answer_and_the_kernel_answers_for_the_dead() {
    let ends: Vec<_> = (0..3).map(|_| bind()).collect();
    let addrs: Vec<_> = ends.iter().map(Unstarted::addr).collect();
    let mut ends = ends.into_iter();
    let start = |end: Unstarted, rank| {
        end.start(rank, &SECRET, Clock::new(), addrs.clone())
            .unwrap()
    };
    let asking = start(ends.next().unwrap(), 0);
    let _living = start(ends.next().unwrap(), 1);
    drop(ends.next());
    asking.ask(PeerId(1));
    assert!(wait_for(|| asking.seen(PeerId(1)) > Instant::default()));
    let begin = Clock::new().now();
    asking.ask(PeerId(2));
    // At one and the same time: no time-out decides.
    let standing = |rank| asking.standing(PeerId(rank), begin);
    assert!(wait_for(|| standing(2) == Standing::Gone));
    assert_eq!(standing(1), Standing::Trusted);
}

#[test]
fn a_message_of_another_job_is_no_sign_of_life() {
    let (a, b) = (bind(), bind());
    let addrs = vec![a.addr(), b.addr()];
    let a = a.start(0, &[1; 32], Clock::new(), addrs.clone()).unwrap();
    let _b = b.start(1, &[2; 32], Clock::new(), addrs).unwrap();
    a.ask(PeerId(1));
    std::thread::sleep(WHILE);
    assert_eq!(a.seen(PeerId(1)), Instant::default());
}

#[test]
fn recorded_answers_and_questions_are_no_sign_of_life() {
    let peer = peer_socket();
    let asking = asker(&[peer.local_addr().unwrap()]);
    asking.ask(PeerId(1));
    let (question, asker) = question_at(&peer);
    let answer = from_peer(Kind::Answer, question.nonce);
    peer.send_to(&answer, asker).unwrap();
    let asked = Instant::from_nanos(question.nonce);
    assert!(wait_for(|| asking.seen(PeerId(1)) == asked));
    // The same again, one for a question that nobody asked, and a question.
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
    let asking = asker(&[peer.local_addr().unwrap()]);
    let begin = Clock::new().now();
    asking.doubt(PeerId(1));
    asking.doubt(PeerId(1));
    assert_eq!(asking.standing(PeerId(1), begin), Standing::Doubted);
    let (question, asker) = question_at(&peer);
    let answer = from_peer(Kind::Answer, question.nonce);
    peer.send_to(&answer, asker).unwrap();
    let late = begin + Duration::from_secs(60);
    assert!(wait_for(
        || asking.standing(PeerId(1), late) == Standing::Trusted
    ));
    peer.set_read_timeout(Some(WHILE)).unwrap();
    let more = peer.recv_from(&mut [0; LEN]);
    assert!(more.is_err(), "one doubt, one question");
}

#[test]
fn doubt_without_an_answer_ends_the_peer_in_time() {
    let peer = peer_socket();
    let asking = asker(&[peer.local_addr().unwrap()]);
    asking.doubt(PeerId(1));
    let now = Clock::new().now();
    assert_eq!(
        asking.standing(PeerId(1), now + life::CONFIRM_WITHIN),
        Standing::Gone
    );
}
