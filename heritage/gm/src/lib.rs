// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programming interface of Myricom's GM on Portolan.
//!
//! Ports of processes exchange messages that match buffers by size class and priority. Tokens limit
//! the operations in flight. Received messages, ended sends and due alarms are events of a port.
//! Here each process of the job is a node with eight ports. Messages are sent as messages of a
//! [`portolan::Node`], with a header of GM (`wire.rs`). `docs/reference/heritage.md` lists the known facts about
//! the original, and the choices where it is unknown.
//!
//! The one invariant: messages of one connection (port, port, priority) end in order, at the
//! receiver and in the sender's callbacks. A failure stops only that connection.
#![allow(
    unsafe_code,
    reason = "pointers of C programs are turned into references here, and nowhere else"
)]
#![allow(
    non_camel_case_types,
    reason = "types have the names that C programs use"
)]
#![allow(unreachable_pub, reason = "what C calls is exported, not used in Rust")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the text is for C, where every pointer is as unsafe; docs/reference/heritage.md has the rules"
)]

pub mod alarm;
mod arrive;
pub mod buffer;
pub mod code;
mod conn;
mod error;
pub mod event;
mod machine;
pub mod memory;
mod misc;
pub mod name;
mod numbers;
mod order;
pub mod port;
mod pump;
pub mod receive;
mod recover;
pub mod send;
mod simple;
mod table;
mod tokens;
pub mod util;
mod wire;
mod world;
