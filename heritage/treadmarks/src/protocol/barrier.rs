// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers of all processes: the program's, the end of a collection, the end of the program.
//!
//! Process 0 manages them. Each process sends its own new intervals, and gets those of the others.
//! A process with too many intervals and diffs requests a collection. Then each process completes
//! the pages that it owns, drops its incomplete copies of others, and takes part in a second barrier.
//! After that no process needs an interval or a diff.

use super::clock::Clock;
use super::dsm::{Dsm, DsmError, Wait};
use super::interval::Interval;
use super::page::{Access, Memory};
use super::update::{Update, updates_for};
use super::wire::{BarrierKind, Message};

const MANAGER: u32 = 0;

/// Arrival of a process, as the manager keeps it.
#[derive(Debug)]
pub(crate) struct Arrival {
    barrier: BarrierKind,
    clock: Clock,
    intervals: Vec<Interval>,
    updates: Vec<Update>,
    is_full: bool,
}

impl<M: Memory> Dsm<M> {
    /// Starts to wait for all processes.
    ///
    /// # Errors
    /// [`DsmError::BarrierMismatch`], in the manager.
    pub(crate) fn arrive_at(&mut self, barrier: BarrierKind) -> Result<(), DsmError> {
        self.arrive(barrier);
        self.work()
    }

    fn arrive(&mut self, barrier: BarrierKind) {
        self.close_interval();
        self.wait = Wait::Barrier(barrier);
        let updates = match barrier {
            BarrierKind::Barrier(_) => self.updates(),
            BarrierKind::Collection | BarrierKind::Exit => Vec::new(),
        };
        let own = self.intervals.after(self.me(), self.reported);
        let arrive = Message::Arrive {
            barrier,
            clock: self.clock.clone(),
            intervals: own.cloned().collect(),
            updates,
            is_full: self.is_full(),
        };
        self.send(MANAGER, arrive);
    }

    pub(super) fn on_arrive(
        &mut self,
        from: u32,
        barrier: BarrierKind,
        (clock, intervals, updates): (Clock, Vec<Interval>, Vec<Update>),
        is_full: bool,
    ) -> Result<(), DsmError> {
        if self.me() != MANAGER || self.arrivals[from as usize].is_some() {
            return Err(DsmError::Unexpected("an arrival at a barrier"));
        }
        let mut arrivals = self.arrivals.iter().zip(0..);
        let other = arrivals.find_map(|(arrival, process)| Some((arrival.as_ref()?, process)));
        if let Some((other, process)) = other
            && other.barrier != barrier
        {
            return Err(DsmError::BarrierMismatch {
                processes: [process, from],
                barriers: [other.barrier, barrier],
            });
        }
        self.arrivals[from as usize] = Some(Arrival {
            barrier,
            clock,
            intervals,
            updates,
            is_full,
        });
        match self.arrivals.iter().all(Option::is_some) {
            true => self.end_barrier(barrier),
            false => Ok(()),
        }
    }

    /// Manager: lets all processes continue.
    fn end_barrier(&mut self, barrier: BarrierKind) -> Result<(), DsmError> {
        let arrivals: Vec<Arrival> = self.arrivals.iter_mut().filter_map(Option::take).collect();
        let collects = matches!(barrier, BarrierKind::Barrier(_))
            && arrivals.iter().any(|arrival| arrival.is_full);
        let (mut clocks, mut updates) = (Vec::new(), Vec::new());
        for arrival in arrivals {
            self.learn(arrival.intervals)?;
            clocks.push(arrival.clock);
            updates.extend(arrival.updates);
        }
        for (process, clock) in (0..).zip(clocks) {
            let depart = Message::Depart {
                intervals: self.intervals.unknown_to(&clock),
                updates: updates_for(process, &updates),
                collects,
            };
            self.send(process, depart);
        }
        Ok(())
    }

    pub(super) fn on_depart(
        &mut self,
        intervals: Vec<Interval>,
        updates: Vec<Update>,
        collects: bool,
    ) -> Result<(), DsmError> {
        let Wait::Barrier(barrier) = self.wait else {
            return Err(DsmError::Unexpected("the end of a barrier"));
        };
        self.learn(intervals)?;
        self.on_updates(updates)?;
        self.reported = self.clock.of(self.me());
        if barrier == BarrierKind::Collection {
            self.discard();
        }
        match collects {
            true => self.begin_collection(),
            false => self.wait = Wait::Nothing,
        }
        Ok(())
    }

    /// Completes the pages that this process wrote last. Drops other incomplete copies; they are
    /// fetched from the last writer, which all processes know.
    fn begin_collection(&mut self) {
        self.statistics.collections += 1;
        self.wait = Wait::Collection;
        let me = self.me();
        let mut own = Vec::new();
        for (&number, page) in &mut self.pages {
            let Some((_, newest)) = page.newest else {
                continue;
            };
            if newest == me {
                if !page.is_complete() {
                    own.push(number);
                }
            } else if !page.is_complete() {
                page.owner = Some(newest);
                page.missing.clear();
            }
        }
        for page in own {
            self.fetch(page);
        }
        self.end_collection_if_complete();
    }

    pub(super) fn end_collection_if_complete(&mut self) {
        if self.wait == Wait::Collection && self.fetches.is_empty() {
            self.arrive(BarrierKind::Collection);
        }
    }

    /// Discards all intervals, notices and diffs. No process needs them now.
    fn discard(&mut self) {
        let memory = &mut self.memory;
        self.pages.retain(|&number, page| {
            if page.twin.take().is_some() {
                memory.protect(number, 1, Access::Read);
                page.access = Access::Read;
            }
            page.last.clear();
            page.diffs.clear();
            page.newest = None;
            page.owner.is_some()
        });
        self.intervals.clear();
        self.forget_size();
    }
}
