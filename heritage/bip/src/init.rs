// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joining the job, and leaving it when the process exits.

use crate::machine::{Entered, Failure, State, failure, not_running, phase, run_any};
use crate::tag::{self, Tag};
use portolan::Node;
use std::ffi::c_int;

/// Maximum number of words of a short message. A short message waits at its receiver, and its send
/// does not wait for the receive. It is 256 bytes, as in BIP.
pub const BIPSMALLSIZE: c_int = 64;

/// Highest tag; the lowest is 0.
pub const BIPMAXTAG: c_int = 65535;

/// Number of this process, from 0. Valid after bip_init(); do not write to it.
#[unsafe(no_mangle)]
pub static mut bip_mynode: c_int = -1;

/// Number of processes in the job. Valid after bip_init(); do not write to it.
#[unsafe(no_mangle)]
pub static mut bip_numnodes: c_int = 0;

/// Joins the job, and waits for all its other processes, which may start in any order. Call it
/// once, before all other functions except bip_taginit(). The process leaves the job when it exits,
/// after all sent messages have arrived.
#[unsafe(no_mangle)]
pub extern "C" fn bip_init() {
    run_any("bip_init", |entered| {
        match entered.phase() {
            phase::BEFORE => {}
            phase::RUNNING => return Err(failure("called more than once")),
            other => return Err(not_running(other)),
        }
        let mut node = Node::join()?;
        node.barrier()?;
        let number = |count: u32| c_int::try_from(count).unwrap_or(c_int::MAX);
        // SAFETY: this thread is the only one in the library, and no other thread reads the
        // variables yet.
        unsafe {
            bip_mynode = number(node.rank());
            bip_numnodes = number(node.size());
        }
        entered.begin(State::new(node));
        // SAFETY: the function exists as long as this library.
        if unsafe { libc::atexit(leave) } != 0 {
            return Err(failure("atexit() failed: the system is out of memory"));
        }
        Ok(())
    });
}

/// Runs when the process exits. Leaves the job when all sent messages have arrived.
extern "C" fn leave() {
    let closed = portolan_ffi::fenced(|| {
        // Another thread is in a function and will not return; the launcher ends the job.
        let Ok(mut entered) = Entered::new() else {
            return Ok(());
        };
        match entered.end() {
            Some(mut state) => {
                // Cancel the receives: the program's memory may be invalid from here on.
                for request in state.tags.receiving() {
                    state.node.cancel(request);
                }
                Ok(portolan_ffi::leave(state.node)?)
            }
            None => Ok(()),
        }
    });
    if let Err(failure) = closed {
        report(&failure);
    }
}

/// Reports a failure at exit. It is too late to end the job; the launcher notices that the process
/// has not left it.
#[cold]
fn report(failure: &Failure) {
    eprintln!("bip: at exit: {}", failure.text());
}

/// Reserves `nbufs` buffers of `size` words, at most BIPSMALLSIZE, for short messages with `tag`.
/// Call it before bip_init(). Portolan needs no reservation, so only the arguments are checked.
#[unsafe(no_mangle)]
pub extern "C" fn bip_taginit(tag: c_int, size: c_int, nbufs: c_int) {
    run_any("bip_taginit", |entered| {
        if entered.phase() != phase::BEFORE {
            return Err(failure("call it before bip_init()"));
        }
        let _checked: Tag = tag::checked(tag)?;
        if !(0..=BIPSMALLSIZE).contains(&size) {
            return Err(failure(format!(
                "buffers of {size} words exceed the length of a short message, {BIPSMALLSIZE}"
            )));
        }
        match nbufs < 0 {
            true => Err(failure(format!(
                "the number of buffers is {nbufs}; pass 0 or more"
            ))),
            false => Ok(()),
        }
    });
}
