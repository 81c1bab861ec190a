// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of one program under other launchers: a PMI-1 server of the test, and installed ones. This
//! test program itself is started as each rank.

use crate::common::labs::unique_name;
use crate::common::pmi::{self, Left};
use crate::common::ranks::role;
use crate::common::{
    Ended, LOCAL_SSH, can_make_labs, give_ssh, portolan, refused, run, write_command,
};
use portolan::binding::launch::FD_VARIABLE;
use portolan::{Error, Node, PortConfig, Target};
use std::process::{Command, Output, Stdio};

ranks_of_this_module!(as_rank_args, run_ranks, alone);

const PORT: u16 = 3;

/// Runs one rank of a job; not a test of its own. Does nothing without a role.
#[test]
fn as_rank() {
    let Some(role) = role() else {
        return;
    };
    let mut node = Node::join().unwrap();
    match role.as_str() {
        "ring" => ring(&mut node),
        "abort" if node.rank() == 1 => {
            node.abort(42, "bad input");
            std::process::exit(42);
        }
        "deserter" if node.rank() == 1 => std::process::exit(3),
        "looks" if node.rank() == 1 => look_for(&mut node, 0),
        "alone" | "looks" => {}
        _ => node.barrier().unwrap(),
    }
    println!("\nrank {} of {} is done", node.rank(), node.size());
}

/// Passes a word around with the name of the job, so that a message of another job is detected.
fn ring(node: &mut Node) {
    let job = std::env::var("JOB_NAME").unwrap_or_default();
    node.open(PORT, PortConfig::default()).unwrap();
    let next = Target::new((node.rank() + 1) % node.size(), PORT);
    let previous = (node.rank() + node.size() - 1) % node.size();
    for turn in 0..200 {
        let word = format!("{job} {} {turn}", node.rank());
        node.send(next, word.as_bytes()).unwrap();
        let mut buf = [0; 64];
        let got = node.recv_from(previous, PORT, &mut buf).unwrap();
        let expected = format!("{job} {previous} {turn}");
        assert_eq!(&buf[..got.len], expected.as_bytes());
    }
    node.barrier().unwrap();
}

/// Tests for a message of `peer` until the peer is known to have failed.
fn look_for(node: &mut Node, peer: u32) {
    node.open(PORT, PortConfig::default()).unwrap();
    let request = node.post_recv_from(peer, PORT, vec![0; 8]).unwrap();
    let error = loop {
        match node.test(request) {
            Ok(None) => std::thread::yield_now(),
            Ok(Some(done)) => panic!("{done:?} was never sent"),
            Err(error) => break error,
        }
    };
    let named = matches!(error.error(), Error::PeerGone { rank, .. } if *rank == peer);
    assert!(named, "{error}");
}

/// Returns a command for this program in `role`, as a child of a launcher of the test.
fn rank_in(role: &str) -> Command {
    let mut command = alone(role);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn finish(ranks: Vec<(Left, std::process::Child)>) -> Vec<(Left, Output)> {
    let wait =
        |(left, child): (Left, std::process::Child)| (left, child.wait_with_output().unwrap());
    ranks.into_iter().map(wait).collect()
}

/// Expects that all ranks of `job` did their part.
fn expect_ring(job: &str, ended: &[(Left, Output)]) {
    for (rank, (left, output)) in ended.iter().enumerate() {
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{job} rank {rank}: {out}{err}");
        assert_eq!(*left, Left::Well, "{job} rank {rank}");
        let done = format!("rank {rank} of {} is done", ended.len());
        assert!(out.contains(&done), "{job}: {out}");
    }
}

#[test]
fn a_pmi_server_starts_a_job() {
    let ended = finish(pmi::serve("kvs_1", 3, |_| {
        let mut command = rank_in("ring");
        command.env("PORTOLAN_VERBOSE", "1");
        command
    }));
    expect_ring("kvs_1", &ended);
    for (rank, (_, output)) in ended.iter().enumerate() {
        let err = String::from_utf8_lossy(&output.stderr);
        let found = format!("PMI-1 (PMI_FD); rank {rank} of 3; {rank} of 3 on this host; 1 host;");
        assert!(err.contains(&found), "{err}");
    }
}

/// No launcher reports the end: it is detected between the tests.
#[test]
fn polled_receive_fails_when_its_sender_ended_before_any_session() {
    for path in ["shm", "udp"] {
        let ended = finish(pmi::serve("kvs_1", 2, |_| {
            let mut command = rank_in("looks");
            command.env("PORTOLAN_PATH", path);
            command
        }));
        for (_, output) in ended {
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{path}: {err}");
        }
    }
}

#[test]
fn several_jobs_on_one_host_do_not_disturb_one_another() {
    // All jobs have the same name at their launchers, and half of them also use the network links.
    let jobs: Vec<_> = (0..4)
        .map(|index| {
            std::thread::spawn(move || {
                let name = format!("job{index}");
                let path = if index % 2 == 0 { "auto" } else { "udp" };
                let ended = finish(pmi::serve("kvs_same", 2, |_| {
                    let mut command = rank_in("ring");
                    command.env("JOB_NAME", &name).env("PORTOLAN_PATH", path);
                    command
                }));
                expect_ring(&name, &ended);
            })
        })
        .collect();
    jobs.into_iter().for_each(|job| job.join().unwrap());
}

/// On raw Ethernet, frames of all jobs arrive at the same interface.
#[test]
fn several_jobs_share_the_hosts_of_a_lab() {
    if !can_make_labs() {
        return;
    }
    let lab = unique_name("jobs");
    let up = run(&["lab", "up", "--name", &lab]);
    assert_eq!(up.status, 0, "{}", up.err);
    let _down = Down(lab.clone());
    let jobs: Vec<_> = ["packet", "packet", "udp"]
        .into_iter()
        .enumerate()
        .map(|(index, path)| {
            let lab = lab.clone();
            std::thread::spawn(move || {
                let name = format!("JOB_NAME=job{index}");
                let args = [
                    "--lab", &lab, "--map-by", "node", "--path", path, "--env", &name,
                ];
                let out = run_ranks(4, "ring", &args).succeeded(&name);
                for rank in 0..4 {
                    assert!(out.contains(&format!("rank {rank} of 4 is done")), "{out}");
                }
            })
        })
        .collect();
    jobs.into_iter().for_each(|job| job.join().unwrap());
}

#[test]
fn an_abort_reaches_the_launcher() {
    // The other rank would wait; its launcher, which is this test, would end it.
    let mut ranks = pmi::serve("kvs_1", 2, |rank| {
        rank_in(if rank == 1 { "abort" } else { "alone" })
    });
    assert_eq!(ranks[1].0, Left::Abort(42));
    let mut said = String::new();
    let stderr = ranks[1].1.stderr.as_mut().unwrap();
    std::io::Read::read_to_string(stderr, &mut said).unwrap();
    assert!(said.contains("rank 1 aborts the job: bad input"), "{said}");
    for (_, child) in &mut ranks {
        let _ = child.kill();
        child.wait().unwrap();
    }
}

#[test]
fn without_a_word_is_not_well() {
    let mut ranks = pmi::serve("kvs_1", 2, |rank| {
        rank_in(if rank == 1 { "deserter" } else { "alone" })
    });
    let left = ranks.iter().map(|(left, _)| *left).collect::<Vec<_>>();
    assert_eq!(left, [Left::Well, Left::Silently]);
    ranks.iter_mut().for_each(|(_, child)| {
        child.wait().unwrap();
    });
}

#[test]
fn standalone_setting_disables_launcher_detection() {
    let output = rank_in("alone")
        .env("PMIX_NAMESPACE", "nobody")
        .env("PMIX_RANK", "0")
        .env("PORTOLAN_LAUNCHER", "none")
        .env("PORTOLAN_VERBOSE", "1")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert!(
        err.contains("PORTOLAN_LAUNCHER=none; a job of one"),
        "{err}"
    );
}

/// Returns true if a launcher is installed; prints SKIPPED if not.
fn is_installed(launcher: &str) -> bool {
    let there = Command::new(launcher).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED: {launcher} is not installed");
    }
    there
}

/// Runs this program in `role` by `command`, which starts a program; returns its status and output.
fn run_by(command: &mut Command, role: &str) -> (Option<i32>, String) {
    let output = command
        .arg(std::env::current_exe().unwrap())
        .args(as_rank_args())
        .stdin(Stdio::null())
        .env("PORTOLAN_TEST_ROLE", role)
        .env("PORTOLAN_VERBOSE", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env_remove(FD_VARIABLE)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

/// Runs a ring of `count` ranks by `command`; returns its output.
fn run_ring(mut command: Command, count: u32) -> String {
    let (status, text) = run_by(&mut command, "ring");
    assert_eq!(status, Some(0), "{command:?}: {text}");
    for rank in 0..count {
        let found = format!("; rank {rank} of {count}; ");
        let done = format!("rank {rank} of {count} is done");
        assert!(text.contains(&found) && text.contains(&done), "{text}");
    }
    text
}

/// Checks that an installed launcher starts a job, which detects it by `how`, and ends one that
/// aborts.
fn start_and_end(launcher: &[&str], how: &str) {
    if !is_installed(launcher[0]) {
        return;
    }
    let command = || {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).args(["-n", "2"]);
        command
    };
    let text = run_ring(command(), 2);
    assert!(text.contains(how), "{text}");
    let (status, text) = run_by(&mut command(), "abort");
    // Launchers may lose the last output of a rank, but they pass on its status.
    assert_eq!(status, Some(42), "{text}");
}

#[test]
fn the_hydra_of_mpich_starts_and_ends_a_job() {
    start_and_end(&["mpiexec.hydra"], "PMI-1");
}

#[test]
fn open_mpi_starts_and_ends_a_job() {
    start_and_end(&["mpirun.openmpi", "--oversubscribe"], "PMIx");
}

#[test]
fn launchers_of_mpi_reach_the_hosts_of_a_lab() {
    let mpis = [("openmpi", "mpirun.openmpi"), ("mpich", "mpiexec.hydra")];
    let mpis = mpis
        .into_iter()
        .filter(|(_, launcher)| is_installed(launcher));
    let mpis: Vec<_> = mpis.collect();
    if mpis.is_empty() || !can_make_labs() {
        return;
    }
    let name = unique_name("mpi");
    let lab = run(&["lab", "up", "--name", &name]);
    assert_eq!(lab.status, 0, "{}", lab.err);
    let _down = Down(name.clone());
    for (mpi, _) in mpis {
        let args = ["lab", "mpirun", "--name", &name, "--plain", "--mpi", mpi];
        let text = run_ring(portolan(&[&args[..], &["-n", "3"]].concat()), 3);
        // Round robin: ranks 0 and 2 are on host 0.
        assert!(
            text.contains("rank 2 of 3; 1 of 2 on this host; 2 hosts"),
            "{text}"
        );
        assert!(
            text.contains("rank 1 of 3; 0 of 1 on this host; 2 hosts"),
            "{text}"
        );
    }
}

/// Removes the lab when a test ends, however it ends.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}

#[test]
fn mpirun_says_what_it_would_do_or_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let launcher = dir.path().join("mpirun");
    // Written by another process: a child forked by another test while the file is open for writing
    // here would make it "busy".
    let script = "printf '#!/bin/sh\\necho \"mpirun (Open MPI) 4.1.4\"\\n' > $0; chmod +x $0";
    let made = Command::new("sh")
        .args(["-c", script])
        .arg(&launcher)
        .status();
    assert!(made.unwrap().success());
    let launcher = launcher.to_str().unwrap();

    let args = ["mpirun", "--mpi", launcher, "--provider-dir", empty];
    let error = refused(&[&args[..], &["-n", "2", "x"]].concat());
    assert!(
        error.contains("libportolan-fi.so") && error.contains(empty),
        "{error}"
    );

    let error = refused(&[&args[..], &["--via", "btl", "-n", "2", "x"]].concat());
    assert!(error.contains("--provider-dir"), "{error}");

    std::fs::write(dir.path().join("libportolan-fi.so"), "").unwrap();
    let ended = run(&[&args[..], &["--dry-run", "-n", "2", "x", "--mpi", "y"]].concat());
    assert_eq!((ended.status, ended.out.as_str()), (0, ""), "{}", ended.err);
    // The warning about Open MPI 4.1, and the line with the command.
    assert_eq!(ended.err.lines().count(), 2, "{}", ended.err);
    assert!(ended.err.contains("libopenmpi-dev"), "{}", ended.err);
    assert!(
        ended.err.contains("OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi"),
        "{}",
        ended.err
    );
    assert!(ended.err.ends_with(" -n 2 x --mpi y\n"), "{}", ended.err);

    // Options before the program are Portolan's wherever they stand; options after it are the
    // program's.
    let args = [
        "mpirun",
        "-n",
        "2",
        "--dry-run",
        "--mpi",
        launcher,
        "--plain",
    ];
    let ended = run(&[&args[..], &["/bin/true", "--mpi", "y"]].concat());
    assert_eq!(ended.status, 0, "{}", ended.err);
    let line = format!("{launcher} -n 2 /bin/true --mpi y\n");
    assert!(ended.err.ends_with(&line), "{}", ended.err);

    let error = refused(&["mpirun", "--mpi", "/bin/true", "-n", "2", "x"]);
    assert!(error.contains("/bin/true"), "{error}");
}

/// A launcher that prints its hosts file.
const SHOW_HOSTS: &str = r#"
test "$1" = --version && { echo "mpirun (Open MPI) 4.1.4"; exit; }
test "$1" = --default-hostfile && cat "$2"; shift 2
echo "then $*""#;

/// Runs `portolan mpirun --hosts` with [`SHOW_HOSTS`]; `ssh` replaces the program that reaches the
/// hosts.
fn mpirun_on_hosts(ssh: &str) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    write_command(&dir.path().join("mpirun"), SHOW_HOSTS);
    std::fs::write(path("libportolan-fi.so"), "").unwrap();
    std::fs::write(path("hosts"), "node.invalid slots=2\nuser@other.invalid\n").unwrap();
    let mut command = portolan(&["mpirun", "-n", "3"]);
    command
        .args(["--hosts", &path("hosts"), "--mpi", &path("mpirun")])
        .args(["--provider-dir", &path("")])
        .args(["/bin/true", "--hosts", "of the program"])
        .env_remove("SLURM_JOB_ID");
    give_ssh(&mut command, dir.path(), ssh);
    command.output().unwrap().into()
}

#[test]
fn mpirun_hands_hosts_on_and_asks_them_for_the_provider() {
    let ended = mpirun_on_hosts(LOCAL_SSH);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let (hosts, program) = ended
        .out
        .split_once("then -n 3 ")
        .expect("what the launcher got");
    assert_eq!(hosts, "node.invalid slots=2\nuser@other.invalid slots=1\n");
    assert_eq!(program, "/bin/true --hosts of the program\n");
}

#[test]
fn mpirun_names_hosts_without_the_provider_before_it_starts() {
    let lacks = format!("test \"$6\" = user@other.invalid && exit 3\n{LOCAL_SSH}");
    for (ssh, words) in [
        (lacks.as_str(), ["user@other.invalid", "--provider-dir"]),
        ("echo no route >&2; exit 255", ["node.invalid", "no route"]),
    ] {
        let ended = mpirun_on_hosts(ssh);
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{}", ended.err);
        for word in words {
            assert!(ended.err.contains(word), "{}", ended.err);
        }
    }
}
