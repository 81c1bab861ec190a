// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphores, with which handlers notify the program of messages.

use crate::code::*;
use crate::machine::{self, Held, Machine, running};
use crate::port::Port;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_int;

/// A counter of signals that were not collected.
pub(crate) struct Semaphore {
    number: u16,
    /// Number of signals that were given and that were collected, since the beginning.
    given: Cell<u64>,
    collected: Cell<u64>,
    errors: Cell<u32>,
    /// Ports that are armed again when the signal with this number is collected, in order.
    rearms: RefCell<VecDeque<(u64, &'static Port)>>,
    /// Number of the first signal in `rearms`, or `u64::MAX` if it is empty.
    rearm_at: Cell<u64>,
}

impl Semaphore {
    #[inline]
    fn is_ready(&self) -> bool {
        self.given.get() > self.collected.get() || self.errors.get() > 0
    }

    /// Collects up to `limit` signals. Returns their number.
    #[inline]
    fn collect(&self, limit: u32) -> u32 {
        let waiting = self.given.get() - self.collected.get();
        let count = u32::try_from(waiting).unwrap_or(u32::MAX).min(limit);
        self.collected.set(self.collected.get() + u64::from(count));
        count
    }

    /// Collects an error, for a caller that found no signal.
    #[inline]
    fn take_error(&self) -> Result<(), Failure> {
        if self.errors.get() == 0 {
            return Ok(());
        }
        self.errors.set(self.errors.get() - 1);
        Err(signalled(self.number))
    }

    #[inline]
    fn is_rearm_due(&self) -> bool {
        self.rearm_at.get() <= self.collected.get()
    }

    /// Returns the next port whose signal was collected.
    #[inline]
    fn next_rearm(&self) -> Option<&'static Port> {
        while self.is_rearm_due() {
            let mut rearms = self.rearms.borrow_mut();
            let first = rearms.pop_front();
            self.rearm_at
                .set(rearms.front().map_or(u64::MAX, |next| next.0));
            // Otherwise the port has another buffer by now, and waits for a later signal or none.
            if let Some((signal, port)) = first
                && port.is_waiting_for(self.number, signal)
            {
                return Some(port);
            }
        }
        None
    }
}

impl Machine {
    /// Returns the semaphore with this number, and creates it if necessary.
    #[inline]
    fn semaphore(&self, number: u16) -> &'static Semaphore {
        let found = self.semaphores.borrow().get(usize::from(number)).copied();
        match found {
            Some(Some(semaphore)) => semaphore,
            _ => self.create_semaphore(number),
        }
    }

    #[cold]
    fn create_semaphore(&self, number: u16) -> &'static Semaphore {
        let semaphore: &'static Semaphore = Box::leak(Box::new(Semaphore {
            number,
            given: Cell::new(0),
            collected: Cell::new(0),
            errors: Cell::new(0),
            rearms: RefCell::default(),
            rearm_at: Cell::new(u64::MAX),
        }));
        let mut all = self.semaphores.borrow_mut();
        let index = usize::from(number);
        if index >= all.len() {
            all.resize(index + 1, None);
        }
        all[index] = Some(semaphore);
        semaphore
    }

    #[inline]
    pub(crate) fn signal(&self, number: u16) {
        let semaphore = self.semaphore(number);
        semaphore.given.set(semaphore.given.get() + 1);
    }

    pub(crate) fn signal_error(&self, number: u16) {
        let semaphore = self.semaphore(number);
        semaphore.errors.set(semaphore.errors.get() + 1);
    }

    /// Arms `port` again when the signal just given is collected. Returns the number of the signal.
    #[inline]
    pub(crate) fn rearm_after(&self, number: u16, port: &'static Port) -> u64 {
        let semaphore = self.semaphore(number);
        let signal = semaphore.given.get();
        semaphore.rearms.borrow_mut().push_back((signal, port));
        semaphore.rearm_at.set(semaphore.rearm_at.get().min(signal));
        signal
    }

    /// Arms `port` and all other ports whose signals were collected, except the last, which is
    /// returned.
    #[cold]
    fn rearm_all_but_last(
        &self,
        semaphore: &Semaphore,
        mut port: &'static Port,
    ) -> Result<&'static Port, Failure> {
        while let Some(next) = semaphore.next_rearm() {
            self.with_node(|node| port.rearm(node))?;
            port = next;
        }
        Ok(port)
    }

    /// Arms the ports whose signals were collected, except the last, which is returned. The program
    /// requests more messages by waiting again.
    #[inline]
    fn rearm_due(&self, semaphore: &Semaphore) -> Result<Option<&'static Port>, Failure> {
        match semaphore.next_rearm() {
            Some(port) if semaphore.is_rearm_due() => {
                self.rearm_all_but_last(semaphore, port).map(Some)
            }
            due => Ok(due),
        }
    }

    /// Arms a port that [`Machine::rearm_due`] has returned.
    fn rearm_last(&self, due: Option<&'static Port>) -> Result<(), Failure> {
        match due {
            Some(port) => self.with_node(|node| port.rearm(node)),
            None => Ok(()),
        }
    }
}

/// Makes progress until there may be a signal to collect.
#[inline]
fn pause(
    machine: &mut Held,
    semaphore: &Semaphore,
    due: Option<&'static Port>,
) -> Result<(), Failure> {
    if machine::is_shared() {
        return pause_shared(machine, due);
    }
    let state = &**machine;
    let stop = || semaphore.is_ready() || machine::has_waiters();
    match due {
        Some(port) => port.take(state, stop),
        None => state.with_node(|node| {
            node.wait_until(stop)?;
            Ok(())
        }),
    }
}

/// Makes progress, and lets other threads use the machine in between.
#[cold]
fn pause_shared(machine: &mut Held, due: Option<&'static Port>) -> Result<(), Failure> {
    machine.rearm_last(due)?;
    machine.with_node(|node| {
        node.progress()?;
        Ok(())
    })?;
    machine::yield_lock(machine);
    // Another thread may have ended the parallel section in the meantime.
    running().map(|_| ())
}

#[cold]
fn signalled(number: u16) -> Failure {
    let text = format!(
        "semaphore {number}: a handler called gamma_sigerr(), or a message did not fit its buffer"
    );
    Failure::new(GAMMA_ERR_SIGNALLED, text)
}

/// Notifies the program, with a semaphore, that a message has arrived. Handlers and the program may
/// call it.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_signal(semaphore: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        machine.record_signal(semaphore);
        machine.signal(semaphore);
        Ok(0)
    })
}

/// Notifies the program of an error: one call of gamma_wait() or gamma_test() returns
/// GAMMA_ERR_SIGNALLED.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_sigerr(semaphore: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        machine.record_error();
        machine.signal_error(semaphore);
        Ok(0)
    })
}

/// Waits until `count` signals of a semaphore were collected, and runs handlers in the meantime.
/// Messages in buffers that are armed again automatically stay valid until the program waits for
/// this semaphore again, or tests it.
///
/// Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_wait(semaphore: u16, count: u32) -> c_int {
    guard(|| {
        let mut machine = running()?;
        let semaphore = machine.semaphore(semaphore);
        let mut left = count;
        loop {
            // Arm the buffers before collecting: messages collected now must stay in their buffers.
            let due = machine.rearm_due(semaphore)?;
            let collected = semaphore.collect(left);
            left -= collected;
            if left > 0 && collected == 0 && semaphore.errors.get() == 0 {
                pause(&mut machine, semaphore, due)?;
                continue;
            }
            machine.rearm_last(due)?;
            if left == 0 {
                return Ok(0);
            }
            semaphore.take_error()?;
        }
    })
}

/// Collects a signal of a semaphore. Returns 1, or 0 if there is none. Makes progress.
///
/// Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_test(semaphore: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        let semaphore = machine.semaphore(semaphore);
        let due = machine.rearm_due(semaphore)?;
        machine.rearm_last(due)?;
        if !semaphore.is_ready() {
            machine.with_node(|node| {
                node.progress()?;
                Ok(())
            })?;
        }
        if semaphore.collect(1) == 1 {
            return Ok(1);
        }
        semaphore.take_error()?;
        Ok(0)
    })
}

/// Runs `section` while no other thread is in the library. No handler runs either, unless the
/// section calls a function that makes progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_atomic(section: Option<unsafe extern "C" fn()>) -> c_int {
    guard(|| {
        let _machine = running()?;
        let Some(section) = section else {
            return Err(Failure::new(GAMMA_ERR_NULL, "section is null"));
        };
        // SAFETY: the program guarantees that its function may be called.
        unsafe { section() };
        Ok(0)
    })
}
