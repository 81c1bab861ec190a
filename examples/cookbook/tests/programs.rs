// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the programs of the cookbook, in Rust and in C: within a host by each path, between two hosts,
//! with loss, and with a killed process where the program survives that.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../interfaces/capi/tests/common/mod.rs"]
mod common;

use common::{SANITIZERS, STRICT, Workshop, can_make_labs, here, job, run_job, succeed};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LOSS: &str = "fault=drop=0.01,seed=7";

/// A program in its two languages, and the directory with the second one.
struct Program {
    rust: PathBuf,
    c: PathBuf,
    shop: Workshop,
}

macro_rules! program {
    ($name:literal) => {
        Program::new($name, env!(concat!("CARGO_BIN_EXE_cookbook_", $name)))
    };
}

impl Program {
    fn new(name: &str, rust: &str) -> Program {
        let shop = Workshop::new("portolan", "libportolan_c.so");
        let header = here().join("../../interfaces/capi/include");
        let source = here().join(format!("{name}.c"));
        let plain = [
            "-std=c11",
            "-O1",
            "-g",
            "-D_GNU_SOURCE",
            "-ffp-contract=off",
        ];
        let include = ["-I", header.to_str().unwrap()];
        let c = shop.build(
            "cc",
            &source,
            &[&plain[..], &include[..], SANITIZERS, STRICT].concat(),
        );
        let rust = PathBuf::from(rust);
        Program { rust, c, shop }
    }

    fn both(&self) -> [&Path; 2] {
        [&self.rust, &self.c]
    }

    /// Checks that jobs of `count` processes print `expected`, in any order of their lines, by all
    /// paths.
    fn prints(&self, count: u32, args: &[&str], expected: &str) {
        for program in self.both() {
            for options in paths() {
                let out = run_job(count, &options, program, args);
                assert_eq!(
                    sorted(&out),
                    sorted(expected),
                    "{} {options:?}",
                    program.display()
                );
            }
        }
    }
}

/// Returns the options of all paths: within a host, between two hosts, and with loss.
fn paths() -> Vec<Vec<&'static str>> {
    let mut paths = vec![
        vec!["--path", "shm"],
        vec!["--path", "udp"],
        vec!["--path", "udp", "--option", LOSS],
    ];
    if can_make_labs() {
        paths.push(vec!["--new-lab", "2"]);
        paths.push(vec!["--new-lab", "2", "--path", "packet"]);
        paths.push(vec!["--new-lab", "2", "--link", "loss=1%"]);
    }
    paths
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns the number of lines of a program that are neither empty nor comments.
fn line_count(name: &str) -> usize {
    let text = std::fs::read_to_string(here().join(name)).unwrap();
    let is_code = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty()
            && !["//", "/*", " *", "*"]
                .iter()
                .any(|mark| line.starts_with(mark))
    };
    text.lines().filter(is_code).count()
}

#[test]
fn no_program_is_longer_than_its_other_form() {
    for (name, other) in [
        ("word_count", "mpi"),
        ("halo", "mpi"),
        ("task_farm", "mpi"),
        ("sample_sort", "mpi"),
        ("key_value", "mpi"),
        ("parameter_server", "zmq"),
        ("rpc", "zmq"),
        ("chat", "zmq"),
    ] {
        let lines = line_count(&format!("others/{name}_{other}.c"));
        for language in ["rs", "c"] {
            let own = line_count(&format!("{name}.{language}"));
            println!("{name}.{language}: {own} lines, {lines} with {other}");
            assert!(
                own <= lines,
                "{name}.{language}: {own} lines, {lines} with {other}"
            );
        }
    }
}

/// Returns the other forms of programs with file names that end in `end`.
fn other_forms(end: &str) -> Vec<PathBuf> {
    let others = std::fs::read_dir(here().join("others")).unwrap();
    let paths = others.map(|source| source.unwrap().path());
    let forms: Vec<_> = paths
        .filter(|path| path.to_str().unwrap().ends_with(end))
        .collect();
    assert!(!forms.is_empty(), "no form ends with {end}");
    forms
}

const C11: [&str; 5] = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];

#[test]
fn forms_in_mpi_are_programs() {
    if Command::new("mpicc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: mpicc is not installed");
        return;
    }
    for source in other_forms("_mpi.c") {
        let mut compile = Command::new("mpicc");
        succeed(compile.args(C11).arg("-fsyntax-only").arg(source));
    }
}

#[test]
fn forms_in_zeromq_are_programs() {
    let probe = Path::new("/usr/include/zmq.h");
    if !probe.exists() {
        eprintln!("SKIPPED: ZeroMQ's header is not installed (Debian's package libzmq3-dev)");
        return;
    }
    let shop = Workshop::new("portolan", "libportolan_c.so");
    for source in other_forms("_zmq.c") {
        let program = shop.path().join(source.file_stem().unwrap());
        let mut compile = Command::new("cc");
        compile.args(C11).arg("-o").arg(&program).arg(&source);
        succeed(compile.arg("-lzmq"));
    }
    let port = free_address().rsplit_once(':').unwrap().1.to_owned();
    let line_with = |victim: &str| {
        let mut server = Command::new(shop.path().join("parameter_server_zmq"));
        let out = server.args(["3", &port, "60", victim]).output().unwrap();
        let line = String::from_utf8(out.stdout).unwrap();
        // A worker of a loaded machine may also be silent for too long.
        assert!(line.starts_with("60 steps, parameter 70210, "), "{line}");
        line
    };
    line_with("0");
    // A worker that begins after the last step ends as usual, and is not lost.
    let mut lines = (0..20).map(|_| line_with("2"));
    assert!(lines.any(|line| !line.ends_with(" 0 lost\n")));
}

#[test]
fn ring_passes_the_token() {
    let program = program!("ring");
    program.prints(3, &["5"], "5 laps through 3 processes: 15\n");
}

#[test]
fn messages_of_unknown_length_are_received() {
    let lines = "100000 bytes from rank 1\n200000 bytes from rank 2\n";
    program!("unknown_length").prints(3, &[], lines);
}

#[test]
fn words_are_counted() {
    let program = program!("word_count");
    let mut text = String::new();
    for i in 0..3000_usize {
        let word = ["ahoy", "Portolan", "the", "THE", "sea", "of", "x"][i % 7];
        write!(text, "{word}{}", if i % 11 == 0 { ", the\n" } else { " " }).unwrap();
    }
    let file = program.shop.path().join("text");
    std::fs::write(&file, &text).unwrap();
    // 3000 words in turn, of which two are "the", and 273 more of that one.
    let expected = "3273 words, 6 different\n1131 the\n429 ahoy\n429 portolan\n428 of\n428 sea\n";
    program.prints(3, &[file.to_str().unwrap()], expected);
}

#[test]
fn halo_exchange_does_not_depend_on_the_processes() {
    let program = program!("halo");
    let alone = run_job(1, &[], &program.rust, &["20"]);
    assert!(alone.starts_with("20 steps: heat "), "{alone}");
    for count in [2, 3] {
        program.prints(count, &["20"], &alone);
    }
}

#[test]
fn task_farm_counts_primes() {
    // Sloane's A006880: there are 2,262 primes below 20,000.
    program!("task_farm").prints(3, &["20000"], "2262 primes below 20000\n");
}

#[test]
fn samples_sort_numbers() {
    let program = program!("sample_sort");
    program.prints(3, &["2000"], "6000 numbers are sorted\n");
    program.prints(1, &["10"], "10 numbers are sorted\n");
}

#[test]
fn values_are_stored_in_remote_memory() {
    let program = program!("key_value");
    // The sum of the squares up to 50.
    let line = |rank| format!("rank {rank}: 50 values, sum 42925\n");
    program.prints(3, &["50"], &(0..3).map(line).collect::<String>());
}

#[test]
fn parameter_server_outlives_its_worker() {
    let program = program!("parameter_server");
    for (args, lost) in [(&["60"][..], 0), (&["60", "2"], 1)] {
        for program in program.both() {
            for path in paths() {
                let options = [&["--on-failure=continue"], &path[..]].concat();
                let out = run_job(4, &options, program, args);
                // The sum of the squares up to 59.
                let line = format!("60 steps, parameter 70210, {lost} lost\n");
                assert_eq!(out, line, "{} {options:?}", program.display());
            }
        }
    }
}

#[test]
fn survivors_continue_in_a_new_group() {
    let program = program!("survival");
    for program in program.both() {
        for path in paths() {
            let options = [&["--on-failure=continue"], &path[..]].concat();
            let out = run_job(4, &options, program, &["2"]);
            let expected = ["rank 0: sum 4", "rank 1: sum 4", "rank 3: sum 4"];
            assert_eq!(sorted(&out), expected, "{} {options:?}", program.display());
        }
    }
}

#[test]
fn event_loop_waits_for_a_pipe_and_messages() {
    let program = program!("event_loop");
    let pipe = program.shop.path().join("pipe");
    succeed(Command::new("mkfifo").arg(&pipe));
    for program in program.both() {
        let mut job = job(3, &[], program, &[pipe.to_str().unwrap()]);
        let mut job = Running(job.stdout(Stdio::piped()).spawn().unwrap());
        // Opening the pipe waits for its reader.
        let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        let mut lines = job.lines();
        for text in ["ahoy", "adieu"] {
            writeln!(writer, "{text}").unwrap();
            for _ in 0..2 {
                assert_eq!(
                    lines.next().unwrap().unwrap(),
                    text,
                    "{}",
                    program.display()
                );
            }
        }
        drop(writer);
        assert!(job.0.wait().unwrap().success());
    }
}

/// A child process, killed at the end.
struct Running(Child);

impl Running {
    fn start(program: &Path, args: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(args).env("PORTOLAN_INTERFACE", "lo");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    fn lines(&mut self) -> impl Iterator<Item = std::io::Result<String>> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an address at which nobody listens.
fn free_address() -> String {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    place.local_addr().unwrap().to_string()
}

#[test]
fn clients_find_a_restarted_server() {
    let program = program!("rpc");
    // Each language serves the other, too.
    for (server, client) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let address = free_address();
        let serve = || {
            let mut server = Running::start(program.both()[server], &["serve", &address]);
            let line = server.lines().next().unwrap().unwrap();
            assert!(line.starts_with("listening at "), "{line}");
            server
        };
        let mut calling =
            Running::start(program.both()[client], &["call", &address, "ahoy", "20000"]);
        let mut lines = calling.lines();
        for round in 0..3 {
            let server = serve();
            if round == 0 {
                assert_eq!(lines.next().unwrap().unwrap(), "AHOY");
            }
            if round == 2 {
                assert_eq!(lines.next().unwrap().unwrap(), "20000 calls returned");
                assert!(calling.0.wait().unwrap().success());
            }
            drop(server);
        }
    }
}

#[test]
fn members_of_a_chat_hear_each_other() {
    let program = program!("chat");
    for (server, clients) in [(0, [0, 1]), (1, [1, 0])] {
        let address = free_address();
        let mut serving = Running::start(program.both()[server], &["serve", &address]);
        let line = serving.lines().next().unwrap().unwrap();
        assert!(line.starts_with("listening at "), "{line}");
        let join = |index: usize, name| {
            let program = program.both()[clients[index]];
            let mut member = Running::start(program, &["join", &address, name]);
            let lines = member.lines();
            (member, lines)
        };
        let (mut ann, mut ann_hears) = join(0, "ann");
        writeln!(ann.0.stdin.as_mut().unwrap(), "is anybody here?").unwrap();
        assert_eq!(ann_hears.next().unwrap().unwrap(), "ann: is anybody here?");
        let (mut bob, mut bob_hears) = join(1, "bob");
        writeln!(bob.0.stdin.as_mut().unwrap(), "ahoy").unwrap();
        for hears in [
            &mut ann_hears as &mut dyn Iterator<Item = _>,
            &mut bob_hears,
        ] {
            assert_eq!(hears.next().unwrap().unwrap(), "bob: ahoy");
        }
        // One member is killed, and the other hears itself still.
        bob.0.kill().unwrap();
        writeln!(ann.0.stdin.as_mut().unwrap(), "bob?").unwrap();
        assert_eq!(ann_hears.next().unwrap().unwrap(), "ann: bob?");
        drop(ann.0.stdin.take());
        assert!(ann.0.wait().unwrap().success());
    }
}
