// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the examples in C do what they document, and print the same as those in Rust.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{SANITIZERS, STRICT, Workshop, here, library_dir, run_job};
use std::fmt::Write as _;
use std::path::PathBuf;

fn example(shop: &Workshop, name: &str) -> PathBuf {
    let source = here().join("../../examples/c").join(name);
    let flags = [
        "-std=c11",
        "-O1",
        "-g",
        "-D_GNU_SOURCE",
        "-ffp-contract=off",
    ];
    shop.build("cc", &source, &[&flags[..], SANITIZERS, STRICT].concat())
}

/// Returns the Rust example of that name, if cargo has built it in this run.
fn in_rust(name: &str) -> Option<PathBuf> {
    let path = library_dir().parent().unwrap().join("examples").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: the Rust example {name} was not built; `cargo test --workspace` does");
        return None;
    }
    Some(path)
}

#[test]
fn ring_passes_the_token() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "ring.c");
    let out = run_job(3, &[], &program, &["5"]);
    assert_eq!(out, "5 laps through 3 processes: 15\n");
    if let Some(rust) = in_rust("ring") {
        assert_eq!(run_job(3, &[], &rust, &["5"]), out);
    }
}

#[test]
fn ping_pong_prints_half_a_round_trip() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "pingpong.c");
    for len in ["0", "64"] {
        let out = run_job(2, &[], &program, &[len, "1000"]);
        let printed = out.trim().strip_prefix(&format!("{len} bytes: ")).unwrap();
        let us: f64 = printed.strip_suffix(" µs").unwrap().parse().unwrap();
        assert!(us > 0.0, "{out}");
    }
}

/// Returns a text with enough words to fill batches, and with words across the borders of all
/// parts.
fn text() -> String {
    let mut text = String::new();
    for i in 0..20_000_u32 {
        let word = ["ahoy", "Portolan", "the", "THE", "sea", "of", "x"][i as usize % 7];
        write!(text, "{word}{} ", if i % 11 == 0 { ", the" } else { "" }).unwrap();
        if i % 500 == 0 {
            let tail: String = (0..i / 500)
                .map(|n| char::from(b'a' + (n % 26) as u8))
                .collect();
            writeln!(text, "{tail}.").unwrap();
        }
    }
    text
}

/// Returns the output that the examples should print for a text.
fn counted(text: &str) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for word in text.split(|c: char| !c.is_ascii_alphabetic()) {
        if !word.is_empty() {
            *counts.entry(word.to_ascii_lowercase()).or_insert(0_u64) += 1;
        }
    }
    let sum: u64 = counts.values().sum();
    let mut out = format!("{sum} words, {} different\n", counts.len());
    let mut words: Vec<_> = counts.into_iter().collect();
    words.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    for (word, count) in words.iter().take(5) {
        writeln!(out, "{count} {word}").unwrap();
    }
    out
}

#[test]
fn words_are_counted_by_active_messages() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "wordcount.c");
    let file = shop.path().join("text");
    let text = text();
    std::fs::write(&file, &text).unwrap();
    let file = file.to_str().unwrap();
    let expected = counted(&text);
    for count in [1, 3] {
        assert_eq!(run_job(count, &[], &program, &[file]), expected);
    }
    if let Some(rust) = in_rust("wordcount") {
        assert_eq!(run_job(3, &[], &rust, &[file]), expected);
    }
}

#[test]
fn heat_equals_the_sequential_solution() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "heat.c");
    let image = shop.path().join("field.pgm");
    let mut bytes = b"P5\n# 40 by 31\n40 31\n255\n".to_vec();
    bytes.extend((0..40 * 31_u32).map(|i| (i * i % 251) as u8));
    std::fs::write(&image, bytes).unwrap();
    for count in [1, 3] {
        let out = run_job(count, &[], &program, &[image.to_str().unwrap(), "50"]);
        let expected = format!("50 steps by {count} processes equal the sequential solution\n");
        assert_eq!(out, expected);
    }
}

#[test]
fn parameter_server_outlives_its_worker() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "parameters.c");
    let continues = ["--on-failure=continue"];
    let out = run_job(4, &continues, &program, &["100"]);
    assert_eq!(out, "100 steps, parameter 328350, 0 lost, 4 survivors\n");
    for path in ["shm", "udp"] {
        let options = [&continues[..], &["--path", path]].concat();
        // Worker 2 dies at its first step: on a busy machine, the other workers may leave it no
        // second one.
        let out = run_job(4, &options, &program, &["100", "2", "0"]);
        assert_eq!(
            out, "100 steps, parameter 328350, 1 lost, 3 survivors\n",
            "{path}"
        );
    }
}
