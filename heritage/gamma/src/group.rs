// SPDX-License-Identifier: MIT OR Apache-2.0
//! The group: its size, the other groups of the job, and the collective operations.

use crate::code::*;
use crate::machine::{self, BARRIER, BROADCAST, Held, Machine, running};
use crate::port::UserBuffer;
use portolan::binding::Plumbing as _;
use portolan::{Error, Group, Node, Request};
use std::ffi::{c_int, c_uchar, c_ulong, c_void};
use std::ops::Range;

/// Portolan's groups of the same processes. Threads may run barriers and broadcasts in another order
/// than other processes do, which is not allowed on one group.
pub(crate) struct Collectives {
    barrier: Group,
    broadcast: Group,
}

impl Collectives {
    /// Creates those of group `index` of the job, with the processes `ranks`.
    pub(crate) fn new(node: &Node, index: usize, ranks: Range<u32>) -> Result<Collectives, Error> {
        let ranks: Vec<u32> = ranks.collect();
        // A job has at most 255 groups. 0 is Portolan's group of the whole job.
        let id = 1 + 2 * u16::try_from(index).unwrap_or(0);
        Ok(Collectives {
            barrier: Group::new(node, id, &ranks)?,
            broadcast: Group::new(node, id + 1, &ranks)?,
        })
    }
}

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

/// Returns the number of groups in the job. Not in the original.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_how_many_groups() -> c_int {
    guard(|| Ok(c_int::try_from(running()?.partition.borrow().count()).unwrap_or(c_int::MAX)))
}

/// Returns the parallel PID of group `group`; groups are numbered from 0 in the order of their
/// ranks. Not in the original.
///
/// Errors: GAMMA_ERR_ARGUMENT.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_group_par_pid(group: c_int) -> c_int {
    guard(|| {
        let machine = running()?;
        let partition = machine.partition.borrow();
        let pid = usize::try_from(group)
            .ok()
            .and_then(|index| partition.pid(index));
        pid.map(c_int::from).ok_or_else(|| {
            let count = partition.count();
            let text = format!(
                "group {group} does not exist; the job has {count} groups, numbered from 0"
            );
            Failure::new(GAMMA_ERR_ARGUMENT, text)
        })
    })
}

/// Returns the number of nodes in the group with a parallel PID. Not in the original.
///
/// Errors: GAMMA_ERR_PAR_PID.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_group_nodes(par_pid: c_uchar) -> c_int {
    guard(|| {
        let ranks = running()?.ranks_of(par_pid)?;
        Ok(c_int::try_from(ranks.end - ranks.start).unwrap_or(c_int::MAX))
    })
}

impl Machine {
    /// Returns the ranks of the group with a parallel PID.
    pub(crate) fn ranks_of(&self, par_pid: u8) -> Result<Range<u32>, Failure> {
        let partition = self.partition.borrow();
        partition.ranks_of(par_pid).ok_or_else(|| {
            let text = format!(
                "parallel PID {par_pid} is none of this job; use that of gamma_my_par_pid(), or of \
                 gamma_group_par_pid() for another group"
            );
            Failure::new(GAMMA_ERR_PAR_PID, text)
        })
    }

    /// Begins a collective operation on one of the groups.
    fn begin_collective(
        &self,
        begin: impl FnOnce(&Collectives, &mut Node) -> Result<Request, Error>,
    ) -> Result<Request, Failure> {
        let collectives = self.collectives.borrow();
        let Some(collectives) = collectives.as_ref() else {
            return Err(machine::not_started());
        };
        self.with_node(|node| Ok(begin(collectives, node)?))
    }
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
        let barrier = machine.begin_collective(|own, node| own.barrier.ibarrier(node))?;
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

/// Copies `len` bytes of node `root` to `buf` of all other nodes, which must pass the same length.
/// Several threads may call it concurrently: the broadcasts of a process run one after the other,
/// and its other threads continue.
///
/// Broadcasts of 2 KiB or more to 3 to 64 processes on at least three hosts of one IPv4 network
/// use UDP multicast: the data crosses the root's wire once, and the root waits until all hosts
/// have it. PORTOLAN_MULTICAST in the environment sets another length, which must be at least 1K
/// (1024). With `off`, all broadcasts use messages, as shorter ones do.
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
            machine.begin_collective(|own, node| own.broadcast.ibroadcast(node, root, buffer))?;
        wait_unlocked(&mut machine, broadcast)
    })
}
