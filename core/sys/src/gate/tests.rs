// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Counts down pending work, and sends a message for each step.
struct Work {
    left: u32,
    is_patient: bool,
    steps: Sender<(u32, thread::ThreadId)>,
}

impl Service for Work {
    fn pending(&self) -> Pending {
        match self.left {
            0 => Pending::Nothing,
            _ if self.is_patient => Pending::Patient,
            _ => Pending::Urgent,
        }
    }

    fn service(&mut self, is_requested: &dyn Fn() -> bool) -> Serviced {
        while self.left > 0 {
            self.left -= 1;
            self.steps
                .send((self.left, thread::current().id()))
                .unwrap();
            if is_requested() {
                return Serviced::Moved;
            }
        }
        Serviced::Done
    }

    fn on_no_helper(&mut self, error: &io::Error) {
        panic!("{error}");
    }
}

fn gate() -> (Gate<Work>, Receiver<(u32, thread::ThreadId)>) {
    let (steps, seen) = channel();
    let work = Work {
        left: 0,
        is_patient: false,
        steps,
    };
    (Gate::new(work, "test-carry").unwrap(), seen)
}

#[test]
fn pending_work_is_serviced_by_the_helper() {
    let (mut gate, seen) = gate();
    for round in 0..20 {
        gate.enter().left = 3;
        for left in [2, 1, 0] {
            let (step, by) = seen.recv().unwrap();
            assert_eq!(step, left, "round {round}");
            assert_ne!(by, thread::current().id());
        }
        assert_eq!(gate.read().left, 0);
        if round % 7 == 0 {
            // Long enough for the helper to fall asleep until it is woken.
            thread::sleep((ABSENCE + ABSENCE_PATIENT) * (POLLS_MAX + 5));
        }
    }
}

#[test]
fn patient_work_is_serviced_later() {
    let (mut gate, seen) = gate();
    gate.enter().is_patient = true;
    for round in 0..20 {
        gate.enter().left = 1;
        assert_eq!(seen.recv().unwrap().0, 0, "round {round}");
        if round % 10 == 0 {
            // Until the helper sleeps lightly, and then until it must be woken.
            thread::sleep(ABSENCE * (POLLS_MAX + 5));
            gate.enter().left = 1;
            assert_eq!(seen.recv().unwrap().0, 0, "round {round}");
            thread::sleep((ABSENCE + ABSENCE_PATIENT) * (POLLS_MAX + 5));
        }
    }
}

#[test]
fn work_stays_pending_after_a_read() {
    let (mut gate, seen) = gate();
    {
        let mut entered = gate.enter();
        entered.left = 2;
    }
    let _ = (gate.read().left, gate.read().left);
    for left in [1, 0] {
        assert_eq!(seen.recv().unwrap().0, left);
    }
}

#[test]
fn helper_does_not_touch_a_value_in_use() {
    let (mut gate, seen) = gate();
    gate.enter().left = 1;
    assert_eq!(seen.recv().unwrap().0, 0);
    let mut entered = gate.enter();
    entered.left = 1_000;
    thread::sleep(ABSENCE * 10);
    assert_eq!(entered.left, 1_000);
    assert!(seen.try_recv().is_err());
}

#[test]
fn held_value_stays_with_its_owner() {
    let (mut gate, seen) = gate();
    gate.hold_mut().left = 5;
    let left = &gate.hold().left;
    assert_eq!(gate.read().left, 5);
    thread::sleep(ABSENCE * 10);
    assert_eq!(*left, 5);
    assert!(seen.try_recv().is_err());
    drop(gate.enter());
    assert_eq!(seen.recv().unwrap().0, 4);
}

#[test]
fn nested_read_does_not_release_the_outer_one() {
    let (mut gate, seen) = gate();
    std::mem::forget(gate.enter());
    gate.hold_mut().left = 5;
    let outer = gate.read();
    drop(gate.read());
    thread::sleep(ABSENCE * 10);
    assert_eq!(outer.left, 5);
    assert!(seen.try_recv().is_err());
}

#[test]
fn owner_that_returns_constantly_sees_a_consistent_value() {
    let (mut gate, seen) = gate();
    for round in 0..2_000 {
        let before = {
            let mut entered = gate.enter();
            entered.left += 100;
            entered.left
        };
        // From time to time wait for the helper, however busy the machine is.
        let awaited = usize::from(round % 50 == 0 && seen.recv().is_ok());
        let after = gate.enter();
        let steps = awaited + seen.try_iter().count();
        assert_eq!(before - after.left, u32::try_from(steps).unwrap());
    }
}

#[test]
fn sleeping_helper_is_woken_once() {
    for (asleep, is_urgent, is_called) in [
        (Asleep::Not, true, false),
        (Asleep::Lightly, false, false),
        (Asleep::Lightly, true, true),
        (Asleep::Deeply, false, true),
        (Asleep::Deeply, true, true),
    ] {
        let baton = Baton::new();
        baton.fall_asleep(asleep);
        assert_eq!(baton.put_down(is_urgent), is_called, "{asleep:?}");
        let absence = baton.absence().unwrap();
        assert_eq!(absence.is_urgent(), is_urgent);
        baton.take_back();
        assert!(baton.is_requested(absence) && baton.absence().is_none());
        assert!(
            !is_called || !baton.put_down(is_urgent),
            "it is called once"
        );
        if asleep != Asleep::Not {
            assert_eq!(baton.wake(), is_called, "{asleep:?}");
        }
    }
}

#[test]
fn no_thread_is_started_without_pending_work() {
    let (gate, _seen) = gate();
    assert_eq!(gate.read().left, 0);
    assert!(gate.helper.get().is_none());
}

/// Reads bytes from a pipe, on the thread that holds the value.
struct Guarded {
    pipe: std::io::PipeReader,
    is_armed: bool,
    taken: Sender<(usize, thread::ThreadId)>,
    /// Receives a message when the helper is about to sleep.
    armed: Sender<()>,
}

impl Guarded {
    fn take(&mut self) {
        let mut bytes = [0; 64];
        let len = rustix::io::read(&self.pipe, &mut bytes).unwrap_or(0);
        if len > 0 {
            self.taken.send((len, thread::current().id())).unwrap();
        }
    }
}

impl Service for Guarded {
    fn is_guarded(&self) -> bool {
        true
    }

    fn pending(&self) -> Pending {
        Pending::Patient
    }

    fn service(&mut self, _: &dyn Fn() -> bool) -> Serviced {
        assert!(!self.is_armed, "used while the helper sleeps on it");
        self.take();
        Serviced::Done
    }

    fn begin_guard(&mut self) -> Guard {
        self.is_armed = true;
        self.armed.send(()).unwrap();
        Guard::Asleep(self.pipe.as_raw_fd(), Duration::from_secs(3600))
    }

    fn end_guard(&mut self) {
        assert!(std::mem::take(&mut self.is_armed));
    }

    fn on_no_helper(&mut self, error: &io::Error) {
        panic!("{error}");
    }
}

/// A gate, the pipe's writing end, the bytes read, and a message whenever the helper is about to
/// sleep.
type GuardedGate = (
    Gate<Guarded>,
    std::io::PipeWriter,
    Receiver<(usize, thread::ThreadId)>,
    Receiver<()>,
);

fn guarded() -> GuardedGate {
    let (pipe, outside) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&pipe, true).unwrap();
    let (taken, seen) = channel();
    let (armed, sleeps) = channel();
    let value = Guarded {
        pipe,
        is_armed: false,
        taken,
        armed,
    };
    let gate = Gate::new(value, "test-guard").unwrap();
    (gate, outside, seen, sleeps)
}

#[test]
fn external_events_are_handled_by_owner_or_helper() {
    let (mut gate, mut outside, seen, sleeps) = guarded();
    let own = thread::current().id();
    for round in 0..50 {
        sleeps.try_iter().for_each(drop);
        drop(gate.enter());
        for _ in 0..round % 3 {
            outside.write_all(b"word").unwrap();
            let (len, by) = seen.recv().unwrap();
            assert_eq!((len, by != own), (4, true), "round {round}");
        }
        if round % 10 == 0 {
            sleeps.recv().unwrap();
        }
        let mut entered = gate.enter();
        assert!(!entered.is_armed);
        outside.write_all(b"words").unwrap();
        thread::sleep(ABSENCE * (round % 2));
        assert!(seen.try_recv().is_err());
        entered.take();
        assert_eq!(seen.recv().unwrap(), (5, own));
    }
}

#[test]
fn helper_on_guard_ends_with_its_gate() {
    let (mut gate, mut outside, seen, sleeps) = guarded();
    drop(gate.enter());
    sleeps.recv().unwrap();
    drop(gate);
    drop(seen);
    // The reading end was closed.
    assert!(outside.write_all(b"word").is_err());
}

#[test]
fn gate_without_thread_is_served_by_its_owner() {
    let (steps, seen) = channel();
    let mut gate = Gate::without_thread(Work {
        left: 0,
        is_patient: false,
        steps,
    });
    assert_eq!(gate.pending(), Pending::Nothing);
    gate.enter().left = 2;
    assert_eq!(gate.pending(), Pending::Urgent);
    assert!(seen.try_recv().is_err(), "nothing else has served it");
    assert_eq!(gate.serve(), Serviced::Done);
    let by: Vec<_> = seen.try_iter().collect();
    let own = thread::current().id();
    assert_eq!(by, [(1, own), (0, own)]);
}
