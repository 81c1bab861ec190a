// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations between two programs.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::harness::{Party, Plan};
use super::remote::Region;
use crate::abi::*;

const UINT64: c_int = 7;
const DOUBLE: c_int = 9;
const LONG_DOUBLE: c_int = 12;
const SUM: c_int = 2;
const BXOR: c_int = 9;
const ATOMIC_READ: c_int = 10;
const CSWAP: c_int = 12;
const CSWAP_LT: c_int = 15;

fn atomic(of: &Party) -> &OpsAtomic {
    // SAFETY: an open endpoint; the table is static.
    unsafe { &*(*of.ep).atomic }
}

fn bytes_of(numbers: &mut [u64]) -> &mut [u8] {
    let len = size_of_val(numbers);
    // SAFETY: the bytes of integers, which have no padding.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), len) }
}

/// Runs the fetching operation `op` with one operand. Returns the previous value.
fn fetch(a: &Party, b: &Party, addr: u64, key: u64, op: c_int, operand: u64) -> u64 {
    let mut before = 0xa5u64;
    let (buf, result) = ((&raw const operand).cast(), (&raw mut before).cast());
    let (none, readwrite) = (null_mut(), atomic(a).readwrite);
    a.retry(|| {
        readwrite(
            a.ep,
            buf,
            1,
            none,
            result,
            none,
            0,
            addr,
            key,
            UINT64,
            op,
            5 as *mut c_void,
        )
    });
    let done = a.wait(b);
    assert_eq!((done.context, done.flags), (5, ATOMIC | READ));
    before
}

#[test]
fn atomics_change_and_return_numbers() {
    let (a, b) = Party::pair(Plan::default());
    let mut numbers = [10u64, 20];
    let addr = numbers.as_ptr() as u64;
    let region = Region::open(&b, bytes_of(&mut numbers), REMOTE_READ | REMOTE_WRITE);
    let key = region.key();
    assert_eq!(fetch(&a, &b, addr + 8, key, SUM, 5), 20);
    assert_eq!(fetch(&a, &b, addr + 8, key, BXOR, 1), 25);
    assert_eq!(fetch(&a, &b, addr + 8, key, ATOMIC_READ, 0), 24);
    let both = [1u64, 2];
    a.retry(|| {
        let buf = both.as_ptr().cast();
        (atomic(&a).write)(
            a.ep,
            buf,
            2,
            null_mut(),
            0,
            addr,
            key,
            UINT64,
            SUM,
            null_mut(),
        )
    });
    assert_eq!(a.wait(&b).flags, ATOMIC | WRITE);
    drop(region);
    assert_eq!(numbers, [11, 26]);
}

#[test]
fn compare_and_swap_requires_equality() {
    let (a, b) = Party::pair(Plan::default());
    let mut numbers = [10u64];
    let addr = numbers.as_ptr() as u64;
    let region = Region::open(&b, bytes_of(&mut numbers), REMOTE_READ | REMOTE_WRITE);
    let key = region.key();
    let swap = |op: c_int, operand: u64, compare: u64| {
        let mut before = 0xa5u64;
        let (buf, with) = ((&raw const operand).cast(), (&raw const compare).cast());
        let (none, result) = (null_mut(), (&raw mut before).cast());
        let compwrite = atomic(&a).compwrite;
        a.retry(|| {
            compwrite(
                a.ep, buf, 1, none, with, none, result, none, 0, addr, key, UINT64, op, none,
            )
        });
        a.wait(&b);
        before
    };
    assert_eq!(swap(CSWAP, 11, 9), 10);
    assert_eq!(swap(CSWAP, 12, 10), 10);
    // The operation swaps if the comparand is less than the current value.
    assert_eq!(swap(CSWAP_LT, 13, 12), 12);
    assert_eq!(swap(CSWAP_LT, 14, 11), 12);
    drop(region);
    assert_eq!(numbers, [14]);
}

#[test]
fn injected_operation_completes_unreported() {
    let (a, b) = Party::pair(Plan::default());
    let mut numbers = [1.5f64.to_bits()];
    let addr = numbers.as_ptr() as u64;
    let region = Region::open(&b, bytes_of(&mut numbers), REMOTE_WRITE);
    let inject = atomic(&a).inject;
    let half = 0.5f64;
    a.retry(|| {
        inject(
            a.ep,
            (&raw const half).cast(),
            1,
            0,
            addr,
            region.key(),
            DOUBLE,
            SUM,
        )
    });
    let begun = std::time::Instant::now();
    while a.count() == 0 {
        b.work();
        assert!(begun.elapsed() < super::harness::PATIENCE);
    }
    assert_eq!(a.read(), Err(-(libc::EAGAIN as isize)));
    drop(region);
    assert_eq!(f64::from_bits(numbers[0]).to_bits(), 2.0f64.to_bits());
}

#[test]
fn unsupported_atomics_are_reported_by_query() {
    let a = Party::open(Plan::default());
    let query =
        |form: extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int, datatype, op| {
            let mut count = 0usize;
            (form(a.ep, datatype, op, &raw mut count), count)
        };
    assert_eq!(query(atomic(&a).writevalid, UINT64, SUM), (0, 256));
    assert_eq!(
        query(atomic(&a).writevalid, DOUBLE, BXOR).0,
        -libc::EOPNOTSUPP
    );
    assert_eq!(
        query(atomic(&a).writevalid, LONG_DOUBLE, SUM).0,
        -libc::EOPNOTSUPP
    );
    assert_eq!(
        query(atomic(&a).writevalid, UINT64, ATOMIC_READ).0,
        -libc::EOPNOTSUPP
    );
    assert_eq!(query(atomic(&a).readwritevalid, UINT64, ATOMIC_READ).0, 0);
    assert_eq!(query(atomic(&a).compwritevalid, UINT64, CSWAP).0, 0);
    assert_eq!(
        query(atomic(&a).compwritevalid, UINT64, SUM).0,
        -libc::EOPNOTSUPP
    );
}
