// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a process that forks after it has joined: every call of its child is refused, and the
//! parent is not affected. `P9.10`

#![allow(unsafe_code, reason = "forks")]

use crate::common::payload::{check, payload};
use crate::common::ranks::{joined, role};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use portolan::binding::{Cookie, Endpoint, RawPiece, RawRecv, RawSend, RawSpace, SubmitError};
use portolan::{EndpointConfig, Error, Node, PortConfig, TagMatch, Target};

ranks_of_this_module!(run_ranks);

const PORT: u16 = 1;
const OWN_PORT: u16 = 2;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    let other = 1 - node.rank();
    exchange(&mut node, other, 0);
    let waiting = node.post_recv_from(other, PORT, vec![0xa5; 8]).unwrap();
    if role().as_deref() == Some("fork") {
        node = fork_child_that_drops(node, |mut node| {
            let refused = |result: Result<(), Error>| matches!(result, Err(Error::Forked));
            let to = Target::new(other, PORT);
            let all = [
                refused(node.send(to, b"x")),
                refused(node.send(to, &[7; 300_000])),
                refused(node.isend(to, vec![1; 100_000]).map(drop)),
                refused(node.isend_copy(to, b"x")),
                refused(node.recv(PORT, &mut [0; 8]).map(drop)),
                refused(node.recv(PORT, &mut [0; 80_000]).map(drop)),
                refused(node.recv_from(other, PORT, &mut [0; 8]).map(drop)),
                refused(node.post_recv(PORT, vec![0; 8]).map(drop)),
                refused(node.recv_tagged(TagMatch::new(5), &mut [0; 8]).map(drop)),
                refused(node.test(waiting).map(drop).map_err(Error::from)),
                refused(node.wait(waiting).map(drop).map_err(Error::from)),
                refused(node.barrier()),
                refused(node.arm().map(drop)),
                refused(node.progress().map(drop)),
                refused(node.wait_until(|| false)),
            ];
            node.disarm();
            node.flush();
            all.iter().all(|refused| *refused)
        });
    }
    node.send(Target::new(other, PORT), &[3; 8]).unwrap();
    assert_eq!(
        node.wait(waiting).unwrap().buffer.unwrap().into_vec(),
        [3; 8]
    );
    for index in 1..200 {
        exchange(&mut node, other, index);
    }
    node.barrier().unwrap();
    println!("\nlives on");
}

fn exchange(node: &mut Node, other: u32, index: u32) {
    for len in [40, 70_000] {
        let receive = node.post_recv_from(other, PORT, vec![0xa5; len]).unwrap();
        let bytes = payload(node.rank(), 1, index, len);
        let send = node.isend(Target::new(other, PORT), bytes).unwrap();
        let done = node.wait(receive).unwrap();
        check(&done.buffer.unwrap(), other, 1, index, len);
        node.wait(send).unwrap();
    }
}

/// Lets a child do `work` with the given value and drop it, and returns the value to the parent.
fn fork_child_that_drops<T>(owned: T, work: impl FnOnce(T) -> bool) -> T {
    // SAFETY: the test runs by itself in its process; the child ends by `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(owned)));
            let status = if matches!(done, Ok(true)) { 0 } else { 1 };
            // SAFETY: has no conditions; nothing of the test harness runs in the child.
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).unwrap();
            assert_eq!(
                ended,
                WaitStatus::Exited(child, 0),
                "the child was not refused"
            );
            owned
        }
    }
}

#[test]
fn forked_child_is_refused_and_its_parent_continues() {
    for path in ["shm", "udp"] {
        let out = run_ranks(2, "fork", &["--path", path]).succeeded(path);
        assert_eq!(out.matches("lives on").count(), 2, "{out}");
    }
}

/// Tests the same between endpoints, here both in one process.
#[test]
fn a_forked_child_is_refused_by_endpoints_too() {
    let open = || Endpoint::open(&EndpointConfig::default()).unwrap();
    let (mut a, mut b) = (open(), open());
    let to_b = a.insert(&b.address()).unwrap();
    let send = RawSend {
        space: RawSpace::Plain,
        imm: None,
        delivered: false,
    };
    let which = RawRecv {
        space: RawSpace::Plain,
        ignore: 0,
        source: None,
    };
    let mut pass = |a: &mut Endpoint, byte: u8| {
        let mut got = [0];
        let piece = RawPiece {
            ptr: got.as_mut_ptr(),
            len: 1,
        };
        // SAFETY: `got` outlives the receive, as its completion is waited for below.
        unsafe { b.recv(&which, &[piece], Cookie::new(1)) }.unwrap();
        a.inject(to_b, &send, &[byte]).unwrap();
        let mut done = false;
        while !done {
            a.poll(&mut |_| {});
            b.poll(&mut |completion| done |= completion.cookie.context == 1);
        }
        assert_eq!(got[0], byte);
    };
    pass(&mut a, 1);
    a = fork_child_that_drops(a, |mut a| {
        let sent = a.inject(to_b, &send, b"x");
        let is_silent = a.poll(&mut |_| panic!("a completion")) == 0;
        sent == Err(SubmitError::Forked) && is_silent && !a.arm() && a.is_forked()
    });
    assert!(!a.is_forked());
    for byte in 2..100 {
        pass(&mut a, byte);
    }
}

/// A process may fork first and then join, even if its parent has joined before.
#[test]
fn a_child_joins_a_job_of_its_own() {
    let parent = fork_child_that_drops(Node::join().unwrap(), |parents| {
        drop(parents);
        let mut own = Node::join().unwrap();
        own.open(OWN_PORT, PortConfig::default()).unwrap();
        own.send(Target::new(0, OWN_PORT), b"x").unwrap();
        own.recv(OWN_PORT, &mut [0]).is_ok()
    });
    drop(parent);
}
