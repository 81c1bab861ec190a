// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors that a person can make.

use std::fmt;

/// Exit status of a mistake that the person at the keyboard can correct.
pub(crate) const USER_STATUS: u8 = 2;

/// Exit status of anything else that went wrong in `portolan` itself.
const OTHER_STATUS: u8 = 1;

/// A mistake that the person at the keyboard can correct: the thing, the cause and the remedy.
#[derive(Debug)]
pub(crate) struct UserError {
    sentence: String,
}

impl UserError {
    /// An error from its sentence.
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

/// Returns early with a [`UserError`], formatted.
macro_rules! user_error {
    ($($arg:tt)*) => {
        return Err(crate::error::UserError::new(format!($($arg)*)).into())
    };
}
pub(crate) use user_error;

/// The exit status that tells a script whose fault it was.
pub(crate) fn exit_status(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<UserError>()) {
        USER_STATUS
    } else {
        OTHER_STATUS
    }
}
