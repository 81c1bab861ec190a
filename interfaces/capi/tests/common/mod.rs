// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiling C programs against the library of this build, and running them.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Time limit of a job in seconds, after which the launcher ends it.
const JOB_SECONDS: &str = "100";

/// Flags that make warnings errors in all code that users may compile with theirs.
pub(crate) const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

/// Returns the directory of this crate.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory in which cargo put the libraries, beside the test programs.
pub(crate) fn library_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().to_path_buf()
}

/// Returns the command `portolan` of this build.
pub(crate) fn launcher() -> PathBuf {
    let path = library_dir().parent().unwrap().join("portolan");
    assert!(
        path.exists(),
        "{} is missing; run the tests with `-p portolan-cli`, too, or \
         `cargo build -p portolan-cli`",
        path.display()
    );
    path
}

/// Returns the header that cbindgen generates from `sources`, in that order, of the crate at
/// `root`.
fn generated_header(root: &Path, sources: &[&str]) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in sources {
        builder = builder.with_src(root.join(format!("src/{name}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

/// Compares the committed header at `path` with the sources; writes it instead if the variable
/// `update` is set.
pub(crate) fn compare_header(path: &str, sources: &[&str], update: &str) {
    compare_header_of(here(), path, sources, update);
}

/// Same as [`compare_header`], for the crate at `root`, called by a test of this crate.
pub(crate) fn compare_header_of(root: &Path, path: &str, sources: &[&str], update: &str) {
    let path = root.join(path);
    let new = generated_header(root, sources);
    if std::env::var_os(update).is_some() {
        std::fs::write(&path, &new).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == new,
        "{} does not match the sources; run `{update}=1 cargo test -p {} --test header` and \
         commit it",
        path.display(),
        env!("CARGO_PKG_NAME")
    );
}

/// Returns the symbols exported by a library that cargo has built.
pub(crate) fn exported(library: &str) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only"]);
    let out = succeed(nm.arg(library_dir().join(library)));
    let names = out
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    names.map(str::to_owned).collect()
}

/// Returns the functions that `header` declares; all their names begin with `prefix`.
pub(crate) fn declared(header: &str, prefix: &str) -> BTreeSet<String> {
    let lines = header.lines();
    let code = lines.filter(|line| !line.starts_with([' ', '#', '/']));
    let names = code.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        before.split([' ', '*']).next_back()
    });
    let functions = names.filter(|name| name.starts_with(prefix));
    functions.map(str::to_owned).collect()
}

/// Asserts that every function of `names` is called in one of the test programs, given as their
/// texts.
pub(crate) fn assert_all_called(names: &BTreeSet<String>, programs: &[&str]) {
    for name in names {
        let call = format!("{name}(");
        let is_called = programs.iter().any(|program| program.contains(&call));
        assert!(is_called, "no test calls {name}");
    }
}

/// Asserts that `header` defines the published numbers, each given as `NAME NUMBER`.
pub(crate) fn assert_defines(header: &str, published: &[&str]) {
    for line in published {
        assert!(header.contains(&format!("#define {line}\n")), "{line}");
    }
}

/// Compiles the C++ program `source` with strict compilers, and runs it.
pub(crate) fn check_cpp(shop: &Workshop, source: &str) {
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no C++ compiler here");
        return;
    }
    let source = here().join("tests/c").join(source);
    for standard in ["-std=c++11", "-std=c++20"] {
        let program = shop.build("c++", &source, &[STRICT, &[standard]].concat());
        succeed(&mut Command::new(program));
    }
}

/// Flags for all sanitizers.
pub(crate) const SANITIZERS: &[&str] =
    &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Flags for the detection of undefined behaviour only, without memory checks.
pub(crate) const UNDEFINED: &[&str] = &["-fsanitize=undefined", "-fno-sanitize-recover=all"];

/// Builds a test program in C with all sanitizers.
pub(crate) fn checked(shop: &Workshop, name: &str) -> PathBuf {
    test_program(shop, name, SANITIZERS)
}

/// Builds a test program in C.
pub(crate) fn test_program(shop: &Workshop, name: &str, flags: &[&str]) -> PathBuf {
    let plain = ["-std=c11", "-g", "-D_GNU_SOURCE", "-pthread"];
    let source = here().join("tests/c").join(name);
    shop.build("cc", &source, &[&plain, STRICT, flags].concat())
}

/// A directory for compiled test programs, with a library under its installed name.
pub(crate) struct Workshop {
    dir: TempDir,
    name: &'static str,
}

impl Workshop {
    /// Creates a directory with lib`name`, which cargo has built as `file`.
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

    /// Compiles `source` with `flags` first, and links it with the shared library.
    pub(crate) fn build(&self, compiler: &str, source: &Path, flags: &[&str]) -> PathBuf {
        let program = self.path().join(source.file_stem().unwrap());
        let dir = self.path().to_str().unwrap();
        let mut command = Command::new(compiler);
        command.args(flags).arg("-I").arg(here().join("include"));
        command.arg("-I").arg(here().join("tests/c"));
        command
            .arg("-I")
            .arg(here().join("../../interfaces/capi/tests/common"));
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

/// Returns `true` if this process may create network namespaces; otherwise prints that tests are
/// skipped.
pub(crate) fn can_make_labs() -> bool {
    let may = Command::new("unshare")
        .args(["--net", "--mount", "true"])
        .status();
    let can =
        may.is_ok_and(|status| status.success()) && Command::new("ip").arg("-V").output().is_ok();
    if !can {
        eprintln!("SKIPPED: between hosts: this needs root, network namespaces and iproute2");
    }
    can
}

/// A lab of two hosts, removed on drop.
pub(crate) struct Lab(String);

impl Lab {
    /// Creates the lab of `test`.
    pub(crate) fn up(test: &str) -> Lab {
        let lab = Lab(format!("{test}{}", std::process::id()));
        let make = ["lab", "up", "--hosts", "2", "--name", &lab.0];
        succeed(Command::new(launcher()).args(make));
        lab
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let remove = ["lab", "down", "--name", &self.0];
        let _ = Command::new(launcher()).args(remove).output();
    }
}

/// Returns the paths between processes for a conformance program: within this host, and between two
/// hosts of a lab if one can be created. Some also run with a lossy network.
pub(crate) fn path_options() -> Vec<Vec<&'static str>> {
    const LOSS: &str = "fault=drop=0.01,seed=5";
    let mut path_options = vec![
        vec!["--path", "shm"],
        vec!["--path", "udp"],
        vec!["--path", "udp", "--option", LOSS],
    ];
    if can_make_labs() {
        for path in ["udp", "packet"] {
            path_options.push(vec!["--new-lab", "2", "--path", path]);
        }
        path_options.push(vec!["--new-lab", "2", "--path", "auto", "--option", LOSS]);
    }
    path_options
}

/// Time limit for ranks that a busy machine delays. Dead ranks are detected by other means.
const PATIENCE: &str = "peer_timeout=60s";

/// Returns the command that runs `program` as a job of `count` ranks.
pub(crate) fn job(count: u32, options: &[&str], program: &Path, args: &[&str]) -> Command {
    job_within(JOB_SECONDS, count, options, program, args)
}

/// Same as [`job`], with a time limit of `seconds`.
pub(crate) fn job_within(
    seconds: &str,
    count: u32,
    options: &[&str],
    program: &Path,
    args: &[&str],
) -> Command {
    let mut command = Command::new(launcher());
    command.args(["run", "-n", &count.to_string(), "--timeout", seconds]);
    command.args(["--option", PATIENCE]);
    command.args(options).arg("--").arg(program).args(args);
    command.stdin(Stdio::null());
    command
}

/// Runs `program` as a job of `count` ranks and returns its output.
pub(crate) fn run_job(count: u32, options: &[&str], program: &Path, args: &[&str]) -> String {
    succeed(&mut job(count, options, program, args))
}

/// Runs `program` as a job of two with each of `path_options`, and checks that both ranks report
/// their end under the given names.
pub(crate) fn assert_both_done(
    program: &Path,
    path_options: &[Vec<&str>],
    args: &[&str],
    names: [&str; 2],
) {
    for options in path_options {
        let out = run_job(2, options, program, args);
        for name in names {
            let line = format!("{name} is done");
            assert!(
                out.contains(&line),
                "{options:?}: {line} is missing in\n{out}"
            );
        }
    }
}

/// Runs a command, expects it to succeed, and returns its output.
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
