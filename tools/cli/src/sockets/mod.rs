// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan sockets`: runs an unmodified program whose TCP connections within this host use shared
//! memory.
//!
//! The program loads a library (`interfaces/sockets`), which also its children load.

mod stats;

use crate::error::{UserError, user_error};
use crate::profile::launch;
use crate::{lab, program};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// File names of the library: as installed, and as cargo builds it.
const FILES: [&str; 2] = ["libportolan-sockets.so", "libportolan_sockets.so"];

/// Directories of a build and of an installation, relative to the directory of this program.
const BESIDE: [&str; 3] = [".", "../lib", "../lib/portolan"];

/// Longest time of polling; longer times only cost processor time.
const SPIN_MAX: Duration = Duration::from_millis(100);

/// Variables of the library.
const SPIN: &str = "PORTOLAN_SOCKETS_SPIN_NS";
const STATS: &str = "PORTOLAN_SOCKETS_STATS";

/// Options of `portolan sockets`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Let blocked calls poll for TIME before they sleep, for example 50us. By default they sleep at
    /// once.
    #[arg(long, value_name = "TIME", value_parser = spin, default_value = "0")]
    spin: Duration,
    /// After the program's end, print what its connections sent through shared memory and through
    /// the kernel, and why.
    #[arg(long)]
    stats: bool,
    /// The program with its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the program, and returns its exit status.
///
/// # Errors
/// An error message for the user if the library is not there or the program does not start.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let library = library(&std::env::current_exe()?)?;
    let mut command = command(args, &library)?;
    if !args.stats {
        let error = command.exec();
        let shown = command.get_program().to_string_lossy();
        return Err(UserError::new(program::explain(&shown, &error)).into());
    }
    let directory = tempfile::tempdir().context("creating a directory for the statistics")?;
    let file = directory.path().join("connections");
    command.env(STATS, &file);
    let status = launch::run(command)?;
    eprint!(
        "{}",
        stats::render(&std::fs::read_to_string(&file).unwrap_or_default())
    );
    Ok(ExitCode::from(status))
}

fn command(args: &Args, library: &Path) -> Result<Command> {
    let Some((name, rest)) = args.command.split_first() else {
        user_error!("there is no program: write `portolan sockets -- PROGRAM ARGS`");
    };
    let shown = name.to_string_lossy();
    if shown.starts_with('-') {
        user_error!(
            "{shown} is not an option of `portolan sockets`, whose options come before --: see \
             `portolan sockets --help`"
        );
    }
    let path = program::find(&shown).map_err(UserError::new)?;
    let mut command = Command::new(path);
    command
        .arg0(name)
        .args(rest)
        .env(
            "LD_PRELOAD",
            preload(library, std::env::var_os("LD_PRELOAD")),
        )
        .env(SPIN, args.spin.as_nanos().to_string())
        .env_remove(STATS);
    Ok(command)
}

/// Returns the value of `LD_PRELOAD` with this library before those of the user.
fn preload(library: &Path, own: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        value.push(":");
        value.push(own);
    }
    value
}

/// Returns the library near `program`.
fn library(program: &Path) -> Result<PathBuf> {
    let Some(found) = beside(program) else {
        user_error!(
            "{} was not found near this program: build it with `make build`, and install it with \
             `make install`",
            FILES[0]
        );
    };
    // The loader separates the libraries of the variable by spaces and colons.
    if found.to_string_lossy().contains([' ', ':']) {
        user_error!(
            "{} cannot be loaded, because its path has a space or a colon: install it elsewhere",
            found.display()
        );
    }
    Ok(found)
}

fn beside(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let dirs = BESIDE.iter().map(|beside| dir.join(beside));
    let mut files = dirs.flat_map(|dir| FILES.map(|file| dir.join(file)));
    files.find(|file| file.is_file())?.canonicalize().ok()
}

fn spin(text: &str) -> Result<Duration, String> {
    let time = if text == "0" {
        Some(0)
    } else {
        lab::link::time_ns(text)
    };
    let time = time.map(Duration::from_nanos);
    time.filter(|time| *time <= SPIN_MAX).ok_or_else(|| {
        format!("{text} is not a time to poll: write 0, or a time up to 100ms, as in 50us")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn times_have_units_and_a_limit() {
        assert_eq!(spin("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(spin("0"), Ok(Duration::ZERO));
        for wrong in ["", "50", "us", "1s", "-1us"] {
            assert!(spin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn library_is_found_in_a_build_and_in_an_installation() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("bin/portolan");
        for dir in ["bin", "lib"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        assert_eq!(beside(&program), None);
        for file in ["lib/libportolan-sockets.so", "bin/libportolan_sockets.so"] {
            let path = root.path().join(file);
            fs::write(&path, "").unwrap();
            assert_eq!(beside(&program), Some(path.canonicalize().unwrap()));
        }
    }

    #[test]
    fn libraries_of_the_user_are_kept() {
        let library = Path::new("/lib/a.so");
        assert_eq!(preload(library, None), "/lib/a.so");
        assert_eq!(preload(library, Some("".into())), "/lib/a.so");
        assert_eq!(preload(library, Some("/b.so".into())), "/lib/a.so:/b.so");
    }
}
