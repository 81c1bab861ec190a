// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connected endpoints: connecting, messages, disconnects and hostile peers.

mod addresses;
mod crowds;
mod ending;
mod forking;
mod harness;
mod hostile;
mod information;
mod meeting;
mod misuse;
mod sleeping;
mod talking;
