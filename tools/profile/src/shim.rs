// SPDX-License-Identifier: MIT OR Apache-2.0
//! Library that is loaded between programs and their MPI, compiled once per MPI with its compiler.
//!
//! Handles and constants differ between MPIs, so the library cannot be shipped with Portolan. It is
//! stored in the user's cache under a hash of all its inputs, so a cached library is never
//! outdated.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thiserror::Error;

/// Sources, by the names used in their includes.
const SOURCES: [(&str, &str); 15] = [
    ("account.h", include_str!("../shim/account.h")),
    ("begin.h", include_str!("../shim/begin.h")),
    ("collectives.h", include_str!("../shim/collectives.h")),
    ("comms.h", include_str!("../shim/comms.h")),
    ("life.h", include_str!("../shim/life.h")),
    ("messages.h", include_str!("../shim/messages.h")),
    ("onesided.h", include_str!("../shim/onesided.h")),
    ("pace.h", include_str!("../shim/pace.h")),
    ("record.h", include_str!("../shim/record.h")),
    ("requests.h", include_str!("../shim/requests.h")),
    (MAIN, include_str!("../shim/shim.c")),
    ("state.h", include_str!("../shim/state.h")),
    ("waits.h", include_str!("../shim/waits.h")),
    ("windows.h", include_str!("../shim/windows.h")),
    ("wrap.h", include_str!("../shim/wrap.h")),
];

/// Source that includes the others.
const MAIN: &str = "shim.c";

/// Compiler options, without the one for [`Compiler::is_open_mpi`]. The library is loaded before
/// the program starts, so the TLS model `initial-exec` accesses thread-local variables without a
/// call. Two adjacent counters are incremented faster separately than by vector instructions.
const FLAGS: [&str; 6] = [
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-ftls-model=initial-exec",
    "-fno-tree-slp-vectorize",
];
/// Libraries to link, after the source.
const LIBRARIES: [&str; 2] = ["-ldl", "-pthread"];

/// Hexadecimal digits of a name in the cache, enough to exclude collisions.
const KEY_LEN: usize = 32;

/// Compiler of an MPI.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The command, such as `/usr/bin/mpicc.mpich`.
    pub command: PathBuf,
    /// Set if the MPI must be Open MPI; otherwise it must not be.
    pub is_open_mpi: bool,
    /// Version of the MPI, as reported by its launcher.
    pub version: String,
}

/// Reason why the library cannot be provided.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShimError {
    /// The user has no cache directory.
    #[error(
        "neither XDG_CACHE_HOME nor HOME names a cache directory for the profiling library; set one of them"
    )]
    NoDirectory,
    /// The directory has a character that separates the entries of LD_PRELOAD.
    #[error("the path {} has a space or a colon, which LD_PRELOAD does not support; set \
             XDG_CACHE_HOME to another directory", directory.display())]
    Unloadable {
        /// Cache directory.
        directory: PathBuf,
    },
    /// The system refuses to write it.
    #[error("the profiling library cannot be written to {} ({source}); make it writable, or set \
             XDG_CACHE_HOME to another directory", directory.display())]
    Unwritable {
        /// Cache directory.
        directory: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The compiler does not start.
    #[error("{} cannot be started ({source}): install the compiler of this MPI", command.display())]
    NoCompiler {
        /// Command of the compiler.
        command: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The compiler reports an error.
    #[error("{} cannot build the profiling library ({complaint}): install the compiler and the \
             headers of this MPI", command.display())]
    Refused {
        /// Command of the compiler.
        command: PathBuf,
        /// First line of its output with an error.
        complaint: String,
    },
}

/// Returns the library for the MPI of `compiler` from the cache, and builds it first if necessary.
///
/// # Errors
/// See [`ShimError`].
pub fn library(compiler: &Compiler) -> Result<PathBuf, ShimError> {
    let directory =
        cache(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")).ok_or(ShimError::NoDirectory)?;
    library_in(&directory, compiler)
}

/// Returns `portolan/profile` in the user's cache. Relative paths are ignored (XDG Base Directory
/// Specification).
fn cache(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let own = xdg.and_then(absolute);
    let cache = own.or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
    Some(cache.join("portolan/profile"))
}

fn library_in(directory: &Path, compiler: &Compiler) -> Result<PathBuf, ShimError> {
    if directory.to_string_lossy().contains([' ', ':']) {
        return Err(ShimError::Unloadable {
            directory: directory.to_owned(),
        });
    }
    let file = directory.join(format!("{}.so", key(compiler)));
    if file.is_file() {
        return Ok(file);
    }
    let unwritable = |source| ShimError::Unwritable {
        directory: directory.to_owned(),
        source,
    };
    fs::create_dir_all(directory).map_err(unwritable)?;
    let build = TempDir::with_prefix_in(".build-", directory).map_err(unwritable)?;
    for (name, text) in SOURCES {
        fs::write(build.path().join(name), text).map_err(unwritable)?;
    }
    compile(compiler, build.path())?;
    // A concurrent build produces the same file.
    fs::rename(build.path().join("shim.so"), &file).map_err(unwritable)?;
    Ok(file)
}

/// Returns the hash of all inputs of the library.
fn key(compiler: &Compiler) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for (name, text) in SOURCES {
        add(name.as_bytes());
        add(text.as_bytes());
    }
    add(compiler.command.as_os_str().as_encoded_bytes());
    add(compiler.version.as_bytes());
    add(&[u8::from(compiler.is_open_mpi)]);
    // The command line of the compiler wrapper. It changes if the MPI is moved or rebuilt.
    let shown = Command::new(&compiler.command)
        .arg("-show")
        .stdin(Stdio::null())
        .output();
    add(&shown.map(|shown| shown.stdout).unwrap_or_default());
    let mut key = hasher.finalize().to_hex().to_string();
    key.truncate(KEY_LEN);
    key
}

/// Compiles `shim.so` in `directory`, which contains the sources.
fn compile(compiler: &Compiler, directory: &Path) -> Result<(), ShimError> {
    let mut command = Command::new(&compiler.command);
    command.args(FLAGS).current_dir(directory);
    if compiler.is_open_mpi {
        command.arg("-DWANT_OPEN_MPI");
    }
    command.args(["-o", "shim.so", MAIN]).args(LIBRARIES);
    // The search for an error in the output assumes English.
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let ended = command.output().map_err(|source| ShimError::NoCompiler {
        command: compiler.command.clone(),
        source,
    })?;
    if ended.status.success() {
        return Ok(());
    }
    Err(ShimError::Refused {
        command: compiler.command.clone(),
        complaint: complaint(&String::from_utf8_lossy(&ended.stderr)),
    })
}

/// Returns the most relevant line of the compiler's output.
fn complaint(output: &str) -> String {
    let mut lines = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or("no error message");
    let error = lines.find(|line| line.contains("error") || line.contains("not found"));
    error.unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Returns a compiler that runs `script`.
    fn compiler(directory: &Path, script: &str) -> Compiler {
        let command = directory.join("mpicc");
        fs::write(&command, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        Compiler {
            command,
            is_open_mpi: false,
            version: "1.2".into(),
        }
    }

    #[test]
    fn every_included_source_exists() {
        let own = |line: &str| {
            line.strip_prefix("#include \"")
                .map(|rest| rest.replace('"', ""))
        };
        let included = SOURCES
            .iter()
            .flat_map(|(_, text)| text.lines().filter_map(own));
        let included: Vec<String> = included.collect();
        assert!(included.len() >= SOURCES.len() - 1, "{included:?}");
        for name in included {
            assert!(SOURCES.iter().any(|(known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn library_is_built_once_per_mpi() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        let log = directory.path().join("log");
        let script = format!(
            "echo \"$@\" >> {}; test \"$1\" = -show || {{ echo > shim.so; }}",
            log.display()
        );
        let mut mpicc = compiler(directory.path(), &script);
        let first = library_in(&cache, &mpicc).unwrap();
        assert!(first.is_file());
        assert_eq!(library_in(&cache, &mpicc).unwrap(), first);
        mpicc.version = "1.3".into();
        let second = library_in(&cache, &mpicc).unwrap();
        assert!(second.is_file() && second != first);
        let log = fs::read_to_string(log).unwrap();
        let built = log.lines().filter(|line| line.contains("-shared"));
        assert_eq!(built.count(), 2, "{log}");
        // No build directory is left.
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 2);
    }

    #[test]
    fn compiler_error_is_quoted_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        let script = "echo 'In file x:' >&2; echo 'x.c:1: error: no mpi.h' >&2; exit 1";
        let error = library_in(&cache, &compiler(directory.path(), script))
            .unwrap_err()
            .to_string();
        assert!(error.contains("(x.c:1: error: no mpi.h)"), "{error}");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);

        let none = Compiler {
            command: directory.path().join("none"),
            is_open_mpi: true,
            version: String::new(),
        };
        let error = library_in(&cache, &none).unwrap_err().to_string();
        assert!(error.contains("cannot be started"), "{error}");
        let spaced = directory.path().join("a b");
        let error = library_in(&spaced, &none).unwrap_err().to_string();
        assert!(error.contains("XDG_CACHE_HOME"), "{error}");
    }

    #[test]
    fn cache_belongs_to_the_user() {
        let some = |path: &str| Some(OsString::from(path));
        let own = PathBuf::from("/x/portolan/profile");
        assert_eq!(cache(some("/x"), some("/home/a")), Some(own));
        let below_home = PathBuf::from("/home/a/.cache/portolan/profile");
        assert_eq!(cache(some("x"), some("/home/a")), Some(below_home.clone()));
        assert_eq!(cache(None, some("/home/a")), Some(below_home));
        assert_eq!(cache(None, None), None);
    }
}
