// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of one process: its clock, intervals and pages; faults, and dispatch of messages.

use super::barrier::Arrival;
use super::clock::Clock;
use super::fetch::Fetch;
use super::interval::{Interval, Intervals, runs_of};
use super::lock::Lock;
use super::page::{Access, Memory, Notice, Page, Twin};
use super::wire::{BarrierKind, Malformed, Message, Shape};
use crate::statistics::Statistics;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Failure of an operation or a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DsmError {
    #[error("this process already holds lock {0}; release it first")]
    AlreadyHeld(u32),
    #[error("this process does not hold lock {0}; acquire it first")]
    NotHeld(u32),
    #[error(
        "process {} is at {}, but process {} is at {}; all processes must call the same one",
        processes[0], Place(barriers[0]), processes[1], Place(barriers[1])
    )]
    BarrierMismatch {
        processes: [u32; 2],
        barriers: [BarrierKind; 2],
    },
    #[error("process {0} sent an invalid message: {1}; do all processes use the same library?")]
    Malformed(u32, Malformed),
    #[error(
        "another process sent {0} that does not fit the state of this one; is a process of another program in the job?"
    )]
    Unexpected(&'static str),
}

struct Place(BarrierKind);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BarrierKind::Barrier(id) => write!(f, "barrier {id}"),
            BarrierKind::Collection => f.write_str("a collection"),
            BarrierKind::Exit => f.write_str("its end"),
        }
    }
}

/// Sizes that all processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) shape: Shape,
    /// Bytes of intervals and diffs after which a barrier discards them.
    pub(crate) collect_at: usize,
}

/// Operation of the program that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    Fault { page: u32, write: bool },
    Lock(u32),
    Sleep(u32),
    Barrier(BarrierKind),
    Collection,
}

/// One process of the shared memory; see the module `protocol`.
pub(crate) struct Dsm<M> {
    me: u32,
    pub(super) shape: Shape,
    collect_at: usize,
    pub(super) memory: M,
    pub(super) clock: Clock,
    pub(super) intervals: Intervals,
    /// Pages with a state; all others are readable and complete.
    pub(super) pages: BTreeMap<u32, Page>,
    /// Pages that were first written in the current interval.
    dirty: Vec<u32>,
    pub(super) fetches: BTreeMap<u32, Fetch>,
    pub(super) locks: BTreeMap<u32, Lock>,
    /// Arrivals at a barrier, kept by the manager.
    pub(super) arrivals: Vec<Option<Arrival>>,
    /// Last own interval that was sent to all processes.
    pub(super) reported: u32,
    pub(super) wait: Wait,
    /// Bytes of intervals and diffs.
    held_len: usize,
    pub(super) scratch: Box<[u8]>,
    outgoing: VecDeque<(u32, Vec<u8>)>,
    /// Messages of this process to itself.
    local: VecDeque<Message>,
    pub(super) statistics: Statistics,
}

impl<M: Memory> Dsm<M> {
    pub(crate) fn new(me: u32, limits: Limits, memory: M) -> Dsm<M> {
        let Limits { shape, collect_at } = limits;
        Dsm {
            me,
            shape,
            collect_at,
            memory,
            clock: Clock::new(shape.size),
            intervals: Intervals::new(shape.size),
            pages: BTreeMap::new(),
            dirty: Vec::new(),
            fetches: BTreeMap::new(),
            locks: BTreeMap::new(),
            arrivals: (0..shape.size).map(|_| None).collect(),
            reported: 0,
            wait: Wait::Nothing,
            held_len: 0,
            scratch: vec![0; shape.page_len].into(),
            outgoing: VecDeque::new(),
            local: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn me(&self) -> u32 {
        self.me
    }

    pub(crate) fn size(&self) -> u32 {
        self.shape.size
    }

    pub(crate) fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns whether the program's operation is not complete.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait != Wait::Nothing
    }

    /// Returns the next message to send, with its receiver.
    pub(crate) fn poll_transmit(&mut self) -> Option<(u32, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    pub(super) fn send(&mut self, to: u32, message: Message) {
        if to == self.me {
            self.local.push_back(message);
            return;
        }
        let bytes = message.encode();
        self.statistics.messages += 1;
        self.statistics.bytes += bytes.len() as u64;
        self.outgoing.push_back((to, bytes));
    }

    /// Returns whether an access to a page needs no other process.
    pub(crate) fn is_local(&self, page: u32) -> bool {
        self.pages.get(&page).is_none_or(Page::is_complete)
    }

    /// Handles an access of the program to a page that was not allowed. `write` is set if it is
    /// known to be a write. The access may be repeated when the process no longer waits.
    pub(crate) fn fault(&mut self, page: u32, write: bool) -> Result<(), DsmError> {
        let state = self.pages.entry(page).or_default();
        match (state.is_complete(), state.access) {
            (true, Access::Read) => {
                self.statistics.write_faults += 1;
                self.make_writable(page);
            }
            // Another thread's fault has changed it meanwhile.
            (true, _) => {}
            (false, _) => {
                self.statistics.fetch_faults += 1;
                self.wait = Wait::Fault { page, write };
                self.fetch(page);
            }
        }
        self.work()
    }

    /// Saves a copy of a complete page, and lets the program write it.
    pub(super) fn make_writable(&mut self, page: u32) {
        let number = self.clock.of(self.me) + 1;
        let mut bytes = vec![0; self.shape.page_len].into_boxed_slice();
        self.memory.read(page, &mut bytes);
        let state = self.pages.entry(page).or_default();
        state.twin = Some(Twin { bytes, number });
        state.access = Access::Write;
        self.memory.protect(page, 1, Access::Write);
        self.dirty.push(page);
        self.statistics.twins += 1;
    }

    /// Ends the current interval if a page was written in it. The pages stay writable: until a diff
    /// is made, no other process has a part of it.
    pub(super) fn close_interval(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        let number = self.clock.of(self.me) + 1;
        self.clock.set(self.me, number);
        let pages = std::mem::take(&mut self.dirty);
        let interval = Interval::new(self.me, self.clock.clone(), pages);
        let notice = Notice {
            process: self.me,
            number,
        };
        for page in interval.pages() {
            let state = self.pages.entry(page).or_default();
            state.note(notice, interval.clock.height());
        }
        self.grow(interval.memory());
        self.intervals.push(interval);
        self.statistics.intervals += 1;
    }

    /// Adds intervals of other processes, and makes the pages that were written in them
    /// inaccessible.
    pub(super) fn learn(&mut self, mut intervals: Vec<Interval>) -> Result<(), DsmError> {
        self.close_interval();
        intervals.retain(|one| !self.clock.covers(one.process, one.number()));
        intervals.sort_by_key(|one| (one.process, one.number()));
        for interval in intervals {
            if interval.number() != self.clock.of(interval.process) + 1 {
                return Err(DsmError::Unexpected("an interval"));
            }
            self.clock.set(interval.process, interval.number());
            let mut invalid: Vec<u32> = Vec::new();
            for page in interval.pages() {
                if self.on_notice(page, &interval) {
                    invalid.push(page);
                }
            }
            for (first, count) in runs_of(invalid) {
                self.memory.protect(first, count, Access::None);
            }
            self.grow(interval.memory());
            self.intervals.push(interval);
        }
        Ok(())
    }

    /// Records a write of another process. Returns whether the program could access the page.
    fn on_notice(&mut self, page: u32, interval: &Interval) -> bool {
        self.make_diff(page);
        let notice = Notice {
            process: interval.process,
            number: interval.number(),
        };
        let state = self.pages.entry(page).or_default();
        state.note(notice, interval.clock.height());
        state.missing.push(notice);
        self.held_len += size_of::<Notice>();
        std::mem::replace(&mut state.access, Access::None) != Access::None
    }

    /// Adds to the memory of intervals and diffs.
    pub(super) fn grow(&mut self, len: usize) {
        self.held_len += len;
        self.statistics.held_len_max = self.statistics.held_len_max.max(self.held_len as u64);
    }

    pub(super) fn forget_size(&mut self) {
        self.held_len = 0;
    }

    pub(super) fn is_full(&self) -> bool {
        self.held_len > self.collect_at
    }

    /// Handles a message of process `from`.
    ///
    /// # Errors
    /// [`DsmError`]; the state is then undefined.
    pub(crate) fn handle(&mut self, from: u32, bytes: &[u8]) -> Result<(), DsmError> {
        let message = Message::decode(bytes, self.shape);
        let message = message.map_err(|defect| DsmError::Malformed(from, defect))?;
        self.on_message(from, message)?;
        self.work()
    }

    /// Handles the messages of this process to itself.
    pub(super) fn work(&mut self) -> Result<(), DsmError> {
        while let Some(message) = self.local.pop_front() {
            self.on_message(self.me, message)?;
        }
        Ok(())
    }

    fn on_message(&mut self, from: u32, message: Message) -> Result<(), DsmError> {
        match message {
            Message::Request(wanted) => self.on_request(wanted),
            Message::Forward(wanted) => self.on_forward(wanted),
            Message::Grant { lock, intervals } => self.on_grant(lock, intervals),
            Message::Arrive {
                barrier,
                clock,
                intervals,
                updates,
                is_full,
            } => self.on_arrive(from, barrier, (clock, intervals, updates), is_full),
            Message::Depart {
                intervals,
                updates,
                collects,
            } => self.on_depart(intervals, updates, collects),
            Message::Fetch {
                page,
                form,
                contained,
                numbers,
            } => self.on_fetch(from, page, (form, &contained), &numbers),
            Message::Diffs { page, diffs } => self.on_diffs(from, page, diffs),
            Message::Copy {
                page,
                applied,
                bytes,
            } => self.on_copy(page, &applied, &bytes),
            Message::Sleep { condition, wanted } => self.on_sleep(condition, wanted),
            Message::Asleep { lock } => self.on_asleep(lock),
            Message::Signal {
                lock,
                condition,
                all,
            } => self.on_signal(lock, condition, all),
        }
    }
}
