// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of invalid settings: each is reported, with its name and the remedy, before anything is
//! sent.

use crate::common::ranks::{role, unique_word};
use crate::common::{self, Ended, refused, run};
use portolan::Node;
use portolan::binding::settings;
use std::fs::{self, File};
use std::process::Command;

ranks_of_this_module!(as_rank_args, ranks_command, alone);

/// Runs a rank that joins, and prints the error if it cannot; not a test of its own.
#[test]
fn as_rank() {
    if role().is_none() {
        return;
    }
    match Node::join() {
        Ok(mut node) => println!("\nmet: {}", node.barrier().is_ok()),
        Err(error) => {
            println!("\nrefused: {error}");
            std::process::exit(3);
        }
    }
}

/// Returns the output of a rank with this variable in its environment.
fn with(variable: &str, value: &str) -> Ended {
    let mut command = ranks_command(1, "join", &["--path", "shm"], &unique_word());
    command.env(variable, value).output().unwrap().into()
}

/// Includes settings that a job without a network does not use, because the next job may.
#[test]
fn a_value_that_cannot_be_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let garbage = directory.path().join("model.json");
    fs::write(&garbage, "garbage").unwrap();
    for (variable, value, words) in [
        ("PORTOLAN_PATH", "ether", ["PORTOLAN_PATH", "packet"]),
        ("PORTOLAN_VERBOSE", "yes", ["PORTOLAN_VERBOSE", "0 or 1"]),
        ("PORTOLAN_FABRIC", "yes", ["PORTOLAN_FABRIC", "0 or 1"]),
        ("PORTOLAN_LAUNCHER", "x", ["PORTOLAN_LAUNCHER", "none"]),
        ("PORTOLAN_INTERFACE", "x", ["interface", "127.0.0.1/8"]),
        ("PORTOLAN_NETWORK", "x0,y*", ["network", "127.0.0.1/8"]),
        ("PORTOLAN_PORTS", "5-4", ["ports", "20000-20100"]),
        ("PORTOLAN_NETWORK", "10.0/8", ["network", "not a subnet"]),
        ("PORTOLAN_FRAME_LEN_MAX", "x", ["frame_len_max", "512"]),
        ("PORTOLAN_FAULT", "x", ["fault", "drop="]),
        ("PORTOLAN_DIE", "x", ["die", "RANK"]),
        ("PORTOLAN_DIE", "1:sent:1", ["die", "from 0 to 0"]),
        ("PORTOLAN_PEER_TIMEOUT", "x", ["peer_timeout", "100ms"]),
        ("PORTOLAN_PCAP", "/nonexistent", ["pcap", "directory"]),
        ("PORTOLAN_MODEL", "/nonexistent", ["model", "tune"]),
        (
            "PORTOLAN_MODEL",
            garbage.to_str().unwrap(),
            ["not JSON", "tune"],
        ),
        ("PORTOLAN_SCHEDULE", "x", ["schedule", "fair"]),
        ("PORTOLAN_FRAGMENTS", "9:9", ["fragments", "whole"]),
        (
            "PORTOLAN_UNEXPECTED_MEMORY",
            "x",
            ["unexpected_memory", "64K"],
        ),
        ("PORTOLAN_PLACEMENT", "x", ["placement", "bounce"]),
        ("PORTOLAN_AUTH", "x", ["auth", "aead"]),
    ] {
        let mut command = alone("join");
        let ended = Ended::from(command.env(variable, value).output().unwrap());
        let told = ended.out.lines().find(|line| line.contains("refused: "));
        let told = told.unwrap_or_else(|| panic!("{variable}={value}: {}", ended.out));
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
    }
    assert!(with("PORTOLAN_VERBOSE", "0").out.contains("met: true"));
}

/// Reported once by the command, even if the program never joins, both for options of the job and
/// for variables.
#[test]
fn a_value_that_no_process_could_obey_starts_none() {
    for (name, value, words) in [
        ("network", "eth0,", ["network", "empty"]),
        ("ports", "20000", ["ports", "20000-20100"]),
        ("frame_len_max", "x", ["frame_len_max", "512"]),
        ("fault", "drop=2", ["fault", "drop"]),
        ("die", "99:", ["die", "write RANK:sent:N"]),
        ("die", "99:sent:1", ["die", "ranks from 0 to 1"]),
        ("peer_timeout", "x", ["peer_timeout", "100ms"]),
        ("schedule", "x", ["schedule", "fair"]),
        ("fragments", "9:9", ["fragments", "whole"]),
        ("unexpected_memory", "x", ["unexpected_memory", "64K"]),
        ("placement", "x", ["placement", "bounce"]),
        ("auth", "x", ["auth", "aead"]),
        ("checksum", "x", ["checksum", "auto"]),
    ] {
        let option = format!("{name}={value}");
        let variable = format!("PORTOLAN_{}={value}", name.to_uppercase());
        for given in [["-o", &option], ["-x", &variable]] {
            let err = refused(&[&["run", "-n", "2"], &given[..], &["--", "true"]].concat());
            assert!(words.iter().all(|word| err.contains(word)), "{err}");
        }
    }
}

/// A script may unset a variable with `NAME=`.
#[test]
fn an_empty_variable_is_not_set() {
    let mut command = ranks_command(1, "join", &[], &unique_word());
    for setting in settings::ALL {
        command.env(setting.variable, "");
    }
    let ended = Ended::from(command.output().unwrap());
    assert!(
        ended.out.contains("met: true"),
        "{}{}",
        ended.out,
        ended.err
    );
    let mut alone = alone("join");
    for setting in settings::ALL {
        alone.env(setting.variable, "");
    }
    let ended = Ended::from(alone.output().unwrap());
    assert!(
        ended.out.contains("met: true"),
        "{}{}",
        ended.out,
        ended.err
    );
}

/// Otherwise a job that should be sealed would silently run in the clear.
#[test]
fn a_name_that_is_no_setting_is_refused_with_the_closest_one() {
    let ended = with("PORTOLAN_ATUH", "aead");
    assert_eq!(ended.status, 2, "{}", ended.out);
    assert!(ended.err.contains("PORTOLAN_ATUH"), "{}", ended.err);
    assert!(ended.err.contains("is PORTOLAN_AUTH,"), "{}", ended.err);
    for option in ["atuh=aead", "colour=red"] {
        let err = refused(&["run", "-o", option, "--", "true"]);
        assert!(err.contains("the closest is "), "{err}");
    }
    let err = refused(&["run", "-o", "app.=red", "--", "true"]);
    assert!(
        err.contains("write app.NAME") && !err.contains("app.app."),
        "{err}"
    );
    let err = refused(&["run", "-x", "PORTOLAN_SCHEDLE=fair", "--", "true"]);
    assert!(err.contains("is PORTOLAN_SCHEDULE,"), "{err}");
    assert_eq!(
        run(&["run", "-o", "app.colour=red", "--", "true"]).status,
        0
    );
}

/// Without a launcher, only the library checks the names of a program's variables.
#[test]
fn library_rejects_an_unknown_setting() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(as_rank_args());
    command.env("PORTOLAN_TEST_ROLE", "join");
    command.env("PORTOLAN_PEER_TIMOUT", "1s");
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.status, 3, "{}", ended.out);
    assert!(
        ended.out.contains("is PORTOLAN_PEER_TIMEOUT,"),
        "{}",
        ended.out
    );
}

#[test]
fn useless_stored_model_is_reported_once_and_ignored() {
    let config = tempfile::tempdir().unwrap();
    fs::create_dir(config.path().join("portolan")).unwrap();
    fs::write(config.path().join("portolan/model.json"), "garbage").unwrap();
    let run = |args: &[&str]| -> Ended {
        let mut command = ranks_command(2, "join", args, &unique_word());
        let command = command.env("XDG_CONFIG_HOME", config.path());
        command.output().unwrap().into()
    };
    let ended = run(&[]);
    assert_eq!(ended.out.matches("met: true").count(), 2, "{}", ended.out);
    assert_eq!(
        ended.err.matches("it is not JSON").count(),
        1,
        "{}",
        ended.err
    );
    assert!(ended.err.contains("portolan tune"), "{}", ended.err);
    assert_eq!(run(&["--option", "model=off"]).err, "");
}

#[test]
fn mistyped_option_is_not_run_as_a_program() {
    let err = refused(&["run", "--auth", "aead", "--", "true"]);
    assert!(err.contains("--option auth="), "{err}");
    let ended = run(&["run", "--new-lab", "0", "--", "true"]);
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("--new-lab"), "{}", ended.err);
}

#[test]
fn results_that_cannot_be_written_are_refused_before_anything_is_measured() {
    for command in ["bench pingpong", "tune"] {
        let words = command.split(' ').chain(["--json", "/nonexistent/x.json"]);
        let err = refused(&words.collect::<Vec<_>>());
        assert!(err.contains("/nonexistent/x.json"), "{err}");
        assert!(err.contains("another --json"), "{err}");
    }
}

#[test]
fn full_output_device_is_reported() {
    for program in [["echo", "word"], ["yes", "word"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = common::portolan(&["run", "--"]);
        let output = command.args(program).stdout(full).output().unwrap();
        let ended = Ended::from(output);
        assert_eq!(ended.status, 1, "{}", ended.err);
        assert!(
            ended.err.contains("standard output cannot be written"),
            "{}",
            ended.err
        );
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
}
