// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan cast`: what arrives is what was sent, and what goes wrong ends one host.
//!
//! The hosts are this one under several names, by an ssh that runs commands here; so no privilege is
//! needed, and the processes talk through shared memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "cast/hosts.rs"]
mod hosts;

use common::wait_until;
use hosts::{Hosts, compare, fill, has_parts, make_tree};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

/// A file that is some blocks and a bit.
const ODD_LEN: usize = (5 << 20) + 4321;

#[test]
fn a_file_arrives_with_its_attributes_and_replaces_an_older_one_at_once() {
    let hosts = Hosts::new(3);
    let source = hosts.path("source.img");
    fs::write(&source, fill(1, ODD_LEN)).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(hosts.path("n2.img"), b"older").unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &[]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let before = fs::metadata(&source).unwrap();
    for name in ["n1", "n2", "n3"] {
        let copy = hosts.path(&format!("{name}.img"));
        assert!(
            fs::read(&copy).unwrap() == fs::read(&source).unwrap(),
            "{name}"
        );
        let after = fs::metadata(&copy).unwrap();
        assert_eq!(after.mode(), before.mode());
        assert_eq!(
            (after.mtime(), after.mtime_nsec()),
            (before.mtime(), before.mtime_nsec())
        );
        assert!(ended.out.contains(&format!("{name}: ")), "{}", ended.out);
    }
    assert!(!has_parts(hosts.root()));
}

#[test]
fn a_directory_arrives_with_all_that_directories_hold() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source");
    make_tree(&source);
    let ended = hosts.cast(&[&source, &hosts.path("%h.copy")], &[]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    for name in ["n1", "n2"] {
        let copy = hosts.path(&format!("{name}.copy"));
        compare(&source, &copy);
        let sparse = fs::metadata(copy.join("sparse")).unwrap();
        assert!(
            sparse.blocks() * 512 < 1 << 20,
            "the hole is filled: {} blocks",
            sparse.blocks()
        );
        assert!(
            fs::metadata(copy.join("fifo"))
                .unwrap()
                .file_type()
                .is_fifo()
        );
    }
    assert!(!has_parts(hosts.root()));
    let again = hosts.cast(&[&source, &hosts.path("%h.copy")], &[]);
    assert_eq!(again.status, 1);
    assert!(again.err.contains("--replace"), "{}", again.err);
    fs::write(source.join("new"), b"new").unwrap();
    let replaced = hosts.cast(&[&source, &hosts.path("%h.copy")], &["--replace", "--sync"]);
    assert_eq!(replaced.status, 0, "{}", replaced.err);
    compare(&source, &hosts.path("n2.copy"));
    assert!(!has_parts(hosts.root()));
}

#[test]
fn many_small_files_arrive_down_a_tree() {
    let hosts = Hosts::new(4);
    let source = hosts.path("source");
    for index in 0..2000 {
        let directory = source.join(format!("d{}", index % 17));
        fs::create_dir_all(&directory).unwrap();
        fs::write(
            directory.join(index.to_string()),
            fill(index, (index % 5000) as usize),
        )
        .unwrap();
    }
    let ended = hosts.cast(&[&source, &hosts.path("%h.copy")], &["--shape", "tree:2"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    for name in ["n1", "n4"] {
        compare(&source, &hosts.path(&format!("{name}.copy")));
    }
}

#[test]
fn standard_input_goes_to_files_commands_and_standard_output() {
    let hosts = Hosts::new(2);
    let bytes = fill(3, ODD_LEN);
    let input = hosts.path("input");
    fs::write(&input, &bytes).unwrap();
    let cast = |target: &[&str]| {
        let mut command = hosts.command(target);
        // A pipe, whose length nobody knows.
        let mut cat = Command::new("cat")
            .arg(&input)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        command.stdin(cat.stdout.take().unwrap());
        let output = command.output().unwrap();
        cat.wait().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        output.stdout
    };
    let name = |name: &str| hosts.path(name).to_str().unwrap().to_owned();
    cast(&["-", &name("%h.out")]);
    assert!(fs::read(hosts.path("n2.out")).unwrap() == bytes);
    cast(&["-", "--pipe", &format!("cat > {}", name("%h.piped"))]);
    assert!(fs::read(hosts.path("n1.piped")).unwrap() == bytes);
    assert!(cast(&["-", "-", "--first", "1"]) == bytes);
}

#[test]
fn what_goes_wrong_on_a_host_ends_that_host_and_is_named() {
    let hosts = Hosts::new(4);
    let source = hosts.path("source.img");
    fs::write(&source, fill(4, ODD_LEN)).unwrap();
    for name in ["n1", "n3"] {
        fs::create_dir(hosts.path(name)).unwrap();
    }
    // n2 has no such directory; the disk of n4 is full.
    fs::create_dir(hosts.path("n4")).unwrap();
    symlink("/dev/full", hosts.path("n4/copy")).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h/copy")], &[]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    for name in ["n1", "n3"] {
        let copy = fs::read(hosts.path(&format!("{name}/copy"))).unwrap();
        assert!(copy == fs::read(&source).unwrap(), "{name}: {}", ended.err);
    }
    let line = |name: &str| {
        let mut lines = ended.err.lines();
        let line = lines.find(|line| line.contains(&format!("{name} gets no copy")));
        line.unwrap_or_else(|| panic!("{}", ended.err)).to_owned()
    };
    assert!(line("n2").contains("No such file"), "{}", line("n2"));
    assert!(
        line("n4").contains("No space left") && line("n4").contains("copy"),
        "{}",
        line("n4")
    );
    assert!(!has_parts(hosts.root()));
}

#[test]
fn a_host_that_cannot_be_reached_does_not_keep_others_from_their_copies() {
    let hosts = Hosts::with_ssh(
        3,
        "test \"$6\" = n2 && { echo no route to host >&2; exit 255; }",
    );
    let source = hosts.path("source.img");
    fs::write(&source, fill(5, ODD_LEN)).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &[]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(
        ended.err.contains("n2 gets no copy") && ended.err.contains("no route"),
        "{}",
        ended.err
    );
    assert!(fs::read(hosts.path("n3.img")).unwrap() == fs::read(&source).unwrap());
    assert!(!hosts.path("n2.img").exists());
}

#[test]
fn a_source_that_is_not_there_is_named() {
    let hosts = Hosts::new(2);
    let source = hosts.path("absent");
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &[]);
    assert_eq!(ended.status, 1);
    assert!(
        ended.err.contains("absent") && ended.err.contains("source on"),
        "{}",
        ended.err
    );
    assert_eq!(
        fs::read_dir(hosts.root()).unwrap().flatten().count(),
        hosts.own_files()
    );
}

#[test]
fn an_interrupt_leaves_no_unfinished_copy() {
    let hosts = Hosts::new(2);
    let mut command = hosts.command(&["-", hosts.path("%h.img").to_str().unwrap()]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = common::KillOnDrop(command.spawn().unwrap());
    let mut input = child.0.stdin.take().unwrap();
    input.write_all(&fill(6, 3 << 20)).unwrap();
    wait_until("n2 has begun", || {
        hosts.path(".n2.img.portolan-part").exists()
    });
    common::kill(i32::try_from(child.0.id()).unwrap(), "-INT");
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(!has_parts(hosts.root()));
    assert!(!hosts.path("n1.img").exists());
}

#[test]
fn wrong_use_is_explained() {
    let hosts = Hosts::new(2);
    let refused = |args: &[&str]| {
        let ended: common::Ended = hosts.command(args).output().unwrap().into();
        assert_eq!(ended.status, 2, "{args:?}: {}", ended.err);
        ended.err
    };
    assert!(refused(&["/etc/hostname"]).contains("TARGET"));
    assert!(refused(&["-", "-"]).contains("--first 1"));
    assert!(refused(&["a", "b", "--shape", "ring"]).contains("tree:K"));
    assert!(refused(&["a", "b", "--limit", "fast"]).contains("100M"));
    let nowhere = common::refused(&["cast", "a", "b"]);
    assert!(nowhere.contains("--hosts"), "{nowhere}");
}
