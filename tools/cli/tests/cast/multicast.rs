// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast --shape multicast`: on the loopback, where all hosts are this machine,
//! and in labs that lose frames.

use crate::common::labs::Lab;
use crate::common::{self, Ended, can_make_labs, portolan, wait_until};
use crate::hosts::{Hosts, compare, fill, has_parts, make_tree};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Length of several blocks and a part of one.
const LEN: usize = (5 << 20) + 4321;

const BY_MULTICAST: [&str; 2] = ["--shape", "multicast"];

fn assert_copies(hosts: &Hosts, names: &[&str], bytes: &[u8]) {
    for name in names {
        let copy = fs::read(hosts.path(&format!("{name}.img"))).unwrap();
        assert!(copy == bytes, "{name}");
    }
}

/// Asserts that no other shape was reported, so that the cast used multicast.
fn assert_silent(ended: &Ended) {
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}

#[test]
fn files_and_directories_arrive_sealed_or_not() {
    let hosts = Hosts::new(4);
    let (source, bytes) = (hosts.path("source.img"), fill(1, LEN));
    fs::write(&source, &bytes).unwrap();
    let tree = hosts.path("tree");
    make_tree(&tree);
    for auth in ["auth=token", "auth=aead"] {
        let args = [&BY_MULTICAST[..], &["--path", "udp", "--option", auth]].concat();
        assert_silent(&hosts.cast(&[&source, &hosts.path("%h.img")], &args));
        assert_copies(&hosts, &["n1", "n2", "n3", "n4"], &bytes);
        for name in ["n1", "n2", "n3", "n4"] {
            fs::remove_file(hosts.path(&format!("{name}.img"))).unwrap();
        }
        let args = [&args[..], &["--replace", "--compress", "zstd"]].concat();
        assert_silent(&hosts.cast(&[&tree, &hosts.path("%h.copy")], &args));
        for name in ["n1", "n4"] {
            compare(&tree, &hosts.path(&format!("{name}.copy")));
        }
    }
    assert!(!has_parts(hosts.root()));
}

/// Needs a lab: a stopped process on the same host counts as alive.
#[test]
fn failed_or_stopped_host_does_not_prevent_other_copies() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("stops", "5");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (source, bytes) = (path("source.img"), fill(2, 4 * LEN));
    fs::write(&source, &bytes).unwrap();
    let of = |host: &str| path(&format!("{}-{host}", lab.0));
    // h3 has no such directory.
    for host in ["h1", "h2", "h4"] {
        fs::create_dir(of(host)).unwrap();
    }
    let target = path("%h/copy");
    let places = [&source, &target].map(|path| path.to_str().unwrap());
    let mut command = portolan(&["cast", places[0], places[1], "--lab", &lab.0]);
    command.args(BY_MULTICAST);
    command.args(["--limit", "20M", "--option", "peer_timeout=5s"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    wait_until("h2 has begun", || {
        of("h2").join(".copy.portolan-part").exists()
    });
    common::kill(lab.process("h2", "cast-worker").unwrap(), "-STOP");
    let ended: Ended = child.unwrap().wait_with_output().unwrap().into();
    assert_eq!(ended.status, 1, "{}", ended.err);
    for (host, why) in [("h2", ""), ("h3", "No such file")] {
        let told = format!("{}-{host} gets no copy", lab.0);
        let mut lines = ended.err.lines();
        let is_told = lines.any(|line| line.contains(&told) && line.contains(why));
        assert!(is_told, "{told}: {}", ended.err);
    }
    for host in ["h1", "h4"] {
        assert!(fs::read(of(host).join("copy")).unwrap() == bytes, "{host}");
    }
}

#[test]
fn an_interrupt_or_the_end_of_the_source_leaves_no_unfinished_copy() {
    for is_source_killed in [false, true] {
        let hosts = Hosts::new(3);
        let mut command = hosts.command(&["-", hosts.path("%h.img").to_str().unwrap()]);
        command
            .args(BY_MULTICAST)
            .args(["--option", "peer_timeout=5s"]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = common::KillOnDrop(command.spawn().unwrap());
        let mut input = child.0.stdin.take().unwrap();
        input.write_all(&fill(6, 3 << 20)).unwrap();
        wait_until("n2 has begun", || {
            hosts.path(".n2.img.portolan-part").exists()
        });
        if is_source_killed {
            let is_ours =
                |pid: &i32| parent(*pid).and_then(parent) == i32::try_from(child.0.id()).ok();
            let workers = common::processes_with("cast-worker");
            let receivers = ["n1", "n2", "n3"].map(|name| hosts.worker(name));
            let mut others = workers
                .into_iter()
                .filter(|pid| !receivers.contains(&Some(*pid)));
            common::kill(others.find(is_ours).unwrap(), "-KILL");
        } else {
            common::kill(i32::try_from(child.0.id()).unwrap(), "-INT");
        }
        let status = child.0.wait().unwrap();
        assert_eq!(status.code(), Some(if is_source_killed { 1 } else { 130 }));
        assert!(!has_parts(hosts.root()));
        assert!(!hosts.path("n1.img").exists());
    }
}

/// Returns the parent of a process (proc(5)).
fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

#[test]
fn unsupported_options_are_reported() {
    let hosts = Hosts::new(2);
    for other in ["--resume", "--verify"] {
        let mut command = hosts.command(&["/etc/hostname", "/x/%h", other]);
        let ended: Ended = command.args(BY_MULTICAST).output().unwrap().into();
        assert_eq!(ended.status, 2, "{}", ended.err);
        assert!(ended.err.contains("leave the shape out"), "{}", ended.err);
    }
    let mut command = hosts.command(&["/etc/hostname", "/x/%h", "--dry-run"]);
    let ended: Ended = command.args(BY_MULTICAST).output().unwrap().into();
    assert!(ended.out.contains("by multicast"), "{}", ended.out);
}

impl Lab {
    fn cast(&self, source: &Path, args: &[&str]) -> Ended {
        let target = source.with_extension("%h");
        let names = [source.to_str().unwrap(), target.to_str().unwrap()];
        let command =
            portolan(&[&["cast"], &names[..], &["--lab", &self.0], args].concat()).output();
        command.unwrap().into()
    }

    fn assert_copies(&self, source: &Path, count: usize) {
        for host in 1..=count {
            let copy = source.with_extension(format!("{}-h{host}", self.0));
            assert!(
                fs::read(&copy).unwrap() == fs::read(source).unwrap(),
                "h{host}"
            );
        }
    }
}

#[test]
fn lost_frames_are_retransmitted() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("loss", "5");
    // The kernel drops whole merged runs: more than each hundredth datagram at a time.
    for (host, loss) in [("h1", 10), ("h2", 10), ("h3", 100)] {
        let rule = format!("udp dport 20000-31999 numgen random mod 1000 < {loss}");
        if !lab.filter(host, &rule) {
            return;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    fs::write(&source, fill(3, 8 * LEN)).unwrap();
    assert_silent(&lab.cast(&source, &["--shape", "multicast"]));
    lab.assert_copies(&source, 4);
}

#[test]
fn hosts_without_multicast_get_the_data_by_a_chain() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("deaf", "4");
    if !lab.filter("h2", "ip daddr 239.0.0.0/8") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    fs::write(&source, fill(4, LEN)).unwrap();
    let ended = lab.cast(&source, &["--shape", "multicast"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    lab.assert_copies(&source, 3);
    let why = format!("{}-h2 received 0 of", lab.0);
    assert!(
        ended.err.contains(&why) && ended.err.contains("by a chain"),
        "{}",
        ended.err
    );
}
