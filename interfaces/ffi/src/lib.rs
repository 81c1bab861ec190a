// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code shared by the C libraries:
//!
//! - failures as a code and a sentence
//! - the guard that stops panics
//! - thread identification
//! - a lock that is nearly free for a single thread
//! - detection of forked children, which must not use their parent's state
//! - a timed yield of the core
//! - a thread that makes progress while the program computes
//! - the exit of programs that do not leave the job explicitly
//!
//! No code here depends on one interface: each library supplies its error codes as [`Codes`].
//!
//! Invariant: whatever a body does, [`guard`] returns a number.
#![allow(
    unsafe_code,
    reason = "calls of the system's library, and memory that C programs name by address"
)]

mod arm;
mod bytes;
mod failure;
mod guarded;
mod lock;
mod process;
mod prompt;
mod serve;
mod yielding;

pub use arm::arm;
pub use bytes::{Unusable, bytes, bytes_mut};
pub use failure::{Codes, Failure, fenced, guard, last_error};
pub use guarded::{Guard, Guarded};
pub use lock::{Held, Locked};
pub use process::{leave, name_of, this_thread, watch_forks};
pub use prompt::run_promptly;
pub use serve::{Served, Serving, With};
pub use yielding::yield_core;
