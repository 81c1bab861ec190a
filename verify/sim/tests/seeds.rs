// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the simulator with the unmodified core, where no seed may violate a guarantee, and with
//! deliberate bugs, which must be found.

#[path = "../../../core/wire/tests/dissector/tshark.rs"]
mod tshark;

use portolan_sim::{Canary, Options, simulate};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of runs in which a canary must be found; most runs never reach its place.
const CANARY_SEEDS: u64 = 100;

/// The same for [`Canary::HalfMessage`]. Only one run of fifty delivers a message while the rest of
/// it is still in the stream, so 400 runs all miss the canary with a probability of 0.03 %.
const HALF_MESSAGE_SEEDS: u64 = 400;

/// Bytes before the contents of a captured frame.
const ETHERNET_LEN: usize = 14;

/// A field of each record that processes exchange outside of streams.
const RECORDS: [&str; 13] = [
    "message.seq",
    "fragment.offset",
    "rts.message_len",
    "grant.limit",
    "chunk.offset",
    "done.status",
    "credit.limit",
    "ack.base",
    "probe.nonce",
    "remote_write.span",
    "remote_get.len",
    "remote_reply.op",
    "hello.epoch",
];

fn run_all(seeds: std::ops::Range<u64>, options: impl Fn(u64) -> Options + Sync) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(failure) = simulate(&options(seed)) {
                        panic!("{failure}");
                    }
                }
            });
        }
    });
}

fn seeded(seed: u64) -> Options {
    Options {
        seed,
        ..Options::default()
    }
}

#[test]
fn hundreds_of_seeds_cause_no_violation() {
    run_all(1..251, seeded);
}

/// One end gives up while a message is half received at the other, which has not detected that when
/// the network heals.
#[test]
fn run_continues_while_a_session_is_half_closed() {
    run_all(13_988..13_989, seeded);
}

#[test]
fn two_hundred_nodes_cause_no_violation() {
    run_all(0..2, |seed| Options {
        nodes: Some(200),
        duration: Some(Duration::from_millis(30)),
        ..seeded(30_000 + seed)
    });
}

#[test]
fn capture_contains_every_sent_frame() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.pcap");
    let options = Options {
        pcap: Some(path.clone()),
        ..seeded(11)
    };
    let report = simulate(&options).expect("holds");
    let mut reader = pcap_file::pcap::PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut frame_count = 0;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(packet.data[12..14], [0x88, 0xb5]);
        assert!(packet.timestamp <= report.virtual_time);
        frame_count += 1;
    }
    assert_eq!(frame_count, report.frame_count);
}

/// Every byte of at least 10,000 frames has a meaning, on lossless links and networks.
#[test]
fn dissector_explains_every_byte() {
    if !tshark::can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut packet_count, mut names) = (0, BTreeSet::new());
    for seed in 1.. {
        let path = dir.path().join("run.pcap");
        let options = Options {
            pcap: Some(path.clone()),
            ..seeded(seed)
        };
        simulate(&options).expect("holds");
        for packet in tshark::packets(&path) {
            let is_whole = !packet.is_malformed() && packet.uncovered(ETHERNET_LEN).is_empty();
            assert!(is_whole, "seed {seed}\n{packet}");
            names.extend(packet.fields.into_iter().map(|field| field.name));
            packet_count += 1;
        }
        if packet_count >= 10_000 && RECORDS.iter().all(|name| names.contains(*name)) {
            return;
        }
    }
}

#[test]
fn sixty_four_nodes_cause_no_violation() {
    run_all(0..6, |seed| Options {
        nodes: Some(64),
        ..seeded(10_000 + seed)
    });
}

#[test]
fn flipped_header_bits_neither_panic_nor_grow_memory() {
    run_all(0..60, |seed| Options {
        header_corruption: true,
        ..seeded(20_000 + seed)
    });
}

/// Unordered messages that a closed process receives, and one that outlives its sender.
#[test]
fn sessions_of_unordered_messages_are_distinguished() {
    for seed in [4937, 9781] {
        simulate(&seeded(seed)).expect("holds");
    }
}

/// A stream outlives its crashed sender; requests arrive after their operation has failed.
#[test]
fn one_shot_regions_survive_crashes_and_partitions() {
    for seed in [314, 3233, 3432] {
        simulate(&seeded(seed)).expect("holds");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [7, 8, 9, 10] {
        let first = simulate(&seeded(seed)).expect("holds");
        assert_eq!(first, simulate(&seeded(seed)).expect("holds"));
        let other = simulate(&seeded(seed + 100)).expect("holds");
        assert_ne!(first.trace_hash, other.trace_hash);
    }
}

/// Part of the checker's message that is expected for a canary.
fn seen_as(canary: Canary) -> &'static str {
    match canary {
        Canary::EarlyLeave | Canary::ForgetAcked | Canary::RingDies => {
            "messages that had arrived were never delivered"
        }
        Canary::EarlyReturn => "what came differs",
        Canary::EarlyClose => "failed a one-shot operation of",
        Canary::PlainOvertakes => "was overtaken by",
        _ => "",
    }
}

#[test]
fn every_canary_is_found() {
    for (canary, name) in Canary::NAMES {
        let seeds = match canary {
            Canary::HalfMessage => HALF_MESSAGE_SEEDS,
            _ => CANARY_SEEDS,
        };
        let found = (0..seeds).find(|&seed| {
            let options = Options {
                canary: Some(canary),
                duration: Some(Duration::from_millis(20)),
                ..seeded(seed)
            };
            simulate(&options).is_err_and(|failure| failure.violation.contains(seen_as(canary)))
        });
        assert!(found.is_some(), "{name} lives");
    }
}
