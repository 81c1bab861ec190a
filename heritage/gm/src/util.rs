// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules of GM for programs that are not about messages.

mod crc;
mod hash;
mod keys;
mod lookaside;
pub mod mark;
mod mutex;
