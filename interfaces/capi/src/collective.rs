// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking collective operations.

use crate::failure::{Failure, guard};
use crate::group::{Receiver, Reduction, operation_of, portolan_group_t, with_group};
use crate::handle::{Joined, portolan_node_t};
use crate::memory;
use crate::request::portolan_wait;
use crate::types::portolan_request_t;
use portolan::{Group, Node, Request};
use std::ffi::{c_int, c_void};
use std::ptr;

/// Begins the operation of the group that `operation` starts, and stores its request for the
/// program.
///
/// # Safety
/// As [`with_group`]; `request` is null or points to a request.
pub(crate) unsafe fn begin(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    request: *mut portolan_request_t,
    operation: impl FnOnce(&mut Node, &Group) -> Result<Request, Failure>,
) -> c_int {
    if request.is_null() {
        return guard(|| Err(Failure::null("request")));
    }
    let work = |joined: &mut Joined, group: &Group| {
        let begun = operation(&mut joined.node, group)?;
        // SAFETY: not null; the caller guarantees the rest.
        unsafe { request.write(begun.to_raw()) };
        Ok(crate::code::PORTOLAN_OK)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_group(node, group, work) }
}

/// Begins an operation by `begin`, which stores its request, and waits until it has ended.
///
/// # Safety
/// As [`portolan_wait`].
pub(crate) unsafe fn complete(
    node: *mut portolan_node_t,
    begin: impl FnOnce(*mut portolan_request_t) -> c_int,
) -> c_int {
    let mut request = 0;
    match begin(&mut request) {
        // SAFETY: guaranteed by the caller.
        crate::code::PORTOLAN_OK => unsafe { portolan_wait(node, request, ptr::null_mut()) },
        failed => failed,
    }
}

/// Returns the lengths of the members' blocks.
///
/// # Safety
/// As [`memory::elements`].
pub(crate) unsafe fn lens_of<'a>(
    what: &str,
    lens: *const usize,
    group: &Group,
) -> Result<&'a [usize], Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { memory::elements(what, lens.cast(), group.size() as usize) }
}

/// Returns the lengths that only member `root` passes.
///
/// # Safety
/// As [`lens_of`].
pub(crate) unsafe fn root_lens<'a>(
    group: &Group,
    root: u32,
    lens: *const usize,
) -> Result<&'a [usize], Failure> {
    match group.rank() == root {
        // SAFETY: guaranteed by the caller.
        true => unsafe { lens_of("lens", lens, group) },
        false => Ok(&[]),
    }
}

/// Returns the length of all blocks.
pub(crate) fn total(lens: &[usize]) -> usize {
    let add = |sum: usize, len: &usize| sum.saturating_add(*len);
    lens.iter().fold(0, add)
}

/// Begins a barrier of the group, or with null of the job, and returns at once. It ends when every
/// member has begun it; pass `*request` to portolan_wait() or a similar function. Every call that
/// waits or makes progress advances it. All members begin the operations of a group in the same
/// order. Two of them are in flight; later non-blocking ones are queued.
///
/// Errors: those of portolan_barrier().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_ibarrier(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| Ok(group.ibarrier(node)?);
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Begins a broadcast like portolan_broadcast(), and returns at once; see portolan_ibarrier().
/// Until it has ended, the bytes must not change at the root, and must not be used elsewhere.
///
/// Errors: those of portolan_broadcast().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_ibroadcast(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    buffer: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::receive_buffer(buffer, len)? };
        Ok(group.ibroadcast(node, root, buffer)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Begins a reduction like portolan_allreduce(), and returns at once; see portolan_ibarrier(). Until
/// it has ended, the values must not be used.
///
/// Errors: those of portolan_allreduce().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iallreduce(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let begun = |node: &mut Node, group: &Group| {
        let reduction = Reduction {
            group,
            operation: operation_of(operation)?,
            receiver: Receiver::All,
        };
        // SAFETY: guaranteed by the program.
        unsafe { reduction.begin(node, r#type, values, count) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, begun) }
}

/// Begins a reduction like portolan_reduce(), and returns at once; see portolan_iallreduce().
///
/// Errors: those of portolan_reduce().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_ireduce(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let begun = |node: &mut Node, group: &Group| {
        let reduction = Reduction {
            group,
            operation: operation_of(operation)?,
            receiver: Receiver::Root(root),
        };
        // SAFETY: guaranteed by the program.
        unsafe { reduction.begin(node, r#type, values, count) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, begun) }
}
