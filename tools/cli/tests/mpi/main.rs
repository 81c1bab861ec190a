// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of programs under other launchers and under installed MPIs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod launchers;
mod npb;
mod predict;
mod profile;
mod report_npb;
