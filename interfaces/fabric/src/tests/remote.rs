// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory between two programs.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::harness::{Party, Plan, close};
use crate::abi::*;

/// A memory region that is closed when dropped.
pub(super) struct Region(*mut FidMr);

impl Region {
    pub(super) fn open(of: &Party, memory: &mut [u8], access: u64) -> Region {
        let mut mr = null_mut();
        // SAFETY: an open domain; the memory outlives the region in each test.
        unsafe {
            let reg = (*(*of.domain).mr).reg;
            let (buf, len) = (memory.as_ptr().cast(), memory.len());
            let fid = &raw mut (*of.domain).fid;
            assert_eq!(
                reg(fid, buf, len, access, 0, 7, 0, &raw mut mr, null_mut()),
                0
            );
        }
        Region(mr)
    }

    pub(super) fn key(&self) -> u64 {
        // SAFETY: an open region.
        unsafe { (*self.0).key }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: open until now.
        assert_eq!(unsafe { close(&raw mut (*self.0).fid) }, 0);
    }
}

fn rma(of: &Party) -> &OpsRma {
    // SAFETY: an open endpoint; the table is static.
    unsafe { &*(*of.ep).rma }
}

fn write(of: &Party, bytes: &[u8], addr: u64, key: u64, context: usize) {
    let (buf, context) = (bytes.as_ptr().cast(), context as *mut c_void);
    of.retry(|| (rma(of).write)(of.ep, buf, bytes.len(), null_mut(), 0, addr, key, context));
}

fn read(of: &Party, into: &mut [u8], addr: u64, key: u64, context: usize) {
    let (buf, context) = (into.as_mut_ptr().cast(), context as *mut c_void);
    of.retry(|| (rma(of).read)(of.ep, buf, into.len(), null_mut(), 0, addr, key, context));
}

#[test]
fn rma_accesses_the_addressed_bytes() {
    let (a, b) = Party::pair(Plan::default());
    for len in [1usize, 5000, 700_001] {
        let mut memory = vec![0xa5; len + 2];
        let region = Region::open(&b, &mut memory, REMOTE_READ | REMOTE_WRITE);
        let data: Vec<u8> = (0..len).map(|i| i.to_le_bytes()[0] ^ 0x3c).collect();
        let at = memory.as_ptr() as u64 + 1;
        write(&a, &data, at, region.key(), 1);
        let done = a.wait(&b);
        assert_eq!((done.context, done.flags), (1, RMA | WRITE));
        let mut back = vec![0; len + 2];
        read(&a, &mut back, at - 1, region.key(), 2);
        let done = a.wait(&b);
        assert_eq!((done.context, done.flags), (2, RMA | READ));
        drop(region);
        assert_eq!((memory[0], memory[len + 1]), (0xa5, 0xa5));
        assert!(memory[1..=len] == data && back == memory);
    }
}

#[test]
fn access_without_permission_fails_with_cause() {
    let (a, b) = Party::pair(Plan::default());
    let mut memory = [0xa5; 64];
    let at = memory.as_ptr() as u64;
    let region = Region::open(&b, &mut memory, REMOTE_READ);
    let bytes = [0; 8];
    let fails = |addr, key| {
        write(&a, &bytes, addr, key, 3);
        let failure = a.wait_any(&b).unwrap_err();
        assert_eq!(failure.op_context as usize, 3);
        failure.err
    };
    assert_eq!(fails(at, region.key()), libc::EACCES);
    assert_eq!(fails(at, region.key() ^ 1), libc::EKEYREJECTED);
    let mut into = [0; 8];
    read(&a, &mut into, at + 60, region.key(), 4);
    assert_eq!(a.wait_any(&b).unwrap_err().err, libc::EFAULT);
    let key = region.key();
    drop(region);
    assert_eq!(fails(at, key), libc::EKEYREJECTED);
    assert_eq!(memory, [0xa5; 64]);
}

#[test]
fn injected_write_is_counted_but_not_reported() {
    let (a, b) = Party::pair(Plan::default());
    let mut memory = [0xa5u8; 4];
    let at = memory.as_ptr() as u64;
    let region = Region::open(&b, &mut memory, REMOTE_WRITE);
    {
        let bytes = *b"data";
        let inject = rma(&a).inject;
        a.retry(|| inject(a.ep, bytes.as_ptr().cast(), 4, 0, at, region.key()));
    }
    let begun = std::time::Instant::now();
    while a.count() == 0 {
        b.work();
        assert!(begun.elapsed() < super::harness::PATIENCE);
    }
    assert_eq!(a.read(), Err(-(libc::EAGAIN as isize)));
    drop(region);
    assert_eq!(&memory, b"data");
}

#[test]
fn write_with_data_is_reported_at_the_target() {
    let (a, b) = Party::pair(Plan::default());
    let mut memory = [0xa5u8; 4];
    let at = memory.as_ptr() as u64;
    let region = Region::open(&b, &mut memory, REMOTE_WRITE);
    let bytes = *b"data";
    a.retry(|| {
        let buf = bytes.as_ptr().cast();
        (rma(&a).writedata)(
            a.ep,
            buf,
            4,
            null_mut(),
            77,
            0,
            at,
            region.key(),
            null_mut(),
        )
    });
    let entry = b.wait(&a);
    assert_eq!((entry.context, entry.data, entry.source), (0, 77, 0));
    assert_eq!(entry.flags, RMA | REMOTE_WRITE | REMOTE_CQ_DATA);
    a.wait(&b);
    drop(region);
    assert_eq!(&memory, b"data");
}

#[test]
fn region_is_registered_with_later_endpoints() {
    let (a, mut b) = Party::pair(Plan::default());
    let mut memory = [0xa5u8; 4];
    let at = memory.as_ptr() as u64;
    let region = Region::open(&b, &mut memory, REMOTE_READ);
    b.reopen_ep();
    let mut addr = 0u64;
    // SAFETY: an open vector; one number.
    let code = unsafe { ((*(*a.av).ops).remove)(a.av, &raw mut addr, 1, 0) };
    assert_eq!(code, 0);
    assert_eq!(a.insert(&b.name()), 0);
    let mut into = [0; 4];
    read(&a, &mut into, at, region.key(), 4);
    assert_eq!(a.wait(&b).context, 4);
    assert_eq!(into, [0xa5; 4]);
}
