// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of MPI programs: `bench/mpi/mpibench.c`, built once by each MPI's compiler, and run as a
//! user would, with `portolan mpirun` and `portolan lab mpirun`.

use super::child::wait;
use crate::mpi::find::{self, Kind, Wanted};
use anyhow::{Context, Result, bail};
use portolan_bench::{Carrier, GRACE, Mpi, MpiJob, Path};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SOURCE: &str = include_str!("../../../../bench/mpi/mpibench.c");

/// Programs by MPI; if an MPI is missing here, the reason.
#[derive(Debug, Default)]
pub(super) struct Programs(BTreeMap<&'static str, Result<Program, String>>);

#[derive(Debug)]
struct Program {
    directory: TempDir,
    launcher: PathBuf,
}

impl Programs {
    /// Runs `job` to its end.
    ///
    /// # Errors
    /// The MPI or its compiler is missing, or the run fails or does not end.
    pub(super) fn run(&mut self, job: &MpiJob<'_>) -> Result<()> {
        let kind = kind(job.mpi);
        let program = self.0.entry(name(kind)).or_insert_with(|| {
            // A failed build is not repeated for each row.
            build(kind).map_err(|error| format!("{error:#}"))
        });
        let program = match program {
            Ok(program) => program,
            Err(why) => bail!("{why}"),
        };
        let mut output =
            tempfile::tempfile().context("creating a file for the output of the program")?;
        let mut command = command(job, program)?;
        command.stdin(Stdio::null());
        command
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        let child = command
            .spawn()
            .context("starting this program a second time")?;
        let status = wait(child, job.lasts + GRACE)?;
        if !status.success() {
            bail!(
                "{}",
                last_line(&mut output).unwrap_or_else(|| status.to_string())
            );
        }
        Ok(())
    }
}

fn kind(mpi: Mpi) -> Kind {
    match mpi {
        Mpi::OpenMpi => Kind::OpenMpi,
        Mpi::Mpich => Kind::Mpich,
    }
}

/// Returns the name of an MPI, as in `--mpi`.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::OpenMpi => "openmpi",
        Kind::Mpich => "mpich",
        Kind::Intel => "intel",
    }
}

fn build(kind: Kind) -> Result<Program> {
    let mpi = find::choose(Some(&Wanted::Kind(kind)))?;
    let Some(compiler) = mpi.compiler() else {
        bail!(
            "there is no mpicc next to {}: install the compiler of this MPI",
            mpi.launcher.display()
        );
    };
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("mpibench.c");
    fs::write(&source, SOURCE)?;
    let mut command = Command::new(&compiler);
    command
        .args(["-std=gnu11", "-O2", "-o"])
        .arg(directory.path().join("mpibench"))
        .arg(&source);
    let built = command.stdin(Stdio::null()).output();
    let built = built.with_context(|| format!("{} does not start", compiler.display()))?;
    if !built.status.success() {
        let output = String::from_utf8_lossy(&built.stderr);
        let output = output
            .lines()
            .next()
            .unwrap_or("it printed nothing")
            .to_owned();
        bail!("{} failed to build mpibench: {output}", compiler.display());
    }
    Ok(Program {
        directory,
        launcher: mpi.launcher,
    })
}

/// Returns `portolan mpirun` or `portolan lab mpirun` with the program and its arguments.
fn command(job: &MpiJob<'_>, program: &Program) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let lab = match job.path {
        Path::Shm => None,
        _ => Some(lab_of(job)?),
    };
    match &lab {
        Some(lab) => command.args(["lab", "mpirun", "--name", lab, "-n", "2"]),
        None => command.arg("mpirun"),
    };
    command.arg("--mpi").arg(&program.launcher);
    match job.carrier {
        Carrier::Portolan => {
            command.env("PORTOLAN_PATH", job.path.to_string());
            if job.path == Path::Shm {
                // Open MPI's component leaves messages within a host to Open MPI.
                command.args(["--via", "ofi"]);
            }
        }
        Carrier::Own => {
            command.arg("--plain");
            command.envs(own_transport(job.path).iter().copied());
        }
    }
    // A benchmark in a lab runs as root.
    command.envs([
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ]);
    if lab.is_none() {
        command.args(["-n", "2"]);
    }
    command
        .arg(program.directory.path().join("mpibench"))
        .args(job.args);
    Ok(command)
}

/// Returns settings that make an MPI use its own best transport. Without them:
/// - Open MPI would use a network of another libfabric provider;
/// - UCX, which MPICH may use, would find the memory that the hosts of a lab share;
/// - libfabric may have several providers for a network.
pub(crate) fn own_transport(path: Path) -> &'static [(&'static str, &'static str)] {
    match path {
        // Open MPI 5 has renamed vader to sm, and still accepts the old name.
        Path::Shm => &[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "vader,self")],
        _ => &[
            ("OMPI_MCA_pml", "ob1"),
            ("OMPI_MCA_btl", "tcp,self"),
            ("UCX_TLS", "tcp,self"),
            ("FI_PROVIDER", "tcp"),
        ],
    }
}

/// Returns the lab of the places. Their names are the lab's name, `-h` and a number.
fn lab_of(job: &MpiJob<'_>) -> Result<String> {
    let namespace = job.places.first().and_then(|place| place.netns.as_deref());
    let lab = namespace.and_then(|name| name.rsplit_once("-h"));
    let (lab, _) = lab.context("measurements between hosts need a lab")?;
    Ok(lab.to_owned())
}

fn last_line(output: &mut File) -> Option<String> {
    let mut text = String::new();
    output.rewind().ok()?;
    output.read_to_string(&mut text).ok()?;
    let is_message = |line: &&str| line.contains("portolan:") || line.contains("mpibench:");
    // The first line shows the command, if it was started.
    let line = text.lines().skip(1).filter(is_message).last();
    let has_text = |line: &&str| line.contains(char::is_alphanumeric);
    let line = line.or_else(|| text.lines().rfind(has_text));
    line.map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
}
