// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program: arguments, the network, and the exit status.
//!
//! Exit status 2 reports a mistake that the user can correct. Exit status 1 reports a failed job or
//! a wrong result.

mod args;
mod node;

use anyhow::{Context, Result};
use args::{Args, Task};
use clap::Parser;
use heat::job::{Options, Outcome};
use heat::{HeatError, job, picture, sample};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Args::parse().task() {
        Task::MakeInput {
            width,
            height,
            path,
        } => sample::field(width, height)
            .and_then(|f| picture::write_pgm(&path, &f))
            .map_err(Into::into),
        Task::Solve { options, paths } => solve(&options, paths),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heat: {error:#}");
            ExitCode::from(if error.is::<HeatError>() { 2 } else { 1 })
        }
    }
}

fn solve(options: &Options, paths: bool) -> Result<()> {
    let node = portolan::Node::join().context("cannot join the job")?;
    let mut comm = node::NodeComm::new(node)?;
    if let Outcome::Finished(report) = job::run(&mut comm, options)? {
        println!("{report}");
    }
    if paths {
        print!("{}", comm.paths());
    }
    Ok(())
}
