// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messaging libraries that Portolan is compared with: libfabric with several providers, and UCX.
//!
//! Their programs in `bench/peers/*.c` do the work of the other rows with the library's own
//! functions. This host's C compiler builds them on first use.

use crate::args::{Metric, Path};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Header that both programs include.
const WORK: &str = include_str!("../../../bench/peers/work.h");

/// A library and the transport of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Competitor {
    /// libfabric's reliable datagrams over TCP.
    LibfabricTcp,
    /// libfabric's reliable datagrams over UDP.
    LibfabricRxd,
    /// libfabric's shared memory.
    LibfabricShm,
    /// UCX, over TCP between hosts and shared memory within a host.
    Ucx,
}

impl Competitor {
    /// Returns the name of its rows in the table and the JSON.
    pub(crate) fn system(self) -> &'static str {
        match self {
            Competitor::LibfabricTcp => "libfabric-tcp",
            Competitor::LibfabricRxd => "libfabric-rxd",
            Competitor::LibfabricShm => "libfabric-shm",
            Competitor::Ucx => "ucx",
        }
    }

    /// Returns true if its program measures `metric`.
    pub(crate) fn measures(metric: Metric) -> bool {
        matches!(metric, Metric::Pingpong | Metric::Stream | Metric::Rate)
    }

    /// Returns true if it has a row beside Portolan's on `path`.
    pub(crate) fn supports(self, path: Path) -> bool {
        match self {
            Competitor::LibfabricTcp | Competitor::LibfabricRxd => path != Path::Shm,
            Competitor::LibfabricShm => path == Path::Shm,
            Competitor::Ucx => true,
        }
    }

    /// Returns the name of its variant on `path` in the table.
    pub(crate) fn variant(self, path: Path) -> &'static str {
        match (self, path) {
            (Competitor::LibfabricTcp, _) => "its TCP, spinning",
            (Competitor::LibfabricRxd, _) => "udp;ofi_rxd, spinning",
            (Competitor::LibfabricShm, _) => "shm, spinning",
            (Competitor::Ucx, Path::Shm) => "its shared memory, spinning",
            (Competitor::Ucx, _) => "its TCP, spinning",
        }
    }

    /// Returns libfabric's name of the provider. In newer versions, `tcp` needs no utility provider
    /// such as `ofi_rxm` above it.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Competitor::LibfabricTcp => "tcp",
            Competitor::LibfabricRxd => "udp;ofi_rxd",
            Competitor::LibfabricShm => "shm",
            Competitor::Ucx => "",
        }
    }

    /// Returns the environment of its program. UCX is restricted to the transports of the path,
    /// because it would otherwise use the memory that the hosts of a lab share.
    pub(crate) fn environment(self, path: Path, interface: &str) -> Vec<(&'static str, String)> {
        match (self, path) {
            (Competitor::Ucx, Path::Shm) => vec![("UCX_TLS", "sm,self".into())],
            (Competitor::Ucx, _) => vec![
                ("UCX_TLS", "tcp,self".into()),
                ("UCX_NET_DEVICES", interface.into()),
            ],
            _ => Vec::new(),
        }
    }

    fn kit(self) -> &'static Kit {
        match self {
            Competitor::Ucx => &UCX,
            _ => &LIBFABRIC,
        }
    }
}

/// Source and dependencies of a program.
#[derive(Debug)]
struct Kit {
    library: &'static str,
    program: &'static str,
    source: &'static str,
    /// Arguments for the linker.
    libraries: &'static [&'static str],
    /// Header that only the development package contains.
    header: &'static str,
    /// Name of Debian's package.
    package: &'static str,
}

const LIBFABRIC: Kit = Kit {
    library: "libfabric",
    program: "fabricbench",
    source: include_str!("../../../bench/peers/fabricbench.c"),
    libraries: &["-lfabric"],
    header: "rdma/fabric.h",
    package: "libfabric-dev",
};

const UCX: Kit = Kit {
    library: "UCX",
    program: "ucxbench",
    source: include_str!("../../../bench/peers/ucxbench.c"),
    libraries: &["-lucp", "-lucs"],
    header: "ucp/api/ucp.h",
    package: "libucx-dev",
};

/// Built programs by name, or the reason why a program cannot be built here.
#[derive(Debug)]
pub(crate) struct Programs {
    compiler: &'static str,
    built: BTreeMap<&'static str, Result<TempDir, String>>,
}

impl Default for Programs {
    fn default() -> Programs {
        Programs {
            compiler: "cc",
            built: BTreeMap::new(),
        }
    }
}

impl Programs {
    /// Returns the executable of `competitor`'s program. It exists until `self` is dropped.
    ///
    /// # Errors
    /// A sentence that names the missing dependency, the same on each call.
    pub(crate) fn file(&mut self, competitor: Competitor) -> Result<PathBuf> {
        let kit = competitor.kit();
        let compiler = self.compiler;
        let built = self.built.entry(kit.program).or_insert_with(|| {
            // A failed build is not repeated for each row.
            build(kit, compiler).map_err(|error| format!("{error:#}"))
        });
        match built {
            Ok(directory) => Ok(directory.path().join(kit.program)),
            Err(why) => bail!("{why}"),
        }
    }
}

fn build(kit: &Kit, compiler: &str) -> Result<TempDir> {
    let directory = tempfile::tempdir().context("cannot create a directory for a program")?;
    let source = directory.path().join(kit.program).with_extension("c");
    fs::write(directory.path().join("work.h"), WORK)?;
    fs::write(&source, kit.source)?;
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-O2", "-o"])
        .arg(directory.path().join(kit.program))
        .arg(&source)
        .args(kit.libraries)
        .env("LC_ALL", "C");
    let built = match command.stdin(Stdio::null()).output() {
        Ok(built) => built,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("the C compiler `{compiler}` is not installed: apt install gcc")
        }
        Err(error) => return Err(error).context(format!("cannot start {compiler}")),
    };
    if built.status.success() {
        return Ok(directory);
    }
    let output = String::from_utf8_lossy(&built.stderr);
    if is_missing(kit, &output) {
        bail!(
            "{} has no development files on this host: apt install {}",
            kit.library,
            kit.package
        );
    }
    let first = output.lines().find(|line| line.contains("error"));
    bail!(
        "{compiler} cannot build {}: {}",
        kit.program,
        first.unwrap_or("no error message")
    );
}

/// Returns true if the compiler's output reports a missing library or header.
fn is_missing(kit: &Kit, output: &str) -> bool {
    let no_header = output.contains(kit.header) && output.contains("No such file");
    no_header || output.contains("cannot find -l")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_names_its_package() {
        let output = "x.c:9:10: fatal error: ucp/api/ucp.h: No such file or directory";
        assert!(is_missing(&UCX, output) && !is_missing(&LIBFABRIC, output));
        assert!(is_missing(&LIBFABRIC, "ld: cannot find -lfabric"));
        assert!(!is_missing(&UCX, "x.c:3: error: expected ';'"));
    }

    #[test]
    fn missing_compiler_is_reported_each_time() {
        let mut programs = Programs {
            compiler: "no-such-compiler",
            ..Programs::default()
        };
        for _ in 0..2 {
            let error = programs.file(Competitor::Ucx).expect_err("none");
            assert!(error.to_string().contains("apt install gcc"), "{error}");
        }
    }

    #[test]
    fn libraries_have_rows_on_supported_paths_only() {
        use Competitor::{LibfabricRxd, LibfabricShm, LibfabricTcp, Ucx};
        let on = |path| {
            [LibfabricTcp, LibfabricRxd, LibfabricShm, Ucx]
                .map(|one: Competitor| one.supports(path))
        };
        assert_eq!(on(Path::Shm), [false, false, true, true]);
        assert_eq!(on(Path::Auto), [true, true, false, true]);
        assert!(Competitor::measures(Metric::Rate) && !Competitor::measures(Metric::Logp));
    }
}
