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

/// Shortest delay of a timer, for an immediate ring.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// A descriptor that becomes readable after a ring, immediate or delayed.
pub(super) struct Alarm {
    timer: OwnedFd,
    owner: Owner,
}

impl Alarm {
    /// Creates a silent alarm.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let owner = Owner::this_process();
        Ok(Alarm { timer, owner })
    }

    pub(super) fn ring(&self) {
        self.ring_after(AT_ONCE);
    }

    /// Rings after a delay below one second. An earlier ring that was not read is delayed, too.
    pub(super) fn ring_after(&self, wait: Duration) {
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

    /// Clears the alarm until the next ring.
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

/// Seats of a listener's callers.
pub(super) struct Seats {
    taken: Arc<Taken>,
    count_max: usize,
}

struct Taken {
    count: AtomicUsize,
    alarm: Arc<Alarm>,
}

impl Seats {
    /// Creates `count_max` seats. `alarm` rings when one of a full set is released.
    pub(super) fn new(count_max: usize, alarm: &Arc<Alarm>) -> Seats {
        let taken = Arc::new(Taken {
            count: AtomicUsize::new(0),
            alarm: Arc::clone(alarm),
        });
        Seats { taken, count_max }
    }

    pub(super) fn are_taken(&self) -> bool {
        // SYNC: caller-seats. A thread that sees the ring of a released seat also sees the lower
        // count.
        self.taken.count.load(Ordering::Acquire) >= self.count_max
    }

    /// Takes a seat. The caller has checked that one is free.
    pub(super) fn take(&self) -> Seat {
        self.taken.count.fetch_add(1, Ordering::Relaxed);
        Seat {
            taken: Arc::clone(&self.taken),
            count_max: self.count_max,
        }
    }
}

/// A seat that a caller holds until it is answered or dropped.
pub(super) struct Seat {
    taken: Arc<Taken>,
    count_max: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // SYNC: caller-seats.
        let before = self.taken.count.fetch_sub(1, Ordering::Release);
        if before >= self.count_max {
            self.taken.alarm.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_sys::epoll::Epoll;

    use super::*;

    #[test]
    fn who_waits_for_a_seat_is_woken_when_one_is_given_back() {
        let alarm = Arc::new(Alarm::new().unwrap());
        let set = Epoll::new().unwrap();
        set.add(&*alarm, 0).unwrap();
        let rings = || {
            let mut ready = Vec::new();
            set.look(&mut ready).unwrap();
            ready.len()
        };
        let seats = Seats::new(2, &alarm);
        drop(seats.take());
        assert_eq!((seats.are_taken(), rings()), (false, 0), "nobody waits");
        let first = seats.take();
        let second = seats.take();
        assert!(seats.are_taken());
        drop(first);
        while rings() == 0 {
            std::thread::yield_now();
        }
        assert!(!seats.are_taken());
        alarm.clear();
        drop(second);
        assert_eq!(rings(), 0);
    }
}
