// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of MPI programs over Open MPI's component btl/portolan, on one host and between the hosts
//! of a lab.
//!
//! `component.c` plays the scenes and compares the received contents. The component is linked with
//! the static library of this build.

use super::{PATIENCE_S, PROGRAMS, sources};
use crate::common::labs::Lab;
use crate::common::mpi::{self, Commands};
use crate::common::{Ended, KillOnDrop, built, can_make_labs, copy_program, kill, portolan};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Scenes of `component.c` for two or more ranks. Open MPI 4.1 without the component also passes
/// them, except `windows` between hosts, which it does not support.
const SCENES: [&str; 7] = [
    "offsets",
    "alltoallw",
    "lengths",
    "unexpected",
    "probes",
    "windows",
    "threads",
];

/// The command `portolan`, the component next to it, and programs.
struct Stage {
    room: tempfile::TempDir,
    launcher: String,
}

impl Stage {
    /// Builds everything. Without Open MPI and its internal headers it prints SKIPPED and returns `None`.
    fn build() -> Option<Stage> {
        let Commands { compiler, launcher } = mpi::find("openmpi")?;
        let room = tempfile::tempdir().unwrap();
        let archive = built("portolan-openmpi", "libportolan_openmpi.a");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-openmpi.sh");
        let mut build = Command::new(script);
        build.arg(archive).arg(room.path());
        build.env("OPENMPI_MPICC", &compiler);
        let told = Ended::from(build.output().unwrap()).succeeded("build-openmpi.sh");
        if let Some(why) = told.lines().find(|line| line.contains("SKIPPED")) {
            eprintln!("{why}");
            return None;
        }
        // `portolan` searches for the component in its own directory.
        let program = room.path().join("portolan");
        copy_program(env!("CARGO_BIN_EXE_portolan").as_ref(), &program);
        let mut compile = Command::new(&compiler);
        compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
        compile.arg(room.path().join("component"));
        compile.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/npb/component.c"));
        Ended::from(compile.output().unwrap()).succeeded("mpicc");
        let mut make = Command::new("make");
        make.arg("-C").arg(sources());
        make.arg(format!("OUT={}", room.path().display()));
        make.arg(format!("MPICC={compiler}"));
        Ended::from(make.output().unwrap()).succeeded("make");
        Some(Stage { room, launcher })
    }

    /// Returns the launcher's command up to the program, on this host or on the hosts of `lab`.
    fn command(&self, lab: Option<&Lab>, ranks: usize) -> Command {
        let mut run = Command::new("timeout");
        run.arg(PATIENCE_S).arg(self.room.path().join("portolan"));
        match lab {
            Some(lab) => run.args(["lab", "mpirun", "--name", &lab.0, "--mpi", "openmpi", "-n"]),
            None => run.args(["mpirun", "--mpi", "openmpi", "--oversubscribe", "-n"]),
        };
        run.arg(ranks.to_string()).args(["--via", "btl"]);
        // A loaded machine may stop a process for longer than the default.
        run.env("PORTOLAN_PEER_TIMEOUT", "100s");
        mpi::allow(&mut run);
        run
    }

    fn play(&self, lab: Option<&Lab>, ranks: usize, words: &[&str]) {
        let mut run = self.command(lab, ranks);
        run.arg(self.room.path().join("component")).args(words);
        check(run, ranks, words);
    }

    fn verify(&self, lab: Option<&Lab>, ranks: usize) {
        for program in PROGRAMS {
            let mut run = self.command(lab, ranks);
            run.arg(self.room.path().join(program)).arg("S");
            let ended = Ended::from(run.stdin(Stdio::null()).output().unwrap());
            assert!(
                ended.err.contains("OMPI_MCA_btl=self,vader,portolan"),
                "{}",
                ended.err
            );
            let out = ended.succeeded(program);
            assert!(out.contains(" verification=passed"), "{out}");
        }
    }
}

/// Runs a scene, and asserts that no element is wrong.
fn check(mut run: Command, ranks: usize, words: &[&str]) {
    let ended = Ended::from(run.stdin(Stdio::null()).output().unwrap());
    let expected = format!("{} ranks={ranks} wrong=0\n", words[0]);
    let (out, err) = (&ended.out, &ended.err);
    assert!(
        ended.status == 0 && out.ends_with(&expected),
        "{words:?}: {out}\n{err}"
    );
}

#[test]
fn programs_are_right_over_the_component_between_hosts() {
    let Some(stage) = Stage::build().filter(|_| can_make_labs()) else {
        return;
    };
    let lab = Lab::up("btl", "2");
    for scene in SCENES {
        stage.play(Some(&lab), 2, &[scene]);
    }
    // More ranks than hosts, so that vader is used together with the component.
    for scene in ["offsets", "lengths", "windows"] {
        stage.play(Some(&lab), 4, &[scene]);
    }
    // Open MPI 4.1 itself starts children on one host only; half of their parents are on the other.
    let host = format!("{}-h1:2", lab.0);
    stage.play(Some(&lab), 2, &["spawn", &host]);
    // Its osc rdma deadlocks from 4.1.2 to 4.1.4 (docs/guide/mpi.md).
    let mut run = stage.command(Some(&lab), 2);
    run.env("OMPI_MCA_osc", "pt2pt");
    run.arg(stage.room.path().join("component")).arg("dynamic");
    check(run, 2, &["dynamic"]);
    stage.verify(Some(&lab), 2);
    stage.verify(Some(&lab), 4);
}

/// The job must end by itself with a failure, and not by the time limit.
#[test]
fn a_killed_rank_ends_the_job_over_the_component() {
    let Some(stage) = Stage::build().filter(|_| can_make_labs()) else {
        return;
    };
    let lab = Lab::up("btlk", "2");
    for ranks in [2, 3] {
        let mut run = stage.command(Some(&lab), ranks);
        run.arg(stage.room.path().join("component")).arg("killed");
        let ended = Ended::from(run.stdin(Stdio::null()).output().unwrap());
        // `timeout` exits with 124.
        assert!(![0, 124].contains(&ended.status), "{}", ended.err);
        let said = [&ended.out[..], &ended.err].concat();
        assert!(
            said.contains("signal 9") || said.contains("the peer failed"),
            "{said}"
        );
    }
}

/// Plays the scene `text` between the hosts of `lab`, with these options before the program, and
/// returns the frames sent meanwhile.
fn frames_of_text(stage: &Stage, lab: &Lab, options: &[&str]) -> Vec<u8> {
    let path = stage.room.path().join("frames.pcap");
    let mut capture = portolan(&["lab", "capture", "--name", &lab.0, "--output"]);
    capture
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut capture = KillOnDrop(capture.spawn().unwrap());
    let mut notice = String::new();
    let mut err = BufReader::new(capture.0.stderr.take().unwrap());
    err.read_line(&mut notice).unwrap();
    assert!(notice.contains("recording"), "{notice}");
    let mut run = stage.command(Some(lab), 2);
    run.args(options);
    run.arg(stage.room.path().join("component")).arg("text");
    check(run, 2, &["text"]);
    kill(i32::try_from(capture.0.id()).unwrap(), "-INT");
    assert!(capture.0.wait().unwrap().success());
    std::fs::read(path).unwrap()
}

#[test]
fn encrypted_programs_are_right_and_send_no_plain_text() {
    let Some(stage) = Stage::build().filter(|_| can_make_labs()) else {
        return;
    };
    let lab = Lab::up("btle", "2");
    let has_text = |frames: &[u8]| frames.windows(14).any(|bytes| bytes == b"in plain text,");
    assert!(has_text(&frames_of_text(&stage, &lab, &[])));
    let frames = frames_of_text(&stage, &lab, &["--encrypt"]);
    assert!(frames.len() > 600_000 && !has_text(&frames));
    for scene in SCENES {
        let mut run = stage.command(Some(&lab), 2);
        run.arg("--encrypt");
        run.arg(stage.room.path().join("component")).arg(scene);
        check(run, 2, &[scene]);
    }
}

/// Open MPI's own variables reach every program of the job.
#[test]
fn several_programs_of_one_job_use_the_component() {
    let Some(stage) = Stage::build().filter(|_| can_make_labs()) else {
        return;
    };
    let lab = Lab::up("btlm", "2");
    let program = stage.room.path().join("component");
    let mut run = stage.command(Some(&lab), 1);
    run.arg(&program).args(["lengths", ":", "-n", "1"]);
    run.arg(&program).arg("lengths");
    check(run, 2, &["lengths"]);
}

#[test]
fn programs_are_right_beside_the_component_within_a_host() {
    let Some(stage) = Stage::build() else { return };
    for scene in SCENES {
        stage.play(None, 2, &[scene]);
    }
    stage.play(None, 2, &["dynamic"]);
    // vader does not reach processes that are started later, but the component does.
    stage.play(None, 2, &["spawn"]);
    // Windows with the component's remote memory, including that of the process itself.
    let mut run = stage.command(None, 2);
    run.env("OMPI_MCA_osc", "rdma");
    run.env("OMPI_MCA_osc_rdma_btls", "portolan");
    run.arg(stage.room.path().join("component")).arg("windows");
    check(run, 2, &["windows"]);
    stage.verify(None, 2);
}

#[test]
fn a_job_that_does_not_name_the_component_does_not_use_it() {
    let Some(stage) = Stage::build() else { return };
    let folder = std::fs::read_dir(stage.room.path()).unwrap().flatten();
    let mut folder = folder
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    let folder = folder.next().unwrap();
    let path = format!("{}:SYSTEM_DEFAULT", folder.display());
    for (btl, is_used) in [
        (None, false),
        (Some("^tcp"), false),
        (Some("self,portolan"), true),
    ] {
        let mut run = Command::new("timeout");
        run.args([PATIENCE_S, &stage.launcher, "-n", "2"]);
        mpi::allow(&mut run);
        run.env("OMPI_MCA_mca_base_component_path", &path);
        run.env("OMPI_MCA_btl_base_verbose", "100");
        if let Some(btl) = btl {
            run.env("OMPI_MCA_btl", btl);
        }
        run.arg(stage.room.path().join("component")).arg("lengths");
        let ended = Ended::from(run.stdin(Stdio::null()).output().unwrap());
        assert!(
            ended.out.ends_with("lengths ranks=2 wrong=0\n"),
            "{}",
            ended.err
        );
        let line = "init of component portolan returned success";
        assert_eq!(ended.err.contains(line), is_used, "{btl:?}: {}", ended.err);
    }
}
