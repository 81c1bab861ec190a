// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the programs of `examples/npb` under installed MPIs, with their own transports: the
//! programs verify their results, and spoilt results fail.

mod component;

use crate::common::Ended;
use crate::common::mpi::{self, Commands};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAMS: [&str; 8] = ["ep", "is", "cg", "mg", "ft", "lu", "sp", "bt"];
/// Time limit of a program with class S, which ends a deadlocked one before the whole test run.
const PATIENCE_S: &str = "600";

/// An installed MPI with the programs, built to detect undefined behaviour.
struct Mpi {
    launcher: String,
    programs: tempfile::TempDir,
}

/// Returns the directory of the programs' sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/npb")
}

impl Mpi {
    /// Finds Debian's MPI of this name; prints SKIPPED and returns `None` if it is not installed.
    fn find(name: &str) -> Option<Mpi> {
        let Commands { compiler, launcher } = mpi::find(name)?;
        let programs = tempfile::tempdir().unwrap();
        let mut make = Command::new("make");
        make.arg("-C").arg(sources());
        make.arg(format!("OUT={}", programs.path().display()));
        make.arg(format!("MPICC={compiler}"));
        make.arg("CFLAGS=-O2 -Werror -fsanitize=undefined -fno-sanitize-recover");
        Ended::from(make.output().unwrap()).succeeded("make");
        Some(Mpi { launcher, programs })
    }

    fn run(&self, processes: usize, program: &str, args: &[&str]) -> Ended {
        let mut run = Command::new("timeout");
        run.args([PATIENCE_S, &self.launcher, "-n", &processes.to_string()]);
        run.arg(self.programs.path().join(program)).args(args);
        mpi::allow(&mut run);
        run.stdin(Stdio::null()).output().unwrap().into()
    }
}

fn verify_and_do_not(name: &str) {
    let Some(mpi) = Mpi::find(name) else { return };
    for program in PROGRAMS {
        for processes in [1, 2, 4] {
            let out = mpi.run(processes, program, &["S"]).succeeded(program);
            let name = program.to_uppercase();
            let begin = format!("npb name={name} class=S processes={processes} ");
            let result = out.lines().find(|line| line.starts_with(&begin));
            let result = result.unwrap_or_else(|| panic!("no {begin}in {out}"));
            assert!(result.ends_with(" verification=passed"), "{out}");

            let spoilt = mpi.run(processes, program, &["S", "--corrupt"]);
            assert_ne!(spoilt.status, 0, "{program}: {}", spoilt.out);
            assert!(
                spoilt.out.contains(" verification=failed"),
                "{program}: {}",
                spoilt.out
            );
        }
        let out = mpi.run(2, program, &["S", "--json"]).succeeded(program);
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["name"], program.to_uppercase());
        assert_eq!(json["processes"], 2);
        assert_eq!(json["verification"], "passed");
    }
    let odd = mpi.run(3, "cg", &["S"]);
    assert_ne!(odd.status, 0);
    assert!(odd.err.contains("power of two"), "{}", odd.err);
    let unknown = mpi.run(1, "ep", &["Z"]);
    assert_ne!(unknown.status, 0);
    assert!(unknown.err.contains("class"), "{}", unknown.err);
}

#[test]
fn programs_verify_with_open_mpi_and_what_is_spoilt_does_not() {
    verify_and_do_not("openmpi");
}

#[test]
fn programs_verify_with_mpich_and_what_is_spoilt_does_not() {
    verify_and_do_not("mpich");
}
