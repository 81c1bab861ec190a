// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output of the commands: what cannot be written is an error like any other, and a reader
//! who has seen enough (`portolan doctor | head`) is none.

use crate::error::UserError;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// What a shell calls the end of a program whose reader has gone: 128 and the number of SIGPIPE.
pub(crate) const CLOSED_STATUS: u8 = 141;

/// Why standard output takes nothing any more: the thing, the cause and the remedy.
#[derive(Debug)]
pub(crate) struct Unwritten(pub(crate) io::Error);

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

/// Refuses a file that cannot be written, before minutes are spent on what it is to hold. Leaves it
/// as it is.
///
/// # Errors
/// A [`UserError`] that names it.
pub(crate) fn check_file(file: Option<&Path>) -> Result<()> {
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        return Ok(());
    };
    let is_new = !path.exists();
    let opened = File::options().create(true).append(true).open(path);
    if opened.is_ok() && is_new {
        // It stays empty at worst.
        let _ = fs::remove_file(path);
    }
    opened.map(drop).map_err(|error| unwritable(path, &error))
}

/// Prints `table`, and writes `report` as JSON to `file`, if there is one. `-` is standard output,
/// and the table goes to standard error then.
///
/// # Errors
/// As [`check_file`], and those of [`write()`].
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
/// As [`check_file`], and those of [`write()`].
pub(crate) fn write_json(report: &impl Serialize, path: &Path) -> Result<()> {
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    if path.as_os_str() == "-" {
        return out!("{json}");
    }
    fs::write(path, json).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> anyhow::Error {
    let path = path.display();
    UserError::new(format!(
        "the results cannot be written to {path} ({error}): name another --json"
    ))
    .into()
}
