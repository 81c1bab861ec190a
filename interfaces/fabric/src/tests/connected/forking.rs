// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child's operations on its copies do not affect the parent.

#![allow(unsafe_code, reason = "forks, and calls as C does")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::harness::{AGAIN, ReadEvent, Server, Side, runs_in_own_process, wait_fd};
use crate::abi::*;
use crate::tests::harness::{PATIENCE, is_readable};

/// Runs `work`, which must not panic, in a forked child that exits with `_exit`.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the process has no other thread that could hold a lock; the child ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: the call has no preconditions.
        unsafe { libc::_exit(i32::from(done.is_err())) }
    }
    let mut status = -1;
    // SAFETY: `status` is on the stack.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(ended, child);
    assert_eq!(status, 0, "the child has failed");
}

/// Creates two requesters: the request of one was read, that of the other is in the queue.
fn requesting_clients(server: &Server) -> (Side, ReadEvent, Side) {
    let (read, unread) = (Side::client(server), Side::client(server));
    assert_eq!(read.connect(b"read"), 0);
    let request = server.request(|| read.work());
    assert_eq!(
        (request.data.as_slice(), unread.connect(b"")),
        (&b"read"[..], 0)
    );
    let begun = std::time::Instant::now();
    while server.events.read(0, PEEK).is_err() {
        unread.events.read(0, 0).unwrap_err();
        assert!(begun.elapsed() < PATIENCE);
    }
    (read, request, unread)
}

#[test]
fn close_in_forked_child_does_not_affect_parent() {
    if !runs_in_own_process(
        "tests::connected::forking::close_in_forked_child_does_not_affect_parent",
    ) {
        return;
    }
    let server = Server::listening();
    let (client, accepted) = Side::pair(&server);
    let fd = wait_fd(accepted.queue());
    let (read, request, unread) = requesting_clients(&server);
    in_a_child(|| {
        let refused = -(EOPBADSTATE as isize);
        assert_eq!(server.events.read(0, 0).unwrap_err(), refused);
        // SAFETY: information that was passed to the program.
        let handle = unsafe { (*request.info).handle };
        assert_eq!(server.reject(handle, b""), -EOPBADSTATE);
        // SAFETY: the child's copies, which the child does not use afterwards.
        drop(unsafe { (ptr::read(&raw const accepted), ptr::read(&raw const server)) });
    });
    // No end of the connection and no rejection is reported.
    assert_eq!(client.events.read(0, 0).unwrap_err(), AGAIN);
    let next = server.request(|| ());
    drop(server.accept(next, b""));
    drop(server.accept(request, b""));
    for asker in [&read, &unread] {
        assert_eq!(asker.events.wait(|| ()).unwrap().event, CONNECTED);
    }
    // The queue wakes for messages, and the manager for disconnects and new callers.
    let mut byte = [0];
    assert_eq!(accepted.recv(&mut byte, 1), 0);
    while accepted.events.trywait(accepted.queue()) != 0 {
        client.work();
    }
    assert_eq!(client.send(b"x", 2), 0);
    let patience_ms = i32::try_from(PATIENCE.as_millis()).unwrap();
    assert!(is_readable(fd, patience_ms));
    assert_eq!(accepted.wait(&client).ok(), Some(1));
    drop(client);
    let end = server.events.wait(|| ()).unwrap();
    assert_eq!((end.event, end.fid), (SHUTDOWN, accepted.fid()));
    drop(Side::pair(&server));
}
