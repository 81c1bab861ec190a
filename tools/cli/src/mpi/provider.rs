// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the libfabric provider is.

use crate::error::user_error;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The provider's file, by the name that libfabric looks for.
pub(crate) const FILE: &str = "libportolan-fi.so";

/// Where it is built, and where `make install` puts it, seen from the directory of this program.
const BESIDE: [&str; 4] = [".", "../lib", "../lib/libfabric", "../lib/portolan"];

/// The directory that holds it: `asked`, or one beside this program.
///
/// # Errors
/// A sentence for a person when it is not there.
pub(crate) fn directory(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(asked) = asked {
        return match asked.canonicalize() {
            Ok(dir) if dir.join(FILE).is_file() => Ok(dir),
            _ => user_error!(
                "there is no {FILE} in {}: name its directory with --provider-dir",
                asked.display()
            ),
        };
    }
    match beside(std::env::current_exe()?.as_path()) {
        Some(dir) => Ok(dir),
        None => user_error!(
            "{FILE} is not beside this program: `make build` makes it, or name its directory with \
             --provider-dir; --plain runs the MPI as it is"
        ),
    }
}

/// The directory near `program` that holds it.
pub(crate) fn beside(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let mut dirs = BESIDE.iter().map(|beside| dir.join(beside));
    let found = dirs.find(|dir| dir.join(FILE).is_file())?;
    found.canonicalize().ok()
}
