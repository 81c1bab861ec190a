// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements between two hosts: `portolan bench --server` on one, `portolan bench … --client
//! HOST` on the other.
//!
//! The client measures. Its rows are the same as in any run, with their answering ends at the
//! server. For each end it opens a connection and sends the row's specification ([`handshake`]).
//! The server validates the specification (`admit`) and starts this program itself, never one named
//! by the client. It has one client at a time, which holds a session for as long as its connection
//! lasts.

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
