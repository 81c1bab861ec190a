// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for a launcher that this program has started.

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for a launcher to end its processes.
const ENDING: Duration = Duration::from_secs(10);
/// Interval between checks of a run, which takes at least a second.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for the end of `child`. After `limit` it gets SIGTERM, which a launcher forwards to its
/// processes, and later SIGKILL.
///
/// # Errors
/// It did not end within `limit`; it has ended when this returns.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            match asked {
                false => return Ok(status),
                true => bail!("the program did not end within {limit:?}"),
            }
        }
        if begun.elapsed() > limit && !asked {
            asked = true;
            // This fails only if it has ended.
            let _ = kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM);
        }
        if begun.elapsed() > limit + ENDING {
            // This also fails only if it has ended.
            let _ = child.kill();
        }
        sleep(LOOK);
    }
}
