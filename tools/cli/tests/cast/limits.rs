// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast` at its limits: very many files, very long files, and its memory limit.
//!
//! Each limit has a short test; the long ones belong to `make test-faults`.

use crate::common;
use crate::hosts::{Hosts, fill};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Memory limit of a cast's process in bytes (`docs/guide/cast.md`).
const MEMORY_MAX: u64 = 256 << 20;

/// Returns the largest memory use that processes reported in `--json`, and the number of reports.
fn memory(out: &str) -> (u64, usize) {
    let lines = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let done = lines.filter(|line| line["event"] == "done");
    let memory: Vec<u64> = done.map(|line| line["memory"].as_u64().unwrap()).collect();
    (memory.iter().copied().max().unwrap_or(0), memory.len())
}

/// Runs a cast, compares by `--verify`, and checks the memory.
fn cast_and_verify(hosts: &Hosts, source: &Path, count: usize) {
    let names = [source, &hosts.path("%h.copy")];
    for args in [
        &["--json"][..],
        &["--json", "--verify"],
        &["--json", "--resume"],
    ] {
        let ended = hosts.cast(&names, args);
        assert_eq!(ended.status, 0, "{args:?}: {}", ended.err);
        let (most, said) = memory(&ended.out);
        println!("{args:?}: at most {} MB", most / 1_000_000);
        assert!(
            most <= MEMORY_MAX && said == count + 1,
            "{args:?}: {most} bytes, {said} said so"
        );
    }
}

/// Casts `count` files of 0 to 2 KB in directories of 1000.
fn many_small_files(count: u64) {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    let bytes = fill(1, 2048);
    for index in 0..count {
        let directory = source.join((index / 1000).to_string());
        if index % 1000 == 0 {
            fs::create_dir_all(&directory).unwrap();
        }
        let len = usize::try_from(index * 37 % 2048).unwrap();
        fs::write(directory.join(index.to_string()), &bytes[..len]).unwrap();
    }
    cast_and_verify(&hosts, &source, 2);
}

/// Casts `count` empty files with long names in one directory.
fn many_names(count: u64) {
    let hosts = Hosts::new(1);
    let source = hosts.path("source");
    fs::create_dir(&source).unwrap();
    let long = "very long ".repeat(20);
    for index in 0..count {
        File::create(source.join(format!("{long}{index}"))).unwrap();
    }
    cast_and_verify(&hosts, &source, 1);
}

/// Casts to `count` hosts of which the last reads nothing at first, so that all other hosts fill
/// their memory.
fn a_cast_that_waits(shape: &str, count: usize, blocks: usize) {
    let hosts = Hosts::new(count);
    let source = hosts.path("source");
    fs::write(&source, fill(2, blocks << 20)).unwrap();
    let command = format!(
        "if [ %h = n{count} ]; then sleep {}; fi; cat >/dev/null",
        count.div_ceil(6)
    );
    let mut cast = hosts.command(&[source.to_str().unwrap(), "--json", "--pipe", &command]);
    cast.args(["--shape", shape]);
    let ended: common::Ended = cast.output().unwrap().into();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let (most, said) = memory(&ended.out);
    println!("{shape}, {count} hosts: at most {} MB", most / 1_000_000);
    assert!(
        most <= MEMORY_MAX && said == count + 1,
        "{most} bytes, {said} said so"
    );
}

#[test]
fn many_small_files_arrive() {
    many_small_files(5000);
}

#[test]
#[ignore = "takes minutes: make test-faults"]
fn a_hundred_thousand_small_files_arrive() {
    many_small_files(100_000);
}

#[test]
fn a_directory_with_many_long_names_arrives() {
    many_names(5000);
}

#[test]
#[ignore = "takes minutes: make test-faults"]
fn a_directory_with_a_hundred_thousand_long_names_arrives() {
    many_names(100_000);
}

#[test]
fn a_long_sparse_file_stays_sparse_and_its_holes_are_not_read() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    let len = 20 << 30;
    let file = File::create(&source).unwrap();
    file.write_all_at(b"in the middle", 7 << 30).unwrap();
    file.write_all_at(b"the end", len - 7).unwrap();
    assert_eq!(file.metadata().unwrap().len(), len);
    // A file system with large pages needs some MB for holes, but never the 20 GB.
    let sparse = |path: &Path| fs::metadata(path).unwrap().blocks() * 512 < 64 << 20;
    if !sparse(&source) {
        eprintln!("SKIPPED: holes: this file system has none");
        return;
    }
    cast_and_verify(&hosts, &source, 2);
    for name in ["n1.copy", "n2.copy"] {
        let copy = hosts.path(name);
        assert!(
            sparse(&copy),
            "{} blocks",
            fs::metadata(&copy).unwrap().blocks()
        );
        let copy = File::open(copy).unwrap();
        let mut bytes = [0; 13];
        copy.read_exact_at(&mut bytes, 7 << 30).unwrap();
        assert_eq!(
            (&bytes, copy.metadata().unwrap().len()),
            (b"in the middle", len)
        );
    }
}

#[test]
fn memory_is_bounded_while_the_last_host_accepts_nothing() {
    a_cast_that_waits("chain", 6, 48);
    a_cast_that_waits("multicast", 6, 48);
}

/// Number of hosts in a chain in which each may use its full memory.
const LONG_CHAIN: usize = 73;

#[test]
#[ignore = "takes a minute and 16 GB of memory: make test-faults"]
fn memory_is_bounded_along_a_long_chain() {
    a_cast_that_waits("chain", LONG_CHAIN, 300);
}
