// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programming interface of BIP, the Basic Interface for Parallelism, on Portolan.
//!
//! BIP is one process-wide state and few functions: tagged messages of words, of which short ones wait
//! for their receive and long ones may not leave before it. Here a tag is a tag of
//! [`portolan::Node`]; what BIP left to the network's good will, loss and full queues, is Portolan's.
//! `docs/heritage.md` says which facts of the original are known, and what was chosen where they are
//! not.
//!
//! The one invariant: no function returns after a failure. BIP had no codes for errors; it found them
//! and ended the job, and so does this.
#![allow(
    unsafe_code,
    reason = "pointers of C programs are turned into references here, and nowhere else"
)]
#![allow(non_upper_case_globals, reason = "names are those that C programs use")]
#![allow(unreachable_pub, reason = "what C calls is exported, not used in Rust")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is for C, where every pointer is as unsafe; docs/heritage.md has the rules"
)]

pub mod init;
mod machine;
mod message;
pub mod receive;
pub mod send;
mod tag;
