// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of labs with a delay on their wires: by a process that replaces the wires, or by the
//! kernel's netem where available.
//!
//! A delay is a minimum, so tests assert that something took at least as long, never that it took
//! no longer.

use crate::common::labs::{Lab, address, unique_name};
use crate::common::payload::{check, payload};
use crate::common::ranks::{joined, role};
use crate::common::{
    self, PATIENCE, can_make_labs, kill, portolan, processes_with, refused, run, wait_until,
};
use portolan::{Node, Target};
use portolan_sys::net::{WIRE_FRAME_LEN_MAX, WireEnd, interfaces};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::process::Command;
use std::thread::spawn;
use std::time::{Duration, Instant};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;

/// Messages of a job: short ones, those of several frames, and long ones in turn.
const COUNT: u32 = 120;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    if role().as_deref() != Some("messages") {
        return;
    }
    node.barrier().unwrap();
    match node.rank() {
        0 => send(&mut node),
        _ => receive(&mut node),
    }
    node.barrier().unwrap();
    println!("\nwhole");
}

fn len_of(index: u32) -> usize {
    match index % 4 {
        0 => 8,
        1 => 1000,
        2 => 40_000,
        _ => 300_000,
    }
}

fn send(node: &mut Node) {
    for index in 0..COUNT {
        let bytes = payload(0, 1, index, len_of(index));
        node.send(Target::new(1, PORT), &bytes).unwrap();
    }
}

/// Receives messages of different lengths, which must arrive in order.
fn receive(node: &mut Node) {
    let mut bytes = vec![0xa5; 300_000];
    for index in 0..COUNT {
        let got = node.recv(PORT, &mut bytes).unwrap();
        check(&bytes[..got.len], 0, 1, index, len_of(index));
    }
}

/// Returns the shortest of several round trips of datagrams from host 0 to `host`.
fn shortest_round_trip(lab: &Lab, host: u32) -> Duration {
    const ROUNDS: u32 = 20;
    let answerer = lab.on_host(host, move || {
        let socket = UdpSocket::bind(address(host, 7)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let socket = answerer.join().unwrap();
    let answering = spawn(move || {
        let mut bytes = [0; 8];
        for _ in 0..ROUNDS {
            let (_, from) = socket.recv_from(&mut bytes).unwrap();
            socket.send_to(&bytes, from).unwrap();
        }
    });
    let asking = lab.on_host(0, move || {
        let socket = UdpSocket::bind(address(0, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(address(host, 7)).unwrap();
        let mut bytes = [0; 8];
        let rounds = (0..ROUNDS).map(|round| {
            let begun = Instant::now();
            socket.send(&u64::from(round).to_le_bytes()).unwrap();
            assert_eq!(socket.recv(&mut bytes).unwrap(), 8);
            assert_eq!(bytes, u64::from(round).to_le_bytes());
            begun.elapsed()
        });
        rounds.min().unwrap()
    });
    let shortest = asking.join().unwrap();
    answering.join().unwrap();
    shortest
}

/// Sends bytes from host 0 to host 1 by TCP, and receives their echo.
fn stream_there_and_back(lab: &Lab, len: usize) {
    let (mut stream, mut there) = lab.connect();
    let echoing = spawn(move || {
        let mut bytes = vec![0; 100_000];
        loop {
            match there.read(&mut bytes).unwrap() {
                0 => return,
                got => there.write_all(&bytes[..got]).unwrap(),
            }
        }
    });
    let mut reading = stream.try_clone().unwrap();
    let reader = spawn(move || {
        let mut got = vec![0xa5; len];
        reading.read_exact(&mut got).unwrap();
        check(&got, 0, 2, 0, len);
    });
    stream.write_all(&payload(0, 2, 0, len)).unwrap();
    reader.join().unwrap();
    drop(stream);
    echoing.join().unwrap();
}

/// Returns the process that delays frames; `None` where the kernel does.
fn line_of(lab: &Lab) -> Option<i32> {
    let by_line = run(&["lab", "list"]).out.lines().any(|line| {
        line.starts_with(&format!("{} ", lab.0)) && line.contains(",by=line line process ")
    });
    let lines = processes_with(&format!("lab\0line\0--name\0{}\0", lab.0));
    assert_eq!(lines.len(), usize::from(by_line), "{lines:?}");
    lines.first().copied()
}

fn namespaces_of(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names
        .filter(|namespace| namespace.starts_with(name))
        .collect()
}

#[test]
fn frames_are_delayed_and_the_lab_is_removed_completely() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up_with("pair", &["--link", "delay=2ms"]);
    let shortest = shortest_round_trip(&lab, 1);
    assert!(shortest >= Duration::from_millis(4), "{shortest:?}");
    let line = line_of(&lab);
    let ended = run(&["lab", "down", "--name", &lab.0]);
    assert_eq!((ended.status, &*ended.err), (0, ""));
    assert_eq!(namespaces_of(&lab.0), Vec::<String>::new());
    assert!(line.is_none() || processes_with(&format!("line\0--name\0{}", lab.0)).is_empty());
}

#[test]
fn a_switch_with_long_cables_takes_the_delay_from_any_host_to_any_other() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up_with("switch", &["--hosts", "3", "--link", "1g,delay=1ms"]);
    for host in [1, 2] {
        let shortest = shortest_round_trip(&lab, host);
        assert!(shortest >= Duration::from_millis(2), "{host}: {shortest:?}");
    }
    stream_there_and_back(&lab, 2_000_000);
}

/// Covers whole bursts of segments, long frames, a rate, and lost and retransmitted segments.
#[test]
fn tcp_is_intact_over_a_wire_with_delay() {
    if !can_make_labs() {
        return;
    }
    for (test, args) in [
        ("bursts", &["--link", "delay=500us"][..]),
        ("jumbo", &["--link", "delay=500us", "--mtu", "9000"]),
        ("slow", &["--link", "rate=200m,queue=64k,delay=500us"]),
        ("lossy", &["--link", "delay=500us,loss=1%"]),
    ] {
        let lab = Lab::up_with(test, args);
        stream_there_and_back(&lab, 8_000_000);
        if line_of(&lab).is_some() {
            let listed = run(&["lab", "list"]).out;
            let own = listed.lines().find(|line| line.starts_with(&lab.0));
            assert!(!own.unwrap().contains(" passed 0 "), "{listed}");
        }
    }
}

#[test]
fn job_messages_are_intact_and_ordered_on_every_path() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up_with("job", &["--link", "delay=300us", "--mtu", "9000"]);
    for (path, stream) in [("packet", "off"), ("udp", "off"), ("udp", "on")] {
        let stream = format!("stream={stream}");
        let args = ["--path", path, "--option", &stream, "--lab", &lab.0];
        let out = run_ranks(2, "messages", &args).succeeded(path);
        assert_eq!(out.matches("whole").count(), 2, "{path}: {out}");
    }
}

/// The kernel keeps a VLAN tag outside of its frame, so the line must restore it.
#[test]
fn tags_of_vlans_are_carried() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up_with("vlan", &["--link", "delay=300us"]);
    let open = |host| lab.on_host(host, raw_socket).join().unwrap();
    let (sender, receiver) = (open(0), open(1));
    // No work for the interface; an unused destination; a tag of priority 3 and number 7; an
    // EtherType for experiments (IEEE 802, clause 9.2.3).
    let mut frame = vec![0; 10];
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
    frame.extend_from_slice(&[0x81, 0, 0x60, 7, 0x88, 0xb5]);
    frame.extend_from_slice(&payload(0, 3, 0, 400));
    sender.send(&frame).unwrap();
    let mut room = vec![0xa5; WIRE_FRAME_LEN_MAX];
    wait_until("the frame", || {
        loop {
            match receiver.receive(&mut room).unwrap() {
                // The hosts also send other frames.
                Some(arrived) if room[arrived.bytes.clone()] == frame => return true,
                Some(_) => {}
                None => return false,
            }
        }
    });
}

fn raw_socket() -> WireEnd {
    let interfaces = interfaces().unwrap();
    let own = interfaces.iter().find(|one| one.name == "eth0").unwrap();
    WireEnd::open(own.index, 1 << 20).unwrap()
}

#[test]
fn lab_with_a_killed_line_process_reports_it_and_is_removed() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up_with("killed", &["--link", "delay=1ms,by=line"]);
    let line = line_of(&lab).unwrap();
    kill(line, "-9");
    let name = format!("line\0--name\0{}\0", lab.0);
    wait_until("the line has ended", || processes_with(&name).is_empty());
    let listed = run(&["lab", "list"]).out;
    let listed = listed.lines().find(|line| line.starts_with(&lab.0));
    assert!(listed.unwrap().contains("line dead"), "{listed:?}");
    for command in [
        &["lab", "exec", "--name", &lab.0, "h0", "--", "true"][..],
        &["run", "-n", "2", "--lab", &lab.0, "--", "true"],
    ] {
        let said = refused(command);
        assert!(
            said.contains(&format!("the cables of lab {} are dead", lab.0))
                && said.contains("portolan lab down --name"),
            "{said}"
        );
    }
    let ended = run(&["lab", "down", "--name", &lab.0]);
    assert_eq!((ended.status, &*ended.err), (0, ""));
    assert_eq!(namespaces_of(&lab.0), Vec::<String>::new());
}

#[test]
fn line_process_exits_when_its_hosts_are_removed() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up_with("orphan", &["--link", "delay=1ms,by=line"]);
    assert!(line_of(&lab).is_some());
    for host in ["h0", "h1"] {
        let namespace = format!("{}-{host}", lab.0);
        delete(&namespace);
    }
    let name = format!("line\0--name\0{}\0", lab.0);
    wait_until("the line has ended", || processes_with(&name).is_empty());
    delete(&format!("{}-sw", lab.0));
}

fn delete(namespace: &str) {
    let mut command = Command::new("ip");
    let deleted = command.args(["netns", "delete", namespace]).status();
    assert!(deleted.unwrap().success());
}

/// The line ends with its lab even if the command that owned the lab is killed.
#[test]
fn a_lab_for_one_job_takes_its_line_along() {
    if !can_make_labs() {
        return;
    }
    let sleep = common::unique_sleep();
    let new = ["run", "-n", "2", "--new-lab", "2", "--link", "delay=1ms"];
    let job = portolan(&[&new[..], &["--", "sleep", &sleep]].concat()).spawn();
    let job = common::KillOnDrop(job.unwrap());
    let lab = format!("tmp{}-", job.0.id());
    let ranks = || processes_with(&format!("sleep\0{sleep}")).len();
    wait_until("two ranks", || ranks() == 3);
    kill(i32::try_from(job.0.id()).unwrap(), "-9");
    wait_until("no namespace left", || namespaces_of(&lab).is_empty());
    let line = format!("line\0--name\0{lab}");
    wait_until("no line left", || processes_with(&line).is_empty());
}

#[test]
fn by_netem_is_what_the_kernel_has_or_is_refused() {
    if !can_make_labs() {
        return;
    }
    let name = unique_name("netem");
    let ended = run(&["lab", "up", "--name", &name, "--link", "delay=2ms,by=netem"]);
    let lab = Lab(name);
    if ended.status != 0 {
        assert!(ended.err.contains("NET_SCH_NETEM"), "{}", ended.err);
        assert_eq!(namespaces_of(&lab.0), Vec::<String>::new());
        return eprintln!("SKIPPED: this kernel has no netem, which was said");
    }
    assert!(line_of(&lab).is_none());
    let shortest = shortest_round_trip(&lab, 1);
    assert!(shortest >= Duration::from_millis(4), "{shortest:?}");
}
