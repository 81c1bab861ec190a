// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan profile`: runs an MPI program with its own launcher, and counts its calls.
//!
//! The launcher loads a library into the processes. Each process leaves a record, which is read
//! when the launcher has ended, successfully or not.

pub(crate) mod launch;

use crate::error::{UserError, user_error};
use crate::mpi::{counting, find, plan::Plan};
use crate::output;
use anyhow::Result;
use portolan_profile::{Profile, Request, VARIABLE, read_directory, render};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tempfile::TempDir;

/// Examples of commands to profile, for error messages.
const EXAMPLE: &str = "`portolan profile -- mpirun -n 4 ./program`, or `portolan profile -- portolan mpirun -n 4 ./program`";

/// Options of `portolan profile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also write the profile to FILE as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the records of all processes in DIR; with several hosts, a directory that all of them
    /// share.
    #[arg(long, value_name = "DIR", conflicts_with = "read")]
    keep: Option<PathBuf>,
    /// Also record up to N calls of each process in order, 40 bytes each, for `portolan predict`.
    /// Needs --keep, because the records are otherwise deleted at the end.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "keep")]
    events: u64,
    /// Run nothing: print the profile of the records that --keep left in DIR.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    read: Option<PathBuf>,
    /// The launcher of an MPI with its arguments, or `portolan mpirun` or `portolan lab mpirun`
    /// with theirs.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "read"
    )]
    command: Vec<String>,
}

/// Directory for the records of a run.
enum RecordDirectory {
    /// Deleted after this run.
    Temporary(TempDir),
    /// Kept after this run.
    Permanent(PathBuf),
}

impl RecordDirectory {
    fn path(&self) -> &Path {
        match self {
            RecordDirectory::Temporary(directory) => directory.path(),
            RecordDirectory::Permanent(directory) => directory,
        }
    }
}

/// Runs the program and prints its profile. Returns the launcher's exit status, if it failed.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    output::check_file(args.json.as_deref())?;
    if let Some(directory) = &args.read {
        let Some(profile) = profile_in(directory, &[])? else {
            user_error!(
                "there are no records in {}: name a directory that --keep wrote",
                directory.display()
            );
        };
        if profile.worlds.is_empty() {
            user_error!("{}", profile.notes.join("; "));
        }
        print_profile(&profile, args.json.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let records = record_directory(args.keep.as_deref())?;
    let request = Request {
        events: args.events,
        directory: records.path().to_owned(),
    };
    let status = launch::run(command(&args.command, &request)?)?;
    match profile_in(records.path(), &args.command)? {
        Some(profile) => print_profile(&profile, args.json.as_deref())?,
        None if status == 0 => user_error!(
            "no process left a record: either nothing in the command is an MPI program, or the \
             program is statically linked with its MPI, or was built for another MPI than the launcher; \
             check with `ldd`"
        ),
        None => eprintln!("portolan: no process reached MPI_Init, so there is no profile"),
    }
    Ok(ExitCode::from(status))
}

/// Returns a directory for records that contains none yet.
fn record_directory(keep: Option<&Path>) -> Result<RecordDirectory> {
    let Some(keep) = keep else {
        return Ok(RecordDirectory::Temporary(tempfile::tempdir()?));
    };
    let shown = keep.display();
    // Make the path absolute: the processes may start in another directory.
    let made = fs::create_dir_all(keep).and_then(|()| keep.canonicalize());
    let directory = match made {
        Ok(directory) => directory,
        Err(error) => {
            user_error!("{shown} cannot be created ({error}): name another --keep directory")
        }
    };
    let (records, refused) = read_directory(&directory).map_err(explained)?;
    if !records.is_empty() || !refused.is_empty() {
        user_error!(
            "{shown} holds records of another run: name another --keep directory, or remove them"
        );
    }
    Ok(RecordDirectory::Permanent(directory))
}

/// Returns the command for `words`, extended so that its processes leave records.
fn command(words: &[String], request: &Request) -> Result<Command> {
    let Some((program, args)) = words.split_first() else {
        user_error!("there is nothing to profile: write {EXAMPLE}");
    };
    if program.starts_with('-') {
        user_error!(
            "{program} is not an option of `portolan profile`, whose options come before --: see `portolan profile --help`"
        );
    }
    let path = Path::new(program);
    if is_self(path) {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).env(VARIABLE, request.to_string());
        return Ok(command);
    }
    // The query for a version would run any other program.
    if !find::is_launcher(path) {
        user_error!("{program} is not a launcher of an MPI: write {EXAMPLE}");
    }
    let mpi = find::at(program, &format!("write {EXAMPLE}"))?;
    let mut plan = Plan::new(&mpi, args.to_vec());
    counting::add(&mut plan, &mpi, request)?;
    Ok(plan.command()?)
}

/// Returns true if `program` is this program.
fn is_self(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new(env!("CARGO_BIN_NAME")))
}

/// Returns the profile of the records in `directory`; `None` if there are none.
fn profile_in(directory: &Path, command: &[String]) -> Result<Option<Profile>> {
    let (records, refused) = read_directory(directory).map_err(explained)?;
    let notes: Vec<String> = refused.iter().map(ToString::to_string).collect();
    if records.is_empty() && notes.is_empty() {
        return Ok(None);
    }
    Ok(Some(Profile::new(command.to_vec(), &records, notes)))
}

/// Prints the profile after the program's own output, and writes the JSON.
fn print_profile(profile: &Profile, json: Option<&Path>) -> Result<()> {
    // Use standard error: standard output belongs to the program. A failed write is ignored,
    // because the JSON has the same data.
    let _ = std::io::stderr().write_all(render(profile).as_bytes());
    let Some(path) = json else {
        return Ok(());
    };
    output::write_json(profile, path)
}

fn explained(error: portolan_profile::RecordError) -> UserError {
    UserError::new(error.to_string())
}
