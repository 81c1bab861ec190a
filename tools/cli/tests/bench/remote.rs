// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan bench --server` and `--client`: rows between two hosts, and refused clients.
//! They assert that the work was done, never a time.

use crate::common::{
    Ended, KillOnDrop, can_make_labs, portolan, processes_with, refused, run, wait_until,
};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// A server that is killed with the test, its output, and its address.
struct Server {
    child: KillOnDrop,
    lines: Receiver<String>,
    port: u16,
    token: String,
}

impl Server {
    /// Starts a server with `command`: `portolan bench --server …` at a port chosen by the system.
    fn start(command: &mut Command) -> Server {
        let mut child = KillOnDrop(command.stdout(Stdio::piped()).spawn().unwrap());
        let output = child.0.stdout.take().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let first = lines.recv().unwrap();
        let word = |after: &str| {
            let rest = first.split_once(after);
            let rest = rest
                .unwrap_or_else(|| panic!("no {after:?} in {first:?}"))
                .1;
            rest.split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap()
                .to_owned()
        };
        Server {
            child,
            lines,
            port: word("TCP port ").parse().unwrap(),
            token: word("--token "),
        }
    }

    fn here() -> Server {
        let args = "bench --server --port 0 --bind 127.0.0.1";
        Server::start(&mut portolan(&args.split(' ').collect::<Vec<_>>()))
    }

    /// Returns the command of a client on this host for this server.
    fn client(&self, args: &str) -> Command {
        let mut command = portolan(&args.split(' ').collect::<Vec<_>>());
        command.args(["--client", "127.0.0.1", "--port", &self.port.to_string()]);
        command.env("PORTOLAN_BENCH_TOKEN", &self.token);
        command
    }

    /// Waits until the server prints a line that contains `word`.
    fn says(&self, word: &str) {
        let said = |line: String| line.contains(word);
        let patience = std::time::Duration::from_secs(60);
        while !said(
            self.lines
                .recv_timeout(patience)
                .unwrap_or_else(|_| panic!("no {word}")),
        ) {}
    }
}

fn ended(command: &mut Command) -> Ended {
    command.output().unwrap().into()
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.status, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
}

/// Asserts rows of `metric` from each of `systems` on `path`.
fn assert_rows(report: &Value, metric: &str, path: &str, systems: &[&str]) {
    for system in systems {
        let is_it = |row: &&Value| {
            row["metric"] == metric && row["path"] == path && row["system"] == *system
        };
        let row = report["results"].as_array().unwrap().iter().find(is_it);
        let row = row.unwrap_or_else(|| panic!("{metric} by {path}, {system}: {report}"));
        assert!(row["msgs_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["iterations"].as_u64().unwrap() > 0, "{row}");
    }
}

/// Options for few turns, because other spinning tests may delay each turn by time slices.
const SHORT: &str = "--repeat 1 --iterations 20 --json -";

#[test]
fn two_hosts_measure_together_several_times() {
    if !can_make_labs() {
        return;
    }
    let name = format!("bench{}", std::process::id());
    assert_eq!(
        run(&["lab", "up", "--hosts", "2", "--name", &name]).status,
        0
    );
    let _down = Down(name.clone());
    let own = env!("CARGO_BIN_EXE_portolan");
    let on = |host: u32| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{name}-h{host}"), own]);
        command
            .stdin(Stdio::null())
            .env("XDG_CONFIG_HOME", "/nonexistent");
        command
    };
    let server = Server::start(on(1).args(["bench", "--server", "--port", "0"]));
    let measure = |args: &str| {
        let mut command = on(0);
        let line = format!("bench {args} {SHORT} --client 10.77.0.2");
        command
            .args(line.split(' '))
            .args(["--port", &server.port.to_string()]);
        command.args(["--token", &server.token]);
        report(&ended(&mut command))
    };
    let all = ["portolan", "limit", "tcp", "udp"];
    let first = measure("pingpong --path udp,packet,auto --vs tcp,udp --limits --size 64");
    for path in ["udp", "packet", "auto"] {
        assert_rows(&first, "half_rtt", path, &all);
    }
    assert_eq!(first["machine"]["site"], "hosts");
    let server_host = &first["machine"]["server"];
    assert_eq!(
        (&server_host["address"], &server_host["interface"]),
        (&"10.77.0.2".into(), &"eth0".into())
    );
    assert_eq!(first["notes"], Value::Array(vec![]));
    let second = measure("stream rate bidir logp loaded --path auto --vs tcp --size 100000");
    for metric in ["stream", "rate", "bidir", "logp", "loaded"] {
        assert_rows(&second, metric, "auto", &["portolan", "tcp"]);
    }
    // Libraries that are not installed have notes; `competitors` tests their rows.
    let third = measure("pingpong --path udp --vs libfabric-tcp,ucx --size 64");
    let told =
        third["results"].as_array().unwrap().len() + third["notes"].as_array().unwrap().len();
    assert_eq!(told, 3, "{third}");
    drop(server);
    wait_until("no end is left", || {
        processes_with(&format!("{name}-h")).is_empty()
    });
}

/// Removes a lab at the end of the test.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        run(&["lab", "down", "--name", &self.0]);
    }
}

#[test]
fn rows_over_loopback_need_no_privilege() {
    let server = Server::here();
    let line = format!("bench pingpong stream --path udp --vs tcp --limits --size 64 {SHORT}");
    let report = report(&ended(&mut server.client(&line)));
    for metric in ["half_rtt", "stream"] {
        assert_rows(&report, metric, "udp", &["portolan", "tcp"]);
    }
}

#[test]
fn a_server_outlives_a_client_that_dies_in_a_row() {
    let server = Server::here();
    for row in ["--path udp", "--path udp --vs tcp"] {
        let line = format!("bench pingpong {row} --size 64 --seconds 60 --repeat 1");
        let client = KillOnDrop(server.client(&line).stdout(Stdio::null()).spawn().unwrap());
        server.says("session started");
        // The process of a row at this server: a child, or a child of its agent.
        let own = server.child.0.id();
        wait_until("an end works", || !ends_of(own).is_empty());
        drop(client);
        server.says("session ended");
        wait_until("no end is left", || ends_of(own).is_empty());
    }
    let line = format!("bench pingpong --path udp --vs tcp --size 64 {SHORT}");
    let report = report(&ended(&mut server.client(&line)));
    assert_rows(&report, "half_rtt", "udp", &["portolan", "tcp"]);
}

#[test]
fn a_client_outlives_its_server_and_says_what_is_missing() {
    let server = Server::here();
    let line = "bench pingpong --path udp --vs tcp --size 64 --seconds 60 --repeat 1 --json -";
    let mut command = server.client(line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = command.spawn().unwrap();
    let own = server.child.0.id();
    wait_until("an end works", || !ends_of(own).is_empty());
    drop(server);
    let ended = Ended::from(client.wait_with_output().unwrap());
    assert_eq!(ended.status, 1, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["results"], Value::Array(vec![]));
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.len() >= 2, "{notes:?}");
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .contains("the connection to the server on host 127.0.0.1 ended"),
        "{notes:?}"
    );
    for note in &notes[1..] {
        let note = note.as_str().unwrap();
        assert_eq!(
            note.matches("start `portolan bench --server`").count(),
            1,
            "{note}"
        );
        assert_eq!(note.matches("refused").count(), 1, "{note}");
    }
}

/// Returns the workers that descend from process `ancestor`.
fn ends_of(ancestor: u32) -> Vec<i32> {
    let descends = |mut pid: i32| {
        while pid > 1 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.split(' ').nth(1));
            pid = parent.and_then(|parent| parent.parse().ok()).unwrap_or(0);
            if u32::try_from(pid) == Ok(ancestor) {
                return true;
            }
        }
        false
    };
    let workers = processes_with("bench-worker");
    workers.into_iter().filter(|pid| descends(*pid)).collect()
}

#[test]
fn one_client_at_a_time_has_the_server() {
    let server = Server::here();
    let line = "bench pingpong --path udp --size 64 --seconds 60 --repeat 1";
    let first = KillOnDrop(server.client(line).stdout(Stdio::null()).spawn().unwrap());
    server.says("session started");
    let second = ended(&mut server.client(line));
    assert_eq!(second.status, 2, "{}", second.err);
    assert!(
        second.err.contains("127.0.0.1 is using this server"),
        "{}",
        second.err
    );
    drop(first);
    server.says("session ended");
}

#[test]
fn client_with_a_wrong_token_is_refused() {
    let server = Server::here();
    let line = "bench pingpong --path udp --size 64 --seconds 1";
    let wrong = ended(server.client(line).env("PORTOLAN_BENCH_TOKEN", "guess"));
    assert_eq!(wrong.status, 2, "{}", wrong.err);
    assert!(
        wrong.err.contains("token") && wrong.err.lines().count() == 1,
        "{}",
        wrong.err
    );
    server.says("rejected: the token");
    let none = ended(server.client(line).env_remove("PORTOLAN_BENCH_TOKEN"));
    assert_eq!(none.status, 2, "{}", none.err);
    assert!(none.err.contains("--token"), "{}", none.err);
}

#[test]
fn another_version_is_refused_by_either_side() {
    // A client of another version.
    let server = Server::here();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let call = r#"{"portolan_bench":1,"build":"99.0.0","mac":"","request":null}"#;
    stream.write_all(format!("{call}\n").as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(
        said.contains("install the same version") && said.contains("99.0.0"),
        "{said}"
    );
    // A server of another version.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = thread::spawn(move || {
        // The first connection only checks if a server answers.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let greeting = r#"{"portolan_bench":1,"build":"99.0.0","nonce":"1"}"#;
            let _ = stream.write_all(format!("{greeting}\n").as_bytes());
        }
    });
    let said = refused_at(port);
    assert!(
        said.contains("install the same version") && said.contains("99.0.0"),
        "{said}"
    );
    other.join().unwrap();
}

/// Returns the error of a client that is refused at a port of this host.
fn refused_at(port: u16) -> String {
    let port = port.to_string();
    let client = ["bench", "pingpong", "--client", "127.0.0.1"];
    refused(&[&client[..], &["--port", &port, "--token", "x"]].concat())
}

#[test]
fn missing_server_gives_a_one_line_error() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    assert!(refused_at(port).contains("start `portolan bench --server`"));
}

#[test]
fn single_host_modes_are_refused_with_a_client() {
    for line in [
        "pingpong --loopback",
        "stream --loss 1",
        "stream --interfere 100",
        "pingpong --path shm",
        "pingpong --path packet --broker",
        "incast",
        "pingpong --mpi openmpi",
    ] {
        let line = format!("bench {line} --client 127.0.0.1 --token x");
        let said = refused(&line.split(' ').collect::<Vec<_>>());
        assert!(said.contains("--client") && said.contains("omit"), "{said}");
    }
    for line in [
        "bench --server pingpong",
        "bench --server --loopback",
        "bench pingpong --bind ::1",
    ] {
        assert_eq!(
            run(&line.split(' ').collect::<Vec<_>>()).status,
            2,
            "{line}"
        );
    }
}
