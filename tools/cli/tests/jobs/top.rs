// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan top`: its figures are those that the processes have themselves, and nothing is
//! left of killed ones.

use crate::common::ranks::{joined, role, unique_word};
use crate::common::{KillOnDrop, PATIENCE, kill, portolan, processes_with, run, wait_until};
use portolan::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

ranks_of_this_module!(ranks_command);

/// Messages from each rank to the other one.
const COUNT: u32 = 1000;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[1, 2]) else {
        return;
    };
    if role().as_deref() == Some("compute") {
        println!("\nsent {} 0", std::process::id());
        std::thread::sleep(PATIENCE);
        return;
    }
    let peer = Target::new(1 - node.rank(), 1);
    for _ in 0..COUNT {
        node.send(peer, b"12345678").unwrap();
        node.recv(1, &mut [0; 8]).unwrap();
    }
    // A long message without a receive, so that it waits for a grant.
    if node.rank() == 0 {
        let unread = vec![0; 1 << 20];
        let _waiting = node.isend(Target::new(1, 3), unread).unwrap();
    }
    println!(
        "\nsent {} {}",
        std::process::id(),
        node.counters().messages_sent
    );
    let end = node.recv(2, &mut [0; 8]);
    assert!(role().is_none(), "{end:?}");
}

/// A job of two ranks that wait for ever, and the number of messages that each has sent, by process.
struct Waiting {
    job: KillOnDrop,
    sent: BTreeMap<u64, u64>,
    word: String,
}

impl Waiting {
    fn start(role: &str) -> Waiting {
        let word = unique_word();
        let mut job = KillOnDrop(ranks_command(2, role, &[], &word).spawn().unwrap());
        let out = BufReader::new(job.0.stdout.take().unwrap());
        let mut sent = BTreeMap::new();
        for line in out.lines() {
            let line = line.unwrap();
            let Some((_, numbers)) = line.split_once("sent ") else {
                continue;
            };
            let (pid, count) = numbers.split_once(' ').unwrap();
            sent.insert(pid.parse().unwrap(), count.parse().unwrap());
            if sent.len() == 2 {
                break;
            }
        }
        Waiting { job, sent, word }
    }
}

/// Returns the processes of `waiting` that `portolan top` shows.
fn shown(waiting: &Waiting) -> Vec<Value> {
    let ended = run(&["top", "--json", "--interval", "0.05"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let Value::Array(mut processes) = serde_json::from_str(&ended.out).unwrap() else {
        panic!("no list: {}", ended.out);
    };
    processes.retain(|process| waiting.sent.contains_key(&process["pid"].as_u64().unwrap()));
    processes
}

#[test]
fn figures_are_those_of_the_processes() {
    let waiting = Waiting::start("wait");
    let mut processes = Vec::new();
    // On a busy machine the answers may be late.
    wait_until("processes answer twice", || {
        processes = shown(&waiting);
        let sends_nothing = |process: &Value| process["rates"]["messages_sent"] == 0.0;
        processes.len() == 2 && processes.iter().all(sends_nothing)
    });
    for (rank, process) in processes.iter().enumerate() {
        assert_eq!(process["rank"], rank, "{process}");
        assert_eq!(process["answered"], true, "{process}");
        let status = &process["status"];
        assert_eq!(status["size"], 2);
        let sent = waiting.sent[&process["pid"].as_u64().unwrap()];
        assert_eq!(status["counters"]["messages_sent"], sent, "{process}");
        let received = status["counters"]["messages_received"].as_u64().unwrap();
        assert!(received >= u64::from(COUNT), "{process}");
        let waits = status["waits"].as_str().unwrap();
        assert!(waits.contains("receive at port 2 from any rank"), "{waits}");
        let peer = &status["peers"][0];
        assert_eq!(peer["peer"], 1 - rank);
        assert_eq!(peer["waiting_grants"], 1 - rank, "{process}");
        let path = &peer["paths"][0];
        assert_eq!(
            (&path["link"], &path["small"]),
            (&"shm".into(), &true.into())
        );
        assert_eq!(path["why"], "both processes are on one host");
    }
    let table = run(&["top", "--once", "--interval", "0.05"]).out;
    for pid in waiting.sent.keys() {
        assert!(table.contains(&format!(" {pid} ")), "{table}");
    }
}

#[test]
fn killed_processes_leave_nothing() {
    let mut waiting = Waiting::start("wait");
    assert_eq!(shown(&waiting).len(), 2);
    for pid in waiting.sent.keys() {
        kill(i32::try_from(*pid).unwrap(), "-KILL");
    }
    waiting.job.0.wait().unwrap();
    wait_until("processes end", || processes_with(&waiting.word).is_empty());
    assert!(shown(&waiting).is_empty());
}

#[test]
fn computing_process_is_shown_as_it_began() {
    let computing = Waiting::start("compute");
    let processes = shown(&computing);
    assert_eq!(processes.len(), 2, "{processes:?}");
    for process in processes {
        assert_eq!(process["answered"], false, "{process}");
        assert_eq!(process["status"]["size"], 2, "{process}");
        assert_eq!(process["status"]["counters"]["messages_sent"], 0);
    }
}

/// Starts a server of figures at a Unix socket, and returns it when it listens.
fn server(socket: &str) -> Child {
    let mut command = portolan(&["top", "--prometheus", socket]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    err.read_line(&mut line).unwrap();
    assert!(line.contains("serving figures"), "{line}");
    child
}

/// Returns the response of a server of figures.
fn get(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn prometheus_reads_the_figures() {
    let waiting = Waiting::start("wait");
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("figures");
    let mut server = KillOnDrop(server(socket.to_str().unwrap()));
    let mut text = String::new();
    for (pid, sent) in &waiting.sent {
        let is_there = |line: &str| {
            line.starts_with("portolan_messages_sent_total{")
                && line.contains(&format!("pid=\"{pid}\""))
                && line.ends_with(&format!("}} {sent}"))
        };
        // On a busy machine the answer of a process may be late.
        wait_until("a process answers", || {
            text = get(&socket);
            text.lines().any(is_there)
        });
    }
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.contains("version=0.0.4"), "{text}");
    kill(i32::try_from(server.0.id()).unwrap(), "-INT");
    assert!(server.0.wait().unwrap().success());
    assert!(!socket.exists());
}
