// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds installed MPIs: their launchers in PATH, identified by `--version`.

use crate::error::{UserError, user_error};
use crate::program;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

/// Names of launchers. If several MPIs are installed, Debian gives each its own name.
const LAUNCHERS: [&str; 6] = [
    "mpirun",
    "mpiexec",
    "mpirun.openmpi",
    "mpirun.mpich",
    "mpiexec.hydra",
    "orterun",
];

/// Prefixes of the names of launchers.
const COMMANDS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];

/// A family of MPIs with the same launcher and settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    OpenMpi,
    Mpich,
    Intel,
}

/// An installed MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mpi {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) launcher: PathBuf,
    /// MPICH only: the device it was built with, such as `ch4:ucx`.
    pub(crate) device: Option<String>,
}

/// MPI that the user requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Kind(Kind),
    Launcher(String),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        match text {
            "openmpi" => Ok(Wanted::Kind(Kind::OpenMpi)),
            "mpich" => Ok(Wanted::Kind(Kind::Mpich)),
            "intel" => Ok(Wanted::Kind(Kind::Intel)),
            _ if text.contains('/') => Ok(Wanted::Launcher(text.to_owned())),
            _ => Err("write openmpi, mpich, intel, or the path of a launcher".to_owned()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::OpenMpi => "Open MPI",
            Kind::Mpich => "MPICH",
            Kind::Intel => "Intel MPI",
        })
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mpi { kind, version, .. } = self;
        write!(f, "{kind} {version} ({})", self.launcher.display())
    }
}

impl Mpi {
    /// Returns true if it can use libfabric; `None` if its launcher does not report that.
    pub(crate) fn has_ofi(&self) -> Option<bool> {
        let device = self.device.as_ref()?;
        Some(device.contains("ofi"))
    }

    /// Returns the C compiler of the MPI next to the launcher; `None` if it is not installed.
    ///
    /// If several MPIs share a directory, launcher and compiler have the same suffix
    /// (`mpirun.mpich`).
    pub(crate) fn compiler(&self) -> Option<PathBuf> {
        let own = match self.kind {
            Kind::OpenMpi => ".openmpi",
            Kind::Mpich => ".mpich",
            Kind::Intel => "",
        };
        let tails = [name_tail(&self.launcher).unwrap_or_default(), own, ""];
        let real = self.launcher.canonicalize().ok();
        let places = [Some(&self.launcher), real.as_ref()];
        let mut places = places
            .into_iter()
            .flatten()
            .filter_map(|path| path.parent());
        places.find_map(|place| {
            // The plain name may be that of another MPI here.
            let mut named = tails.iter().filter(|tail| !tail.is_empty()).chain([&""]);
            named.find_map(|tail| {
                Some(place.join(format!("mpicc{tail}"))).filter(|path| path.is_file())
            })
        })
    }

    /// Returns an error if the MPI cannot use libfabric.
    pub(crate) fn check_ofi(&self) -> Result<()> {
        if self.has_ofi() != Some(false) {
            return Ok(());
        }
        user_error!(
            "{self} was built for {} and cannot use libfabric, and therefore not Portolan: name \
             another with --mpi, for example that of `pip install mpich`",
            self.device.as_deref().unwrap_or("another network")
        )
    }
}

/// Returns the requested MPI, or the first in PATH that can use libfabric.
///
/// # Errors
/// An error message for the user if there is none.
pub(crate) fn choose(wanted: Option<&Wanted>) -> Result<Mpi> {
    if let Some(Wanted::Launcher(path)) = wanted {
        return at(path, "name another with --mpi");
    }
    let mut installed = installed();
    if let Some(Wanted::Kind(kind)) = wanted {
        installed.retain(|mpi| mpi.kind == *kind);
        if installed.is_empty() {
            user_error!("no {kind} was found in PATH: install it, or name its launcher with --mpi");
        }
    }
    let best = installed
        .iter()
        .position(|mpi| mpi.has_ofi() != Some(false));
    if installed.is_empty() {
        user_error!(
            "no MPI was found in PATH: install one, for example with `apt install openmpi-bin`, \
             or name its launcher with --mpi"
        );
    }
    Ok(installed.swap_remove(best.unwrap_or(0)))
}

/// Returns the MPI with the launcher `path`, or the program of this name in PATH. `remedy` is part
/// of the error message.
///
/// # Errors
/// An error message for the user if the program is not a launcher.
pub(crate) fn at(path: &str, remedy: &str) -> Result<Mpi> {
    let path = program::find(path).map_err(UserError::new)?;
    let Some(mpi) = examine(&path) else {
        user_error!(
            "{} is not the launcher of Open MPI, MPICH or Intel MPI, by its --version: {remedy}",
            path.display()
        );
    };
    Ok(mpi)
}

/// Returns true if the file name of a program is that of an MPI launcher.
pub(crate) fn is_launcher(program: &Path) -> bool {
    name_tail(program).is_some()
}

/// Returns the rest of the file name after the launcher's name: `.mpich` of `mpirun.mpich`.
fn name_tail(program: &Path) -> Option<&str> {
    let name = program.file_name()?.to_str()?;
    COMMANDS
        .iter()
        .find_map(|command| name.strip_prefix(command))
}

/// Returns all installed MPIs, in the order of PATH.
pub(crate) fn installed() -> Vec<Mpi> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut found: Vec<Mpi> = Vec::new();
    for dir in std::env::split_paths(&path) {
        for name in LAUNCHERS {
            let launcher = dir.join(name);
            let Ok(real) = launcher.canonicalize() else {
                continue;
            };
            // Skip further names of a program that was already examined.
            if !seen.insert(real) {
                continue;
            }
            let Some(mpi) = examine(&launcher) else {
                continue;
            };
            let same = |other: &Mpi| {
                let here = other.launcher.parent() == launcher.parent();
                here && (other.kind, &other.version) == (mpi.kind, &mpi.version)
            };
            if !found.iter().any(same) {
                found.push(mpi);
            }
        }
    }
    found
}

/// Runs `launcher --version`; `None` if it is not a known launcher.
fn examine(launcher: &Path) -> Option<Mpi> {
    let output = Command::new(launcher)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let output = String::from_utf8_lossy(&output.stdout);
    recognise(&output, launcher)
}

/// Identifies a launcher by its `--version` output.
pub(super) fn recognise(output: &str, launcher: &Path) -> Option<Mpi> {
    let first = output.lines().next()?;
    let (kind, version) = if first.contains("Open MPI") || first.contains("OpenRTE") {
        (Kind::OpenMpi, last_word(first))
    } else if output.contains("Intel(R) MPI Library") {
        let version = first
            .split("Version ")
            .nth(1)
            .map(|rest| rest.split(',').next());
        (Kind::Intel, version.flatten().unwrap_or(first).to_owned())
    } else if first.starts_with("HYDRA") {
        let line = output
            .lines()
            .find(|line| line.trim().starts_with("Version:"))?;
        (Kind::Mpich, last_word(line))
    } else {
        return None;
    };
    let device = (kind == Kind::Mpich).then(|| device_in(output)).flatten();
    Some(Mpi {
        kind,
        version,
        launcher: launcher.to_owned(),
        device,
    })
}

fn last_word(line: &str) -> String {
    line.split_whitespace()
        .last()
        .unwrap_or_default()
        .to_owned()
}

/// Returns the value of `--with-device=` among the configure options.
fn device_in(output: &str) -> Option<String> {
    let rest = output.split("--with-device=").nth(1)?;
    let end = rest.find(|c: char| c.is_whitespace() || c == '\'' || c == '"');
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}
