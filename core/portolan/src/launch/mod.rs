// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's side of launching: its rank, the addresses of all processes, and processes that have
//! ended.
//!
//! `portolan run` starts an agent on each host, and the agent starts the processes. Each process
//! inherits one end of a unix socket, with its descriptor number in [`FD_VARIABLE`]; [`wire`] has
//! the messages. Other launchers (`mpirun`, `mpiexec`, `srun`) have a key-value space that the
//! processes of a job write and read; `foreign` joins through that. This module opens no link, and
//! addresses are opaque to it.
//!
//! The invariant: the job's secret is never in an environment, an argument or a file. It arrives
//! over the launcher's connection and stays in [`Job`].

mod agent;
mod detect;
mod error;
mod foreign;
mod job;
mod lines;
mod loss;
mod member;
pub mod wire;

pub use detect::Starter;
pub use error::LaunchError;
pub use foreign::Space;
pub use job::Job;
pub(crate) use job::check_env;
pub use lines::LineBuffer;
pub(crate) use loss::LossReporter;
pub use member::Launch;
pub use wire::{EndedRank, PathChoice};

/// Environment variable with the number of the inherited descriptor.
pub const FD_VARIABLE: &str = crate::settings::LAUNCH_FD.variable;
