// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programming interface of TreadMarks on Portolan: memory that the processes of a job share,
//! on any hosts.
//!
//! `protocol` is the consistency protocol as a state machine, `machine` connects it with a
//! [`portolan::Node`] and a helper thread, `mapping` and `fault` with the program's memory.
//! `docs/guide/dsm.md` is for users, `docs/reference/heritage.md` lists the choices where the
//! original is unknown.
//!
//! Invariant: no function returns after a failure, and no access to shared memory does. The failure
//! is printed, and the job ends.
#![allow(
    unsafe_code,
    reason = "memory that the program accesses by pointers, and faults of its accesses"
)]
#![allow(
    non_upper_case_globals,
    non_snake_case,
    reason = "names that C programs use"
)]
#![allow(unreachable_pub, reason = "what C calls is exported, not used in Rust")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is for C, where every pointer is as unsafe; docs/reference/heritage.md has the rules"
)]

mod arena;
mod error;
mod fault;
mod gate;
mod image;
mod machine;
mod mapping;
pub mod memory;
mod private;
mod protocol;
mod settings;
pub mod startup;
mod statistics;
pub mod sync;
