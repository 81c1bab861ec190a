// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking collective operations.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::group::{portolan_group_t, with_group};
use crate::handle::{Joined, enter, portolan_node_t};
use crate::memory;
use crate::types::portolan_collective_t;
use portolan::{Barrier, Broadcast, Group, Node};
use std::ffi::{c_int, c_void};

/// A pending collective operation.
pub(crate) enum Collective {
    Barrier(Barrier),
    Broadcast(Broadcast),
}

impl Collective {
    /// Makes progress once. Returns `true` when this process has completed its part.
    fn poll(&mut self, node: &mut Node) -> Result<bool, portolan::Error> {
        match self {
            Collective::Barrier(barrier) => node.poll_barrier(barrier, || true),
            // Memory of the program: dropping the buffer has no other effect.
            Collective::Broadcast(broadcast) => {
                Ok(node.poll_broadcast(broadcast, || true)?.is_some())
            }
        }
    }
}

/// Begins the operation of the group that `operation` starts, and stores its number for the
/// program.
///
/// # Safety
/// As [`with_group`]; `collective` is null or points to a number.
unsafe fn begin(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    collective: *mut portolan_collective_t,
    operation: impl FnOnce(&mut Node, &Group) -> Result<Collective, Failure>,
) -> c_int {
    if collective.is_null() {
        return guard(|| Err(Failure::null("collective")));
    }
    let work = |joined: &mut Joined, group: &Group| {
        let begun = operation(&mut joined.node, group)?;
        joined.collective_count += 1;
        joined.collectives.insert(joined.collective_count, begun);
        // SAFETY: not null; the caller guarantees the rest.
        unsafe { collective.write(joined.collective_count) };
        Ok(PORTOLAN_OK)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { with_group(node, group, work) }
}

/// Begins a barrier of the group, or with null of the job, and returns at once. It ends when every
/// member has begun it. Poll `*collective` with portolan_test_collective(). A group has at most two
/// pending collective operations, which all members begin in the same order.
///
/// Errors: those of portolan_barrier().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_ibarrier(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    collective: *mut portolan_collective_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let barrier = node.begin_barrier(group)?;
        Ok(Collective::Barrier(barrier))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, collective, operation) }
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
    collective: *mut portolan_collective_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::receive_buffer(buffer, len)? };
        Ok(Collective::Broadcast(
            node.begin_broadcast(group, root, buffer)?,
        ))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, collective, operation) }
}

/// Makes progress once. Returns 0 when this process has completed its part of a collective
/// operation, and PORTOLAN_PENDING before. After a failure the operation has ended.
///
/// Errors: those of portolan_broadcast(); PORTOLAN_ERR_STALE_REQUEST when it ended before, or is
/// not valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_test_collective(
    node: *mut portolan_node_t,
    collective: portolan_collective_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        let joined = entered.joined()?;
        let Some(mut pending) = joined.collectives.remove(&collective) else {
            let text = format!("collective operation {collective} does not exist, or has ended");
            return Err(Failure::new(PORTOLAN_ERR_STALE_REQUEST, text));
        };
        if pending.poll(&mut joined.node)? {
            return Ok(PORTOLAN_OK);
        }
        joined.collectives.insert(collective, pending);
        Ok(PORTOLAN_PENDING)
    })
}
