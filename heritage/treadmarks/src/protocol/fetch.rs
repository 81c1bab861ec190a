// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetching what an incomplete page lacks, and serving the requests of other processes.

use super::clock::Clock;
use super::diff;
use super::dsm::{Dsm, DsmError, Wait};
use super::page::{Access, Memory, Notice};
use super::wire::{Form, Message};

/// Diffs of a page that is being fetched.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    /// Number of answers that have not arrived.
    pending: usize,
    diffs: Vec<(Notice, Vec<u8>)>,
}

impl Fetch {
    /// Creates a fetch that awaits no more answers.
    pub(super) fn complete(diffs: Vec<(Notice, Vec<u8>)>) -> Fetch {
        Fetch { pending: 0, diffs }
    }
}

impl<M: Memory> Dsm<M> {
    /// Starts to complete a page.
    pub(super) fn fetch(&mut self, page: u32) {
        self.fetches.insert(page, Fetch::default());
        let state = self.pages.entry(page).or_default();
        let contained = state.contained(&self.clock);
        if let Some(owner) = state.owner {
            self.request(page, owner, (Form::Whole, contained), Vec::new());
            return;
        }
        let missing = state.missing.clone();
        let is_one = missing.iter().all(|one| one.process == missing[0].process);
        match self.last_writer(&missing) {
            Some(writer) => {
                let form = if is_one {
                    Form::Shorter
                } else {
                    Form::Preferred
                };
                self.request(page, writer, (form, contained), numbers(&missing, writer));
            }
            None => self.request_diffs(page, &missing),
        }
    }

    /// Returns the writer whose last interval followed all others, if there is one. Its copy
    /// contains what they wrote.
    fn last_writer(&self, missing: &[Notice]) -> Option<u32> {
        let clock = |one: &Notice| self.intervals.clock(one.process, one.number);
        let newest = missing
            .iter()
            .max_by_key(|one| clock(one).map(Clock::height))?;
        let knows = |one: &Notice| clock(newest).is_some_and(|c| c.covers(one.process, one.number));
        missing.iter().all(knows).then_some(newest.process)
    }

    /// Requests the missing diffs from their writers.
    fn request_diffs(&mut self, page: u32, missing: &[Notice]) {
        let mut writers: Vec<u32> = missing.iter().map(|one| one.process).collect();
        writers.sort_unstable();
        writers.dedup();
        for writer in writers {
            self.request(
                page,
                writer,
                (Form::Diffs, Vec::new()),
                numbers(missing, writer),
            );
        }
    }

    fn request(
        &mut self,
        page: u32,
        from: u32,
        (form, contained): (Form, Vec<Notice>),
        numbers: Vec<u32>,
    ) {
        if let Some(fetch) = self.fetches.get_mut(&page) {
            fetch.pending += 1;
        }
        let fetch = Message::Fetch {
            page,
            form,
            contained,
            numbers,
        };
        self.send(from, fetch);
    }

    /// Serves a request.
    pub(super) fn on_fetch(
        &mut self,
        from: u32,
        page: u32,
        (form, contained): (Form, &[Notice]),
        numbers: &[u32],
    ) -> Result<(), DsmError> {
        let me = self.me();
        let closed = self.clock.of(me);
        // A write after this answer must be detected, so a page with a pending diff is protected.
        let state = self.pages.entry(page).or_default();
        let is_pending = state
            .twin
            .as_ref()
            .is_some_and(|twin| twin.number <= closed);
        if is_pending {
            self.make_diff(page);
        }
        let state = self.pages.entry(page).or_default();
        state.on_read(from);
        let applied = |process| state.applied(process, &self.clock);
        // A copy that a collection has dropped still has its own diffs.
        let has_copy = state.owner.is_none();
        let has_all = has_copy
            && contained
                .iter()
                .all(|one| applied(one.process) >= one.number);
        let found = |&number: &u32| {
            let diff = state.diffs.iter().find(|(own, _)| *own == number);
            diff.cloned()
                .ok_or(DsmError::Unexpected("a request for a diff"))
        };
        let diffs: Vec<_> = numbers.iter().map(found).collect::<Result<_, _>>()?;
        let len: usize = diffs.iter().map(|(_, diff)| diff.len()).sum();
        let is_whole = match form {
            Form::Diffs => false,
            Form::Shorter => has_all && len >= self.shape.page_len,
            Form::Preferred => has_all,
            Form::Whole => true,
        };
        if is_whole && !has_copy {
            return Err(DsmError::Unexpected("a request for a page"));
        }
        let answer = match is_whole {
            false => Message::Diffs { page, diffs },
            true => {
                let processes = 0..self.shape.size;
                let applied = Clock::from_vec(processes.map(applied).collect());
                let mut bytes = vec![0; self.shape.page_len];
                // Not the writes of the current interval: a byte that they change and restore is
                // in no diff.
                match &state.twin {
                    Some(twin) => bytes.copy_from_slice(&twin.bytes),
                    None => self.memory.read(page, &mut bytes),
                }
                self.statistics.pages_sent += 1;
                Message::Copy {
                    page,
                    applied,
                    bytes,
                }
            }
        };
        self.send(from, answer);
        Ok(())
    }

    /// Makes the diff of a page with a twin, and makes the page read-only.
    pub(super) fn make_diff(&mut self, page: u32) {
        let Some(state) = self.pages.get_mut(&page) else {
            return;
        };
        let Some(twin) = state.twin.take() else {
            return;
        };
        // First, so that the program can no longer write.
        self.memory.protect(page, 1, Access::Read);
        state.access = Access::Read;
        self.memory.read(page, &mut self.scratch);
        let diff = diff::make(&twin.bytes, &self.scratch);
        let len = diff.len();
        state.diffs.push((twin.number, diff));
        self.statistics.diffs_made += 1;
        self.grow(size_of::<(u32, Vec<u8>)>() + len);
    }

    fn fetch_from(&mut self, page: u32) -> Result<&mut Fetch, DsmError> {
        match self.fetches.get_mut(&page) {
            Some(fetch) if fetch.pending > 0 => {
                fetch.pending -= 1;
                Ok(fetch)
            }
            _ => Err(DsmError::Unexpected("a part of a page")),
        }
    }

    pub(super) fn on_diffs(
        &mut self,
        from: u32,
        page: u32,
        diffs: Vec<(u32, Vec<u8>)>,
    ) -> Result<(), DsmError> {
        let count = diffs.len() as u64;
        let fetch = self.fetch_from(page)?;
        for (number, diff) in diffs {
            let notice = Notice {
                process: from,
                number,
            };
            fetch.diffs.push((notice, diff));
        }
        self.statistics.diffs_got += count;
        self.advance(page)
    }

    pub(super) fn on_copy(
        &mut self,
        page: u32,
        applied: &Clock,
        bytes: &[u8],
    ) -> Result<(), DsmError> {
        self.fetch_from(page)?;
        self.memory.write(page, bytes);
        self.statistics.pages_got += 1;
        let state = self.pages.entry(page).or_default();
        state.owner = None;
        let lacks = |one: &Notice| !applied.covers(one.process, one.number);
        state.missing.retain(lacks);
        self.advance(page)
    }

    /// Continues after an answer. When all diffs are there, applies them in an order that respects
    /// what happened before what.
    fn advance(&mut self, page: u32) -> Result<(), DsmError> {
        let (Some(fetch), Some(state)) = (self.fetches.get(&page), self.pages.get(&page)) else {
            return Ok(());
        };
        if fetch.pending > 0 {
            return Ok(());
        }
        let is_here = |one: &Notice| fetch.diffs.iter().any(|(notice, _)| notice == one);
        let lacking: Vec<Notice> = {
            let missing = state.missing.iter();
            missing.filter(|one| !is_here(one)).copied().collect()
        };
        if !lacking.is_empty() {
            self.request_diffs(page, &lacking);
            return Ok(());
        }
        self.complete(page)
    }

    /// Applies the diffs of a fetch that has all its answers.
    pub(super) fn complete(&mut self, page: u32) -> Result<(), DsmError> {
        let (Some(fetch), Some(state)) = (self.fetches.remove(&page), self.pages.get_mut(&page))
        else {
            return Ok(());
        };
        let mut diffs = fetch.diffs;
        diffs.retain(|(notice, _)| state.missing.contains(notice));
        let intervals = &self.intervals;
        let height = |one: &Notice| intervals.clock(one.process, one.number).map(Clock::height);
        diffs.sort_by_key(|(notice, _)| height(notice));
        if !diffs.is_empty() {
            self.memory.read(page, &mut self.scratch);
            for (notice, diff) in &diffs {
                let applied = diff::apply(diff, &mut self.scratch);
                applied.map_err(|defect| DsmError::Malformed(notice.process, defect))?;
            }
            self.memory.write(page, &self.scratch);
        }
        state.missing.clear();
        state.access = Access::Read;
        self.memory.protect(page, 1, Access::Read);
        match self.wait {
            Wait::Fault {
                page: awaited,
                write,
            } if awaited == page => {
                self.wait = Wait::Nothing;
                if write {
                    self.make_writable(page);
                }
            }
            _ => self.end_collection_if_complete(),
        }
        Ok(())
    }
}

fn numbers(notices: &[Notice], writer: u32) -> Vec<u32> {
    let own = notices.iter().filter(|one| one.process == writer);
    own.map(|one| one.number).collect()
}
