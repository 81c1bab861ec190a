// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays the corpus of every fuzz target, and some mutations of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use portolan_fuzz::TARGETS;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::path::{Path, PathBuf};

/// Mutations per input.
const MUTATIONS: usize = 40;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz-targets/corpus");
    let entries = fs::read_dir(root.join(name)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Returns an input with bytes changed, removed, repeated, and copied from another input.
fn mutate(rng: &mut ChaCha8Rng, inputs: &[Vec<u8>], input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..4) {
            0 if at < bytes.len() => bytes[at] = rng.random(),
            1 => bytes.truncate(at),
            2 => {
                let other = &inputs[rng.random_range(0..inputs.len())];
                let from = rng.random_range(0..=other.len());
                bytes.splice(at..at, other[from..].iter().copied().take(100));
            }
            _ => bytes.insert(at, rng.random()),
        }
    }
    bytes
}

#[test]
fn targets_survive_mutated_corpus() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        assert!(inputs.len() >= 5, "{name}: the corpus is not there");
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for input in &inputs {
            target(input);
            for _ in 0..MUTATIONS {
                target(&mutate(&mut rng, &inputs, input));
            }
        }
    }
}

#[test]
fn targets_survive_random_input() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for (_, target) in TARGETS {
        for len in [0, 1, 7, 16, 40, 100, 500, 3000] {
            for _ in 0..20 {
                let mut bytes = vec![0; len];
                rng.fill(&mut bytes[..]);
                target(&bytes);
            }
        }
    }
}

/// The corpus is in the repository, so it must stay small.
#[test]
fn the_corpus_is_small() {
    let all: usize = TARGETS
        .iter()
        .flat_map(|(name, _)| corpus(name))
        .map(|input| input.len())
        .sum();
    assert!(all < 300_000, "{all} bytes");
}
