// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes of a program are told by an environment variable.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// The variable that holds a [`Request`].
pub const VARIABLE: &str = "PORTOLAN_PROFILE";

/// Where records go, and how much each holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Events that each process keeps at most, of 40 bytes; 0 for none.
    pub events: u64,
    /// The directory, which all hosts of the program share.
    pub directory: PathBuf,
}

/// A value of [`VARIABLE`] that is no request.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{VARIABLE}={value}: EVENTS:DIRECTORY is expected; unset it, `portolan profile` sets it")]
pub struct BadRequest {
    value: String,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.events, self.directory.display())
    }
}

impl FromStr for Request {
    type Err = BadRequest;

    fn from_str(value: &str) -> Result<Request, BadRequest> {
        let parse = || {
            let (events, directory) = value.split_once(':')?;
            let events = events.parse().ok()?;
            let directory = PathBuf::from(directory);
            directory
                .is_absolute()
                .then_some(Request { events, directory })
        };
        parse().ok_or_else(|| BadRequest {
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request {
            events: 1000,
            directory: PathBuf::from("/tmp/a:b"),
        };
        assert_eq!(request.to_string().parse(), Ok(request));
        for bad in ["", "1000", "/tmp", "x:/tmp", "5:tmp", "-1:/tmp"] {
            let told = bad.parse::<Request>().unwrap_err().to_string();
            assert!(told.contains(bad) && told.contains("unset it"), "{told}");
        }
    }
}
