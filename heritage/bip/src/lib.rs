// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programming interface of BIP, the Basic Interface for Parallelism, on Portolan.
//!
//! BIP has process-wide state and few functions. Its messages consist of words and have a tag.
//! Short messages wait for their receive; long ones may not leave before it. Here a tag is a tag of
//! [`portolan::Node`]. Portolan handles loss and full queues, which BIP did not. `docs/reference/heritage.md`
//! lists the known facts about the original, and the choices made where it is unknown.
//!
//! Invariant: no function returns after a failure. BIP had no error codes; it detected errors and
//! ended the job, and so does this library.
#![allow(
    unsafe_code,
    reason = "pointers of C programs are turned into references here, and nowhere else"
)]
#![allow(non_upper_case_globals, reason = "names are those that C programs use")]
#![allow(unreachable_pub, reason = "what C calls is exported, not used in Rust")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is for C, where every pointer is as unsafe; docs/reference/heritage.md has the rules"
)]

pub mod init;
mod machine;
mod message;
pub mod receive;
pub mod send;
mod tag;
