// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of MPI programs: `bench/mpi/mpibench.c` under an installed MPI, over Portolan and over the
//! MPI's own transport. Messages, windows and clock reads are the same as in the other rows.

use crate::args::{Metric, Path};
use crate::launcher::Launcher;
use crate::measure::{Pace, Pass, SHM_BATCH, Sample, sample_of};
use crate::place::Place;
use crate::spec::{Spec, window};
use crate::worker;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;

/// MPI libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mpi {
    /// Open MPI.
    #[value(name = "openmpi")]
    OpenMpi,
    /// MPICH.
    Mpich,
}

/// Transport of an MPI's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Portolan's libfabric provider.
    Portolan,
    /// The MPI's own transport: TCP between hosts, shared memory within a host.
    Own,
}

/// A run of `mpibench` by two processes.
#[derive(Clone, Debug)]
pub struct MpiJob<'a> {
    /// MPI library of the run.
    pub mpi: Mpi,
    /// Transport of the messages.
    pub carrier: Carrier,
    /// Path of Portolan's messages. With the MPI's own transport it only selects one host or two.
    pub path: Path,
    /// Hosts of the processes.
    pub places: &'a [Place],
    /// Arguments of `mpibench`.
    pub args: &'a [String],
    /// Duration of the measurement; the run may take [`crate::GRACE`] longer.
    pub lasts: Duration,
}

/// Suffix of the names of systems over Portolan.
pub(crate) const OVER_PORTOLAN: &str = "-portolan";

impl Mpi {
    /// Returns the name of its rows in the table and the JSON.
    pub(crate) fn system(self, carrier: Carrier) -> &'static str {
        match (self, carrier) {
            (Mpi::OpenMpi, Carrier::Portolan) => "openmpi-portolan",
            (Mpi::OpenMpi, Carrier::Own) => "openmpi",
            (Mpi::Mpich, Carrier::Portolan) => "mpich-portolan",
            (Mpi::Mpich, Carrier::Own) => "mpich",
        }
    }

    /// Returns true if `mpibench` measures `metric`.
    pub(crate) fn measures(metric: Metric) -> bool {
        mode(metric).is_some()
    }

    /// Returns true if programs can use `path`.
    pub(crate) fn supports(path: Path) -> bool {
        matches!(path, Path::Shm | Path::Packet | Path::Udp | Path::Auto)
    }
}

/// Returns the name of `metric` on the command line of `mpibench`.
fn mode(metric: Metric) -> Option<&'static str> {
    match metric {
        Metric::Pingpong => Some("latency"),
        Metric::Stream => Some("bw"),
        Metric::Rate => Some("rate"),
        _ => None,
    }
}

/// Runs the row and returns the measurement of its first process.
///
/// # Errors
/// The MPI is not installed or fails, or both processes would run on one host in a network row.
pub(crate) fn run(
    (mpi, carrier): (Mpi, Carrier),
    (metric, path): (Metric, Path),
    spec: &Spec,
    places: &[Place],
    launcher: &dyn Launcher,
) -> Result<Sample> {
    let is_lab = places.iter().all(|place| place.netns.is_some());
    if path != Path::Shm && !is_lab {
        bail!("an MPI uses shared memory within a host: network rows need a lab");
    }
    let times = tempfile::NamedTempFile::new().context("cannot create a file for the times")?;
    let file = times
        .path()
        .to_str()
        .context("the path of the directory for temporary files is not UTF-8")?;
    let (args, pass) = arguments(metric, path, spec, file)?;
    launcher.run_mpi(&MpiJob {
        mpi,
        carrier,
        path,
        places,
        args: &args,
        lasts: worker::lasts(spec.pace),
    })?;
    let text = fs::read_to_string(file).context("cannot read the times")?;
    let passes = text
        .lines()
        .map(|line| line.parse::<u64>().context("a time is not a number"));
    let passes = passes.collect::<Result<Vec<u64>>>()?;
    ensure!(!passes.is_empty(), "the first process wrote no times");
    sample_of(pass, &passes)
}

/// Returns the arguments of `mpibench` and the pass that it measures.
fn arguments(metric: Metric, path: Path, spec: &Spec, file: &str) -> Result<(Vec<String>, Pass)> {
    let Some(mode) = mode(metric) else {
        bail!("{metric} is not measured by MPI programs");
    };
    let batch = if path == Path::Shm { SHM_BATCH } else { 1 };
    let pass = match metric {
        Metric::Pingpong => Pass::round_trips(batch),
        _ => Pass::one_way(window(spec.size)),
    };
    let size = spec.size;
    let mut args = vec![mode.to_owned(), "-m".into(), format!("{size}:{size}")];
    match spec.pace {
        Pace::Seconds(seconds) => args.extend(["-t".into(), seconds.to_string()]),
        Pace::Iterations(count) => {
            let passes = count.div_ceil(pass.messages).max(1);
            args.extend(["-n".into(), passes.to_string()]);
        }
    }
    match metric {
        Metric::Pingpong => args.extend(["-b".into(), batch.to_string()]),
        _ => args.extend(["-w".into(), pass.messages.to_string()]),
    }
    args.extend(["-o".into(), file.to_owned()]);
    Ok((args, pass))
}
