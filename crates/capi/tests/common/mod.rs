// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiling C programs against the library of this build, and running them.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// What a job may take at most, in seconds: one that hangs is ended by its launcher.
const JOB_SECONDS: &str = "100";

/// Warnings are errors in everything that users may compile with theirs.
pub(crate) const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

/// Where this crate is.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo left the libraries: beside the test programs.
pub(crate) fn library_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().to_path_buf()
}

/// The command `portolan` of this build.
pub(crate) fn launcher() -> PathBuf {
    let path = library_dir().parent().unwrap().join("portolan");
    assert!(
        path.exists(),
        "{} is missing; run `cargo test -p portolan-capi -p portolan-gamma -p \
         portolan-cli`, which builds it",
        path.display()
    );
    path
}

/// A directory with what a test compiles, and a library under the name that programs use.
pub(crate) struct Workshop {
    dir: TempDir,
    name: &'static str,
}

impl Workshop {
    /// With lib`name`, which cargo has built as `file`.
    pub(crate) fn new(name: &'static str, file: &str) -> Workshop {
        let dir = tempfile::tempdir().unwrap();
        let library = library_dir().join(file);
        assert!(library.exists(), "{} is missing", library.display());
        for link in [format!("lib{name}.so"), format!("lib{name}.so.0")] {
            std::os::unix::fs::symlink(&library, dir.path().join(link)).unwrap();
        }
        Workshop { dir, name }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Compiles `source` with `flags` in front, and links it with the shared library.
    pub(crate) fn build(&self, compiler: &str, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.path().join(source.file_stem().unwrap());
        let dir = self.path().to_str().unwrap();
        let mut command = Command::new(compiler);
        command.args(flags).arg("-I").arg(here().join("include"));
        command.arg("-I").arg(here().join("tests/c"));
        command.arg(source).arg("-o").arg(&program);
        command.args([
            "-L",
            dir,
            &format!("-Wl,-rpath,{dir}"),
            &format!("-l{}", self.name),
            "-lm",
        ]);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        program
    }
}

/// Runs `program` as a job of `count` ranks; what it printed.
pub(crate) fn run_job(count: u32, options: &[&str], program: &Path, args: &[&str]) -> String {
    let mut command = Command::new(launcher());
    command.args(["run", "-n", &count.to_string(), "--timeout", JOB_SECONDS]);
    command.args(options).arg("--").arg(program).args(args);
    succeed(&mut command)
}

/// Runs a command and expects it to succeed; what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = &output;
    let out = String::from_utf8_lossy(stdout).into_owned();
    let err = String::from_utf8_lossy(stderr);
    assert!(
        status.success(),
        "{command:?}: {status}\nstandard output:\n{out}\nstandard error:\n{err}"
    );
    out
}
