// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two halves of an asymmetric fence: free for the side that runs often, a system call for the
//! side that is about to sleep anyway.
//!
//! A sender stores a frame and then loads the receiver's sleeping flag; a receiver stores the flag
//! and then looks for a frame. Neither may see the other's old value, which takes a store-load
//! fence on both sides (Dekker). That fence costs a sender about 20 cycles for every message.
//! `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)` on the sleeper's side makes each running thread
//! of each *registered* process execute a full fence, so a registered sender needs to keep only the
//! compiler in order. See membarrier(2) and `kernel/sched/membarrier.c`.
//!
//! What it does not do: decide who may rely on it. A process that is not [`register`]ed must use
//! [`full`] where a registered one uses [`light`].

#[cfg(not(loom))]
use std::sync::OnceLock;
#[cfg(not(loom))]
use std::sync::atomic::{Ordering, compiler_fence, fence};

#[cfg(not(loom))]
use crate::effort::{self, Call};
#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};

/// Registers this process, so that its threads take part in the [`heavy`] fences of others and may
/// use [`light`]. Returns whether the kernel agreed; asks it once per process.
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

/// The cheap half: orders this thread's earlier stores before its later loads as far as threads
/// that call [`heavy`] in between can tell. Valid only in a process that is [`register`]ed.
#[cfg(not(loom))]
#[inline]
pub fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The dear half: a full fence here and in every registered process. Returns whether others were
/// fenced too; if not, only peers that use [`full`] are in order with us.
#[cfg(not(loom))]
#[must_use]
pub fn heavy() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    full();
    effort::calls(Call::Membarrier);
    register() && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// As [`register`], for the fences of [`heavy_own`].
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

/// As [`heavy`], for the threads of this process alone, which use [`light`] if [`register_own`]
/// agreed, and [`full`] if not.
#[cfg(not(loom))]
pub fn heavy_own() {
    use rustix::thread::{MembarrierCommand, membarrier};
    full();
    if register_own() {
        // It succeeded when it was tried.
        effort::calls(Call::Membarrier);
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
}

/// A full fence of this thread alone.
#[inline]
pub fn full() {
    fence(Ordering::SeqCst);
}

// Loom knows no membarrier; there the asymmetric pair is a symmetric one.

/// See the real one.
#[cfg(loom)]
#[must_use]
pub fn register() -> bool {
    true
}

/// See the real one.
#[cfg(loom)]
pub fn light() {
    full();
}

/// See the real one.
#[cfg(loom)]
#[must_use]
pub fn heavy() -> bool {
    full();
    true
}

/// See the real one.
#[cfg(loom)]
#[must_use]
pub fn register_own() -> bool {
    true
}

/// See the real one.
#[cfg(loom)]
pub fn heavy_own() {
    full();
}
