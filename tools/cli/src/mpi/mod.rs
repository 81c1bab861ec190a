// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI programs over Portolan: `portolan mpirun` and `portolan lab mpirun`.
//!
//! Runs the launcher of an installed MPI with settings that make it use Portolan's component for
//! Open MPI or its libfabric provider. The MPI itself is not changed.

pub(crate) mod component;
pub(crate) mod counting;
mod exports;
pub(crate) mod find;
mod hosts;
pub(crate) mod lab;
mod own;
pub(crate) mod plan;
pub(crate) mod provider;
pub(crate) mod report;

use crate::error::{UserError, user_error};
use crate::run::hosts::of_file;
use anyhow::Result;
use component::{Transport, Via};
use find::{Mpi, Wanted};
use plan::Plan;
use portolan::binding::settings;
use portolan_profile::{BadRequest, Request, VARIABLE};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Options that `mpirun` and `lab mpirun` share.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// MPI to use: openmpi, mpich, intel, or the path of its launcher [default: the first in PATH].
    #[arg(long, value_name = "WHICH")]
    mpi: Option<Wanted>,
    /// Directory of libportolan-fi.so [default: where it is built or installed with this program].
    #[arg(long, value_name = "DIR")]
    provider_dir: Option<PathBuf>,
    /// Library that the MPI uses: btl (Open MPI's component), the default where it is installed, or
    /// ofi (the libfabric provider).
    #[arg(long, value_name = "WAY")]
    via: Option<Via>,
    /// Encrypt all messages between hosts, as PORTOLAN_AUTH=aead does.
    #[arg(long)]
    encrypt: bool,
    /// Run the MPI without Portolan, for comparison.
    #[arg(long)]
    plain: bool,
    /// Print the command, and do not run it.
    #[arg(long)]
    dry_run: bool,
}

/// Run an MPI program over Portolan, with the launcher of an installed MPI.
///
/// Portolan's own options may be given anywhere before the program.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Hosts to use through ssh: lines `host [slots=K]`, # starts a comment; without slots=, a host
    /// has 1 slot.
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Options of the launcher, the program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    args: Vec<String>,
}

/// Executes the launcher in place of this process; returns only on failure or with `--dry-run`.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    settings::check_variables().map_err(|error| UserError::new(error.to_string()))?;
    let Args {
        choice,
        hosts,
        args,
    } = args.take_own()?;
    let mpi = choice.find()?;
    let mut plan = choice.plan(&mpi, args)?;
    if let Some(file) = &hosts {
        let hosts = of_file(file, None)?;
        plan.take_hosts_file(mpi.kind, hosts::translated(mpi.kind, &hosts)?);
        if let Some(library) = plan.needed_library().filter(|_| !choice.dry_run) {
            hosts::check_library(&hosts, library)?;
        }
    }
    choice.announce(&mpi, &plan);
    if choice.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    Err(start(plan.command()?))
}

impl Choice {
    fn find(&self) -> Result<Mpi> {
        find::choose(self.mpi.as_ref())
    }

    /// Returns the settings and the command line for `args` of the launcher.
    fn plan(&self, mpi: &Mpi, args: Vec<String>) -> Result<Plan> {
        let mut plan = Plan::new(mpi, args);
        if self.plain && self.encrypt {
            user_error!(
                "--plain runs the MPI without Portolan, which cannot encrypt then: leave --plain or --encrypt out"
            );
        }
        if self.encrypt {
            let own = std::env::var(settings::AUTH.variable).ok();
            plan.take_encryption(own.filter(|own| !own.is_empty()).as_deref())?;
        }
        if !self.plain {
            self.take_transport(mpi, &mut plan)?;
        }
        // Set if `portolan profile` runs this program.
        if let Some(request) = std::env::var_os(VARIABLE) {
            let request = request.to_string_lossy();
            let request: Request = request.parse().map_err(explained)?;
            counting::add(&mut plan, mpi, &request)?;
        }
        Ok(plan)
    }

    /// Makes the MPI use Portolan by the component or the provider.
    fn take_transport(&self, mpi: &Mpi, plan: &mut Plan) -> Result<()> {
        if self.via == Some(Via::Btl) && self.provider_dir.is_some() {
            user_error!(
                "--provider-dir applies to the libfabric provider, which --via btl does not use: leave one of them out"
            );
        }
        // The directory of the provider is a request for the provider.
        let requested = self.via.or(self.provider_dir.as_ref().map(|_| Via::Ofi));
        let transport = Transport::choose(mpi, requested)?;
        match &transport {
            Transport::Component(directory) => plan.take_component(mpi, directory),
            Transport::Provider => {
                mpi.check_ofi()?;
                let directory = provider::directory(self.provider_dir.as_deref())?;
                plan.take_provider(mpi.kind, &directory);
            }
        }
        if let Some(warning) = transport.warning(mpi) {
            eprintln!("portolan: warning: {warning}");
        }
        Ok(())
    }

    /// Prints the settings and the command in one line.
    fn announce(&self, mpi: &Mpi, plan: &Plan) {
        eprintln!("portolan: {mpi}: {plan}");
    }
}

fn explained(error: BadRequest) -> UserError {
    UserError::new(error.to_string())
}

/// Executes `command` in place of this process; returns only on failure.
fn start(mut command: Command) -> anyhow::Error {
    crate::ambient::keep_net_raw();
    let error = command.exec();
    let program = command.get_program().to_string_lossy();
    UserError::new(crate::program::explain(&program, &error)).into()
}

#[cfg(test)]
mod tests;
