// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a launcher that this program has started.

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a launcher may take to end its processes.
const ENDING: Duration = Duration::from_secs(10);
/// How often a run is looked at: it takes a second at least.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for the end of `child`. After `limit` it is asked to end, as a launcher passes on to its
/// processes, and killed if it does not.
///
/// # Errors
/// It did not end within `limit`; it has ended now all the same.
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
            // It has ended if this fails.
            let _ = kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM);
        }
        if begun.elapsed() > limit + ENDING {
            // As above.
            let _ = child.kill();
        }
        sleep(LOOK);
    }
}
