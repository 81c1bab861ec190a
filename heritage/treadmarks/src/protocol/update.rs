// SPDX-License-Identifier: MIT OR Apache-2.0
//! Diffs that travel with barriers, to processes that fetched earlier diffs of the same page.
//!
//! A process that fetches a page is likely to need its next version, too. The writer then sends
//! its diffs with its arrival at a barrier, and the manager passes them on. This saves a fault, and
//! a request to a process that computes. Dwarkadas, Keleher, Cox, Zwaenepoel: "Evaluation of
//! Release Consistent Software Distributed Shared Memory on Emerging Network Technology", ISCA 1993
//! (lazy hybrid).
//!
//! A reader gets a limited number of diffs; its next fault renews them.
//!
//! Invariant: an update only saves a fetch. A process ignores those that do not complete a page.

use super::dsm::{Dsm, DsmError};
use super::fetch::Fetch;
use super::page::{Memory, Notice, Page};
use std::collections::BTreeMap;

/// Number of barriers with new diffs of a page after which a reader gets no more, until it fetches
/// the page again. The writer does not learn that a page is no longer read. Each such barrier costs
/// it a fault and a copy of the page.
const UPDATES_MAX: u32 = 16;

/// Bytes of updates from which a message of a barrier takes no more. All processes wait for these
/// messages, but some readers may not need the diffs. Readers fetch the other diffs.
const UPDATES_LEN_MAX: usize = 32 << 10;

/// Encoded bytes of an update without readers and diff: five numbers.
const UPDATE_HEAD_LEN: usize = 5 * size_of::<u32>();

/// Process that has fetched a page from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageReader {
    process: u32,
    /// Number of further barriers with diffs for it.
    updates_left: u32,
    /// Own interval of the last barrier with diffs for it, or 0.
    served: u32,
}

/// Diff of one page and one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) page: u32,
    pub(crate) notice: Notice,
    /// Processes to which the manager passes it on.
    pub(crate) readers: Vec<u32>,
    pub(crate) diff: Vec<u8>,
}

impl Update {
    /// Returns the number of encoded bytes.
    fn encoded_len(&self) -> usize {
        UPDATE_HEAD_LEN + size_of::<u32>() * self.readers.len() + self.diff.len()
    }
}

impl Page {
    /// Records that a process has fetched this page.
    pub(super) fn on_read(&mut self, process: u32) {
        let mut readers = self.readers.iter_mut();
        match readers.find(|reader| reader.process == process) {
            Some(reader) => reader.updates_left = UPDATES_MAX,
            None => self.readers.push(PageReader {
                process,
                updates_left: UPDATES_MAX,
                served: 0,
            }),
        }
    }

    /// Returns the own interval of the last barrier with diffs for all readers, or `None` without
    /// readers.
    fn served(&self) -> Option<u32> {
        self.readers.iter().map(|reader| reader.served).min()
    }

    /// Returns the processes that get the diffs up to the own interval `number`.
    fn take_readers(&mut self, number: u32) -> Vec<u32> {
        let processes = self.readers.iter().map(|reader| reader.process).collect();
        for reader in &mut self.readers {
            reader.updates_left -= 1;
            reader.served = number;
        }
        self.readers.retain(|reader| reader.updates_left > 0);
        processes
    }
}

impl<M: Memory> Dsm<M> {
    /// Makes the diffs of this process's new intervals that other processes are likely to need.
    /// Begins with the pages that have waited longest, because a message may not hold all.
    pub(super) fn updates(&mut self) -> Vec<Update> {
        let (me, reported) = (self.me(), self.reported);
        let newest = self.clock.of(me);
        let own = self.intervals.after(me, reported);
        let mut pages: Vec<u32> = own.flat_map(|interval| interval.pages()).collect();
        pages.sort_unstable();
        pages.dedup();
        let served = |page: u32| Some((self.pages.get(&page)?.served()?, page));
        let mut pages: Vec<(u32, u32)> = pages.into_iter().filter_map(served).collect();
        pages.sort_unstable();
        let (mut updates, mut len) = (Vec::new(), 0);
        for (_, page) in pages {
            if len >= UPDATES_LEN_MAX {
                break;
            }
            self.make_diff(page);
            let Some(state) = self.pages.get_mut(&page) else {
                continue;
            };
            let readers = state.take_readers(newest);
            for (number, diff) in state.diffs.iter().filter(|(it, _)| *it > reported) {
                let update = Update {
                    page,
                    notice: Notice {
                        process: me,
                        number: *number,
                    },
                    readers: readers.clone(),
                    diff: diff.clone(),
                };
                len += update.encoded_len();
                updates.push(update);
            }
        }
        updates
    }

    /// Completes the pages of which all missing diffs are among `updates`; ignores other diffs.
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

/// Returns the updates for `process` that fit a message. They have no readers, because `process`
/// passes none on.
pub(super) fn updates_for(process: u32, updates: &[Update]) -> Vec<Update> {
    let mut len = 0;
    let wanted = updates.iter().filter(|one| one.readers.contains(&process));
    let without_readers = |one: &Update| Update {
        readers: Vec::new(),
        diff: one.diff.clone(),
        ..*one
    };
    let fits = |one: &Update| {
        len += one.encoded_len();
        len <= UPDATES_LEN_MAX
    };
    wanted.map(without_readers).take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::dsm::Limits;
    use crate::protocol::page::Access;
    use crate::protocol::wire::{BarrierKind, Message, Shape};
    use std::collections::BTreeSet;

    const PAGE_COUNT: u32 = 10_000;
    const SHAPE: Shape = Shape {
        size: 3,
        page_len: 8,
        page_count: PAGE_COUNT,
    };

    /// Bytes of a message that are not updates.
    const REST_LEN: usize = 200;

    /// Memory that no process changes.
    struct Unchanged;

    impl Memory for Unchanged {
        fn protect(&mut self, _first: u32, _count: u32, _access: Access) {}

        fn read(&self, _page: u32, bytes: &mut [u8]) {
            bytes.fill(0);
        }

        fn write(&mut self, _page: u32, _bytes: &[u8]) {}
    }

    fn process(me: u32) -> Dsm<Unchanged> {
        let limits = Limits {
            shape: SHAPE,
            collect_at: usize::MAX,
        };
        Dsm::new(me, limits, Unchanged)
    }

    fn depart(updates: Vec<Update>) -> Vec<u8> {
        let message = Message::Depart {
            intervals: Vec::new(),
            updates,
            collects: false,
        };
        message.encode()
    }

    impl Dsm<Unchanged> {
        /// Makes the diff of a page for these processes, as their requests do.
        fn fetched_by(&mut self, page: u32, processes: [u32; 2]) {
            self.make_diff(page);
            let state = self.pages.entry(page).or_default();
            for process in processes {
                state.on_read(process);
            }
        }
    }

    /// Writes all pages without a change, and returns the arrival at a barrier.
    fn arrival(writer: &mut Dsm<Unchanged>) -> Vec<u8> {
        for page in 0..PAGE_COUNT {
            writer.fault(page, true).unwrap();
        }
        writer.arrive_at(BarrierKind::Barrier(0)).unwrap();
        let (to, bytes) = writer.poll_transmit().unwrap();
        assert_eq!(to, 0);
        bytes
    }

    #[test]
    fn barrier_with_many_unchanged_pages_stays_bounded() {
        let mut writer = process(1);
        let mut served = BTreeSet::new();
        let mut barriers = 0;
        // Each barrier serves other pages, until each has been served.
        while served.len() < PAGE_COUNT as usize {
            for page in 0..PAGE_COUNT {
                writer.fetched_by(page, [0, 2]);
            }
            let arrived = arrival(&mut writer);
            let len_max = UPDATES_LEN_MAX + UPDATE_HEAD_LEN + 8 + REST_LEN;
            assert!(arrived.len() <= len_max, "{} bytes", arrived.len());
            let Ok(Message::Arrive { updates, .. }) = Message::decode(&arrived, SHAPE) else {
                panic!("no arrival");
            };
            assert!(updates.iter().all(|one| one.diff.is_empty()));
            served.extend(updates.iter().map(|one| one.page));
            writer.handle(0, &depart(Vec::new())).unwrap();
            barriers += 1;
        }
        let in_each = UPDATES_LEN_MAX.div_ceil(UPDATE_HEAD_LEN + 8);
        assert_eq!(barriers, (PAGE_COUNT as usize).div_ceil(in_each));
    }

    #[test]
    fn manager_passes_on_a_bounded_number_of_updates_without_readers() {
        let update = |page| Update {
            page,
            notice: Notice {
                process: 1,
                number: 1,
            },
            readers: vec![0, 2],
            diff: Vec::new(),
        };
        let updates: Vec<Update> = (0..PAGE_COUNT).map(update).collect();
        assert!(updates_for(1, &updates).is_empty());
        let passed = updates_for(2, &updates);
        assert_eq!(passed.len(), UPDATES_LEN_MAX / UPDATE_HEAD_LEN);
        assert!(passed.iter().all(|one| one.readers.is_empty()));
    }

    #[test]
    fn length_of_an_update_is_that_on_the_wire() {
        let update = Update {
            page: 7,
            notice: Notice {
                process: 1,
                number: 3,
            },
            readers: vec![0, 2],
            diff: vec![1, 2, 3],
        };
        let len = update.encoded_len();
        assert_eq!(depart(vec![update]).len() - depart(Vec::new()).len(), len);
    }
}
