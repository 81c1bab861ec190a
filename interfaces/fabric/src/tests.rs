// SPDX-License-Identifier: MIT OR Apache-2.0
//! The provider as an application meets it: through the tables of operations, without libfabric.

mod atomic;
mod connected;
pub(crate) mod harness;
mod messages;
mod queues;
mod remote;
