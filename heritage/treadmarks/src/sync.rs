// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synchronisation: barriers, locks and conditions. They make writes visible to other processes.

use crate::error::{Failure, failure};
use crate::machine::run;
use crate::protocol::wire::BarrierKind;
use crate::startup::{TMK_NBARRIERS, TMK_NCONDS, TMK_NLOCKS};
use std::ffi::c_uint;

fn check(what: &str, id: c_uint, count: c_uint) -> Result<(), Failure> {
    match id < count {
        true => Ok(()),
        false => Err(failure(format!(
            "{what} {id} does not exist; pass a number below {count}"
        ))),
    }
}

/// Waits until all processes have called it with the same `id`, below TMK_NBARRIERS. Afterwards all
/// earlier writes of all processes are visible.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_barrier(id: c_uint) {
    run("Tmk_barrier", |machine| {
        check("barrier", id, TMK_NBARRIERS)?;
        machine.perform(|dsm| dsm.arrive_at(BarrierKind::Barrier(id)))
    });
}

/// Waits for the lock `id`, below TMK_NLOCKS. Afterwards the process sees all writes that were
/// visible to the process that released it.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_acquire(id: c_uint) {
    run("Tmk_lock_acquire", |machine| {
        check("lock", id, TMK_NLOCKS)?;
        machine.perform(|dsm| dsm.acquire(id))
    });
}

/// Releases the lock `id`, which this process holds.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_release(id: c_uint) {
    run("Tmk_lock_release", |machine| {
        check("lock", id, TMK_NLOCKS)?;
        machine.perform(|dsm| dsm.release(id))
    });
}

/// Releases the lock `lock_id`, waits until another process signals the condition `cond_id` of the
/// lock, below TMK_NCONDS, and acquires the lock again.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_wait(lock_id: c_uint, cond_id: c_uint) {
    run("Tmk_lock_cond_wait", |machine| {
        check("lock", lock_id, TMK_NLOCKS)?;
        check("condition", cond_id, TMK_NCONDS)?;
        machine.perform(|dsm| dsm.sleep(lock_id, cond_id))
    });
}

/// Wakes one process that waits for the condition `cond_id` of the lock `lock_id`, which this
/// process holds.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_signal(lock_id: c_uint, cond_id: c_uint) {
    signal("Tmk_lock_cond_signal", (lock_id, cond_id), false);
}

/// Wakes all processes that wait for the condition `cond_id` of the lock `lock_id`, which this
/// process holds.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_broadcast(lock_id: c_uint, cond_id: c_uint) {
    signal("Tmk_lock_cond_broadcast", (lock_id, cond_id), true);
}

fn signal(name: &str, (lock, condition): (c_uint, c_uint), all: bool) {
    run(name, |machine| {
        check("lock", lock, TMK_NLOCKS)?;
        check("condition", condition, TMK_NCONDS)?;
        machine.perform(|dsm| dsm.signal(lock, condition, all))
    });
}
