// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a rank that is killed between two frames, at any point: the other rank is notified,
//! nothing is left, and the next job starts at once.

use crate::common::can_make_labs;
use crate::common::clean::unix_sockets;
use crate::common::payload::{check, payload};
use crate::common::ranks::joined;
use portolan::binding::Plumbing as _;
use portolan::{Error, Node, PortConfig, Target};

ranks_of_this_module!(run_clean);

/// Rank that is killed.
const VICTIM: u32 = 1;

/// Long peer timeout, so that a death is reported by its observer and not detected by silence on a
/// busy machine.
const PATIENT: &str = "peer_timeout=5s";

/// Approximate number of frames of either rank in a journey; later points are after its end.
const FRAMES: usize = 48;

const PORT: u16 = 1;

/// Long enough for rendezvous, and for several frames.
const LARGE: usize = 150_000;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[]) else {
        return;
    };
    println!("\nholds: {}", unix_sockets().join(" "));
    let Err(error) = journey(&mut node) else {
        println!("\nat its end");
        return;
    };
    let other = 1 - node.rank();
    assert!(
        matches!(error, Error::PeerGone { rank, .. } if rank == other),
        "{error:?}"
    );
    println!("\nnoticed: {error}");
    let turns = node.turn_count();
    let again = node.send(Target::new(other, PORT), b"late");
    assert!(matches!(again, Err(Error::PeerGone { .. })), "{again:?}");
    assert_eq!(node.turn_count(), turns, "it waits for who is gone");
    println!("\nlives on");
}

/// Performs a handshake, short messages, long messages and a barrier, several of each, so that
/// every kind of frame occurs more than once.
fn journey(node: &mut Node) -> Result<(), Error> {
    node.open(PORT, PortConfig::default())?;
    for index in 0..2 {
        pass(node, index, 100)?;
        pass(node, index, 20_000)?;
        pass(node, index, LARGE)?;
        node.barrier()?;
    }
    Ok(())
}

/// Sends a message each way at the same time.
fn pass(node: &mut Node, index: u32, len: usize) -> Result<(), Error> {
    let (own, other) = (node.rank(), 1 - node.rank());
    let receive = node.post_recv_from(other, PORT, vec![0xa5; len])?;
    let send = node.isend(Target::new(other, PORT), payload(own, 0, index, len))?;
    let done = node.wait(receive)?;
    check(&done.buffer.unwrap(), other, 0, index, len);
    node.wait(send)?;
    Ok(())
}

/// Runs a job with a victim that dies at `point`, such as `sent:7`; returns `false` if it ended
/// before.
fn kill_at(point: &str, args: &[&str]) -> bool {
    let die = format!("die={VICTIM}:{point}");
    let options = ["--option", &die, "--option", PATIENT];
    let ended = run_clean(2, "journey", &[args, &options].concat());
    let (out, err) = (&ended.out, &ended.err);
    let shown = format!("{point}, {args:?}\n{out}\n{err}");
    if ended.status == 0 {
        assert_eq!(out.matches("at its end").count(), 2, "{shown}");
        return false;
    }
    assert_eq!(ended.status, 137, "{shown}");
    assert!(
        err.contains("rank 1 on") && err.contains("SIGKILL"),
        "{shown}"
    );
    let noticed = out.contains("[0] noticed: rank 1 on ") && out.contains("[0] lives on");
    assert!(noticed || out.contains("[0] at its end"), "{shown}");
    true
}

/// Paths between the ranks; those in a lab are last.
const WAYS: [&[&str]; 5] = [
    &["--path", "shm"],
    &["--path", "udp", "--option", "frame_len_max=1472"],
    &["--new-lab", "2", "--path", "auto"],
    &["--new-lab", "2", "--path", "udp"],
    &["--new-lab", "2", "--path", "packet"],
];

#[test]
fn death_between_any_two_frames_leaks_nothing_on_one_host() {
    for way in &WAYS[..2] {
        for point in ["sent:1", "received:1", "sent:2", "received:5", "sent:9"] {
            assert!(kill_at(point, way), "{point} is behind the end of {way:?}");
        }
    }
}

#[test]
fn death_between_any_two_frames_leaks_nothing_on_two_hosts() {
    if !can_make_labs() {
        return;
    }
    for point in ["sent:1", "received:2", "sent:4", "received:14"] {
        assert!(kill_at(point, WAYS[2]), "{point} is behind the end");
    }
}

#[test]
#[ignore = "long; make test-faults runs it, KILLS says how often"]
fn many_deaths_leave_nothing() {
    let kills = std::env::var("KILLS").unwrap_or_default();
    let kills: usize = kills.parse().unwrap_or(100);
    let ways = if can_make_labs() {
        &WAYS[..]
    } else {
        &WAYS[..2]
    };
    let (mut killed, mut jobs) = (0, 0);
    while killed < kills {
        // Every path with every point in turn: five paths, two directions, and all frames.
        let way = ways[jobs % ways.len()];
        let turn = jobs / ways.len();
        let direction = ["sent", "received"][turn % 2];
        let point = format!("{direction}:{}", 1 + turn / 2 % FRAMES);
        killed += usize::from(kill_at(&point, way));
        jobs += 1;
        assert!(jobs < 20 * kills + 1000, "nobody dies any more");
    }
    println!("\n{killed} killed in {jobs} jobs");
}
