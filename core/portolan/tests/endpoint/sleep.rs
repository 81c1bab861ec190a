// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints that sleep and are woken.

use crate::common::{ANY, PATIENCE, PLAIN, Side, pump, shm, udp};
use portolan::binding::{Endpoint, Idle};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const OPENERS: [fn() -> Endpoint; 2] = [udp, shm];

/// Returns whether the endpoint's descriptor becomes readable within `timeout`.
fn is_readable(end: &Endpoint, timeout: Duration) -> bool {
    portolan_sys::wait::wait_readable(&[end.wait_fd()], Some(timeout)).unwrap()
}

#[test]
fn message_wakes_a_sleeping_endpoint() {
    for open in OPENERS {
        let (mut a, mut b) = (Side::new(open()), Side::new(open()));
        let to_b = a.end.insert(&b.end.address()).unwrap();
        let mut buf = [0; 8];
        b.recv(&ANY, &mut buf, 1);
        a.end.inject(to_b, &PLAIN, b"one").unwrap();
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(1));
        let begin = Instant::now();
        while b.end.idle() != Idle::Sleep {
            b.poll();
            assert!(begin.elapsed() < PATIENCE, "it spins for ever");
        }
        b.recv(&ANY, &mut buf, 2);
        for _ in 0..20 {
            a.poll();
            b.poll();
        }
        while !b.end.arm() {
            b.poll();
            assert!(begin.elapsed() < PATIENCE, "there is always something");
        }
        let Side { mut end, .. } = a;
        let sender = thread::spawn(move || {
            end.inject(to_b, &PLAIN, b"two").unwrap();
            end
        });
        let begin = Instant::now();
        let done = loop {
            assert!(is_readable(&b.end, PATIENCE), "nobody rings");
            b.poll();
            if let Some(done) = b.take(2) {
                break done;
            }
            while !b.end.arm() {
                b.poll();
            }
            assert!(begin.elapsed() < PATIENCE);
        };
        assert_eq!(done.len, 3);
        sender.join().unwrap();
    }
}

/// Whichever descriptor receives the peer's messages after many of them must wake the sleeper.
#[test]
fn most_frequent_peer_wakes_a_sleeping_endpoint() {
    const ROUNDS: u64 = 400;
    let (mut a, mut b) = (Side::new(udp()), Side::new(udp()));
    let to_b = a.end.insert(&b.end.address()).unwrap();
    let to_a = b.end.insert(&a.end.address()).unwrap();
    let mut buf = [0; 8];
    for round in 0..ROUNDS {
        b.recv(&ANY, &mut buf, round);
        a.end.inject(to_b, &PLAIN, b"question").unwrap();
        pump(&mut [&mut a, &mut b], |sides| sides[1].take(round));
        a.recv(&ANY, &mut buf, round);
        b.end.inject(to_a, &PLAIN, b"answer").unwrap();
        pump(&mut [&mut a, &mut b], |sides| sides[0].take(round));
    }
    b.recv(&ANY, &mut buf, ROUNDS);
    let begin = Instant::now();
    // Wait until all is acknowledged, so that no timer of the protocol is near.
    while !b.end.arm() || is_readable(&b.end, Duration::from_millis(20)) {
        a.poll();
        b.poll();
        assert!(begin.elapsed() < PATIENCE, "there is always something");
    }
    a.end.inject(to_b, &PLAIN, b"wake up").unwrap();
    a.poll();
    // Loopback delivers within the call that sends.
    assert!(
        is_readable(&b.end, Duration::from_millis(1)),
        "nobody rings"
    );
    pump(&mut [&mut a, &mut b], |sides| sides[1].take(ROUNDS));
}

#[test]
fn sleeping_endpoint_runs_its_timers() {
    let mut end = udp();
    while !end.arm() {
        end.poll(&mut |done| panic!("{done:?}"));
    }
    assert!(is_readable(&end, PATIENCE), "its timer rings");
    end.poll(&mut |done| panic!("{done:?}"));
    assert_eq!(
        end.wait(Some(Duration::from_millis(1)), &mut |done| panic!(
            "{done:?}"
        )),
        0
    );
}

/// More endpoints than cores, one per thread, pass a message in a ring.
#[test]
fn many_endpoints_make_progress() {
    const COUNT: usize = 6;
    const ROUNDS: u64 = 100;
    for open in OPENERS {
        let mut ends: Vec<_> = (0..COUNT).map(|_| open()).collect();
        let addresses: Vec<_> = ends.iter().map(Endpoint::address).collect();
        let (tell, told) = mpsc::channel();
        for (index, mut end) in ends.drain(..).enumerate() {
            let next = addresses[(index + 1) % COUNT];
            let tell = tell.clone();
            thread::spawn(move || {
                let next = end.insert(&next).unwrap();
                if index == 0 {
                    end.inject(next, &PLAIN, &0_u64.to_le_bytes()).unwrap();
                }
                for round in 0..ROUNDS {
                    let mut side = Side::new(end);
                    let mut word = [0; 8];
                    side.recv(&ANY, &mut word, 1);
                    while side.take(1).is_none() {
                        let Side { end, done, .. } = &mut side;
                        end.wait(Some(PATIENCE), &mut |ended| done.push(ended));
                    }
                    end = side.end;
                    let hops = u64::from_le_bytes(word) + 1;
                    if index > 0 || round + 1 < ROUNDS {
                        end.inject(next, &PLAIN, &hops.to_le_bytes()).unwrap();
                    } else {
                        tell.send(hops).unwrap();
                    }
                }
                drop(end);
            });
        }
        let hops = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(hops, ROUNDS * COUNT as u64);
    }
}
