// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast` with block devices, which are loop devices here.

use crate::hosts::{Hosts, fill};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const LEN: usize = 24 << 20;

/// A loop device, detached on drop.
struct Loop(PathBuf);

impl Loop {
    /// Creates a loop device; prints SKIPPED and returns `None` where this is not permitted.
    fn new(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(file)
            .output();
        match made {
            Ok(made) if made.status.success() => {
                let name = String::from_utf8(made.stdout).unwrap();
                Some(Loop(PathBuf::from(name.trim())))
            }
            _ => {
                eprintln!(
                    "SKIPPED: block devices: no loop device can be made here (losetup, as root)"
                );
                None
            }
        }
    }

    /// Returns the bytes of the device, read through the device instead of its file.
    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.0).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Creates a device of this length with random contents.
fn device(hosts: &Hosts, seed: u64, len: usize) -> Option<Loop> {
    let file = hosts.path(&format!("device{seed}"));
    fs::write(&file, fill(seed, len)).unwrap();
    Loop::new(&file)
}

#[test]
fn a_device_is_copied_onto_another_caught_up_and_compared() {
    let hosts = Hosts::new(1);
    let (Some(source), Some(target)) = (device(&hosts, 1, LEN), device(&hosts, 2, LEN + (1 << 20)))
    else {
        return;
    };
    let names = [source.0.as_path(), target.0.as_path()];
    let differs = hosts.cast(&names, &["--verify"]);
    assert_eq!(differs.status, 1);
    assert!(
        differs.out.contains("24 of 24 blocks differ"),
        "{}",
        differs.out
    );
    let ended = hosts.cast(&names, &["--sync"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(target.bytes()[..LEN] == source.bytes());
    // Bytes after the end of the source must not change.
    assert!(target.bytes()[LEN..] == fill(2, LEN + (1 << 20))[LEN..]);
    let written = OpenOptions::new().write(true).open(&target.0).unwrap();
    written.write_all_at(b"spoilt", 5_000_000).unwrap();
    drop(written);
    let differs = hosts.cast(&names, &["--verify"]);
    assert!(
        differs
            .out
            .contains("1 of 24 blocks differs, the first at byte 4194304"),
        "{}",
        differs.out
    );
    let resumed = hosts.cast(&names, &["--resume"]);
    assert_eq!(resumed.status, 0, "{}", resumed.err);
    assert_eq!(hosts.cast(&names, &["--verify"]).status, 0);
}

#[test]
fn image_with_holes_is_written_to_a_device_and_read_back() {
    let hosts = Hosts::new(1);
    let Some(target) = device(&hosts, 3, LEN) else {
        return;
    };
    let image = hosts.path("image");
    let file = File::create(&image).unwrap();
    file.write_all_at(b"in the middle", 11 << 20).unwrap();
    file.set_len(LEN as u64).unwrap();
    let ended = hosts.cast(&[&image, &target.0], &[]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(target.bytes() == fs::read(&image).unwrap());
    assert_eq!(hosts.cast(&[&image, &target.0], &["--verify"]).status, 0);
    let back = hosts.cast(&[&target.0, &hosts.path("%h.img")], &[]);
    assert_eq!((back.status, back.err.as_str()), (0, ""));
    assert!(fs::read(hosts.path("n1.img")).unwrap() == fs::read(&image).unwrap());
}

#[test]
fn device_that_is_too_small_or_in_use_is_not_written() {
    let hosts = Hosts::new(1);
    let Some(target) = device(&hosts, 4, LEN) else {
        return;
    };
    let image = hosts.path("image");
    fs::write(&image, fill(5, LEN + 512)).unwrap();
    let small = hosts.cast(&[&image, &target.0], &[]);
    assert_eq!(small.status, 1);
    assert!(small.err.contains("cast to a larger one"), "{}", small.err);
    assert_eq!(small.err.lines().count(), 1, "{}", small.err);
    fs::write(&image, fill(5, LEN)).unwrap();
    // Held open like a mounted file system.
    let held = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&target.0)
        .unwrap();
    let busy = hosts.cast(&[&image, &target.0], &[]);
    assert_eq!(busy.status, 1);
    assert!(busy.err.contains("unmount it"), "{}", busy.err);
    drop(held);
    assert!(target.bytes() == fill(4, LEN));
}
