// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints in separate processes, one of which is stopped or killed.

use crate::common::{ANY, PLAIN, Side, bytes, from, hex, pump, shm, udp, unhex};
use portolan::Cause;
use portolan::binding::{Endpoint, EndpointAddress, PeerIndex, RawError};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Environment variable for the child's test: the path and the address of its parent.
const PARENT: &str = "ENDPOINT_TEST_PARENT";

fn open(way: &str) -> Endpoint {
    if way == "shm" { shm() } else { udp() }
}

/// Time limit for the notice of a death. It takes less than 1 s, or longer on a busy machine.
const NOTICED_MAX: Duration = Duration::from_secs(60);

/// Starts this program again, with the test `child` only.
fn start(parent: &Endpoint, way: &str) -> Child {
    let address = hex(parent.address().as_bytes());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::child", "--nocapture"])
        .env(PARENT, format!("{way} {address}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns a channel that receives a message when the child has printed that it is ready.
fn when_ready(child: &mut Child) -> Receiver<()> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        // Read to the end, so that the child's output stays open.
        for line in lines.map_while(Result::ok) {
            if line == "ready" {
                let _ = tell.send(());
            }
        }
    });
    told
}

/// Runs the child; does nothing as a test of its own. Sends its name to its parent, receives, then
/// computes forever.
#[test]
fn child() {
    let Ok(told) = std::env::var(PARENT) else {
        return;
    };
    let (way, hex) = told.split_once(' ').unwrap();
    let address = unhex(hex);
    let mut side = Side::new(open(way));
    let parent = side
        .end
        .insert(&EndpointAddress::from_bytes(&address).unwrap())
        .unwrap();
    let mut buf = [0; 4];
    side.recv(&ANY, &mut buf, 1);
    side.end.inject(parent, &PLAIN, b"here I am").unwrap();
    pump(&mut [&mut side], |sides| sides[0].take(1));
    println!("\nready");
    std::io::stdout().flush().unwrap();
    // Waits until the parent closes the input or exits.
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// Receives a child's name and answers.
fn greet(side: &mut Side) -> PeerIndex {
    let mut name = [0; 9];
    side.recv(&ANY, &mut name, 1);
    let got = pump(&mut [side], |sides| sides[0].take(1));
    assert_eq!(&name, b"here I am");
    let peer = got.peer.unwrap();
    side.end.inject(peer, &PLAIN, b"ahoy").unwrap();
    peer
}

/// Waits longer than the timeout of a silent peer in a job (`P9.3`), and checks that no operation
/// ends.
fn wait_in_vain(side: &mut Side) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1500) {
        side.end
            .wait(Some(Duration::from_millis(100)), &mut |done| {
                panic!("{done:?}")
            });
    }
}

fn only_killed_peers_are_reported(way: &str) {
    let mut side = Side::new(open(way));
    let mut children = [start(&side.end, way), start(&side.end, way)];
    let peers = [greet(&mut side), greet(&mut side)];
    let ready: Vec<_> = children.iter_mut().map(when_ready).collect();
    for child in ready {
        pump(&mut [&mut side], |_| child.try_recv().ok());
    }
    // The children make no further calls. That alone must not end any operation.
    let mut bufs = [[0; 4]; 3];
    for (context, peer) in (10..).zip(&peers) {
        side.recv(&from(*peer), &mut bufs[context as usize - 10], context);
    }
    side.recv(&ANY, &mut bufs[2], 12);
    wait_in_vain(&mut side);
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    let killed = Instant::now();
    let mut ended = Vec::new();
    while ended.is_empty() {
        assert!(killed.elapsed() < NOTICED_MAX, "nobody is told");
        side.end
            .wait(Some(Duration::from_millis(500)), &mut |done| {
                ended.push(done)
            });
    }
    let gone = RawError::PeerGone(Cause::ProcessExited);
    assert_eq!(ended.len(), 1, "{ended:?}");
    let died = ended[0].peer.unwrap();
    assert_eq!(
        (ended[0].error, ended[0].cookie.context),
        (Some(gone), if died == peers[0] { 10 } else { 11 })
    );
    // Operations on it fail too, short and long.
    for (context, len) in [(20, 8), (21, 400_000)] {
        let sent = bytes(len, 1);
        side.send(died, &PLAIN, &sent, context);
        let failed = pump(&mut [&mut side], |sides| sides[0].take(context));
        assert_eq!(failed.error, Some(gone));
    }
    for child in &mut children[1..] {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[test]
fn only_killed_peers_are_reported_by_udp() {
    only_killed_peers_are_reported("udp");
}

#[test]
fn only_killed_peers_are_reported_by_shm() {
    only_killed_peers_are_reported("shm");
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(status.unwrap().success());
}

fn stopped_peers_are_awaited(way: &str) {
    let mut side = Side::new(open(way));
    let mut child = start(&side.end, way);
    let peer = greet(&mut side);
    let ready = when_ready(&mut child);
    pump(&mut [&mut side], |_| ready.try_recv().ok());
    signal(&child, "STOP");
    let mut buf = [0; 9];
    side.recv(&from(peer), &mut buf, 2);
    let sent = bytes(100_000, 1);
    side.send(peer, &PLAIN, &sent, 3);
    wait_in_vain(&mut side);
    signal(&child, "CONT");
    // The process continues where it was stopped, so the first notice is its exit.
    drop(child.stdin.take());
    for context in [2, 3] {
        let ended = pump(&mut [&mut side], |sides| sides[0].take(context));
        let gone = RawError::PeerGone(Cause::ProcessExited);
        let left = RawError::PeerGone(Cause::Closed);
        assert!([Some(gone), Some(left)].contains(&ended.error), "{ended:?}");
    }
    child.wait().unwrap();
}

#[test]
fn stopped_peers_are_awaited_by_udp() {
    stopped_peers_are_awaited("udp");
}

#[test]
fn stopped_peers_are_awaited_by_shm() {
    stopped_peers_are_awaited("shm");
}
