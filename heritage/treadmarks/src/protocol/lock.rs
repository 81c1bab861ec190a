// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks: a token for each, and a queue that is distributed over the waiting processes.
//!
//! The manager of a lock stores the last process to which it assigned the lock. It forwards a
//! request to that process, which passes the token on when it releases the lock. A process keeps
//! the token until then, so acquiring the same lock again needs no message. Conditions wait at the
//! manager.

use super::dsm::{Dsm, DsmError, Wait};
use super::page::Memory;
use super::wire::{Message, Wanted};
use std::collections::{BTreeMap, VecDeque};

/// State of a lock in this process.
#[derive(Debug)]
pub(crate) struct Lock {
    has_token: bool,
    is_held: bool,
    /// Process that gets the token next.
    next: Option<Wanted>,
    /// In the manager: the process that the lock was last assigned to.
    tail: u32,
    /// In the manager: processes that wait for each condition.
    asleep: BTreeMap<u32, VecDeque<Wanted>>,
}

impl Lock {
    fn new(manager: u32, me: u32) -> Lock {
        Lock {
            has_token: manager == me,
            is_held: false,
            next: None,
            tail: manager,
            asleep: BTreeMap::new(),
        }
    }
}

impl<M: Memory> Dsm<M> {
    fn manager_of(&self, lock: u32) -> u32 {
        lock % self.size()
    }

    fn lock(&mut self, lock: u32) -> &mut Lock {
        let (manager, me) = (self.manager_of(lock), self.me());
        let entry = self.locks.entry(lock);
        entry.or_insert_with(|| Lock::new(manager, me))
    }

    /// Returns a lock that the program holds.
    pub(crate) fn held_lock(&self) -> Option<u32> {
        let held = self.locks.iter().find(|(_, lock)| lock.is_held);
        held.map(|(&number, _)| number)
    }

    fn wanted(&self, lock: u32) -> Wanted {
        Wanted {
            lock,
            by: self.me(),
            clock: self.clock.clone(),
        }
    }

    /// Starts to acquire a lock.
    ///
    /// # Errors
    /// [`DsmError::AlreadyHeld`].
    pub(crate) fn acquire(&mut self, lock: u32) -> Result<(), DsmError> {
        let state = self.lock(lock);
        if state.is_held {
            return Err(DsmError::AlreadyHeld(lock));
        }
        if state.has_token {
            state.is_held = true;
            return Ok(());
        }
        self.statistics.lock_requests += 1;
        self.wait = Wait::Lock(lock);
        let request = Message::Request(self.wanted(lock));
        self.send(self.manager_of(lock), request);
        self.work()
    }

    /// Releases a lock.
    ///
    /// # Errors
    /// [`DsmError::NotHeld`].
    pub(crate) fn release(&mut self, lock: u32) -> Result<(), DsmError> {
        self.check_held(lock)?;
        self.pass_on(lock);
        self.work()
    }

    fn check_held(&mut self, lock: u32) -> Result<(), DsmError> {
        match self.lock(lock).is_held {
            true => Ok(()),
            false => Err(DsmError::NotHeld(lock)),
        }
    }

    fn pass_on(&mut self, lock: u32) {
        let state = self.lock(lock);
        state.is_held = false;
        if let Some(next) = state.next.take() {
            self.grant(next);
        }
    }

    /// Starts to wait for a condition; the program holds the lock.
    ///
    /// # Errors
    /// [`DsmError::NotHeld`].
    pub(crate) fn sleep(&mut self, lock: u32, condition: u32) -> Result<(), DsmError> {
        self.check_held(lock)?;
        self.wait = Wait::Sleep(lock);
        let wanted = self.wanted(lock);
        self.send(self.manager_of(lock), Message::Sleep { condition, wanted });
        self.work()
    }

    /// Wakes one or all processes that wait for a condition; the program holds the lock.
    ///
    /// # Errors
    /// [`DsmError::NotHeld`].
    pub(crate) fn signal(&mut self, lock: u32, condition: u32, all: bool) -> Result<(), DsmError> {
        self.check_held(lock)?;
        let signal = Message::Signal {
            lock,
            condition,
            all,
        };
        self.send(self.manager_of(lock), signal);
        self.work()
    }

    /// Manager: forwards a request to the last process that was to have the lock.
    pub(super) fn on_request(&mut self, wanted: Wanted) -> Result<(), DsmError> {
        if self.manager_of(wanted.lock) != self.me() {
            return Err(DsmError::Unexpected("a request for a lock"));
        }
        let tail = std::mem::replace(&mut self.lock(wanted.lock).tail, wanted.by);
        self.send(tail, Message::Forward(wanted));
        Ok(())
    }

    pub(super) fn on_forward(&mut self, wanted: Wanted) -> Result<(), DsmError> {
        let is_expected = self.wait == Wait::Lock(wanted.lock);
        let state = self.lock(wanted.lock);
        if state.has_token && !state.is_held {
            self.grant(wanted);
            return Ok(());
        }
        let is_possible = (state.has_token || is_expected) && state.next.is_none();
        if !is_possible {
            return Err(DsmError::Unexpected("a forwarded request for a lock"));
        }
        state.next = Some(wanted);
        Ok(())
    }

    /// Passes the token, with the intervals that the next process does not know.
    fn grant(&mut self, wanted: Wanted) {
        self.lock(wanted.lock).has_token = false;
        self.close_interval();
        let grant = Message::Grant {
            lock: wanted.lock,
            intervals: self.intervals.unknown_to(&wanted.clock),
        };
        self.send(wanted.by, grant);
    }

    pub(super) fn on_grant(
        &mut self,
        lock: u32,
        intervals: Vec<super::interval::Interval>,
    ) -> Result<(), DsmError> {
        if self.wait != Wait::Lock(lock) {
            return Err(DsmError::Unexpected("a lock"));
        }
        let state = self.lock(lock);
        (state.has_token, state.is_held) = (true, true);
        self.learn(intervals)?;
        self.wait = Wait::Nothing;
        Ok(())
    }

    pub(super) fn on_sleep(&mut self, condition: u32, wanted: Wanted) -> Result<(), DsmError> {
        let (lock, by) = (wanted.lock, wanted.by);
        if self.manager_of(lock) != self.me() {
            return Err(DsmError::Unexpected("a wait for a condition"));
        }
        let asleep = self.lock(lock).asleep.entry(condition).or_default();
        asleep.push_back(wanted);
        self.send(by, Message::Asleep { lock });
        Ok(())
    }

    pub(super) fn on_asleep(&mut self, lock: u32) -> Result<(), DsmError> {
        if self.wait != Wait::Sleep(lock) {
            return Err(DsmError::Unexpected("an answer about a condition"));
        }
        self.wait = Wait::Lock(lock);
        self.pass_on(lock);
        Ok(())
    }

    pub(super) fn on_signal(
        &mut self,
        lock: u32,
        condition: u32,
        all: bool,
    ) -> Result<(), DsmError> {
        let Some(asleep) = self.lock(lock).asleep.get_mut(&condition) else {
            return Ok(());
        };
        let count = if all {
            asleep.len()
        } else {
            1.min(asleep.len())
        };
        let woken: Vec<Wanted> = asleep.drain(..count).collect();
        woken
            .into_iter()
            .try_for_each(|wanted| self.on_request(wanted))
    }
}
