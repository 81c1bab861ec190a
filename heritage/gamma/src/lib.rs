// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programming interface of GAMMA, the Genoa Active Message MAchine, on Portolan.
//!
//! GAMMA's interface is one process-wide state and functions that name ports and semaphores by
//! number. Here it is a table of ports and one of semaphores around a [`portolan::Node`], behind a
//! lock, so that any thread may call. `docs/gamma.md` says which facts of the original are known,
//! and what was chosen where they are not.
//!
//! The one invariant: a message is written into a buffer only when that is armed, and a buffer is
//! armed only when the program has said that what it holds may go.
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
    reason = "the text is for C, where every pointer is as unsafe; docs/gamma.md has the rules"
)]

pub mod code;
mod error;
mod group;
mod init;
mod machine;
mod memory;
pub mod port;
mod semaphore;
mod send;
pub mod time;
