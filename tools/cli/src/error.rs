// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors caused by user mistakes.

use std::fmt;

/// Exit status for a mistake that the user can correct.
pub(crate) const USER_STATUS: u8 = 2;

/// Exit status for every other failure of `portolan` itself.
const OTHER_STATUS: u8 = 1;

/// A mistake that the user can correct, described by object, cause and remedy.
#[derive(Debug)]
pub(crate) struct UserError {
    sentence: String,
}

impl UserError {
    /// Creates an error with the given sentence.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        UserError {
            sentence: sentence.into(),
        }
    }
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for UserError {}

/// Returns early with a formatted [`UserError`].
macro_rules! user_error {
    ($($arg:tt)*) => {
        return Err(crate::error::UserError::new(format!($($arg)*)).into())
    };
}
pub(crate) use user_error;

/// Returns the exit status for `error`; scripts can distinguish user mistakes from other failures.
pub(crate) fn exit_status(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<UserError>()) {
        USER_STATUS
    } else {
        OTHER_STATUS
    }
}
