// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portolan for programs in C, and in languages that can call C.
//!
//! Each function checks its arguments, calls the Rust library, and converts the result to a number.
//! The protocol is not implemented here. `include/portolan.h` is generated from these files, so
//! their documentation is written for C programmers.
//!
//! Invariant: no panic and no exception leaves a function of this library. Every failure has a
//! number that never changes and a text that names the cause.
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
    reason = "the text is for C, where every pointer is as unsafe; portolan(7) has the rules"
)]

mod atomic;
mod block;
mod call;
pub mod code;
mod collective;
mod combine;
mod counters;
mod error;
mod event;
mod failure;
mod group;
mod handle;
mod memory;
mod message;
mod model;
mod node;
mod port;
mod probe;
mod remote;
mod request;
mod server;
mod tagged;
pub mod types;
