// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a rank that is killed while the other one is in a blocking call, for every such call.

use crate::common::ranks::{joined, role};
use crate::common::{can_make_labs, kill};
use portolan::{
    Access, AtomicOp, Error, Node, ReduceOp, Registration, RemoteKey, RemoteTarget, TagMatch,
    TagTarget, Target,
};
use std::time::Duration;

ranks_of_this_module!(run_clean);

const PORT: u16 = 1;
const SIDE_PORT: u16 = 2;

/// Time from the victim's last message until it is killed; the other rank is in its call by then.
const DELAY: Duration = Duration::from_millis(300);

/// Long enough to need an answer from the receiver.
const LONG: usize = 3_000_000;

type Call = fn(&mut Node, RemoteTarget) -> Result<(), Error>;

/// Every call that waits for another process, with arguments that make it wait for rank 1.
const CALLS: &[(&str, Call)] = &[
    ("send", |node, _| {
        node.send(Target::new(1, PORT), &vec![7; LONG])
    }),
    ("send_gather", |node, _| {
        node.send_gather(Target::new(1, PORT), &[&vec![7; LONG], b"end"])
    }),
    ("send_tagged", |node, _| {
        node.send_tagged(TagTarget::new(1, 5), &vec![7; LONG])
    }),
    ("recv", |node, _| node.recv(PORT, &mut [0; 8]).map(drop)),
    ("recv_from", |node, _| {
        node.recv_from(1, PORT, &mut [0; 8]).map(drop)
    }),
    ("recv_tagged", |node, _| {
        node.recv_tagged(TagMatch::new(5).source(1), &mut [0; 8])
            .map(drop)
    }),
    ("recv_tagged, any source", |node, _| {
        node.recv_tagged(TagMatch::new(5), &mut [0; 8]).map(drop)
    }),
    ("peek", |node, _| {
        repeat(|| {
            node.peek(TagMatch::new(5).source(1))
                .map(|got| got.is_some())
        })
    }),
    ("claim", |node, _| {
        repeat(|| {
            node.claim(TagMatch::new(5).source(1))
                .map(|got| got.is_some())
        })
    }),
    ("wait, send", |node, _| {
        let request = node.isend(Target::new(1, PORT), vec![7; LONG])?;
        Ok(node.wait(request).map(drop)?)
    }),
    ("wait, receive", |node, _| {
        let request = node.post_recv_from(1, PORT, vec![0; 8])?;
        Ok(node.wait(request).map(drop)?)
    }),
    ("test", |node, _| {
        let request = node.post_recv_from(1, PORT, vec![0; 8])?;
        repeat(|| Ok(node.test(request)?.is_some()))
    }),
    ("wait_until", |node, _| node.wait_until(|| false)),
    ("wait_notice", |node, _| node.wait_notice().map(drop)),
    ("next_notice", |node, _| {
        repeat(|| {
            let _ = node.progress()?;
            node.next_notice().map(|notice| notice.is_some())
        })
    }),
    // The library may complete one of these while the victim sleeps.
    ("put", |node, place| {
        let bytes = vec![1; LONG];
        repeat(|| node.put(place, &bytes).map(|()| false))
    }),
    ("get", |node, place| {
        let mut bytes = vec![0; LONG];
        repeat(|| node.get(place, &mut bytes).map(|()| false))
    }),
    ("atomic", |node, place| {
        repeat(|| node.atomic(place, AtomicOp::Sum, &[1_u64]).map(|()| false))
    }),
    ("barrier", |node, _| node.barrier()),
    ("broadcast", |node, _| node.broadcast(1, &mut [0; 8])),
    ("allreduce", |node, _| {
        node.allreduce(ReduceOp::Sum, &mut [1_u64])
    }),
    ("reduce", |node, _| {
        node.reduce(0, ReduceOp::Sum, &mut [1_u64])
    }),
];

/// Repeats a call that does not wait until it has a result.
fn repeat(mut call: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    while !call()? {
        std::thread::yield_now();
    }
    Ok(())
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT, SIDE_PORT]) else {
        return;
    };
    if node.rank() == 1 {
        let _region = serve(&mut node);
        std::thread::sleep(DELAY);
        kill(i32::try_from(std::process::id()).unwrap(), "-9");
    }
    let mut key = [0; 8];
    node.recv_from(1, SIDE_PORT, &mut key).unwrap();
    let place = RemoteTarget::new(1, RemoteKey::from_bytes(key), 0);
    let role = role().unwrap();
    let (_, call) = CALLS.iter().find(|(name, _)| *name == role).unwrap();
    let error = call(&mut node, place).expect_err("the victim completes nothing");
    let is_named = match error {
        Error::PeerGone { rank: 1, .. } => true,
        // Of calls that any process could have ended.
        Error::NobodyLeft { others: 1 } => true,
        _ => false,
    };
    assert!(is_named, "{error}");
    println!("\nnoticed: {error}");
}

/// Registers memory and sends its key.
fn serve(node: &mut Node) -> Registration {
    let region = node.register(vec![0; LONG], Access::BOTH).unwrap();
    node.send(Target::new(0, SIDE_PORT), &region.key().to_bytes())
        .unwrap();
    region
}

fn kill_in_each_call(way: &[&str]) {
    for (call, _) in CALLS {
        let ended = run_clean(2, call, way);
        let shown = format!("{call}, {way:?}\n{}\n{}", ended.out, ended.err);
        assert_eq!(ended.status, 137, "{shown}");
        assert!(ended.out.contains("[0] noticed: "), "{shown}");
    }
}

#[test]
fn a_killed_rank_ends_every_blocking_call() {
    kill_in_each_call(&["--path", "shm"]);
}

#[test]
#[ignore = "takes a minute"]
fn a_killed_rank_ends_every_blocking_call_on_every_path() {
    kill_in_each_call(&["--path", "udp"]);
    if can_make_labs() {
        for path in ["auto", "udp", "packet"] {
            kill_in_each_call(&["--new-lab", "2", "--path", path]);
        }
    }
}
