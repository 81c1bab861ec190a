// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `portolan`: labs, starting jobs, benchmarks, and what this machine offers.
//!
//! One module a subcommand. Errors that a person can make are [`error::UserError`]: one sentence
//! with the cause and the remedy, and exit status 2.

mod agent;
mod ambient;
mod bench;
mod broker;
mod cast;
mod doctor;
mod error;
mod info;
mod lab;
mod launch_io;
mod mpi;
mod orphans;
mod output;
mod plot;
mod predict;
mod profile;
mod program;
mod report;
mod run;
mod signals;
mod surroundings;
mod tune;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Fast messages between the processes of parallel programs.
#[derive(Parser)]
#[command(name = "portolan", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hosts on one machine, made of network namespaces.
    Lab(lab::command::Args),
    /// Start a program as the processes of one job.
    Run(run::command::Args),
    /// Run an MPI program over Portolan, by the launcher of an installed MPI.
    Mpirun(mpi::Args),
    /// Count what an MPI program sends, and where its time goes.
    Profile(profile::Args),
    /// Predict how long a program that was profiled would take on other networks, and what bounds it.
    Predict(predict::Args),
    /// Copy from this host to many, at the speed of one link.
    Cast(cast::Args),
    /// What this machine offers, which path a job would use here and why, what to change.
    Doctor(doctor::Args),
    /// What this build of Portolan is, and which links it can use here.
    Info(info::Args),
    /// Lend raw Ethernet sockets to users without privilege.
    Broker(broker::Args),
    /// Measure Portolan beside the machine's limit and the kernel's protocols.
    Bench(Box<portolan_bench::BenchArgs>),
    /// Draw the results of `bench`, `tune` and `profile` as SVG.
    Plot(plot::PlotArgs),
    /// Tell results of `bench` on a page: whether Portolan is faster, and what papers printed then.
    Report(report::ReportArgs),
    /// Measure this machine's paths, and store the model that jobs here decide by.
    Tune(tune::TuneArgs),
    /// One end of what `tune` measures; not for people.
    #[command(hide = true)]
    TuneWorker(tune::WorkerArgs),
    /// One process of `cast`; not for people.
    #[command(hide = true)]
    CastWorker(cast::WorkerArgs),
    /// One end of what `bench` measures; not for people.
    #[command(hide = true)]
    BenchWorker(portolan_bench::WorkerArgs),
    /// The part of `run` on each host; not for people.
    #[command(hide = true)]
    Agent,
}

fn main() -> ExitCode {
    env_logger::init();
    let result = match Cli::parse().command {
        Command::Lab(args) => lab::command::main(args),
        Command::Run(args) => run::command::main(args),
        Command::Mpirun(args) => mpi::main(args),
        Command::Profile(args) => profile::main(&args),
        Command::Predict(args) => predict::main(&args),
        Command::Cast(args) => cast::main(&args),
        Command::CastWorker(args) => cast::work(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Info(args) => info::main(&args),
        Command::Broker(args) => broker::main(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::TuneWorker(args) => tune::work(&args),
        Command::BenchWorker(args) => portolan_bench::work(&args),
        Command::Agent => agent::main(),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => ExitCode::from(output::CLOSED_STATUS),
        Err(error) => {
            // Where nobody hears of it, the exit status still says it.
            let _ = writeln!(std::io::stderr(), "portolan: {error:#}");
            ExitCode::from(error::exit_status(&error))
        }
    }
}
