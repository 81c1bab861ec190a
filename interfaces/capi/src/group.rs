// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of processes and their collective operations.

use crate::code::*;
use crate::failure::{Failure, guard};
use crate::handle::{Joined, enter, portolan_node_t};
use crate::memory;
use crate::node::number;
use crate::types::*;
use portolan::binding::Plumbing as _;
use portolan::{Group, Node, Operator, ReduceOp, Reducible, Request};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, RwLock};

/// First word of a group.
const MAGIC: u64 = u64::from_le_bytes(*b"portogrp");

/// An ordered subset of the processes of a job.
pub struct portolan_group_t {
    magic: u64,
    /// `None` when the group was freed. The structure stays, so that a late use is reported.
    group: RwLock<Option<Group>>,
}

/// All groups ever made, so that leak checkers find no loss.
static GROUPS: Mutex<Vec<&'static portolan_group_t>> = Mutex::new(Vec::new());

/// # Safety
/// `group` is null, or points to a group. Most other pointers to readable memory are detected.
unsafe fn handle(group: *const portolan_group_t) -> Result<&'static portolan_group_t, Failure> {
    // SAFETY: guaranteed by the caller; group structures are never freed.
    let handle = unsafe { group.as_ref() }.ok_or_else(|| Failure::null("group"))?;
    if handle.magic != MAGIC {
        return Err(Failure::new(
            PORTOLAN_ERR_HANDLE,
            "this pointer is not a group",
        ));
    }
    Ok(handle)
}

/// Returns a copy of the group; for null, of the group of all processes.
///
/// # Safety
/// As [`handle`].
unsafe fn members(node: &Node, group: *const portolan_group_t) -> Result<Group, Failure> {
    if group.is_null() {
        return Ok(Group::all(node));
    }
    // SAFETY: guaranteed by the caller.
    live(unsafe { handle(group)? })
}

fn live(handle: &portolan_group_t) -> Result<Group, Failure> {
    let group = handle
        .group
        .read()
        .unwrap_or_else(|broken| broken.into_inner());
    group.clone().ok_or_else(|| {
        Failure::new(
            PORTOLAN_ERR_CLOSED,
            "the group was freed by portolan_group_free()",
        )
    })
}

/// Makes a group of `count` processes with the number `id`, from 1 to 16383. All members, and no
/// other group, must use this number, and name the same ranks in the same order.
///
/// Errors: PORTOLAN_ERR_NO_SUCH_RANK; PORTOLAN_ERR_SETTING when this process is not among them, a
/// rank occurs twice, or the number is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_group_new(
    node: *mut portolan_node_t,
    id: u32,
    ranks: *const u32,
    count: usize,
    group: *mut *mut portolan_group_t,
) -> c_int {
    guard(|| {
        if group.is_null() {
            return Err(Failure::null("group"));
        }
        // SAFETY: not null; the program guarantees that it points to a pointer.
        unsafe { group.write(ptr::null_mut()) };
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        // SAFETY: the program guarantees that `ranks` has `count` elements.
        let ranks = unsafe { memory::elements("ranks", ranks, count)? };
        let id = u16::try_from(id).unwrap_or(u16::MAX);
        let made = Group::new(entered.node()?, id, ranks)?;
        // SAFETY: as above.
        unsafe { group.write(ptr::from_ref(make(made)).cast_mut()) };
        Ok(PORTOLAN_OK)
    })
}

/// Makes a handle for a group.
fn make(group: Group) -> &'static portolan_group_t {
    let handle: &'static portolan_group_t = Box::leak(Box::new(portolan_group_t {
        magic: MAGIC,
        group: RwLock::new(Some(group)),
    }));
    let mut groups = GROUPS.lock().unwrap_or_else(|broken| broken.into_inner());
    groups.push(handle);
    handle
}

/// Splits a group, or all processes of the job if it is null. Members that pass the same `colour`
/// form a new group, ordered by `key`, and for equal keys as in the old group. A member that passes
/// PORTOLAN_NO_COLOUR takes part and gets null. All members must call it, as any collective
/// operation. The library chooses the numbers of the new groups; a process can do this 16,383
/// times.
///
/// Errors: those of portolan_allreduce(); PORTOLAN_ERR_SETTING when no number is left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_group_split(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    colour: u32,
    key: u32,
    new_group: *mut *mut portolan_group_t,
) -> c_int {
    if new_group.is_null() {
        return guard(|| Err(Failure::null("new_group")));
    }
    let work = |joined: &mut Joined, group: &Group| {
        // SAFETY: not null; the program guarantees that it points to a pointer.
        unsafe { new_group.write(ptr::null_mut()) };
        let colour = (colour != PORTOLAN_NO_COLOUR).then_some(colour);
        if let Some(made) = group.split(&mut joined.node, colour, key)? {
            // SAFETY: as above.
            unsafe { new_group.write(ptr::from_ref(make(made)).cast_mut()) };
        }
        Ok(PORTOLAN_OK)
    };
    // SAFETY: guaranteed by the program.
    unsafe { with_group(node, group, work) }
}

/// Frees a group. Null has no effect.
///
/// Errors: PORTOLAN_ERR_CLOSED when it was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_group_free(group: *mut portolan_group_t) -> c_int {
    guard(|| {
        if group.is_null() {
            return Ok(PORTOLAN_OK);
        }
        // SAFETY: guaranteed by the program.
        let handle = unsafe { handle(group)? };
        live(handle)?;
        *handle
            .group
            .write()
            .unwrap_or_else(|broken| broken.into_inner()) = None;
        Ok(PORTOLAN_OK)
    })
}

/// Returns this process's index in the group, from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_group_rank(group: *const portolan_group_t) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| Ok(number(u64::from(live(unsafe { handle(group)? })?.rank()))))
}

/// Returns the number of members of the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_group_size(group: *const portolan_group_t) -> c_int {
    // SAFETY: guaranteed by the program.
    guard(|| Ok(number(u64::from(live(unsafe { handle(group)? })?.size()))))
}

/// Common part of all functions on groups: checks the caller and finds the members.
///
/// # Safety
/// As [`enter`] and [`members`].
pub(crate) unsafe fn with_group(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    work: impl FnOnce(&mut Joined, &Group) -> Result<c_int, Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let mut entered = unsafe { enter(node)? };
        let joined = entered.joined()?;
        // SAFETY: guaranteed by the caller.
        let group = unsafe { members(&joined.node, group)? };
        work(joined, &group)
    })
}

/// Waits until every member of the group, or with null every process of the job, has called it. All
/// members make the same calls on a group in the same order. If they do not, or a member dies,
/// every member's call fails with a message that names the member and the cause, and so does every
/// later call on that group.
///
/// Errors: PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_COLLECTIVE_MISMATCH, PORTOLAN_ERR_LENGTH_MISMATCH,
/// PORTOLAN_ERR_GROUP_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_barrier(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
) -> c_int {
    let work = |joined: &mut Joined, group: &Group| {
        group.barrier(&mut joined.node)?;
        Ok(PORTOLAN_OK)
    };
    // SAFETY: guaranteed by the program.
    unsafe { with_group(node, group, work) }
}

/// Copies `len` bytes of member `root` to those of all other members of the group, or with null of
/// the job. All must pass the same length. The root does not wait for all; a later call may report
/// a failure. From 4 MiB on, more than two members form a chain, in which each passes on blocks
/// while it receives further ones.
///
/// A broadcast of 2 KiB or more to 3 to 64 processes on three or more hosts of one IPv4 network
/// uses UDP multicast if it reaches all hosts: the root sends the bytes once, and waits until all
/// members have them. PORTOLAN_MULTICAST in the environment sets another length, which must be at
/// least 1K (1024), or turns multicast `off`.
///
/// Errors: PORTOLAN_ERR_NO_SUCH_RANK, those of portolan_barrier().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_broadcast(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    let work = |joined: &mut Joined, group: &Group| {
        // SAFETY: guaranteed by the program.
        let bytes = unsafe { memory::bytes_mut("the buffer", buffer, len)? };
        group.broadcast(&mut joined.node, root, bytes)?;
        Ok(PORTOLAN_OK)
    };
    // SAFETY: guaranteed by the program.
    unsafe { with_group(node, group, work) }
}

/// Members that receive a result.
#[derive(Clone, Copy)]
pub(crate) enum Receiver {
    All,
    Root(u32),
}

/// Combines `count` values of each member of the group, or with null of the job, element by
/// element. Every member gets the same result, bit for bit, in place. `operation` is PORTOLAN_SUM
/// or another constant of its group, and `type` PORTOLAN_DOUBLE or another; all members must pass
/// the same.
///
/// Errors: those of portolan_barrier().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_allreduce(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
) -> c_int {
    let work = |joined: &mut Joined, group: &Group| {
        let reduction = Reduction {
            group,
            operation: operation_of(operation)?,
            receiver: Receiver::All,
        };
        // SAFETY: guaranteed by the program.
        unsafe { reduction.run(&mut joined.node, r#type, values, count) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { with_group(node, group, work) }
}

/// Combines values like portolan_allreduce(), for member `root` only. At all other members they are
/// partial results afterwards.
///
/// Errors: those of portolan_allreduce(), PORTOLAN_ERR_NO_SUCH_RANK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_reduce(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
) -> c_int {
    let work = |joined: &mut Joined, group: &Group| {
        let reduction = Reduction {
            group,
            operation: operation_of(operation)?,
            receiver: Receiver::Root(root),
        };
        // SAFETY: guaranteed by the program.
        unsafe { reduction.run(&mut joined.node, r#type, values, count) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { with_group(node, group, work) }
}

pub(crate) fn operation_of(operation: c_int) -> Result<ReduceOp, Failure> {
    match operation {
        PORTOLAN_SUM => Ok(ReduceOp::Sum),
        PORTOLAN_PRODUCT => Ok(ReduceOp::Product),
        PORTOLAN_MIN => Ok(ReduceOp::Min),
        PORTOLAN_MAX => Ok(ReduceOp::Max),
        PORTOLAN_BIT_AND => Ok(ReduceOp::And),
        PORTOLAN_BIT_OR => Ok(ReduceOp::Or),
        PORTOLAN_BIT_XOR => Ok(ReduceOp::Xor),
        other => {
            let text = format!(
                "operation {other} is not one of reductions in portolan.h; use PORTOLAN_SUM or another one"
            );
            Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text))
        }
    }
}

pub(crate) struct Reduction<'a> {
    pub(crate) group: &'a Group,
    pub(crate) operation: ReduceOp,
    pub(crate) receiver: Receiver,
}

/// Calls `$call` with the type that a constant of the interface names.
macro_rules! by_type {
    ($kind:expr, $call:ident::<_>($($argument:expr),*)) => {
        match $kind {
            PORTOLAN_INT8 => $call::<i8>($($argument),*),
            PORTOLAN_INT16 => $call::<i16>($($argument),*),
            PORTOLAN_INT32 => $call::<i32>($($argument),*),
            PORTOLAN_INT64 => $call::<i64>($($argument),*),
            PORTOLAN_UINT8 => $call::<u8>($($argument),*),
            PORTOLAN_UINT16 => $call::<u16>($($argument),*),
            PORTOLAN_UINT32 => $call::<u32>($($argument),*),
            PORTOLAN_UINT64 => $call::<u64>($($argument),*),
            PORTOLAN_FLOAT => $call::<f32>($($argument),*),
            PORTOLAN_DOUBLE => $call::<f64>($($argument),*),
            other => Err(unknown_type(other)),
        }
    };
}

#[cold]
fn unknown_type(kind: c_int) -> Failure {
    let text =
        format!("type {kind} is not defined in portolan.h; use PORTOLAN_DOUBLE or another one");
    Failure::new(PORTOLAN_ERR_ARGUMENT, text)
}

/// Returns the operator that two constants name.
pub(crate) fn operator_of(operation: c_int, kind: c_int) -> Result<Operator, Failure> {
    fn operator<T: Reducible>(operation: ReduceOp) -> Result<Operator, Failure> {
        Ok(Operator::new::<T>(operation))
    }
    let operation = operation_of(operation)?;
    by_type!(kind, operator::<_>(operation))
}

/// Returns the length of an element of the type that a constant names.
pub(crate) fn element_len_of(kind: c_int) -> Result<usize, Failure> {
    fn len<T>() -> Result<usize, Failure> {
        Ok(size_of::<T>())
    }
    by_type!(kind, len::<_>())
}

impl Reduction<'_> {
    /// # Safety
    /// As [`memory::elements_mut`], for the type that `kind` names.
    unsafe fn run(
        &self,
        node: &mut Node,
        kind: c_int,
        values: *mut c_void,
        count: usize,
    ) -> Result<c_int, Failure> {
        // SAFETY: guaranteed by the caller.
        unsafe { by_type!(kind, run_of::<_>(self, node, values, count)) }
    }

    /// Begins the reduction.
    ///
    /// # Safety
    /// As [`memory::receive_buffer`], for elements of the type that `kind` names.
    pub(crate) unsafe fn begin(
        &self,
        node: &mut Node,
        kind: c_int,
        values: *mut c_void,
        count: usize,
    ) -> Result<Request, Failure> {
        // SAFETY: guaranteed by the caller.
        unsafe { by_type!(kind, begin_of::<_>(self, node, values, count)) }
    }
}

/// # Safety
/// As [`memory::elements_mut`].
unsafe fn run_of<T: Reducible>(
    reduction: &Reduction<'_>,
    node: &mut Node,
    values: *mut c_void,
    count: usize,
) -> Result<c_int, Failure> {
    // SAFETY: guaranteed by the caller.
    let values = unsafe { memory::elements_mut::<T>("values", values, count)? };
    let Reduction {
        group,
        operation,
        receiver,
    } = reduction;
    match *receiver {
        Receiver::All => group.allreduce(node, *operation, values)?,
        Receiver::Root(root) => group.reduce(node, root, *operation, values)?,
    }
    Ok(PORTOLAN_OK)
}

/// # Safety
/// As [`memory::receive_buffer`].
unsafe fn begin_of<T: Reducible>(
    reduction: &Reduction<'_>,
    node: &mut Node,
    values: *mut c_void,
    count: usize,
) -> Result<Request, Failure> {
    let len = count.saturating_mul(size_of::<T>());
    // SAFETY: guaranteed by the caller.
    let buffer = unsafe { memory::receive_buffer(values, len)? };
    let Reduction {
        group,
        operation,
        receiver,
    } = reduction;
    Ok(match *receiver {
        Receiver::All => node.iallreduce_buffer::<T>(group, *operation, buffer)?,
        Receiver::Root(root) => node.ireduce_buffer::<T>(group, root, *operation, buffer)?,
    })
}
