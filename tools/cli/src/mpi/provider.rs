// SPDX-License-Identifier: MIT OR Apache-2.0
//! Location of the libfabric provider.

use crate::error::user_error;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// File name of the provider, which libfabric prescribes.
pub(crate) const FILE: &str = "libportolan-fi.so";

/// Directories of a build and of an installation, relative to the directory of this program.
const BESIDE: [&str; 4] = [".", "../lib", "../lib/libfabric", "../lib/portolan"];

/// Returns the directory of the provider: `requested`, or one near this program.
///
/// # Errors
/// An error message for the user if the provider is not there.
pub(crate) fn directory(requested: Option<&Path>) -> Result<PathBuf> {
    if let Some(requested) = requested {
        return match requested.canonicalize() {
            Ok(dir) if dir.join(FILE).is_file() => Ok(dir),
            _ => user_error!(
                "there is no {FILE} in {}: name its directory with --provider-dir",
                requested.display()
            ),
        };
    }
    match beside(std::env::current_exe()?.as_path()) {
        Some(dir) => Ok(dir),
        None => user_error!(
            "{FILE} was not found near this program: build it with `make build`, or name its directory with \
             --provider-dir; --plain runs the MPI without Portolan"
        ),
    }
}

/// Returns the directory of the provider near `program`.
pub(crate) fn beside(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let mut dirs = BESIDE.iter().map(|beside| dir.join(beside));
    let found = dirs.find(|dir| dir.join(FILE).is_file())?;
    found.canonicalize().ok()
}
