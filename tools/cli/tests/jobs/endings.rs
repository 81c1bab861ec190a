// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking calls end at their deadline, and when the process that they wait for is killed.

use crate::common::kill;
use crate::common::ranks::{joined, role};
use portolan::{Error, Group, Node, ReduceOp, Request, TagMatch, Target};
use std::time::Duration;

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;
/// Port of the messages that control the other rank.
const CONTROL: u16 = 2;
const TAG: u64 = 5;

/// Long enough to need an answer from the receiver.
const LONG: usize = 1 << 20;

const SHORT: Duration = Duration::from_millis(1);

/// Deadline that is longer than the time to detect a killed process.
const PATIENCE: Duration = Duration::from_secs(90);

/// Calls that only one other process can complete.
const FROM_ONE: [&str; 16] = [
    "recv_from",
    "recv_tagged",
    "wait",
    "wait_any",
    "wait_some",
    "test_any",
    "send",
    "probe_from",
    "probe_tagged",
    "recv_vec_from",
    "call",
    "begun call",
    "barrier",
    "ibarrier",
    "allreduce",
    "broadcast",
];

/// Calls that any other process can complete.
const FROM_ANY: [&str; 6] = [
    "recv",
    "recv_vec",
    "probe",
    "recv_call",
    "wait_notice",
    "wait_until",
];

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT, CONTROL]) else {
        return;
    };
    let role = role().unwrap();
    match role.split_once(' ') {
        None if role == "deadlines" => deadlines(&mut node),
        None => killed_one_by_one(&mut node),
        Some((_, call)) => killed_last(&mut node, call),
    }
    println!("\nrank done");
}

/// Runs a call that only `peer` can complete, optionally with a deadline. Returns `false` if it
/// timed out.
fn from_one(
    node: &mut Node,
    call: &str,
    peer: u32,
    timeout: Option<Duration>,
) -> Result<bool, Error> {
    let mut buf = [0; 8];
    let to = Target::new(peer, PORT);
    let which = TagMatch::new(TAG).source(peer);
    match (call, timeout) {
        ("recv_from", None) => node.recv_from(peer, PORT, &mut buf).map(|_| true),
        ("recv_from", Some(timeout)) => node
            .recv_from_timeout(peer, PORT, &mut buf, timeout)
            .map(|got| got.is_some()),
        ("recv_tagged", None) => node.recv_tagged(which, &mut buf).map(|_| true),
        ("recv_tagged", Some(timeout)) => node
            .recv_tagged_timeout(which, &mut buf, timeout)
            .map(|got| got.is_some()),
        ("probe_from", None) => node.probe_from(peer, PORT).map(|_| true),
        ("probe_from", Some(timeout)) => node
            .probe_from_timeout(peer, PORT, timeout)
            .map(|got| got.is_some()),
        ("probe_tagged", None) => node.probe_tagged(which).map(|_| true),
        ("probe_tagged", Some(timeout)) => node
            .probe_tagged_timeout(which, timeout)
            .map(|got| got.is_some()),
        ("recv_vec_from", _) => node.recv_vec_from::<u8>(peer, PORT).map(|_| true),
        ("call", None) => node.call(to, b"?").wait().map(|_| true),
        ("call", Some(timeout)) => match node.call(to, b"?").timeout(timeout).wait() {
            Err(Error::TimedOut { rank, .. }) if rank == peer => Ok(false),
            ended => ended.map(|_| true),
        },
        ("begun call", timeout) => {
            let request = node.call(to, b"?").begin()?;
            request_of(node, request, timeout)
        }
        ("send", timeout) => {
            let request = node.isend(to, vec![0; LONG])?;
            request_of(node, request, timeout)
        }
        ("wait", timeout) => {
            let request = node.post_recv_from(peer, PORT, vec![0; 8])?;
            request_of(node, request, timeout)
        }
        ("wait_any" | "wait_some" | "test_any", timeout) => any_of(node, call, peer, timeout),
        (collective, _) => collective_of(node, collective, peer).map(|()| true),
    }
}

/// Waits for a request, and cancels it if it has not ended by then.
fn request_of(node: &mut Node, request: Request, timeout: Option<Duration>) -> Result<bool, Error> {
    let Some(timeout) = timeout else {
        return Ok(node.wait(request).map(|_| true)?);
    };
    let ended = node.wait_timeout(request, timeout)?.is_some();
    if !ended {
        assert!(node.cancel(request));
        assert!(matches!(
            Error::from(node.wait(request).unwrap_err()),
            Error::Cancelled
        ));
    }
    Ok(ended)
}

/// Waits for either of two receives. No message is ever sent to one of them.
fn any_of(
    node: &mut Node,
    call: &str,
    peer: u32,
    timeout: Option<Duration>,
) -> Result<bool, Error> {
    let never = node.post_recv_from(node.rank(), PORT, vec![0; 8])?;
    let wanted = node.post_recv_from(peer, PORT, vec![0; 8])?;
    let mut requests = vec![never, wanted];
    let ended = match (call, timeout) {
        (_, Some(timeout)) => node.wait_any_timeout(&mut requests, timeout),
        ("wait_any", None) => node.wait_any(&mut requests),
        ("wait_some", None) => node.wait_some(&mut requests).pop(),
        (_, None) => loop {
            if let Some(ended) = node.test_any(&mut requests) {
                break Some(ended);
            }
        },
    };
    if let Some(ended) = &ended {
        assert_eq!((ended.index, ended.request), (1, wanted));
    }
    for request in requests {
        assert!(node.cancel(request));
        node.wait(request).unwrap_err();
    }
    match ended {
        Some(ended) => {
            let failed = ended.result.unwrap_err();
            let buffer = failed.completion().buffer.as_deref();
            assert_eq!(buffer.map(<[u8]>::len), Some(8), "{failed}");
            Err(failed.into())
        }
        None => Ok(false),
    }
}

fn collective_of(node: &mut Node, call: &str, peer: u32) -> Result<(), Error> {
    let id = u16::try_from(peer).unwrap();
    let group = Group::new(node, id, &[node.rank(), peer])?;
    match call {
        "barrier" => group.barrier(node),
        "ibarrier" => {
            let request = group.ibarrier(node)?;
            node.wait(request)?;
            Ok(())
        }
        "allreduce" => group.allreduce(node, ReduceOp::Sum, &mut [1_u64; 8]),
        "broadcast" => {
            let request = group.ibroadcast(node, 1, vec![0; LONG])?;
            let failed = node.wait(request).unwrap_err();
            let buffer = failed.completion().buffer.as_deref();
            assert_eq!(buffer.map(<[u8]>::len), Some(LONG), "{failed}");
            Err(failed.into())
        }
        other => panic!("no call {other}"),
    }
}

fn from_any(node: &mut Node, call: &str, timeout: Option<Duration>) -> Result<bool, Error> {
    let mut buf = [0; 8];
    match (call, timeout) {
        ("recv", None) => node.recv(PORT, &mut buf).map(|_| true),
        ("recv", Some(timeout)) => node
            .recv_timeout(PORT, &mut buf, timeout)
            .map(|got| got.is_some()),
        ("recv_vec", None) => node.recv_vec::<u8>(PORT).map(|_| true),
        ("recv_vec", Some(timeout)) => node
            .recv_vec_timeout::<u8>(PORT, timeout)
            .map(|got| got.is_some()),
        ("probe", None) => node.probe(PORT).map(|_| true),
        ("probe", Some(timeout)) => node.probe_timeout(PORT, timeout).map(|got| got.is_some()),
        ("recv_call", timeout) => node.recv_call(PORT, timeout).map(|got| got.is_some()),
        ("wait_notice", None) => node.wait_notice().map(|_| true),
        ("wait_notice", Some(timeout)) => {
            node.wait_notice_timeout(timeout).map(|got| got.is_some())
        }
        ("wait_until", None) => node.wait_until(|| false).map(|()| true),
        ("wait_until", Some(timeout)) => node.wait_until_timeout(|| false, timeout),
        (other, _) => panic!("no call {other}"),
    }
}

/// The other rank is silent. All calls of rank 0 with a deadline end there, again and again. Each
/// later call still works.
fn deadlines(node: &mut Node) {
    if node.size() > 1 && node.rank() == 1 {
        return silent(node);
    }
    for _ in 0..3 {
        for call in FROM_ANY {
            assert!(!from_any(node, call, Some(SHORT)).unwrap(), "{call}");
        }
        let has_deadline = |call: &&str| !matches!(*call, "recv_vec_from" | "send" | "wait_some");
        for call in FROM_ONE[..12].iter().filter(|call| has_deadline(call)) {
            if node.size() > 1 {
                assert!(!from_one(node, call, 1, Some(SHORT)).unwrap(), "{call}");
            }
        }
    }
    if node.size() == 1 {
        return;
    }
    let sent = node.isend(Target::new(1, PORT), vec![7; LONG]).unwrap();
    assert!(node.wait_timeout(sent, SHORT).unwrap().is_none());
    let barrier = node.ibarrier().unwrap();
    let sum = node.iallreduce(ReduceOp::Sum, vec![1_u64; 1000]).unwrap();
    let mut requests = vec![barrier, sum, sent];
    assert!(node.wait_any_timeout(&mut requests, SHORT).is_none());
    node.send(Target::new(1, CONTROL), b"").unwrap();
    let mut ended = node.wait_some(&mut requests);
    while let Some(one) = node.wait_any(&mut requests) {
        ended.push(one);
    }
    assert_eq!(ended.len(), 3);
    for one in ended {
        let done = one.result.unwrap();
        match one.request {
            request if request == sum => {
                assert_eq!(done.into_vec::<u64>().unwrap(), vec![2; 1000]);
            }
            request if request == sent => {
                assert_eq!(done.into_vec::<u8>().unwrap(), vec![7; LONG]);
            }
            _ => assert_eq!(done.len, 0),
        }
    }
    node.barrier().unwrap();
}

/// Sends nothing until rank 0 has no more deadlines.
fn silent(node: &mut Node) {
    node.recv(CONTROL, &mut []).unwrap();
    // The requests of the calls that timed out came first.
    loop {
        let (bytes, source) = node.recv_vec::<u8>(PORT).unwrap();
        assert_eq!(source, 0);
        if bytes.len() == LONG {
            break;
        }
        assert_eq!(bytes.len(), 9);
    }
    let barrier = node.ibarrier().unwrap();
    let mut ones = vec![1_u64; 1000];
    node.allreduce(ReduceOp::Sum, &mut ones).unwrap();
    node.wait(barrier).unwrap();
    node.barrier().unwrap();
}

/// Ends this process as soon as rank 0 is about to wait for it.
fn die_on_request(node: &mut Node) {
    node.recv(CONTROL, &mut []).unwrap();
    kill(i32::try_from(std::process::id()).unwrap(), "-9");
}

/// Each rank but rank 0 is killed while rank 0 waits for it in another call.
fn killed_one_by_one(node: &mut Node) {
    if node.rank() > 0 {
        return die_on_request(node);
    }
    for (call, peer) in FROM_ONE.iter().zip(1..) {
        // Odd calls have a deadline, which is later.
        let timeout = (peer % 2 == 1).then_some(PATIENCE);
        node.send(Target::new(peer, CONTROL), b"").unwrap();
        let error = from_one(node, call, peer, timeout).unwrap_err();
        assert!(
            matches!(error, Error::PeerGone { rank, .. } if rank == peer),
            "{call}: {error}"
        );
        let again = from_one(node, call, peer, None).unwrap_err();
        assert!(
            matches!(again, Error::PeerGone { rank, .. } if rank == peer),
            "{call}, again: {again}"
        );
    }
}

/// The only other process is killed while rank 0 waits for any.
fn killed_last(node: &mut Node, call: &str) {
    if node.rank() > 0 {
        // Its message is announced, and can never be received.
        let _pending = node.isend(Target::new(0, CONTROL), vec![0; LONG]).unwrap();
        return die_on_request(node);
    }
    node.send(Target::new(1, CONTROL), b"").unwrap();
    let error = from_any(node, call, Some(PATIENCE)).unwrap_err();
    assert!(matches!(error, Error::NobodyLeft { .. }), "{call}: {error}");
    let again = from_any(node, call, None).unwrap_err();
    assert!(matches!(again, Error::NobodyLeft { .. }), "{call}: {again}");
    let gone = node.recv_vec_timeout::<u8>(CONTROL, PATIENCE).unwrap_err();
    assert!(matches!(gone, Error::NobodyLeft { .. }), "{call}: {gone}");
}

#[test]
fn deadline_ends_each_call() {
    run_ranks(1, "deadlines", &[]).succeeded("one rank");
    for path in ["shm", "udp"] {
        let out = run_ranks(2, "deadlines", &["--path", path]).succeeded(path);
        assert_eq!(out.matches("rank done").count(), 2, "{out}");
    }
}

#[test]
fn killed_process_ends_each_call_that_waits_for_it() {
    let count = u32::try_from(FROM_ONE.len()).unwrap() + 1;
    for path in ["shm", "udp"] {
        let ended = run_ranks(count, "killed", &["--path", path]);
        assert!(
            ended.out.contains("rank done"),
            "{}{}",
            ended.out,
            ended.err
        );
    }
}

#[test]
fn killed_process_ends_each_call_that_waits_for_any() {
    for path in ["shm", "udp"] {
        for call in FROM_ANY {
            let ended = run_ranks(2, &format!("killed {call}"), &["--path", path]);
            assert!(
                ended.out.contains("rank done"),
                "{}{}",
                ended.out,
                ended.err
            );
        }
    }
}
