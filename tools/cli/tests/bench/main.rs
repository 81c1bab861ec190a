// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of measurements and their uses: `portolan bench`, `tune` and reports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod bulk;
mod competitors;
mod interfaces;
mod mpi;
mod remote;
mod report;
mod tune;
