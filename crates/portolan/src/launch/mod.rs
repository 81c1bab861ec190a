// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's side of launching: who am I, where is everybody, who is gone.
//!
//! `portolan run` starts an agent on each host, and the agent starts the processes. Each process
//! inherits one end of a unix socket, whose descriptor number is in [`FD_VARIABLE`]; [`wire`] has
//! the messages. This module opens no link and knows nothing of what an address looks like.
//!
//! The invariant: the job's secret is never in an environment, an argument or a file; it arrives
//! over that socket and stays in [`Job`].

mod client;
mod error;
mod job;
mod lines;
pub mod wire;

pub use client::Launch;
pub use error::LaunchError;
pub use job::Job;
pub use lines::LineBuffer;
pub use wire::{Gone, PathChoice};

/// Environment variable with the number of the inherited descriptor. Without it a program is a
/// job of one process.
pub const FD_VARIABLE: &str = crate::settings::LAUNCH_FD.variable;
