// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan plot`: the JSON of `portolan bench` and `portolan tune` as SVG.
//!
//! Each input gives the charts that it has figures for, `STEM-CHART.svg`, so that runs at several
//! MTUs stand side by side. Nothing is computed here that is not in the input, but for the end-to-
//! end throughput, which is the size over half the round trip.

mod chart;
mod pick;

use crate::error::{UserError, user_error};
use crate::output::outln;
use anyhow::{Context, Result};
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
/// A file is not what `bench` or `tune` writes, holds nothing to draw, or a chart cannot be written.
pub(crate) fn run(args: &PlotArgs) -> Result<ExitCode> {
    fs::create_dir_all(&args.out).map_err(|error| {
        let out = args.out.display();
        UserError::new(format!(
            "the directory {out} cannot be made ({error}): name another --out"
        ))
    })?;
    for file in &args.files {
        let stem = file
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let charts = charts(file)?;
        if charts.is_empty() {
            user_error!(
                "{} holds nothing to draw: a line needs two sizes, bars need a row of stream, \
                 loaded or incast",
                file.display()
            );
        }
        for (name, svg) in charts {
            let path = args.out.join(format!("{stem}-{name}.svg"));
            fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
            outln!("{}", path.display())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Names and contents of what can be drawn of a file.
fn charts(file: &Path) -> Result<Vec<(&'static str, String)>> {
    let shown = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            user_error!("{shown} cannot be read ({error}): name a file that --json wrote")
        }
    };
    let Ok(json) = serde_json::from_str::<Value>(&text) else {
        user_error!(
            "{shown} is not JSON: name a file that --json of `portolan bench` or `tune` wrote"
        );
    };
    let Some(picked) = pick::pick(&json) else {
        user_error!(
            "{shown} is JSON, but not of `portolan bench` or `portolan tune`: it has neither \
             results nor rows"
        );
    };
    let lines = picked
        .lines
        .into_iter()
        .map(|(name, lines)| Ok((name, lines.svg()?)));
    let bars = picked
        .bars
        .into_iter()
        .map(|(name, bars)| Ok((name, bars.svg()?)));
    lines.chain(bars).collect()
}

#[cfg(test)]
mod tests;
