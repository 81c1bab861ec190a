// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alarms: a function that is called some time later, inside `gm_unknown`. The program gives the memory of
//! each, and may have any number.

use crate::error::Failure;
use crate::machine::{enter, lock, must};
use crate::port::gm_port;
use crate::world::World;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// An alarm; the fields are the library's.
#[repr(C)]
pub struct gm_alarm {
    /// The number of the last time that it was set; 0 before the first, and after it was cancelled.
    number: u64,
    /// For later.
    reserved: [u64; 3],
}

/// An alarm.
pub type gm_alarm_t = gm_alarm;

/// What an alarm calls.
pub type gm_alarm_callback_t = Option<unsafe extern "C" fn(context: *mut c_void)>;

struct Set {
    at: Instant,
    callback: gm_alarm_callback_t,
    context: *mut c_void,
}

/// Those of a port.
pub(crate) struct Alarms {
    set: BTreeMap<u64, Set>,
    /// Due, and not handed out: they are not due again.
    due: BTreeMap<u64, Set>,
}

/// One whose time has come.
pub(crate) struct Due {
    callback: gm_alarm_callback_t,
    context: *mut c_void,
}

impl Due {
    pub(crate) fn ring(self) {
        if let Some(callback) = self.callback {
            // SAFETY: the program's promise about its function.
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

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.set.values().map(|set| set.at).min()
    }

    /// Those whose time has come, the earliest first; each needs [`Alarms::take`].
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

    /// What a due alarm calls; `None` if it was cancelled.
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

/// Prepares the memory of an alarm; before it is set for the first time.
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
        // SAFETY: the program's promise.
        unsafe { alarm.write(fresh) };
        Ok(())
    });
}

/// The number of the last alarm that was set.
static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Makes gm_unknown() call `callback` with `context` after so many microseconds. An alarm that is set
/// already is set anew.
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
        // SAFETY: the program's promise: an alarm that was prepared.
        let alarm = unsafe { &mut *alarm };
        let mut world = machine.world();
        cancel(&mut world, alarm.number);
        let alarms = &mut world.port(own).alarms;
        alarm.number = 1 + LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let now = Instant::now();
        // Beyond what clocks count is as good as never.
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

/// It may be set at any port.
fn cancel(world: &mut World, number: u64) {
    for port in &mut world.ports {
        port.alarms.cancel(number);
    }
}

/// Makes an alarm not happen, also when it is due already. One that is not set stays so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_cancel_alarm(alarm: *mut gm_alarm) {
    must("gm_cancel_alarm", || {
        if alarm.is_null() {
            return Err(Failure::null("alarm"));
        }
        // SAFETY: the program's promise: an alarm that was prepared.
        let alarm = unsafe { &mut *alarm };
        let machine = lock()?;
        let mut world = machine.world();
        cancel(&mut world, alarm.number);
        alarm.number = 0;
        Ok(())
    });
}
