// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alarms: functions that `gm_unknown` calls after a set time. The program owns the memory of each,
//! and may have any number.

use crate::error::Failure;
use crate::machine::{enter, lock, must};
use crate::port::gm_port;
use crate::world::World;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// An alarm. The fields are private to the library.
#[repr(C)]
pub struct gm_alarm {
    /// Number of the last time that it was set. 0 before the first time, and after it was
    /// cancelled.
    number: u64,
    /// Reserved for future use.
    reserved: [u64; 3],
}

/// An alarm.
pub type gm_alarm_t = gm_alarm;

/// Function that an alarm calls.
pub type gm_alarm_callback_t = Option<unsafe extern "C" fn(context: *mut c_void)>;

struct Set {
    at: Instant,
    callback: gm_alarm_callback_t,
    context: *mut c_void,
}

/// Alarms of a port.
pub(crate) struct Alarms {
    set: BTreeMap<u64, Set>,
    /// Due alarms whose event was already queued, so that they are not due again.
    due: BTreeMap<u64, Set>,
}

/// A due alarm.
pub(crate) struct Due {
    callback: gm_alarm_callback_t,
    context: *mut c_void,
}

impl Due {
    pub(crate) fn call(self) {
        if let Some(callback) = self.callback {
            // SAFETY: the program registered this function to be called with this context.
            unsafe { callback(self.context) };
        }
    }
}

impl Alarms {
    pub(crate) const fn new() -> Alarms {
        Alarms {
            set: BTreeMap::new(),
            due: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Returns the time at which the next alarm is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.set.values().map(|set| set.at).min()
    }

    /// Returns the due alarms, the earliest first. Each must be passed to [`Alarms::take`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<u64> {
        let is_due = |(_, set): &(&u64, &Set)| set.at <= now;
        let mut due: Vec<_> = self
            .set
            .iter()
            .filter(is_due)
            .map(|(n, set)| (set.at, *n))
            .collect();
        due.sort_unstable();
        let numbers: Vec<u64> = due.into_iter().map(|(_, number)| number).collect();
        for number in &numbers {
            if let Some(set) = self.set.remove(number) {
                self.due.insert(*number, set);
            }
        }
        numbers
    }

    /// Returns the function of a due alarm, or `None` if it was cancelled.
    pub(crate) fn take(&mut self, number: u64) -> Option<Due> {
        let set = self.due.remove(&number)?;
        Some(Due {
            callback: set.callback,
            context: set.context,
        })
    }

    fn cancel(&mut self, number: u64) {
        self.set.remove(&number);
        self.due.remove(&number);
    }
}

/// Prepares the memory of an alarm. Call this before the alarm is set for the first time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_initialize_alarm(alarm: *mut gm_alarm) {
    must("gm_initialize_alarm", || {
        if alarm.is_null() {
            return Err(Failure::null("alarm"));
        }
        let fresh = gm_alarm {
            number: 0,
            reserved: [0; 3],
        };
        // SAFETY: the program passes valid arguments, as the function's documentation requires.
        unsafe { alarm.write(fresh) };
        Ok(())
    });
}

/// Number of the last alarm that was set.
static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Makes gm_unknown() call `callback` with `context` after `microseconds`. If the alarm is set
/// already, it is set again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_set_alarm(
    port: *mut gm_port,
    alarm: *mut gm_alarm,
    microseconds: u64,
    callback: gm_alarm_callback_t,
    context: *mut c_void,
) {
    must("gm_set_alarm", || {
        let (machine, own) = enter(port)?;
        if alarm.is_null() || callback.is_none() {
            return Err(Failure::null("alarm or callback"));
        }
        // SAFETY: the program passes an alarm that gm_initialize_alarm() has prepared.
        let alarm = unsafe { &mut *alarm };
        let mut world = machine.world();
        cancel(&mut world, alarm.number);
        let alarms = &mut world.port(own).alarms;
        alarm.number = 1 + LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let now = Instant::now();
        // Times that the clock cannot represent are practically never reached.
        let at = now.checked_add(Duration::from_micros(microseconds));
        let at = at.unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
        let set = Set {
            at,
            callback,
            context,
        };
        alarms.set.insert(alarm.number, set);
        Ok(())
    });
}

/// Cancels an alarm at whichever port it is set.
fn cancel(world: &mut World, number: u64) {
    for port in &mut world.ports {
        port.alarms.cancel(number);
    }
}

/// Cancels an alarm, even if it is due. Does nothing if the alarm is not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_cancel_alarm(alarm: *mut gm_alarm) {
    must("gm_cancel_alarm", || {
        if alarm.is_null() {
            return Err(Failure::null("alarm"));
        }
        // SAFETY: the program passes an alarm that gm_initialize_alarm() has prepared.
        let alarm = unsafe { &mut *alarm };
        let machine = lock()?;
        let mut world = machine.world();
        cancel(&mut world, alarm.number);
        alarm.number = 0;
        Ok(())
    });
}
