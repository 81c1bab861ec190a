// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a rank that is killed, stopped or disconnected: effects on other ranks, and leftovers.

use crate::common::clean::unix_sockets;
use crate::common::payload::{check, payload};
use crate::common::ranks::role;
use crate::common::{can_make_labs, kill, wait_until};
use portolan::binding::Plumbing as _;
use portolan::{Error, Node, PortConfig, ReduceOp, TagMatch, TagTarget, Target};
use std::process::Command;
use std::time::Duration;

ranks_of_this_module!(run_ranks, run_clean);

/// Rank that fails.
const VICTIM: u32 = 1;

/// Time from the victim's last message until it is killed; the other ranks wait by then.
const DELAY: Duration = Duration::from_millis(300);

/// Interval between tests of an operation: short enough to count as waiting (`P9.3`).
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// A peer timeout that is shorter than a stop of a few seconds.
const SHORT_TIMEOUT: &str = "peer_timeout=900ms";

const PORT: u16 = 1;
const SIDE_PORT: u16 = 2;

/// Long enough to need an answer from the receiver.
const LARGE: usize = 3_000_000;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(role) = role() else { return };
    let mut node = Node::join().unwrap();
    if role == "crowd" {
        return overload(node);
    }
    node.open(PORT, PortConfig::default()).unwrap();
    node.open(SIDE_PORT, PortConfig::default()).unwrap();
    // All pairs have communicated, and each rank has listed its sockets.
    exchange(&mut node, 0);
    println!("\nholds: {}", unix_sockets().join(" "));
    node.barrier().unwrap();
    match role.as_str() {
        "stopped" => stopped(&mut node),
        "cut off" => cut_off(&mut node),
        "given up" => declared_dead(&mut node),
        "looked for" => polled(&mut node),
        "not waited for" => not_awaited(&mut node),
        _ if node.rank() == VICTIM => {
            std::thread::sleep(DELAY);
            kill(i32::try_from(std::process::id()).unwrap(), "-9");
        }
        "tagged" => survive_with_tags(&mut node),
        "told late" => report_late(&mut node),
        _ => survive(&mut node, &role),
    }
}

/// Runs one of many processes on few cores.
fn overload(mut node: Node) {
    let mut sum = [u64::from(node.rank())];
    node.allreduce(ReduceOp::Sum, &mut sum).unwrap();
    node.barrier().unwrap();
    let size = u64::from(node.size());
    assert_eq!(sum, [size * (size - 1) / 2]);
    node.close().unwrap();
    println!("\nlives on");
}

/// Sends a message from each rank to each; later rounds exclude the failed victim.
fn exchange(node: &mut Node, index: u32) {
    let ranks = (0..node.size()).filter(|&rank| index == 0 || rank != VICTIM);
    let ranks: Vec<u32> = ranks.collect();
    let len = 50_000;
    for &to in &ranks {
        let bytes = payload(node.rank(), 0, index, len);
        node.isend_copy(Target::new(to, SIDE_PORT), &bytes).unwrap();
    }
    for &from in &ranks {
        let mut bytes = vec![0; len];
        node.recv_from(from, SIDE_PORT, &mut bytes).unwrap();
        check(&bytes, from, 0, index, len);
    }
}

/// Waits for the victim as given by `role`, then checks that the other ranks still work.
fn survive(node: &mut Node, role: &str) {
    let result = wait_for_victim(node, role);
    let error = result.expect_err("the victim cannot have answered");
    assert!(
        matches!(error, Error::PeerGone { rank: VICTIM, .. }),
        "{error:?}"
    );
    println!("\nnoticed: {error}");
    for index in 1..20 {
        exchange(node, index);
    }
    let turns = node.turn_count();
    let again = node.send(Target::new(VICTIM, PORT), b"late");
    assert!(
        matches!(again, Err(Error::PeerGone { rank: VICTIM, .. })),
        "{again:?}"
    );
    assert_eq!(node.turn_count(), turns, "a send to an ended rank waits");
    println!("\nlives on");
}

/// A rank that does not wait for the victim first sees its ring end; the launcher reports the cause
/// later.
fn report_late(node: &mut Node) {
    wait_until("the launcher reports the death", || {
        // This fails if no other process is left.
        let _ = node.progress();
        let result = node.send(Target::new(VICTIM, PORT), b"late");
        result.is_err_and(|error| error.to_string().contains("killed by signal 9"))
    });
    println!("\nlives on");
}

fn wait_for_victim(node: &mut Node, role: &str) -> Result<(), Error> {
    match role {
        "recv" => node.recv_from(VICTIM, PORT, &mut [0; 8]).map(|_| ()),
        "wait" => {
            let request = node.post_recv_from(VICTIM, PORT, vec![0; 8])?;
            node.wait(request)?;
            Ok(())
        }
        "send" => node.send(Target::new(VICTIM, PORT), &vec![7; LARGE]),
        // With more than two ranks, not every rank waits for the victim itself.
        "barrier" => node
            .recv_from(VICTIM, PORT, &mut [])
            .map(|_| ())
            .and(node.barrier()),
        "bare barrier" => node.barrier(),
        other => panic!("no role {other}"),
    }
}

/// Operations that only the victim could complete fail with it; a receive from any source
/// continues.
fn survive_with_tags(node: &mut Node) {
    let survivors: Vec<u32> = (0..node.size()).filter(|&rank| rank != VICTIM).collect();
    let from_victim = TagMatch::new(5).source(VICTIM);
    let posted = node.post_recv_tagged(from_victim, vec![0; 8]).unwrap();
    let open = node.post_recv_tagged(TagMatch::new(6), vec![0; 8]).unwrap();
    let sent = node.isend_tagged(TagTarget::new(VICTIM, 7), vec![7; LARGE]);
    let error = node.wait(posted).expect_err("the victim sends nothing");
    assert!(
        matches!(error.error(), Error::PeerGone { rank: VICTIM, .. }),
        "{error:?}"
    );
    println!("\nnoticed: {error}");
    let error = node
        .wait(sent.unwrap())
        .expect_err("the victim receives nothing");
    assert!(
        matches!(error.error(), Error::PeerGone { rank: VICTIM, .. }),
        "{error:?}"
    );
    let place = survivors.iter().position(|&rank| rank == node.rank());
    let next = survivors[(place.unwrap() + 1) % survivors.len()];
    node.send_tagged(TagTarget::new(next, 6), &[6; 8]).unwrap();
    assert_eq!(node.wait(open).unwrap().buffer.unwrap()[..], [6; 8]);
    exchange(node, 1);
    println!("\nlives on");
}

/// A stopped peer is not taken for dead, however long the stop.
fn stopped(node: &mut Node) {
    if node.rank() == VICTIM {
        let pid = std::process::id();
        let seconds = node.option("app.seconds").unwrap_or("3").to_owned();
        let script = format!("kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}");
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        for to in (0..node.size()).filter(|&rank| rank != VICTIM) {
            node.send(Target::new(to, PORT), &payload(VICTIM, 1, to, LARGE))
                .unwrap();
        }
    } else {
        let mut bytes = vec![0; LARGE];
        node.recv_from(VICTIM, PORT, &mut bytes).unwrap();
        check(&bytes, VICTIM, 1, node.rank(), LARGE);
    }
    node.barrier().unwrap();
    exchange(node, 0);
    println!("\nlives on");
}

/// The victim is stopped for longer than the peer timeout of the others, which do other work
/// between two tests for its message.
fn polled(node: &mut Node) {
    if node.rank() == VICTIM {
        let pid = std::process::id();
        let script = format!("kill -STOP {pid}; sleep 5; kill -CONT {pid}");
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        // Too late for a peer that has given it up.
        let _ = node.send(Target::new(0, PORT), &[1; 8]);
    } else {
        let request = node.post_recv_from(VICTIM, PORT, vec![0; 8]).unwrap();
        let error = loop {
            match node.test(request) {
                Ok(Some(_)) => panic!("it was waited for as long as it was stopped"),
                Ok(None) => std::thread::sleep(POLL_PAUSE),
                Err(error) => break error,
            }
        };
        println!("\nnoticed: {error}");
    }
}

/// The victim is stopped for longer than the peer timeout of the rank that waits for it. It is
/// notified that it was given up, and the two communicate again. The other ranks wait for something
/// else.
fn declared_dead(node: &mut Node) {
    if node.rank() == VICTIM {
        let pid = std::process::id();
        // Stops once its last acknowledgements have left: rank 0 must not miss any.
        let script = format!("sleep 0.5; kill -STOP {pid}; sleep 2; kill -CONT {pid}");
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        let error = node.recv_from(0, PORT, &mut [0; 8]).unwrap_err();
        println!("\nnoticed: {error}");
        node.send(Target::new(0, PORT), b"again").unwrap();
        node.recv_from(0, PORT, &mut [0; 8]).unwrap();
    } else if node.rank() == 0 {
        let error = node.recv_from(VICTIM, PORT, &mut [0; 8]).unwrap_err();
        println!("\nnoticed: {error}");
        let mut bytes = [0; 8];
        wait_until("the victim speaks again", || {
            for _ in 0..100 {
                node.progress().unwrap();
            }
            node.recv_from(VICTIM, PORT, &mut bytes).is_ok()
        });
        assert_eq!(bytes[..5], *b"again");
        node.send(Target::new(VICTIM, PORT), b"heard").unwrap();
    } else {
        std::thread::sleep(Duration::from_secs(4));
    }
    println!("\nlives on");
}

/// The victim is stopped for longer than the peer timeout, but no rank waits for it. The other rank
/// has sent it a message and makes no call.
fn not_awaited(node: &mut Node) {
    if node.rank() == VICTIM {
        let pid = std::process::id();
        let script = format!("kill -STOP {pid}; sleep 2; kill -CONT {pid}");
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        child.wait().unwrap();
        node.recv_from(0, PORT, &mut [0; 8]).unwrap();
    } else {
        std::thread::sleep(DELAY);
        node.send(Target::new(VICTIM, PORT), b"later").unwrap();
        std::thread::sleep(Duration::from_secs(3));
    }
    node.barrier().unwrap();
    println!("\nlives on");
}

/// The victim takes its own interface down; both ends detect it.
fn cut_off(node: &mut Node) {
    let other = if node.rank() == VICTIM { 0 } else { VICTIM };
    if node.rank() == VICTIM {
        std::thread::sleep(DELAY);
        let down = Command::new("ip")
            .args(["link", "set", "eth0", "down"])
            .status();
        assert!(down.unwrap().success());
    }
    let result = node.recv_from(other, PORT, &mut [0; 8]);
    let error = result.expect_err("nothing can have come");
    assert!(
        matches!(error, Error::PeerGone { rank, .. } if rank == other),
        "{error:?}"
    );
    println!("\nnoticed: {error}");
    // The other rank must not detect the end of this one instead.
    std::thread::sleep(Duration::from_millis(1_500));
}

/// Asserts that every survivor has detected the failure by name and continues, and the launcher
/// reports it.
fn assert_killed(count: u32, role: &str, args: &[&str]) {
    let ended = run_clean(count, role, args);
    let (out, err) = (&ended.out, &ended.err);
    let shown = format!("{count} ranks, {role}, {args:?}\n{out}\n{err}");
    assert_eq!(ended.status, 137, "{shown}");
    assert!(
        err.contains("rank 1 on") && err.contains("SIGKILL"),
        "{shown}"
    );
    for rank in (0..count).filter(|&rank| rank != VICTIM) {
        let noticed = format!("[{rank}] noticed: rank 1 on ");
        let line = out.lines().find(|line| line.starts_with(&noticed));
        assert!(
            line.is_some_and(|line| line.contains(" failed: ")),
            "{shown}"
        );
        assert!(out.contains(&format!("[{rank}] lives on")), "{shown}");
    }
}

#[test]
fn exit_status_is_reported_after_shared_memory_detected_the_end() {
    let ended = run_clean(2, "told late", &["--path", "shm"]);
    assert!(
        ended.out.contains("lives on"),
        "{}\n{}",
        ended.out,
        ended.err
    );
}

#[test]
fn a_killed_rank_is_named_over_shared_memory() {
    for role in ["recv", "wait", "send", "barrier"] {
        assert_killed(4, role, &["--path", "shm"]);
    }
    assert_killed(2, "bare barrier", &["--path", "shm"]);
}

#[test]
fn a_killed_rank_ends_what_waits_for_it_by_tag() {
    for path in ["shm", "udp"] {
        assert_killed(3, "tagged", &["--path", path]);
    }
}

#[test]
fn a_killed_rank_is_named_over_udp_on_one_host() {
    for role in ["recv", "send"] {
        assert_killed(3, role, &["--path", "udp"]);
    }
}

#[test]
fn a_killed_rank_is_named_over_the_network() {
    if !can_make_labs() {
        return;
    }
    for role in ["recv", "wait", "send", "barrier"] {
        assert_killed(4, role, &["--new-lab", "2", "--map-by", "node"]);
    }
    assert_killed(2, "bare barrier", &["--new-lab", "2", "--path", "packet"]);
    assert_killed(2, "send", &["--new-lab", "2", "--path", "udp"]);
}

fn assert_stopped(count: u32, args: &[&str]) {
    let what = format!("{count} ranks, stopped, {args:?}");
    let out = run_clean(count, "stopped", args).succeeded(&what);
    assert_eq!(out.matches("lives on").count(), count as usize, "{out}");
}

#[test]
fn silent_rank_is_not_declared_dead_unless_awaited() {
    let out = run_ranks(2, "not waited for", &["--path", "udp"]).succeeded("stopped");
    assert_eq!(out.matches("lives on").count(), 2, "{out}");
}

#[test]
fn a_rank_that_is_stopped_for_a_while_is_not_given_up() {
    assert_stopped(3, &["--path", "shm"]);
    assert_stopped(3, &["--path", "udp"]);
    // Within a host, silence never counts, however short the timeout.
    assert_stopped(3, &["--path", "udp", "--option", SHORT_TIMEOUT]);
}

#[test]
fn a_rank_on_another_host_that_is_stopped_for_a_while_is_not_given_up() {
    if !can_make_labs() {
        return;
    }
    for path in ["auto", "udp", "packet"] {
        assert_stopped(2, &["--new-lab", "2", "--path", path]);
    }
}

#[test]
#[ignore = "takes three minutes"]
fn a_rank_that_is_stopped_for_30_s_is_not_given_up() {
    let seconds = ["--option", "app.seconds=30"];
    for way in [&["--path", "shm"], &["--path", "udp"]] {
        assert_stopped(3, &[&way[..], &seconds].concat());
    }
    if !can_make_labs() {
        return;
    }
    for path in ["auto", "udp", "packet"] {
        assert_stopped(
            2,
            &[&["--new-lab", "2", "--path", path], &seconds[..]].concat(),
        );
    }
}

#[test]
fn silent_rank_is_declared_dead_if_polled_sometimes() {
    if !can_make_labs() {
        return;
    }
    let args = ["--new-lab", "2", "--path", "udp", "--option", SHORT_TIMEOUT];
    let ended = run_ranks(2, "looked for", &args);
    let told = "noticed: rank 1 on ";
    assert!(ended.out.contains(told), "{}\n{}", ended.out, ended.err);
    assert!(ended.out.contains("set peer_timeout"), "{}", ended.out);
}

/// Returns the value of a variable of the crowd test: `CROWD_RANKS`, `CROWD_JOBS`.
fn number(name: &str, default: u32) -> u32 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

#[test]
fn no_rank_is_declared_dead_on_an_overloaded_host() {
    if !can_make_labs() {
        return;
    }
    let (ranks, jobs) = (number("CROWD_RANKS", 60), number("CROWD_JOBS", 1));
    let hosts = number("CROWD_HOSTS", 2).to_string();
    for job in 0..jobs {
        let out = run_ranks(ranks, "crowd", &["--new-lab", &hosts]);
        let out = out.succeeded(&format!("crowd, job {job} of {jobs}"));
        assert_eq!(out.matches("lives on").count(), ranks as usize, "{out}");
    }
}

#[test]
fn rank_declared_dead_is_notified_and_reconnects() {
    if !can_make_labs() {
        return;
    }
    // Ranks 0 and 1 are on different hosts.
    let args = [
        "--new-lab",
        "2",
        "--map-by",
        "node",
        "--option",
        SHORT_TIMEOUT,
    ];
    let out = run_clean(4, "given up", &args).succeeded("given up");
    assert!(out.contains("[0] noticed: rank 1 on "), "{out}");
    assert!(out.contains("[1] noticed: rank 0 on "), "{out}");
    assert_eq!(out.matches("lives on").count(), 4, "{out}");
}

#[test]
fn a_host_that_is_cut_off_is_named() {
    if !can_make_labs() {
        return;
    }
    for path in ["auto", "udp", "packet"] {
        assert_cut_off(path, &["--option", SHORT_TIMEOUT]);
    }
}

#[test]
#[ignore = "takes a minute"]
fn a_host_that_is_cut_off_is_named_with_default_settings() {
    if can_make_labs() {
        let out = assert_cut_off("auto", &[]);
        assert!(
            out.contains("its host's agent reports that it runs"),
            "{out}"
        );
    }
}

fn assert_cut_off(path: &str, more: &[&str]) -> String {
    let what = format!("cut off, {path}");
    let args = ["--new-lab", "2", "--path", path];
    let out = run_clean(2, "cut off", &[&args, more].concat()).succeeded(&what);
    for (rank, other) in [(0, 1), (1, 0)] {
        let noticed = format!("[{rank}] noticed: rank {other} on ");
        assert!(out.contains(&noticed), "{what}: {out}");
    }
    out
}
