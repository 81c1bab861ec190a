// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast --verify`: existing copies are compared, each difference is reported,
//! and nothing is written.

use crate::common;
use crate::hosts::{Hosts, fill, has_parts, make_tree};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

const BLOCK_LEN: usize = 1 << 20;

/// Changes a byte of a file in place.
fn spoil(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    // After the end and in a hole, the byte is zero.
    let _ = file.read_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

#[test]
fn copies_that_are_the_same_are_said_to_be() {
    let hosts = Hosts::new(3);
    let source = hosts.path("source");
    make_tree(&source);
    let names = [source.as_path(), &hosts.path("%h.copy")];
    assert_eq!(hosts.cast(&names, &[]).status, 0);
    let ended = hosts.cast(&names, &["--verify"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    for name in ["n1", "n2", "n3"] {
        assert!(
            ended.out.contains(&format!("{name}: the same, ")),
            "{}",
            ended.out
        );
    }
    assert!(!has_parts(hosts.root()));
}

#[test]
fn differences_are_reported_by_host_file_and_block_count() {
    let hosts = Hosts::new(4);
    let source = hosts.path("source");
    make_tree(&source);
    fs::write(source.join("data"), fill(2, 9 * BLOCK_LEN)).unwrap();
    let names = [source.as_path(), &hosts.path("%h.copy")];
    assert_eq!(hosts.cast(&names, &[]).status, 0);
    let copy = |name: &str| hosts.path("n1.copy").join(name);
    spoil(&copy("data"), 3 * BLOCK_LEN as u64 + 5);
    spoil(&copy("data"), 7 * BLOCK_LEN as u64);
    // In the hole, where the source has nothing to hash.
    spoil(&copy("sparse"), 700 << 20);
    fs::remove_dir_all(copy("a/b")).unwrap();
    fs::write(copy("extra\n"), b"").unwrap();
    fs::remove_file(copy("dangling")).unwrap();
    std::os::unix::fs::symlink("elsewhere", copy("dangling")).unwrap();
    fs::set_permissions(copy("large"), fs::Permissions::from_mode(0o600)).unwrap();
    // The other hosts have one kind of difference each.
    fs::remove_dir_all(hosts.path("n2.copy")).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(hosts.path("n3.copy/data"))
        .unwrap()
        .set_len(8 * BLOCK_LEN as u64 + 1)
        .unwrap();
    let ended = hosts.cast(&names, &["--verify"]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    let has = |line: &str| {
        assert!(
            ended.out.lines().any(|said| said.contains(line)),
            "{line}: {}",
            ended.out
        )
    };
    has("n1.copy/data 2 of 9 blocks differ, the first at byte 3145728");
    has("n1.copy/sparse 1 of 2 blocks differs, the first at byte");
    has("n1.copy/a/b does not exist");
    has("extra\\n\" is not in the source");
    has("n1.copy/dangling is not a symbolic link to \"no\\xFFwhere\"");
    has("n1.copy/large has permissions 600");
    has("n2.copy does not exist");
    has(
        "n3.copy/data has 8388609 bytes instead of 9437184; 1 of 9 blocks differs, the first at byte 8388608",
    );
    has("n1: DIFFERS in ");
    has("n4: the same, ");
    // Only the top of a missing directory is reported.
    assert!(!ended.out.contains("n1.copy/a/b/c"), "{}", ended.out);
    assert!(!hosts.path("n2.copy").exists() && !copy("a/b").exists());
    assert!(!has_parts(hosts.root()));
    let repaired = hosts.cast(&names, &["--resume"]);
    assert_eq!(repaired.status, 0, "{}", repaired.err);
    let again = hosts.cast(&names, &["--verify", "--shape", "tree:2"]);
    assert_eq!(again.status, 0, "{}", again.out);
}

#[test]
fn standard_input_is_verified_and_failed_hosts_are_reported() {
    let hosts = Hosts::with_ssh(3, "test \"$6\" = n2 && { echo no route >&2; exit 255; }");
    let bytes = fill(3, 70 * BLOCK_LEN + 99);
    let input = hosts.path("input");
    fs::write(&input, &bytes).unwrap();
    for name in ["n1", "n3"] {
        fs::write(hosts.path(name), &bytes).unwrap();
    }
    spoil(&hosts.path("n3"), 66 * BLOCK_LEN as u64);
    let mut cat = std::process::Command::new("cat")
        .arg(&input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut command = hosts.command(&[
        "-",
        hosts.path("%h").to_str().unwrap(),
        "--verify",
        "--json",
    ]);
    command.stdin(cat.stdout.take().unwrap());
    let ended: common::Ended = command.output().unwrap().into();
    cat.wait().unwrap();
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(ended.err.contains("n2 was not checked: "), "{}", ended.err);
    let mut found = Vec::new();
    for line in ended.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["event"] == "done" && line["checked"].is_object() {
            let checked = &line["checked"];
            let count = |name: &str| checked[name].as_u64().unwrap();
            found.push((
                line["host"].to_string(),
                count("blocks"),
                count("differing_blocks"),
            ));
        }
    }
    found.sort();
    assert_eq!(found, [("\"n1\"".into(), 71, 0), ("\"n3\"".into(), 71, 1)]);
}

#[test]
fn settings_that_write_do_not_go_with_it() {
    let hosts = Hosts::new(1);
    for other in [
        &["--resume"][..],
        &["--replace"],
        &["--limit", "1M"],
        &["--pipe", "cat"],
    ] {
        let mut command = hosts.command(&["a", "b", "--verify"]);
        let ended: common::Ended = command.args(other).output().unwrap().into();
        assert_eq!(ended.status, 2, "{other:?}: {}", ended.err);
    }
    let ended: common::Ended = hosts
        .command(&["a", "-", "--verify"])
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("--verify compares"), "{}", ended.err);
}
