// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan doctor`: what this machine offers, which path a job would use, and what to change.
//!
//! It tests features instead of trusting version numbers or flags. Links are opened as a job opens
//! them, and a second process tries to read the memory of this one. It changes nothing. It sends
//! only between the two hosts of `--between`.

mod advice;
mod between;
mod host;
mod nic;
mod print;
mod probe;

use crate::mpi;
use crate::output::{out, outln};
use anyhow::Result;
use portolan::binding::launch::Job;
pub(crate) use print::outcome;
use serde::Serialize;
use std::process::ExitCode;

/// Show what this machine offers, which path a job would use and why, and what to change.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Show instead which libfabric provider each installed MPI would use now, and why.
    #[arg(long)]
    mpi: bool,
    #[command(flatten)]
    between: between::BetweenArgs,
    /// Query the first usable of these libfabric libraries; for internal use.
    #[arg(long, hide = true, num_args = 1.., value_name = "LIBRARY")]
    ask_libfabric: Vec<String>,
    /// Run as the second process of a probe; for internal use.
    #[arg(long, hide = true)]
    probe: Option<probe::Probe>,
}

/// Version of the JSON form of a [`Report`].
const SCHEMA: u32 = 1;

/// All results of the examination.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: u32,
    version: &'static str,
    machine: host::Machine,
    privileges: host::Privileges,
    features: probe::Features,
    limits: host::Limits,
    nics: Vec<nic::Nic>,
    paths: Vec<PathReport>,
    advice: Vec<advice::Advice>,
}

/// Links that a job would use between some processes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct PathReport {
    /// Description of the processes.
    between: String,
    /// Name of the path; `None` if none works.
    path: Option<&'static str>,
    /// Reason for the choice.
    why: String,
}

/// Result of a test of one feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Set if the feature works.
    pub(crate) works: bool,
    /// Error of the system if it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why_not: Option<String>,
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Finding {
    fn from(result: Result<T, E>) -> Finding {
        Finding {
            works: result.is_ok(),
            why_not: result.err().map(|error| error.to_string()),
        }
    }
}

/// Examines the machine and prints the report.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if let Some(probe) = &args.probe {
        return Ok(probe.run());
    }
    if !args.ask_libfabric.is_empty() {
        return Ok(mpi::report::run_query(&args.ask_libfabric));
    }
    if args.mpi {
        return mpi::report::main(args.json);
    }
    if let Some(code) = between::main(&args.between, args.json)? {
        return Ok(code);
    }
    let report = examine();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", print::text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Examines the machine.
pub(crate) fn examine() -> Report {
    let features = probe::features();
    let nics = nic::all();
    let mut report = Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        machine: host::machine(),
        privileges: host::privileges(),
        paths: paths(&features, &nics),
        features,
        limits: host::limits(),
        nics,
        advice: Vec::new(),
    };
    report.advice = advice::of(&report);
    report
}

impl Report {
    /// Returns the links that open here, and the reason for each other link.
    pub(crate) fn links(&self) -> Vec<(&'static str, Finding)> {
        let nics = || self.nics.iter();
        let best = |find: fn(&nic::Nic) -> &Finding| {
            let findings = || nics().map(find);
            findings()
                .find(|finding| finding.works)
                .or(findings().next())
                .cloned()
        };
        let none = || Finding {
            works: false,
            why_not: Some("there is no interface".into()),
        };
        let xdp = match nics().any(|nic| nic.ethernet) {
            true => self.features.xdp_socket.clone(),
            false => none(),
        };
        vec![
            ("shm", self.features.shm.clone()),
            ("udp", best(|nic| &nic.udp).unwrap_or_else(none)),
            ("packet", best(|nic| &nic.packet).unwrap_or_else(none)),
            ("xdp", xdp),
            (
                "stream",
                stream_exclusion().unwrap_or_else(|| best(|nic| &nic.stream).unwrap_or_else(none)),
            ),
        ]
    }
}

/// Returns the reason if settings of this environment exclude streams.
fn stream_exclusion() -> Option<Finding> {
    let excluder = portolan::binding::settings::stream_excluder(|setting| setting.from_env())?;
    Some(Finding {
        works: false,
        why_not: Some(format!("excluded by {}", excluder.variable)),
    })
}

fn paths(features: &probe::Features, nics: &[nic::Nic]) -> Vec<PathReport> {
    let usable = nics.iter().filter(|nic| nic.running && !nic.loopback);
    std::iter::once(same_host(features))
        .chain(usable.map(over))
        .chain(over_two())
        .collect()
}

/// Returns the use of two networks by a job with the settings of this environment.
fn over_two() -> Option<PathReport> {
    let job = Job::alone([0; 16], [0; 32]);
    let [first, second] = portolan::binding::two_networks(&job).ok()??;
    Some(PathReport {
        between: format!("this host and others on both {first} and {second}"),
        path: Some("udp+udp2"),
        why:
            "both networks share long messages, and small ones take the faster; choose with network"
                .to_owned(),
    })
}

fn same_host(features: &probe::Features) -> PathReport {
    let between = "processes of this host".to_owned();
    if let Some(why_not) = &features.shm.why_not {
        let why = format!("shared memory does not work: {why_not}");
        return PathReport {
            between,
            path: Some("udp"),
            why,
        };
    }
    let why = match &features.pull.why_not {
        None => "shared memory works, and large messages take one copy".to_owned(),
        Some(why_not) => format!("shared memory works; large messages take two copies: {why_not}"),
    };
    PathReport {
        between,
        path: Some("shm"),
        why,
    }
}

fn over(nic: &nic::Nic) -> PathReport {
    let between = format!("this host and others on {}", nic.name);
    let bulk = if nic.udp_segments > 1 {
        format!("udp sends up to {} datagrams per call", nic.udp_segments)
    } else {
        "the kernel has no segmentation offload for udp".to_owned()
    };
    let (path, why) = match (&nic.packet.why_not, &nic.udp.why_not) {
        (None, None) => (
            Some("packet+udp"),
            format!("raw Ethernet for small messages on one Ethernet, udp for bulk; {bulk}"),
        ),
        (Some(packet), None) => (Some("udp"), format!("{bulk}; no raw Ethernet: {packet}")),
        (None, Some(udp)) => (Some("packet"), format!("no udp: {udp}")),
        (Some(packet), Some(udp)) => (None, format!("no udp: {udp}; no raw Ethernet: {packet}")),
    };
    PathReport { between, path, why }
}

#[cfg(test)]
mod tests;
