// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of remote memory between processes, on every link: intact, in order, and only where
//! permitted.

mod scenes;

use crate::common::can_make_labs;
use crate::common::ranks::joined;

ranks_of_this_module!(run_ranks, alone);

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[]) else {
        return;
    };
    for (name, scene) in scenes::ALL {
        println!("\nscene {name}");
        scene(&mut node);
        node.barrier().unwrap();
    }
    println!("\nall scenes done");
}

/// Plays all scenes as one job.
fn play(count: u32, args: &[&str]) {
    let out = run_ranks(count, "scenes", args).succeeded(&format!("{count} ranks, {args:?}"));
    let done = out.matches("all scenes done").count();
    assert_eq!(done, count as usize, "{out}");
}

#[test]
fn a_process_reaches_its_own_regions() {
    let output = alone("scenes").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && out.contains("all scenes done"),
        "{out}\n{err}"
    );
}

#[test]
fn memory_is_shared_over_shared_memory() {
    for count in [2, 3] {
        play(count, &["--path", "shm"]);
    }
}

#[test]
fn memory_is_shared_over_udp_on_one_host() {
    play(2, &["--path", "udp"]);
    play(2, &["--path", "udp", "--option", "frame_len_max=1472"]);
}

#[test]
fn memory_is_shared_between_hosts_and_within_them() {
    if can_make_labs() {
        play(4, &["--new-lab", "2", "--path", "auto"]);
    }
}

#[test]
fn memory_is_shared_in_sealed_frames() {
    let args = ["--path", "udp", "--option", "frame_len_max=1472"];
    play(2, &[&args[..], &["--option", "auth=aead"]].concat());
}
