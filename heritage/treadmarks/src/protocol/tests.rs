// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated processes with random schedules: each step is an operation of a program or the
//! delivery of a message.
//!
//! A schedule is repeated by its seed. `DSM_SCHEDULES` sets the number of schedules of each test.

mod litmus;
mod machine;
mod random;

/// Runs `one` for each seed. The seed is in the message of a failure.
fn for_each_seed(default: u64, one: impl Fn(u64)) {
    let count = match std::env::var("DSM_SCHEDULES") {
        Ok(count) => count.parse().expect("DSM_SCHEDULES is a number"),
        Err(_) => default,
    };
    for seed in 0..count {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one(seed)));
        if let Err(panic) = outcome {
            eprintln!("schedule {seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
}
