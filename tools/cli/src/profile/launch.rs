// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a launcher to its end. A signal that ends a program ends the launcher, but not this
//! process, which reports about it.

use crate::error::UserError;
use crate::launch_io;
use crate::signals::{ENDING, Sender, Signals};
use anyhow::{Context, Result};
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// Value that a shell adds to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// Runs `command`, and returns its exit status as a shell would. Signals that a user sends to this
/// process are forwarded to it.
pub(crate) fn run(mut command: Command) -> Result<u8> {
    let mut kinds = ENDING.to_vec();
    kinds.push(Signal::SIGCHLD);
    let signals = Signals::block(&kinds)?;
    portolan_sys::inherit::unblock_signals(&mut command);
    crate::ambient::keep_net_raw();
    let mut child = command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        UserError::new(crate::program::explain(&program, &error))
    })?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        if let Some(status) = child.try_wait().context("waiting for the launcher")? {
            return Ok(shell_status(status));
        }
        launch_io::wait(&[((), signals.fd(), PollFlags::POLLIN)], None)?;
        while let Some((number, sender)) = signals.next_from() {
            let signal = Signal::try_from(number)?;
            // A terminal has sent the signal to the launcher as well; a second one would make it
            // end at once.
            if signal != Signal::SIGCHLD && sender == Sender::Process {
                // The launcher may have ended meanwhile; the next round detects that.
                let _ = kill(pid, signal);
            }
        }
    }
}

fn shell_status(status: ExitStatus) -> u8 {
    let signalled = status.signal().map(|signal| SIGNALLED + signal);
    let status = status.code().or(signalled).unwrap_or(SIGNALLED);
    u8::try_from(status).unwrap_or(u8::MAX)
}
