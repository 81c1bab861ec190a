// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of unanswered callers of a listener, and the alarm that resumes parked listeners.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portolan_sys::fork::Owner;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Shortest delay of a timer, to fire at once.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// A descriptor that becomes readable after it fires, immediately or delayed.
pub(super) struct Alarm {
    timer: OwnedFd,
    owner: Owner,
}

impl Alarm {
    /// Creates an alarm that is not set.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let owner = Owner::this_process();
        Ok(Alarm { timer, owner })
    }

    pub(super) fn fire(&self) {
        self.fire_after(AT_ONCE);
    }

    /// Fires after a delay below one second. An earlier firing that was not read is delayed, too.
    pub(super) fn fire_after(&self, wait: Duration) {
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = Itimerspec {
            it_interval: none,
            it_value: Timespec {
                tv_nsec: wait.subsec_nanos().into(),
                ..none
            },
        };
        // A forked child shares the parent's timer.
        if !self.owner.is_another() {
            // Fails only for invalid times.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time);
        }
    }

    /// Clears the alarm until it fires again.
    pub(super) fn clear(&self) {
        // An empty read is harmless.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// Permits of a listener's callers.
pub(super) struct Permits {
    count: Arc<Count>,
    count_max: usize,
}

struct Count {
    taken: AtomicUsize,
    alarm: Arc<Alarm>,
}

impl Permits {
    /// Creates `count_max` permits. `alarm` fires when one of a full set is released.
    pub(super) fn new(count_max: usize, alarm: &Arc<Alarm>) -> Permits {
        let count = Arc::new(Count {
            taken: AtomicUsize::new(0),
            alarm: Arc::clone(alarm),
        });
        Permits { count, count_max }
    }

    pub(super) fn are_exhausted(&self) -> bool {
        // SYNC: caller-permits. A thread that sees the alarm of a released permit also sees the lower
        // count.
        self.count.taken.load(Ordering::Acquire) >= self.count_max
    }

    /// Takes a permit. The caller has checked that one is free.
    pub(super) fn take(&self) -> Permit {
        self.count.taken.fetch_add(1, Ordering::Relaxed);
        Permit {
            count: Arc::clone(&self.count),
            count_max: self.count_max,
        }
    }
}

/// A permit that a caller holds until it is answered or dropped.
pub(super) struct Permit {
    count: Arc<Count>,
    count_max: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        // SYNC: caller-permits.
        let before = self.count.taken.fetch_sub(1, Ordering::Release);
        if before >= self.count_max {
            self.count.alarm.fire();
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_sys::epoll::Epoll;

    use super::*;

    #[test]
    fn released_permit_of_full_set_fires_alarm() {
        let alarm = Arc::new(Alarm::new().unwrap());
        let set = Epoll::new().unwrap();
        set.add(&*alarm, 0).unwrap();
        let fired = || {
            let mut ready = Vec::new();
            set.poll(&mut ready).unwrap();
            ready.len()
        };
        let permits = Permits::new(2, &alarm);
        drop(permits.take());
        assert_eq!(
            (permits.are_exhausted(), fired()),
            (false, 0),
            "no alarm is needed"
        );
        let first = permits.take();
        let second = permits.take();
        assert!(permits.are_exhausted());
        drop(first);
        while fired() == 0 {
            std::thread::yield_now();
        }
        assert!(!permits.are_exhausted());
        alarm.clear();
        drop(second);
        assert_eq!(fired(), 0);
    }
}
