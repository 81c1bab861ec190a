// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan tune`: measures this machine's paths, fits the pipeline model of [`portolan::binding::model`],
//! stores it, and reports its accuracy.
//!
//! One job of two ranks per path measures everything, round after round (`measure`), so that
//! disturbances affect all compared values alike. `fit` converts times to costs, `build` converts
//! costs to a model, `choose` derives decisions, and `report` creates the tables and the JSON.
//! Lengths halfway between the fitted ones are measured, too; the reported error is for them.

mod build;
mod choose;
mod fit;
mod measure;
mod points;
mod report;
mod table;

pub(crate) use measure::{WorkerArgs, work};

use crate::error::{UserError, user_error};
use crate::launcher::LocalLauncher;
use crate::output;
use anyhow::{Context, Result};
use clap::ValueEnum;
use measure::Order;
use points::Points;
use portolan::binding::model::{self, Host, Model, SCHEMA};
use portolan_bench::{Job, LabOrder, Launcher, Path, Site, SiteKind, parse_seconds, pick_cores};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Options of `portolan tune`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// Paths to measure.
    #[arg(
        long = "path",
        value_enum,
        value_delimiter = ',',
        default_value = "all"
    )]
    paths: Vec<PathName>,
    /// Fail if no lab can be created, instead of measuring network paths on loopback.
    #[arg(long)]
    lab: bool,
    /// Seconds of measurement for all paths together.
    #[arg(long, value_name = "S", default_value_t = 40.0, value_parser = seconds)]
    seconds: f64,
    /// MTU of the temporary lab.
    #[arg(long, value_name = "M", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mtu: u32,
    /// Write the model and the measurements as JSON to FILE; `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only measure and report; leave the stored model unchanged.
    #[arg(long)]
    no_store: bool,
}

/// A path argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PathName {
    /// Shared memory within one host.
    Shm,
    /// UDP between two hosts.
    Udp,
    /// Raw Ethernet frames between two hosts.
    Packet,
    /// All of these.
    All,
}

fn seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text, 0.01..=600.0)
}

impl TuneArgs {
    fn paths(&self) -> Vec<Path> {
        let wanted = |name| self.paths.contains(&name) || self.paths.contains(&PathName::All);
        [
            (PathName::Shm, Path::Shm),
            (PathName::Udp, Path::Udp),
            (PathName::Packet, Path::Packet),
        ]
        .into_iter()
        .filter_map(|(name, path)| wanted(name).then_some(path))
        .collect()
    }
}

/// Runs `portolan tune`. Returns exit status 1 if a path could not be measured.
///
/// # Errors
/// No path could be measured, or the results cannot be written.
pub(crate) fn run(args: &TuneArgs) -> Result<ExitCode> {
    output::check_file(args.json.as_deref())?;
    let paths = args.paths();
    if stores(args, &paths) {
        check_store()?;
    }
    let mut notes = Vec::new();
    let site = choose_site(args, &paths, &mut notes)?;
    let mtu = match site.kind {
        SiteKind::Lab | SiteKind::Hosts => site.mtu,
        // MTU of the loopback interface.
        SiteKind::Loopback => 65_536,
    };
    #[allow(clippy::cast_precision_loss, reason = "three at most")]
    let seconds = args.seconds / paths.len() as f64;
    let mut measured = Vec::new();
    for path in paths {
        match measure_path(&site, path, seconds) {
            Ok(points) => measured.push((path, points)),
            Err(error) => notes.push(format!("{path} was not measured: {error:#}")),
        }
    }
    if measured.is_empty() {
        user_error!("no path could be measured: {}", notes.join("; "));
    }
    let fitted = measured
        .iter()
        .filter_map(|(path, points)| build::path_model(*path, points, mtu));
    let mut model = Model {
        schema: SCHEMA,
        host: Host::current(),
        mtu,
        paths: fitted.collect(),
        choices: model::Choices::default(),
    };
    model.choices = choose::choices(&model, &measured);
    let complete = notes.is_empty();
    let mut report = report::Report::new(model, &measured, site.kind, notes);
    report.stored = store(args, &report.model)?;
    output::publish(&table::render(&report), &report, args.json.as_deref())?;
    Ok(ExitCode::from(u8::from(!complete)))
}

fn choose_site(args: &TuneArgs, paths: &[Path], notes: &mut Vec<String>) -> Result<Site> {
    let loopback = 65_536;
    if paths.iter().all(|path| *path == Path::Shm) {
        return Ok(Site::loopback(loopback, 2));
    }
    let lab = LabOrder {
        mtu: args.mtu,
        count: 2,
        link: None,
    };
    match LocalLauncher::default().open_lab(&lab) {
        Ok(site) => Ok(site),
        Err(error) if args.lab => Err(error.context("--lab: no lab can be created here")),
        Err(error) => {
            let why = "were measured on loopback, not on a network";
            notes.push(format!("network paths {why}: no lab: {error:#}"));
            Ok(Site::loopback(loopback, 2))
        }
    }
}

fn measure_path(site: &Site, path: Path, seconds: f64) -> Result<Points> {
    let result = tempfile::NamedTempFile::new().context("cannot create a file for the result")?;
    let order = Order {
        path,
        seconds,
        cores: pick_cores(),
        result: result.path().to_path_buf(),
    };
    let places = match path {
        Path::Shm => Site::loopback(site.mtu, 2).hosts,
        _ => site.hosts.clone(),
    };
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let program = program
        .to_str()
        .context("the path of this program is not UTF-8")?;
    let json = serde_json::to_string(&order)?;
    let command = [program, "tune-worker", "--order", &json].map(str::to_owned);
    LocalLauncher::default().run_job(&Job {
        command: &command,
        places: &places,
        server: None,
        path,
        options: BTreeMap::new(),
        by_broker: false,
        lasts: Duration::from_secs_f64(seconds),
    })?;
    let text = fs::read_to_string(result.path()).context("cannot read the result")?;
    serde_json::from_str(&text).context("rank 0 wrote no valid result")
}

/// Stores the model where jobs find it, and returns the file; a partial model is not stored.
fn store(args: &TuneArgs, model: &Model) -> Result<Option<PathBuf>> {
    let whole = model.path("udp").is_some() && model.path("shm").is_some();
    if args.no_store || !whole {
        return Ok(None);
    }
    let file = store_file()?;
    model::save(model, &file).map_err(|error| UserError::new(error.to_string()))?;
    Ok(Some(file))
}

/// Returns true if a model of `paths` is stored when all of them can be measured.
fn stores(args: &TuneArgs, paths: &[Path]) -> bool {
    !args.no_store && paths.contains(&Path::Udp) && paths.contains(&Path::Shm)
}

/// Checks that the model can be stored, before a long measurement that would otherwise be
/// discarded.
fn check_store() -> Result<()> {
    let checked = model::check_writable(&store_file()?);
    checked.map_err(|error| {
        UserError::new(format!("{error}; or only measure, with --no-store")).into()
    })
}

fn store_file() -> Result<PathBuf> {
    let file = model::default_file().ok_or(model::StoreError::NoDirectory);
    Ok(file.map_err(|error| UserError::new(format!("{error}; or only measure, with --no-store")))?)
}

#[cfg(test)]
mod tests;
