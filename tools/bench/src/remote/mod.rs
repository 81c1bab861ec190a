// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring between two hosts: `portolan bench --server` on one, `portolan bench … --client HOST` on
//! the other.
//!
//! The client measures: its rows are those of any run, with their answering ends at the server. For each
//! end it opens a connection and sends the row's specification ([`handshake`]). The server takes from it what
//! a row consists of (`admit`), and starts this program itself, never one that the client names. It has
//! one client at a time, which holds a session for as long as its connection lasts.

mod admit;
mod args;
mod client;
mod handshake;
mod host;
mod server;

pub use args::{RemoteArgs, TOKEN_VARIABLE};
pub(crate) use client::Remote;
pub use client::RemoteError;
pub use handshake::ServerHost;
pub use server::{Hosting, ServedRank, serve};
