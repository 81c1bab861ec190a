// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links of one process connected with each other, and with peers that violate the protocol.

use super::hello::{HELLO_LEN, Hello, HelloKey};
use super::*;
use portolan_sys::ring::OFFER_LEN_MIN;
use portolan_sys::seqpacket::Seqpacket;
use portolan_sys::usage::Usage;
use portolan_sys::wait::wait_readable;
use portolan_sys::{memfd, ring};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SECRET: [u8; 32] = [7; 32];
const RING_LEN: usize = 16 * 1024;
/// Far above any delay of a busy machine, so that a lost wake-up fails a test instead of hanging
/// it.
const PATIENCE_MS: u64 = 20_000;

fn config(rank: PeerId) -> ShmConfig {
    ShmConfig {
        ring_len: RING_LEN,
        ..ShmConfig::new([9; 16], rank, SECRET)
    }
}

fn open(rank: PeerId) -> Shm {
    Shm::open(config(rank)).unwrap()
}

/// Returns ranks 0 and 1, connected with each other.
fn pair() -> (Shm, Shm) {
    let (mut a, mut b) = (open(0), open(1));
    a.connect(1, &b.local_addr()).unwrap();
    b.connect(0, &a.local_addr()).unwrap();
    (a, b)
}

fn send(link: &mut Shm, peer: PeerId, bytes: &[u8]) -> Result<(), TxError> {
    link.transmit(peer, &TxFrame::contiguous(bytes))
}

/// Accepts connections and returns all waiting frames.
fn drain(link: &mut Shm) -> Vec<(PeerId, Vec<u8>)> {
    link.service();
    let mut frames = Vec::new();
    while link.receive(8, &mut |frame| {
        frames.push((frame.from.unwrap(), copy(&frame)))
    }) > 0
    {}
    frames
}

fn copy(frame: &RxFrame<'_>) -> Vec<u8> {
    let mut bytes = frame.head.to_vec();
    if let Some(body) = frame.body {
        let head_len = bytes.len();
        bytes.resize(head_len + body.len(), 0xa5);
        body.copy_to(0, &mut bytes[head_len..]);
    }
    bytes
}

fn notices(link: &mut Shm) -> Vec<String> {
    std::iter::from_fn(|| link.poll_notice())
        .map(|notice| format!("{notice:?}"))
        .collect()
}

#[test]
fn frames_cross_in_both_directions() {
    let (mut a, mut b) = pair();
    send(&mut a, 1, b"to b").unwrap();
    send(&mut b, 0, b"to a").unwrap();
    assert_eq!(drain(&mut b), [(0, b"to b".to_vec())]);
    assert_eq!(drain(&mut a), [(1, b"to a".to_vec())]);
    assert!(notices(&mut a).is_empty() && notices(&mut b).is_empty());
}

#[test]
fn link_to_oneself_works() {
    let mut own = open(3);
    own.connect(3, &own.local_addr()).unwrap();
    send(&mut own, 3, b"note").unwrap();
    assert_eq!(drain(&mut own), [(3, b"note".to_vec())]);
}

#[test]
fn gathered_frames_of_all_lengths_arrive_complete() {
    let (mut a, mut b) = pair();
    let bytes: Vec<u8> = (0..=250).cycle().take(a.caps().frame_len_max).collect();
    for len in [0, 1, 63, 64, 65, 4095, 4096, bytes.len()].map(|len: usize| len.min(bytes.len())) {
        let (head, rest) = bytes[..len].split_at(len / 3);
        let (mid, last) = rest.split_at(rest.len() / 2);
        let payload = [IoSlice::new(mid), IoSlice::new(last)];
        a.transmit(
            1,
            &TxFrame {
                head,
                payload: &payload,
                segments: None,
            },
        )
        .unwrap();
        assert_eq!(drain(&mut b), [(0, bytes[..len].to_vec())]);
    }
    let too_long = a.transmit(
        1,
        &TxFrame {
            payload: &[IoSlice::new(b"x")],
            ..TxFrame::contiguous(&bytes)
        },
    );
    assert!(
        matches!(too_long, Err(TxError::TooLong { frame_len_max }) if frame_len_max == bytes.len())
    );
}

#[test]
fn long_frame_arrives_as_head_and_body() {
    let config = |rank| ShmConfig::new([9; 16], rank, SECRET);
    let (mut a, mut b) = (Shm::open(config(0)).unwrap(), Shm::open(config(1)).unwrap());
    a.connect(1, &b.local_addr()).unwrap();
    let bytes: Vec<u8> = (0..=250).cycle().take(a.caps().frame_len_max).collect();
    send(&mut a, 1, &bytes).unwrap();
    b.service();
    let mut parts = Vec::new();
    let count = b.receive(1, &mut |frame| {
        parts.push((frame.head.len(), frame.body.unwrap().len()));
        let mut some = [0xa5; 100];
        frame.body.unwrap().copy_to(1000, &mut some);
        assert_eq!(some, bytes[1064..1164]);
        assert_eq!(copy(&frame), bytes);
    });
    assert_eq!((count, parts), (1, vec![(64, bytes.len() - 64)]));
}

#[test]
fn receive_respects_its_budget_and_is_fair() {
    let mut hub = open(0);
    let mut spokes: Vec<Shm> = (1..4).map(open).collect();
    for (rank, spoke) in (1u8..).zip(&mut spokes) {
        spoke.connect(0, &hub.local_addr()).unwrap();
        for _ in 0..100 {
            send(spoke, 0, &[rank]).unwrap();
        }
    }
    hub.service();
    let mut counts = [0; 4];
    let mut sink = |frame: RxFrame<'_>| counts[frame.from.unwrap() as usize] += 1;
    assert_eq!(hub.receive(10, &mut sink), 10);
    assert_eq!(hub.receive(96, &mut sink), 96);
    assert!(counts[1..].iter().all(|&count| count >= 32), "{counts:?}");
}

/// If the sink breaks off after each frame, each ring still gets a full burst before the next.
#[test]
fn sink_that_breaks_leaves_frames_and_rings_stay_fair() {
    let mut hub = open(0);
    let mut spokes: Vec<Shm> = (1..4).map(open).collect();
    for (rank, spoke) in (1u8..).zip(&mut spokes) {
        spoke.connect(0, &hub.local_addr()).unwrap();
        for number in 0..100 {
            send(spoke, 0, &[rank, number]).unwrap();
        }
    }
    hub.service();
    let mut next = [0; 4];
    let mut sink = |frame: RxFrame<'_>| {
        let rank = frame.from.unwrap() as usize;
        assert_eq!(usize::from(frame.head[1]), next[rank]);
        next[rank] += 1;
        ControlFlow::Break(())
    };
    for _ in 0..96 {
        assert_eq!(hub.receive_with(64, &mut sink), 1);
    }
    assert_eq!(next, [0, 32, 32, 32]);
    let mut sink = |_: RxFrame<'_>| ControlFlow::Continue(());
    let rest: usize = (0..10).map(|_| hub.receive_with(64, &mut sink)).sum();
    assert_eq!(rest, 300 - 96);
}

#[test]
fn connect_is_idempotent_and_refuses_unreachable_addresses() {
    let (mut a, b) = (open(0), open(1));
    let LinkAddr::Shm {
        host,
        uid,
        pid,
        name,
    } = b.local_addr()
    else {
        panic!("address")
    };
    let shm = |host: &HostId, uid, name: &str| LinkAddr::Shm {
        host: host.clone(),
        uid,
        pid,
        name: name.to_owned(),
    };
    let other_host = HostId {
        netns: host.netns + 1,
        ..host.clone()
    };
    let mut refusal = |peer, addr| a.connect(peer, &addr).unwrap_err().to_string();
    assert!(refusal(1, LinkAddr::Sim { port: 0 }).contains("another kind of link"));
    assert!(refusal(1, shm(&other_host, uid, &name)).contains("another host"));
    assert!(refusal(1, shm(&host, uid + 1, &name)).contains("another user"));
    assert!(refusal(u32::MAX, shm(&host, uid, &name)).contains("rank_count_max"));
    let missing = refusal(1, shm(&host, uid, "portolan-nobody"));
    assert!(
        missing.contains("portolan-nobody") && missing.contains("has ended"),
        "{missing}"
    );
    assert!(matches!(
        send(&mut a, 1, b"x"),
        Err(TxError::NotConnected(1))
    ));
    a.connect(1, &b.local_addr()).unwrap();
    send(&mut a, 1, b"x").unwrap();
    a.connect(1, &b.local_addr()).unwrap();
    send(&mut a, 1, b"y").unwrap();
    let mut b = b;
    assert_eq!(drain(&mut b).len(), 2);
}

#[test]
fn departure_is_reported_once_and_after_the_last_frame() {
    let (mut a, mut b) = pair();
    b.service();
    send(&mut a, 1, b"last words").unwrap();
    drop(a);
    assert!(notices(&mut b).is_empty(), "a frame still waits");
    assert_eq!(drain(&mut b), [(0, b"last words".to_vec())]);
    assert_eq!(notices(&mut b), ["PeerDied(0)"]);
    assert!(notices(&mut b).is_empty());
    assert!(matches!(
        send(&mut b, 0, b"x"),
        Err(TxError::NotConnected(0))
    ));
}

#[test]
fn frames_of_a_peer_that_died_before_it_was_accepted_arrive() {
    let (mut a, mut b) = pair();
    send(&mut a, 1, b"early").unwrap();
    drop(a);
    assert!(notices(&mut b).is_empty(), "a frame still waits");
    assert_eq!(drain(&mut b), [(0, b"early".to_vec())]);
    assert_eq!(notices(&mut b), ["PeerDied(0)"]);
}

#[test]
fn disconnected_peer_can_reconnect() {
    let (mut a, mut b) = pair();
    drop(b);
    assert_eq!(notices(&mut a), ["PeerDied(1)"]);
    b = open(1);
    assert!(
        a.connect(1, &b.local_addr())
            .unwrap_err()
            .to_string()
            .contains("disconnect it")
    );
    a.disconnect(1);
    a.connect(1, &b.local_addr()).unwrap();
    b.connect(0, &a.local_addr()).unwrap();
    send(&mut a, 1, b"again").unwrap();
    send(&mut b, 0, b"again").unwrap();
    assert_eq!(drain(&mut b), [(0, b"again".to_vec())]);
    assert_eq!(drain(&mut a), [(1, b"again".to_vec())]);
}

#[test]
fn disconnect_reports_that_the_process_is_alive() {
    let (mut a, mut b) = pair();
    a.service();
    b.service();
    // An unread doorbell must not hide the farewell.
    assert!(b.arm(&mut WakeSet::default()));
    send(&mut a, 1, b"last words").unwrap();
    a.disconnect(1);
    b.disarm();
    assert_eq!(drain(&mut b), [(0, b"last words".to_vec())]);
    assert_eq!(notices(&mut b), ["PeerClosed(0)"]);
    assert!(matches!(
        send(&mut b, 0, b"x"),
        Err(TxError::NotConnected(0))
    ));
    drop(a);
    assert!(notices(&mut b).is_empty(), "it has left already");
}

/// Polls once like an engine: notices, then frames.
fn poll(link: &mut Shm) -> (Vec<String>, Vec<(PeerId, Vec<u8>)>) {
    let mut reported = Vec::new();
    while let Some(notice) = link.poll_notice() {
        if let Notice::PeerDied(peer) | Notice::PeerClosed(peer) = notice {
            link.disconnect(peer);
        }
        reported.push(format!("{notice:?}"));
    }
    (reported, drain(link))
}

#[test]
fn reconnecting_peer_is_admitted_behind_its_earlier_frames() {
    let (mut a, mut b) = pair();
    a.service();
    b.service();
    for round in 0..200u8 {
        send(&mut a, 1, &[round, 0]).unwrap();
        a.disconnect(1);
        a.connect(1, &b.local_addr()).unwrap();
        send(&mut a, 1, &[round, 1]).unwrap();
        let mut frames = Vec::new();
        let mut reported = Vec::new();
        while frames.len() < 2 {
            let (more_notices, more) = poll(&mut b);
            assert!(reported.len() < 100, "{reported:?}");
            reported.extend(more_notices);
            frames.extend(more.into_iter().map(|(_, bytes)| bytes));
        }
        assert_eq!(frames, [[round, 0], [round, 1]]);
        assert_eq!(reported, ["PeerClosed(0)"]);
        b.connect(0, &a.local_addr()).unwrap();
        send(&mut b, 0, &[round, 2]).unwrap();
        assert_eq!(poll(&mut a), (vec![], vec![(1, vec![round, 2])]));
    }
    assert!(b.returning.is_empty() && b.inbound.len() == 1);
}

#[test]
fn connection_that_crosses_a_disconnect_does_not_end_the_next() {
    let (mut a, mut b) = (open(0), open(1));
    a.connect(1, &b.local_addr()).unwrap();
    b.service();
    // In flight and not accepted when the other side starts again.
    b.connect(0, &a.local_addr()).unwrap();
    a.disconnect(1);
    a.connect(1, &b.local_addr()).unwrap();
    send(&mut a, 1, b"anew").unwrap();
    // This side has not polled yet, and gets an error.
    let refused = b.connect(0, &a.local_addr()).unwrap_err().to_string();
    assert!(refused.contains("disconnect it first"), "{refused}");
    assert_eq!(
        poll(&mut b),
        (
            vec!["PeerClosed(0)".to_owned()],
            vec![(0, b"anew".to_vec())]
        )
    );
    assert_eq!(poll(&mut a), (vec![], vec![]));
    b.connect(0, &a.local_addr()).unwrap();
    send(&mut b, 0, b"back").unwrap();
    assert_eq!(poll(&mut a), (vec![], vec![(1, b"back".to_vec())]));
}

#[test]
fn only_the_newest_reconnection_is_retained() {
    let (mut a, mut b) = pair();
    a.service();
    b.service();
    for _ in 0..50 {
        a.disconnect(1);
        a.connect(1, &b.local_addr()).unwrap();
        b.service();
        assert!(b.returning.len() <= 1);
    }
    send(&mut a, 1, b"newest").unwrap();
    let (reported, frames) = poll(&mut b);
    assert_eq!(reported, ["PeerClosed(0)"]);
    assert_eq!(frames, [(0, b"newest".to_vec())]);
}

#[test]
fn full_ring_is_back_pressure_and_its_sender_is_woken() {
    let (mut a, mut b) = pair();
    b.service();
    let mut sent = 0;
    while send(&mut a, 1, &[5; 200]).is_ok() {
        sent += 1;
    }
    assert!(sent * 200 > RING_LEN / 2, "{sent}");
    let mut wake = WakeSet::default();
    assert!(a.arm(&mut wake));
    assert!(!is_readable(&wake, 0));
    assert_eq!(drain(&mut b).len(), sent);
    assert!(is_readable(&wake, 1000));
    a.disarm();
    send(&mut a, 1, &[5; 200]).unwrap();
}

#[test]
fn arm_refuses_to_sleep_over_frames_and_wakes_for_new_ones() {
    let (mut a, mut b) = pair();
    let mut wake = WakeSet::default();
    send(&mut a, 1, b"before").unwrap();
    assert!(!b.arm(&mut wake) && wake.fds.is_empty());
    drain(&mut b);
    assert!(b.arm(&mut wake));
    assert!(!is_readable(&wake, 0));
    send(&mut a, 1, b"after").unwrap();
    assert!(is_readable(&wake, 1000));
    b.disarm();
    assert!(!is_readable(&wake, 0), "the bell was not taken off");
    assert_eq!(drain(&mut b).len(), 1);
}

#[test]
fn sleeper_wakes_for_a_new_peer_and_for_a_death() {
    let (mut a, mut b) = (open(0), open(1));
    let mut wake = WakeSet::default();
    assert!(b.arm(&mut wake));
    a.connect(1, &b.local_addr()).unwrap();
    send(&mut a, 1, b"first").unwrap();
    assert!(is_readable(&wake, 1000));
    b.disarm();
    assert_eq!(drain(&mut b), [(0, b"first".to_vec())]);
    assert!(b.arm(&mut wake));
    drop(a);
    assert!(is_readable(&wake, 1000));
    b.disarm();
    assert_eq!(notices(&mut b), ["PeerDied(0)"]);
    wake.fds.clear();
    assert!(
        b.arm(&mut wake) && !is_readable(&wake, 0),
        "a dead peer prevents sleep"
    );
}

fn is_readable(wake: &WakeSet, timeout_ms: u64) -> bool {
    wait_readable(&wake.fds, Some(Duration::from_millis(timeout_ms))).unwrap()
}

/// Exchanges `count` frames, at most `burst` ahead of the peer, sleeping whenever idle.
fn exchange(link: &mut Shm, peer: PeerId, count: usize, burst: usize) {
    let (mut sent, mut received) = (0, 0);
    while sent < count || received < count {
        let mut progress = false;
        while sent < count && sent < received + burst && send(link, peer, &[3; 500]).is_ok() {
            sent += 1;
            progress = true;
        }
        let count = link.receive(64, &mut |frame| assert_eq!(frame.head, [3; 500]));
        received += count;
        if progress || count > 0 || (sent == count && received == count) {
            continue;
        }
        let mut wake = WakeSet::default();
        if link.arm(&mut wake) {
            assert!(is_readable(&wake, PATIENCE_MS), "slept through a wake-up");
            link.disarm();
        }
        assert!(link.poll_notice().is_none());
    }
}

#[test]
fn two_sleepers_never_miss_a_wake_up() {
    // With a burst of one, both sleep for frames; long bursts fill the ring, so that senders also
    // sleep for space.
    for (count, burst) in [(20_000, 1), (20_000, 100)] {
        let (mut a, mut b) = pair();
        thread::scope(|scope| {
            scope.spawn(|| exchange(&mut a, 1, count, burst));
            scope.spawn(|| exchange(&mut b, 0, count, burst));
        });
    }
}

#[test]
fn pull_reads_the_peers_memory_or_is_unsupported() {
    let (mut a, b) = pair();
    let source: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    let mut copy = vec![0xa5; source.len()];
    match a.pull(1, source.as_ptr() as u64, &mut copy) {
        Ok(()) => assert!(copy == source),
        Err(PullError::Unsupported) => return println!("SKIPPED: process_vm_readv is forbidden"),
        Err(err) => panic!("{err}"),
    }
    assert!(matches!(
        a.pull(1, 8, &mut copy),
        Err(PullError::Failed(1, _))
    ));
    assert!(matches!(
        a.pull(2, 8, &mut copy),
        Err(PullError::Unsupported)
    ));
    drop(b);
    let late = a.pull(1, source.as_ptr() as u64, &mut copy);
    assert!(matches!(late, Err(PullError::Failed(1, _))), "{late:?}");
}

/// Returns how often this thread has read another process's memory.
fn read_count() -> u64 {
    let all = Usage::of_this_thread();
    let found = all.calls().find(|(name, _)| *name == "process_vm_readv");
    found.map_or(0, |(_, count)| count)
}

#[test]
fn both_ends_copy_a_long_message_and_no_write_is_late() {
    const ROUNDS: usize = 300;
    let deadline = Instant::now() + Duration::from_millis(PATIENCE_MS);
    let (mut a, mut b) = pair();
    a.service();
    let source: Vec<u8> = (0..=250).cycle().take(1_000_001).collect();
    let addr = source.as_ptr() as u64;
    let mut copy = vec![0xa5; source.len()];
    if let Err(PullError::Unsupported) = a.pull(1, addr, &mut copy) {
        return println!("SKIPPED: process_vm_readv is forbidden");
    }
    let (is_over, helped) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if b.offered(0) == Some(addr) && b.help(0, &source) {
                    helped.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for round in 0.. {
            // However busy the machine is, the sender eventually runs.
            let has_helped = helped.load(Ordering::Relaxed) > 0;
            if round >= ROUNDS && (has_helped || Instant::now() > deadline) {
                break;
            }
            // Also shortened messages.
            let len = source.len() - round % ROUNDS * 1000;
            copy.fill(0xa5);
            a.pull(1, addr, &mut copy[..len]).unwrap();
            assert!(copy[..len] == source[..len]);
            assert!(copy[len..].iter().all(|byte| *byte == 0xa5));
            copy.fill(0x5a);
            thread::yield_now();
            assert!(copy.iter().all(|byte| *byte == 0x5a), "written late");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(helped.into_inner() > 0, "the sender never copied a share");
}

#[test]
fn absent_sender_is_not_awaited_and_soon_gets_no_offers() {
    let (mut a, mut b) = pair();
    a.service();
    let source = vec![7; OFFER_LEN_MIN];
    let mut copy = vec![0xa5; source.len()];
    let (before, reads) = (b.offered(0), read_count());
    for _ in 0..10 {
        match a.pull(1, source.as_ptr() as u64, &mut copy) {
            Ok(()) => assert!(copy == source),
            Err(PullError::Unsupported) => {
                return println!("SKIPPED: process_vm_readv is forbidden");
            }
            Err(err) => panic!("{err}"),
        }
        copy.fill(0xa5);
        // A finished transfer is no longer offered.
        assert_eq!((before, b.offered(0)), (None, None));
        assert!(!b.help(0, &source));
    }
    // Two are read in two shares each, the rest with one call each.
    assert_eq!(read_count() - reads, 12);
}

// Peers that violate the protocol.

fn name(link: &Shm) -> String {
    link.name.clone()
}

fn hello(to: &Shm, from: PeerId) -> Hello {
    let (job_id, ring_len) = (to.config.job_id, RING_LEN as u64);
    Hello {
        job_id,
        from,
        to: to.config.rank,
        ring_len,
        nonce: [0; 16],
        endpoint_id: None,
    }
}

fn greet(to: &Shm, hello: &Hello, secret: [u8; 32], memory: &OwnedFd) -> Seqpacket {
    let socket = Seqpacket::connect(name(to).as_bytes()).unwrap();
    let record = hello.encode(&HelloKey::derive(&secret), &name(to));
    socket.send_with_fd(&record, memory.as_fd()).unwrap();
    socket
}

#[test]
fn wrong_hellos_are_counted_and_their_connection_closed() {
    let mut link = open(1);
    let (_ring, good) = ring::create(RING_LEN).unwrap();
    let empty = memfd::create_sealed("portolan-test", 4096).unwrap();
    let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    let base = hello(&link, 0);
    let wrong = |change: fn(&mut Hello)| {
        let mut hello = base.clone();
        change(&mut hello);
        hello
    };
    let unusable = "shm: unusable ring";
    let cases = [
        (base.clone(), [8; 32], &good, "shm: hello with a wrong key"),
        (
            wrong(|h| h.job_id = [1; 16]),
            SECRET,
            &good,
            "shm: hello of another job",
        ),
        (
            wrong(|h| h.to = 2),
            SECRET,
            &good,
            "shm: hello for another rank",
        ),
        (
            wrong(|h| h.from = 1 << 20),
            SECRET,
            &good,
            "shm: hello of a rank above the limit",
        ),
        (wrong(|h| h.ring_len = 0), SECRET, &good, unusable),
        (wrong(|h| h.ring_len = u64::MAX), SECRET, &good, unusable),
        (wrong(|h| h.ring_len = 1 << 15), SECRET, &good, unusable),
        (base.clone(), SECRET, &empty, unusable),
        (base.clone(), SECRET, &file, unusable),
    ];
    for (hello, secret, memory, reason) in cases {
        let socket = greet(&link, &hello, secret, memory);
        assert_eq!(notices(&mut link), [format!("Dropped({reason:?})")]);
        assert!(portolan_sys::doorbell::is_hung_up(&socket));
    }
    let first = greet(&link, &base, SECRET, &good);
    let _second = greet(&link, &base, SECRET, &good);
    assert_eq!(
        notices(&mut link),
        [r#"Dropped("shm: second hello of a peer")"#]
    );
    drop(first);
    assert_eq!(notices(&mut link), ["PeerDied(0)"]);
}

#[test]
fn random_hellos_never_become_peers() {
    let (mut link, mut friend) = (open(1), open(0));
    let memory = memfd::create_sealed("portolan-test", 4096).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for _ in 0..20_000 {
        let socket = Seqpacket::connect(name(&link).as_bytes()).unwrap();
        let mut record = vec![0; rng.random_range(0..2 * HELLO_LEN)];
        rng.fill_bytes(&mut record);
        socket.send_with_fd(&record, memory.as_fd()).unwrap();
        drop(socket);
        let refused = notices(&mut link);
        assert!(
            refused.len() == 1 && refused[0].starts_with("Dropped"),
            "{refused:?}"
        );
    }
    assert!(link.inbound.is_empty() && link.greetings.is_empty() && link.peers.is_empty());
    friend.connect(1, &link.local_addr()).unwrap();
    send(&mut friend, 1, b"still open").unwrap();
    assert_eq!(drain(&mut link), [(0, b"still open".to_vec())]);
}

#[test]
fn silent_connections_are_bounded_and_late_hellos_accepted() {
    let mut link = open(1);
    let silent: Vec<_> = (0..1000)
        .map(|_| Seqpacket::connect(name(&link).as_bytes()).unwrap())
        .collect();
    let refused = notices(&mut link);
    assert_eq!(link.greetings.len(), 256);
    assert!(
        refused
            .iter()
            .all(|notice| notice.contains("without a hello")),
        "{refused:?}"
    );
    let (mut ring, memory) = ring::create(RING_LEN).unwrap();
    let record = hello(&link, 0).encode(&HelloKey::derive(&SECRET), &name(&link));
    silent[999].send_with_fd(&record, memory.as_fd()).unwrap();
    let _ = ring.push(b"at last", &[]).unwrap();
    assert_eq!(drain(&mut link), [(0, b"at last".to_vec())]);
    drop(silent);
    assert!(notices(&mut link).contains(&"PeerDied(0)".to_owned()));
    while !notices(&mut link).is_empty() {}
    assert!(link.greetings.is_empty());
}

#[test]
fn hostile_sender_breaks_only_its_own_connection() {
    let (mut link, mut friend) = (open(1), open(2));
    friend.connect(1, &link.local_addr()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let mut broken = 0;
    for _ in 0..2000 {
        let (_ring, memory) = ring::create(RING_LEN).unwrap();
        let _socket = greet(&link, &hello(&link, 0), SECRET, &memory);
        let file = File::from(memory);
        link.service();
        for _ in 0..20 {
            scribble(&file, &mut rng);
            link.receive(100, &mut |frame| drop(copy(&frame)));
        }
        send(&mut friend, 1, b"undisturbed").unwrap();
        let mut count = 0;
        link.receive(1000, &mut |frame| {
            count += usize::from(frame.from == Some(2))
        });
        assert_eq!(count, 1);
        let reported = notices(&mut link);
        if reported.contains(&r#"Dropped("shm: corrupt ring")"#.to_owned()) {
            assert_eq!(
                reported
                    .iter()
                    .filter(|notice| *notice == "PeerDied(0)")
                    .count(),
                1
            );
            broken += 1;
        }
        link.disconnect(0);
    }
    assert!(broken > 1000, "{broken}");
}

/// Writes random words, and words that look committed, over header and data.
fn scribble(file: &File, rng: &mut ChaCha8Rng) {
    for _ in 0..50 {
        let word = match rng.random_range(0..3) {
            0 => rng.random(),
            1 => 1 << 63 | rng.random_range(0..RING_LEN as u64 / 3),
            _ => 0,
        };
        let base = if rng.random_range(0..10) == 0 {
            0
        } else {
            4096
        };
        let off = base + 8 * rng.random_range(0..64);
        file.write_all_at(&u64::to_ne_bytes(word), off).unwrap();
    }
}

#[test]
fn hostile_receiver_breaks_only_its_own_connection() {
    let (mut link, other) = (open(0), open(1));
    link.connect(1, &other.local_addr()).unwrap();
    let accepted = other.listener.accept().unwrap().unwrap();
    let mut buffer = [0; HELLO_LEN];
    let memory = accepted
        .receive_with_fd(&mut buffer)
        .unwrap()
        .unwrap()
        .fd
        .unwrap();
    // The head index is 128 bytes into the file.
    File::from(memory)
        .write_all_at(&u64::MAX.to_ne_bytes(), 128)
        .unwrap();
    let mut sent = 0;
    let last = loop {
        match send(&mut link, 1, &[1; 1000]) {
            Ok(()) => sent += 1,
            Err(err) => break err,
        }
    };
    assert!(
        sent < 20 && matches!(last, TxError::NotConnected(1)),
        "{sent} {last}"
    );
    assert_eq!(
        notices(&mut link),
        [r#"Dropped("shm: corrupt ring")"#, "PeerDied(1)"]
    );
}
