// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan doctor --mpi`: the provider that each installed MPI would use, and the reason.
//!
//! A second process queries the MPI's own libfabric, because loading it runs code of all its
//! providers. This module contains the rules by which an MPI selects a provider; it runs no MPI
//! program.

use super::component::{self, Transport};
use super::find::{self, Kind, Mpi};
use super::plan::{PROVIDER, Plan};
use super::provider;
use crate::output::{out, outln};
use anyhow::{Context, Result};
use portolan_sys::libfabric;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Name of the library in all versions.
const LIBRARY: &str = "libfabric.so.1";

/// Directories of a libfabric that an MPI includes, relative to the directory of the launcher.
const BESIDE: [&str; 5] = [
    "../lib/openmpi",
    "../lib/mpich",
    "../lib",
    "../lib64",
    "../libfabric/lib",
];

/// Providers that Open MPI excludes by default (opal/mca/common/ofi/common_ofi.c). It also excludes
/// names that begin with these.
const EXCLUDED: [&str; 7] = ["shm", "sockets", "tcp", "udp", "rstream", "usnic", "net"];

/// Version and providers of a libfabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    version: String,
    pub(super) providers: Vec<String>,
}

/// Results for one MPI.
#[derive(Debug, Serialize)]
struct Report {
    mpi: String,
    launcher: PathBuf,
    /// Offer of its libfabric in the current environment.
    libfabric: Result<Offer, String>,
    now: Choice,
    /// Choice with the settings of `portolan mpirun`.
    with_portolan: Choice,
}

/// Transport of an MPI's messages.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    pub(super) by: String,
    pub(super) why: String,
}

impl Choice {
    fn new(by: impl Into<String>, why: impl Into<String>) -> Choice {
        Choice {
            by: by.into(),
            why: why.into(),
        }
    }
}

/// Prints the transport of each installed MPI.
pub(crate) fn main(json: bool) -> Result<ExitCode> {
    let reports: Vec<Report> = find::installed().iter().map(Report::of).collect();
    if json {
        outln!("{}", serde_json::to_string_pretty(&reports)?)?;
    } else if reports.is_empty() {
        outln!("no MPI was found in PATH")?;
    } else {
        out!("{}", text(&reports))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let libfabric = match &report.libfabric {
            Ok(offer) if offer.providers.is_empty() => {
                format!("{}, offers no provider that MPI can use", offer.version)
            }
            Ok(offer) => format!("{}, offers {}", offer.version, offer.providers.join(", ")),
            Err(why) => why.clone(),
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}\n  now:              {}\n    {}\n  portolan mpirun:  {}\n    {}\n  libfabric:        {}\n",
            report.mpi,
            report.now.by,
            report.now.why,
            report.with_portolan.by,
            report.with_portolan.why,
            libfabric
        );
    }
    text
}

impl Report {
    fn of(mpi: &Mpi) -> Report {
        let now = query(mpi, &[]).map_err(|error| format!("{error:#}"));
        let variable = |name: &str| std::env::var(name).ok();
        let offered = now.clone().unwrap_or_default();
        Report {
            mpi: mpi.to_string(),
            launcher: mpi.launcher.clone(),
            now: choose(mpi, &offered.providers, variable),
            with_portolan: with_portolan(mpi),
            libfabric: now,
        }
    }
}

/// Returns the choice of `mpi` among the `offered` providers, given its settings.
pub(super) fn choose(
    mpi: &Mpi,
    offered: &[String],
    variable: impl Fn(&str) -> Option<String>,
) -> Choice {
    if mpi.has_ofi() == Some(false) {
        let device = mpi.device.as_deref().unwrap_or_default();
        return Choice::new(
            "UCX",
            format!("it was built for {device}, without libfabric"),
        );
    }
    match mpi.kind {
        Kind::OpenMpi => open_mpi(offered, variable),
        Kind::Mpich => mpich(mpi, offered, variable),
        Kind::Intel => intel(offered, variable),
    }
}

fn open_mpi(offered: &[String], variable: impl Fn(&str) -> Option<String>) -> Choice {
    let usable = |name: &&String| !EXCLUDED.iter().any(|bad| name.starts_with(bad));
    let provider = offered.iter().find(usable);
    let pml = variable("OMPI_MCA_pml");
    let btls = "shared memory and TCP (ob1 with btls)";
    match (pml.as_deref(), provider) {
        (Some("cm"), Some(provider)) => Choice::new(
            provider,
            "OMPI_MCA_pml=cm selects libfabric; this is the first provider that Open MPI accepts",
        ),
        (Some("cm"), None) => Choice::new(
            "nothing",
            "OMPI_MCA_pml=cm selects libfabric, which offers no provider that Open MPI accepts: jobs fail",
        ),
        (Some(other), _) => Choice::new(other, format!("selected by OMPI_MCA_pml={other}")),
        (None, Some(provider)) => Choice::new(
            provider,
            "libfabric offers it, and Open MPI prefers providers of libfabric to its own transports",
        ),
        (None, None) => Choice::new(
            btls,
            "libfabric offers no provider that Open MPI selects by default, and OMPI_MCA_pml is not set",
        ),
    }
}

fn mpich(mpi: &Mpi, offered: &[String], variable: impl Fn(&str) -> Option<String>) -> Choice {
    let device = mpi.device.as_deref().unwrap_or("ch4:ofi");
    let first = device.split([':', ',']).nth(1).unwrap_or("ofi").to_owned();
    let (netmod, why) = match variable("MPIR_CVAR_CH4_NETMOD") {
        Some(netmod) => (netmod, "selected by MPIR_CVAR_CH4_NETMOD".to_owned()),
        None => (first, format!("it was built for {device}")),
    };
    if netmod != "ofi" {
        return Choice::new(netmod.to_uppercase(), why);
    }
    among(offered)
}

fn intel(offered: &[String], variable: impl Fn(&str) -> Option<String>) -> Choice {
    match variable("I_MPI_OFI_PROVIDER") {
        Some(name) if offered.contains(&name) => Choice::new(
            name,
            "selected by I_MPI_OFI_PROVIDER, and libfabric offers it",
        ),
        Some(name) => Choice::new(
            "nothing",
            format!("I_MPI_OFI_PROVIDER selects {name}, which libfabric does not offer: jobs fail"),
        ),
        None => among(offered),
    }
}

/// Returns the choice of an MPI without settings; certain only if a single provider is offered.
fn among(offered: &[String]) -> Choice {
    match offered {
        [] => Choice::new("nothing", "libfabric offers no provider that it can use"),
        [only] => Choice::new(only, "the only provider that libfabric offers"),
        several => Choice::new(
            format!("one of {}", several.join(", ")),
            "it rates the offered providers, and takes the first of the best",
        ),
    }
}

/// Returns the transport under `portolan mpirun`.
fn with_portolan(mpi: &Mpi) -> Choice {
    match Transport::choose(mpi, None) {
        Ok(Transport::Component(directory)) => {
            let place = directory.display();
            let why = format!("Open MPI loads {place}/{} (ob1)", component::FILE);
            return Choice::new(component::NAME, why);
        }
        Ok(Transport::Provider) => {}
        Err(error) => return Choice::new("refused", error.to_string()),
    }
    if let Err(error) = mpi.check_ofi() {
        return Choice::new("refused", error.to_string());
    }
    let directory = match provider::directory(None) {
        Ok(directory) => directory,
        Err(error) => return Choice::new("refused", error.to_string()),
    };
    let mut plan = Plan::new(mpi, Vec::new());
    plan.take_provider(mpi.kind, &directory);
    match query(mpi, plan.environment()) {
        Ok(offer) => {
            let set = |name: &str| plan.value(name).map(str::to_owned);
            let choice = choose(mpi, &offer.providers, set);
            if choice.by == PROVIDER {
                let place = directory.display();
                return Choice::new(
                    PROVIDER,
                    format!("its libfabric loads {place}/{}", provider::FILE),
                );
            }
            choice
        }
        Err(error) => Choice::new("nothing", format!("{error:#}")),
    }
}

/// Queries the libfabric of `mpi`, in a second process with `environment`.
fn query(mpi: &Mpi, environment: &[(&'static str, String)]) -> Result<Offer> {
    let own = std::env::current_exe().context("finding the file of this program")?;
    let output = Command::new(own)
        .args(["doctor", "--ask-libfabric"])
        .args(libraries(mpi))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("starting a second process")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        anyhow::bail!(
            "libfabric cannot be queried: {} {}",
            stdout.trim(),
            output.status
        );
    }
    // Providers may print, too; the result is the last line.
    serde_json::from_str(stdout.lines().last().unwrap_or_default())
        .context("reading the result of libfabric")
}

/// Runs the second process of [`query`].
pub(crate) fn run_query(libraries: &[String]) -> ExitCode {
    match libfabric::offer(libraries) {
        Ok(offer) => {
            let (major, minor) = offer.version;
            let offer = Offer {
                version: format!("{major}.{minor}"),
                providers: offer.providers,
            };
            println!("\n{}", serde_json::json!(offer));
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the libfabric that the MPI includes, if any, and that of the system.
fn libraries(mpi: &Mpi) -> Vec<String> {
    let real = mpi
        .launcher
        .canonicalize()
        .unwrap_or_else(|_| mpi.launcher.clone());
    let bins = [real.parent(), mpi.launcher.parent()];
    let own = bins.into_iter().flatten().flat_map(|bin| {
        let file = |beside: &str| bin.join(beside).join(LIBRARY);
        BESIDE.iter().map(|beside| file(beside)).collect::<Vec<_>>()
    });
    let own = own.filter(|file| file.exists());
    let mut names: Vec<String> = own
        .map(|file| file.to_string_lossy().into_owned())
        .collect();
    names.push(LIBRARY.to_owned());
    names
}
