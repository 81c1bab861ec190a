// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the simulation of the whole engine: with the unmodified engine, where no seed may violate a
//! guarantee, and with deliberate faults, which must be found.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use portolan_sim::{EngineCanary, EngineOptions, in_fragments, simulate_engine};

/// Number of seeds in the short form that every test run includes.
const SEEDS: u64 = 120;

/// Number of seeds in which a fault must be found.
const CANARY_SEEDS: u64 = 1000;

fn seeded(seed: u64) -> EngineOptions {
    EngineOptions {
        seed,
        ..EngineOptions::default()
    }
}

#[test]
fn seeds_cause_no_violation() {
    for seed in 0..SEEDS {
        if let Err(failure) = simulate_engine(&seeded(seed)) {
            panic!("{failure}");
        }
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    // Among them are runs of endpoints and of jobs, with loss, deaths and encryption.
    for seed in 0..12 {
        let reports = [0, 1].map(|_| simulate_engine(&seeded(seed)).unwrap());
        assert_eq!(reports[0], reports[1], "seed {seed}");
    }
}

#[test]
fn every_canary_is_found() {
    for (canary, name) in EngineCanary::NAMES {
        let found = (0..CANARY_SEEDS).find(|seed| {
            let options = EngineOptions {
                canary: Some(canary),
                ..seeded(*seed)
            };
            simulate_engine(&options).is_err()
        });
        println!("{name}: found by seed {found:?}");
        assert!(found.is_some(), "{name}");
    }
}

/// Figures of one length: short frames speed up a lone message, and the stream keeps whole ones.
#[test]
fn short_frames_speed_up_lone_messages_and_not_streams() {
    let row = in_fragments().find(|row| row.len == 3000).unwrap();
    assert!(row.lone_us[1] < 0.95 * row.lone_us[0], "{row:?}");
    assert!(row.stream_mb_s[2] < 0.95 * row.stream_mb_s[0], "{row:?}");
    // Only the first messages of the stream have nothing in flight before them.
    let [whole, by_model, short] = row.stream_frames;
    assert!(by_model < whole + whole / 50, "{row:?}");
    assert!(short > 2 * whole, "{row:?}");
}
