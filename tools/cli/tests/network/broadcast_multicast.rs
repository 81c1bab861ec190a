// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of broadcasts by multicast (P17) in labs: bytes on the root's wire, lost frames, hosts
//! that receive no multicast, and members that die.

use crate::common::labs::Lab;
use crate::common::ranks::{joined, role};
use crate::common::{Ended, can_make_labs};
use portolan::binding::Plumbing as _;
use portolan::{Error, Node};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;

ranks_of_this_module!(run_ranks);

/// Slightly more than 1 MiB: two blocks.
const LEN: usize = (1 << 20) + 4321;

/// Lengths of broadcasts: two that fit a message with their head, one long enough for multicast but
/// below the default, and seven that use multicast by default.
const LENS: [usize; 10] = [
    0,
    992,
    1024,
    2 << 10,
    5000,
    32 << 10,
    100_000,
    1 << 20,
    LEN,
    12 << 20,
];

/// Number of broadcasts by multicast of one root in the role `lengths`: seven lengths, and two
/// broadcasts at once.
const COUNT: u64 = 9;

impl Lab {
    fn play(&self, count: u32, role: &str, args: &[&str]) -> Ended {
        let args = [&["--lab", &self.0, "--path", "udp"], args].concat();
        run_ranks(count, role, &args)
    }
}

fn fill(len: usize, seed: u32) -> Vec<u8> {
    let words = (0..).map(|at: u32| (at ^ seed).wrapping_mul(0x9e37_79b1));
    words.flat_map(u32::to_be_bytes).take(len).collect()
}

/// Returns the number of bytes that have left this host by its interface.
fn sent_bytes() -> u64 {
    let text = fs::read_to_string("/sys/class/net/eth0/statistics/tx_bytes").unwrap();
    text.trim().parse().unwrap()
}

fn broadcast(node: &mut Node, root: u32, len: usize, seed: u32) {
    let is_root = node.rank() == root;
    let mut bytes = if is_root {
        fill(len, seed)
    } else {
        vec![0xa5; len]
    };
    node.broadcast(root, &mut bytes).unwrap();
    assert!(bytes == fill(len, seed), "{len} bytes from {root}");
}

/// Broadcasts many lengths from every member, blocking and not, and two at once.
fn lengths(node: &mut Node) {
    let size = node.size();
    let mut seed = 0;
    for len in LENS {
        for root in 0..size {
            seed += 1;
            broadcast(node, root, len, seed);
        }
    }
    for root in 0..size {
        let bytes = |seed| match node.rank() == root {
            true => fill(LEN, seed),
            false => vec![0xa5; LEN],
        };
        let (first, second) = (bytes(1), bytes(2));
        let first = node.ibroadcast(root, first).unwrap();
        let second = node.ibroadcast(root, second).unwrap();
        for (seed, done) in (1..).zip(node.wait_all([first, second])) {
            let bytes = done.unwrap().buffer.unwrap();
            assert!(bytes[..] == fill(LEN, seed)[..], "two at once");
        }
    }
    node.barrier().unwrap();
    println!("\nby multicast: {}", node.multicast_count());
}

/// Counts the bytes that the root's interface sends for one broadcast, after a first one for
/// set-up.
fn count(node: &mut Node) {
    broadcast(node, 0, LEN, 1);
    node.barrier().unwrap();
    let before = sent_bytes();
    broadcast(node, 0, LEN, 2);
    if node.rank() == 0 {
        println!("\nsent {}", sent_bytes() - before);
    }
    node.barrier().unwrap();
    println!("\nby multicast: {}", node.multicast_count());
}

/// Lets rank 1 also send forged datagrams to the group.
fn forged(node: &mut Node) {
    let id = node.job_id();
    let port = 20_000 + u16::from_le_bytes([id[2], id[3]]) % 12_000;
    let group = SocketAddr::from(([239, 255, id[0], id[1]], port));
    let socket = UdpSocket::bind((node.network_addr().unwrap(), 0)).unwrap();
    for seed in 0..20 {
        if node.rank() == 1 {
            for number in 0..20 {
                socket
                    .send_to(&fill(1472, seed + 1000 * number), group)
                    .unwrap();
            }
        }
        broadcast(node, 0, LEN, seed);
    }
    node.barrier().unwrap();
    let dropped = node.drops().get("multicast_unknown").copied();
    println!("\nunknown: {}", dropped.unwrap_or(0));
}

/// Lets rank 1 die during a broadcast.
fn death(node: &mut Node) {
    node.barrier().unwrap();
    if node.rank() == 1 {
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            std::process::abort();
        });
    }
    let mut bytes = vec![7; LEN];
    let error = loop {
        if let Err(error) = node.broadcast(0, &mut bytes) {
            break error;
        }
    };
    assert!(matches!(error, Error::PeerGone { rank: 1, .. }), "{error}");
    println!("\ntold of the death");
}

/// Restarts this process with the setting in the environment, on the second host only.
fn opt_out_on_one_host() {
    const SETTING: &str = "PORTOLAN_MULTICAST";
    let own = fs::read_to_string("/proc/net/fib_trie").unwrap();
    let is_second = own.lines().any(|line| line.ends_with(" 10.77.0.2"));
    if is_second && std::env::var(SETTING).is_err() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let error = again
            .args(std::env::args().skip(1))
            .env(SETTING, "off")
            .exec();
        panic!("{error}");
    }
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    if role().as_deref() == Some("mixed") {
        opt_out_on_one_host();
    }
    let Some(mut node) = joined(&[]) else {
        return;
    };
    match role().as_deref() {
        Some("lengths" | "mixed") => lengths(&mut node),
        Some("count") => count(&mut node),
        Some("forged") => forged(&mut node),
        Some("death") => death(&mut node),
        other => panic!("no role {other:?}"),
    }
}

/// Returns the counts that ranks printed after `word`.
fn numbers(out: &str, word: &str) -> Vec<u64> {
    let found = out.lines().filter_map(|line| line.split_once(word));
    found
        .map(|(_, number)| number.trim().parse().unwrap())
        .collect()
}

#[test]
fn every_length_from_every_root_arrives() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("all", "3");
    for args in [&[][..], &["--option", "auth=aead"]] {
        // Two ranks on each host, which receive the same frames.
        let out = lab.play(6, "lengths", args).succeeded("lengths");
        assert_eq!(numbers(&out, "by multicast:"), [COUNT; 6], "{out}");
    }
    for (setting, count) in [("multicast=1K", COUNT + 1), ("multicast=64K", COUNT - 3)] {
        let out = lab.play(3, "lengths", &["--option", setting]);
        let out = out.succeeded("lengths");
        assert_eq!(numbers(&out, "by multicast:"), [count; 3], "{out}");
    }
    let out = lab.play(3, "mixed", &[]).succeeded("mixed");
    let counts = numbers(&out, "by multicast:");
    assert!(
        counts.contains(&0) && counts.iter().any(|count| *count > 0),
        "{out}"
    );
    let out = lab.play(3, "lengths", &["--option", "multicast=off"]);
    let out = out.succeeded("lengths");
    assert_eq!(numbers(&out, "by multicast:"), [0; 3], "{out}");
}

#[test]
fn the_root_sends_once_what_all_get() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("once", "4");
    let out = lab.play(4, "count", &[]).succeeded("count");
    let sent = numbers(&out, "sent ");
    println!("{sent:?} bytes on the wire for {LEN}");
    assert!(
        sent[0] > LEN as u64 && sent[0] < LEN as u64 * 5 / 4,
        "{out}"
    );
    let off = lab.play(4, "count", &["--option", "multicast=off"]);
    let sent = numbers(&off.succeeded("count"), "sent ");
    println!("{sent:?} by the tree");
    assert!(sent[0] > 2 * LEN as u64, "{sent:?}");
}

#[test]
fn lost_frames_are_retransmitted() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("loss", "3");
    for (host, loss) in [("h1", 50), ("h2", 200)] {
        let rule = format!("ip daddr 239.0.0.0/8 numgen random mod 1000 < {loss}");
        if !lab.filter(host, &rule) {
            return;
        }
    }
    let out = lab.play(3, "lengths", &[]).succeeded("lengths");
    assert_eq!(numbers(&out, "by multicast:")[0], COUNT, "{out}");
}

#[test]
fn host_without_multicast_gets_the_data_by_messages() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("deaf", "3");
    if !lab.filter("h1", "ip daddr 239.0.0.0/8") {
        return;
    }
    let out = lab.play(3, "lengths", &[]).succeeded("lengths");
    let mut counts = numbers(&out, "by multicast:");
    counts.sort_unstable();
    // The other roots try once, as h1 does not receive their multicasts; the multicasts of h1
    // itself are received.
    assert_eq!(counts, [1, 1, COUNT], "{out}");
}

#[test]
fn invalid_datagrams_have_no_effect() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("forged", "3");
    let out = lab.play(3, "forged", &[]).succeeded("forged");
    let mut unknown = numbers(&out, "unknown:");
    unknown.sort_unstable();
    // The root receives none; the other members have received the forged ones.
    assert!(unknown[1] > 0, "{out}");
}

#[test]
fn the_death_of_a_member_ends_the_broadcasts_of_all_others() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("death", "3");
    let ended = lab.play(3, "death", &[]);
    let told = ended.out.matches("told of the death").count();
    assert_eq!(told, 2, "{}{}", ended.out, ended.err);
}
