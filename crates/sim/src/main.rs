// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan-sim`: runs seeds of the simulation and says how to reproduce what it finds.

use clap::Parser;
use portolan_sim::{Canary, Failure, Options, Report, simulate};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Simulates whole clusters over the real protocol core, from a seed.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// First seed; drawn from the clock if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds to run, counted upwards from the first.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Number of processes (2 to 256) instead of the drawn one.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=256))]
    nodes: Option<u32>,
    /// Milliseconds of virtual time in which the programs make work, instead of the drawn time.
    #[arg(long, value_name = "MS")]
    duration: Option<u64>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Threads to run seeds on.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Let flipped bits in headers through; then only survival is checked.
    #[arg(long)]
    header_corruption: bool,
    /// Put a deliberate bug in, which the checkers must find.
    #[arg(long)]
    canary: Option<Canary>,
}

impl Args {
    fn options(&self, seed: u64) -> Options {
        Options {
            seed,
            nodes: self.nodes,
            duration: self.duration.map(Duration::from_millis),
            trace: self.trace,
            header_corruption: self.header_corruption,
            canary: self.canary,
        }
    }

    /// The command that runs one seed again.
    fn command(&self, seed: u64) -> String {
        let mut command = format!("portolan-sim --seed {seed}");
        if let Some(nodes) = self.nodes {
            command += &format!(" --nodes {nodes}");
        }
        if let Some(duration) = self.duration {
            command += &format!(" --duration {duration}");
        }
        if self.header_corruption {
            command += " --header-corruption";
        }
        if let Some(canary) = self.canary {
            command += &format!(" --canary {canary}");
        }
        command
    }
}

#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    frames: u64,
    bytes: u64,
    messages: u64,
    failed: u64,
    retransmits: u64,
    virtual_time: Duration,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.frames += report.frame_count;
        self.bytes += report.byte_count;
        self.messages += report.message_count;
        self.failed += report.failed_count;
        self.retransmits += report.retransmit_count;
        self.virtual_time += report.virtual_time;
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let first = args.seed.unwrap_or_else(seed_of_the_clock);
    println!("seed {first}");
    let began = Instant::now();
    let (totals, failures) = run(&args, first);
    println!(
        "{} runs: {} frames ({} MB, {} sent again), {} messages, {} operations failed for a reason, \
         {:.1} virtual seconds in {:.1} s",
        totals.runs,
        totals.frames,
        totals.bytes / 1_000_000,
        totals.retransmits,
        totals.messages,
        totals.failed,
        totals.virtual_time.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs all seeds and returns what they came to, with the number of failures.
fn run(args: &Args, first: u64) -> (Totals, u64) {
    let next = AtomicU64::new(0);
    let outcome = Mutex::new((Totals::default(), 0));
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= args.seeds {
                        return;
                    }
                    let seed = first.wrapping_add(index);
                    let result = simulate(&args.options(seed));
                    let Ok(mut outcome) = outcome.lock() else {
                        return;
                    };
                    match result {
                        Ok(report) => {
                            outcome.0.add(&report);
                            if args.seeds == 1 {
                                show(args, &report);
                            }
                        }
                        Err(failure) => {
                            outcome.1 += 1;
                            complain(args, &failure);
                        }
                    }
                }
            });
        }
    });
    outcome
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn show(args: &Args, report: &Report) {
    println!("{}", args.options(report.seed).plan());
    println!("trace {:016x}", report.trace_hash);
}

fn complain(args: &Args, failure: &Failure) {
    println!("{}", args.options(failure.seed).plan());
    println!("{failure}");
    println!("reproduce: {}", args.command(failure.seed));
}

fn seed_of_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Nine digits at most: short enough to be typed again.
    since.map_or(1, |since| u64::from(since.subsec_nanos()))
}
