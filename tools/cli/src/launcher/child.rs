// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for a launcher that this program has started.

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for a launcher to end its processes.
const END_DELAY: Duration = Duration::from_secs(10);
/// Interval between checks of a run, which takes at least a second.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits for the end of `child`. After `limit` it gets SIGTERM, which a launcher forwards to its
/// processes, and later SIGKILL.
///
/// # Errors
/// It did not end within `limit`; it has ended when this returns.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    let mut is_terminated = false;
    loop {
        if let Some(status) = child.try_wait()? {
            match is_terminated {
                false => return Ok(status),
                true => bail!("the program did not end within {limit:?}"),
            }
        }
        if start.elapsed() > limit && !is_terminated {
            is_terminated = true;
            // This fails only if it has ended.
            let _ = kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM);
        }
        if start.elapsed() > limit + END_DELAY {
            // This also fails only if it has ended.
            let _ = child.kill();
        }
        sleep(POLL_INTERVAL);
    }
}
