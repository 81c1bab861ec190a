// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that random programs behave as documented. Programs are drawn from a seed, the result of
//! each call is predicted, and real processes run them.
//!
//! `make test-documented` runs many of them; `SEED=S PROGRAMS=1` repeats one. A program with a
//! difference is shrunk and printed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod anybody;
mod draw;
mod job;
mod model;
mod plan;
mod play;
mod rules;
mod shrink;

use common::payload::mix;
use common::{can_make_labs, run};
use draw::{Drawn, draw};
use job::{JOB_SECONDS, SMALL_JOB_SECONDS};
use model::predict;
use plan::{Goal, How, Message, Path, Pick, Program, Step, Wanted};
use std::sync::atomic::{AtomicU64, Ordering};

ranks_of_this_module!(as_rank_args);

/// Number of programs in the ordinary tests: with fixed seeds, and with new ones.
const FIXED: u64 = 120;
const FRESH: u64 = 20;

/// Number of concurrent jobs. Processes often wait for each other, so two jobs leave half of two
/// cores unused.
const JOBS: usize = 4;

/// Largest number of programs drawn for a seed until one is sound; most are.
const DRAWS_MAX: u64 = 1_000;

/// Number of repeated runs of a program that may differ only sometimes.
const AGAIN: usize = 8;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    job::play_as_rank();
}

/// A lab of two hosts that exists while programs run.
struct Lab(Option<String>);

impl Lab {
    fn up() -> Lab {
        if !can_make_labs() {
            return Lab(None);
        }
        let name = format!("doc{}", std::process::id());
        let ended = run(&["lab", "up", "--name", &name, "--hosts", "2"]);
        assert_eq!(ended.status, 0, "{}", ended.err);
        Lab(Some(name))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            run(&["lab", "down", "--name", name]);
        }
    }
}

/// Returns the first sound program of a seed.
fn sound(seed: u64) -> Drawn {
    for turn in 0..DRAWS_MAX {
        let drawn = draw(mix(seed) ^ mix(turn + 1), &Path::ALL);
        if predict(&drawn.program).is_ok() {
            return drawn;
        }
    }
    panic!("of {DRAWS_MAX} programs of seed {seed} none is sound");
}

/// Describes the difference of a run of `program` from the prediction.
fn difference(program: &Program, lab: &Lab, seconds: u64) -> Option<String> {
    let prediction = predict(program).expect("only sound programs are run");
    job::run(program, lab.0.as_deref(), seconds).difference(program, &prediction)
}

/// Runs the program of `seed`, and reports a difference with the smallest program that shows it.
fn check(seed: u64, lab: &Lab) -> Result<(), String> {
    let drawn = sound(seed);
    let between_hosts = matches!(drawn.program.path, Path::Packet | Path::Auto);
    if between_hosts && lab.0.is_none() {
        return Ok(());
    }
    let Some(first) = difference(&drawn.program, lab, JOB_SECONDS) else {
        return Ok(());
    };
    eprintln!(
        "seed {seed} differs:\n{}{first}\nmaking it small",
        drawn.program
    );
    let mut last = None;
    let program = shrink::shrink(drawn.clone(), |program| {
        let found = (0..AGAIN).find_map(|_| difference(program, lab, SMALL_JOB_SECONDS));
        if found.is_some() {
            last.clone_from(&found);
        }
        found.is_some()
    });
    let (program, last) = match last {
        Some(last) => (program, last),
        None => (drawn.program, first.clone()),
    };
    Err(format!(
        "seed {seed}: at first\n{first}\nmade small:\n{program}{last}\n"
    ))
}

/// Runs the programs of `seeds`, and describes every difference.
fn check_all(seeds: &[u64]) -> Vec<String> {
    let lab = Lab::up();
    let next = AtomicU64::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = usize::try_from(index)
                .ok()
                .and_then(|index| seeds.get(index))
            else {
                return found;
            };
            if let Err(difference) = check(seed, &lab) {
                eprintln!("{difference}");
                found.push(difference);
            }
            if index % 500 == 499 {
                eprintln!("{} programs", index + 1);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..JOBS).map(|_| scope.spawn(work)).collect();
        let found = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        found.collect()
    })
}

#[test]
fn programs_do_what_is_documented() {
    let fresh: u64 = rand::random::<u32>().into();
    println!("new programs: seeds {fresh} to {}", fresh + FRESH - 1);
    let seeds: Vec<u64> = (1..=FIXED).chain(fresh..fresh + FRESH).collect();
    let found = check_all(&seeds);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Runs `DOCUMENTED_PROGRAMS` seeds, starting with `DOCUMENTED_SEED`.
#[test]
#[ignore = "takes long: make test-documented"]
fn many_programs_do_what_is_documented() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("DOCUMENTED_SEED").unwrap_or_else(|| rand::random::<u32>().into());
    let count = number("DOCUMENTED_PROGRAMS").unwrap_or(10_000);
    eprintln!("seeds {first} to {}", first + count - 1);
    let seeds: Vec<u64> = (first..first + count).collect();
    let found = check_all(&seeds);
    assert!(
        found.is_empty(),
        "{} of {count} programs differ",
        found.len()
    );
}

/// Returns a program with two messages for a receive from any source, and one for an exact
/// prediction.
fn canary(ids: [u32; 3]) -> Program {
    let [first, second, third] = ids.map(|id| Message { id, len: 20 });
    let send = |message, port| Step::send(Goal::port(1, port, false), message, How::Plain);
    let from_any = Step::recv(Wanted::from_anybody(Pick::Port(1)), 20);
    Program {
        path: Path::Shm,
        processes: vec![
            vec![send(first, 1), send(second, 1), send(third, 2), Step::Close],
            vec![
                Step::Open(1),
                Step::Open(2),
                from_any.clone(),
                from_any,
                Step::recv(Wanted::from_port(0, 2), 20),
                Step::Close,
            ],
        ],
    }
}

/// Guards against a check that never fails.
#[test]
fn deviation_from_the_prediction_is_reported() {
    let program = canary([1, 2, 3]);
    let run = job::run(&program, None, JOB_SECONDS);
    let reported = |as_if: &Program| run.difference(as_if, &predict(as_if).unwrap());
    assert_eq!(reported(&program), None);
    let exchanged = reported(&canary([2, 1, 3])).unwrap();
    assert!(
        exchanged.contains("no next message of anybody"),
        "{exchanged}"
    );
    let altered = reported(&canary([1, 2, 4])).unwrap();
    assert!(altered.contains("rank 1, step 4"), "{altered}");
    let mut longer = canary([1, 2, 3]);
    longer.processes[1].insert(5, Step::Flush);
    let missing = reported(&longer).unwrap();
    assert!(missing.contains("did not come past step 6"), "{missing}");
    let mut killed = canary([1, 2, 3]);
    *killed.processes[1].last_mut().unwrap() = Step::Kill;
    let alive = reported(&killed).unwrap();
    assert!(alive.contains("should end with status 137"), "{alive}");
}

/// Checks that most drawn programs are sound, and that every kind of step is drawn.
#[test]
fn programs_have_every_step() {
    let mut drawn = String::new();
    for seed in 0..400 {
        drawn += &sound(seed).program.to_string();
    }
    for step in plan::STEPS {
        assert!(drawn.contains(step), "{step} is never drawn");
    }
}
