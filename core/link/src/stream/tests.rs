// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link against itself, foreign connections and impostors, on the loopback.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use std::collections::HashMap;
use std::hash::Hasher;
use std::io::{IoSlice, Read, Write};
use std::net::Ipv4Addr;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// One end, with its received data and the tokens that it accepts.
struct End {
    link: Stream,
    sessions: HashMap<u64, (PeerId, u64)>,
    inbox: Inbox,
    up: usize,
    down: usize,
    unverified: usize,
}

#[derive(Default)]
struct Inbox {
    /// Received bytes of the current part, by sender.
    open: HashMap<PeerId, Vec<u8>>,
    parts: Vec<(PeerId, Vec<u8>, Vec<u8>)>,
    /// Parts with a head that begins with this byte have no destination, or end the connection.
    nowhere: Option<u8>,
    end: Option<u8>,
    /// Maximum number of bytes for which there is a destination at a time.
    step: usize,
    /// Number of further calls of `place` that answer [`Place::Later`].
    waits: usize,
    /// `copied_len` of each other call of `place`.
    copied_lens: Vec<usize>,
}

/// A hasher that counts bytes.
struct Landed(u64);

impl Hasher for Landed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl PartReceiver for Inbox {
    fn place(&mut self, part: &Part, copied_len: usize) -> Place<'_> {
        if self.waits > 0 {
            self.waits -= 1;
            return Place::Later;
        }
        self.copied_lens.push(copied_len);
        let first = part.head().first().copied();
        if first.is_some() && first == self.end {
            return Place::End;
        }
        if first.is_some() && first == self.nowhere {
            return Place::Nowhere;
        }
        let bytes = self.open.entry(part.from).or_default();
        bytes.resize(part.len, 0xa5);
        let end = part.len.min(part.landed + self.step.max(1));
        Place::At(&mut bytes[part.landed..end])
    }

    fn faulted(&mut self, _: &Part) -> bool {
        false
    }

    fn landed(&mut self, part: &mut Part, bytes: Landing<'_>) -> bool {
        let len = match bytes {
            Landing::There(len) => len,
            Landing::Lost(bytes) => bytes.len(),
        };
        let hash = part.hash.get_or_insert_with(|| Box::new(Landed(0)));
        hash.write(&vec![0; len]);
        assert_eq!(hash.finish(), (part.landed + len) as u64);
        if part.landed + len == part.len {
            let bytes = self.open.remove(&part.from).unwrap_or_default();
            self.parts.push((part.from, part.head().to_vec(), bytes));
        }
        true
    }
}

impl End {
    fn new(zero_copy: bool) -> End {
        End {
            link: Stream::open(
                (Ipv4Addr::LOCALHOST, 0).into(),
                PortRange::default(),
                zero_copy,
            )
            .unwrap(),
            sessions: HashMap::new(),
            inbox: Inbox {
                step: usize::MAX / 2,
                ..Inbox::default()
            },
            up: 0,
            down: 0,
            unverified: 0,
        }
    }

    fn poll(&mut self) {
        let End { link, sessions, .. } = self;
        link.service(&mut |tokens| {
            let (peer, theirs) = sessions.get(&tokens.mine)?;
            (*theirs == tokens.theirs).then_some(*peer)
        });
        self.link.receive((4, usize::MAX), &mut self.inbox);
        while let Some(notice) = self.link.poll_notice() {
            match notice {
                Notice::StreamUp(_) => self.up += 1,
                Notice::StreamDown { .. } => self.down += 1,
                Notice::Dropped("stream_stranger") => self.unverified += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn poll_until(ends: &mut [&mut End], done: impl Fn(&[&mut End]) -> bool) {
    let start = Instant::now();
    while !done(ends) {
        assert!(start.elapsed() < TEST_TIMEOUT, "timed out");
        for end in ends.iter_mut() {
            end.poll();
        }
    }
}

/// Returns two ends that accept each other's tokens; each is a peer of the other.
fn paired(zero_copy: bool) -> (End, End) {
    let (mut one, mut two) = (End::new(zero_copy), End::new(zero_copy));
    one.sessions.insert(11, (1, 22));
    two.sessions.insert(22, (0, 11));
    (one, two)
}

fn connected(zero_copy: bool) -> (End, End) {
    let (mut one, mut two) = paired(zero_copy);
    let tokens = Tokens {
        mine: 11,
        theirs: 22,
    };
    one.link.open_to(1, two.link.local_addr(), tokens);
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.up == 1)
    });
    (one, two)
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 251 + salt * 17 + 1).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

fn send(from: &mut End, to: &mut End, peer: PeerId, head: &[u8], payload: &[u8]) {
    let slices = [IoSlice::new(payload)];
    let frame = TxFrame {
        head,
        payload: &slices,
        segments: None,
    };
    let start = Instant::now();
    while let Err(error) = from.link.transmit(peer, &frame) {
        assert!(matches!(error, TxError::Full), "{error}");
        assert!(start.elapsed() < TEST_TIMEOUT, "stayed full");
        from.poll();
        to.poll();
    }
    while resume(from, peer, payload) {
        assert!(start.elapsed() < TEST_TIMEOUT, "stayed full");
        from.poll();
        to.poll();
    }
}

/// Provides the bytes that the last frame still owes. Returns `true` if it owes some.
fn resume(from: &mut End, peer: PeerId, payload: &[u8]) -> bool {
    match from.link.owed_len(peer) {
        0 => return false,
        len => from
            .link
            .resume(peer, Some(&payload[payload.len() - len..])),
    }
    from.link.owed_len(peer) > 0
}

/// Frames like the last one are read ahead whole; longer, shorter and empty ones follow.
#[test]
fn short_frames_in_a_series_arrive_whole_with_any_step() {
    let (mut one, mut two) = connected(false);
    for step in [usize::MAX / 2, 700] {
        two.inbox.step = step;
        for (index, len) in [3000, 3000, 3000, 1, 1, 90_000, 3000, 0, 65_536, 65_536, 5]
            .into_iter()
            .enumerate()
        {
            let bytes = pattern(len, index);
            let payload = [IoSlice::new(&bytes)];
            let frame = TxFrame {
                head: b"head",
                payload: &payload,
                segments: None,
            };
            // Sometimes two at once, of which the second is partly read ahead.
            for _ in 0..=index % 2 {
                while matches!(one.link.transmit_copied(1, &frame), Err(TxError::Full)) {
                    poll_until(&mut [&mut one, &mut two], |_| true);
                }
            }
            let count = 1 + index % 2;
            poll_until(&mut [&mut one, &mut two], |ends| {
                ends[1].inbox.parts.len() == count
            });
            for (from, head, got) in two.inbox.parts.drain(..) {
                assert_eq!((from, &head[..]), (0, &b"head"[..]));
                assert!(got == bytes, "{len} bytes differ");
            }
        }
    }
}

/// The receiver checks the memory to which this process copies.
#[test]
fn bytes_read_ahead_of_a_part_that_waited_are_announced_as_copied() {
    let (mut one, mut two) = connected(false);
    for index in 0..4 {
        two.inbox.waits = if index == 0 { 0 } else { 3 };
        two.inbox.copied_lens.clear();
        let bytes = pattern(100_000, index);
        send(&mut one, &mut two, 1, b"head", &bytes);
        poll_until(&mut [&mut one, &mut two], |ends| {
            ends[1].inbox.parts.len() == 1
        });
        assert!(two.inbox.parts.remove(0).2 == bytes, "the part differs");
        if index > 0 {
            assert!(two.inbox.copied_lens[0] > 0, "nothing was read ahead");
        }
    }
}

#[test]
fn parts_of_all_lengths_arrive_at_their_destination() {
    for (zero_copy, step) in [
        (true, usize::MAX / 2),
        (true, 5000),
        (false, usize::MAX / 2),
    ] {
        let (mut one, mut two) = connected(zero_copy);
        two.inbox.step = step;
        let lens = [
            0,
            1,
            7,
            4096,
            16 * 1024,
            16 * 1024 + 1,
            65_537,
            PAYLOAD_LEN_MAX - 1,
        ];
        // Pages passed by reference must stay unchanged until everything was received.
        let sent: Vec<_> = lens.map(|len| pattern(len + 3, len)).to_vec();
        for _ in 0..3 {
            for bytes in &sent {
                let head = bytes.len().to_le_bytes();
                send(&mut one, &mut two, 1, &head, &bytes[3..]);
            }
        }
        let count = 3 * sent.len();
        poll_until(&mut [&mut one, &mut two], |ends| {
            ends[1].inbox.parts.len() == count
        });
        for (got, sent) in two.inbox.parts.iter().zip(sent.iter().cycle()) {
            assert_eq!((got.0, &got.1[..]), (0, &sent.len().to_le_bytes()[..]));
            assert!(got.2 == sent[3..], "a part of {} bytes", sent.len() - 3);
        }
    }
}

#[test]
fn both_ends_send_concurrently_on_one_connection() {
    let (mut one, mut two) = connected(true);
    let sent: Vec<_> = (0..40).map(|salt| pattern(200_000, salt)).collect();
    for bytes in &sent {
        send(&mut one, &mut two, 1, b"to two", bytes);
        send(&mut two, &mut one, 0, b"to one", bytes);
    }
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.inbox.parts.len() == sent.len())
    });
    for end in [&one, &two] {
        assert_eq!(end.link.counts(), (1, 0));
        assert!(
            end.inbox
                .parts
                .iter()
                .zip(&sent)
                .all(|(got, sent)| got.2 == *sent)
        );
    }
}

#[test]
fn full_connection_reports_it_and_loses_nothing() {
    let (mut one, mut two) = connected(true);
    let bytes = pattern(PAYLOAD_LEN_MAX, 1);
    let slices = [IoSlice::new(&bytes)];
    let frame = TxFrame {
        head: b"head",
        payload: &slices,
        segments: None,
    };
    let mut accepted = 0;
    while one.link.transmit(1, &frame).is_ok() {
        accepted += 1;
        assert!(accepted < 10_000, "what does not lose has a bound");
    }
    assert!(one.link.has_unsent());
    assert!(accepted > 0);
    while resume(&mut one, 1, &bytes) {
        two.poll();
    }
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends[1].inbox.parts.len() == accepted
    });
    assert!(two.inbox.parts.iter().all(|part| part.2 == bytes));
    assert!(!one.link.has_unsent());
}

#[test]
fn part_whose_end_is_not_provided_ends_its_connection() {
    let (mut one, mut two) = connected(false);
    let bytes = pattern(PAYLOAD_LEN_MAX, 3);
    let slices = [IoSlice::new(&bytes)];
    let frame = TxFrame {
        head: b"head",
        payload: &slices,
        segments: None,
    };
    let mut accepted = 0;
    while one.link.transmit(1, &frame).is_ok() {
        accepted += 1;
    }
    assert!((1..=bytes.len()).contains(&one.link.owed_len(1)));
    // As many bytes as are owed are needed.
    let len = one.link.owed_len(1);
    one.link.resume(1, Some(&bytes[..len - 1]));
    assert!(!one.link.is_open(1));
    assert_eq!(one.link.owed_len(1), 0);
    one.link.resume(1, None);
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.down == 1)
    });
    assert!(two.inbox.parts.len() < accepted);
    assert!(two.inbox.parts.iter().all(|part| part.2 == bytes));
}

#[test]
fn part_without_destination_does_not_affect_others() {
    let (mut one, mut two) = connected(true);
    two.inbox.nowhere = Some(b'x');
    let sent = pattern(100_000, 5);
    for head in [b"x", b"y", b"x", b"y"] {
        send(&mut one, &mut two, 1, head, &sent);
    }
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends[1].inbox.parts.len() == 4
    });
    for part in &two.inbox.parts {
        assert!(part.2 == if part.1 == b"x" { &[][..] } else { &sent[..] });
    }
}

#[test]
fn invalid_frame_closes_the_connection() {
    let (mut one, mut two) = connected(true);
    two.inbox.end = Some(b'!');
    send(&mut one, &mut two, 1, b"!", &pattern(100_000, 5));
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.down == 1)
    });
    assert_eq!((one.link.counts(), two.link.counts()), ((0, 0), (0, 0)));
    let frame = TxFrame::contiguous(b"too late");
    let error = one.link.transmit(1, &frame).unwrap_err();
    assert!(matches!(error, TxError::NotConnected(1)));
}

#[test]
fn unverified_connections_are_bounded_and_closed() {
    let (mut one, mut two) = paired(true);
    let to = one.link.local_addr();
    let garbage: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.0\r\n\r\n is no greeting",
        &[0xff; 4096],
        b"PSTR",
    ];
    let mut unverified: Vec<_> = (0..60)
        .map(|at| {
            let mut foreign = TcpStream::connect(to).unwrap();
            foreign.write_all(garbage[at % 4]).unwrap();
            foreign
        })
        .collect();
    // A greeting with an unknown token, and one with a reply that would belong to another session.
    for (theirs, mine) in [(77, 22), (11, 78)] {
        let mut foreign = TcpStream::connect(to).unwrap();
        foreign
            .write_all(&Tokens { mine, theirs }.encode())
            .unwrap();
        unverified.push(foreign);
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        one.poll();
        assert!(one.link.counts().1 <= GREETERS_MAX);
        assert_eq!(one.up, 0);
    }
    // Silent connections also time out; then a verified peer is admitted.
    let tokens = Tokens {
        mine: 22,
        theirs: 11,
    };
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends[0].unverified == unverified.len()
    });
    for foreign in &mut unverified {
        let mut reply = Vec::new();
        let _ = foreign.read_to_end(&mut reply);
        assert!(reply.is_empty(), "unverified connections get no data");
    }
    two.link.open_to(0, to, tokens);
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.up == 1)
    });
}

#[test]
fn peer_with_another_token_gets_no_payload() {
    let (mut one, _) = paired(true);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tokens = Tokens {
        mine: 11,
        theirs: 22,
    };
    one.link.open_to(1, listener.local_addr().unwrap(), tokens);
    let mut impostor = listener.accept().unwrap().0;
    let mut greeting = [0; 24];
    impostor.set_nonblocking(true).unwrap();
    let mut got = 0;
    while got < greeting.len() {
        one.poll();
        got += impostor.read(&mut greeting[got..]).unwrap_or(0);
    }
    impostor
        .write_all(
            &Tokens {
                mine: 22,
                theirs: 12,
            }
            .encode(),
        )
        .unwrap();
    poll_until(&mut [&mut one], |ends| ends[0].down == 1);
    assert_eq!((one.up, one.link.counts()), (0, (0, 0)));
}

/// A front with invalid lengths, or with bytes behind its head, ends the connection.
#[test]
fn malformed_front_closes_the_connection() {
    let front = |head_len: u8, zero: u8, payload_len: u32, behind: u8| {
        let mut front = [0; FRONT_LEN];
        (front[0], front[2], front[FRONT_LEN - 1]) = (head_len, zero, behind);
        front[4..8].copy_from_slice(&payload_len.to_le_bytes());
        front
    };
    assert_eq!(receive_front(front(4, 0, 3, 0)), (1, 0));
    assert_eq!(receive_front(front(56, 0, 3, 7)), (1, 0));
    assert_eq!(receive_front(front(57, 0, 3, 0)), (0, 1));
    assert_eq!(receive_front(front(4, 1, 3, 0)), (0, 1));
    assert_eq!(receive_front(front(4, 0, u32::MAX, 0)), (0, 1));
    assert_eq!(receive_front(front(55, 0, 3, 7)), (0, 1));
}

/// Sends `front` and three bytes on a verified connection. Returns the number of parts accepted and
/// of connections ended.
fn receive_front(front: [u8; FRONT_LEN]) -> (usize, usize) {
    let (mut one, _) = paired(true);
    let mut foreign = TcpStream::connect(one.link.local_addr()).unwrap();
    let tokens = Tokens {
        mine: 22,
        theirs: 11,
    };
    foreign.write_all(&tokens.encode()).unwrap();
    poll_until(&mut [&mut one], |ends| ends[0].up == 1);
    foreign.write_all(&front).unwrap();
    foreign.write_all(b"abc").unwrap();
    poll_until(&mut [&mut one], |ends| {
        ends[0].down + ends[0].inbox.parts.len() == 1
    });
    (one.inbox.parts.len(), one.down)
}

#[test]
fn connections_use_at_most_their_share_of_descriptors() {
    let (mut one, mut two) = connected(true);
    one.link.connections_max = 1;
    let other = Tokens {
        mine: 12,
        theirs: 23,
    };
    // One connection is opened, one is accepted.
    one.link.open_to(2, two.link.local_addr(), other);
    poll_until(&mut [&mut one, &mut two], |ends| ends[0].down == 1);
    one.sessions.insert(12, (2, 23));
    two.sessions.insert(23, (3, 12));
    let other = Tokens {
        mine: 23,
        theirs: 12,
    };
    two.link.open_to(3, one.link.local_addr(), other);
    poll_until(&mut [&mut one, &mut two], |ends| ends[1].down == 1);
    assert_eq!((one.link.counts(), one.up), ((1, 0), 1));
    send(&mut one, &mut two, 1, b"head", &pattern(100_000, 1));
}

#[test]
fn refused_connection_is_reported() {
    let (mut one, two) = paired(true);
    let to = two.link.local_addr();
    drop(two);
    let tokens = Tokens {
        mine: 11,
        theirs: 22,
    };
    one.link.open_to(1, to, tokens);
    poll_until(&mut [&mut one], |ends| ends[0].down == 1);
    assert_eq!(one.link.counts(), (0, 0));
}

#[test]
fn idle_connections_are_closed_and_opened_again() {
    let (mut one, mut two) = connected(true);
    one.link.close_idle();
    assert_eq!(one.link.counts().0, 1, "it was just used");
    one.link.close_idle();
    assert_eq!(one.link.counts().0, 0);
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.down == 1)
    });
    let tokens = Tokens {
        mine: 11,
        theirs: 22,
    };
    one.link.open_to(1, two.link.local_addr(), tokens);
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends.iter().all(|end| end.up == 2)
    });
    assert!(pipes_of_this_process() < 100);
}

fn pipes_of_this_process() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn sleeper_is_woken_by_data_and_by_space() {
    let (mut one, mut two) = connected(true);
    one.poll();
    two.poll();
    let mut wake = WakeSet::default();
    assert!(two.link.arm(&mut wake), "nothing waits");
    assert!(!net::wait_readable(&wake.fds, Duration::from_millis(5)).unwrap());
    let bytes = pattern(PAYLOAD_LEN_MAX, 2);
    send(&mut one, &mut two, 1, b"wake", &bytes);
    assert!(net::wait_readable(&wake.fds, TEST_TIMEOUT).unwrap());
    poll_until(&mut [&mut one, &mut two], |ends| {
        ends[1].inbox.parts.len() == 1
    });
    // Sends until the socket is full.
    let slices = [IoSlice::new(&bytes)];
    let frame = TxFrame {
        head: b"more",
        payload: &slices,
        segments: None,
    };
    while one.link.transmit(1, &frame).is_ok() {}
    one.poll();
    let mut wake = WakeSet::default();
    assert!(one.link.arm(&mut wake), "no event is pending");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(300) {
                two.poll();
            }
        });
        assert!(net::wait_readable(&wake.fds, TEST_TIMEOUT).unwrap());
        reader.join().unwrap();
    });
}
