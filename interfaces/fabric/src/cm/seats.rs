// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many callers of a listener may be without an answer, and what wakes who looks after listeners
//! that wait.

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

/// A timer's shortest wait, which is none.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// A descriptor that is readable at once after a ring, or after a while.
pub(super) struct Alarm {
    timer: OwnedFd,
    owner: Owner,
}

impl Alarm {
    /// # Errors
    /// For want of descriptors.
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let owner = Owner::this_process();
        Ok(Alarm { timer, owner })
    }

    pub(super) fn ring(&self) {
        self.ring_after(AT_ONCE);
    }

    /// Ring after a time below a second. A ring that nobody has seen waits as long.
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
        // In a forked child it is the parent's.
        if !self.owner.is_another() {
            // Fails only for times that there are not.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time);
        }
    }

    /// Be silent until the next ring.
    pub(super) fn clear(&self) {
        // Nothing to read is as good.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// The callers of a listener.
pub(super) struct Seats {
    taken: Arc<Taken>,
    count_max: usize,
}

struct Taken {
    count: AtomicUsize,
    alarm: Arc<Alarm>,
}

impl Seats {
    /// For so many; `alarm` rings when one is given back.
    pub(super) fn new(count_max: usize, alarm: &Arc<Alarm>) -> Seats {
        let taken = Arc::new(Taken {
            count: AtomicUsize::new(0),
            alarm: Arc::clone(alarm),
        });
        Seats { taken, count_max }
    }

    pub(super) fn are_taken(&self) -> bool {
        // SYNC: caller-seats. Who sees the ring of a seat that was given back sees it free.
        self.taken.count.load(Ordering::Acquire) >= self.count_max
    }

    /// Take one, which there is.
    pub(super) fn take(&self) -> Seat {
        self.taken.count.fetch_add(1, Ordering::Relaxed);
        Seat {
            taken: Arc::clone(&self.taken),
            count_max: self.count_max,
        }
    }
}

/// A caller's, until it has an answer or is gone.
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
