// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joining the job, and leaving it.

use crate::error::{Failure, failure};
use crate::fault;
use crate::machine::{Held, Machine, enter, fail, is_forked};
use crate::protocol::wire::BarrierKind;
use crate::settings::Settings;
use portolan_ffi::fenced;
use std::ffi::{c_char, c_int, c_uint};

/// Maximum number of processes.
pub const TMK_NPROCS: c_uint = 32;

/// Number of locks. They are numbered from 0.
pub const TMK_NLOCKS: c_uint = 1024;

/// Number of barriers. They are numbered from 0.
pub const TMK_NBARRIERS: c_uint = 32;

/// Number of conditions of each lock. They are numbered from 0.
pub const TMK_NCONDS: c_uint = 32;

/// Number of this process, from 0. Valid after Tmk_startup(); do not write to it.
#[unsafe(no_mangle)]
pub static mut Tmk_proc_id: c_uint = 0;

/// Number of processes in the job. Valid after Tmk_startup(); do not write to it.
#[unsafe(no_mangle)]
pub static mut Tmk_nprocs: c_uint = 1;

/// Bytes of a page, the unit of sharing. Valid after Tmk_startup(); do not write to it.
#[unsafe(no_mangle)]
pub static mut Tmk_page_size: c_uint = 4096;

/// Joins the job that a launcher has started, and waits for all its processes. Call it once in each
/// process, before all other functions. The arguments are those of main(), and are not changed.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_startup(argc: c_int, argv: *mut *mut c_char) {
    let _: (c_int, *mut *mut c_char) = (argc, argv);
    let mut held = enter("Tmk_startup");
    let started = fenced(|| match held.machine() {
        Some(_) => Err(failure("called more than once")),
        own @ None => start(own),
    });
    if let Err(why) = started {
        fail(held, "Tmk_startup", &why);
        std::process::exit(1);
    }
}

fn start(own: &mut Option<Machine>) -> Result<(), Failure> {
    let settings = Settings::read()?;
    let mut machine = Machine::join(settings)?;
    let memory = machine.dsm.memory();
    fault::install(memory.base(), memory.len())?;
    let page_len = crate::mapping::page_len();
    // SAFETY: no other thread of the program uses the library yet.
    unsafe {
        Tmk_proc_id = machine.dsm.me();
        Tmk_nprocs = machine.dsm.size();
        Tmk_page_size = c_uint::try_from(page_len).unwrap_or(c_uint::MAX);
    }
    // SAFETY: the function exists as long as this library.
    if unsafe { libc::atexit(leave) } != 0 {
        return Err(failure("atexit() failed: the system is out of memory"));
    }
    // A process that is ready may send at once.
    machine.node.barrier()?;
    machine.leave()?;
    machine.start_helper()?;
    *own = Some(machine);
    Ok(())
}

/// Leaves the job, and ends the process with `status`. With status 0 it waits until all processes
/// have called it, and serves them meanwhile. Any other status ends the whole job at once.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_exit(status: c_int) {
    if status != 0 && !is_forked() {
        let mut held = enter("Tmk_exit");
        let why = failure(format!("called with status {status}"));
        if let Some(mut machine) = held.machine().take() {
            machine.node.abort(
                status,
                &format!("process {}: Tmk_exit(): {}", machine.dsm.me(), why.text()),
            );
            std::mem::forget(machine);
        }
    }
    std::process::exit(status)
}

/// Runs when the process exits. Leaves the job when all processes have reached this point.
extern "C" fn leave() {
    if is_forked() {
        return;
    }
    let Some(mut held) = Held::take() else {
        return;
    };
    let Some(machine) = held.machine() else {
        return;
    };
    let left = fenced(|| {
        machine.take_over()?;
        if let Some(lock) = machine.dsm.held_lock() {
            return Err(failure(format!(
                "this process holds lock {lock}; release it first"
            )));
        }
        machine.perform(|dsm| dsm.arrive_at(BarrierKind::Exit))?;
        if machine.settings.prints_statistics {
            eprintln!(
                "treadmarks: process {}: {}",
                machine.dsm.me(),
                machine.dsm.statistics()
            );
        }
        Ok(())
    });
    if let Err(why) = left {
        fail(held, "Tmk_exit", &why);
        crate::machine::end_now();
    }
    let own = held.machine().take();
    drop(held);
    let closed = fenced(|| match own {
        Some(machine) => Ok::<_, Failure>(portolan_ffi::leave(machine.node)?),
        None => Ok(()),
    });
    if let Err(why) = closed {
        eprintln!("treadmarks: at exit: {}", why.text());
    }
}
