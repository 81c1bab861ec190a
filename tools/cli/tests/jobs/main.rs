// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of jobs: how they start, what their processes exchange, and how they end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod ambient;
mod blocked;
mod blocks;
mod both_copy;
mod calls;
mod collectives;
mod death;
mod endings;
mod endurance;
mod fork;
mod idle;
mod join;
mod kills;
mod memory_faults;
mod messages;
mod output;
mod placement;
mod progress;
mod promises;
mod remote;
mod run;
mod secrets;
mod settings;
mod timeouts;
mod top;
mod unexpected;
