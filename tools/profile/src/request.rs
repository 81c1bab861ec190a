// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request to the processes of a program, in an environment variable.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Environment variable that holds a [`Request`].
pub const VARIABLE: &str = "PORTOLAN_PROFILE";

/// Destination and size of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Maximum number of events per process, of 40 bytes each; 0 for none.
    pub events: u64,
    /// Directory, shared by all hosts of the program.
    pub directory: PathBuf,
}

/// Invalid value of [`VARIABLE`].
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "{VARIABLE}={value}: expected EVENTS:DIRECTORY; unset it, because `portolan profile` sets it"
)]
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
    fn request_round_trips() {
        let request = Request {
            events: 1000,
            directory: PathBuf::from("/tmp/a:b"),
        };
        assert_eq!(request.to_string().parse(), Ok(request));
        for bad in ["", "1000", "/tmp", "x:/tmp", "5:tmp", "-1:/tmp"] {
            let error = bad.parse::<Request>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("unset it"), "{error}");
        }
    }
}
