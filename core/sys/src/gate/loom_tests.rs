// SPDX-License-Identifier: MIT OR Apache-2.0
//! The baton under loom: every interleaving of an owner that enters and leaves with a helper.

use super::baton::{Asleep, Baton};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Shared {
    baton: Baton,
    /// Loom panics on unordered accesses by both threads.
    value: UnsafeCell<u32>,
}

// SAFETY: the model checks exactly this.
unsafe impl Sync for Shared {}

fn add(shared: &Shared) {
    // SAFETY: the caller holds the baton.
    shared.value.with_mut(|value| unsafe { *value += 1 });
}

#[test]
fn one_at_a_time_uses_the_value() {
    loom::model(|| {
        let shared = Arc::new(Shared {
            baton: Baton::new(),
            value: UnsafeCell::new(0),
        });
        let of_helper = Arc::clone(&shared);
        let helper = thread::spawn(move || {
            let mut count = 0;
            for _ in 0..2 {
                let Some(absence) = of_helper.baton.absence() else {
                    continue;
                };
                if of_helper.baton.pick_up(absence) {
                    add(&of_helper);
                    count += 1;
                    of_helper.baton.give_back();
                }
            }
            count
        });
        for _ in 0..2 {
            add(&shared);
            shared.baton.put_down(true);
            shared.baton.take_back();
            while !shared.baton.is_back() {
                thread::yield_now();
            }
        }
        let count = helper.join().unwrap();
        // SAFETY: the other thread has ended.
        let value = shared.value.with(|value| unsafe { *value });
        assert_eq!(value, 2 + count);
    });
}

#[test]
fn sleeping_helper_is_woken() {
    for (asleep, is_urgent) in [(Asleep::Deeply, false), (Asleep::Lightly, true)] {
        loom::model(move || {
            let baton = Arc::new(Baton::new());
            let of_helper = Arc::clone(&baton);
            let helper = thread::spawn(move || {
                of_helper.fall_asleep(asleep);
                // Loom reports a deadlock if this never ends.
                while of_helper.absence().is_none() {
                    thread::park();
                }
            });
            if baton.put_down(is_urgent) {
                helper.thread().unpark();
            }
            helper.join().unwrap();
        });
    }
}
