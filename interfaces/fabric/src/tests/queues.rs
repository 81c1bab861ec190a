// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues, counters, waiting, and the lifetime of objects.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::Instant;

use super::harness::{PATIENCE, Party, Plan, close, getinfo};
use crate::abi::*;

const TAG: u64 = 42;

#[test]
fn selective_binding_reports_requested_completions_only() {
    let (a, b) = Party::pair(Plan {
        binding: SELECTIVE_COMPLETION,
        ..Plan::default()
    });
    let (silent, loud) = (*b"silent", *b"loud");
    let part = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let (silent, loud) = (part(&silent), part(&loud));
    let send = |iov: &libc::iovec, context: usize, flags| {
        let msg = MsgTagged {
            iov,
            desc: null_mut(),
            iov_count: 1,
            addr: 0,
            tag: TAG,
            ignore: 0,
            context: context as *mut c_void,
            data: 0,
        };
        a.retry(|| (a.tagged().sendmsg)(a.ep, &raw const msg, flags));
    };
    send(&silent, 1, 0);
    send(&loud, 2, COMPLETION);
    assert_eq!(a.wait(&b).context, 2);
    // All operations are counted, reported or not.
    let begun = Instant::now();
    while a.count() < 2 {
        b.work();
        assert!(begun.elapsed() < PATIENCE);
    }
}

#[test]
fn shorter_formats_use_their_own_stride() {
    let (a, b) = Party::pair(Plan {
        format: CQ_FORMAT_CONTEXT,
        ..Plan::default()
    });
    let mut bufs = [[0; 1]; 3];
    for (at, buf) in bufs.iter_mut().enumerate() {
        b.trecv(buf, 0, TAG, 0, 10 + at);
        a.retry(|| (a.tagged().inject)(a.ep, b"x".as_ptr().cast(), 1, 0, TAG));
    }
    let mut contexts = [0usize; 4];
    let (mut taken, begun) = (0, Instant::now());
    while taken < 3 {
        // SAFETY: an open queue; entries of one pointer each, and one spare element.
        let code = unsafe {
            let out = contexts[taken..].as_mut_ptr().cast();
            ((*(*b.cq).ops).read)(b.cq, out, 3 - taken)
        };
        taken += usize::try_from(code).unwrap_or(0);
        a.work();
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(contexts, [10, 11, 12, 0]);
}

/// Opens two programs that have exchanged a message, so that sends complete within their calls.
fn acquainted() -> (Party, Party) {
    let (a, b) = Party::pair(Plan::default());
    let mut word = [0; 8];
    b.trecv(&mut word, 0, TAG, 0, 1);
    a.tsend(b"greeting", TAG, 2);
    b.wait(&a);
    a.wait(&b);
    (a, b)
}

/// Returns the contexts of one read of up to `N` entries, or the number of an error.
fn read_contexts<const N: usize>(of: &Party) -> Result<Vec<usize>, isize> {
    // SAFETY: plain bytes, for which zero is valid; an open queue with the longest format.
    let (entries, code) = unsafe {
        let mut entries: [CqTaggedEntry; N] = std::mem::zeroed();
        let out = entries.as_mut_ptr().cast();
        let code = ((*(*of.cq).ops).read)(of.cq, out, N);
        (entries, code)
    };
    let count = usize::try_from(code).map_err(|_| code)?;
    let contexts = entries.iter().map(|entry| entry.op_context as usize);
    Ok(contexts.take(count).collect())
}

#[test]
fn excess_entries_are_read_next_in_order() {
    let (a, b) = acquainted();
    let mut bufs = [[0; 1]; 4];
    for (at, buf) in bufs.iter_mut().enumerate() {
        b.trecv(buf, 0, TAG, 0, 10 + at);
        a.retry(|| (a.tagged().inject)(a.ep, b"x".as_ptr().cast(), 1, 0, TAG));
    }
    let (mut contexts, begun) = (Vec::new(), Instant::now());
    while contexts.len() < 4 {
        contexts.extend(read_contexts::<3>(&b).unwrap_or_default());
        a.work();
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(contexts, [10, 11, 12, 13]);
}

#[test]
fn older_entry_is_read_first() {
    let (a, b) = acquainted();
    let mut word = [0; 8];
    a.trecv(&mut word, 0, TAG, 0, 3);
    b.tsend(b"result", TAG, 4);
    b.wait(&a);
    // The call itself adds its entry.
    a.tsend(b"question", TAG, 5);
    let (mut contexts, begun) = (Vec::new(), Instant::now());
    while contexts.len() < 2 {
        contexts.extend(read_contexts::<4>(&a).unwrap_or_default());
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(contexts, [5, 3]);
}

#[test]
fn reading_one_entry_at_a_time_still_receives() {
    let (a, b) = acquainted();
    let mut result = [0; 1];
    a.trecv(&mut result, 0, TAG, 0, 3);
    b.tsend(b"x", TAG, 4);
    b.wait(&b);
    let mut sent = 0;
    loop {
        a.tsend(b"more", TAG, 5);
        sent += 1;
        // The message just sent already has an entry.
        if a.read().unwrap().context == 3 {
            break;
        }
        assert!(sent < 100, "the endpoint does not work");
    }
    assert_eq!(result, *b"x");
}

#[test]
fn error_text_is_not_copied_to_uncleared_structure() {
    let (a, b) = Party::pair(Plan::default());
    let peek = MsgTagged {
        iov: null(),
        desc: null_mut(),
        iov_count: 0,
        addr: 0,
        tag: TAG,
        ignore: 0,
        context: null_mut(),
        data: 0,
    };
    a.retry(|| (a.tagged().recvmsg)(a.ep, &raw const peek, PEEK));
    let begun = Instant::now();
    while a.read() != Err(-(EAVAIL as isize)) {
        b.work();
        assert!(begun.elapsed() < PATIENCE);
    }
    let mut text = [0xa5u8; 64];
    // SAFETY: an open queue, and storage for the entry and the text.
    unsafe {
        let mut entry: CqErrEntry = std::mem::zeroed();
        // Represents uninitialised stack memory, to which nothing may be written.
        entry.err_data = std::ptr::without_provenance_mut(8);
        entry.err_data_size = usize::MAX;
        let ops = &*(*a.cq).ops;
        assert_eq!((ops.readerr)(a.cq, &raw mut entry, 0), 1);
        assert_eq!((entry.err, entry.err_data_size), (libc::ENOMSG, 0));
        (ops.strerror)(
            a.cq,
            entry.prov_errno,
            null(),
            text.as_mut_ptr().cast(),
            text.len(),
        );
    }
    assert!(text.starts_with(b"no matching message has arrived\0"));
}

#[test]
fn null_address_is_not_inserted() {
    let party = Party::open(Plan::default());
    // SAFETY: an open vector; the address is null.
    let code =
        unsafe { ((*(*party.av).ops).insert)(party.av, null(), 1, null_mut(), 0, null_mut()) };
    assert_eq!(code, -libc::EINVAL);
}

/// A program that another thread uses while this one waits.
struct SharedParty(Party);

// SAFETY: only one thread at a time uses the objects.
unsafe impl Send for SharedParty {}

impl SharedParty {
    fn send(&self) {
        self.0.tsend(b"wake", TAG, 0);
        self.0.wait(&self.0);
    }
}

/// Waits for one completion with `fi_cq_sread`. Returns its code and the entry's context.
fn sread(of: &Party, timeout_ms: c_int) -> (isize, usize) {
    // SAFETY: an open queue, and storage for an entry.
    unsafe {
        let mut entry: CqTaggedEntry = std::mem::zeroed();
        let out = (&raw mut entry).cast();
        let code = ((*(*of.cq).ops).sread)(of.cq, out, 1, null(), timeout_ms);
        (code, entry.op_context as usize)
    }
}

const PATIENCE_MS: c_int = 60_000;

#[test]
fn waiting_read_ends_on_timeout_or_message() {
    let (a, b) = Party::pair(Plan::default());
    let mut buf = [0; 4];
    b.trecv(&mut buf, 0, TAG, 0, 9);
    assert_eq!(sread(&b, 30).0, -(libc::EAGAIN as isize));
    let a = SharedParty(a);
    let sender = std::thread::spawn(move || {
        a.send();
        a
    });
    assert_eq!(sread(&b, PATIENCE_MS), (1, 9));
    drop(sender.join().unwrap());
    assert_eq!(&buf, b"wake");
}

#[test]
fn signal_ends_a_waiting_read() {
    let (a, b) = Party::pair(Plan::default());
    // SAFETY: an open queue.
    assert_eq!(unsafe { ((*(*b.cq).ops).signal)(b.cq) }, 0);
    assert_eq!(sread(&b, PATIENCE_MS).0, -(libc::EAGAIN as isize));
    drop(a);
}

#[test]
fn descriptor_is_readable_when_a_message_arrives() {
    let (a, b) = Party::pair(Plan::default());
    let mut buf = [0; 4];
    b.trecv(&mut buf, 0, TAG, 0, 9);
    let mut fd: c_int = -1;
    let a = SharedParty(a);
    let sender = std::thread::spawn(move || {
        a.send();
        a
    });
    // SAFETY: open objects, and storage for the results.
    unsafe {
        let fid = &raw mut (*b.cq).fid;
        assert_eq!(
            ((*(*fid).ops).control)(fid, GETWAIT, (&raw mut fd).cast()),
            0
        );
        let mut fids = [fid];
        let begun = Instant::now();
        loop {
            if ((*(*b.fabric).ops).trywait)(b.fabric, fids.as_mut_ptr(), 1) == 0 {
                let mut entry = libc::pollfd {
                    fd,
                    events: libc::POLLIN,
                    revents: 0,
                };
                assert_eq!(libc::poll(&raw mut entry, 1, PATIENCE_MS), 1);
            }
            match b.read() {
                Ok(done) => break assert_eq!(done.context, 9),
                Err(code) => assert_eq!(code, -(libc::EAGAIN as isize)),
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }
    drop(sender.join().unwrap());
}

#[test]
fn counter_wait_ends_on_timeout_or_value() {
    let (a, b) = Party::pair(Plan::default());
    let wait = |value, timeout| {
        // SAFETY: an open counter.
        unsafe { ((*(*a.cntr).ops).wait)(a.cntr, value, timeout) }
    };
    assert_eq!(wait(1, 10), -libc::ETIMEDOUT);
    a.retry(|| (a.tagged().inject)(a.ep, b"x".as_ptr().cast(), 1, 0, TAG));
    assert_eq!(wait(1, PATIENCE_MS), 0);
    drop(b);
}

#[test]
fn object_in_use_cannot_be_closed() {
    let a = Party::open(Plan {
        threading: THREAD_DOMAIN,
        ..Plan::default()
    });
    // SAFETY: open objects, which stay open.
    unsafe {
        assert_eq!(close(&raw mut (*a.cq).fid), -libc::EBUSY);
        assert_eq!(close(&raw mut (*a.av).fid), -libc::EBUSY);
        assert_eq!(close(&raw mut (*a.cntr).fid), -libc::EBUSY);
        assert_eq!(close(&raw mut (*a.domain).fid), -libc::EBUSY);
        assert_eq!(close(&raw mut (*a.fabric).fid), -libc::EBUSY);
    }
}

#[test]
fn impossible_arguments_are_refused() {
    let a = Party::open(Plan::default());
    // SAFETY: an open domain; the attributes and the storage for objects are on the stack.
    unsafe {
        let (mut av, mut mr) = (null_mut(), null_mut());
        let mut attr: AvAttr = std::mem::zeroed();
        attr.av_type = 7;
        let av_open = (*(*a.domain).ops).av_open;
        let opened = av_open(a.domain, &raw mut attr, &raw mut av, null_mut());
        assert_eq!(opened, -libc::EINVAL);
        let (reg, domain) = ((*(*a.domain).mr).reg, (&raw mut (*a.domain).fid));
        let registered = reg(
            domain,
            null(),
            100,
            REMOTE_READ,
            0,
            1,
            0,
            &raw mut mr,
            null_mut(),
        );
        assert_eq!(registered, -libc::EINVAL);
    }
}

#[test]
fn messages_longer_than_memory_or_an_injection_are_refused() {
    let (a, _b) = Party::pair(Plan::default());
    let bytes = vec![0_u8; 4097];
    let (at, tagged, invalid) = (bytes.as_ptr(), a.tagged(), -(libc::EINVAL as isize));
    let injected = (tagged.inject)(a.ep, at.cast(), bytes.len(), 0, TAG);
    assert_eq!(injected, -(libc::EMSGSIZE as isize));
    let sent = (tagged.send)(a.ep, at.cast(), usize::MAX, null_mut(), 0, TAG, null_mut());
    assert_eq!(sent, invalid);
    let piece = |len| libc::iovec {
        iov_base: at.cast_mut().cast(),
        iov_len: len,
    };
    for pieces in [[piece(1), piece(usize::MAX)], [piece(usize::MAX / 3); 2]] {
        let sent = (tagged.sendv)(a.ep, pieces.as_ptr(), null_mut(), 2, 0, TAG, null_mut());
        assert_eq!(sent, invalid);
    }
}

#[test]
fn removed_address_vector_index_is_reused() {
    let (a, b) = Party::pair(Plan::default());
    let third = Party::open(Plan::default());
    assert_eq!(a.insert(&third.name()), 1);
    let mut addr = 0u64;
    // SAFETY: an open vector; one number.
    unsafe {
        assert_eq!(((*(*a.av).ops).remove)(a.av, &raw mut addr, 1, 0), 0);
        assert_eq!(
            ((*(*a.av).ops).remove)(a.av, &raw mut addr, 1, 0),
            -libc::EINVAL
        );
    }
    let send = || (a.tagged().inject)(a.ep, b"x".as_ptr().cast(), 1, 0, TAG);
    assert_eq!(send(), -(libc::EINVAL as isize));
    assert_eq!(a.insert(&third.name()), 0);
    a.retry(send);
    let mut buf = [0; 1];
    third.trecv(&mut buf, ADDR_UNSPEC, TAG, 0, 4);
    assert_eq!(third.wait(&a).context, 4);
    drop(b);
}

#[test]
fn provider_is_offered_by_name_only() {
    if std::env::var_os("FI_PROVIDER").is_some() || std::env::var_os("PORTOLAN_FABRIC").is_some() {
        println!("SKIPPED: the environment selects a provider");
        return;
    }
    assert_eq!(
        getinfo(|hints| hints.fabric_attr = null_mut()).err(),
        Some(-libc::ENODATA)
    );
}
