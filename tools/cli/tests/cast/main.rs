// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod compress;
mod copies;
mod device;
mod explain;
mod hostile;
mod hosts;
mod leftovers;
mod limits;
mod multicast;
mod verify;
