// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the measurements, output and choice of `portolan cast --explain`. They do not check the
//! accuracy of the figures; the arithmetic is tested with given rates (`tools/cast/src/model`).

use crate::common;
use crate::common::wait_until;
use crate::hosts::{Hosts, fill, has_parts};
use std::fs;
use std::process::Stdio;

/// Length of several blocks.
const LEN: usize = (3 << 20) + 17;

/// Returns the words of the line of `out` that begins with `name`.
fn row<'a>(out: &'a str, name: &str) -> Vec<&'a str> {
    let mut rows = out.lines().map(|line| line.split_whitespace().collect());
    let is_named = |row: &Vec<&str>| row.first() == Some(&name);
    rows.find(is_named)
        .unwrap_or_else(|| panic!("no {name}: {out}"))
}

#[test]
fn measurements_model_and_choice_are_printed_and_compared() {
    let hosts = Hosts::new(3);
    let source = hosts.path("source.img");
    fs::write(&source, fill(1, LEN)).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &["--explain"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    for name in ["n1", "n2", "n3"] {
        let [_, read, rates @ ..] = &row(&ended.out, name)[..] else {
            panic!("{}", ended.out);
        };
        // A receiver reads nothing, and does everything else.
        assert_eq!((*read, rates.len()), ("-", 4), "{}", ended.out);
        let is_rate = |rate: &&str| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0);
        assert!(rates.iter().all(is_rate), "{}", ended.out);
        let copy = fs::read(hosts.path(&format!("{name}.img"))).unwrap();
        assert!(copy == fs::read(&source).unwrap(), "{name}");
    }
    for shape in ["chain", "tree:2", "tree:3", "multicast"] {
        assert!(row(&ended.out, shape).len() > 4, "{}", ended.out);
    }
    assert!(ended.out.contains("shape: "), "{}", ended.out);
    let told = row(&ended.out, "predicted").join(" ");
    assert!(
        told.contains("; took ") && told.ends_with("of the time predicted"),
        "{told}"
    );
    assert!(!has_parts(hosts.root()));
    assert_eq!(
        fs::read_dir(hosts.root()).unwrap().count(),
        hosts.own_files() + 4
    );
}

#[test]
fn dry_run_measures_and_creates_no_file() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), fill(2, LEN)).unwrap();
    let args = [
        "--explain",
        "--dry-run",
        "--shape",
        "tree:2",
        "--limit",
        "1k",
    ];
    let ended = hosts.cast(&[&source, &hosts.path("%h")], &args);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert!(
        ended.out.contains("shape: tree:2, as requested"),
        "{}",
        ended.out
    );
    assert!(
        row(&ended.out, "chain").ends_with(&["--limit"]),
        "{}",
        ended.out
    );
    assert!(ended.out.contains("2 entries, 3.1 MB"), "{}", ended.out);
    assert!(!ended.out.contains("predicted"), "{}", ended.out);
    assert_eq!(
        fs::read_dir(hosts.root()).unwrap().count(),
        hosts.own_files() + 1
    );
}

#[test]
fn a_host_that_cannot_be_reached_is_left_out_of_the_model() {
    let hosts = Hosts::with_ssh(
        3,
        "case \"$6\" in n2) echo no route to host >&2; exit 255;; esac",
    );
    let source = hosts.path("source.img");
    fs::write(&source, fill(3, LEN)).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &["--explain"]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(ended.err.contains("n2 gets no copy"), "{}", ended.err);
    let _ = (
        row(&ended.out, "n1"),
        row(&ended.out, "n3"),
        row(&ended.out, "predicted"),
    );
    assert!(
        !ended.out.lines().any(|line| line.trim().starts_with("n2")),
        "{}",
        ended.out
    );
}

#[test]
fn an_interrupt_while_it_measures_ends_all_of_it() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source.img");
    fs::write(&source, fill(6, LEN)).unwrap();
    let target = hosts.path("%h.img");
    let names = [
        source.to_str().unwrap(),
        target.to_str().unwrap(),
        "--explain",
    ];
    let mut command = hosts.command(&names);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("a process that measures", || hosts.worker("n1").is_some());
    common::kill(child.id().try_into().unwrap(), "-INT");
    let ended: common::Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.status, 130, "{}", ended.err);
    assert_eq!(ended.out, "", "nothing was chosen");
    assert_eq!(
        fs::read_dir(hosts.root()).unwrap().count(),
        hosts.own_files() + 1
    );
}

/// The cast itself reports an unwritable target; the model is computed without it.
#[test]
fn unmeasurable_costs_are_not_limits() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source.img");
    fs::write(&source, fill(4, LEN)).unwrap();
    fs::create_dir(hosts.path("n1")).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h/copy")], &["--explain"]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert_eq!(row(&ended.out, "n2").last(), Some(&"-"), "{}", ended.out);
    assert!(ended.err.contains("n2 gets no copy"), "{}", ended.err);
    assert!(hosts.path("n1/copy").exists());
}

#[test]
fn small_data_to_many_hosts_avoids_a_chain_by_default() {
    let hosts = Hosts::new(40);
    let source = hosts.path("source.img");
    fs::write(&source, fill(5, 1 << 20)).unwrap();
    let dry = |args: &[&str]| {
        let args = [&["--dry-run"], args].concat();
        let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &args);
        assert_eq!(ended.status, 0, "{}", ended.err);
        ended.out
    };
    let from = |name: &str, out: &str| {
        let arrow = format!(" -> {name}: ");
        let line = out.lines().find(|line| line.contains(&arrow)).unwrap();
        line.split(' ').next().unwrap().to_owned()
    };
    let out = dry(&[]);
    assert!(out.contains("by multicast"), "{out}");
    // If each host lacks different blocks, use a tree.
    let out = dry(&["--resume"]);
    assert!(!out.contains("by multicast"), "{out}");
    assert_ne!(from("n40", &out), "n39", "{out}");
    // Data blocks count, not holes.
    fs::write(&source, vec![1; 64 << 20]).unwrap();
    let out = dry(&["--resume"]);
    assert_eq!(from("n40", &out), "n39", "{out}");
}
