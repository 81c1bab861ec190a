// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan lab mpirun`: runs an MPI program on the hosts of a lab.
//!
//! The launcher runs on host 0, and reaches the other hosts through `portolan lab rsh` instead of
//! ssh.

use super::Choice;
use super::plan::Hosts;
use crate::error::{UserError, user_error};
use crate::lab::Lab;
use anyhow::Result;
use std::process::ExitCode;

/// Run an MPI program on the hosts of a lab, with ranks assigned to the hosts in turn.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
    /// Number of ranks.
    #[arg(short, value_name = "RANKS")]
    n: u32,
    #[command(flatten)]
    choice: Choice,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

/// Executes the launcher on host 0 in place of this process; returns only on failure or with
/// `--dry-run`.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    if args.n == 0 {
        user_error!("a job needs at least one rank: give -n 1 or more");
    }
    let lab = Lab::find(&args.name)?;
    let mpi = args.choice.find()?;
    crate::program::find(&args.program[0]).map_err(UserError::new)?;
    let mut plan = args.choice.plan(&mpi, args.program)?;
    let own = std::env::current_exe()?;
    let agent = own.to_string_lossy();
    if agent.contains(char::is_whitespace) {
        user_error!("the path {agent} has a space, and launchers cannot run it: move this program");
    }
    let names: Vec<String> = (0..lab.host_count).map(|at| lab.namespace(at)).collect();
    plan.take_hosts(
        mpi.kind,
        &Hosts {
            names: &names,
            rank_count: args.n,
            is_crowded: args.n as usize > lab.core_count(),
            agent: &agent,
            // One word: Open MPI 5 drops an argument of one letter.
            agent_args: &format!("lab rsh --name={}", lab.name),
        },
    );
    args.choice.announce(&mpi, &plan);
    if args.choice.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let entry = crate::lab::host::entry(&lab, 0)?;
    Err(super::start(plan.command_by(entry)?))
}
