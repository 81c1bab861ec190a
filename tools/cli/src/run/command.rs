// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of `portolan run`.

use super::hosts::{self, Host, MapBy};
use super::{AgentOptions, OnFailure, Options, RemoteProgram, Workload, execute};
use crate::error::{UserError, user_error};
use crate::lab::{HOSTS_MAX, Kind, Lab, TemporaryLab};
use anyhow::Result;
use clap::ValueEnum;
use portolan::binding::launch::{FD_VARIABLE, PathChoice};
use portolan::binding::{model, settings};
use portolan_bench::parse_seconds;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// MTU of the lab of `--new-lab`: that of plain Ethernet.
const MTU: u32 = 1500;

/// Start a program as the processes of one job: on this host, in a lab, or on the hosts of a file.
///
/// When a process fails, the other processes are notified at once and end. The exit status is that
/// of the process that failed first (128 + n for signal n), 2 if the job could not be started, and
/// 124 after --timeout. With --on-failure=continue the other processes continue, and the exit
/// status is that of rank 0. All processes have /dev/null as standard input.
///
/// After --timeout, and on SIGQUIT (Ctrl-\), a line for each process shows what it waits for. The
/// job continues after SIGQUIT.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of processes.
    #[arg(short = 'n', long = "ranks", default_value_t = 1)]
    n: u32,
    /// Hosts to use through ssh: lines `host [slots=K]`, # starts a comment.
    #[arg(long, value_name = "FILE", conflicts_with = "lab")]
    hosts: Option<PathBuf>,
    /// Lab to use.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Create a lab of N hosts for this job, and remove it afterwards.
    #[arg(long, value_name = "N", conflicts_with_all = ["lab", "hosts"],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(HOSTS_MAX)))]
    new_lab: Option<u32>,
    /// Cores of the hosts of that lab, in the form of `portolan lab up`.
    #[arg(long, value_name = "LIST", requires = "new_lab")]
    cores: Option<String>,
    /// Wires of that lab, in the form of `portolan lab up`: 1g; rate=100m,loss=0.1%.
    #[arg(long, value_name = "SPEC", requires = "new_lab")]
    link: Option<String>,
    /// Largest number of processes on each host [default: slots= of the hosts file, or 1 without
    /// it; spread evenly over a lab; all of them without --hosts and --lab].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    per_host: Option<u32>,
    /// Fill one host after the other (slot), or use the hosts in turn (node).
    #[arg(long, value_enum, default_value_t = MapBy::Slot)]
    map_by: MapBy,
    /// Prefix each line of output with the rank in brackets.
    #[arg(long)]
    tag_output: bool,
    /// Time in milliseconds for the other processes to report their own errors after a process
    /// failed.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    grace_ms: u64,
    /// Action when a process fails after all have joined: end the other processes, or let them
    /// continue; the exit status is then that of rank 0.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnFailure::End)]
    on_failure: OnFailure,
    /// Links that the processes may use.
    #[arg(long, value_enum, default_value_t = PathArg::Auto)]
    path: PathArg,
    /// End the job after this many seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Set an environment variable for the processes; without a value, pass on the value of
    /// this environment.
    #[arg(long = "env", short = 'x', value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Set an option of the library in each process, or with app.NAME=VALUE an option of the
    /// program.
    #[arg(long = "option", short = 'o', value_name = "NAME=VALUE")]
    option: Vec<String>,
    /// Working directory of the processes [default: this one].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Path of portolan on the hosts of --hosts [default: this program's path, or else the first in
    /// PATH there].
    #[arg(long, value_name = "PATH")]
    remote_program: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// [`PathChoice`] as an argument.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PathArg {
    /// The fastest link that works for each pair of processes.
    Auto,
    /// Shared memory only.
    Shm,
    /// UDP only.
    Udp,
    /// Raw Ethernet; UDP may carry bulk data.
    Packet,
    /// Raw Ethernet through AF_XDP (setting xdp); UDP may carry bulk data.
    Xdp,
}

impl From<PathArg> for PathChoice {
    fn from(path: PathArg) -> PathChoice {
        match path {
            PathArg::Auto => PathChoice::Auto,
            PathArg::Shm => PathChoice::Shm,
            PathArg::Udp => PathChoice::Udp,
            PathArg::Packet => PathChoice::Packet,
            PathArg::Xdp => PathChoice::Xdp,
        }
    }
}

/// Largest number of processes of a job, which a session's number can distinguish
/// (`portolan_proto::Config::size`).
const PROCESSES_MAX: u32 = 1 << 20;

/// Runs the job, and returns its exit status.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let new_lab = args
        .new_lab
        .map(|count| {
            let kind = Kind::plain(count, MTU);
            TemporaryLab::up(&kind.with(args.cores.as_deref(), args.link.as_deref())?)
        })
        .transpose()?;
    let outcome = execute(&options(args, new_lab.as_ref().map(TemporaryLab::lab))?)?;
    let Some(failure) = outcome.failure else {
        return Ok(ExitCode::SUCCESS);
    };
    // If standard error cannot be written, the exit status still reports the failure.
    let _ = writeln!(std::io::stderr(), "portolan: {failure}");
    // The shell gets only the low byte, and a failure must not appear as success.
    Ok(ExitCode::from(
        u8::try_from(failure.status() & 0xff).unwrap_or(1).max(1),
    ))
}

fn options(args: Args, new_lab: Option<&Lab>) -> Result<Options> {
    if args.n == 0 {
        user_error!("a job needs at least one process: give -n 1 or more");
    }
    if args.n > PROCESSES_MAX {
        user_error!(
            "-n {} is more than a job can have: give {PROCESSES_MAX} or fewer",
            args.n
        );
    }
    let hosts = find_hosts(&args, new_lab)?;
    let mut command = args.command.into_iter();
    let program = command.next().unwrap_or_default();
    check_program(&program)?;
    warn_of_model(&args.option);
    let options: BTreeMap<String, String> = args
        .option
        .iter()
        .map(|text| setting(text))
        .collect::<Result<_>>()?;
    let environment = environment(&args.env)?;
    check_settings(&options, &environment, args.n)?;
    Ok(Options {
        rank_count: args.n,
        hosts,
        map_by: args.map_by,
        tag_output: args.tag_output,
        capture: false,
        grace: Duration::from_millis(args.grace_ms),
        on_failure: args.on_failure,
        limit: args.timeout,
        workload: Workload {
            path: args.path.into(),
            options,
            environment,
            directory: directory(args.directory)?,
            program,
            args: command.collect(),
        },
        agent: AgentOptions {
            remote_program: RemoteProgram::new(args.remote_program.as_ref())?,
            connection: None,
        },
    })
}

/// Returns an error for an unknown option, which otherwise would be taken for the program's name.
fn check_program(program: &str) -> Result<()> {
    let Some(word) = program.strip_prefix('-') else {
        return Ok(());
    };
    let name = word.trim_start_matches('-').split('=').next();
    let name = name.unwrap_or_default().replace('-', "_");
    let is_setting = settings::ALL
        .iter()
        .any(|setting| setting.option == Some(&name));
    if is_setting {
        user_error!(
            "{program} is a setting of the library, not an option of `portolan run`: write \
             --option {name}=VALUE"
        );
    }
    user_error!(
        "{program} is not an option of `portolan run`: see `portolan run --help`; to run a program of \
         that name, write ./{program}"
    )
}

/// Warns of a stored model that cannot be used here, before the processes choose without it. If the
/// job names a model, the processes report problems with it themselves.
fn warn_of_model(requested: &[String]) {
    let is_named = requested.iter().any(|text| text.starts_with("model="));
    if is_named || settings::MODEL.from_env().is_some() {
        return;
    }
    if let (_, status @ model::Status::Refused(..)) = model::load(None) {
        // If standard error cannot be written, `portolan info` still shows it.
        let _ = writeln!(std::io::stderr(), "portolan: the stored model is {status}");
    }
}

fn find_hosts(args: &Args, new_lab: Option<&Lab>) -> Result<Vec<Host>> {
    if let Some(lab) = new_lab {
        return Ok(hosts::of_lab(lab, args.n, args.per_host));
    }
    match (&args.hosts, &args.lab) {
        (Some(file), _) => hosts::of_file(file, args.per_host),
        (None, Some(name)) => Ok(hosts::of_lab(&Lab::find(name)?, args.n, args.per_host)),
        (None, None) => Ok(hosts::here(args.per_host)),
    }
}

/// Returns an error for settings that no process could follow.
pub(crate) fn check_settings(
    options: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
    size: u32,
) -> Result<()> {
    let checked = portolan::binding::check_settings(options, environment, size);
    Ok(checked.map_err(|error| UserError::new(error.to_string()))?)
}

pub(crate) fn setting(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            settings::check_option(name).map_err(|error| UserError::new(error.to_string()))?;
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => user_error!("{text:?} is not a setting: write --option NAME=VALUE"),
    }
}

/// Returns the requested variables, and Portolan's own variables. Agents on this machine pass on
/// all other variables as well; ssh does not.
pub(crate) fn environment(requested: &[String]) -> Result<BTreeMap<String, String>> {
    let own = |name: &str| {
        let is_own = name.starts_with(settings::VARIABLE_PREFIX) && name != FD_VARIABLE;
        is_own || name == settings::RUST_LOG.variable
    };
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| own(name))
        .collect();
    for text in requested {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), std::env::var(text).ok()),
        };
        if name.is_empty() {
            user_error!("{text:?} has no name of an environment variable: write --env NAME=VALUE");
        }
        let Some(value) = value else {
            user_error!(
                "the environment variable {name} is not set here: write --env {name}=VALUE"
            );
        };
        environment.insert(name.to_owned(), value);
    }
    for name in environment.keys() {
        settings::check_variable(name).map_err(|error| UserError::new(error.to_string()))?;
    }
    Ok(environment)
}

fn directory(requested: Option<PathBuf>) -> Result<String> {
    let here = match requested {
        Some(directory) => std::path::absolute(directory),
        None => std::env::current_dir(),
    };
    match here.map(|path| path.into_os_string().into_string()) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(path)) => {
            user_error!("the name of the directory {path:?} is not UTF-8: use another directory")
        }
        Err(error) => {
            user_error!("the working directory no longer exists ({error}): change to another")
        }
    }
}

/// Parses a time limit in seconds; more than a year is a mistake.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text, 0.001..=31_536_000.0).map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_option_is_not_run_as_a_program() {
        let error = |program| check_program(program).unwrap_err().to_string();
        assert!(error("--auth").contains("--option auth=VALUE"));
        assert!(error("--peer-timeout=3s").contains("--option peer_timeout=VALUE"));
        assert!(error("-N").contains("--help"));
        assert!(check_program("./-N").is_ok());
        assert!(check_program("").is_ok());
    }
}
