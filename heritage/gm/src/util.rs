// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules that programs of GM use and that have nothing to do with messages.

mod crc;
mod hash;
mod lookaside;
pub mod mark;
mod mutex;
