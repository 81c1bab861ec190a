// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a server with many idle clients.
//!
//! The server is this program started again. The test acts as the clients: each completes the
//! handshake of a connection, and then keeps only its socket.

use super::visit::{Host, Step, Visit};
use crate::directory::{Directory, EndpointAddress};
use crate::{EndpointConfig, Node, PathChoice, PeerEventKind};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Environment variable that makes this program the server or its clients.
const ROLE: &str = "IDLE_CLIENTS_TEST_SERVER";

const SECRET: &[u8] = b"known to the test only";
const PATIENCE: Duration = Duration::from_secs(100);

/// Numbers of clients of the two measurements.
const FEW: u16 = 1_000;
const MANY: u16 = 10_000;

/// Maximum cost of an idle client in bytes, as docs/reference/limits.md states it. Memory of the
/// kernel for the socket comes in addition.
const IDLE_LEN_MAX: usize = 2048;

/// Returns the resident memory of this process that belongs to no file, in bytes.
fn resident_len() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: usize = line
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse()
        .unwrap();
    kib * 1024
}

/// Runs the server: for each line of input with a number, waits for that many clients, and prints the
/// memory of the process. Does nothing as a test of its own.
#[test]
fn server() {
    if std::env::var(ROLE).as_deref() != Ok("server") {
        return;
    }
    let config = EndpointConfig {
        path: PathChoice::Udp,
        interface: Some("lo".to_owned()),
        ..EndpointConfig::default()
    };
    let mut node = Node::standalone_with(&config).unwrap();
    println!("\nat {}", node.listen("127.0.0.1:0", SECRET).unwrap());
    let mut joined = 0;
    for line in std::io::stdin().lines() {
        let wanted: usize = line.unwrap().parse().unwrap();
        while joined < wanted {
            node.wait_until_timeout(|| false, Duration::from_millis(5))
                .unwrap();
            while let Some(event) = node.next_peer_event() {
                assert_eq!(event.kind, PeerEventKind::Joined, "{event:?}");
                joined += 1;
            }
        }
        // Buffers of the burst of connections are given back.
        node.wait_until_timeout(|| false, Duration::from_secs(2))
            .unwrap();
        assert_eq!(node.peers().len(), wanted);
        println!("\nmemory {}", resident_len());
    }
}

fn address(number: u16) -> EndpointAddress {
    let mut bytes = [0; EndpointAddress::LEN];
    bytes[0] = 3;
    bytes[2..4].copy_from_slice(&number.to_le_bytes());
    bytes[47] = 1;
    EndpointAddress::from_bytes(&bytes).unwrap()
}

/// Becomes a peer of the server, and returns the connection.
fn connected(to: &str, number: u16) -> TcpStream {
    let directory = Directory::new(&[7; 16]);
    directory.set_own(address(number));
    directory.insert(&address(number));
    let host = Host {
        directory: &directory,
        // The code of no encryption.
        auth: 1,
        beginning: &[],
        relation: u64::from(number) | 1,
    };
    let mut socket = TcpStream::connect(to).unwrap();
    let mut visit = Visit::new(true, Arc::from(SECRET)).unwrap();
    loop {
        socket.write_all(&visit.take_output()).unwrap();
        let mut bytes = [0; 512];
        let len = socket.read(&mut bytes).unwrap();
        assert!(
            len > 0,
            "client {number}: the server has closed the connection"
        );
        match visit.on_bytes(&bytes[..len], &host) {
            Step::More => {}
            Step::Joined { .. } => return socket,
            other => panic!("client {number}: {other:?}"),
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the rest of the next line that begins with `word`.
fn after(lines: &mut impl BufRead, word: &str) -> String {
    let begin = Instant::now();
    let mut line = String::new();
    while begin.elapsed() < PATIENCE && lines.read_line(&mut line).unwrap() > 0 {
        if let Some(rest) = line.strip_prefix(word) {
            return rest.trim().to_owned();
        }
        line.clear();
    }
    panic!("the server does not print {word:?}");
}

/// Returns this program with more descriptors than usual, to run the test `name`.
fn again(name: &str, role: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 12000 && exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, role);
    command
}

/// Plays the clients, in a process that may open enough sockets. Does nothing as a test of its own.
#[test]
fn clients() {
    if std::env::var(ROLE).as_deref() != Ok("clients") {
        return;
    }
    let mut command = again("meeting::tests::server", "server");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let mut orders = server.0.stdin.take().unwrap();
    let mut lines = BufReader::new(server.0.stdout.take().unwrap());
    let to = after(&mut lines, "at ");
    let mut clients = Vec::new();
    let mut measure = |count: u16| -> usize {
        let next = u16::try_from(clients.len()).unwrap() + 1;
        clients.extend((next..=count).map(|number| connected(&to, number)));
        writeln!(orders, "{count}").unwrap();
        after(&mut lines, "memory ").parse().unwrap()
    };
    let (few, many) = (measure(FEW), measure(MANY));
    println!(
        "\neach {}",
        many.saturating_sub(few) / usize::from(MANY - FEW)
    );
}

#[test]
fn idle_client_costs_a_server_what_the_documents_state() {
    let shell = Command::new("sh").args(["-c", "ulimit -n 12000"]).status();
    if !shell.unwrap().success() {
        eprintln!("SKIPPED: this needs 12000 descriptors");
        return;
    }
    let output = again("meeting::tests::clients", "clients")
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    let each = out
        .lines()
        .find_map(|line| line.strip_prefix("each "))
        .unwrap();
    println!("{each} bytes for an idle client");
    assert!(
        each.parse::<usize>().unwrap() <= IDLE_LEN_MAX,
        "{each} bytes for an idle client"
    );
}
