// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan plot`: draws the JSON of `portolan bench`, `tune`, `profile` and
//! `scripts/cast-figures.sh` as SVG.
//!
//! Each input produces the charts that it has figures for, `STEM-CHART.svg`, so that charts of
//! several MTUs can be compared. An unreadable file is reported, and the other files are drawn.

use crate::error::{UserError, user_error};
use crate::output::outln;
use anyhow::{Context, Result};
use portolan_report::{Figure, Place};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `portolan plot`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlotArgs {
    /// Results, as written by `--json`.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory for the charts; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Draws the charts, and prints the name of each.
///
/// # Errors
/// No file contains results, or a chart cannot be written.
pub(crate) fn run(args: &PlotArgs) -> Result<ExitCode> {
    fs::create_dir_all(&args.out).map_err(|error| {
        let out = args.out.display();
        UserError::new(format!(
            "the directory {out} cannot be created ({error}): name another --out directory"
        ))
    })?;
    each(&args.files, |file| {
        let stem = file
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        for (name, svg) in charts(file)? {
            // `latency.json` produces `latency.svg`.
            let name = if stem == name {
                stem.clone()
            } else {
                format!("{stem}-{name}")
            };
            let path = args.out.join(format!("{name}.svg"));
            fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
            outln!("{}", path.display())?;
        }
        Ok(())
    })
}

/// Calls `work` for each of `files`. If one of several fails, its error is printed and the other
/// files are processed; the exit status reports the failure.
///
/// # Errors
/// The error of the only file.
pub(crate) fn each(
    files: &[PathBuf],
    mut work: impl FnMut(&Path) -> Result<()>,
) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for file in files {
        match work(file) {
            Err(error) if files.len() > 1 && error.is::<UserError>() => {
                eprintln!("portolan: {error:#}");
                status = ExitCode::from(crate::error::USER_STATUS);
            }
            worked => worked?,
        }
    }
    Ok(status)
}

/// Returns the names and contents of the charts of a file.
fn charts(file: &Path) -> Result<Vec<(&'static str, String)>> {
    let figures = figures(file)?;
    if figures.is_empty() {
        user_error!(
            "{} has nothing to draw: a line needs two sizes, bars need a row of rate, stream, \
             loaded or incast, and a profile needs processes",
            file.display()
        );
    }
    let svg = |figure: Figure| Ok((figure.name, figure.chart.svg(Place::File)?));
    figures.into_iter().map(svg).collect()
}

fn figures(file: &Path) -> Result<Vec<Figure>> {
    match portolan_report::figures(&read_json(file)?) {
        Some(figures) => Ok(figures),
        None => user_error!(
            "{} is JSON, but not of `portolan bench`, `tune`, `profile` or `report npb`: it has none of \
             the keys results, rows, casts, worlds and runs",
            file.display()
        ),
    }
}

/// Reads a JSON file.
///
/// # Errors
/// An error message that names the file and the remedy.
pub(crate) fn read_json(file: &Path) -> Result<Value> {
    let shown = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            user_error!("{shown} cannot be read ({error}): name a file that --json wrote")
        }
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(json) => Ok(json),
        Err(error) => user_error!(
            "{shown} is not JSON ({error}): name a file that --json of `portolan bench`, `tune`, `profile` \
             or `report npb` wrote"
        ),
    }
}
