// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations on numbers in the memory of other processes.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::handle::{Caller, enter, portolan_node_t};
use crate::memory;
use crate::remote::target;
use crate::request::{ask, begin_waited};
use crate::types::*;
use portolan::{AtomicOp, Buffer, Datatype};
use std::ffi::c_int;

/// Bytes of numbers in one operation; the library says the same, but counts must not overflow
/// before it can.
const LEN_MAX: usize = 4096;

/// An operation of the program's, with its operands as they travel.
struct Work {
    operation: AtomicOp,
    datatype: Datatype,
    operands: Vec<u8>,
    before: Option<Buffer>,
}

fn pick<T: Copy>(all: &[T], code: c_int, what: &str) -> Result<T, Failure> {
    let found = usize::try_from(code).ok().and_then(|code| all.get(code));
    found.copied().ok_or_else(|| {
        let text = format!("{what} {code} is none of those that portolan.h names");
        Failure::new(PORTOLAN_ERR_ARGUMENT, text)
    })
}

/// # Safety
/// `what` is null, or points to as many bytes as it says at its beginning; its arrays have `count`
/// numbers, which in `before` nobody else uses until the operation has ended.
unsafe fn work(what: *const portolan_atomic_t) -> Result<Work, Failure> {
    // SAFETY: the caller's promise.
    let what = unsafe { memory::take("the operation", what)? };
    let operation = pick(&AtomicOp::ALL, what.operation, "operation")?;
    let datatype = pick(&Datatype::ALL, what.r#type, "type")?;
    let len = what.count.saturating_mul(datatype.len());
    if len == 0 || len > LEN_MAX {
        let text = format!(
            "count {}: an atomic operation is on 1 number at least, and {LEN_MAX} bytes at most",
            what.count
        );
        return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
    }
    let mut operands = Vec::new();
    if operation == AtomicOp::Read && what.before.is_null() {
        return Err(Failure::null("before"));
    }
    if operation != AtomicOp::Read {
        // SAFETY: the caller's promise.
        operands.extend_from_slice(unsafe { memory::bytes("operands", what.operands, len)? });
    }
    if operation.compares() {
        // SAFETY: the caller's promise.
        operands.extend_from_slice(unsafe { memory::bytes("compare", what.compare, len)? });
    }
    let before = match what.before.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(unsafe { memory::receive_buffer(what.before, len)? }),
    };
    Ok(Work {
        operation,
        datatype,
        operands,
        before,
    })
}

/// Changes numbers in the memory of another process; when it returns, it is done, and `before` has
/// them as they were. Each number is changed at once; 4096 bytes of numbers at most.
///
/// Errors: PORTOLAN_ERR_REMOTE_REFUSED, PORTOLAN_ERR_ARGUMENT, those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_atomic(
    node: *mut portolan_node_t,
    at: *const portolan_remote_t,
    what: *const portolan_atomic_t,
) -> c_int {
    guard(|| {
        // SAFETY: the program's promise.
        let mut entered = unsafe { enter(node)? };
        // SAFETY: the program's promise.
        let (at, work) = unsafe { (target(at)?, work(what)?) };
        let (operation, datatype) = (work.operation, work.datatype);
        let node = entered.node()?;
        let request = node.iatomic(at, operation, datatype, &work.operands, work.before)?;
        node.wait(request)?;
        Ok(PORTOLAN_OK)
    })
}

/// Begins to change numbers as portolan_atomic(). The operands may be used again when it returns;
/// nobody may use `before` until the request has ended. Handlers may call it.
///
/// Errors: those of portolan_atomic().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iatomic(
    node: *mut portolan_node_t,
    at: *const portolan_remote_t,
    what: *const portolan_atomic_t,
    request: *mut portolan_request_t,
) -> c_int {
    let begun = |caller: Caller| {
        // SAFETY: the program's promise.
        let (at, work) = unsafe { (target(at)?, work(what)?) };
        let (operation, datatype) = (work.operation, work.datatype);
        Ok(ask!(caller.iatomic(
            at,
            operation,
            datatype,
            &work.operands,
            work.before
        )))
    };
    // SAFETY: the program's promise.
    unsafe { begin_waited(node, request, begun) }
}
