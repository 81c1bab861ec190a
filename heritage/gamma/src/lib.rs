// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programming interface of GAMMA, the Genoa Active Message MAchine, on Portolan.
//!
//! GAMMA has process-wide state and functions that refer to ports and semaphores by number. Here
//! these are two tables around a [`portolan::Node`], behind a lock, so that any thread may call.
//! `docs/reference/gamma.md` lists the known facts about the original, and the choices made where it is
//! unknown.
//!
//! Invariant: a message is written to a buffer only while the buffer is armed. A buffer is armed
//! only after the program has released its contents.
#![allow(
    unsafe_code,
    reason = "pointers of C programs are turned into references here, and nowhere else"
)]
#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    reason = "names are those that C programs use"
)]
#![allow(unreachable_pub, reason = "what C calls is exported, not used in Rust")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is for C, where every pointer is as unsafe; docs/reference/gamma.md has the rules"
)]

pub mod code;
mod error;
pub mod group;
pub mod init;
mod machine;
mod memory;
mod partition;
pub mod port;
pub mod semaphore;
pub mod send;
pub mod time;
