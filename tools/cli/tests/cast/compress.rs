// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast --compress`: copies are equal, and fewer bytes are sent where that pays.

use crate::hosts::{Hosts, compare, fill, make_tree};
use std::fs;
use std::path::Path;

/// Long enough to measure, to try and to change: `INTERVAL_LEN` and `SETTLE_LEN` of `compression.rs`.
const LEN: usize = 96 << 20;

/// A rate below that of most disks and processors.
const SLOW: &str = "40M";

fn wire_bytes(out: &str, name: &str) -> u64 {
    let lines = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut done = lines.filter(|line| line["event"] == "done" && line["host"] == name);
    done.next().unwrap()["wire_bytes"].as_u64().unwrap()
}

/// Returns text in which half of the bytes are redundant.
fn text(len: usize) -> Vec<u8> {
    fill(1, len.div_ceil(2))
        .iter()
        .flat_map(|byte| [*byte, b' '])
        .take(len)
        .collect()
}

fn cast(hosts: &Hosts, source: &Path, args: &[&str]) -> u64 {
    let args = [args, &["--compress", "zstd", "--json"]].concat();
    let ended = hosts.cast(&[source, &hosts.path("%h.copy")], &args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    wire_bytes(&ended.out, "n2")
}

#[test]
fn slow_links_carry_fewer_bytes() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    let bytes = text(LEN);
    fs::write(&source, &bytes).unwrap();
    // The benefit is measured. On a loaded machine, storing may temporarily be the bottleneck.
    let mut tries = (0..10).map(|_| cast(&hosts, &source, &["--limit", SLOW]));
    let is_shorter = |wire: u64| wire < LEN as u64 - LEN as u64 / 8;
    assert!(tries.any(is_shorter), "all {LEN} bytes travel");
    for name in ["n1.copy", "n2.copy"] {
        assert!(fs::read(hosts.path(name)).unwrap() == bytes, "{name}");
    }
}

#[test]
fn incompressible_data_is_sent_uncompressed() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    let bytes = fill(2, LEN / 2);
    fs::write(&source, &bytes).unwrap();
    let wire = cast(&hosts, &source, &["--limit", SLOW]);
    // The block of entries and the last one are sent, too.
    assert!(
        (LEN as u64 / 2..LEN as u64 / 2 + 1000).contains(&wire),
        "{wire} bytes"
    );
    assert!(fs::read(hosts.path("n2.copy")).unwrap() == bytes);
}

#[test]
fn directories_and_older_copies_go_with_it() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    make_tree(&source);
    fs::write(source.join("text"), text(LEN / 2)).unwrap();
    cast(&hosts, &source, &["--limit", SLOW]);
    compare(&source, &hosts.path("n2.copy"));
    fs::write(source.join("text"), &text(LEN / 2 + 4096)[4096..]).unwrap();
    cast(&hosts, &source, &["--limit", SLOW, "--resume"]);
    compare(&source, &hosts.path("n1.copy"));
    compare(&source, &hosts.path("n2.copy"));
}
