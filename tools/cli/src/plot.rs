// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan plot`: the JSON of `portolan bench`, `tune` and `profile` and `scripts/cast-figures.sh` as SVG.
//!
//! Each input gives the charts that it has figures for, `STEM-CHART.svg`, so that runs at several
//! MTUs stand side by side. A file that is unreadable is named, and the others are drawn.

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
    /// Results, as `--json` left them.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory for the charts; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Draws, and prints the name of each chart.
///
/// # Errors
/// No file is what `bench` or `tune` writes, or a chart cannot be written.
pub(crate) fn run(args: &PlotArgs) -> Result<ExitCode> {
    fs::create_dir_all(&args.out).map_err(|error| {
        let out = args.out.display();
        UserError::new(format!(
            "the directory {out} cannot be made ({error}): name another --out"
        ))
    })?;
    each(&args.files, |file| {
        let stem = file
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        for (name, svg) in charts(file)? {
            // `latency.json` gives `latency.svg`.
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

/// Does `work` with each of `files`. What is wrong with one is said in a sentence, and the others
/// go on; the exit status tells it.
///
/// # Errors
/// What is wrong with the only file.
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

/// Names and contents of what can be drawn of a file.
fn charts(file: &Path) -> Result<Vec<(&'static str, String)>> {
    let figures = figures(file)?;
    if figures.is_empty() {
        user_error!(
            "{} holds nothing to draw: a line needs two sizes, bars need a row of rate, stream, \
             loaded or incast, a profile needs processes",
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
            "{} is JSON, but not of `portolan bench`, `tune`, `profile` or `report npb`: it has neither \
             results nor rows nor casts nor worlds nor runs",
            file.display()
        ),
    }
}

/// What `file` holds.
///
/// # Errors
/// A sentence that names it, and what to do.
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
