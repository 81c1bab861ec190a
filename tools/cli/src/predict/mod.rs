// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan predict`: the time that a profiled program would take on other networks.

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

/// Format name in the JSON; the number changes with its structure.
const FORMAT: &str = "portolan-predict-1";

/// Options of `portolan predict`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of records from `portolan profile --events N --keep DIR`.
    #[arg(value_name = "DIR")]
    profile: PathBuf,
    /// Measurements of this machine's networks by `portolan bench logp --json FILE`; repeatable.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Also predict the measured networks over a wire of this many gigabits per second, such as
    /// 0.1,1,10,25,100.
    #[arg(long = "wire", value_name = "GBPS", value_delimiter = ',', value_parser = gigabits, requires = "measured")]
    wires: Vec<f64>,
    /// A network, or a list of networks, as JSON; repeatable. Give cheaper ones first.
    #[arg(long = "network", value_name = "FILE")]
    networks: Vec<PathBuf>,
    /// Also use the networks from the evaluation of VIA with the NAS Parallel Benchmarks; this is
    /// the default if no other network is given.
    #[arg(long)]
    paper: bool,
    /// Numbers of hosts, with the processes in blocks on them [default: one host for each process].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Vec<u32>,
    /// Also write the result as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn gigabits(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| "write gigabits per second, such as 0.1 or 10".to_owned())
}

/// Predictions for one program on all networks.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Forecast {
    /// File name of the program.
    program: String,
    processes: usize,
    /// Profiled time of the longest process, from the end of MPI_Init to MPI_Finalize.
    profiled_s: f64,
    /// Time outside MPI, of all processes.
    computing_s: f64,
    predictions: Vec<Prediction>,
    /// First network with a time at most 5 % above the best, on the most hosts.
    smallest: Option<String>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Output {
    format: &'static str,
    programs: Vec<Forecast>,
}

/// Predicts the times and prints them.
///
/// # Errors
/// There is no profile, a network is invalid, or the result cannot be written.
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
             --keep DIR` wrote",
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
    let named = |error| format!("{}: {error}", run.program);
    let replayer = match Replayer::new(&run.trace) {
        Ok(replayer) => replayer,
        Err(error) => user_error!("{}", named(error)),
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
            "{unmatched} messages have no counterpart in the trace; they are treated as matched"
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
