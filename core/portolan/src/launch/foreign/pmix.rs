// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMIx: Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix`.

use super::{FENCE_LIMIT, Space};
use crate::launch::LaunchError;
use portolan_sys::foreign::ForeignError;
use portolan_sys::pmix::Pmix;
use std::path::Path;

/// What this launcher is called in errors.
const NAME: &str = "PMIx";

/// The library's name in all versions since PMIx 2.
const LIBRARY: &str = "libpmix.so.2";

/// Where installations of Open MPI keep it, seen from the directory of `mpirun`.
const BESIDE: [&str; 4] = ["../lib", "../lib64", "../lib/openmpi", "../lib/pmix2/lib"];

/// Bytes of one value. PMIx has no limit; this keeps pieces as they are elsewhere.
const VALUE_LEN_MAX: usize = 16 << 10;

/// A PMIx server's space.
#[derive(Debug)]
pub(super) struct PmixSpace {
    /// `None` once everything is exchanged: the library's thread shares the table of descriptors,
    /// and every system call of the program would pay for that.
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

    /// From here on the launcher judges the process by how it ends.
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
        let asked = again.as_mut().map(|pmix| pmix.abort(status, reason));
        if !matches!(asked, Ok(Ok(()))) {
            log::warn!("the launcher could not be asked to end the job; it will see the status");
        }
    }
}

/// Where the library may be: beside the launcher that started this process if that says where it is
/// (another version understands it, but complains), the system's, beside any launcher in PATH.
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

/// The files that there are in the library directories of an installation with programs in `bin`.
fn beside(bin: &Path) -> impl Iterator<Item = String> {
    let files = BESIDE.map(|beside| bin.join(beside).join(LIBRARY));
    let present = files.into_iter().filter(|file| file.exists());
    present.map(|file| file.to_string_lossy().into_owned())
}

/// The library may be missing on this host; the remedy differs from that of other failures.
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
