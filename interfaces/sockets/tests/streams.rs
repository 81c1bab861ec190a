// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares every byte of many TCP connections between two processes, with and without the
//! library at each end.
//!
//! `SOCKETS_CONNECTIONS` sets the number of connections (400 by default), `SOCKETS_SEED` repeats a
//! run.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "streams/calls.rs"]
mod calls;
#[path = "streams/plan.rs"]
mod plan;
#[path = "streams/side.rs"]
mod side;
#[path = "streams/worker.rs"]
mod worker;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Setting of a worker process: its role.
const ROLE: &str = "SOCKETS_ROLE";

/// Returns the path of the library that cargo built for this test, beside the test program.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut found = test.ancestors().skip(1);
    let found = found.find_map(|dir| {
        let path = dir.join("libportolan_sockets.so");
        path.exists().then_some(path)
    });
    found.expect("cargo builds the library first")
}

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

fn seed() -> u64 {
    let from_clock = std::process::id();
    let seed = number("SOCKETS_SEED", u64::from(from_clock));
    println!("SOCKETS_SEED={seed}");
    seed
}

/// One run of two processes.
struct Run {
    seed: u64,
    count: u64,
    /// Set for the accepting and for the connecting end.
    preloaded: [bool; 2],
    spin_ns: u64,
    /// Options of the workers.
    options: &'static [(&'static str, &'static str)],
}

impl Run {
    fn worker(&self, role: &str, is_preloaded: bool) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "worker_process", "--nocapture"])
            .env(ROLE, role)
            .env("SOCKETS_SEED", self.seed.to_string())
            .env("SOCKETS_CONNECTIONS", self.count.to_string())
            .env("PORTOLAN_SOCKETS_CALLS", "2")
            .env("PORTOLAN_SOCKETS_SPIN_NS", self.spin_ns.to_string())
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        for (name, value) in self.options {
            command.env(name, value);
        }
        if is_preloaded {
            command.env("LD_PRELOAD", library());
        }
        command
    }

    /// Starts the accepting process, and returns it with its output and its port.
    fn server(&self) -> (Child, BufReader<ChildStdout>, String) {
        let mut child = self.worker("server", self.preloaded[0]).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("PORT ") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "no port");
        }
        let port = line[5..].trim().to_owned();
        (child, output, port)
    }

    fn client(&self, port: &str) -> Child {
        let mut command = self.worker("client", self.preloaded[1]);
        command.env("SOCKETS_PORT", port).spawn().unwrap()
    }

    /// Runs both processes to their end.
    fn complete(&self) -> [String; 2] {
        let (mut server, mut output, port) = self.server();
        let client = self.client(&port).wait_with_output().unwrap();
        let client_text = String::from_utf8_lossy(&client.stdout).into_owned();
        assert!(client.status.success(), "client: {client_text}");
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(server.wait().unwrap().success(), "server: {text}");
        [text, client_text]
    }
}

/// Reads the number after `name` in a worker's output.
fn figure(text: &str, name: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|word| *word != name);
    words.nth(1).unwrap_or("0").parse().unwrap()
}

#[test]
fn streams_between_preloaded_programs_keep_every_byte() {
    let count = number("SOCKETS_CONNECTIONS", 400);
    let seed = seed();
    for (step, spin_ns) in [0, 20_000].into_iter().enumerate() {
        let run = Run {
            seed: seed.wrapping_add(step as u64),
            count: count / 2,
            preloaded: [true, true],
            spin_ns,
            options: &[],
        };
        let [server, client] = run.complete();
        println!("{server}{client}");
        assert_eq!(figure(&server, "checked"), run.count);
        assert_eq!(figure(&client, "checked"), run.count);
    }
}

#[test]
fn streams_with_one_preloaded_end_or_none_keep_every_byte() {
    let seed = seed();
    for preloaded in [[true, false], [false, true], [false, false]] {
        let run = Run {
            seed,
            count: number("SOCKETS_CONNECTIONS", 400) / 8,
            preloaded,
            spin_ns: 0,
            options: &[],
        };
        let [server, client] = run.complete();
        assert_eq!(figure(&server, "checked"), run.count);
        assert_eq!(figure(&client, "checked"), run.count);
    }
}

/// Checks that most bytes between two preloaded ends use the ring. Otherwise the other tests would
/// be void.
#[test]
fn bytes_of_long_streams_take_the_ring() {
    let dir = tempfile::tempdir().unwrap();
    let stats = dir.path().join("stats");
    let options = [("SOCKETS_LONG", "1")];
    let run = Run {
        seed: 1,
        count: 4,
        preloaded: [true, true],
        spin_ns: 50_000,
        options: Box::leak(Box::new(options)),
    };
    let (mut server, mut output, port) = {
        let mut command = run.worker("server", true);
        command.env("PORTOLAN_SOCKETS_STATS", &stats);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("PORT ") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "no port");
        }
        (child, output, line[5..].trim().to_owned())
    };
    assert!(run.client(&port).wait().unwrap().success());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(server.wait().unwrap().success(), "{text}");
    let lines = std::fs::read_to_string(&stats).unwrap();
    let ring: u64 = lines
        .lines()
        .filter(|line| line.contains(" joined "))
        .map(|line| line.split(' ').nth(4).unwrap().parse::<u64>().unwrap())
        .sum();
    assert!(ring > 0, "nothing took the ring:\n{lines}");
}

#[test]
fn killed_peer_leaves_a_prefix_and_an_end() {
    let seed = seed();
    for (step, spin_ns) in [0, 20_000, 0, 20_000].into_iter().enumerate() {
        let run = Run {
            seed: seed.wrapping_add(step as u64),
            count: 24,
            preloaded: [true, true],
            spin_ns,
            options: &[("SOCKETS_TOLERANT", "1"), ("SOCKETS_LONG", "1")],
        };
        let (mut server, mut output, port) = run.server();
        let mut client = run.client(&port);
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        // The client reports its progress; the kill hits the middle of all connections.
        assert!(lines.any(|line| line.unwrap().starts_with("RUNNING")));
        std::thread::sleep(std::time::Duration::from_millis(1 + seed % 30));
        client.kill().unwrap();
        client.wait().unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(server.wait().unwrap().success(), "server: {text}");
    }
}

#[test]
fn worker_process() {
    if let Ok(role) = std::env::var(ROLE) {
        worker::run(&role);
    }
}
