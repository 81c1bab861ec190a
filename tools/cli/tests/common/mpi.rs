// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's MPIs, if installed.

use std::process::{Command, Stdio};

/// Commands of an installed MPI.
pub(crate) struct Commands {
    pub(crate) compiler: String,
    pub(crate) launcher: String,
}

/// Finds Debian's MPI of this name; prints SKIPPED and returns `None` if it is not installed.
pub(crate) fn find(name: &str) -> Option<Commands> {
    let [compiler, launcher] = ["mpicc", "mpirun"].map(|tool| format!("{tool}.{name}"));
    if !is_installed(&compiler) || !is_installed(&launcher) {
        eprintln!("SKIPPED: no {compiler} and {launcher} here");
        return None;
    }
    Some(Commands { compiler, launcher })
}

fn is_installed(command: &str) -> bool {
    let mut version = Command::new(command);
    let version = version.arg("--version").stdin(Stdio::null());
    version.output().is_ok_and(|told| told.status.success())
}

/// Lets `command` start MPI programs as root, and more processes than there are cores; Open MPI
/// refuses both by default.
pub(crate) fn allow(command: &mut Command) {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
}
