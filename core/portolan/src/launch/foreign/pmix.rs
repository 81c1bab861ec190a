// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMIx: Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix`.

use super::{FENCE_LIMIT, Space};
use crate::launch::LaunchError;
use portolan_sys::foreign::ForeignError;
use portolan_sys::pmix::Pmix;
use std::path::Path;

/// Name of this launcher in errors.
const NAME: &str = "PMIx";

/// The library's name in all versions since PMIx 2.
const LIBRARY: &str = "libpmix.so.2";

/// Locations of the library in installations of Open MPI, relative to the directory of `mpirun`.
const BESIDE: [&str; 4] = ["../lib", "../lib64", "../lib/openmpi", "../lib/pmix2/lib"];

/// Longest value, in bytes. PMIx has no limit; this limit splits records as with other launchers.
const VALUE_LEN_MAX: usize = 16 << 10;

/// Key-value space of a PMIx server.
#[derive(Debug)]
pub(super) struct PmixSpace {
    /// `None` after the exchange. The library's thread shares the descriptor table, which slows
    /// down every system call of the program.
    pmix: Option<Pmix>,
    name: String,
    rank: u32,
    size: u32,
}

impl PmixSpace {
    pub(super) fn connect() -> Result<PmixSpace, LaunchError> {
        let pmix = Pmix::init(&libraries()).map_err(explain)?;
        Ok(PmixSpace {
            name: pmix.namespace(),
            rank: pmix.rank(),
            size: pmix.size().map_err(refused)?,
            pmix: Some(pmix),
        })
    }

    fn pmix(&mut self) -> Result<&mut Pmix, LaunchError> {
        self.pmix.as_mut().ok_or(LaunchError::AlreadyExchanged)
    }
}

impl Space for PmixSpace {
    fn launcher(&self) -> &'static str {
        NAME
    }

    fn job_name(&self) -> String {
        self.name.clone()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn value_len_max(&self) -> usize {
        VALUE_LEN_MAX
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        self.pmix()?.put(key, value).map_err(refused)
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        self.pmix()?.fence(FENCE_LIMIT).map_err(refused)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<String, LaunchError> {
        self.pmix()?.get(rank, key).map_err(refused)
    }

    /// From here on the launcher judges the process by its exit status.
    fn settle(&mut self) {
        if let Some(pmix) = self.pmix.take() {
            pmix.finalize();
        }
    }

    fn bye(&mut self) {
        self.settle();
    }

    fn abort(&mut self, status: i32, reason: &str) {
        let mut again = match self.pmix.take() {
            Some(pmix) => Ok(pmix),
            None => Pmix::init(&libraries()),
        };
        let request = again.as_mut().map(|pmix| pmix.abort(status, reason));
        if !matches!(request, Ok(Ok(()))) {
            log::warn!("cannot request the launcher to end the job; it will get the exit status");
        }
    }
}

/// Returns possible locations of the library in this order: beside the launcher that started this
/// process, if that is known; the system's; beside any launcher in PATH. A library of another
/// version than the launcher works, but prints warnings.
fn libraries() -> Vec<String> {
    let mut names = Vec::new();
    if let Some(prefix) = std::env::var_os("PMIX_PREFIX") {
        names.extend(beside(&Path::new(&prefix).join("bin")));
    }
    names.push(LIBRARY.to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    for dir in std::env::split_paths(&path) {
        if dir.join("prterun").exists() || dir.join("mpirun").exists() {
            names.extend(beside(&dir));
        }
    }
    names
}

/// Returns the existing libraries in an installation with programs in `bin`.
fn beside(bin: &Path) -> impl Iterator<Item = String> {
    let files = BESIDE.map(|beside| bin.join(beside).join(LIBRARY));
    let present = files.into_iter().filter(|file| file.exists());
    present.map(|file| file.to_string_lossy().into_owned())
}

/// Converts an error. A missing library has a remedy of its own.
fn explain(error: ForeignError) -> LaunchError {
    match error {
        ForeignError::NotFound { .. } => LaunchError::Foreign {
            launcher: NAME,
            what: format!(
                "this process was started by a launcher with PMIx, but {error}; install the \
                 package libpmix2, or put the directory of libpmix.so.2 into LD_LIBRARY_PATH"
            ),
        },
        other => refused(other),
    }
}

fn refused(error: ForeignError) -> LaunchError {
    LaunchError::Foreign {
        launcher: NAME,
        what: error.to_string(),
    }
}
