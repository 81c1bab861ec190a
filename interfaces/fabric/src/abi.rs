// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of libfabric's binary interface that a provider uses.
//!
//! Layouts and numbers are those of libfabric 1.17. Later versions, up to 2.x, only append fields.
//! Names follow the headers (`struct fi_ops_msg` is [`OpsMsg`]), so libfabric's manual pages
//! document them. `layout.rs` compares every offset with the installed headers.

#![allow(
    dead_code,
    reason = "the interface as it is, whether or not all of it is used"
)]

mod consts;
mod info;
#[cfg(test)]
mod layout;
mod messages;
mod objects;

pub(crate) use consts::*;
pub(crate) use info::*;
pub(crate) use messages::*;
pub(crate) use objects::*;
