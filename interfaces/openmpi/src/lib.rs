// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small C interface over endpoints, for Open MPI's component `btl/portolan`.
//!
//! The component itself (`component/*.c`) is written in C, because Open MPI's internal interfaces are C structures
//! and macros that change with its version. It uses only the functions of [`calls`]. This crate uses nothing of
//! Open MPI.
//!
//! The one invariant: hooks may call every function here except the one that closes the endpoint.

#![warn(missing_docs)]

pub mod calls;
mod channel;
mod mailbox;
mod operation;
pub mod types;
