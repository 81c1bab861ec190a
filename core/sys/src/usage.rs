// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a thread's system calls, by name, and of its copies.
//!
//! Each function of this crate that the data path calls counts its system call. Functions that open
//! or close an object do not.
//!
//! Counting starts with the first [`Usage`] that the process reads. Before that, a count costs one
//! load and one branch. Thread-local memory of a shared library costs a call and about 25
//! instructions, a twentieth of a short message.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counted system calls, by the names that `strace` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "each is the call of its name")]
pub enum Call {
    Sendto,
    Sendmsg,
    Sendmmsg,
    Recvfrom,
    Recvmsg,
    Readv,
    Vmsplice,
    Splice,
    Getsockopt,
    Setsockopt,
    Poll,
    Ppoll,
    ProcessVmReadv,
    ProcessVmWritev,
    SchedYield,
    Membarrier,
    Accept4,
    Flock,
    Read,
    Write,
}

/// Names, in the order of [`Call`].
const NAMES: [&str; 20] = [
    "sendto",
    "sendmsg",
    "sendmmsg",
    "recvfrom",
    "recvmsg",
    "readv",
    "vmsplice",
    "splice",
    "getsockopt",
    "setsockopt",
    "poll",
    "ppoll",
    "process_vm_readv",
    "process_vm_writev",
    "sched_yield",
    "membarrier",
    "accept4",
    "flock",
    "read",
    "write",
];

const _: () = assert!(Call::Write as usize + 1 == NAMES.len());

/// Set when the first [`Usage`] is read. Relaxed: a thread counts once it sees the flag.
static IS_COUNTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CALLS: [Cell<u64>; NAMES.len()] = const { [const { Cell::new(0) }; NAMES.len()] };
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

fn add_one(count: &Cell<u64>) {
    count.set(count.get().wrapping_add(1));
}

#[inline(always)]
fn is_counted() -> bool {
    IS_COUNTED.load(Ordering::Relaxed)
}

/// Counts one `call` of this thread.
#[inline(always)]
pub fn count_call(call: Call) {
    if is_counted() {
        add_call(call);
    }
}

#[cold]
fn add_call(call: Call) {
    CALLS.with(|counts| add_one(&counts[call as usize]));
}

/// Counts a copy of a message's payload, or of a part of it, that this thread makes within its own
/// memory or that of a ring.
#[inline(always)]
pub fn count_copy() {
    if is_counted() {
        add_copy();
    }
}

#[cold]
fn add_copy() {
    COPIES.with(add_one);
}

/// Counts of one thread, since the process first read one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    calls: [u64; NAMES.len()],
    /// Copies of payload or of parts of it.
    pub copies: u64,
}

impl Usage {
    /// Returns the counts of the calling thread, and starts to count if this is the first call in the
    /// process.
    #[must_use]
    pub fn of_this_thread() -> Usage {
        IS_COUNTED.store(true, Ordering::Relaxed);
        Usage {
            calls: CALLS.with(|counts| std::array::from_fn(|index| counts[index].get())),
            copies: COPIES.with(Cell::get),
        }
    }

    /// Returns the difference to `earlier`, a count of the same thread.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        let added = |index: usize| self.calls[index].wrapping_sub(earlier.calls[index]);
        Usage {
            calls: std::array::from_fn(added),
            copies: self.copies.wrapping_sub(earlier.copies),
        }
    }

    /// Returns the system calls by name, without those never made.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = NAMES.into_iter().zip(self.calls);
        all.filter(|(_, count)| *count > 0)
    }

    /// Returns how often the thread slept for an event or a timeout.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.calls[Call::Ppoll as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_per_thread() {
        let before = Usage::of_this_thread();
        count_call(Call::Sendto);
        count_call(Call::Sendto);
        count_call(Call::Ppoll);
        count_copy();
        let here = Usage::of_this_thread().since(&before);
        assert_eq!(
            here.calls().collect::<Vec<_>>(),
            [("sendto", 2), ("ppoll", 1)]
        );
        assert_eq!((here.copies, here.wake_ups()), (1, 1));
        let elsewhere = std::thread::spawn(Usage::of_this_thread).join().unwrap();
        assert_eq!(elsewhere, Usage::default());
    }
}
