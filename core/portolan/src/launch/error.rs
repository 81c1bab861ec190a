// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons for which a process could not join its job.

use super::{EndedRank, FD_VARIABLE};
use crate::settings::{BadVariable, UnknownSetting};
use std::fmt;
use std::io;
use thiserror::Error;

/// Reason for which a process could not join its job.
#[derive(Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An option or a variable is not a setting.
    #[error(transparent)]
    UnknownSetting(#[from] UnknownSetting),
    /// A variable has an invalid value.
    #[error(transparent)]
    BadVariable(#[from] BadVariable),
    /// The descriptor is not a connection that an agent left for this process.
    #[error(
        "{FD_VARIABLE} names descriptor {fd}, which is not a connection to a launcher ({errno}): \
         a process joins once, and processes it starts are not part of the job; \
         unset {FD_VARIABLE} to run them as jobs of one"
    )]
    NotInherited {
        /// Number in the variable.
        fd: i32,
        /// Error of the descriptor.
        errno: io::Error,
    },
    /// The agent closed the connection.
    #[error(
        "the launcher closed the connection: it has ended, or another process of this rank \
         has joined and left the job already"
    )]
    Closed,
    /// The connection failed.
    #[error("connection to the launcher: {0}")]
    System(io::Error),
    /// A message that this version cannot read.
    #[error(
        "unexpected message from the launcher ({0}); use the same version of portolan and of the program"
    )]
    Malformed(String),
    /// The launcher uses another version of the messages.
    #[error(
        "the launcher uses protocol version {theirs}, this program version {ours}; \
         rebuild the program with the version of portolan that starts it"
    )]
    Version {
        /// Version of this program.
        ours: u32,
        /// Version of the launcher.
        theirs: u32,
    },
    /// A launcher other than Portolan's refused, or sent an invalid value.
    #[error("joining the job through {launcher}: {what}")]
    Foreign {
        /// Name of the launcher.
        launcher: &'static str,
        /// Failure, with the remedy.
        what: String,
    },
    /// A rank ended before all addresses were known.
    #[error("the job cannot start: {0}")]
    RankEnded(EndedRank),
    /// The addresses have been exchanged already.
    #[error("addresses can be exchanged only once")]
    AlreadyExchanged,
}

impl From<io::Error> for LaunchError {
    fn from(errno: io::Error) -> LaunchError {
        LaunchError::System(errno)
    }
}

/// Formats the error as its sentence, because `main` prints a returned error in this form.
impl fmt::Debug for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
