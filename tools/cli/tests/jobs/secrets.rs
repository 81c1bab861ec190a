// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs with sealed frames, and of the path by which the job's secret reaches its
//! processes.

use crate::common::payload::{check, mixed_len, payload};
use crate::common::ranks::{role, unique_word};
use crate::common::{Ended, LOCAL_SSH, can_make_labs, give_ssh};
use portolan::binding::launch::Launch;
use portolan::{Lane, Node, PortConfig, Target};
use std::fs;
use std::path::{Path, PathBuf};

ranks_of_this_module!(run_ranks, ranks_command);

/// Number of messages each way on each lane.
const COUNT: u32 = 400;

/// Bytes of a message that takes many calls.
const LONG: usize = 1_000_000;

/// Text that must not be readable on the wire.
const NEEDLE: &[u8] = b"a needle of twenty-nine bytes";

/// Variable in the environment of the processes that the search must find, as a control.
const PLANTED: &str = "PORTOLAN_TEST_PLANTED";

/// Largest file in bytes that is searched for the secret.
const SHORT_FILE_LEN: u64 = 64 << 10;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    match role().as_deref() {
        None => {}
        Some("search") => search(),
        Some("needle") => needle(&mut Node::join().unwrap()),
        Some(_) => exchange(&mut Node::join().unwrap()),
    }
}

/// Exchanges messages of mixed lengths, some large, in both directions on both lanes.
fn exchange(node: &mut Node) {
    let (own, peer) = (node.rank(), 1 - node.rank());
    let lanes = [(Lane::Low, 1), (Lane::High, 2)];
    for (_, port) in lanes {
        node.open(port, PortConfig::default()).unwrap();
    }
    let len = |index: u32| match index % 100 {
        99 => LONG,
        _ => mixed_len(index),
    };
    for index in 0..COUNT {
        let mut requests = Vec::new();
        for (lane, port) in lanes {
            let receive = node.post_recv_from(peer, port, vec![0xa5; len(index)]);
            requests.push((port, receive.unwrap()));
            let bytes = payload(own, u32::from(port), index, len(index));
            let send = node.isend(Target::new(peer, port).lane(lane), bytes);
            node.wait(send.unwrap()).unwrap();
        }
        for (port, request) in requests {
            let done = node.wait(request).unwrap();
            check(
                &done.buffer.unwrap(),
                peer,
                u32::from(port),
                index,
                len(index),
            );
        }
    }
    node.barrier().unwrap();
    let drops = node.drops();
    let replayed = drops.get("replayed").copied().unwrap_or(0);
    println!("\nexchanged replayed={replayed} drops {drops:?}");
}

fn exchanged(args: &[&str]) -> String {
    let out = run_ranks(2, "exchange", args).succeeded(&format!("{args:?}"));
    assert_eq!(out.matches("exchanged ").count(), 2, "{out}");
    out
}

#[test]
fn sealed_messages_arrive_with_each_cipher() {
    for auth in ["auth=aead", "auth=aead-aes256", "auth=aead-chacha20"] {
        let out = exchanged(&["--path", "udp", "--option", auth]);
        assert!(
            !out.contains("bad seal") && !out.contains("not sealed"),
            "{out}"
        );
    }
}

#[test]
fn sealed_messages_arrive_in_frames_of_ethernet_length() {
    let args = ["--path", "udp", "--option", "frame_len_max=1472"];
    exchanged(&[&args[..], &["--option", "auth=aead"]].concat());
}

#[test]
fn sealed_messages_arrive_between_hosts_by_two_paths() {
    if can_make_labs() {
        for path in ["auto", "packet"] {
            exchanged(&["--new-lab", "2", "--path", path, "--option", "auth=aead"]);
        }
    }
}

#[test]
fn repeated_sealed_frames_are_dropped_as_replayed() {
    let fault = "fault=drop=0.02,dup=0.05,reorder=0.05,corrupt=0.01,seed=3";
    let args = ["--path", "udp", "--option", "frame_len_max=1472"];
    let out = exchanged(&[&args[..], &["--option", "auth=aead", "--option", fault]].concat());
    assert!(!out.contains("replayed=0 "), "nothing was repeated:\n{out}");
    assert!(out.contains("bad seal"), "nothing was altered:\n{out}");
}

/// Sends the needle in a short and in a long message.
fn needle(node: &mut Node) {
    node.open(1, PortConfig::default()).unwrap();
    if node.rank() == 0 {
        node.send(Target::new(1, 1), NEEDLE).unwrap();
        node.send(Target::new(1, 1), &NEEDLE.repeat(10_000))
            .unwrap();
    } else {
        let mut bytes = vec![0; NEEDLE.len() * 10_000];
        for _ in 0..2 {
            let got = node.recv(1, &mut bytes).unwrap();
            assert!(bytes[..got.len].starts_with(NEEDLE));
        }
    }
    node.barrier().unwrap();
}

#[test]
fn sealed_data_is_not_readable_on_the_wire() {
    for (auth, is_readable) in [("auth=token", true), ("auth=aead", false)] {
        let directory = tempfile::tempdir().unwrap();
        let pcap = format!("pcap={}", directory.path().display());
        let args = ["--path", "udp", "--option", auth, "--option", &pcap];
        run_ranks(2, "needle", &args).succeeded(auth);
        let recorded = fs::read_dir(directory.path()).unwrap().flatten();
        let recorded: Vec<_> = recorded
            .map(|file| fs::read(file.path()).unwrap())
            .collect();
        let is_long = |bytes: &Vec<u8>| bytes.len() > NEEDLE.len() * 10_000;
        assert!(recorded.iter().any(is_long), "{auth}: nothing was recorded");
        let found = recorded.iter().any(|bytes| holds(bytes, NEEDLE));
        assert_eq!(found, is_readable, "{auth}");
    }
}

#[test]
fn a_setting_that_cannot_be_is_refused() {
    let out = run_ranks(2, "exchange", &["--path", "udp", "--option", "auth=rot13"]);
    assert_ne!(out.status, 0);
    let said = [out.out, out.err].concat();
    assert!(
        said.contains("aead-chacha20") && said.contains("rot13"),
        "{said}"
    );
}

/// Searches for the secret where other processes and users could find it.
fn search() {
    let mut launch = Launch::from_env().unwrap().unwrap();
    let secret = launch.job().secret;
    assert_ne!(secret, [0; 32]);
    let planted = hex::decode(std::env::var(PLANTED).unwrap()).unwrap();
    // All processes of the job are alive while one of them searches.
    launch.exchange(&serde_json::json!({})).unwrap();
    let mut places = process_places();
    places.extend(open_files());
    places.extend(
        [std::env::temp_dir(), "/dev/shm".into()]
            .iter()
            .flat_map(|dir| files_in(dir)),
    );
    println!("\nsearched {} places", places.len());
    let found = |needle: &[u8]| -> Vec<&str> {
        let texts = [hex::encode(needle), hex::encode_upper(needle)];
        let has = |bytes: &[u8]| {
            holds(bytes, needle) || texts.iter().any(|text| holds(bytes, text.as_bytes()))
        };
        let places = places.iter().filter(|(_, bytes)| has(bytes));
        places.map(|(place, _)| &place[..]).collect()
    };
    let control = format!("/proc/{}/environ", std::process::id());
    let planted = found(&planted);
    assert!(
        planted.contains(&&control[..]),
        "the search is blind: {planted:?}"
    );
    assert_eq!(found(&secret), [""; 0]);
    launch.bye();
}

/// Returns arguments and environments of all readable processes.
fn process_places() -> Vec<(String, Vec<u8>)> {
    let mut places = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        for name in ["cmdline", "environ"] {
            let path = entry.path().join(name);
            if let Ok(bytes) = fs::read(&path) {
                places.push((path.display().to_string(), bytes));
            }
        }
    }
    places
}

/// Returns the files that processes of this user have open.
fn open_files() -> Vec<(String, Vec<u8>)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .flat_map(|entry| files_in(&entry.path().join("fd")))
        .collect()
}

/// Returns the regular files of a directory that are short enough to contain notes.
fn files_in(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let is_short = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() < SHORT_FILE_LEN)
    };
    let short = paths.filter(is_short);
    short
        .filter_map(|path| Some((path.display().to_string(), fs::read(&path).ok()?)))
        .collect()
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Returns the value that is planted for the search.
fn planting() -> String {
    format!("{PLANTED}={}", hex::encode([0xd1; 32]))
}

fn assert_searched(ended: Ended, what: &str) {
    let out = ended.succeeded(what);
    assert_eq!(out.matches("searched ").count(), 2, "{out}");
}

#[test]
fn the_secret_is_in_no_argument_environment_or_file() {
    assert_searched(run_ranks(2, "search", &["--env", &planting()]), "search");
}

#[test]
fn the_secret_is_in_no_argument_environment_or_file_when_launched_through_ssh() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "nodeA\nnodeB\n").unwrap();
    let (hosts, program) = (hosts.to_str().unwrap(), env!("CARGO_BIN_EXE_portolan"));
    let planting = planting();
    let args = [
        "--hosts",
        hosts,
        "--remote-program",
        program,
        "--env",
        &planting,
    ];
    let mut command = ranks_command(2, "search", &args, &unique_word());
    give_ssh(&mut command, directory.path(), LOCAL_SSH);
    assert_searched(command.output().unwrap().into(), "search through ssh");
}
