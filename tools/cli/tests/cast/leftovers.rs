// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unfinished copies that a cast must not continue, or not follow out of the copy; and entries of a
//! source that have no copy.

use crate::hosts::{Hosts, compare, fill, has_parts};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

/// Length of a file of one block.
const LEN: usize = 3000;

/// Another user may have written it, and may still have a descriptor of it.
#[test]
fn unfinished_copy_that_others_can_write_is_made_anew() {
    let hosts = Hosts::new(2);
    let source = hosts.path("source.img");
    fs::write(&source, fill(1, LEN)).unwrap();
    let left = hosts.path(".n1.img.portolan-part");
    fs::write(&left, fill(1, LEN)).unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o666)).unwrap();
    let private = hosts.path(".n2.img.portolan-part");
    fs::write(&private, fill(1, LEN)).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    let before = [&left, &private].map(|path| fs::metadata(path).unwrap().ino());
    // Keeps the numbers of the files in use.
    let held = [&left, &private].map(|path| fs::File::open(path).unwrap());
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &["--resume"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let after = ["n1.img", "n2.img"].map(|name| fs::metadata(hosts.path(name)).unwrap().ino());
    assert_ne!(after[0], before[0], "the file of others was continued");
    assert_eq!(after[1], before[1], "an own file was not continued");
    drop(held);
}

#[test]
fn fifo_in_place_of_an_unfinished_copy_is_removed() {
    let hosts = Hosts::new(1);
    let source = hosts.path("source.img");
    fs::write(&source, fill(2, LEN)).unwrap();
    let left = hosts.path(".n1.img.portolan-part");
    let made = Command::new("mkfifo").arg(&left).status().unwrap();
    assert!(made.success());
    let ended = hosts.cast(&[&source, &hosts.path("%h.img")], &[]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert!(fs::read(hosts.path("n1.img")).unwrap() == fill(2, LEN));
}

/// A symbolic link of an interrupted cast, where the source now has a directory.
#[test]
fn resumed_cast_does_not_follow_links_out_of_the_unfinished_copy() {
    let hosts = Hosts::new(1);
    let source = hosts.path("source");
    fs::create_dir_all(source.join("current")).unwrap();
    fs::write(source.join("current/file"), fill(3, LEN)).unwrap();
    let elsewhere = hosts.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), fill(3, LEN)).unwrap();
    fs::set_permissions(elsewhere.join("file"), fs::Permissions::from_mode(0o644)).unwrap();
    let left = hosts.path(".n1.portolan-part");
    fs::create_dir(&left).unwrap();
    symlink(&elsewhere, left.join("current")).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h")], &["--resume"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    compare(&source, &hosts.path("n1"));
    let mode = fs::metadata(elsewhere.join("file")).unwrap().mode();
    assert_eq!(
        mode & 0o777,
        0o644,
        "a file outside of the copy was changed"
    );
    assert!(!has_parts(hosts.root()));
}

#[test]
fn omitted_socket_with_two_names_has_no_copy() {
    let hosts = Hosts::new(1);
    let source = hosts.path("source");
    fs::create_dir(&source).unwrap();
    let _socket = UnixListener::bind(source.join("a")).unwrap();
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    fs::write(source.join("c"), fill(4, LEN)).unwrap();
    fs::hard_link(source.join("c"), source.join("d")).unwrap();
    let ended = hosts.cast(&[&source, &hosts.path("%h")], &[]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let copy = hosts.path("n1");
    let mut names: Vec<_> = fs::read_dir(&copy).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(fs::metadata(copy.join("c")).unwrap().nlink(), 2);
}
