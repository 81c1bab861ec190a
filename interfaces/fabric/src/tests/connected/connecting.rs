// SPDX-License-Identifier: MIT OR Apache-2.0
//! Successful and failed connection requests.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::c_int;
use std::net::TcpListener;
use std::ptr::null_mut;

use super::harness::{CONTEXT, EventQueue, Server, Side, name_of, query, wait_fd};
use crate::abi::*;
use crate::cm::DATA_LEN_MAX;
use crate::sockaddr;
use crate::tests::harness::{PATIENCE, close, free, is_readable};

#[test]
fn connection_is_reported_to_both_with_data() {
    let server = Server::listening();
    let client = Side::client(&server);
    let question: Vec<u8> = (0..DATA_LEN_MAX).map(|i| i.to_le_bytes()[0]).collect();
    assert_eq!(client.connect(&question), 0);
    let request = server.request(|| client.work());
    assert_eq!(request.data, question);
    let accepted = server.accept(request, b"welcome");
    let got = client.events.wait(|| ()).unwrap();
    assert_eq!((got.event, got.fid), (CONNECTED, client.fid()));
    assert_eq!(got.data, b"welcome");
    // Each endpoint's own address is the peer address of the other.
    let peer = |side: &Side| {
        let (mut bytes, mut len) = ([0u8; 64], 64);
        let out = bytes.as_mut_ptr().cast();
        assert_eq!((side.cm().getpeer)(side.ep, out, &raw mut len), 0);
        // SAFETY: `len` bytes were written.
        unsafe { sockaddr::read(bytes.as_ptr().cast(), len) }.unwrap()
    };
    let own = |side: &Side| name_of(side.fid(), side.cm().getname).unwrap();
    assert_eq!(
        (own(&client), peer(&client)),
        (peer(&accepted), own(&accepted))
    );
    assert_eq!(peer(&client), server.addr());
}

#[test]
fn request_names_sender_and_truncates_data() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(client.connect(b"longer than the buffer"), 0);
    // The event stays in the queue and is read again.
    let begun = std::time::Instant::now();
    let peeked = loop {
        client.events.read(0, 0).unwrap_err();
        if let Ok(got) = server.events.read(6, PEEK) {
            break got;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    let got = server.events.read(6, 0).unwrap();
    assert_eq!(
        (got.info, got.data.as_slice()),
        (peeked.info, &b"longer"[..])
    );
    // SAFETY: information that was passed to the program.
    unsafe {
        let info = &*got.info;
        let asker = sockaddr::read(info.dest_addr, info.dest_addrlen);
        assert_eq!(asker, name_of(client.fid(), client.cm().getname).ok());
        assert_eq!((*info.ep_attr).ep_type, EP_MSG);
        assert_eq!((*info.handle).fclass, CLASS_CONNREQ);
        assert_eq!(server.reject(info.handle, b""), 0);
    }
    free(got.info);
    assert_eq!(client.events.failure(|| ()).0.err, libc::ECONNREFUSED);
}

#[test]
fn rejection_is_a_failure_with_data() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(client.connect(b""), 0);
    let request = server.request(|| client.work());
    // SAFETY: information that was passed to the program.
    let handle = unsafe { (*request.info).handle };
    assert_eq!(server.reject(handle, b"no thanks"), 0);
    let (failure, data) = client.events.failure(|| ());
    assert_eq!(
        (failure.fid, failure.context, failure.err),
        (client.fid(), CONTEXT, libc::ECONNREFUSED)
    );
    assert_eq!(data, b"no thanks");
    // A request can be answered only once.
    assert_eq!(server.reject(handle, b""), -libc::EINVAL);
    free(request.info);
    // The endpoint cannot be used for another connection.
    assert_eq!(client.connect(b""), -EOPBADSTATE);
}

#[test]
fn failure_data_is_copied_to_caller_memory() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(client.connect(b""), 0);
    let request = server.request(|| client.work());
    // SAFETY: as above.
    server.reject(unsafe { (*request.info).handle }, b"no thanks");
    free(request.info);
    assert_eq!(client.events.wait(|| ()).unwrap_err(), -(EAVAIL as isize));
    let mut data = [0xa5u8; 4];
    // SAFETY: an open queue, and storage for the entry and its data.
    unsafe {
        let mut entry: EqErrEntry = std::mem::zeroed();
        (entry.err_data, entry.err_data_size) = (data.as_mut_ptr().cast(), 3);
        let ops = &*(*client.events.eq).ops;
        assert!((ops.readerr)(client.events.eq, &raw mut entry, 0) > 0);
        assert_eq!((entry.err_data_size, &data), (3, b"no \xa5"));
        assert_eq!(
            (ops.readerr)(client.events.eq, &raw mut entry, 0),
            -(libc::EAGAIN as isize)
        );
        let mut words = [0u8; 100];
        let buf = words.as_mut_ptr().cast();
        (ops.strerror)(
            client.events.eq,
            entry.prov_errno,
            null_mut(),
            buf,
            words.len(),
        );
        assert!(words.starts_with(b"Connection refused"));
    }
}

#[test]
fn closing_unaccepted_endpoint_rejects_request() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(client.connect(b""), 0);
    let request = server.request(|| client.work());
    drop(Side::open(&server.events, request.info));
    let (failure, data) = client.events.failure(|| ());
    assert_eq!((failure.err, data.len()), (libc::ECONNREFUSED, 0));
}

#[test]
fn closing_event_queue_rejects_unread_request() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(client.connect(b""), 0);
    let begun = std::time::Instant::now();
    while server.events.read(0, PEEK).is_err() {
        client.events.read(0, 0).unwrap_err();
        assert!(begun.elapsed() < PATIENCE);
    }
    drop(server);
    assert_eq!(client.events.failure(|| ()).0.err, libc::ECONNREFUSED);
}

#[test]
fn connect_without_listener_is_refused() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let info = query(Some(unused.port()), 0, |_| ()).unwrap();
    let client = Side::open(&EventQueue::open(info), info);
    assert_eq!(client.connect(b""), 0);
    let (failure, _) = client.events.failure(|| ());
    assert_eq!(
        (failure.fid, failure.err),
        (client.fid(), libc::ECONNREFUSED)
    );
}

#[test]
fn each_of_many_clients_gets_its_own_endpoint() {
    let server = Server::listening();
    let clients: Vec<Side> = (0..8).map(|_| Side::client(&server)).collect();
    for (at, client) in clients.iter().enumerate() {
        assert_eq!(client.connect(&[u8::try_from(at).unwrap()]), 0);
    }
    let work = || clients.iter().for_each(Side::work);
    let requests: Vec<_> = clients.iter().map(|_| server.request(work)).collect();
    for request in requests {
        let at = usize::from(request.data[0]);
        let accepted = server.accept(request, &[]);
        assert_eq!(clients[at].events.wait(|| ()).unwrap().event, CONNECTED);
        assert_eq!(accepted.send(&[7], 1), 0);
        let mut got = [0];
        assert_eq!(clients[at].recv(&mut got, 2), 0);
        assert_eq!(clients[at].wait(&accepted).ok(), Some(2));
        assert_eq!(got, [7]);
    }
}

#[test]
fn endpoint_uses_address_of_passive_endpoint() {
    let server = Server::listening();
    let source = Server::bound();
    let from = source.addr();
    // SAFETY: an open passive endpoint.
    let handle = unsafe { &raw mut (*source.pep).fid };
    let info = query(Some(server.addr().port()), 0, |hints| hints.handle = handle).unwrap();
    // SAFETY: information that was passed to the program.
    assert_eq!(unsafe { (*info).handle }, handle);
    let client = Side::open(&source.events, info);
    assert_eq!(name_of(client.fid(), client.cm().getname), Ok(from));
    assert_eq!(client.connect(b""), 0);
    let request = server.request(|| client.work());
    // SAFETY: as above.
    let asker = unsafe { sockaddr::read((*request.info).dest_addr, (*request.info).dest_addrlen) };
    assert_eq!(asker, Some(from));
    drop(server.accept(request, b""));
    // The socket was taken and cannot be used again.
    let again = query(Some(server.addr().port()), 0, |hints| hints.handle = handle).unwrap();
    // SAFETY: open objects, and storage for the endpoint, which is not created.
    unsafe {
        let (open, mut ep) = ((*(*client.domain).ops).endpoint, null_mut());
        let code = open(client.domain, again, &raw mut ep, null_mut());
        assert_eq!(code, -libc::EINVAL);
    }
    free(again);
}

#[test]
fn event_queue_descriptor_is_readable_until_read() {
    let server = Server::listening();
    let client = Side::client(&server);
    // SAFETY: an open queue.
    let fid = unsafe { &raw mut (*server.events.eq).fid };
    let fd = wait_fd(fid);
    let trywait = || server.events.trywait(fid);
    let readable = |timeout_ms| c_int::from(is_readable(fd, timeout_ms));
    assert_eq!((trywait(), readable(0)), (0, 0));
    assert_eq!(client.connect(b""), 0);
    let begun = std::time::Instant::now();
    while readable(1) == 0 {
        client.work();
        client.events.read(0, 0).unwrap_err();
        assert!(begun.elapsed() < PATIENCE);
    }
    let request = server.request(|| client.work());
    assert_eq!((trywait(), readable(0)), (0, 0));
    let accepted = server.accept(request, b"");
    // An event queue that is in use cannot be closed.
    // SAFETY: an open queue, which stays open.
    assert_eq!(unsafe { close(fid) }, -libc::EBUSY);
    drop(accepted);
}
