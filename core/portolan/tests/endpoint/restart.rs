// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restarts of a server and of clients at random moments, in processes of their own, while calls
//! are under way. Every call ends, and the survivors find each other again.

use crate::common::PATIENCE;
use crate::servers::node;
use portolan::{Error, PathChoice, PeerEventKind, PortConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable of a child: its part, its path and the server's address.
const ROLE: &str = "RESTART_TEST_ROLE";

/// Environment variable with the number of restarts of each side. The suite makes few.
const COUNT: &str = "PORTOLAN_TEST_RESTARTS";

const SECRET: &[u8] = b"known to the test only";
const PORT: u16 = 9;

/// Replies to calls until its input is closed: the number of the call, and the process.
fn serve(way: &str, address: &str) {
    let mut server = node(path(way));
    server.open(PORT, PortConfig::default()).unwrap();
    server.listen(address, SECRET).unwrap();
    let is_over = over();
    say("ready");
    let mut live = HashSet::new();
    // At the end the clients have left. Those that were killed must be gone as well.
    while !is_over() || !live.is_empty() {
        let call = server.recv_call(PORT, Some(Duration::from_millis(20)));
        if let Some(call) = call.unwrap() {
            let mut reply = call.bytes().to_vec();
            reply.extend_from_slice(&std::process::id().to_le_bytes());
            // The client may have been killed since.
            let _ = server.reply(call.reply_to(), 0, reply);
        }
        while let Some(event) = server.next_peer_event() {
            let is_expected = match event.kind {
                PeerEventKind::Joined => live.insert(event.peer()),
                _ => live.remove(&event.peer()),
            };
            assert!(is_expected, "{event:?}");
        }
    }
    assert_eq!(server.peers(), []);
    say("alone");
}

/// Calls the server until its input is closed, and connects again when it has ended.
fn call(way: &str, address: &str) {
    let mut client = node(path(way));
    let is_over = over();
    let mut server = None;
    let mut number = 0u64;
    while !is_over() {
        let to = match server {
            Some(to) => to,
            None => match client.connect(address, SECRET, Duration::from_millis(200)) {
                Ok(to) => *server.insert(to),
                Err(Error::NoServer { .. }) => continue,
                Err(other) => panic!("{other}"),
            },
        };
        number += 1;
        let bytes = number.to_le_bytes();
        match client.call(to.port(PORT), &bytes).timeout(PATIENCE).wait() {
            Ok(reply) => {
                assert_eq!(reply.bytes[..8], bytes);
                say("served");
            }
            Err(Error::PeerGone { .. }) => server = None,
            Err(other) => panic!("call {number}: {other}"),
        }
        while let Some(event) = client.next_peer_event() {
            if event.kind != PeerEventKind::Joined && Some(event.peer()) == server {
                server = None;
            }
        }
    }
}

fn path(way: &str) -> PathChoice {
    match way {
        "udp" => PathChoice::Udp,
        _ => PathChoice::Auto,
    }
}

/// Returns a function that tests whether the parent has closed the input.
fn over() -> impl Fn() -> bool {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(sender);
    });
    move || receiver.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{text}").unwrap();
    out.flush().unwrap();
}

/// Runs a child; does nothing as a test of its own.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    match role.splitn(3, ' ').collect::<Vec<_>>()[..] {
        ["serve", way, address] => serve(way, address),
        ["call", way, address] => call(way, address),
        _ => panic!("{role}"),
    }
}

/// A child process and its output.
struct Process {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Process {
    fn start(role: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "restart::child", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in output.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Process { child, lines }
    }

    /// Waits until the child prints `text`.
    fn expect_line(&self, text: &str) {
        let begin = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no `{text}`"));
            if line == text {
                return;
            }
        }
    }

    fn forget_lines(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the child in order.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn restarts(way: &str) {
    let count = std::env::var(COUNT).map_or(3, |text| text.parse().unwrap());
    let seed = 52;
    println!("seed {seed}, {count} restarts of each side");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap().to_string();
    drop(place);
    let start = |part: &str| Process::start(&format!("{part} {way} {address}"));
    let mut clients = [start("call"), start("call")];
    let mut server = start("serve");
    for round in 0..2 * count {
        // At any moment: while processes start, connect, call, or wait for each other.
        let moment = u64::from(random.next_u32() % 40);
        std::thread::sleep(Duration::from_millis(moment));
        if round % 2 == 0 {
            server.kill();
            server = start("serve");
        } else {
            let index = random.next_u32() as usize % 2;
            clients[index].kill();
            clients[index] = start("call");
        }
    }
    server.expect_line("ready");
    for client in &clients {
        client.forget_lines();
        client.expect_line("served");
    }
    for client in &mut clients {
        client.end();
    }
    drop(server.child.stdin.take());
    server.expect_line("alone");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn calls_survive_restarts_by_udp() {
    restarts("udp");
}

#[test]
fn calls_survive_restarts_by_shm() {
    restarts("shm");
}
