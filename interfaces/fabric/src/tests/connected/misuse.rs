// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls at the wrong time, or with invalid arguments.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use super::harness::{EventQueue, NOT_CONNECTED, Server, Side, query};
use crate::abi::*;
use crate::cm::DATA_LEN_MAX;
use crate::tests::harness::{Party, Plan, close, free, ok};

#[test]
fn send_before_connection_is_refused() {
    let server = Server::listening();
    let client = Side::client(&server);
    let bytes = *b"early";
    // SAFETY: an open endpoint, whose tables are static. All calls fail, so no pointer is stored.
    unsafe {
        let (ep, buf) = (client.ep, bytes.as_ptr().cast::<c_void>());
        let (msg, rma) = (&*(*ep).msg, &*(*ep).rma);
        let tagged = &*(*ep).tagged;
        let codes = [
            client.send(&bytes, 0),
            (msg.inject)(ep, buf, 5, 0),
            (tagged.send)(ep, buf, 5, null_mut(), 0, 1, null_mut()),
            (rma.write)(ep, buf, 5, null_mut(), 0, 0, 0, null_mut()),
            (rma.read)(ep, buf.cast_mut(), 5, null_mut(), 0, 0, 0, null_mut()),
        ];
        assert_eq!(codes, [NOT_CONNECTED; 5]);
    }
    assert_eq!(client.shutdown(), -libc::ENOTCONN);
    let (mut bytes, mut len) = ([0u8; 64], 64);
    let out = bytes.as_mut_ptr().cast();
    let code = (client.cm().getpeer)(client.ep, out, &raw mut len);
    assert_eq!(code, -libc::ENOTCONN);
}

#[test]
fn endpoint_without_event_queue_cannot_connect() {
    let server = Server::listening();
    let info = query(Some(server.addr().port()), 0, |_| ()).unwrap();
    let client = Side::unbound(&EventQueue::open(info), info);
    assert_eq!((client.enable(), client.connect(b"")), (-ENOEQ, -ENOEQ));
    assert_eq!((client.bind_eq(), client.enable()), (0, 0));
    assert_eq!(client.bind_eq(), -EOPBADSTATE, "it has one");
}

#[test]
fn endpoint_connects_once() {
    let server = Server::listening();
    let client = Side::client(&server);
    assert_eq!(client.accept(b""), -EOPBADSTATE, "there is no request");
    assert_eq!(client.connect(b""), 0);
    assert_eq!(client.connect(b""), -libc::EALREADY);
    let request = server.request(|| client.work());
    // SAFETY: information that was passed to the program.
    let handle = unsafe { (*request.info).handle };
    let accepted = Side::open(&server.events, request.info);
    assert_eq!(accepted.connect(b""), -EOPBADSTATE, "it has a request");
    assert_eq!(
        server.reject(handle, b""),
        -libc::EINVAL,
        "it has an endpoint"
    );
    assert_eq!(
        (accepted.accept(b""), accepted.accept(b"")),
        (0, -EOPBADSTATE)
    );
    assert_eq!(client.events.wait(|| ()).unwrap().event, CONNECTED);
    assert_eq!(client.connect(b""), -libc::EISCONN);
    let addr = [0u8; 16];
    let setname = |addr: *const u8| (client.cm().setname)(client.fid(), addr.cast_mut().cast(), 16);
    assert_eq!(setname(addr.as_ptr()), -libc::EINVAL, "of no family");
}

#[test]
fn invalid_data_and_addresses_are_refused() {
    let server = Server::listening();
    let client = Side::client(&server);
    let long = [0; DATA_LEN_MAX + 1];
    assert_eq!(client.connect(&long), -libc::EINVAL);
    assert_eq!(client.accept(&long), -libc::EINVAL);
    assert_eq!(server.reject(null_mut(), &long), -libc::EINVAL);
    assert_eq!(
        server.reject(client.fid(), b""),
        -libc::EINVAL,
        "no request"
    );
    let connect = |addr: *const c_void| (client.cm().connect)(client.ep, addr, null(), 0);
    assert_eq!(connect(null()), -libc::EINVAL);
    assert_eq!(connect([0u8; 64].as_ptr().cast()), -libc::EINVAL);
}

#[test]
fn passive_endpoint_listens_once() {
    let server = Server::bound();
    // SAFETY: an open passive endpoint, whose tables are static.
    let (fid, cm, ops) = unsafe {
        let fid = &raw mut (*server.pep).fid;
        (fid, &*(*server.pep).cm, &*(*fid).ops)
    };
    let backlog = |mut count: c_int| (ops.control)(fid, BACKLOG, (&raw mut count).cast());
    assert_eq!((backlog(-1), backlog(7)), (-libc::EINVAL, 0));
    assert_eq!((ops.control)(fid, ENABLE, null_mut()), -libc::ENOSYS);
    assert_eq!((server.listen(), server.listen()), (0, -EOPBADSTATE));
    assert_eq!(backlog(7), -libc::EINVAL, "it listens");
    let taken = crate::sockaddr::CAddr::of(&server.addr());
    let (addr, len) = (
        taken.bytes().as_ptr().cast_mut().cast(),
        taken.bytes().len(),
    );
    assert_eq!((cm.setname)(fid, addr, len), -libc::EBUSY);
    let other = Server::bound();
    // SAFETY: as above.
    let code = unsafe { ((*(*other.pep).cm).setname)(&raw mut (*other.pep).fid, addr, len) };
    assert_eq!(code, -libc::EADDRINUSE);
    // SAFETY: an open queue.
    let eq = unsafe { &raw mut (*server.events.eq).fid };
    assert_eq!((ops.bind)(fid, eq, 0), -EOPBADSTATE, "it has one");
    assert_eq!((ops.bind)(fid, fid, 0), -libc::EINVAL, "no event queue");
}

#[test]
fn passive_endpoint_without_event_queue_does_not_listen() {
    let info = query(None, 0, |_| ()).unwrap();
    let events = EventQueue::open(info);
    let mut pep = null_mut();
    // SAFETY: open objects, and storage for another.
    unsafe {
        let open = (*(*events.fabric).ops).passive_ep;
        ok(open(events.fabric, info, &raw mut pep, null_mut()));
        assert_eq!(((*(*pep).cm).listen)(pep), -ENOEQ);
        ok(close(&raw mut (*pep).fid));
        (*(*info).ep_attr).ep_type = EP_RDM;
        assert_eq!(
            open(events.fabric, info, &raw mut pep, null_mut()),
            -libc::ENOSYS
        );
    }
    free(info);
}

#[test]
fn connected_endpoint_options_are_supported() {
    let server = Server::listening();
    let client = Side::client(&server);
    let rdm = Party::open(Plan::default());
    let (mut value, mut len) = (0usize, size_of::<usize>());
    let mut option = |ops: *const OpsEp, fid: *mut Fid, name| {
        let out = (&raw mut value).cast();
        // SAFETY: an open object, and storage for the value.
        let code = unsafe { ((*ops).getopt)(fid, OPT_ENDPOINT, name, out, &raw mut len) };
        (code, value)
    };
    // SAFETY: open objects, whose tables are static.
    let (pep, ep, other) = unsafe {
        let pep = server.pep;
        let pep = ((*pep).ops, &raw mut (*pep).fid);
        (
            pep,
            ((*client.ep).ops, client.fid()),
            ((*rdm.ep).ops, &raw mut (*rdm.ep).fid),
        )
    };
    assert_eq!(option(pep.0, pep.1, OPT_CM_DATA_SIZE), (0, DATA_LEN_MAX));
    assert_eq!(option(ep.0, ep.1, OPT_CM_DATA_SIZE), (0, DATA_LEN_MAX));
    assert_eq!(
        option(pep.0, pep.1, OPT_MIN_MULTI_RECV).0,
        -libc::ENOPROTOOPT
    );
    assert_eq!(
        option(other.0, other.1, OPT_CM_DATA_SIZE).0,
        -libc::ENOPROTOOPT
    );
    // SAFETY: open objects of two kinds.
    unsafe {
        let bind = (*(*client.fid()).ops).bind;
        assert_eq!(bind(client.fid(), &raw mut (*rdm.av).fid, 0), -libc::EINVAL);
        let cm = &*(*rdm.ep).cm;
        assert_eq!((cm.connect)(rdm.ep, null(), null(), 0), -libc::ENOSYS);
    }
}
