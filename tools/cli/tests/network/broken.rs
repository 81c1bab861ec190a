// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with frames that a wire corrupts: none is delivered, nothing hangs, no session ends.

mod wire;

use crate::common::payload::{check, mix, payload};
use crate::common::ranks::{joined, role};
use crate::common::{can_make_labs, portolan, run};
use portolan::{Node, Target};
use std::collections::VecDeque;
use wire::{Breakage, Wire};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;

/// Number of receives posted ahead.
const AHEAD: u32 = 64;

/// Arguments of a job, and the counter that must report corrupted frames.
struct Scene {
    args: &'static [&'static str],
    breakage: Breakage,
    found_by: &'static str,
}

const fn scene(args: &'static [&'static str], breakage: Breakage, found_by: &'static str) -> Scene {
    Scene {
        args,
        breakage,
        found_by,
    }
}

use Breakage::{AsItWas, Repaired};

/// Every path of a network. On raw Ethernet only Portolan can detect a corrupted frame.
const SCENES: &[Scene] = &[
    // The system's check of UDP's checksum, alone and before the frame's own.
    scene(&["--path", "udp", "-o", "checksum=on"], AsItWas, "repaired"),
    scene(&["--path", "udp"], AsItWas, "repaired"),
    scene(
        &["--path", "udp", "-o", "checksum=on"],
        Repaired,
        "bad checksum",
    ),
    scene(
        &[
            "--path",
            "udp",
            "-o",
            "checksum=on",
            "-o",
            "placement=speculative",
        ],
        Repaired,
        "bad checksum",
    ),
    scene(&["--path", "packet"], AsItWas, "bad checksum"),
    // Long messages pass by UDP, which has no checksum of Portolan's by default.
    scene(
        &["--path", "packet", "-o", "checksum=on"],
        Repaired,
        "bad checksum",
    ),
    scene(
        &["--path", "auto", "-o", "checksum=on"],
        Repaired,
        "bad checksum",
    ),
    scene(&["--path", "udp", "-o", "auth=aead"], AsItWas, "repaired"),
    scene(&["--path", "udp", "-o", "auth=aead"], Repaired, "bad seal"),
    scene(
        &["--path", "packet", "-o", "auth=aead"],
        Repaired,
        "bad seal",
    ),
];

/// Runs one rank of a job; not a test of its own. The role is the number of messages of each rank.
#[test]
fn as_rank() {
    let Some(role) = role() else { return };
    let mut node = joined(&[PORT]).unwrap();
    exchange(&mut node, role.parse().unwrap());
    node.barrier().unwrap();
    println!("\nrepaired={}", node.counters().retransmits);
    for (reason, count) in node.drops() {
        println!("\n{}={count}", reason.replace(' ', "_"));
    }
}

/// Returns a message length: mostly short, some of several frames, few long.
fn len(index: u32) -> usize {
    let word = mix(u64::from(index) + 99);
    let most = match word % 64 {
        0..50 => 64,
        50..60 => 1_400,
        60..63 => 8_000,
        _ => 120_000,
    };
    usize::try_from((word >> 8) % most).unwrap()
}

/// Exchanges messages in both directions at once, and compares them byte by byte.
fn exchange(node: &mut Node, count: u32) {
    let (own, peer) = (node.rank(), 1 - node.rank());
    let (mut posted, mut sends) = (VecDeque::new(), VecDeque::new());
    for index in 0..count + AHEAD {
        if index < count {
            let buffer = vec![0xa5; len(index)];
            posted.push_back(node.post_recv_from(peer, PORT, buffer).unwrap());
            let bytes = payload(own, 1, index, len(index));
            sends.push_back(node.isend(Target::new(peer, PORT), bytes).unwrap());
        }
        if let Some(arrived) = index.checked_sub(AHEAD) {
            let done = node.wait(posted.pop_front().unwrap()).unwrap();
            check(&done.buffer.unwrap(), peer, 1, arrived, len(arrived));
            let _ = node.wait(sends.pop_front().unwrap()).unwrap();
        }
    }
}

struct Lab(String);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}

/// Returns the sum of the figures that the ranks printed after `name`.
fn figure(out: &str, name: &str) -> u64 {
    let name = format!("{}=", name.replace(' ', "_"));
    let words = out.split_whitespace();
    words
        .filter_map(|word| word.strip_prefix(&name)?.parse::<u64>().ok())
        .sum()
}

/// Plays each scene with `count` messages each way, `rounds` times.
fn play(name: &str, count: u32, rounds: u64) {
    if !can_make_labs() {
        return;
    }
    let lab = Lab(format!("{name}{}", std::process::id()));
    let up = run(&["lab", "up", "--name", &lab.0, "--hosts", "3"]);
    assert_eq!(up.status, 0, "{}", up.err);
    let only = std::env::var("BROKEN_SCENE").ok();
    for (number, scene) in (0_u64..).zip(SCENES) {
        if only
            .as_ref()
            .is_some_and(|only| *only != number.to_string())
        {
            continue;
        }
        let (mut broken, mut found) = (0, 0);
        let began = std::time::Instant::now();
        for round in 0..rounds {
            let wire = Wire::new(&lab.0, scene.breakage, number << 40 | round << 32);
            let args = [scene.args, &["--lab", &lab.0]].concat();
            let what = format!("{args:?}, {:?}, round {round}", scene.breakage);
            let out = run_ranks(2, &count.to_string(), &args).succeeded(&what);
            broken += wire.broken();
            found += figure(&out, scene.found_by);
        }
        let what = format!("{:?}, {:?}", scene.args, scene.breakage);
        println!(
            "{what}: {} messages, {broken} broken frames, {} {found}, {:.0} s",
            u64::from(count) * 2 * rounds,
            scene.found_by,
            began.elapsed().as_secs_f64()
        );
        assert!(broken > 0, "{what}: the wire broke nothing");
        assert!(found > 0, "{what}: nobody found it");
    }
}

#[test]
fn no_broken_frame_arrives() {
    play("bk", 5_000, 1);
}

/// Sends a million messages per scene, in jobs with a time limit each. `BROKEN_SCENE`, a number
/// from 0, selects a single scene.
#[test]
#[ignore = "takes many minutes"]
fn no_broken_frame_of_millions_arrives() {
    let rounds = std::env::var("BROKEN_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    play("bl", 50_000, rounds);
}
