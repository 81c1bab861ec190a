// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan doctor --between A B`: tests what passes between two hosts in each direction, and
//! prints the commands that repair it.
//!
//! A process on each host opens sockets at the addresses that a job would use, in the same order.
//! It sends from each of its addresses to each address of the other. The launcher of `run` starts
//! both processes and exchanges their addresses. Neither host is changed.

mod print;
mod report;
mod results;
mod sockets;
mod tcp;
mod verdict;
mod worker;

use crate::error::user_error;
use crate::lab::Lab;
use crate::output::{out, outln};
use crate::run::hosts::{self, Host, MapBy, Place};
use crate::run::{self, AgentOptions, OWN_PROGRAM, Options, Workload, command};
use anyhow::{Context, Result};
use portolan::PathChoice;
use report::HostReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use verdict::{Between, Finding, Reach};

/// Arguments of `--between`.
#[derive(clap::Args)]
pub(super) struct BetweenArgs {
    /// Test what passes between two hosts in each direction, and print commands that repair it. The
    /// hosts are reached by ssh without a password, or belong to --lab.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "mpi")]
    between: Vec<String>,
    /// Lab that contains the two hosts.
    #[arg(long, value_name = "NAME", requires = "between")]
    lab: Option<String>,
    /// A setting of the tested job, such as network=eth1 or ports=20000-20100.
    #[arg(
        long = "option",
        short = 'o',
        value_name = "NAME=VALUE",
        requires = "between"
    )]
    option: Vec<String>,
    /// Path of portolan on hosts reached by ssh [default: this program's path, or else the first in
    /// PATH there].
    #[arg(long, value_name = "PATH")]
    remote_program: Option<String>,
    /// Run as the process on one of the hosts; for internal use.
    #[arg(long, hide = true)]
    between_worker: bool,
}

/// Option that makes the command the process on one of the hosts.
const WORKER: &str = "--between-worker";

/// Prefix of each process's report line.
const REPORT_PREFIX: &str = "portolan-between ";

/// Longest total time: ssh may take 10 s to connect, probing takes 5 s; the rest is for busy hosts.
const LIMIT: Duration = Duration::from_secs(55);

/// Time for the other process to end after one has failed.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the test; `None` if the arguments do not request it.
pub(super) fn main(args: &BetweenArgs, json: bool) -> Result<Option<ExitCode>> {
    if args.between_worker {
        let report = worker::run()?;
        outln!("{REPORT_PREFIX}{}", serde_json::to_string(&report)?)?;
        return Ok(Some(ExitCode::SUCCESS));
    }
    if args.between.is_empty() {
        return Ok(None);
    }
    let outcome = run::execute(&options(args)?)?;
    if let Some(failure) = outcome.failure {
        user_error!("{failure}");
    }
    let [a, b] = [0, 1].map(|rank| report_of(rank, &outcome.captured));
    let (a, b) = (a?, b?);
    let between = Between { hosts: [&a, &b] };
    let (reach, findings) = between.verdict();
    match json {
        true => outln!(
            "{}",
            serde_json::to_string_pretty(&json_of(&between, reach, &findings))?
        )?,
        false => out!("{}", print::text(&between, reach, &findings))?,
    }
    Ok(Some(match reach {
        Reach::Nothing => ExitCode::FAILURE,
        Reach::Udp | Reach::Raw => ExitCode::SUCCESS,
    }))
}

/// The report as JSON.
#[derive(Serialize)]
struct Report<'a> {
    hosts: [&'a HostReport; 2],
    reach: Reach,
    findings: &'a [Finding],
}

fn json_of<'a>(between: &Between<'a>, reach: Reach, findings: &'a [Finding]) -> Report<'a> {
    let hosts = between.hosts;
    Report {
        hosts,
        reach,
        findings,
    }
}

/// Returns what the process of `rank` reported.
fn report_of(rank: u32, captured: &[(u32, Vec<u8>)]) -> Result<HostReport> {
    let mut lines = captured.iter().filter(|(of, _)| *of == rank);
    let line = lines.find_map(|(_, line)| line.strip_prefix(REPORT_PREFIX.as_bytes()));
    let line = line.context("a process ended without a report")?;
    serde_json::from_slice(line).context("reading a report")
}

fn options(args: &BetweenArgs) -> Result<Options> {
    let settings = args.option.iter().map(|text| command::setting(text));
    let settings: BTreeMap<String, String> = settings.collect::<Result<_>>()?;
    let environment = command::environment(&[])?;
    command::check_settings(&settings, &environment, 2)?;
    Ok(Options {
        rank_count: 2,
        hosts: places(args)?,
        map_by: MapBy::Slot,
        tag_output: false,
        capture: true,
        grace: GRACE,
        on_failure: run::OnFailure::End,
        limit: Some(LIMIT),
        workload: Workload {
            path: PathChoice::Auto,
            options: settings,
            environment,
            // This directory exists on every host.
            directory: "/".to_owned(),
            program: OWN_PROGRAM.to_owned(),
            args: ["doctor", WORKER].map(str::to_owned).to_vec(),
        },
        agent: AgentOptions {
            remote_program: run::RemoteProgram::new(args.remote_program.as_ref())?,
            connection: None,
        },
    })
}

fn places(args: &BetweenArgs) -> Result<Vec<Host>> {
    let names = &args.between;
    if names[0] == names[1] {
        user_error!(
            "--between needs two different hosts, not {} twice",
            names[0]
        );
    }
    let Some(lab) = &args.lab else {
        return names.iter().map(|name| hosts::named(name)).collect();
    };
    let lab = Lab::find(lab)?;
    let place = |name: &String| {
        let index = lab.host_index(name)?;
        let namespace = lab.namespace(index);
        Ok(Host {
            name: namespace.clone(),
            slots: 1,
            place: Place::Namespace(namespace, lab.cores(index)),
        })
    };
    names.iter().map(place).collect()
}
