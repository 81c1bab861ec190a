// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan lab capture`, and of the dissector for Wireshark on what it records.

#[path = "../../../../core/wire/tests/dissector/tshark.rs"]
mod tshark;

use crate::common::labs::Lab;
use crate::common::payload::payload;
use crate::common::ranks::{joined, role};
use crate::common::{KillOnDrop, can_make_labs, kill, portolan, refused};
use portolan::{Node, Target};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

ranks_of_this_module!(run_ranks);

/// Round trips of a job, each of at least two frames.
const ROUND_TRIPS: u32 = 3000;

/// Lengths beside short messages: of several frames, and with a rendezvous.
const LENS: [usize; 6] = [0, 1400, 9000, 60_000, 200_000, 1_500_000];

/// Bytes before the datagram: Ethernet, IPv4 and UDP headers.
const DATAGRAM_AT: usize = 14 + 20 + 8;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[1]) else { return };
    let (round_trips, lens) = match role().as_deref() {
        Some("all lengths") => (ROUND_TRIPS, &LENS[..]),
        _ => (20, &[][..]),
    };
    for number in 0..round_trips {
        exchange(&mut node, number, 8);
    }
    for len in lens {
        exchange(&mut node, 9, *len);
    }
    node.barrier().unwrap();
}

/// Sends a message of rank 0 to rank 1 and back.
fn exchange(node: &mut Node, number: u32, len: usize) {
    if node.rank() > 1 {
        return;
    }
    let mut buf = vec![0; len];
    let peer = Target::new(1 - node.rank(), 1);
    if node.rank() == 0 {
        node.send(peer, &payload(0, 0, number, len)).unwrap();
    }
    let got = node.recv(1, &mut buf).unwrap();
    assert_eq!(got.len, len);
    if node.rank() == 1 {
        node.send(peer, &buf).unwrap();
    } else {
        assert_eq!(buf, payload(0, 0, number, len));
    }
}

/// Records the frames of `lab` while `work` runs, with these arguments of `lab capture`. Returns
/// the command's output.
fn recorded(lab: &Lab, path: &Path, args: &[&str], work: impl FnOnce()) -> String {
    let path = path.to_str().unwrap();
    let words = [
        &["lab", "capture", "--name", &lab.0, "--output", path],
        args,
    ]
    .concat();
    let mut command = portolan(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KillOnDrop(command.spawn().unwrap());
    let mut notice = String::new();
    let mut err = BufReader::new(child.0.stderr.take().unwrap());
    err.read_line(&mut notice).unwrap();
    assert!(notice.contains("recording"), "{notice}");
    work();
    kill(i32::try_from(child.0.id()).unwrap(), "-INT");
    let mut out = String::new();
    child
        .0
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    assert!(child.0.wait().unwrap().success());
    out
}

/// Every frame of two hosts has a meaning to the last byte: records, checksums, parts on streams,
/// seals.
#[test]
fn every_byte_of_ten_thousand_frames_is_dissected() {
    if !can_make_labs() || !tshark::can_run() {
        return;
    }
    let lab = Lab::up("dissected", "2");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lab.pcap");
    let out = recorded(&lab, &path, &[], || {
        for args in [
            &["--path", "udp", "--option", "stream=on"][..],
            &["--path", "udp", "--option", "checksum=on"],
            &["--path", "packet"],
            &["--path", "udp", "--option", "auth=aead"],
        ] {
            let all = [&["--lab", &lab.0], args].concat();
            run_ranks(2, "all lengths", &all).succeeded("all lengths");
        }
    });
    assert!(out.contains(", 0 lost"), "{out}");
    let bad = "portolan.unknown or portolan.malformed or _ws.malformed or portolan.trailer != 00";
    let bad = [bad, "((udp or eth.type == 0x88b5) and not portolan)"];
    for filter in bad {
        let lines = tshark::selected(&path, filter);
        assert!(
            lines.is_empty(),
            "{filter}: {:#?}",
            &lines[..lines.len().min(9)]
        );
    }
    let packets = tshark::packets(&path);
    let mut frame_count = 0;
    for packet in &packets {
        let at = match packet.fields.first() {
            Some(field) if field.name == "ethernet.to" => 14,
            Some(field) if field.pos == DATAGRAM_AT => DATAGRAM_AT,
            _ => continue,
        };
        frame_count += 1;
        assert!(packet.uncovered(at).is_empty(), "\n{packet}");
    }
    assert!(frame_count > 10_000, "{frame_count} frames");
    let count = |name: &str| {
        let all = packets.iter().flat_map(|packet| &packet.fields);
        all.filter(|field| field.name == name).count()
    };
    for name in [
        "message.seq",
        "rts.message_len",
        "bulk.transfer",
        "checksum.value",
        "seal.count",
    ] {
        assert!(count(name) > 0, "no {name}");
    }
    check_streams(&path);
}

/// The greetings and parts of the streams account for all bytes of TCP.
fn check_streams(path: &Path) {
    let greetings = tshark::values(path, "portolan.greeting.version", "tcp").len() as u64;
    let lens = tshark::values(path, "portolan.part.payload_len", "tcp");
    let parts: u64 = lens
        .iter()
        .map(|len| 64 + len.parse::<u64>().unwrap())
        .sum();
    assert!(greetings > 0 && parts > 0, "no streams");
    assert_eq!(24 * greetings + parts, bytes_of_streams(path));
}

/// Returns the bytes of all streams. Those that TCP has sent repeatedly count once.
fn bytes_of_streams(path: &Path) -> u64 {
    let fields = ["tcp.stream", "ip.src", "tcp.seq", "tcp.len"];
    let mut segments: BTreeMap<[String; 2], Vec<(u64, u64)>> = BTreeMap::new();
    for row in tshark::rows(path, &fields, "tcp.len > 0") {
        let [stream, source, begin, len] = <[String; 4]>::try_from(row).unwrap();
        let (begin, len): (u64, u64) = (begin.parse().unwrap(), len.parse().unwrap());
        let of_stream = segments.entry([stream, source]).or_default();
        of_stream.push((begin, begin + len));
    }
    let mut sum = 0;
    for mut of_stream in segments.into_values() {
        of_stream.sort_unstable();
        let mut covered_to = 0;
        for (begin, end) in of_stream {
            sum += end.saturating_sub(begin.max(covered_to));
            covered_to = covered_to.max(end);
        }
    }
    sum
}

#[test]
fn capture_of_one_host_has_only_its_frames() {
    if !can_make_labs() || !tshark::can_run() {
        return;
    }
    let lab = Lab::up("one", "3");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.pcap");
    let args = ["--lab", &lab.0, "--path", "udp"];
    recorded(&lab, &path, &["h0"], || {
        run_ranks(3, "short", &args).succeeded("short");
    });
    let of_h0 = "ip.addr == 10.77.0.1 or arp";
    assert!(!tshark::selected(&path, &format!("udp and ({of_h0})")).is_empty());
    assert!(tshark::selected(&path, &format!("udp and not ({of_h0})")).is_empty());
    for (field, direction) in [("ip.src", "from"), ("ip.dst", "to")] {
        let frames = tshark::selected(&path, &format!("udp and {field} == 10.77.0.1"));
        assert!(!frames.is_empty(), "{direction} h0");
    }
}

#[test]
fn capture_ends_at_its_count() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("count", "2");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("count.pcap");
    let path = path.to_str().unwrap();
    let words = [
        "lab", "capture", "--name", &lab.0, "--output", path, "--count", "7",
    ];
    let mut child = portolan(&words).stdout(Stdio::piped()).spawn().unwrap();
    let args = ["--lab", &lab.0, "--path", "udp"];
    // It may begin late on a busy machine.
    while child.try_wait().unwrap().is_none() {
        run_ranks(2, "short", &args).succeeded("short");
    }
    let mut out = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    assert!(out.starts_with("7 frames recorded"), "{out}");
}

#[test]
fn capture_needs_a_lab_and_a_file() {
    if !can_make_labs() {
        return;
    }
    let err = refused(&["lab", "capture", "--name", "nolab", "--output", "/tmp/x"]);
    assert!(err.contains("there is no lab nolab"), "{err}");
    let lab = Lab::up("file", "1");
    let err = refused(&[
        "lab",
        "capture",
        "--name",
        &lab.0,
        "--output",
        "/nonexistent/x",
    ]);
    assert!(err.contains("/nonexistent/x"), "{err}");
}
