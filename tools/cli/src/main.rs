// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `portolan` command: labs, jobs, benchmarks and diagnostics of this machine.
//!
//! Each subcommand has one module. User mistakes are reported as [`error::UserError`]: one sentence
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
mod launcher;
mod mpi;
mod orphans;
mod output;
mod pages;
mod plot;
mod predict;
mod profile;
mod program;
mod report;
mod run;
mod signals;
mod sockets;
mod top;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};
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
    /// Simulate hosts on this machine with network namespaces.
    Lab(lab::command::Args),
    /// Start a program as the processes of one job.
    Run(run::command::Args),
    /// Run an MPI program over Portolan, with the launcher of an installed MPI.
    Mpirun(mpi::Args),
    /// Count the messages of an MPI program, and show where its time goes.
    Profile(profile::Args),
    /// Predict how long a profiled program would take on other networks, and what limits it.
    Predict(predict::Args),
    /// Run a program whose TCP connections within this host use shared memory.
    Sockets(sockets::Args),
    /// Copy from this host to many hosts, at the speed of one link.
    Cast(cast::Args),
    /// Show what this machine offers, which path a job would use and why, and what to change.
    Doctor(doctor::Args),
    /// Show the processes that use Portolan on this host: their messages, paths and waits.
    Top(top::Args),
    /// Show the version of this build, and the links that it can use here.
    Info(info::Args),
    /// Open raw Ethernet sockets for users without privileges.
    Broker(broker::Args),
    /// Measure Portolan next to the machine's limits and the kernel's protocols.
    Bench(Box<portolan_bench::BenchArgs>),
    /// Draw the results of `bench`, `tune` and `profile` as SVG.
    Plot(plot::PlotArgs),
    /// Write a page from results of `bench`: Portolan's speed next to other systems and published
    /// figures.
    Report(report::ReportArgs),
    /// Measure this machine's paths, and store the model that jobs on it use.
    Tune(tune::TuneArgs),
    /// Run one end of a `tune` measurement; for internal use.
    #[command(hide = true)]
    TuneWorker(tune::WorkerArgs),
    /// Run one process of `cast`; for internal use.
    #[command(hide = true)]
    CastWorker(cast::WorkerArgs),
    /// Run one end of a `bench` measurement; for internal use.
    #[command(hide = true)]
    BenchWorker(portolan_bench::WorkerArgs),
    /// Write the manual pages and completions of this command, for installers.
    #[command(hide = true)]
    WritePages(pages::Args),
    /// Run the part of `run` that starts processes on each host; for internal use.
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
        Command::Sockets(args) => sockets::main(&args),
        Command::Cast(args) => cast::main(&args),
        Command::CastWorker(args) => cast::work(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Info(args) => info::main(&args),
        Command::Broker(args) => broker::main(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::TuneWorker(args) => tune::work(&args),
        Command::BenchWorker(args) => portolan_bench::work(&args),
        Command::WritePages(args) => pages::main(Cli::command(), &args),
        Command::Agent => agent::main(),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => ExitCode::from(output::CLOSED_STATUS),
        Err(error) => {
            // If standard error cannot be written, the exit status still reports the failure.
            let _ = writeln!(std::io::stderr(), "portolan: {error:#}");
            ExitCode::from(error::exit_status(&error))
        }
    }
}
