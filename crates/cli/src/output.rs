// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output of the commands: what cannot be written is an error like any other, and a reader
//! who has seen enough (`portolan doctor | head`) is none.

use anyhow::Result;
use std::fmt;
use std::io::{self, ErrorKind, Write};

/// What a shell calls the end of a program whose reader has gone: 128 and the number of SIGPIPE.
pub(crate) const CLOSED_STATUS: u8 = 141;

#[derive(Debug)]
struct Unwritten(io::Error);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unwritten(source) = self;
        write!(
            f,
            "standard output cannot be written ({source}): make room there, or send it elsewhere"
        )
    }
}

impl std::error::Error for Unwritten {}

/// Writes to standard output, at once.
///
/// # Errors
/// It is closed, or full.
pub(crate) fn write(text: fmt::Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.flush());
    written.map_err(|error| Unwritten(error).into())
}

/// Nobody reads standard output any more.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let unwritten = error.downcast_ref::<Unwritten>();
    unwritten.is_some_and(|Unwritten(source)| source.kind() == ErrorKind::BrokenPipe)
}

/// Formats to standard output; the result is that of [`write()`].
macro_rules! out {
    ($($arg:tt)*) => { crate::output::write(format_args!($($arg)*)) };
}
pub(crate) use out;

/// The same, with the end of a line.
macro_rules! outln {
    ($($arg:tt)*) => { crate::output::out!("{}\n", format_args!($($arg)*)) };
}
pub(crate) use outln;
