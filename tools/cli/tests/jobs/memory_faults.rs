// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of operations on memory that is unmapped or protected: both ends get an error that names
//! the memory, and the same processes continue.

use crate::common::can_make_labs;
use crate::common::payload::{check, payload};
use crate::common::ranks::joined;
use nix::libc;
use portolan::{
    Access, Buffer, Error, Node, RemoteFault, RemoteKey, RemoteTarget, TagMatch, TagTarget, Target,
};
use std::ptr;

ranks_of_this_module!(run_clean);

const PORT: u16 = 1;
const SIDE_PORT: u16 = 2;

/// Lengths of puts and gets: in a frame, in several frames, and by a transfer.
const LENS: [usize; 3] = [8, 20_000, 300_000];

/// Length of a message that needs a receive.
const LONG: usize = 100_000;

/// Length of a transfer during which memory is unmapped.
const HUGE: usize = 64_000_000;

/// Rights to pages.
const NOTHING: i32 = libc::PROT_NONE;
const READING: i32 = libc::PROT_READ;
const WRITING: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Pages that the test maps, protects and unmaps.
struct Pages {
    at: *mut u8,
    len: usize,
}

#[allow(
    unsafe_code,
    reason = "what is tested is memory that may not be accessed"
)]
impl Pages {
    fn new(len: usize) -> Pages {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: maps new pages.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, WRITING, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let at = at.cast();
        Pages { at, len }
    }

    fn protected(len: usize, rights: i32) -> Pages {
        let pages = Pages::new(len);
        pages.protect(rights);
        pages
    }

    fn protect(&self, rights: i32) {
        // SAFETY: changes the rights to pages of this test, which only the library accesses.
        let failed = unsafe { libc::mprotect(self.at.cast(), self.len, rights) };
        assert_eq!(failed, 0);
    }

    /// Replaces the pages by some that may not be accessed. Nothing else is mapped there.
    fn unmap(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces pages of this test, which only the library accesses.
        let at = unsafe { libc::mmap(self.at.cast(), self.len, NOTHING, flags, -1, 0) };
        assert_eq!(at, self.at.cast());
    }

    /// Lends `len` bytes by address.
    fn expose(&self, len: usize) -> Buffer {
        assert!(len <= self.len);
        // SAFETY: the bytes stay reserved for the library until the test has ended. That it cannot
        // access them is what is tested.
        unsafe { Buffer::from_raw_mut(self.at, len) }
    }
}

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT, SIDE_PORT]) else {
        return;
    };
    for scene in [
        receives,
        tagged_receives,
        sends,
        puts,
        gets,
        gets_from_a_region,
        vanishing_receive,
        vanishing_send,
    ] {
        scene(&mut node);
        exchange(&mut node);
    }
    println!("\nall scenes done");
}

/// Passes a message each way: nothing is broken.
fn exchange(node: &mut Node) {
    let (own, other) = (node.rank(), 1 - node.rank());
    let sent = payload(own, 0, 0, LONG);
    let request = node
        .post_recv_from(other, SIDE_PORT, vec![0; LONG])
        .unwrap();
    let send = node.isend(Target::new(other, SIDE_PORT), sent).unwrap();
    let done = node.wait(request).unwrap();
    check(&done.buffer.unwrap(), other, 0, 0, LONG);
    node.wait(send).unwrap();
    node.barrier().unwrap();
}

fn is_peer_fault(node: &Node, error: &Error) -> bool {
    matches!(error, Error::PeerFault { rank, .. } if *rank == 1 - node.rank())
}

/// Rank 1 receives into memory that it may not write.
fn receives(node: &mut Node) {
    if node.rank() == 0 {
        let error = node.send(Target::new(1, PORT), &vec![7; LONG]).unwrap_err();
        assert!(is_peer_fault(node, &error), "{error}");
        return;
    }
    let pages = Pages::protected(LONG, READING);
    let request = node.post_recv_from(0, PORT, pages.expose(LONG)).unwrap();
    let error = Error::from(node.wait(request).unwrap_err());
    let wanted = matches!(
        error,
        Error::Fault {
            operation: "receive",
            access: "written"
        }
    );
    assert!(wanted, "{error}");
}

fn tagged_receives(node: &mut Node) {
    if node.rank() == 0 {
        let error = node
            .send_tagged(TagTarget::new(1, 5), &vec![7; LONG])
            .unwrap_err();
        assert!(is_peer_fault(node, &error), "{error}");
        return;
    }
    let pages = Pages::protected(LONG, READING);
    let request = node
        .post_recv_tagged(TagMatch::new(5), pages.expose(LONG))
        .unwrap();
    let error = Error::from(node.wait(request).unwrap_err());
    assert!(matches!(error, Error::Fault { .. }), "{error}");
}

/// Rank 0 sends memory that it may not read.
fn sends(node: &mut Node) {
    if node.rank() == 1 {
        for _ in 0..2 {
            let request = node.post_recv_from(0, PORT, vec![0; LONG]).unwrap();
            let error = Error::from(node.wait(request).unwrap_err());
            assert!(is_peer_fault(node, &error), "{error}");
        }
        return;
    }
    let pages = Pages::protected(LONG, NOTHING);
    for _ in 0..2 {
        let request = node
            .isend(Target::new(1, PORT), pages.expose(LONG))
            .unwrap();
        let error = Error::from(node.wait(request).unwrap_err());
        let wanted = matches!(
            error,
            Error::Fault {
                operation: "send",
                access: "read"
            }
        );
        assert!(wanted, "{error}");
    }
}

/// Sends the key of a region to the other rank.
fn send_key(node: &mut Node, key: RemoteKey) {
    let to = Target::new(1 - node.rank(), SIDE_PORT);
    node.send(to, &key.to_bytes()).unwrap();
}

fn receive_key(node: &mut Node) -> RemoteKey {
    let mut key = [0; 8];
    node.recv_from(1 - node.rank(), SIDE_PORT, &mut key)
        .unwrap();
    RemoteKey::from_bytes(key)
}

fn refusal(result: Result<(), Error>) -> RemoteFault {
    match result {
        Err(Error::RemoteRefused { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

/// Rank 0 puts into regions of rank 1 that were protected or unmapped after they were registered.
fn puts(node: &mut Node) {
    for len in LENS {
        for rights in [READING, NOTHING] {
            if node.rank() == 0 {
                let key = receive_key(node);
                let to = RemoteTarget::new(1, key, 0);
                for notified in [to, to.notify(1)] {
                    let fault = refusal(node.put(notified, &vec![1; len]));
                    assert_eq!(fault, RemoteFault::Inaccessible, "{len}");
                }
                node.barrier().unwrap();
                continue;
            }
            let pages = Pages::new(len);
            let region = node.register(pages.expose(len), Access::WRITE).unwrap();
            match rights {
                NOTHING => pages.unmap(),
                rights => pages.protect(rights),
            }
            send_key(node, region.key());
            node.barrier().unwrap();
            assert_eq!(node.next_notice().unwrap(), None);
            let _ = node.deregister(region);
        }
    }
}

/// Rank 0 gets into memory that it may not write.
fn gets(node: &mut Node) {
    for len in LENS {
        if node.rank() == 1 {
            let region = node.register(vec![3; len], Access::READ).unwrap();
            send_key(node, region.key());
            node.barrier().unwrap();
            let _ = node.deregister(region);
            continue;
        }
        let pages = Pages::protected(len, READING);
        let key = receive_key(node);
        for _ in 0..2 {
            let request = node.iget(RemoteTarget::new(1, key, 0), pages.expose(len));
            let error = Error::from(node.wait(request.unwrap()).unwrap_err());
            let wanted = matches!(
                error,
                Error::Fault {
                    operation: "get",
                    access: "written"
                }
            );
            assert!(wanted, "{len}: {error}");
        }
        node.barrier().unwrap();
    }
}

/// Rank 0 gets from a region of rank 1 that was unmapped.
fn gets_from_a_region(node: &mut Node) {
    for len in LENS {
        if node.rank() == 0 {
            let key = receive_key(node);
            let mut bytes = vec![0; len];
            let result = node.get(RemoteTarget::new(1, key, 0), &mut bytes);
            match result {
                Err(Error::PeerFault { rank: 1, .. }) => {}
                other => assert_eq!(refusal(other), RemoteFault::Inaccessible, "{len}"),
            }
            node.barrier().unwrap();
            continue;
        }
        let pages = Pages::new(len);
        let region = node.register(pages.expose(len), Access::READ).unwrap();
        pages.unmap();
        send_key(node, region.key());
        node.barrier().unwrap();
        let _ = node.deregister(region);
    }
}

/// Rank 1 unmaps the memory of a receive while the message arrives.
fn vanishing_receive(node: &mut Node) {
    if node.rank() == 0 {
        let error = node.send(Target::new(1, PORT), &vec![7; HUGE]).err();
        assert!(error.is_none_or(|error| is_peer_fault(node, &error)));
        return;
    }
    let pages = Pages::new(HUGE);
    let request = node.post_recv_from(0, PORT, pages.expose(HUGE)).unwrap();
    let error = vanish(node, &pages, request);
    assert!(
        matches!(error, None | Some(Error::Fault { .. })),
        "{error:?}"
    );
}

/// Rank 0 unmaps the memory of a send while the message leaves.
fn vanishing_send(node: &mut Node) {
    if node.rank() == 1 {
        let request = node.post_recv_from(0, PORT, vec![0; HUGE]).unwrap();
        let error = node.wait(request).err().map(Error::from);
        assert!(error.is_none_or(|error| is_peer_fault(node, &error)));
        return;
    }
    let pages = Pages::new(HUGE);
    let request = node
        .isend(Target::new(1, PORT), pages.expose(HUGE))
        .unwrap();
    let error = vanish(node, &pages, request);
    assert!(
        matches!(error, None | Some(Error::Fault { .. })),
        "{error:?}"
    );
}

/// Unmaps pages after some calls, and returns the error of their operation, if it had one. On
/// shared memory it may have completed by then.
fn vanish(node: &mut Node, pages: &Pages, request: portolan::Request) -> Option<Error> {
    for _ in 0..100 {
        match node.test(request) {
            Ok(None) => {}
            Ok(Some(_)) => return None,
            Err(error) => return Some(error.into()),
        }
    }
    pages.unmap();
    node.wait(request).err().map(Error::from)
}

fn play(args: &[&str]) {
    let what = format!("memory faults, {args:?}");
    let out = run_clean(2, "faults", args).succeeded(&what);
    assert_eq!(out.matches("all scenes done").count(), 2, "{what}: {out}");
}

/// Paths between the ranks; those in a lab are last.
const WAYS: [&[&str]; 6] = [
    &["--path", "shm"],
    &["--path", "udp", "--option", "frame_len_max=1472"],
    &[
        "--path",
        "udp",
        "--option",
        "frame_len_max=1472",
        "--option",
        "auth=aead",
    ],
    &["--new-lab", "2", "--path", "udp", "--option", "stream=off"],
    &["--new-lab", "2", "--path", "udp", "--option", "stream=on"],
    &[
        "--new-lab",
        "2",
        "--path",
        "packet",
        "--option",
        "stream=off",
    ],
];

#[test]
fn memory_that_cannot_be_accessed_fails_both_ends_on_one_host() {
    for way in &WAYS[..3] {
        play(way);
    }
}

#[test]
fn memory_that_cannot_be_accessed_fails_both_ends_on_two_hosts() {
    if can_make_labs() {
        for way in &WAYS[3..] {
            play(way);
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn memory_faults_end_every_time() {
    let ways = if can_make_labs() {
        &WAYS[..]
    } else {
        &WAYS[..3]
    };
    for _ in 0..100 {
        for way in ways {
            play(way);
        }
    }
}
