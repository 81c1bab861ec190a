// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between two programs.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::harness::{Party, Plan};
use crate::abi::*;

const TAG: u64 = 0xfeed_0000_0000_0001;

#[test]
fn message_that_came_before_its_receive_is_kept() {
    let (a, b) = Party::pair(Plan::default());
    a.retry(|| (a.tagged().inject)(a.ep, b"early".as_ptr().cast(), 5, 0, TAG));
    for _ in 0..1000 {
        a.work();
        b.work();
    }
    let mut buf = [0; 5];
    b.trecv(&mut buf, 0, TAG, 0, 1);
    assert_eq!(b.wait(&a).len, 5);
    assert_eq!(&buf, b"early");
}

#[test]
fn long_message_is_gathered_and_arrives_whole() {
    let (a, b) = Party::pair(Plan::default());
    let data: Vec<u8> = (0..1_000_003u32)
        .map(|i| i.to_le_bytes()[0] ^ 0x5a)
        .collect();
    let (head, tail) = data.split_at(77);
    let part = |part: &[u8]| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    };
    let iov = [part(head), part(tail)];
    let mut buf = vec![0xa5; data.len()];
    b.trecv(&mut buf, 0, TAG, 0, 0);
    a.retry(|| (a.tagged().sendv)(a.ep, iov.as_ptr(), null_mut(), 2, 0, TAG, null_mut()));
    assert_eq!(b.wait(&a).len, data.len());
    a.wait(&b);
    assert!(buf == data);
}

#[test]
fn message_that_does_not_fit_is_an_error_of_its_receive_alone() {
    let (a, b) = Party::pair(Plan::default());
    let mut buf = [0xa5; 4];
    b.trecv(&mut buf[..3], 0, TAG, 0, 6);
    a.tsend(b"longer", TAG, 0);
    let failure = b.wait_any(&a).unwrap_err();
    assert_eq!((failure.err, failure.op_context as usize), (ETRUNC, 6));
    assert_eq!((failure.len, failure.olen), (3, 3));
    assert_eq!(&buf, b"lon\xa5");
    // SAFETY: lent until the next read of the queue.
    let text =
        unsafe { std::slice::from_raw_parts(failure.err_data.cast::<u8>(), failure.err_data_size) };
    assert!(
        std::str::from_utf8(text).unwrap().contains("6 bytes"),
        "{text:?}"
    );
    b.trecv(&mut buf, 0, TAG, 0, 7);
    a.tsend(b"fits", TAG, 0);
    assert_eq!(b.wait(&a).context, 7);
}

#[test]
fn cancelled_receive_completes_as_such_and_takes_no_message() {
    let (a, b) = Party::pair(Plan::default());
    let (mut first, mut second) = ([0; 4], [0; 4]);
    b.trecv(&mut first, 0, TAG, 0, 6);
    b.trecv(&mut second, 0, TAG, 0, 7);
    // SAFETY: an open endpoint.
    let code = unsafe { ((*(*b.ep).ops).cancel)(&raw mut (*b.ep).fid, 6 as *mut c_void) };
    assert_eq!(code, 0);
    let failure = b.wait_any(&a).unwrap_err();
    assert_eq!(
        (failure.err, failure.op_context as usize),
        (libc::ECANCELED, 6)
    );
    a.tsend(b"here", TAG, 0);
    assert_eq!(b.wait(&a).context, 7);
    assert_eq!((&first, &second), (&[0; 4], b"here"));
}

#[test]
fn buffer_for_many_messages_is_handed_back_when_it_is_full() {
    let (a, b) = Party::pair(Plan::default());
    let mut buf = [0xa5u8; 20];
    let iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: 20,
    };
    let least = 8usize;
    // SAFETY: an open endpoint; the option is a `size_t`.
    unsafe {
        let setopt = (*(*b.ep).ops).setopt;
        let value = (&raw const least).cast();
        let fid = &raw mut (*b.ep).fid;
        assert_eq!(
            setopt(
                fid,
                OPT_ENDPOINT,
                OPT_MIN_MULTI_RECV,
                value,
                size_of::<usize>()
            ),
            0
        );
    }
    let msg = Msg {
        iov: &raw const iov,
        desc: null_mut(),
        iov_count: 1,
        addr: ADDR_UNSPEC,
        context: 3 as *mut c_void,
        data: 0,
    };
    b.retry(|| (b.msg().recvmsg)(b.ep, &raw const msg, MULTI_RECV));
    for bytes in [b"one   ", b"two   ", b"three "] {
        a.retry(|| (a.msg().inject)(a.ep, bytes.as_ptr().cast(), 6, 0));
    }
    let (mut messages, mut released) = (0, false);
    while !released {
        let done = b.wait(&a);
        assert_eq!(done.context, 3);
        messages += usize::from(done.flags & RECV != 0);
        released = done.flags & MULTI_RECV != 0;
    }
    assert_eq!(&buf[..messages * 6], &b"one   two   three "[..messages * 6]);
    assert_eq!(messages, 3);
}

#[test]
fn message_from_a_stranger_has_no_source_until_it_is_inserted() {
    let (a, b) = (Party::open(Plan::default()), Party::open(Plan::default()));
    assert_eq!(a.insert(&b.name()), 0);
    let mut buf = [0; 4];
    b.trecv(&mut buf, ADDR_UNSPEC, TAG, 0, 1);
    a.tsend(b"who?", TAG, 0);
    assert_eq!(b.wait(&a).source, ADDR_NOTAVAIL);
    a.wait(&b);
    assert_eq!(b.insert(&a.name()), 0);
    b.trecv(&mut buf, 0, TAG, 0, 2);
    a.tsend(b"me! ", TAG, 0);
    assert_eq!(b.wait(&a).source, 0);
}

#[test]
fn endpoint_sends_to_itself() {
    let a = Party::open(Plan::default());
    assert_eq!(a.insert(&a.name()), 0);
    let mut buf = [0; 4];
    a.trecv(&mut buf, 0, TAG, 0, 1);
    a.tsend(b"self", TAG, 2);
    let mut contexts = [a.wait(&a).context, a.wait(&a).context];
    contexts.sort_unstable();
    assert_eq!(contexts, [1, 2]);
    assert_eq!(&buf, b"self");
}

#[test]
fn sending_to_nobody_is_refused() {
    let a = Party::open(Plan::default());
    let code = (a.tagged().send)(a.ep, b"?".as_ptr().cast(), 1, null_mut(), 3, 0, null_mut());
    assert_eq!(code, -(libc::EINVAL as isize));
}
