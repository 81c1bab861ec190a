// SPDX-License-Identifier: MIT OR Apache-2.0
//! Diffs that travel with barriers, to processes that fetched earlier diffs of the same page.
//!
//! A process that fetches a page is likely to need its next version, too. The writer then sends
//! its diffs with its arrival at a barrier, and the manager passes them on, which saves a fault and
//! a request to a process that computes. Dwarkadas, Keleher, Cox, Zwaenepoel: "Evaluation of Release
//! Consistent Software Distributed Shared Memory on Emerging Network Technology", ISCA 1993 (lazy
//! hybrid).
//!
//! A reader gets a limited number of diffs; its next fault renews them.
//!
//! Invariant: an update only saves a fetch. A process ignores those that do not complete a page.

use super::dsm::{Dsm, DsmError};
use super::fetch::Fetch;
use super::page::{Memory, Notice, Page};
use std::collections::BTreeMap;

/// Barriers whose diffs a reader gets after a fetch. A page that is no longer read costs its writer
/// that many faults and copies.
const UPDATES_MAX: u32 = 16;

/// Maximum bytes of diffs with one message of a barrier. Longer ones are fetched.
const UPDATES_LEN_MAX: usize = 32 << 10;

/// A process that has fetched a page from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    process: u32,
    /// Number of barriers with diffs for it.
    left: u32,
}

/// The diff of a page and an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) page: u32,
    pub(crate) notice: Notice,
    /// Processes that get it.
    pub(crate) readers: Vec<u32>,
    pub(crate) diff: Vec<u8>,
}

impl Page {
    /// Records that a process has fetched this page.
    pub(super) fn on_read(&mut self, process: u32) {
        self.readers.retain(|reader| reader.process != process);
        self.readers.push(Reader {
            process,
            left: UPDATES_MAX,
        });
    }

    /// Returns the processes that get the next diffs.
    fn take_readers(&mut self) -> Vec<u32> {
        let processes = self.readers.iter().map(|reader| reader.process).collect();
        for reader in &mut self.readers {
            reader.left -= 1;
        }
        self.readers.retain(|reader| reader.left > 0);
        processes
    }
}

impl<M: Memory> Dsm<M> {
    /// Makes the diffs of this process's new intervals that other processes are likely to need.
    pub(super) fn updates(&mut self) -> Vec<Update> {
        let (me, reported) = (self.me(), self.reported);
        let own = self.intervals.after(me, reported);
        let mut pages: Vec<u32> = own.flat_map(|interval| interval.pages()).collect();
        pages.sort_unstable();
        pages.dedup();
        let has_readers = |page: &Page| !page.readers.is_empty();
        pages.retain(|page| self.pages.get(page).is_some_and(has_readers));
        let (mut updates, mut len) = (Vec::new(), 0);
        for page in pages {
            if len >= UPDATES_LEN_MAX {
                break;
            }
            self.make_diff(page);
            let Some(state) = self.pages.get_mut(&page) else {
                continue;
            };
            let readers = state.take_readers();
            for (number, diff) in state.diffs.iter().filter(|(it, _)| *it > reported) {
                len += diff.len();
                updates.push(Update {
                    page,
                    notice: Notice {
                        process: me,
                        number: *number,
                    },
                    readers: readers.clone(),
                    diff: diff.clone(),
                });
            }
        }
        updates
    }

    /// Completes pages that lack nothing but these diffs.
    pub(super) fn on_updates(&mut self, updates: Vec<Update>) -> Result<(), DsmError> {
        let mut by_page: BTreeMap<u32, Vec<(Notice, Vec<u8>)>> = BTreeMap::new();
        for Update {
            page, notice, diff, ..
        } in updates
        {
            by_page.entry(page).or_default().push((notice, diff));
        }
        for (page, diffs) in by_page {
            let is_enough = self.pages.get(&page).is_some_and(|state| {
                let is_here = |one: &Notice| diffs.iter().any(|(notice, _)| notice == one);
                state.owner.is_none()
                    && !state.missing.is_empty()
                    && state.missing.iter().all(is_here)
            });
            if is_enough {
                self.statistics.updates += diffs.len() as u64;
                self.fetches.insert(page, Fetch::complete(diffs));
                self.complete(page)?;
            }
        }
        Ok(())
    }
}

/// Returns the updates for `process` that fit a message.
pub(super) fn updates_for(process: u32, updates: &[Update]) -> Vec<Update> {
    let mut len = 0;
    let wanted = updates.iter().filter(|one| one.readers.contains(&process));
    let fits = |one: &&Update| {
        len += one.diff.len();
        len <= UPDATES_LEN_MAX
    };
    wanted.take_while(fits).cloned().collect()
}
