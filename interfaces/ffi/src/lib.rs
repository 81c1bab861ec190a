// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the C libraries share: failures as a number and a sentence, the fence that no panic passes,
//! which thread this is, a lock that costs one thread alone next to nothing, children of the program that must not use what is their parent's, and the end
//! of a program that just ends.
//!
//! Nothing here knows an interface: each library brings its numbers, as [`Codes`].
//!
//! The one invariant: whatever a body does, [`guard`] returns a number.
#![allow(
    unsafe_code,
    reason = "calls of the system's library, and memory that C programs name by address"
)]

mod bytes;
mod failure;
mod guarded;
mod lock;
mod nap;
mod process;

pub use bytes::{Unusable, bytes, bytes_mut};
pub use failure::{Codes, Failure, fenced, guard, last_error};
pub use guarded::{Guard, Guarded};
pub use lock::{Held, Locked};
pub use nap::arm;
pub use process::{leave, this_thread, watch_forks};
