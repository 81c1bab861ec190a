// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan profile` under installed MPIs: a program with known messages only, a
//! killed program, and commands without anything to count.

use crate::common::mpi::{self, Commands};
use crate::common::{self, Ended, portolan};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Time limit of a run, which ends a deadlocked one before the whole test run.
const PATIENCE_S: &str = "120";

/// An installed MPI, and the known program.
struct Mpi {
    launcher: String,
    /// Directory of the program, and of the cache of what `portolan profile` builds.
    room: TempDir,
}

impl Mpi {
    /// Finds Debian's MPI of this name; prints SKIPPED and returns `None` if it is not installed.
    fn find(name: &str) -> Option<Mpi> {
        let Commands { compiler, launcher } = mpi::find(name)?;
        let room = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/profile/known.c");
        let mut build = Command::new(compiler);
        build.args(["-std=gnu11", "-O2", "-Wall", "-Werror"]);
        // GCC takes MPICH's MPI_STATUSES_IGNORE for an array that is too short.
        build.args(["-Wno-stringop-overflow", "-o"]);
        build.arg(room.path().join("known")).arg(source);
        Ended::from(build.output().unwrap()).succeeded("the compiler");
        Some(Mpi { launcher, room })
    }

    fn program(&self) -> PathBuf {
        self.room.path().join("known")
    }

    /// Returns the command `portolan profile OPTIONS --`.
    fn command(&self, options: &[&str]) -> Command {
        let mut run = Command::new("timeout");
        run.args([PATIENCE_S, env!("CARGO_BIN_EXE_portolan"), "profile"]);
        run.args(options).arg("--");
        run.env("XDG_CACHE_HOME", self.room.path().join("cache"));
        mpi::allow(&mut run);
        run.stdin(Stdio::null());
        run
    }

    /// Runs `portolan profile OPTIONS -- COMMAND` to its end.
    fn profile(&self, options: &[&str], command: &[&str]) -> Ended {
        let mut run = self.command(options);
        run.args(command).output().unwrap().into()
    }

    /// Returns the profile of the three processes that `command` starts.
    fn counted(&self, command: &[&str]) -> Value {
        let file = self.room.path().join("profile.json");
        let ended = self.profile(&["--json", file.to_str().unwrap()], command);
        ended.succeeded("portolan profile");
        let json: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        assert_eq!(json["format"], "portolan-profile-1");
        assert_eq!(json["worlds"].as_array().unwrap().len(), 1);
        json
    }
}

/// Returns the messages and bytes of each size class.
fn classes(of: &Value) -> Vec<(u64, u64)> {
    let number = |class: &Value, name: &str| class[name].as_u64().unwrap();
    let classes = of.as_array().unwrap().iter();
    classes
        .map(|class| (number(class, "count"), number(class, "bytes")))
        .collect()
}

/// Returns the messages and bytes between rank `from` and rank `with`: sent, received, one-sided.
fn pair(world: &Value, from: usize, with: u64) -> [(u64, u64); 3] {
    let peers = world["processes"][from]["peers"].as_array().unwrap();
    let none = Value::Null;
    let found = peers
        .iter()
        .find(|peer| peer["rank"] == with)
        .unwrap_or(&none);
    ["sent", "received", "one_sided"].map(|what| {
        let number = |name: &str| found[what][name].as_u64().unwrap_or(0);
        (number("count"), number("bytes"))
    })
}

/// Returns the number of calls of a kind by rank `rank`.
fn calls(world: &Value, rank: usize, kind: &str) -> u64 {
    let kinds = world["processes"][rank]["kinds"].as_array().unwrap();
    let found = kinds.iter().find(|time| time["kind"] == kind);
    found.map_or(0, |time| time["calls"].as_u64().unwrap())
}

/// Asserts the counts of `profile/known.c`, which were determined by hand.
fn assert_is_the_known_program(world: &Value) {
    assert_eq!(world["process_count"], 3);
    assert_eq!(world["missing"].as_array().unwrap().len(), 0);
    // 7 bytes from 2 to 0 by reversed ranks | 40 five times, 10, 50 from each | none of hundreds |
    // 1000 from each | 12,000 twice | 100,000 from each.
    let messages = [
        (1, 7),
        (9, 360),
        (0, 0),
        (3, 3000),
        (2, 24_000),
        (3, 300_000),
    ];
    assert_eq!(classes(&world["sizes"]["messages"]), messages);
    let one_sided = [(0, 0), (0, 0), (2, 400), (0, 0), (0, 0), (0, 0)];
    assert_eq!(classes(&world["sizes"]["one_sided"]), one_sided);
    // An allreduce is two trees of 2 messages of 8 bytes, a broadcast one tree of 400-byte
    // messages; an all-to-all has 9 messages of 12 bytes.
    let collective = [(4, 32), (9, 108), (2, 800), (0, 0), (0, 0), (0, 0)];
    assert_eq!(classes(&world["sizes"]["of_collectives"]), collective);

    // Each rank sends 100,000, 50 and 1000 bytes to the next.
    let ring = (3, 101_050);
    let none = (0, 0);
    assert_eq!(pair(world, 0, 1), [(9, 101_260), none, none]);
    assert_eq!(pair(world, 1, 0), [none, (9, 101_260), (2, 400)]);
    assert_eq!(pair(world, 1, 2), [ring, none, none]);
    assert_eq!(pair(world, 2, 1), [none, ring, none]);
    assert_eq!(pair(world, 2, 0), [(6, 125_057), none, none]);
    assert_eq!(pair(world, 0, 2), [none, (6, 125_057), none]);

    // Rank 0: 5 sends, one synchronous send, one to MPI_PROC_NULL, one of 1000 bytes.
    assert_eq!(calls(world, 0, "Send"), 8);
    assert_eq!(calls(world, 1, "Recv"), 6);
    assert_eq!(calls(world, 1, "Probe"), 1);
    assert_eq!([0, 1, 2].map(|rank| calls(world, rank, "Sendrecv")), [1; 3]);
    assert_eq!([0, 1, 2].map(|rank| calls(world, rank, "Wait")), [3, 1, 3]);
    assert_eq!([0, 1, 2].map(|rank| calls(world, rank, "Start")), [2, 0, 2]);
    assert_eq!(
        [0, 1, 2].map(|rank| calls(world, rank, "Collective")),
        [3; 3]
    );
    assert_eq!(
        [0, 1, 2].map(|rank| calls(world, rank, "One-sided")),
        [2, 4, 2]
    );
    for process in world["processes"].as_array().unwrap() {
        assert_eq!(process["end"], "finalized");
        let kinds = process["kinds"].as_array().unwrap().iter();
        let in_mpi: f64 = kinds.map(|kind| kind["seconds"].as_f64().unwrap()).sum();
        let all = process["seconds"].as_f64().unwrap();
        let computing = process["computing_s"].as_f64().unwrap();
        assert!(
            (in_mpi + computing - all).abs() < 1e-6 * all,
            "{in_mpi} + {computing} != {all}"
        );
    }
}

fn counts_equal_a_hand_count(name: &str) {
    let Some(mpi) = Mpi::find(name) else { return };
    let program = mpi.program();
    let program = program.to_str().unwrap();
    let json = mpi.counted(&[&mpi.launcher, "-n", "3", program]);
    assert_eq!(json["worlds"][0]["program"], program);
    assert_is_the_known_program(&json["worlds"][0]);
    // Several programs in one job.
    let [one, two] = ["1", "2"];
    let json = mpi.counted(&[&mpi.launcher, "-n", one, program, ":", "-n", two, program]);
    assert_is_the_known_program(&json["worlds"][0]);
    // By the command's own support for MPI programs.
    let which = format!("--mpi={}", common::find_in_path(&mpi.launcher).display());
    let own = env!("CARGO_BIN_EXE_portolan");
    let json = mpi.counted(&[own, "mpirun", "--plain", &which, "-n", "3", program]);
    assert_is_the_known_program(&json["worlds"][0]);
}

fn killed_process_is_reported(name: &str) {
    let Some(mpi) = Mpi::find(name) else { return };
    let program = mpi.program();
    let kept = mpi.room.path().join("kept");
    let kept = kept.to_str().unwrap();
    let command = [&mpi.launcher, "-n", "3", program.to_str().unwrap(), "die"];
    let ended = mpi.profile(&["--keep", kept], &command);
    assert_ne!(ended.status, 0, "{}", ended.err);
    let reports = "rank 1 ended without MPI_Finalize: its figures extend to its last call";
    assert!(ended.err.contains(reports), "{}", ended.err);
    // Kept records can be read again, and are not mixed with those of another run.
    let again = common::run(&["profile", "--read", kept]);
    assert_eq!(again.status, 0, "{}", again.err);
    assert!(again.err.contains(reports), "{}", again.err);
    let mixed = mpi.profile(&["--keep", kept], &command);
    assert_eq!(mixed.status, 2);
    assert!(
        mixed.err.contains("holds records of another run"),
        "{}",
        mixed.err
    );
}

/// Returns true if three processes have started their records: an empty record has no magic yet.
fn have_begun(directory: &Path) -> bool {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let begun = |path: PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"PTLNMPI"));
    files.filter(|file| begun(file.path())).count() == 3
}

fn interrupted_run_reports_partial_counts(name: &str) {
    let Some(mpi) = Mpi::find(name) else { return };
    let kept = mpi.room.path().join("kept");
    let mut run = mpi.command(&["--keep", kept.to_str().unwrap()]);
    run.args([&mpi.launcher, "-n", "3"])
        .arg(mpi.program())
        .arg("stay");
    let child = run
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = common::KillOnDrop(child);
    common::wait_until("three processes begin", || have_begun(&kept));
    // `timeout` forwards the signal.
    common::kill(i32::try_from(child.0.id()).unwrap(), "-TERM");
    let mut reports = String::new();
    child
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut reports)
        .unwrap();
    // The exit status is the launcher's; MPICH's does not always report a failure.
    child.0.wait().unwrap();
    assert!(
        reports.contains("known: 3 processes on 1 host"),
        "{reports}"
    );
    assert!(reports.contains("ended without MPI_Finalize"), "{reports}");
}

fn programs_without_mpi_leave_no_record(name: &str) {
    let Some(mpi) = Mpi::find(name) else { return };
    let ended = mpi.profile(&[], &[&mpi.launcher, "-n", "2", "true"]);
    assert_eq!(ended.status, 2, "{}", ended.err);
    assert!(
        ended.err.contains("no process left a record"),
        "{}",
        ended.err
    );
    let failed = mpi.profile(&[], &[&mpi.launcher, "-n", "1", "sh", "-c", "exit 7"]);
    assert_eq!(failed.status, 7, "{}", failed.err);
    assert!(
        failed.err.contains("no process reached MPI_Init"),
        "{}",
        failed.err
    );
}

#[test]
fn counts_equal_a_hand_count_under_open_mpi() {
    counts_equal_a_hand_count("openmpi");
}

#[test]
fn counts_equal_a_hand_count_under_mpich() {
    counts_equal_a_hand_count("mpich");
}

#[test]
fn killed_process_is_reported_and_its_record_kept_under_open_mpi() {
    killed_process_is_reported("openmpi");
}

#[test]
fn killed_process_is_reported_and_its_record_kept_under_mpich() {
    killed_process_is_reported("mpich");
}

#[test]
fn a_signal_ends_open_mpis_launcher_and_not_the_profile() {
    interrupted_run_reports_partial_counts("openmpi");
}

#[test]
fn a_signal_ends_mpichs_launcher_and_not_the_profile() {
    interrupted_run_reports_partial_counts("mpich");
}

#[test]
fn programs_without_mpi_are_reported_under_open_mpi() {
    programs_without_mpi_leave_no_record("openmpi");
}

#[test]
fn programs_without_mpi_are_reported_under_mpich() {
    programs_without_mpi_leave_no_record("mpich");
}

#[test]
fn a_command_that_starts_no_mpi_is_refused() {
    for (args, word) in [
        (
            ["profile", "--", "true"].as_slice(),
            "true is not a launcher of an MPI",
        ),
        (
            &["profile", "--", "/nowhere/mpirun", "-n", "2", "true"],
            "not found",
        ),
        (&["profile", "--read", "/nowhere"], "cannot be read"),
        (
            &["profile", "--json", "/nowhere/a", "--", "mpirun", "true"],
            "name another --json",
        ),
    ] {
        let reports = common::refused(args);
        assert!(reports.contains(word), "{reports}");
    }
    let empty = tempfile::tempdir().unwrap();
    let reports = common::refused(&["profile", "--read", empty.path().to_str().unwrap()]);
    assert!(reports.contains("there are no records"), "{reports}");
}

/// Creates a directory with a launcher that only reports its version.
fn lone_launcher() -> TempDir {
    let room = tempfile::tempdir().unwrap();
    common::write_command(
        &room.path().join("mpirun"),
        "echo 'mpirun (Open MPI) 4.1.4'",
    );
    room
}

#[test]
fn missing_mpi_compiler_error_names_the_package() {
    let room = lone_launcher();
    let launcher = room.path().join("mpirun");
    let reports = common::refused(&[
        "profile",
        "--",
        launcher.to_str().unwrap(),
        "-n",
        "2",
        "true",
    ]);
    assert!(reports.contains("there is no mpicc next to"), "{reports}");
    assert!(reports.contains("libopenmpi-dev"), "{reports}");
}

#[test]
fn compiler_error_is_quoted() {
    let room = lone_launcher();
    let script = "echo 'mpi.h: No such file: error' >&2; exit 1";
    common::write_command(&room.path().join("mpicc"), script);
    let mut run = portolan(&["profile", "--"]);
    run.arg(room.path().join("mpirun"))
        .args(["-n", "2", "true"]);
    run.env("XDG_CACHE_HOME", room.path().join("cache"));
    let ended = Ended::from(run.output().unwrap());
    assert_eq!(ended.status, 2);
    assert!(
        ended.err.contains("(mpi.h: No such file: error)"),
        "{}",
        ended.err
    );
}
