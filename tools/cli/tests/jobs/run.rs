// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan run` with programs that do not use Portolan.

use crate::common::{
    self, Ended, KillOnDrop, LOCAL_SSH, give_ssh, kill, portolan, processes_with, refused, run,
    unique_sleep, wait_until,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn any_program_runs_once_a_rank() {
    let ended = run(&[
        "run",
        "-n",
        "3",
        "--tag-output",
        "--",
        "echo",
        "hello",
        "-n",
    ]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert_eq!(
        sorted_lines(&ended.out),
        ["[0] hello -n", "[1] hello -n", "[2] hello -n"]
    );
}

#[test]
fn output_without_tags_passes_unchanged() {
    let script = r"printf 'text\n\377\000no end'; printf 'error\n' >&2";
    let output = portolan(&["run", "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"text\n\xff\0no end");
    assert_eq!(output.stderr, b"error\n");
}

#[test]
fn large_output_is_complete_through_a_slow_reader() {
    let ended = run(&["run", "-n", "2", "--", "seq", "200000"]);
    assert_eq!(ended.status, 0);
    assert_eq!(ended.out.lines().count(), 400_000);
    let script = format!(
        "{} run -- seq 300000 | (sleep 0.5; tail -n 1)",
        env!("CARGO_BIN_EXE_portolan")
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"300000\n");
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let script = format!(
        "{} run -- yes {} | head -n 1",
        env!("CARGO_BIN_EXE_portolan"),
        unique_sleep()
    );
    let patience = common::PATIENCE.as_secs().to_string();
    let ended = std::process::Command::new("timeout")
        .args([&patience, "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn exit_status_of_the_failed_program_is_passed_on() {
    let ended = run(&["run", "-n", "2", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ended.status, 3);
    assert!(ended.err.contains("failed: exit status 3"), "{}", ended.err);
}

#[test]
fn killed_rank_is_named_and_ends_the_job() {
    let sleep = unique_sleep();
    let program = ["run", "-n", "3", "--grace-ms", "100", "--", "sleep", &sleep];
    let mut job = KillOnDrop(
        portolan(&program)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let ranks = || {
        let running = processes_with(&format!("sleep\0{sleep}"));
        running
            .into_iter()
            .filter(|pid| !is_portolan(*pid))
            .collect::<Vec<_>>()
    };
    wait_until("three ranks", || ranks().len() == 3);
    kill(ranks()[1], "-9");
    let mut err = String::new();
    std::io::Read::read_to_string(job.0.stderr.as_mut().unwrap(), &mut err).unwrap();
    assert_eq!(job.0.wait().unwrap().code(), Some(137));
    assert!(
        err.contains("failed: killed by signal 9 (SIGKILL)"),
        "{err}"
    );
    assert!(err.starts_with("portolan: rank "), "{err}");
    assert_eq!(ranks(), [] as [i32; 0]);
}

/// Returns true if the process is `run` itself. Its command line contains that of its ranks.
fn is_portolan(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("portolan"))
}

/// Starts ranks that start processes of their own, inside and outside of their process group, and
/// returns when all of them run.
fn start_tree(sleep: &str) -> KillOnDrop {
    let script = format!("sleep {sleep} & setsid sleep {sleep} & sleep {sleep}");
    let job = portolan(&["run", "-n", "2", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    let job = KillOnDrop(job);
    wait_until("six sleepers", || {
        processes_with(&format!("sleep\0{sleep}")).len() == 6
    });
    job
}

#[test]
fn ended_orphans_of_a_rank_are_reaped() {
    // The parent of a rank is the agent, and it inherits the orphans.
    let script = r#"
        for i in 1 2 3 4 5 6 7 8; do sh -c 'sleep 0.01 & exit'; done
        zombies() { cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z $PPID "; }
        sleep 0.2
        for i in $(seq 100); do [ "$(zombies)" = 0 ] && break; sleep 0.1; done
        echo "zombies $(zombies)""#;
    let ended = portolan(&["run", "-n", "1", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(out.trim(), "zombies 0");
}

#[test]
fn nothing_is_left_when_run_is_killed() {
    let sleep = unique_sleep();
    let job = start_tree(&sleep);
    kill(i32::try_from(job.0.id()).unwrap(), "-9");
    wait_until("no process left", || processes_with(&sleep).is_empty());
}

#[test]
fn nothing_is_left_when_the_agent_is_killed() {
    let sleep = unique_sleep();
    let mut job = start_tree(&sleep);
    let run = job.0.id();
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap();
    kill(children.trim().parse().unwrap(), "-9");
    assert_eq!(job.0.wait().unwrap().code(), Some(1));
    assert_eq!(processes_with(&sleep), [] as [i32; 0]);
}

#[test]
fn interrupting_run_ends_the_ranks_with_the_status_of_a_shell() {
    let sleep = unique_sleep();
    let mut job = start_tree(&sleep);
    kill(i32::try_from(job.0.id()).unwrap(), "-TERM");
    assert_eq!(job.0.wait().unwrap().code(), Some(143));
    assert_eq!(processes_with(&sleep), [] as [i32; 0]);
}

#[test]
fn ranks_that_ignore_signals_are_killed() {
    let sleep = unique_sleep();
    let script = format!("trap '' TERM; test $0 = x; sleep {sleep}; sleep {sleep}");
    let ended = run(&[
        "run",
        "-n",
        "2",
        "--timeout",
        "0.3",
        "--grace-ms",
        "100",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(ended.status, 124);
    assert!(ended.err.contains("after 0.3 s"), "{}", ended.err);
    assert_eq!(processes_with(&sleep), [] as [i32; 0]);
}

#[test]
fn programs_that_cannot_start_are_named_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = directory.path().join(name);
        common::write_program(&path, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cases = [
        ("no-such-program".to_owned(), "not found"),
        (file("plain", "", 0o644), "not executable"),
        (
            file("script", "#!/no/such/interpreter\n", 0o755),
            "interpreter",
        ),
        (
            directory.path().to_str().unwrap().to_owned(),
            "is a directory",
        ),
    ];
    for (program, word) in cases {
        let err = refused(&["run", "-n", "2", "--", &program]);
        assert!(err.contains(word) && err.contains(&program), "{err}");
    }
}

/// A process that fails to allocate memory, and does not handle it, can only abort.
#[test]
fn the_limit_behind_an_abort_is_named() {
    let script = r#"ulimit -v 8000000; exec "$0" run -- sh -c 'kill -ABRT $$'"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_portolan")]);
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.status, 134, "{}", ended.err);
    let words = "address space here is 8192000000 bytes; raise it (ulimit -v)";
    assert!(ended.err.contains(words), "{}", ended.err);
    let ended = run(&["run", "--", "sh", "-c", "kill -ABRT $$"]);
    assert!(!ended.err.contains("ulimit"), "{}", ended.err);
}

#[test]
fn mistakes_get_one_sentence_and_status_two() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    let hosts_name = hosts.to_str().unwrap();
    fs::write(&hosts, "n1 slots=2\n# fine\nn2 slots=many\n").unwrap();
    let err = refused(&["run", "--hosts", hosts_name, "--", "true"]);
    assert!(
        err.contains(&format!("{hosts_name} line 3: ")) && err.contains("many"),
        "{err}"
    );

    fs::write(&hosts, "# nobody\n").unwrap();
    assert!(refused(&["run", "--hosts", hosts_name, "--", "true"]).contains("names no host"));

    fs::write(&hosts, "n1 slots=2\n").unwrap();
    let err = refused(&["run", "-n", "3", "--hosts", hosts_name, "--", "true"]);
    assert!(
        err.contains("3 processes do not fit into the 2 slots of 1 host"),
        "{err}"
    );

    let err = refused(&["run", "--hosts", "/no/such/file", "--", "true"]);
    assert!(err.contains("/no/such/file"), "{err}");
    assert!(refused(&["run", "-n", "0", "--", "true"]).contains("-n 1"));
    assert!(refused(&["run", "-n", "4", "--per-host", "2", "--", "true"]).contains("--per-host"));
    assert!(refused(&["run", "-o", "x", "--", "true"]).contains("NAME=VALUE"));
    assert!(refused(&["run", "-x", "NOT_SET_ANYWHERE", "--", "true"]).contains("NOT_SET"));
    for nameless in ["=x", "", "="] {
        let err = refused(&["run", "-x", nameless, "--", "true"]);
        assert!(
            err.contains(nameless) && err.contains("write --env NAME=VALUE"),
            "{err}"
        );
    }
    for no_time in ["0", "-1", "nan", "inf", "x", "1e300", "1e19"] {
        let ended = run(&["run", &format!("--timeout={no_time}"), "--", "true"]);
        assert_eq!(ended.status, 2, "{no_time}: {}", ended.err);
        let told = format!("'{no_time}' is not a time; use seconds from 0.001 to 31536000");
        assert!(ended.err.contains(&told), "{}", ended.err);
    }
    let err = refused(&["run", "--directory", "/no/such/dir", "--", "true"]);
    assert!(err.contains("/no/such/dir"), "{err}");
}

/// Runs the command with a script of the test as ssh.
fn with_ssh(directory: &Path, script: &str, args: &[&str]) -> common::Ended {
    let mut command = portolan(args);
    give_ssh(&mut command, directory, script);
    command.output().unwrap().into()
}

#[test]
fn hosts_of_a_file_are_reached_through_ssh() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "nodeA slots=2\nuser@nodeB slots=2\n").unwrap();
    let args = [
        "run",
        "-n",
        "3",
        "--tag-output",
        "--hosts",
        hosts.to_str().unwrap(),
        "--remote-program",
        env!("CARGO_BIN_EXE_portolan"),
        "--",
        "sh",
        "-c",
        "echo $FAKE_HOST $PORTOLAN_MARK",
    ];
    let ended = with_ssh(directory.path(), LOCAL_SSH, &args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert_eq!(
        sorted_lines(&ended.out),
        ["[0] nodeA", "[1] nodeA", "[2] user@nodeB"]
    );
}

#[test]
fn hosts_that_cannot_be_reached_are_named_with_what_ssh_said() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "nodeA\n").unwrap();
    let args = ["run", "--hosts", hosts.to_str().unwrap(), "--", "true"];
    let said = [
        (
            "echo 'no such name nodeA' >&2; exit 255",
            "cannot reach host nodeA: no such name nodeA",
        ),
        (
            "echo 'portolan: not found' >&2; exit 127",
            "portolan was not found on host nodeA",
        ),
    ];
    for (script, sentence) in said {
        let ended = with_ssh(directory.path(), script, &args);
        assert_eq!(ended.status, 2, "{}", ended.err);
        assert!(ended.err.contains(sentence), "{}", ended.err);
    }
}

/// As after `make install PREFIX=$HOME/.local` on all hosts, where a shell started by ssh has a
/// shorter `PATH`.
#[test]
fn hosts_run_the_command_of_the_same_path() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "nodeA\n").unwrap();
    let args = ["run", "--hosts", hosts.to_str().unwrap(), "--", "true"];
    // Start-up files may print text, with or without an end of line.
    let chatty = format!("echo welcome; printf 'no mail'\n{LOCAL_SSH}");
    let ended = with_ssh(directory.path(), &chatty, &args);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}

#[test]
fn silent_remote_program_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "nodeA\n").unwrap();
    let sleep = unique_sleep();
    let silent = directory.path().join("silent");
    common::write_command(&silent, &format!("exec sleep {sleep}"));
    let args = [
        "run",
        "--hosts",
        hosts.to_str().unwrap(),
        "--remote-program",
        silent.to_str().unwrap(),
        "--",
        "true",
    ];
    let ended = with_ssh(directory.path(), LOCAL_SSH, &args);
    assert_eq!(ended.status, 2, "{}", ended.err);
    for word in ["nodeA", "--remote-program", "--version"] {
        assert!(ended.err.contains(word), "{}", ended.err);
    }
    assert_eq!(processes_with(&sleep), [] as [i32; 0]);
}

#[test]
fn a_connection_that_breaks_fails_the_job_and_names_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "nodeA\n").unwrap();
    let sleep = unique_sleep();
    let args = [
        "run",
        "--hosts",
        hosts.to_str().unwrap(),
        "--remote-program",
        env!("CARGO_BIN_EXE_portolan"),
        "--",
        "sh",
        "-c",
        &format!("kill -9 $PPID; sleep {sleep}"),
    ];
    let ended = with_ssh(directory.path(), LOCAL_SSH, &args);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert!(
        ended.err.contains("the connection to host nodeA ended"),
        "{}",
        ended.err
    );
    assert_eq!(processes_with(&sleep), [] as [i32; 0]);
}

#[test]
fn programs_begin_with_no_signal_blocked() {
    let ended = run(&["run", "--", "grep", "SigBlk", "/proc/self/status"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    let mask = ended.out.split_whitespace().last().unwrap();
    assert_eq!(u64::from_str_radix(mask, 16), Ok(0), "{}", ended.out);
}
