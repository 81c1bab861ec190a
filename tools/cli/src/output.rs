// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output of the commands. A failed write is an error, except that a reader may close the
//! pipe early (`portolan doctor | head`).

use crate::error::UserError;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Exit status that a shell reports for a program killed by SIGPIPE: 128 plus the signal number.
pub(crate) const CLOSED_STATUS: u8 = 141;

/// A failed write to standard output, displayed with object, cause and remedy.
#[derive(Debug)]
pub(crate) struct WriteError(pub(crate) io::Error);

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WriteError(source) = self;
        write!(
            f,
            "standard output cannot be written ({source}): free space there, or redirect it"
        )
    }
}

impl std::error::Error for WriteError {}

/// Writes to standard output and flushes it.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn write(text: fmt::Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.flush());
    written.map_err(|error| WriteError(error).into())
}

/// Returns true if the reader of standard output has closed it.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let write_error = error.downcast_ref::<WriteError>();
    write_error.is_some_and(|WriteError(source)| source.kind() == ErrorKind::BrokenPipe)
}

/// Formats to standard output, with the result of [`write()`].
macro_rules! out {
    ($($arg:tt)*) => { crate::output::write(format_args!($($arg)*)) };
}
pub(crate) use out;

/// Formats a line to standard output, with the result of [`write()`].
macro_rules! outln {
    ($($arg:tt)*) => { crate::output::out!("{}\n", format_args!($($arg)*)) };
}
pub(crate) use outln;

/// Checks that a file can be written before a long measurement starts. Leaves the file unchanged.
///
/// # Errors
/// A [`UserError`] that names the file.
pub(crate) fn check_file(file: Option<&Path>) -> Result<()> {
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        return Ok(());
    };
    let is_new = !path.exists();
    let opened = File::options().create(true).append(true).open(path);
    if opened.is_ok() && is_new {
        // In the worst case an empty file remains.
        let _ = fs::remove_file(path);
    }
    opened.map(drop).map_err(|error| write_failed(path, &error))
}

/// Prints `table`, and writes `report` as JSON to `file` if one is given. If `file` is `-`, the
/// JSON goes to standard output and the table to standard error.
///
/// # Errors
/// The errors of [`check_file`] and [`write()`].
pub(crate) fn publish(table: &str, report: &impl Serialize, file: Option<&Path>) -> Result<()> {
    let Some(path) = file else {
        return out!("{table}");
    };
    if path.as_os_str() == "-" {
        eprint!("{table}");
    } else {
        out!("{table}")?;
    }
    write_json(report, path)
}

/// Writes `report` as JSON to `path`; `-` is standard output.
///
/// # Errors
/// The errors of [`check_file`] and [`write()`].
pub(crate) fn write_json(report: &impl Serialize, path: &Path) -> Result<()> {
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    if path.as_os_str() == "-" {
        return out!("{json}");
    }
    fs::write(path, json).map_err(|error| write_failed(path, &error))
}

fn write_failed(path: &Path, error: &io::Error) -> anyhow::Error {
    let path = path.display();
    UserError::new(format!(
        "the results cannot be written to {path} ({error}): name another --json file"
    ))
    .into()
}
