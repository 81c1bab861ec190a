// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the provider through the operation tables, without libfabric.

mod atomic;
mod connected;
pub(crate) mod harness;
mod messages;
mod queues;
mod remote;
