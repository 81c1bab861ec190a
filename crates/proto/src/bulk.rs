// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages: announced, granted, and carried from user memory to user memory (`P5`).

pub(crate) mod grant;
pub(crate) mod prediction;
mod receive;
pub(crate) mod rendezvous;
mod send;
