// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a process, printed at its end if `TMK_STATISTICS` is 1.

use std::fmt;

/// Counters of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Messages sent to other processes, and their bytes.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Accesses to incomplete pages.
    pub(crate) fetch_faults: u64,
    /// First writes to pages.
    pub(crate) write_faults: u64,
    pub(crate) twins: u64,
    pub(crate) diffs_made: u64,
    pub(crate) diffs_got: u64,
    /// Diffs that came with barriers and completed a page.
    pub(crate) updates: u64,
    /// Whole pages.
    pub(crate) pages_sent: u64,
    pub(crate) pages_got: u64,
    /// Locks that other processes had to pass.
    pub(crate) lock_requests: u64,
    /// Own intervals in which pages were written.
    pub(crate) intervals: u64,
    pub(crate) collections: u64,
    /// Peak number of bytes of intervals and diffs.
    pub(crate) held_len_max: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics {
            messages,
            bytes,
            fetch_faults,
            write_faults,
            twins,
            diffs_made,
            diffs_got,
            updates,
            pages_sent,
            pages_got,
            lock_requests,
            intervals,
            collections,
            held_len_max,
        } = self;
        write!(f, "{messages} messages, {bytes} bytes, ")?;
        write!(
            f,
            "{fetch_faults} fetch faults, {write_faults} write faults, {twins} twins, "
        )?;
        write!(
            f,
            "{diffs_made} diffs made, {diffs_got} diffs received, {updates} with barriers, "
        )?;
        write!(f, "{pages_sent} pages sent, {pages_got} pages received, ")?;
        write!(f, "{lock_requests} remote locks, {intervals} intervals, ")?;
        write!(
            f,
            "{collections} collections, at most {held_len_max} bytes of diffs"
        )
    }
}
