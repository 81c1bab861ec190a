// SPDX-License-Identifier: MIT OR Apache-2.0
//! Library that `portolan sockets` preloads into unmodified programs. If both ends of a TCP
//! connection within a host have it, the bytes move through shared memory.
//!
//! The kernel's connection is always made, and always carries the connection's life and death and
//! the readiness of sleeping programs. Each direction has a ring beside it (`segment`). The
//! reader decides which of both the writer uses:
//!
//! - A reader that sleeps in the kernel has armed its direction. The writer then uses the kernel,
//!   so `poll`, `epoll` and blocked calls wake up as always.
//! - A reader that is awake and expects more disarms it. The writer then uses the ring.
//!
//! Invariant: the order of ring bytes and kernel bytes is known to the reader at every byte.
//! Whatever is not understood leaves a direction armed for good, which is plain TCP.
//!
//! The library allocates no memory from the program's heap, because its calls run in signal
//! handlers and after `fork`.

#![cfg_attr(
    test,
    allow(dead_code, reason = "unit tests do without the exported functions")
)]

mod bypass;
mod conn;
mod cursor;
mod epoll;
mod errno;
mod give_back;
mod join;
mod lock;
mod pool;
mod process;
mod ready;
mod real;
mod recv;
mod segment;
mod send;
mod settings;
mod spin;
mod stats;
mod table;

// The test program of this crate uses the C library's own functions.
#[cfg(not(test))]
mod exports;
