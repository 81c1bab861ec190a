// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the calls of an MPI program: the library of `portolan_profile` for this MPI is loaded
//! into its processes.

use super::find::{Kind, Mpi};
use super::plan::Plan;
use crate::error::{UserError, user_error};
use anyhow::Result;
use portolan_profile::{Compiler, Request};

/// Adds the settings for `request` to `plan`, which runs the launcher of `mpi`.
///
/// # Errors
/// An error message for the user if the library cannot be built.
pub(crate) fn add(plan: &mut Plan, mpi: &Mpi, request: &Request) -> Result<()> {
    let Some(command) = mpi.compiler() else {
        let package = match mpi.kind {
            Kind::OpenMpi => ", for example with `apt install libopenmpi-dev`",
            Kind::Mpich => ", for example with `apt install libmpich-dev`",
            Kind::Intel => "",
        };
        user_error!(
            "there is no mpicc next to {} to build the profiling library: install the compiler of this \
             MPI{package}",
            mpi.launcher.display()
        );
    };
    let compiler = Compiler {
        command,
        is_open_mpi: mpi.kind == Kind::OpenMpi,
        version: mpi.version.clone(),
    };
    let library =
        portolan_profile::library(&compiler).map_err(|error| UserError::new(error.to_string()))?;
    plan.take_counting(mpi.kind, &library, &request.to_string());
    Ok(())
}
