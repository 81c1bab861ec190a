// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of `examples/npb`, which this program contains, built by an MPI's compiler.

use crate::error::user_error;
use crate::mpi::find::Mpi;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Lists source files with their contents.
macro_rules! sources {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../../examples/npb/", $name)))),*]
    };
}

/// Source files: the shared ones, then the programs.
const SOURCES: [(&str, &str); 14] = sources!(
    "common.h" "common.c" "fluid.h" "fluid.c" "tiles.h" "tiles.c"
    "is.c" "mg.c" "cg.c" "sp.c" "ep.c" "lu.c" "ft.c" "bt.c"
);
/// Makefile with the compiler flags that make results equal on all processors, and the shared files.
const MAKEFILE: &str = include_str!("../../../../../examples/npb/Makefile");
const FLAGS: &str = "NPB_CFLAGS = ";
const SHARED: &str = "SHARED = ";

/// Built programs; deleted on drop.
#[derive(Debug)]
pub(super) struct Programs(TempDir);

impl Programs {
    /// Builds all programs.
    ///
    /// # Errors
    /// An error message for the user if `mpi` has no compiler, or the compiler fails.
    pub(super) fn build(mpi: &Mpi) -> Result<Programs> {
        let Some(compiler) = mpi.compiler() else {
            user_error!(
                "there is no mpicc next to {}: install the compiler of this MPI, on Debian libopenmpi-dev or \
                 libmpich-dev",
                mpi.launcher.display()
            );
        };
        let directory = tempfile::tempdir().context("making a directory for programs")?;
        for (name, source) in SOURCES {
            fs::write(directory.path().join(name), source).context("writing a program's source")?;
        }
        for program in portolan_report::PROGRAMS {
            compile(&compiler, directory.path(), &program.to_lowercase())?;
        }
        Ok(Programs(directory))
    }

    pub(super) fn file(&self, program: &str) -> PathBuf {
        self.0.path().join(program.to_lowercase())
    }
}

fn compile(compiler: &Path, directory: &Path, name: &str) -> Result<()> {
    let mut command = Command::new(compiler);
    command.current_dir(directory).stdin(Stdio::null());
    command.args(words(FLAGS)).args(["-O2", "-o", name]);
    command.arg(format!("{name}.c"));
    command.args(words(SHARED)).arg("-lm");
    let built = match command.output() {
        Ok(built) => built,
        Err(error) => user_error!(
            "{} does not start ({error}): reinstall the compiler of this MPI",
            compiler.display()
        ),
    };
    if !built.status.success() {
        let stderr = String::from_utf8_lossy(&built.stderr);
        user_error!(
            "{} failed to build {name}.c ({}): check that it builds another program",
            compiler.display(),
            stderr.lines().next().unwrap_or("it printed nothing")
        );
    }
    Ok(())
}

/// Returns the words of the Makefile's line that starts with `name`.
fn words(name: &str) -> impl Iterator<Item = &'static str> {
    let line = MAKEFILE.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_shared_files_come_from_the_makefile() {
        let flags: Vec<&str> = words(FLAGS).collect();
        assert!(flags.contains(&"-ffp-contract=off"), "{flags:?}");
        let shared: Vec<&str> = words(SHARED).collect();
        assert!(shared.contains(&"common.c"), "{shared:?}");
        for file in shared {
            assert!(SOURCES.iter().any(|(name, _)| *name == file), "{file}");
        }
    }
}
