// SPDX-License-Identifier: MIT OR Apache-2.0
//! The group: its size, and the collective operations.

use crate::code::*;
use crate::machine::{self, BARRIER, BROADCAST, Held, running};
use crate::port::UserBuffer;
use portolan::binding::Plumbing as _;
use portolan::{Error, Group, Node, Request};
use std::ffi::{c_int, c_ulong, c_void};

/// Number of the group for broadcasts. Barriers use the group of the job.
const BROADCAST_GROUP: u16 = 1;

/// Returns the index of this process in its group, from 0.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_my_node() -> c_int {
    guard(|| Ok(c_int::try_from(running()?.rank.get()).unwrap_or(c_int::MAX)))
}

/// Returns the number of processes in the group.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_how_many_nodes() -> c_int {
    guard(|| Ok(c_int::try_from(running()?.size.get()).unwrap_or(c_int::MAX)))
}

/// Returns the parallel PID of the group, from 1 to 255.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_my_par_pid() -> c_int {
    guard(|| Ok(c_int::from(running()?.par_pid.get())))
}

/// Waits until every process of the group has called it. Several threads may call it concurrently:
/// the barriers of a process run one after the other, and its other threads continue.
///
/// Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_sync() -> c_int {
    guard(|| {
        not_in_handler()?;
        let _serialized = BARRIER.lock();
        let mut machine = running()?;
        let barrier = machine.with_node(|node| Ok(node.ibarrier()?))?;
        wait_unlocked(&mut machine, barrier)
    })
}

/// Checks that no handler is running. A handler holds the machine's lock, so it must not wait for
/// another one.
fn not_in_handler() -> Result<(), Failure> {
    running()?.with_node(|_| Ok(()))
}

/// Waits for a request. In between, other threads may use the machine.
fn wait_unlocked(machine: &mut Held, request: Request) -> Result<c_int, Failure> {
    let stop = || machine::has_waiters() || machine::is_shared();
    let poll = |node: &mut Node| Ok(node.wait_or_stop(request, stop)?);
    while machine.with_node(poll)?.is_none() {
        machine::yield_lock(machine);
    }
    Ok(0)
}

/// Creates a second group of all processes. Threads may run barriers and broadcasts in another
/// order than other processes do, which is not allowed on one group.
fn broadcast_group(node: &Node) -> Result<Group, Error> {
    let all: Vec<u32> = (0..node.size()).collect();
    Group::new(node, BROADCAST_GROUP, &all)
}

/// Copies `len` bytes of node `root` to `buf` of all other nodes, which must pass the same length.
/// Several threads may call it concurrently: the broadcasts of a process run one after the other,
/// and its other threads continue.
///
/// Broadcasts of 32 KiB or more to 3 to 64 processes on at least three hosts of one IPv4 network
/// use UDP multicast: the data crosses the root's wire once, and the root waits until all hosts
/// have it. With PORTOLAN_MULTICAST=off in the environment they use messages, as shorter ones do.
///
/// Errors: GAMMA_ERR_NODE, GAMMA_ERR_NODE_GONE, GAMMA_ERR_NULL, GAMMA_ERR_ARGUMENT,
/// GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_broadcast(root: u16, buf: *mut c_void, len: c_ulong) -> c_int {
    guard(|| {
        not_in_handler()?;
        let _serialized = BROADCAST.lock();
        let mut machine = running()?;
        // The program guarantees that the broadcast owns the memory until this function returns.
        let buffer = UserBuffer::new(buf, len)?.buffer();
        let root = u32::from(root);
        let broadcast =
            machine.with_node(|node| Ok(broadcast_group(node)?.ibroadcast(node, root, buffer)?))?;
        wait_unlocked(&mut machine, broadcast)
    })
}
