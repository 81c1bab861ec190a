// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of all kinds and lengths between processes, on every link: intact and in order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "messages/scenes.rs"]
mod scenes;
#[path = "messages/tagged.rs"]
mod tagged;

use common::can_make_labs;
use common::ranks::{alone, joined, run_ranks};

/// Not a test of its own: what each rank does.
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
    println!("\nall scenes done");
}

/// All scenes as one job.
fn play(count: u32, args: &[&str]) {
    let out = run_ranks(count, "scenes", args).succeeded(&format!("{count} ranks, {args:?}"));
    let done = out.matches("all scenes done").count();
    assert_eq!(done, count as usize, "{out}");
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
