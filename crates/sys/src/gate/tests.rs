// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Counts down what is left, and tells of each step.
struct Work {
    left: u32,
    steps: Sender<(u32, thread::ThreadId)>,
}

impl Carry for Work {
    fn carry(&mut self, is_wanted: &dyn Fn() -> bool) -> Carried {
        while self.left > 0 {
            self.left -= 1;
            self.steps
                .send((self.left, thread::current().id()))
                .unwrap();
            if is_wanted() {
                return Carried::Moved;
            }
        }
        Carried::Done
    }
}

fn gate() -> (Gate<Work>, Receiver<(u32, thread::ThreadId)>) {
    let (steps, seen) = channel();
    (Gate::new(Work { left: 0, steps }, "test-carry"), seen)
}

#[test]
fn what_is_left_is_carried_on_by_another_thread() {
    let (mut gate, seen) = gate();
    for round in 0..20 {
        gate.left = 3;
        gate.leave().unwrap();
        for left in [2, 1, 0] {
            let (step, by) = seen.recv().unwrap();
            assert_eq!(step, left, "round {round}");
            assert_ne!(by, thread::current().id());
        }
        assert_eq!(gate.left, 0);
        if round % 7 == 0 {
            // Long enough for the helper to sleep until it is called.
            thread::sleep(ABSENCE * (LOOKS + 5));
        }
    }
}

#[test]
fn nobody_touches_what_its_owner_holds() {
    let (mut gate, seen) = gate();
    gate.leave().unwrap();
    gate.left = 1_000;
    thread::sleep(ABSENCE * 10);
    assert_eq!(gate.left, 1_000);
    assert!(seen.try_recv().is_err());
}

#[test]
fn an_owner_that_comes_back_all_the_time_meets_a_whole_value() {
    let (mut gate, seen) = gate();
    let mut carried = 0_u32;
    for round in 0..2_000 {
        gate.left += 100;
        let before = gate.left;
        gate.leave().unwrap();
        if round % 50 == 0 {
            thread::sleep(ABSENCE * 3);
        }
        let after = gate.left;
        let steps = seen.try_iter().count();
        assert_eq!(before - after, u32::try_from(steps).unwrap());
        carried += before - after;
    }
    assert!(carried > 0, "the helper never had a chance");
}

#[test]
fn no_thread_is_started_for_one_that_leaves_nothing() {
    let (gate, _seen) = gate();
    assert_eq!(gate.left, 0);
    assert!(gate.helper.is_none());
}
