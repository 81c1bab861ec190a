// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of messages of all kinds and lengths between processes, on every link: intact and in
//! order.

mod scenes;
mod tagged;

use crate::common::can_make_labs;
use crate::common::ranks::joined;
use portolan_sys::bpf;
use portolan_sys::net::XdpSocket;

ranks_of_this_module!(run_ranks, alone);

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[]) else {
        return;
    };
    for (name, scene) in scenes::ALL.iter().chain(tagged::ALL) {
        println!("\nscene {name}");
        scene(&mut node);
        node.barrier().unwrap();
    }
    for rank in 0..node.size() {
        for path in node.paths(rank) {
            println!("\npath to {rank}: {path}");
        }
    }
    println!("\nall scenes done");
}

/// Plays all scenes as one job; returns the output of its ranks.
fn play(count: u32, args: &[&str]) -> String {
    let out = run_ranks(count, "scenes", args).succeeded(&format!("{count} ranks, {args:?}"));
    let done = out.matches("all scenes done").count();
    assert_eq!(done, count as usize, "{out}");
    out
}

#[test]
fn a_job_of_one_needs_no_launcher() {
    let output = alone("scenes").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && out.contains("all scenes done"),
        "{out}\n{err}"
    );
}

#[test]
fn messages_arrive_over_shared_memory() {
    for count in [2, 3, 4] {
        play(count, &["--path", "shm"]);
    }
}

#[test]
fn messages_arrive_over_udp_on_one_host() {
    for count in [2, 3, 4] {
        play(count, &["--path", "udp"]);
    }
}

#[test]
fn messages_arrive_in_frames_of_ethernet_length_without_an_ethernet() {
    play(2, &["--path", "udp", "--option", "frame_len_max=1472"]);
}

#[test]
fn messages_arrive_between_hosts_and_within_them() {
    if !can_make_labs() {
        return;
    }
    for path in ["auto", "udp", "packet"] {
        play(4, &["--new-lab", "2", "--path", path]);
    }
}

/// Two ranks on a host share an interface, its program and the memory of their frames.
#[test]
fn messages_arrive_by_af_xdp() {
    let tried = XdpSocket::open().and_then(|_| bpf::create_socket_map(1));
    if let Err(why) = tried {
        println!("SKIPPED messages_arrive_by_af_xdp: no AF_XDP here: {why}");
        return;
    }
    if !can_make_labs() {
        return;
    }
    for mode in ["generic", "native"] {
        let option = format!("xdp={mode}");
        let lab = ["--new-lab", "2", "--path", "xdp"];
        let out = play(4, &[&lab[..], &["--option", &option]].concat());
        let told = format!("packet: up, by AF_XDP in {mode} mode");
        // Each rank reaches two on the other host.
        assert_eq!(out.matches(&told).count(), 8, "{out}");
    }
}

#[test]
fn messages_arrive_between_three_hosts() {
    if can_make_labs() {
        play(3, &["--new-lab", "3", "--path", "auto"]);
    }
}

#[test]
fn messages_arrive_sealed() {
    let args = ["--path", "udp", "--option", "frame_len_max=1472"];
    play(2, &[&args[..], &["--option", "auth=aead"]].concat());
}
