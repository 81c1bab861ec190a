// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of one page in one process, and the memory that the protocol controls.

use super::clock::Clock;
use super::update::PageReader;

/// Access that the program has to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    Write,
}

/// The shared memory of this process. The protocol may read and write pages that the program
/// cannot access.
pub(crate) trait Memory {
    /// Sets the program's access to `count` pages.
    fn protect(&mut self, first: u32, count: u32, access: Access);
    /// Copies a page to `bytes`.
    fn read(&self, page: u32, bytes: &mut [u8]);
    /// Replaces a page.
    fn write(&mut self, page: u32, bytes: &[u8]);
}

/// Names an interval of a process in which a page was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) process: u32,
    pub(crate) number: u32,
}

/// Copy of a page from before the writes of an interval.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) bytes: Box<[u8]>,
    /// Own interval to which the diff will belong.
    pub(crate) number: u32,
}

/// State of a page. A page without a state is readable and complete.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) access: Access,
    /// Present while the page is writable.
    pub(crate) twin: Option<Twin>,
    /// Process with a copy, if this one has none.
    pub(crate) owner: Option<u32>,
    /// Known writes that this copy lacks.
    pub(crate) missing: Vec<Notice>,
    /// The last known write of each process since the last collection, including missing ones.
    pub(crate) last: Vec<Notice>,
    /// Height and process of the last writer. All processes know the same one after a barrier.
    pub(crate) newest: Option<(u64, u32)>,
    /// Own diffs, by the number of their interval.
    pub(crate) diffs: Vec<(u32, Vec<u8>)>,
    /// Processes that have fetched this page from this one.
    pub(crate) readers: Vec<PageReader>,
}

impl Default for Page {
    fn default() -> Page {
        Page {
            access: Access::Read,
            twin: None,
            owner: None,
            missing: Vec::new(),
            last: Vec::new(),
            newest: None,
            diffs: Vec::new(),
            readers: Vec::new(),
        }
    }
}

impl Page {
    /// Returns whether the program may read this copy.
    pub(crate) fn is_complete(&self) -> bool {
        self.owner.is_none() && self.missing.is_empty()
    }

    /// Records a write of another process, or an own one.
    pub(crate) fn note(&mut self, notice: Notice, height: u64) {
        match self
            .last
            .iter_mut()
            .find(|last| last.process == notice.process)
        {
            Some(last) => last.number = notice.number,
            None => self.last.push(notice),
        }
        self.newest = self.newest.max(Some((height, notice.process)));
    }

    /// Returns the last write of `process` that this copy contains, of those known to `clock`.
    pub(crate) fn applied(&self, process: u32, clock: &Clock) -> u32 {
        let missing = self
            .missing
            .iter()
            .filter(|notice| notice.process == process);
        match missing.map(|notice| notice.number).min() {
            Some(first) => first - 1,
            None => clock.of(process),
        }
    }

    /// Returns the last write of each process that this copy contains.
    pub(crate) fn contained(&self, clock: &Clock) -> Vec<Notice> {
        if self.owner.is_some() {
            return Vec::new();
        }
        let contained = self.last.iter().map(|last| Notice {
            number: last.number.min(self.applied(last.process, clock)),
            ..*last
        });
        contained.collect()
    }
}
