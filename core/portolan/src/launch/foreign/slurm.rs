// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain `srun`: Slurm's own PMI-1 library requests the key-value space from `srun`.

use super::Space;
use crate::launch::LaunchError;
use portolan_sys::foreign::ForeignError;
use portolan_sys::pmi_library::PmiLibrary;

/// Name of this launcher in errors.
const NAME: &str = "Slurm";

/// Name of Slurm's PMI-1 library in all versions.
const LIBRARY: &str = "libpmi.so.0";

/// Key-value space of a Slurm step.
#[derive(Debug)]
pub(super) struct SlurmSpace(PmiLibrary);

impl SlurmSpace {
    pub(super) fn connect() -> Result<SlurmSpace, LaunchError> {
        let library = PmiLibrary::init(&[LIBRARY.to_owned()]);
        library.map(SlurmSpace).map_err(explain)
    }
}

impl Space for SlurmSpace {
    fn launcher(&self) -> &'static str {
        NAME
    }

    fn job_name(&self) -> String {
        self.0.name().to_owned()
    }

    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn value_len_max(&self) -> usize {
        self.0.value_len_max().saturating_sub(1)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        self.0.put(key, value).map_err(refused)
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        self.0.barrier().map_err(refused)
    }

    fn get(&mut self, _rank: u32, key: &str) -> Result<String, LaunchError> {
        self.0.get(key).map_err(refused)
    }

    fn bye(&mut self) {
        if let Err(error) = self.0.finalize() {
            log::debug!("leaving Slurm: {error}");
        }
    }

    fn abort(&mut self, status: i32, reason: &str) {
        if let Err(error) = self.0.abort(status, reason) {
            log::debug!("connection to Slurm failed: {error}");
        }
    }
}

/// Converts an error. Without the library, plain `srun` cannot join processes, but options of
/// `srun` can.
fn explain(error: ForeignError) -> LaunchError {
    match error {
        ForeignError::NotFound { .. } => LaunchError::Foreign {
            launcher: NAME,
            what: format!(
                "srun has started this process without PMI, and {error}; use `srun --mpi=pmix` or \
                 `srun --mpi=pmi2`, install the package libpmi0, or set PORTOLAN_LAUNCHER=none to \
                 run each process as a job of one"
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
