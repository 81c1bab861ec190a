// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between two programs.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::harness::{Party, Plan};
use crate::abi::*;

const TAG: u64 = 0xfeed_0000_0000_0001;

#[test]
fn unexpected_message_is_received() {
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
fn long_gathered_message_arrives_intact() {
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
fn truncation_fails_only_its_receive() {
    let (a, b) = Party::pair(Plan::default());
    let mut buf = [0xa5; 4];
    b.trecv(&mut buf[..3], 0, TAG, 0, 6);
    a.tsend(b"longer", TAG, 0);
    let failure = b.wait_any(&a).unwrap_err();
    assert_eq!((failure.err, failure.op_context as usize), (ETRUNC, 6));
    assert_eq!((failure.len, failure.olen), (3, 3));
    assert_eq!(&buf, b"lon\xa5");
    // SAFETY: the text stays valid until the next read of the queue.
    let text =
        unsafe { std::slice::from_raw_parts(failure.err_data.cast::<u8>(), failure.err_data_size) };
    let text = std::str::from_utf8(text).unwrap();
    assert!(text.contains("6 bytes"), "{text}");
    let who = format!("process {} on ", std::process::id());
    assert!(text.contains(&who), "{text}");
    b.trecv(&mut buf, 0, TAG, 0, 7);
    a.tsend(b"fits", TAG, 0);
    assert_eq!(b.wait(&a).context, 7);
}

#[test]
fn cancelled_receive_completes_without_message() {
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
fn full_multi_receive_buffer_is_released() {
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
fn message_from_uninserted_peer_has_no_source() {
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
fn send_to_unknown_peer_is_refused() {
    let a = Party::open(Plan::default());
    let code = (a.tagged().send)(a.ep, b"?".as_ptr().cast(), 1, null_mut(), 3, 0, null_mut());
    assert_eq!(code, -(libc::EINVAL as isize));
}

#[test]
fn tagged_message_arrives_with_data_and_source() {
    let (a, b) = Party::pair(Plan::default());
    let mut buf = [0xa5; 16];
    b.trecv(&mut buf, ADDR_UNSPEC, TAG, 0, 7);
    a.retry(|| {
        let bytes = b"portolan".as_ptr().cast();
        (a.tagged().senddata)(a.ep, bytes, 8, null_mut(), 99, 0, TAG, 8 as *mut c_void)
    });
    let got = b.wait(&a);
    assert_eq!(
        (got.context, got.len, got.data, got.tag, got.source),
        (7, 8, 99, TAG, 0)
    );
    assert_eq!(got.flags, RECV | TAGGED | REMOTE_CQ_DATA);
    assert_eq!(&buf, b"portolan\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5");
    let sent = a.wait(&b);
    assert_eq!((sent.context, sent.flags), (8, SEND | TAGGED));
    assert_eq!(a.count(), 1);
}

#[test]
fn receives_match_by_tag_and_mask_in_posting_order() {
    let (a, b) = Party::pair(Plan::default());
    let (mut exact, mut masked) = ([0; 8], [0; 8]);
    b.trecv(&mut masked, ADDR_UNSPEC, 0x100, 0xff, 1);
    b.trecv(&mut exact, ADDR_UNSPEC, 0x200, 0, 2);
    a.tsend(b"second", 0x200, 0);
    a.tsend(b"first", 0x1ab, 0);
    let (one, two) = (b.wait(&a), b.wait(&a));
    assert_eq!((one.context, one.tag), (2, 0x200));
    assert_eq!((two.context, two.tag), (1, 0x1ab));
    assert_eq!((&exact[..6], &masked[..5]), (&b"second"[..], &b"first"[..]));
}

#[test]
fn tagged_and_plain_messages_match_separately() {
    let (a, b) = Party::pair(Plan::default());
    let (mut plain, mut tagged) = ([0; 8], [0; 8]);
    b.retry(|| {
        (b.msg().recv)(
            b.ep,
            plain.as_mut_ptr().cast(),
            8,
            null_mut(),
            ADDR_UNSPEC,
            null_mut(),
        )
    });
    b.trecv(&mut tagged, ADDR_UNSPEC, 0, u64::MAX, 5);
    a.tsend(b"tagged", 3, 0);
    a.retry(|| (a.msg().inject)(a.ep, b"plain".as_ptr().cast(), 5, 0));
    let done = [b.wait(&a), b.wait(&a)];
    assert!(
        done.iter()
            .any(|done| done.flags == RECV | MSG && done.len == 5)
    );
    assert!(
        done.iter()
            .any(|done| done.flags == RECV | TAGGED && done.context == 5)
    );
    assert_eq!((&plain[..5], &tagged[..6]), (&b"plain"[..], &b"tagged"[..]));
}

/// Receives with flags, by structure. No data is written to `buf`.
fn with_flags(of: &Party, buf: &mut [u8], tag: u64, context: usize, flags: u64) {
    let iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let msg = MsgTagged {
        iov: &raw const iov,
        desc: null_mut(),
        iov_count: usize::from(!buf.is_empty()),
        addr: ADDR_UNSPEC,
        tag,
        ignore: 0,
        context: context as *mut c_void,
        data: 0,
    };
    of.retry(|| (of.tagged().recvmsg)(of.ep, &raw const msg, flags));
}

/// Peeks until a message is found. Returns the completion of the peek.
fn peek(of: &Party, other: &Party, tag: u64, flags: u64) -> super::harness::Done {
    let begun = std::time::Instant::now();
    loop {
        with_flags(of, &mut [], tag, 5, PEEK | flags);
        match of.wait_any(other) {
            Ok(done) => return done,
            Err(failure) => assert_eq!(failure.err, libc::ENOMSG),
        }
        other.work();
        assert!(begun.elapsed() < super::harness::PATIENCE);
    }
}

#[test]
fn peek_reports_a_message_and_keeps_it() {
    let (a, b) = Party::pair(Plan::default());
    with_flags(&b, &mut [], TAG, 5, PEEK);
    assert_eq!(b.wait_any(&a).unwrap_err().err, libc::ENOMSG);
    a.tsend(b"peek", TAG, 0);
    let seen = peek(&b, &a, TAG, 0);
    assert_eq!(
        (seen.context, seen.len, seen.tag, seen.source),
        (5, 4, TAG, 0)
    );
    let mut buf = [0; 4];
    b.trecv(&mut buf, 0, TAG, 0, 6);
    assert_eq!(b.wait(&a).context, 6);
    assert_eq!(&buf, b"peek");
}

#[test]
fn claimed_message_matches_no_other_receive() {
    let (a, b) = Party::pair(Plan::default());
    a.tsend(b"mine", TAG, 0);
    assert_eq!(peek(&b, &a, TAG, CLAIM).len, 4);
    let (mut other, mut own) = ([0; 4], [0; 4]);
    b.trecv(&mut other, 0, TAG, 0, 6);
    with_flags(&b, &mut own, TAG, 5, CLAIM);
    assert_eq!(b.wait(&a).context, 5);
    a.tsend(b"next", TAG, 0);
    assert_eq!(b.wait(&a).context, 6);
    assert_eq!((&own, &other), (b"mine", b"next"));
}

#[test]
fn discarded_message_is_not_received() {
    let (a, b) = Party::pair(Plan::default());
    a.tsend(b"gone", TAG, 0);
    assert_eq!(peek(&b, &a, TAG, DISCARD).len, 4);
    a.tsend(b"late", TAG, 0);
    let mut buf = [0; 4];
    b.trecv(&mut buf, 0, TAG, 0, 6);
    assert_eq!(b.wait(&a).context, 6);
    assert_eq!(&buf, b"late");
}

#[test]
fn discard_of_claimed_message_reports_it() {
    let (a, b) = Party::pair(Plan::default());
    let buf = b"gone".as_ptr().cast();
    a.retry(|| (a.tagged().senddata)(a.ep, buf, 4, null_mut(), 9, 0, TAG, null_mut()));
    assert_eq!(peek(&b, &a, TAG, CLAIM).tag, TAG);
    with_flags(&b, &mut [], TAG, 5, CLAIM | DISCARD);
    let discarded = b.wait(&a);
    assert_eq!(
        (
            discarded.context,
            discarded.tag,
            discarded.data,
            discarded.source,
            discarded.len
        ),
        (5, TAG, 9, 0, 0)
    );
    assert_eq!(discarded.flags, RECV | TAGGED | REMOTE_CQ_DATA);
    a.tsend(b"late", TAG, 0);
    let mut late = [0; 4];
    b.trecv(&mut late, 0, TAG, 0, 6);
    assert_eq!(b.wait(&a).context, 6);
    assert_eq!(&late, b"late");
}
