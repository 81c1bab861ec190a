// SPDX-License-Identifier: MIT OR Apache-2.0
//! VIPL 1.0, the programming interface of the Virtual Interface Architecture, on Portolan.
//!
//! A VI is one end of a connection. It has a send queue and a receive queue of descriptors, which
//! are in the program's memory. Completion queues collect the completions of many VIs. Here each
//! process of the job is a host with one NIC. Messages travel as messages of a [`portolan::Node`]
//! with a header of VIPL (`wire.rs`), in pieces that are copied from and to the memory of
//! descriptors. Long ones move from memory to memory (`long.rs`). `docs/reference/heritage.md` lists
//! the known facts about the original, and the choices made where it is unknown.
//!
//! Invariant: the descriptors of a queue complete in the order in which they were posted, each
//! once. A failure ends only its own connection.
#![allow(
    unsafe_code,
    reason = "pointers of C programs are turned into references here, and nowhere else"
)]
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "types, fields and functions have the names that C programs use"
)]
#![allow(unreachable_pub, reason = "what C calls is exported, not used in Rust")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is for C, where every pointer is as unsafe; docs/reference/heritage.md has the rules"
)]

mod arrive;
mod body;
pub mod code;
pub mod connect;
pub mod cq;
mod descriptor;
mod error;
pub mod fault;
mod handshake;
mod helper;
mod long;
mod machine;
pub mod memory;
pub mod name;
pub mod nic;
mod pump;
mod queue;
mod slots;
#[cfg(test)]
mod testing;
pub mod types;
mod unit;
pub mod vi;
mod wait;
mod wire;
pub mod work;
mod world;
