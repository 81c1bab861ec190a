// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps.

/// A time in nanoseconds since an arbitrary start.
pub type gamma_time_t = u64;

/// Returns the current time of a monotonic clock. Works outside of the parallel section, too.
#[unsafe(no_mangle)]
pub extern "C" fn gamma_time() -> gamma_time_t {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` may be written; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Returns the microseconds from `begin` to `end`.
#[unsafe(no_mangle)]
#[allow(
    clippy::cast_precision_loss,
    reason = "a hundred days are needed to lose a nanosecond"
)]
pub extern "C" fn gamma_time_diff(end: gamma_time_t, begin: gamma_time_t) -> f64 {
    end.wrapping_sub(begin).cast_signed() as f64 / 1e3
}
