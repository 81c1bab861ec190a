// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints that connect without a launcher: several in one process, and in separate processes.
#![allow(
    unsafe_code,
    reason = "operations of an endpoint take memory by address"
)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that unwraps an error has failed; lengths and numbers here are small"
)]

mod common;
mod computing;
mod connect;
mod death;
mod lab;
mod messages;
mod one_shot;
mod remote;
mod removal;
mod restart;
mod servers;
mod sleep;
