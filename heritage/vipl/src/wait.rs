// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking waits: first spinning, then sleeping.

use crate::code::VIP_INFINITE;
use crate::error::Failure;
use crate::machine::{Held, Machine, is_shared, lock, release};
use crate::types::VIP_ULONG;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// Time for which a wait spins before it sleeps. A wake-up costs about as much.
const SPIN: Duration = Duration::from_micros(100);

/// Number of passes between clock reads. In between, other threads may take the lock.
const PASSES: u32 = 64;

/// Longest sleep. It is the maximum delay before the failure of a peer is noticed.
const SLEEP_MAX_MS: c_int = 50;

/// Longest sleep if other threads use the library, because their calls may receive the awaited
/// message.
const SHARED_SLEEP_MAX_MS: c_int = 1;

/// Deadline of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Converts milliseconds or VIP_INFINITE. A timeout beyond the range of the clock is infinite,
    /// too.
    pub(crate) fn of(timeout: VIP_ULONG) -> Deadline {
        match timeout >= VIP_ULONG::from(VIP_INFINITE) {
            true => Deadline(None),
            false => Deadline(Instant::now().checked_add(Duration::from_millis(timeout))),
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the remaining milliseconds, limited to `limit`.
    fn left(self, limit: c_int) -> c_int {
        let left = self
            .0
            .map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| c_int::try_from(left.as_millis() + 1).ok());
        left.map_or(limit, |left| left.min(limit))
    }
}

/// Waits until `poll` returns a result. Returns `None` when the deadline has passed.
pub(crate) fn wait_for<T>(
    deadline: Deadline,
    mut poll: impl FnMut(&mut Machine) -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let mut begun = None;
    loop {
        let mut machine = lock()?;
        let mut found = poll(&mut machine)?;
        for _ in 0..PASSES {
            if found.is_some() {
                break;
            }
            machine.progress()?;
            found = poll(&mut machine)?;
        }
        if found.is_some() || deadline.is_over() {
            release(machine);
            return Ok(found);
        }
        if begun.get_or_insert_with(Instant::now).elapsed() < SPIN {
            release(machine);
            std::thread::yield_now();
            continue;
        }
        // Before a sleep, check that the awaited processes are alive, and acknowledge so that their
        // sends complete.
        machine.check_peers()?;
        machine.acknowledge()?;
        if let Some(found) = poll(&mut machine)? {
            release(machine);
            return Ok(Some(found));
        }
        sleep(machine, deadline)?;
    }
}

/// Sleeps until a message arrives or the next check is due. The lock is released during the sleep.
fn sleep(mut machine: Held, deadline: Deadline) -> Result<(), Failure> {
    let limit = match is_shared() {
        true => SHARED_SLEEP_MAX_MS,
        false => SLEEP_MAX_MS,
    };
    if !portolan_ffi::arm(machine.node()?)? {
        machine.node()?.disarm();
        release(machine);
        return Ok(());
    }
    let mut pollfd = libc::pollfd {
        fd: machine.event_fd,
        events: libc::POLLIN,
        revents: 0,
    };
    release(machine);
    // SAFETY: one entry, on the stack.
    let _woken: c_int = unsafe { libc::poll(&raw mut pollfd, 1, deadline.left(limit)) };
    let mut machine = lock()?;
    machine.node()?.disarm();
    release(machine);
    Ok(())
}
