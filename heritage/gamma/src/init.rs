// SPDX-License-Identifier: MIT OR Apache-2.0
//! Begin and end of the parallel section.

use crate::code::*;
use crate::machine::{self, Machine, Phase, lock, running};
use portolan::Node;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What starts the processes, unless the environment names another command.
const RUN: &str = "portolan run";

/// The command that starts the processes, with its options; `-n N -- PROGRAM ARGUMENTS` follows.
const RUN_VARIABLE: &str = "GAMMA_RUN";

/// `best-effort` lets sends without flow control lose messages.
const QOS_VARIABLE: &str = "GAMMA_QOS";

/// Begins the parallel section as one of `num_nodes` processes; 0 is as many as were started.
///
/// A process that `portolan run` or another launcher has started joins the others. One that was
/// started alone, for more than one node, is replaced by `portolan run -n NUM_NODES` of the same
/// program with the same arguments: it begins anew, as all of them do, and what it did before is
/// done again.
///
/// Errors: GAMMA_ERR_LAUNCH, GAMMA_ERR_ALREADY, GAMMA_ERR_NULL, GAMMA_ERR_ARGUMENT,
/// GAMMA_ERR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_init(
    num_nodes: c_uchar,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    guard(|| {
        let machine = lock();
        match machine.phase.get() {
            Phase::Before => {}
            Phase::Running => {
                return Err(Failure::new(
                    GAMMA_ERR_ALREADY,
                    "gamma_init() was called before",
                ));
            }
            Phase::Forked => return Err(portolan::Error::Forked.into()),
            Phase::Exited => {
                let text = "gamma_exit() was called: a process joins its group once";
                return Err(Failure::new(GAMMA_ERR_EXITED, text));
            }
        }
        let wanted = u32::from(num_nodes);
        let lossy = is_lossy()?;
        // Before joining, which happens once.
        let arguments = match wanted > 1 {
            // SAFETY: guaranteed by the program.
            true => unsafe { arguments(argc, argv)? },
            false => Vec::new(),
        };
        let node = Node::join()?;
        if wanted > 1 && node.size() == 1 {
            drop(node);
            return Err(spawn(wanted, arguments));
        }
        if wanted != 0 && wanted != node.size() {
            let size = node.size();
            let text =
                format!("this group has {size} processes, and gamma_init() asks for {wanted}");
            return Err(Failure::new(GAMMA_ERR_LAUNCH, text));
        }
        begin(&machine, node, lossy);
        Ok(0)
    })
}

/// Whether sends without flow control may lose messages.
fn is_lossy() -> Result<bool, Failure> {
    match std::env::var_os(QOS_VARIABLE) {
        None => Ok(false),
        Some(value) if value.is_empty() || value == "reliable" => Ok(false),
        Some(value) if value == "best-effort" => Ok(true),
        Some(value) => {
            let text = format!("{QOS_VARIABLE} is {value:?}, not best-effort or reliable");
            Err(Failure::new(GAMMA_ERR_ARGUMENT, text))
        }
    }
}

fn begin(machine: &Machine, node: Node, lossy: bool) {
    machine::watch_forks();
    machine.rank.set(node.rank());
    machine.size.set(node.size());
    // Any byte but 0, the same in all processes, and mostly another in another group.
    machine.par_pid.set(node.job_id()[0].max(1));
    machine.best_effort.set(lossy);
    *machine.node.borrow_mut() = Some(node);
    machine.phase.set(Phase::Running);
}

/// # Safety
/// `argv` has `argc` strings.
unsafe fn arguments(argc: c_int, argv: *mut *mut c_char) -> Result<Vec<OsString>, Failure> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() && count > 0 {
        return Err(Failure::new(GAMMA_ERR_NULL, "argv is null"));
    }
    let mut all = Vec::new();
    // The first is the program's name.
    for index in 1..count {
        // SAFETY: guaranteed by the caller.
        let argument = unsafe { *argv.add(index) };
        if argument.is_null() {
            break;
        }
        // SAFETY: guaranteed by the caller.
        let argument = unsafe { CStr::from_ptr(argument) };
        all.push(OsStr::from_bytes(argument.to_bytes()).to_owned());
    }
    Ok(all)
}

/// Replaces this process by a launcher of `count` of it; returns only if it cannot.
fn spawn(count: u32, arguments: Vec<OsString>) -> Failure {
    let run = std::env::var(RUN_VARIABLE).unwrap_or_else(|_| RUN.to_owned());
    let mut words = run.split_whitespace();
    let program = words.next().unwrap_or("portolan");
    let own = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            let text = format!("cannot find out what program this is: {error}");
            return Failure::new(GAMMA_ERR_SYSTEM, text);
        }
    };
    // What the program has printed would be lost with its memory.
    // SAFETY: null means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    let mut command = Command::new(program);
    command.args(words).args(["-n", &count.to_string(), "--"]);
    let error = command.arg(own).args(arguments).exec();
    let text = format!(
        "cannot start {count} processes with `{run}`: {error}; put portolan into PATH, or the \
         command into {RUN_VARIABLE}"
    );
    Failure::new(GAMMA_ERR_LAUNCH, text)
}

/// Ends the parallel section after all that was sent has arrived, however long its receivers take,
/// while they live; buffers are the program's again.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_exit() -> c_int {
    guard(|| {
        let machine = running()?;
        let node = machine
            .node
            .try_borrow_mut()
            .map_err(|_| crate::machine::in_handler())?
            .take();
        machine.phase.set(Phase::Exited);
        if let Some(node) = node {
            node.close()?;
        }
        Ok(0)
    })
}

/// Ends all processes of the group, this one included. Does not return, unless it is called outside
/// of the parallel section.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_abort() -> c_int {
    guard(|| {
        let machine = running()?;
        if let Ok(mut node) = machine.node.try_borrow_mut()
            && let Some(node) = node.as_mut()
        {
            node.abort(1, "the program called gamma_abort()");
        }
        // From a handler: the launcher ends the others when this one has failed.
        std::process::exit(1);
    })
}
