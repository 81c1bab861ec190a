// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations on numbers in the memory of other processes.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::handle::{Caller, enter, portolan_node_t};
use crate::memory;
use crate::remote::target;
use crate::request::{begin_waited, call};
use crate::types::*;
use portolan::{AtomicOp, Buffer, Datatype};
use std::ffi::c_int;

/// Maximum bytes of numbers in one operation. The library has the same limit, but counts must not
/// overflow before it is checked.
const LEN_MAX: usize = 4096;

/// An operation of the program, with its operands in wire format.
struct Work {
    operation: AtomicOp,
    datatype: Datatype,
    operands: Vec<u8>,
    before: Option<Buffer>,
}

fn pick<T: Copy>(all: &[T], code: c_int, what: &str) -> Result<T, Failure> {
    let found = usize::try_from(code).ok().and_then(|code| all.get(code));
    found.copied().ok_or_else(|| {
        let text = format!("{what} {code} is not defined in portolan.h");
        Failure::new(PORTOLAN_ERR_ARGUMENT, text)
    })
}

/// # Safety
/// `what` is null, or points to as many bytes as its first field states. Its arrays have `count`
/// numbers. `before` is not used otherwise until the operation has ended.
unsafe fn work(what: *const portolan_atomic_t) -> Result<Work, Failure> {
    // SAFETY: guaranteed by the caller.
    let what = unsafe { memory::take("the operation", what)? };
    let operation = pick(&AtomicOp::ALL, what.operation, "operation")?;
    let datatype = pick(&Datatype::ALL, what.r#type, "type")?;
    let len = what.count.saturating_mul(datatype.len());
    if len == 0 || len > LEN_MAX {
        let text = format!(
            "count {}: an atomic operation has at least 1 number and at most {LEN_MAX} bytes",
            what.count
        );
        return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
    }
    let mut operands = Vec::new();
    if operation == AtomicOp::Read && what.before.is_null() {
        return Err(Failure::null("before"));
    }
    if operation != AtomicOp::Read {
        // SAFETY: guaranteed by the caller.
        operands.extend_from_slice(unsafe { memory::bytes("operands", what.operands, len)? });
    }
    if operation.compares() {
        // SAFETY: guaranteed by the caller.
        operands.extend_from_slice(unsafe { memory::bytes("compare", what.compare, len)? });
    }
    let before = match what.before.is_null() {
        true => None,
        // SAFETY: guaranteed by the caller.
        false => Some(unsafe { memory::receive_buffer(what.before, len)? }),
    };
    Ok(Work {
        operation,
        datatype,
        operands,
        before,
    })
}

/// Changes numbers in the memory of another process. They are changed when it returns, and `before`
/// has their previous values. Each number changes atomically. The limit is 4096 bytes of numbers.
///
/// Errors: PORTOLAN_ERR_REMOTE_REFUSED, PORTOLAN_ERR_ARGUMENT, those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_atomic(
    node: *mut portolan_node_t,
    at: *const portolan_remote_t,
    what: *const portolan_atomic_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        // SAFETY: guaranteed by the program.
        let (at, work) = unsafe { (target(at)?, work(what)?) };
        let (operation, datatype) = (work.operation, work.datatype);
        let node = entered.node()?;
        let request = node.iatomic(at, operation, datatype, &work.operands, work.before)?;
        node.wait(request)?;
        Ok(PORTOLAN_OK)
    })
}

/// Starts a nonblocking portolan_atomic(). The operands may be reused when it returns. `before`
/// must not be used until the request is complete. Handlers may call it.
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
        // SAFETY: guaranteed by the program.
        let (at, work) = unsafe { (target(at)?, work(what)?) };
        let (operation, datatype) = (work.operation, work.datatype);
        Ok(call!(caller.iatomic(
            at,
            operation,
            datatype,
            &work.operands,
            work.before
        )))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, begun) }
}
