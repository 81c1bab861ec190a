// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan bench`: the measurements of [`portolan_bench`], run in this command's labs and jobs.

mod serve;

use crate::error::{UserError, user_error};
use crate::lab::link::Link;
use crate::launcher::LocalLauncher;
use crate::output::{self, out};
use anyhow::Result;
use portolan_bench::{Action, BenchArgs, Report};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs `portolan bench`. Returns exit status 1 if a row of Portolan itself is missing.
///
/// # Errors
/// The request is invalid, or the results cannot be written.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    if let Some(Action::Compare { before, after }) = &args.action {
        let changes = portolan_bench::changes(&read_report(before)?, &read_report(after)?);
        out!("{changes}")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.check()
        .map_err(|error| UserError::new(error.to_string()))?;
    if let Some(link) = &args.link {
        link.parse::<Link>().map_err(UserError::new)?;
    }
    if args.is_server() {
        serve::run(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let earlier = args.resume.as_deref().map(read_report).transpose()?;
    let json = args.json.as_deref().or(args.resume.as_deref());
    output::check_file(json)?;
    let launcher = LocalLauncher::default();
    launcher.catch_interrupts()?;
    let outcome = portolan_bench::run(args, &launcher, earlier.as_ref())
        .map_err(|error| UserError::new(error.to_string()))?;
    let table = portolan_bench::render(&outcome.report);
    output::publish(&table, &outcome.report, json)?;
    if let Some(file) = &args.history {
        append_history(file, &outcome.report)?;
    }
    Ok(ExitCode::from(u8::from(!outcome.complete)))
}

/// Reads the JSON of an earlier run of `portolan bench`.
///
/// # Errors
/// An error message that names the file and the remedy.
pub(crate) fn read_report(file: &Path) -> Result<Report> {
    let shown = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            user_error!("{shown} cannot be read ({error}): name a file that --json wrote")
        }
    };
    match serde_json::from_str(&text) {
        Ok(report) => Ok(report),
        Err(error) => user_error!(
            "{shown} is not a result of `portolan bench` ({error}): name a file that its --json wrote"
        ),
    }
}

/// Appends the medians of `report` to the history in `file`.
fn append_history(file: &Path, report: &Report) -> Result<()> {
    let line = portolan_bench::history_line(report)? + "\n";
    let opened = File::options().create(true).append(true).open(file);
    match opened.and_then(|mut history| history.write_all(line.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) => user_error!(
            "the history {} cannot be written ({error}): name another --history file",
            file.display()
        ),
    }
}
