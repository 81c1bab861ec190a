// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan predict`: how long a program that was profiled would take on other networks.

mod networks;
mod table;

use crate::error::user_error;
use crate::output::{check_file, publish};
use anyhow::Result;
use portolan_predict::{Prediction, Replayer, smallest_sufficient};
use portolan_profile::Run;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// What the JSON says that it is; the number changes with its shape.
const FORMAT: &str = "portolan-predict-1";

/// Options of `portolan predict`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Records that `portolan profile --events N --keep DIR` left.
    #[arg(value_name = "DIR")]
    profile: PathBuf,
    /// Networks of this machine, as `portolan bench logp --json FILE` measured them; several may be given.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Also the measured ones over a wire of so many gigabits a second, such as 0.1,1,10,25,100.
    #[arg(long = "wire", value_name = "GBPS", value_delimiter = ',', value_parser = gigabits, requires = "measured")]
    wires: Vec<f64>,
    /// A network, or a list of them, as JSON; several may be given. Cheaper ones first.
    #[arg(long = "network", value_name = "FILE")]
    networks: Vec<PathBuf>,
    /// The networks of the evaluation of VIA under the NAS Parallel Benchmarks, too; the default if
    /// no other is named.
    #[arg(long)]
    paper: bool,
    /// Numbers of hosts; processes are on them in blocks [default: one for each process].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Vec<u32>,
    /// Write the result as JSON, too; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn gigabits(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| "write gigabits a second, such as 0.1 or 10".to_owned())
}

/// One program on all networks.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Forecast {
    /// Its file.
    program: String,
    processes: usize,
    /// From the end of MPI_Init to MPI_Finalize when it was profiled, of the longest process.
    profiled_s: f64,
    /// Outside of MPI, of all processes.
    computing_s: f64,
    predictions: Vec<Prediction>,
    /// The first network that takes at most 5 % longer than the best, on the most hosts.
    smallest: Option<String>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Output {
    format: &'static str,
    programs: Vec<Forecast>,
}

/// Predicts and tells.
///
/// # Errors
/// There is nothing to predict from, a network makes no sense, or the result cannot be written.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    check_file(args.json.as_deref())?;
    let networks = networks::collect(args)?;
    let (runs, notes) = match portolan_profile::read_runs(&args.profile) {
        Ok(read) => read,
        Err(error) => user_error!("{error}"),
    };
    for note in &notes {
        eprintln!("portolan: {note}");
    }
    if runs.is_empty() {
        user_error!(
            "there is no record of an MPI program in {}: name a directory that `portolan profile --events N \
             --keep DIR` left",
            args.profile.display()
        );
    }
    let programs = runs.iter().map(|run| forecast(run, args, &networks));
    let programs = programs.collect::<Result<Vec<Forecast>>>()?;
    let output = Output {
        format: FORMAT,
        programs,
    };
    publish(
        &table::render(&output.programs),
        &output,
        args.json.as_deref(),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn forecast(run: &Run, args: &Args, networks: &networks::Networks) -> Result<Forecast> {
    let told = |error| format!("{}: {error}", run.program);
    let replayer = match Replayer::new(&run.trace) {
        Ok(replayer) => replayer,
        Err(error) => user_error!("{}", told(error)),
    };
    let count = replayer.process_count();
    let mut hosts: Vec<usize> = args.hosts.iter().map(|hosts| *hosts as usize).collect();
    if hosts.is_empty() {
        hosts.push(count);
    }
    let mut notes = run.notes.clone();
    let unmatched = replayer.unmatched_count();
    if unmatched > 0 {
        notes.push(format!(
            "{unmatched} messages have no other end in the trace; they are taken as met"
        ));
    }
    let mut predictions = Vec::new();
    for network in &networks.between {
        for hosts in &hosts {
            match replayer.predict(network, &networks.within, *hosts) {
                Ok(prediction) => predictions.push(prediction),
                Err(error) => notes.push(format!("{}: {error}", network.name)),
            }
        }
    }
    let most = predictions.iter().map(|one| one.hosts).max();
    let on_most: Vec<Prediction> = predictions
        .iter()
        .filter(|one| Some(one.hosts) == most)
        .cloned()
        .collect();
    Ok(Forecast {
        program: run.program.clone(),
        processes: count,
        profiled_s: run.seconds,
        computing_s: replayer.computing_s().iter().sum(),
        smallest: smallest_sufficient(&on_most).map(|one| one.network.clone()),
        predictions,
        notes,
    })
}
