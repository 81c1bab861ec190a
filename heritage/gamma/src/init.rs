// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start and end of the parallel section.

use crate::code::*;
use crate::group::Collectives;
use crate::machine::{self, Machine, Phase, lock, running};
use crate::partition::Partition;
use portolan::{Group, Node};
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Default command that starts the processes.
const RUN: &str = "portolan run";

/// Environment variable with the command that starts the processes, and its options.
/// `-n N -- PROGRAM ARGUMENTS` is appended.
const RUN_VARIABLE: &str = "GAMMA_RUN";

/// Environment variable; with `best-effort`, sends without flow control may lose messages.
const QOS_VARIABLE: &str = "GAMMA_QOS";

/// Starts the parallel section as one of `num_nodes` processes; 0 stands for the number of
/// processes that were started. All processes of the job must call this.
///
/// If more processes were started, consecutive ranks that request the same number form a group,
/// and the following ranks form further groups. In a group that requests 0, all remaining ranks are
/// nodes.
///
/// A process that was started by `portolan run` or another launcher joins the group. A process that
/// was started alone, for more than one node, is replaced by `portolan run -n NUM_NODES` of the
/// same program with the same arguments. All processes then start from the beginning, so everything
/// before this call runs again.
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
                    "gamma_init() was called before; call it once",
                ));
            }
            Phase::Forked => return Err(portolan::Error::Forked.into()),
            Phase::Exited => {
                let text = "gamma_exit() was called; a process can join its group only once";
                return Err(Failure::new(GAMMA_ERR_EXITED, text));
            }
        }
        let requested = u32::from(num_nodes);
        let lossy = is_lossy()?;
        // Read the arguments before joining, which is possible only once.
        let arguments = match requested > 1 {
            // SAFETY: guaranteed by the program.
            true => unsafe { arguments(argc, argv)? },
            false => Vec::new(),
        };
        let node = Node::join()?;
        if requested > 1 && node.size() == 1 {
            drop(node);
            return Err(spawn(requested, arguments));
        }
        begin(&machine, node, num_nodes, lossy)?;
        Ok(0)
    })
}

/// Returns true if sends without flow control may lose messages.
fn is_lossy() -> Result<bool, Failure> {
    match std::env::var_os(QOS_VARIABLE) {
        None => Ok(false),
        Some(value) if value.is_empty() || value == "reliable" => Ok(false),
        Some(value) if value == "best-effort" => Ok(true),
        Some(value) => {
            let text = format!("{QOS_VARIABLE} is {value:?}; use best-effort or reliable");
            Err(Failure::new(GAMMA_ERR_ARGUMENT, text))
        }
    }
}

/// Divides the job into groups, and starts the parallel section in that of this process.
fn begin(
    machine: &Machine,
    mut node: Node,
    num_nodes: c_uchar,
    lossy: bool,
) -> Result<(), Failure> {
    let mut requests = vec![0; node.size() as usize];
    Group::all(&node).allgather(&mut node, &[num_nodes], &mut requests)?;
    // The seed usually differs between jobs.
    let partition = Partition::new(&requests, node.job_id()[0])?;
    let own = partition.group_of(node.rank());
    let ranks = partition.ranks(own).unwrap_or(0..node.size());
    *machine.collectives.borrow_mut() = Some(Collectives::new(&node, own, ranks.clone())?);
    machine::watch_forks();
    machine.rank.set(node.rank() - ranks.start);
    machine.size.set(ranks.end - ranks.start);
    machine.par_pid.set(partition.pid(own).unwrap_or(1));
    *machine.partition.borrow_mut() = partition;
    machine.best_effort.set(lossy);
    *machine.node.borrow_mut() = Some(node);
    machine.phase.set(Phase::Running);
    Ok(())
}

/// Copies the arguments without the program's name.
///
/// # Safety
/// `argv` has `argc` strings.
unsafe fn arguments(argc: c_int, argv: *mut *mut c_char) -> Result<Vec<OsString>, Failure> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() && count > 0 {
        return Err(Failure::new(GAMMA_ERR_NULL, "argv is null"));
    }
    let mut all = Vec::new();
    // Skip the program's name.
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

/// Replaces this process by a launcher of `count` processes. Returns only on failure.
fn spawn(count: u32, arguments: Vec<OsString>) -> Failure {
    let run = std::env::var(RUN_VARIABLE).unwrap_or_else(|_| RUN.to_owned());
    let mut words = run.split_whitespace();
    let program = words.next().unwrap_or("portolan");
    let own = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            let text = format!("cannot determine the path of this program: {error}");
            return Failure::new(GAMMA_ERR_SYSTEM, text);
        }
    };
    // Flush buffered output, which would be lost with this process's memory.
    // SAFETY: null means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    let mut command = Command::new(program);
    command.args(words).args(["-n", &count.to_string(), "--"]);
    let error = command.arg(own).args(arguments).exec();
    let text = format!(
        "cannot start {count} processes with `{run}`: {error}; add portolan to PATH, or set \
         {RUN_VARIABLE} to the launch command"
    );
    Failure::new(GAMMA_ERR_LAUNCH, text)
}

/// Ends the parallel section after all sent messages have arrived, however long their receivers
/// take, unless these fail. The program owns its buffers again.
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

/// Ends all processes of the job, including this one and those of other groups. Returns only if it
/// is called outside of the parallel section.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_abort() -> c_int {
    guard(|| {
        let machine = running()?;
        if let Ok(mut node) = machine.node.try_borrow_mut()
            && let Some(node) = node.as_mut()
        {
            node.abort(1, "the program called gamma_abort()");
        }
        // In a handler the node is not available. The launcher ends the other processes when this
        // one has failed.
        std::process::exit(1);
    })
}
