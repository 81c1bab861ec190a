// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice between Open MPI's component `btl/portolan` and the libfabric provider, and the settings
//! of the component.
//!
//! A component is compiled with the internal structures of one version of Open MPI. The name of its
//! directory therefore contains the version.

use super::find::{Kind, Mpi};
use super::plan::Plan;
use crate::error::user_error;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Name of the component for users.
pub(super) const NAME: &str = "btl/portolan";

/// File name of the component, which Open MPI prescribes.
pub(super) const FILE: &str = "mca_btl_portolan.so";

/// Directories of a build and of an installation, relative to the directory of this program.
const BESIDE: [&str; 2] = [".", "../lib/portolan"];

/// Returns the BTLs of a job: `self` for a process itself, shared memory within a host, the component between hosts.
fn btls(mpi: &Mpi) -> &'static str {
    match is_version_4(mpi) {
        true => "self,vader,portolan",
        false => "self,sm,portolan",
    }
}

fn is_version_4(mpi: &Mpi) -> bool {
    mpi.version.starts_with("4.")
}

/// Returns the directory of PMIx's components, if it is found.
fn pmix_directory(mpi: &Mpi) -> Option<PathBuf> {
    let dir = mpi.launcher.parent()?;
    let mut places = PMIX_BESIDE.iter().map(|beside| dir.join(beside));
    places.find_map(|place| place.canonicalize().ok())
}

/// BTL of windows that several hosts share.
const WINDOW_BTL: &str = "portolan";

/// Variable with the directories in which Open MPI looks for components.
const PATH: &str = "OMPI_MCA_mca_base_component_path";

/// Value of [`PATH`] for Open MPI's own directories.
const PATH_DEFAULT: &str = "SYSTEM_DEFAULT:USER_DEFAULT";

/// Variable with the directories of PMIx's components. Open MPI 5 sets it to the value of [`PATH`] if it
/// is not set, and PMIx then complains about each directory.
const PMIX_PATH: &str = "PMIX_MCA_mca_base_component_path";

/// Directories of PMIx's own components, relative to the directory of the launcher: Debian's, and those of an Open MPI
/// that includes PMIx.
const PMIX_BESIDE: [&str; 3] = [
    "../lib/x86_64-linux-gnu/pmix2/lib/pmix",
    "../lib/pmix",
    "../lib64/pmix",
];

/// Argument of `--via`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Via {
    /// Open MPI's component btl/portolan.
    Btl,
    /// The libfabric provider.
    Ofi,
}

/// The library by which an MPI uses Portolan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// The component in this directory.
    Component(PathBuf),
    Provider,
}

impl Transport {
    /// Returns the `requested` transport, by default the component if it is installed for `mpi`,
    /// otherwise the provider.
    ///
    /// # Errors
    /// The component was requested and is not installed for `mpi`.
    pub(super) fn choose(mpi: &Mpi, requested: Option<Via>) -> Result<Transport> {
        Transport::choose_beside(mpi, requested, &std::env::current_exe()?)
    }

    fn choose_beside(mpi: &Mpi, requested: Option<Via>, program: &Path) -> Result<Transport> {
        if requested == Some(Via::Ofi) {
            return Ok(Transport::Provider);
        }
        match directory(mpi, program) {
            Some(directory) => Ok(Transport::Component(directory)),
            None if requested.is_none() => Ok(Transport::Provider),
            None if mpi.kind != Kind::OpenMpi => user_error!(
                "--via btl needs Open MPI, and {mpi} is another MPI: leave it out, or select Open MPI with --mpi"
            ),
            None => user_error!(
                "there is no {}/{FILE} for {mpi} next to this program: `make install` builds it if the internal \
                 headers of this Open MPI are installed (Debian: libopenmpi-dev); --via ofi uses the libfabric provider",
                folder(mpi)
            ),
        }
    }

    /// Returns a warning for the user about a known fault of this transport.
    pub(super) fn warning(&self, mpi: &Mpi) -> Option<&'static str> {
        let is_faulty = mpi.kind == Kind::OpenMpi && mpi.version.starts_with("4.1.");
        (*self == Transport::Provider && is_faulty).then_some(
            "Open MPI 4.1 sends wrong elements over libfabric if MPI_Send_init or MPI_Alltoallw gets a datatype that \
             begins at an offset; the component that `make install` builds beside Debian's libopenmpi-dev \
             avoids that (docs/guide/mpi.md)",
        )
    }
}

impl Plan {
    /// Makes Open MPI use the component in `directory`. Open MPI passes its own variables on to all
    /// programs and hosts.
    pub(super) fn take_component(&mut self, mpi: &Mpi, directory: &Path) {
        let others = std::env::var(PATH).unwrap_or_else(|_| PATH_DEFAULT.to_owned());
        self.set(PATH, format!("{}:{others}", directory.display()));
        if !is_version_4(mpi)
            && std::env::var_os(PMIX_PATH).is_none()
            && let Some(directory) = pmix_directory(mpi)
        {
            self.set(PMIX_PATH, directory.display());
        }
        self.set("OMPI_MCA_pml", "ob1");
        self.set("OMPI_MCA_btl", btls(mpi));
        // By default Open MPI's windows ignore BTLs that it does not know.
        self.set("OMPI_MCA_osc_rdma_btls", WINDOW_BTL);
        self.forward_settings();
        self.need_library(directory.join(FILE));
    }
}

/// Returns the directory of the component for `mpi` near `program`.
fn directory(mpi: &Mpi, program: &Path) -> Option<PathBuf> {
    if mpi.kind != Kind::OpenMpi {
        return None;
    }
    let dir = program.parent()?;
    let mut folders = BESIDE
        .iter()
        .map(|beside| dir.join(beside).join(folder(mpi)));
    let found = folders.find(|folder| folder.join(FILE).is_file())?;
    found.canonicalize().ok()
}

fn folder(mpi: &Mpi) -> String {
    format!("openmpi-{}", mpi.version)
}

#[cfg(test)]
mod tests {
    use super::super::find::recognise;
    use super::*;

    fn mpi(version: &str) -> Mpi {
        recognise(version, Path::new("/opt/bin/mpirun")).unwrap()
    }

    /// Makes a directory with a program and a component for Open MPI 4.1.4.
    fn installed(directory: &Path) -> PathBuf {
        let folder = directory.join("openmpi-4.1.4");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(FILE), "").unwrap();
        directory.join("portolan")
    }

    #[test]
    fn component_is_the_default_for_its_version_only() {
        let directory = tempfile::tempdir().unwrap();
        let program = installed(directory.path());
        let folder = directory
            .path()
            .canonicalize()
            .unwrap()
            .join("openmpi-4.1.4");
        let fits = mpi("mpirun (Open MPI) 4.1.4\n");
        let newer = mpi("mpirun (Open MPI) 4.1.6\n");
        let intel = mpi("Intel(R) MPI Library for Linux* OS, Version 2021.13\n");
        for (mpi, requested, expected) in [
            (&fits, None, Some(Transport::Component(folder.clone()))),
            (&fits, Some(Via::Btl), Some(Transport::Component(folder))),
            (&fits, Some(Via::Ofi), Some(Transport::Provider)),
            (&newer, None, Some(Transport::Provider)),
            (&newer, Some(Via::Btl), None),
            (&intel, None, Some(Transport::Provider)),
            (&intel, Some(Via::Btl), None),
        ] {
            let chosen = Transport::choose_beside(mpi, requested, &program);
            assert_eq!(chosen.ok(), expected, "{mpi} {requested:?}");
        }
    }

    #[test]
    fn only_the_provider_with_open_mpi_4_1_gives_a_warning() {
        let old = mpi("mpirun (Open MPI) 4.1.4\n");
        let new = mpi("mpirun (Open MPI) 5.0.11\n");
        assert!(Transport::Provider.warning(&old).is_some());
        assert!(Transport::Component("/lib".into()).warning(&old).is_none());
        assert!(Transport::Provider.warning(&new).is_none());
    }

    #[test]
    fn shared_memory_has_another_name_in_open_mpi_5() {
        assert_eq!(
            btls(&mpi("mpirun (Open MPI) 4.1.6\n")),
            "self,vader,portolan"
        );
        assert_eq!(btls(&mpi("mpirun (Open MPI) 5.0.7\n")), "self,sm,portolan");
    }

    #[test]
    fn component_is_selected_by_mca_variables() {
        let mpi = mpi("mpirun (Open MPI) 4.1.4\n");
        let mut plan = Plan::new(&mpi, vec!["-n".into(), "2".into(), "./a.out".into()]);
        plan.take_component(&mpi, Path::new("/lib/openmpi-4.1.4"));
        let line = plan.to_string();
        assert!(
            line.starts_with("OMPI_MCA_mca_base_component_path=/lib/openmpi-4.1.4:"),
            "{line}"
        );
        assert!(
            line.contains(
                " OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,portolan OMPI_MCA_osc_rdma_btls=portolan "
            ),
            "{line}"
        );
        assert!(!line.contains("FI_PROVIDER"), "{line}");
    }
}
