// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts for tests of `portolan cast`, and trees to compare.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use crate::common::{self, Ended, LOCAL_SSH, give_ssh};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// This machine under the names n1, n2 …
pub(crate) struct Hosts {
    directory: TempDir,
    script: String,
}

impl Hosts {
    pub(crate) fn new(count: usize) -> Hosts {
        Hosts::with_ssh(count, "")
    }

    /// Creates hosts with an ssh that runs `first` before the requested command.
    pub(crate) fn with_ssh(count: usize, first: &str) -> Hosts {
        let directory = tempfile::tempdir().unwrap();
        let names: String = (1..=count).map(|number| format!("n{number}\n")).collect();
        fs::create_dir(directory.path().join("setup")).unwrap();
        fs::write(directory.path().join("setup/hosts"), names).unwrap();
        Hosts {
            directory,
            script: format!("{first}\n{LOCAL_SSH}"),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the number of files in the directory before a cast.
    pub(crate) fn own_files(&self) -> usize {
        1
    }

    /// Returns a `portolan cast` command for these hosts.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = common::portolan(&["cast"]);
        command
            .args(args)
            .arg("--hosts")
            .arg(self.path("setup/hosts"));
        command.args(["--remote-program", env!("CARGO_BIN_EXE_portolan")]);
        // All hosts are this machine, so no packet may leave it.
        command.args(["--option", "interface=lo"]);
        give_ssh(&mut command, &self.path("setup"), &self.script);
        command
    }

    /// Returns the process of host `name`.
    pub(crate) fn worker(&self, name: &str) -> Option<i32> {
        let (host, root) = (
            format!("FAKE_HOST={name}"),
            self.root().to_str().unwrap().to_owned(),
        );
        // PATH contains this test's own directory.
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            let is_here = String::from_utf8_lossy(&environment).contains(&root);
            is_here && variables.any(|variable| variable == host.as_bytes())
        };
        common::processes_with("cast-worker")
            .into_iter()
            .find(is_ours)
    }

    /// Kills the process of host `name` at a moment between 0, its start, and 1, about 0.5 s later.
    /// Returns `false` if it has ended before.
    pub(crate) fn kill_at(&self, name: &str, moment: f64) -> bool {
        let mut found = None;
        common::wait_until("a process of each host", || {
            found = self.worker(name);
            found.is_some()
        });
        std::thread::sleep(Duration::from_secs_f64(moment / 2.0));
        let pid = found.unwrap().to_string();
        Command::new("kill")
            .args(["-KILL", &pid])
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }

    pub(crate) fn cast(&self, names: &[&Path], args: &[&str]) -> Ended {
        let names: Vec<&str> = names.iter().map(|name| name.to_str().unwrap()).collect();
        let mut command = self.command(&names);
        command.args(args).output().unwrap().into()
    }
}

/// Returns pseudo-random bytes.
pub(crate) fn fill(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns true if there is an unfinished copy below `root`.
pub(crate) fn has_parts(root: &Path) -> bool {
    let mut names = fs::read_dir(root).unwrap().flatten();
    names.any(|entry| {
        let is_part = entry.file_name().as_bytes().ends_with(b".portolan-part");
        is_part || (entry.path().is_dir() && !entry.path().is_symlink() && has_parts(&entry.path()))
    })
}

/// Creates a directory with every kind of entry.
pub(crate) fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::write(root.join("large"), fill(7, (3 << 20) + 17)).unwrap();
    fs::write(root.join("a/nothing"), b"").unwrap();
    fs::write(root.join("a/b/c/one\nof\ttwo lines"), b"newline").unwrap();
    fs::write(
        root.join(OsStr::from_bytes(b"a/no \xff\xfe text")),
        b"bytes",
    )
    .unwrap();
    fs::write(root.join("linked"), b"linked").unwrap();
    fs::hard_link(root.join("linked"), root.join("a/b/link")).unwrap();
    symlink("../large", root.join("a/symlink")).unwrap();
    symlink(OsStr::from_bytes(b"no\xffwhere"), root.join("dangling")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"in the middle", 300 << 20).unwrap();
    sparse.set_len(1 << 30).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(root.join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let run = |program: &str, args: &[&str]| {
        Command::new(program)
            .args(args)
            .arg(root.join("large"))
            .status()
            .is_ok_and(|s| s.success())
    };
    if !run("setfattr", &["-n", "user.origin", "-v", "genoa"]) {
        eprintln!("SKIPPED: extended attributes: no setfattr, or a file system without them");
    }
    fs::set_permissions(root.join("a/nothing"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(root.join("a/b/c"), fs::Permissions::from_mode(0o555)).unwrap();
    let old = ["-h", "-d", "2001-02-03 04:05:06.789 UTC"];
    assert!(run("touch", &old));
    for name in ["a/symlink", "a/b"] {
        let touched = Command::new("touch")
            .args(old)
            .arg(root.join(name))
            .status();
        assert!(touched.unwrap().success());
    }
    if nix_is_root() {
        std::os::unix::fs::chown(root.join("linked"), Some(12345), Some(54321)).unwrap();
    }
}

fn nix_is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Properties of an entry: type and mode, owner, length, time, number of links, contents.
type Fact = (u32, (u32, u32), u64, (i64, i64), u64, Vec<u8>);

fn facts(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Fact>) {
    let path = root.join(below);
    let metadata = fs::symlink_metadata(&path).unwrap();
    let contents = match metadata.file_type() {
        kind if kind.is_symlink() => fs::read_link(&path)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec(),
        kind if kind.is_file() => {
            let attribute = Command::new("getfattr")
                .args(["-d", "--absolute-names"])
                .arg(&path)
                .output();
            let mut facts = attribute.map_or(Vec::new(), |output| {
                let lines = output.stdout.split(|byte| *byte == b'\n').skip(1);
                lines.flatten().copied().collect()
            });
            // A sparse file is identified by its length and its middle.
            let contents = if metadata.len() > 1 << 29 {
                let mut middle = vec![0; 8192];
                let file = fs::File::open(&path).unwrap();
                file.read_exact_at(&mut middle, (300 << 20) - 4096).unwrap();
                middle
            } else {
                fs::read(&path).unwrap()
            };
            facts.extend(contents);
            facts
        }
        _ => Vec::new(),
    };
    let is_directory = metadata.is_dir();
    let fact = (
        metadata.mode(),
        (metadata.uid(), metadata.gid()),
        if is_directory { 0 } else { metadata.len() },
        (metadata.mtime(), metadata.mtime_nsec()),
        if is_directory { 0 } else { metadata.nlink() },
        contents,
    );
    found.insert(below.to_owned(), fact);
    if is_directory {
        for entry in fs::read_dir(&path).unwrap().flatten() {
            facts(root, &below.join(entry.file_name()), found);
        }
    }
}

/// Asserts that both trees are equal.
pub(crate) fn compare(one: &Path, other: &Path) {
    let (mut here, mut there) = (BTreeMap::new(), BTreeMap::new());
    facts(one, Path::new(""), &mut here);
    facts(other, Path::new(""), &mut there);
    let names = |found: &BTreeMap<PathBuf, Fact>| found.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&here), names(&there));
    for (name, fact) in &here {
        let (mode, owner, len, time, links, contents) = fact;
        let copy = &there[name];
        assert_eq!(
            (mode, owner, len),
            (&copy.0, &copy.1, &copy.2),
            "{}",
            name.display()
        );
        assert_eq!((time, links), (&copy.3, &copy.4), "{}", name.display());
        assert!(
            *contents == copy.5,
            "{} has another content",
            name.display()
        );
    }
}
