// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is there, and what all do together.

use crate::code::*;
use crate::machine::{self, COLLECTIVE, running};
use portolan::Group;
use std::ffi::{c_int, c_ulong, c_void};

/// Index of this process in its group, from 0.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_my_node() -> c_int {
    guard(|| Ok(c_int::try_from(running()?.rank.get()).unwrap_or(c_int::MAX)))
}

/// Processes of the group.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_how_many_nodes() -> c_int {
    guard(|| Ok(c_int::try_from(running()?.size.get()).unwrap_or(c_int::MAX)))
}

/// Parallel PID of the group, from 1 to 255.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_my_par_pid() -> c_int {
    guard(|| Ok(c_int::from(running()?.par_pid.get())))
}

/// Waits until every process of the group has come here. Threads may call it at once: the barriers
/// of a process are made one after the other, and its other threads go on meanwhile.
///
/// Errors: GAMMA_ERR_NODE_GONE, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_sync() -> c_int {
    guard(|| {
        not_in_handler()?;
        let _alone = COLLECTIVE.lock();
        let mut machine = running()?;
        let mut barrier = machine.with_node(|node| {
            let all = Group::all(node);
            Ok(node.begin_barrier(&all)?)
        })?;
        loop {
            let done = machine.with_node(|node| {
                let stop = || machine::is_wanted() || machine::is_shared();
                Ok(node.poll_barrier(&mut barrier, stop)?)
            })?;
            if done {
                return Ok(0);
            }
            machine::step_aside(&mut machine);
        }
    })
}

/// A handler holds the lock, so it must not wait for the other one.
fn not_in_handler() -> Result<(), Failure> {
    running()?.with_node(|_| Ok(()))
}

/// Copies `len` bytes of node `root` into `buf` of all others, which must give the same length.
/// Threads may call it at once; other threads of the process wait until it has ended.
///
/// Errors: GAMMA_ERR_NODE, GAMMA_ERR_NODE_GONE, GAMMA_ERR_NULL, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_broadcast(root: u16, buf: *mut c_void, len: c_ulong) -> c_int {
    guard(|| {
        not_in_handler()?;
        let _alone = COLLECTIVE.lock();
        let machine = running()?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > isize::MAX.unsigned_abs() {
            let text = "the buffer is longer than memory";
            return Err(Failure::new(GAMMA_ERR_ARGUMENT, text));
        }
        if buf.is_null() && len > 0 {
            return Err(Failure::new(GAMMA_ERR_NULL, "the buffer is null"));
        }
        let bytes = if len == 0 {
            &mut []
        } else {
            // SAFETY: not null, not too long; the rest is the program's promise.
            unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) }
        };
        machine.with_node(|node| Ok(node.broadcast(u32::from(root), bytes)?))?;
        Ok(0)
    })
}
