// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of networks: labs, links and their faults, the broker and `portolan doctor`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod broadcast_multicast;
mod broken;
mod broker;
mod capture;
mod doctor;
mod faults;
mod hostile;
mod incast;
mod lab;
mod lab_delay;
mod lending;
mod marks;
mod stream;
mod troubles;
mod two_networks;
