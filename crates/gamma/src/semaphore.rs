// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphores: how handlers tell the program that messages have arrived.

use crate::code::*;
use crate::machine::{self, Held, Machine, running};
use crate::port::Port;
use std::collections::VecDeque;
use std::ffi::c_int;

/// Signals that have not been collected.
#[derive(Default)]
pub(crate) struct Semaphore {
    /// Signals that were given, and that were collected, since the beginning.
    given: u64,
    collected: u64,
    errors: u32,
    /// Ports that are armed again when the signal of that number has been collected, in order.
    owed: VecDeque<(u64, &'static Port)>,
}

impl Machine {
    /// The semaphore of that number, made if it was never used.
    #[inline]
    fn with_semaphore<T>(&self, number: u16, work: impl FnOnce(&mut Semaphore) -> T) -> T {
        let mut all = self.semaphores.borrow_mut();
        let index = usize::from(number);
        if index >= all.len() {
            all.resize_with(index + 1, Semaphore::default);
        }
        work(&mut all[index])
    }

    #[inline]
    pub(crate) fn signal(&self, number: u16) {
        self.with_semaphore(number, |semaphore| semaphore.given += 1);
    }

    pub(crate) fn signal_error(&self, number: u16) {
        self.with_semaphore(number, |semaphore| semaphore.errors += 1);
    }

    /// Arms `port` again when the signal that was just given has been collected; the number of that.
    #[inline]
    pub(crate) fn owe(&self, number: u16, port: &'static Port) -> u64 {
        self.with_semaphore(number, |semaphore| {
            semaphore.owed.push_back((semaphore.given, port));
            semaphore.given
        })
    }

    #[inline]
    fn is_ready(&self, number: u16) -> bool {
        self.with_semaphore(number, |semaphore| {
            semaphore.given > semaphore.collected || semaphore.errors > 0
        })
    }

    /// A port whose signal has been collected.
    #[inline]
    fn due(&self, number: u16) -> Option<&'static Port> {
        loop {
            let (signal, port) = self.with_semaphore(number, |semaphore| {
                let &(signal, _) = semaphore.owed.front()?;
                if signal > semaphore.collected {
                    return None;
                }
                semaphore.owed.pop_front()
            })?;
            // Else it has got another buffer since, and owes that for a later signal, or none.
            if port.is_owed_for(number, signal) {
                return Some(port);
            }
        }
    }

    /// Collects up to `most` signals; how many there were. An error comes behind all signals.
    #[inline]
    fn collect(&self, number: u16, most: u32) -> Result<u32, Failure> {
        self.with_semaphore(number, |semaphore| {
            let waiting = semaphore.given - semaphore.collected;
            let count = u32::try_from(waiting).unwrap_or(u32::MAX).min(most);
            semaphore.collected += u64::from(count);
            if count < most && semaphore.errors > 0 {
                semaphore.errors -= 1;
                return Err(signalled(number));
            }
            Ok(count)
        })
    }

    /// Arms the buffers whose signals have been collected, for the program asks for more; but for
    /// the last, which is returned.
    #[inline]
    fn arm_due(&self, number: u16) -> Result<Option<&'static Port>, Failure> {
        let mut last = self.due(number);
        while let Some(port) = last {
            let Some(next) = self.due(number) else {
                break;
            };
            self.with_node(|node| port.arm_again(node))?;
            last = Some(next);
        }
        Ok(last)
    }

    /// Arms a port that [`Machine::arm_due`] has returned.
    fn arm_last(&self, due: Option<&'static Port>) -> Result<(), Failure> {
        match due {
            Some(port) => self.with_node(|node| port.arm_again(node)),
            None => Ok(()),
        }
    }
}

/// Makes progress until there may be something to collect.
fn pause(machine: &mut Held, semaphore: u16, due: Option<&'static Port>) -> Result<(), Failure> {
    if !machine::is_shared() {
        let here = &**machine;
        let stop = || here.is_ready(semaphore) || machine::is_wanted();
        return match due {
            Some(port) => port.take(here, stop),
            None => here.with_node(|node| {
                node.wait_until(stop);
                Ok(())
            }),
        };
    }
    machine.arm_last(due)?;
    machine.with_node(|node| {
        node.progress();
        Ok(())
    })?;
    machine::step_aside(machine);
    // Another thread may have ended the parallel section meanwhile.
    running().map(|_| ())
}

#[cold]
fn signalled(number: u16) -> Failure {
    let text = format!(
        "semaphore {number}: a handler called gamma_sigerr(), or a message did not fit its buffer"
    );
    Failure::new(GAMMA_ERR_SIGNALLED, text)
}

/// Tells the program, through a semaphore, that a message has arrived. Handlers call it, and the
/// program may.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_signal(semaphore: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        machine.note_signal(semaphore);
        machine.signal(semaphore);
        Ok(0)
    })
}

/// Tells the program that something went wrong: one gamma_wait() or gamma_test() returns
/// GAMMA_ERR_SIGNALLED.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_sigerr(semaphore: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        machine.signal_error(semaphore);
        Ok(0)
    })
}

/// Waits until `count` signals have been collected from a semaphore, and runs handlers meanwhile.
/// What the messages left in buffers that are armed again by themselves is the program's until it
/// waits for this semaphore again, or tests it.
///
/// Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_wait(semaphore: u16, count: u32) -> c_int {
    guard(|| {
        let mut machine = running()?;
        let mut left = count;
        loop {
            // Before it collects: what it returns with must stay in its buffer.
            let due = machine.arm_due(semaphore)?;
            let collected = machine.collect(semaphore, left);
            if left > 0 && matches!(collected, Ok(0)) {
                pause(&mut machine, semaphore, due)?;
                continue;
            }
            machine.arm_last(due)?;
            left -= collected?;
            if left == 0 {
                return Ok(0);
            }
        }
    })
}

/// Collects a signal from a semaphore if there is one: 1, or 0 when there is none. Makes progress.
///
/// Errors: GAMMA_ERR_SIGNALLED, GAMMA_ERR_IN_HANDLER.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_test(semaphore: u16) -> c_int {
    guard(|| {
        let machine = running()?;
        let due = machine.arm_due(semaphore)?;
        machine.arm_last(due)?;
        if !machine.is_ready(semaphore) {
            machine.with_node(|node| {
                node.progress();
                Ok(())
            })?;
        }
        Ok(c_int::from(machine.collect(semaphore, 1)? == 1))
    })
}

/// Runs `section` while no other thread is in the library and so, unless the section itself calls
/// one that lets messages in, no handler runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gamma_atomic(section: Option<unsafe extern "C" fn()>) -> c_int {
    guard(|| {
        let _machine = running()?;
        let Some(section) = section else {
            return Err(Failure::new(GAMMA_ERR_NULL, "section is null"));
        };
        // SAFETY: the program's promise about its function.
        unsafe { section() };
        Ok(0)
    })
}
