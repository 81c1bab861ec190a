// SPDX-License-Identifier: MIT OR Apache-2.0
//! Yields of threads that share an endpoint.

use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Yields the core to other threads and processes. Returns the time until this thread ran again.
/// A caller that holds a lock keeps other threads from polling meanwhile.
#[cold]
pub fn yield_core() -> Duration {
    let begin = Instant::now();
    yield_now();
    begin.elapsed()
}
