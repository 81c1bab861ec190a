// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan bench`: the measurements of [`portolan_bench`], with this command's labs and jobs.

use crate::error::UserError;
use crate::output;
use crate::surroundings::Surroundings;
use anyhow::Result;
use portolan_bench::BenchArgs;
use std::process::ExitCode;

/// Runs `portolan bench`. The exit status is 1 when a row of Portolan itself is missing.
///
/// # Errors
/// The request makes no sense, or the results cannot be written.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    args.check()
        .map_err(|error| UserError::new(error.to_string()))?;
    let json = args.json.as_deref();
    output::check_file(json)?;
    let outcome = portolan_bench::run(args, &Surroundings);
    let table = portolan_bench::render(&outcome.report);
    output::publish(&table, &outcome.report, json)?;
    Ok(ExitCode::from(u8::from(!outcome.complete)))
}
