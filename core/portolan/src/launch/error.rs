// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a process could not take part in its job.

use super::{FD_VARIABLE, Gone};
use crate::settings::{BadVariable, UnknownSetting};
use std::fmt;
use std::io;
use thiserror::Error;

/// Why a process could not take part in its job.
#[derive(Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An option or a variable is no setting.
    #[error(transparent)]
    UnknownSetting(#[from] UnknownSetting),
    /// A variable does not hold what it must.
    #[error(transparent)]
    BadVariable(#[from] BadVariable),
    /// The descriptor is not what an agent left for this process.
    #[error(
        "{FD_VARIABLE} names descriptor {fd}, which is not a connection to a launcher ({errno}): \
         a process joins once, and processes it starts are not part of the job; \
         unset {FD_VARIABLE} to run them as jobs of one"
    )]
    NotInherited {
        /// The number in the variable.
        fd: i32,
        /// What is wrong with it.
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
        "unexpected message from the launcher ({0}); are portolan and the program of one version?"
    )]
    Malformed(String),
    /// The launcher speaks another version.
    #[error(
        "the launcher speaks version {theirs} and this program version {ours}; \
         build the program with the portolan that starts it"
    )]
    Version {
        /// Version of this program.
        ours: u32,
        /// Version of the launcher.
        theirs: u32,
    },
    /// A launcher that is not Portolan's refused, or said what cannot be.
    #[error("joining the job through {launcher}: {what}")]
    Foreign {
        /// Which.
        launcher: &'static str,
        /// What happened, and what to do.
        what: String,
    },
    /// A rank ended before all addresses were known.
    #[error("the job cannot start: {0}")]
    Gone(Gone),
    /// The addresses have been exchanged already.
    #[error("addresses can be exchanged only once")]
    AlreadyExchanged,
}

impl From<io::Error> for LaunchError {
    fn from(errno: io::Error) -> LaunchError {
        LaunchError::System(errno)
    }
}

/// Reads as the sentence does: a program that returns the error from `main` shows it in this form.
impl fmt::Debug for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
