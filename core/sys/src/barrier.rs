// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two halves of an asymmetric fence: free on the side that runs often, a system call on the
//! side that is about to sleep anyway.
//!
//! A sender stores a frame and then loads the receiver's sleeping flag; a receiver stores the flag
//! and then polls for a frame. Neither may see the other's old value, which needs a store-load
//! fence on both sides (Dekker). That fence costs a sender about 20 cycles per message.
//! `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)` on the sleeper's side makes each running thread of
//! each *registered* process execute a full fence. A registered sender therefore needs only a
//! compiler fence. See membarrier(2) and `kernel/sched/membarrier.c`.
//!
//! This module does not check which process may rely on it. A process that is not [`register`]ed
//! must use [`full`] where a registered one uses [`light`].

#[cfg(not(loom))]
use std::sync::OnceLock;
#[cfg(not(loom))]
use std::sync::atomic::{Ordering, compiler_fence, fence};

#[cfg(not(loom))]
use crate::usage::{self, Call};
#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};

/// Registers this process. Its threads then take part in the [`heavy`] fences of other processes
/// and may use [`light`]. Returns `false` if the kernel refuses; calls it once per process.
#[cfg(not(loom))]
#[must_use]
pub fn register() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// Cheap half of the fence: orders this thread's earlier stores before its later loads, as seen by
/// threads that call [`heavy`] in between. Valid only in a [`register`]ed process.
#[cfg(not(loom))]
#[inline]
pub fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// Expensive half of the fence: a full fence here and in every registered process. Returns `false`
/// if other processes were not fenced; then only peers that use [`full`] are ordered.
#[cfg(not(loom))]
#[must_use]
pub fn heavy() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    full();
    usage::count_call(Call::Membarrier);
    register() && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Same as [`register`], for the fences of [`heavy_own`].
#[cfg(not(loom))]
#[must_use]
pub fn register_own() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

/// Same as [`heavy`], for the threads of this process only. These use [`light`] if [`register_own`]
/// returned `true`, and [`full`] otherwise.
#[cfg(not(loom))]
pub fn heavy_own() {
    use rustix::thread::{MembarrierCommand, membarrier};
    full();
    if register_own() {
        // It cannot fail, because it succeeded during registration.
        usage::count_call(Call::Membarrier);
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
}

/// Begins both registrations in threads of their own, if the process has several threads.
///
/// In such a process the kernel waits for a grace period at each registration, up to 20 ms. Those of both, and that
/// of a packet ring, then pass at the same time. A later [`register`] or [`register_own`] waits for the result.
#[cfg(not(loom))]
pub fn register_ahead() {
    use std::os::unix::fs::MetadataExt;
    // A process with one thread registers at once. Directories have two links and one for each directory in them.
    let has_threads = std::fs::metadata("/proc/self/task").is_ok_and(|task| task.nlink() > 3);
    if has_threads {
        for registration in [register, register_own] {
            // Without a thread it is made when it is needed.
            let _ = std::thread::Builder::new()
                .name("portolan-fence".to_owned())
                .spawn(registration);
        }
    }
}

/// Issues a full fence in this thread only.
#[inline]
pub fn full() {
    fence(Ordering::SeqCst);
}

// Loom has no membarrier; there the asymmetric pair is a symmetric one.

/// Replaces [`register`] under loom.
#[cfg(loom)]
#[must_use]
pub fn register() -> bool {
    true
}

/// Replaces [`light`] under loom.
#[cfg(loom)]
pub fn light() {
    full();
}

/// Replaces [`heavy`] under loom.
#[cfg(loom)]
#[must_use]
pub fn heavy() -> bool {
    full();
    true
}

/// Replaces [`register_own`] under loom.
#[cfg(loom)]
#[must_use]
pub fn register_own() -> bool {
    true
}

/// Replaces [`heavy_own`] under loom.
#[cfg(loom)]
pub fn heavy_own() {
    full();
}
