// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connected endpoints: connecting, messages, disconnects and hostile peers.

mod addresses;
mod backlog;
mod connecting;
mod ending;
mod forking;
mod harness;
mod hostile;
mod information;
mod messages;
mod misuse;
mod sleeping;
