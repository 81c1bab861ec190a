// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan-sim`: runs seeds of the simulation and prints commands that reproduce its findings.

use clap::{Parser, Subcommand};
use portolan_sim::{
    Canary, CompareRow, Cuts, EngineCanary, EngineOptions, EnginePlan, Failure, FragmentsRow,
    Options, Report, ScaleRow, all_to_all, collective, compare, fragments_table, in_fragments,
    incast, liveness, named, rolling_failure, shrink, simulate, simulate_engine,
};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Simulates whole clusters over the real protocol core, from a seed.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    replay: Replay,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many seeds; shrink each failure, and print a command that reproduces it.
    Swarm(Swarm),
    /// Simulate the detection of dead processes, while processes and agents stall for up to 5 s.
    Liveness(LivenessArgs),
    /// Simulate the whole engine: endpoints, and ranks of a job, with faults and deaths.
    Engine(EngineArgs),
    /// Print figures of thousands of processes on one switch, beside the ideal, as a table.
    Scale(ScaleArgs),
    /// Print the throughput of lone messages and streams in whole and in short frames, as a table.
    Fragments,
}

#[derive(Debug, clap::Args)]
struct ScaleArgs {
    /// Number of processes (2 to 8192).
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(2..=8192))]
    nodes: u32,
    /// Number of endpoints that all send to all; each pair takes memory.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..=1024))]
    all: u32,
    /// Number of senders to one endpoint.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4096))]
    senders: u32,
    /// Print instead the comparison with congestion controls like DCTCP and Swift.
    #[arg(long)]
    compare: bool,
}

#[derive(Debug, clap::Args)]
struct EngineArgs {
    /// First seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of seeds to run, counted upwards from the first.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Number of failures after which it stops.
    #[arg(long, default_value_t = 3)]
    failures: u64,
    /// Add a deliberate fault to the engine, which the checkers must find; only in builds with debug
    /// assertions.
    #[arg(long, value_parser = |name: &str| named(&EngineCanary::NAMES, name))]
    canary: Option<EngineCanary>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
}

#[derive(Debug, clap::Args)]
struct LivenessArgs {
    /// First seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of seeds to run, counted upwards from the first.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
}

/// Parameters of a run in addition to its seed.
#[derive(Clone, Debug, clap::Args)]
struct Kind {
    /// Number of processes (2 to 256) instead of the drawn one.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=256))]
    nodes: Option<u32>,
    /// Milliseconds of virtual time in which the programs create work, instead of the drawn time.
    #[arg(long, value_name = "MS")]
    duration: Option<u64>,
    /// Let flipped bits in headers through; then only survival is checked.
    #[arg(long)]
    header_corruption: bool,
    /// Add a deliberate bug, which the checkers must find.
    #[arg(long, value_parser = |name: &str| named(&Canary::NAMES, name))]
    canary: Option<Canary>,
}

/// One or a few runs.
#[derive(Debug, clap::Args)]
struct Replay {
    /// First seed; drawn from the clock if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds to run, counted upwards from the first.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Threads to run seeds on.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Write sent frames to this file, for Wireshark; with one seed only.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Parts of the plan to leave out, as printed by `swarm`.
    #[arg(long, value_name = "PARTS", default_value = "")]
    without: Cuts,
    #[command(flatten)]
    kind: Kind,
}

#[derive(Debug, clap::Args)]
struct Swarm {
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds to run, counted upwards from the first.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Threads to run seeds on; one per core if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Number of failures after which the swarm stops.
    #[arg(long, default_value_t = 3)]
    failures: u64,
    /// Maximum number of runs for shrinking a failure; 0 disables shrinking.
    #[arg(long, default_value_t = 200)]
    shrink: u32,
    #[command(flatten)]
    kind: Kind,
}

/// Parameters shared by a swarm and a run of a few seeds.
struct Work {
    kind: Kind,
    first: u64,
    seeds: u64,
    jobs: usize,
    failures_max: u64,
    shrink_max: u32,
    without: Cuts,
    trace: bool,
    pcap: Option<PathBuf>,
}

impl Work {
    fn new(args: Args) -> Work {
        match args.command {
            Some(Command::Swarm(swarm)) => Work {
                kind: swarm.kind,
                first: swarm.seed,
                seeds: swarm.seeds,
                jobs: swarm.jobs.unwrap_or_else(cores),
                failures_max: swarm.failures.max(1),
                shrink_max: swarm.shrink,
                without: Cuts::default(),
                trace: false,
                pcap: None,
            },
            Some(
                Command::Liveness(_) | Command::Engine(_) | Command::Scale(_) | Command::Fragments,
            )
            | None => Work {
                kind: args.replay.kind,
                first: args.replay.seed.unwrap_or_else(seed_of_the_clock),
                seeds: args.replay.seeds,
                jobs: args.replay.jobs,
                failures_max: u64::MAX,
                shrink_max: 0,
                without: args.replay.without,
                trace: args.replay.trace,
                pcap: args.replay.pcap.filter(|_| args.replay.seeds == 1),
            },
        }
    }

    fn options(&self, seed: u64) -> Options {
        Options {
            seed,
            nodes: self.kind.nodes,
            duration: self.kind.duration.map(Duration::from_millis),
            trace: self.trace,
            header_corruption: self.kind.header_corruption,
            canary: self.kind.canary,
            without: self.without.clone(),
            pcap: self.pcap.clone(),
        }
    }
}

#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    frames: u64,
    bytes: u64,
    stream_bytes: u64,
    messages: u64,
    failed: u64,
    retransmits: u64,
    virtual_time: Duration,
    /// Number of runs with a violation.
    broken: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.frames += report.frame_count;
        self.bytes += report.byte_count;
        self.stream_bytes += report.stream_byte_count;
        self.messages += report.message_count;
        self.failed += report.failed_count;
        self.retransmits += report.retransmit_count;
        self.virtual_time += report.virtual_time;
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::Liveness(args)) = &args.command {
        return simulate_liveness(args);
    }
    if let Some(Command::Engine(args)) = &args.command {
        return simulate_engines(args);
    }
    if let Some(Command::Scale(args)) = &args.command {
        print_scale(args);
        return ExitCode::SUCCESS;
    }
    if let Some(Command::Fragments) = &args.command {
        print_fragments();
        return ExitCode::SUCCESS;
    }
    let work = Work::new(args);
    println!("seed {}", work.first);
    let began = Instant::now();
    let totals = run(&work);
    println!(
        "{} runs: {} frames ({} MB, {} sent again), {} MB by streams, {} messages, {} operations failed for a reason, \
         {:.1} virtual seconds in {:.1} s; {} runs broke a promise",
        totals.runs + totals.broken,
        totals.frames,
        totals.bytes / 1_000_000,
        totals.retransmits,
        totals.stream_bytes / 1_000_000,
        totals.messages,
        totals.failed,
        totals.virtual_time.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        totals.broken
    );
    if totals.broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn simulate_liveness(args: &LivenessArgs) -> ExitCode {
    let seeds = args.seed..args.seed.saturating_add(args.seeds);
    let failures: Vec<String> = seeds
        .filter_map(|seed| liveness::run(seed, None).err())
        .collect();
    for failure in &failures {
        println!("{failure}");
    }
    let broken = failures.len();
    println!("{} runs; {broken} broke a promise", args.seeds);
    match broken {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn print_scale(args: &ScaleArgs) {
    let ScaleArgs {
        nodes,
        all,
        senders,
        compare: compares,
    } = *args;
    if compares {
        println!("{}", CompareRow::header());
        return compare(senders, |row| println!("{row}"));
    }
    println!("{}", ScaleRow::header());
    println!("{}", all_to_all(all, all - 1));
    println!("{}", all_to_all(nodes, 32));
    println!("{}", incast(senders, false));
    println!("{}", incast(senders, true));
    println!("{}", collective(nodes, true));
    println!("{}", collective(nodes, false));
    println!("{}", rolling_failure(nodes));
}

fn print_fragments() {
    println!("model: fragments={}", fragments_table());
    println!("{}", FragmentsRow::header());
    for row in in_fragments() {
        println!("{row}");
    }
}

fn simulate_engines(args: &EngineArgs) -> ExitCode {
    if args.canary.is_some() && !cfg!(debug_assertions) {
        eprintln!(
            "--canary needs a build with debug assertions: cargo run -p portolan-sim -- engine --canary NAME"
        );
        return ExitCode::FAILURE;
    }
    let began = Instant::now();
    let (mut runs, mut broken, mut frames, mut done, mut failed) = (0, 0, 0, 0, 0);
    let mut virtual_time = Duration::ZERO;
    let mut process_time = Duration::ZERO;
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        if broken == args.failures {
            break;
        }
        let options = EngineOptions {
            seed,
            canary: args.canary,
            trace: args.trace,
        };
        runs += 1;
        match simulate_engine(&options) {
            Ok(report) => {
                frames += report.frame_count;
                done += report.done_count;
                failed += report.failed_count;
                virtual_time += report.virtual_time;
                process_time += report.virtual_time * report.processes;
                if args.seeds == 1 {
                    println!("{}\n{report:?}", EnginePlan::draw(seed));
                }
            }
            Err(failure) => {
                broken += 1;
                println!("{failure}");
            }
        }
    }
    println!(
        "{runs} runs: {frames} frames, {done} operations, {failed} failed for a reason, {:.0} virtual \
         seconds, {:.2} process hours in {:.1} s; {broken} runs broke a promise",
        virtual_time.as_secs_f64(),
        process_time.as_secs_f64() / 3600.0,
        began.elapsed().as_secs_f64(),
    );
    match broken {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs all seeds and returns the totals.
fn run(work: &Work) -> Totals {
    let next = AtomicU64::new(0);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..work.jobs.max(1) {
            scope.spawn(|| run_some(work, &next, &totals));
        }
    });
    totals.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one thread's share: takes seeds until there are none, or enough have failed.
fn run_some(work: &Work, next: &AtomicU64, totals: &Mutex<Totals>) {
    let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= work.seeds || lock().broken >= work.failures_max {
            return;
        }
        let options = work.options(work.first.wrapping_add(index));
        match simulate(&options) {
            Ok(report) => {
                lock().add(&report);
                if work.seeds == 1 {
                    println!("{}\ntrace {:016x}", options.plan(), report.trace_hash);
                }
            }
            Err(failure) => {
                lock().broken += 1;
                complain(&options, failure, work.shrink_max);
            }
        }
    }
}

fn complain(options: &Options, failure: Box<Failure>, shrink_max: u32) {
    if shrink_max == 0 {
        println!("{}\n{failure}", options.plan());
        println!("reproduce: {}", options.command());
        return;
    }
    let first = failure.violation.clone();
    let small = shrink(options, failure, shrink_max);
    println!("{}\n{}", small.options.plan(), small.failure);
    println!(
        "seed {}, before it was made small in {} runs: {first}",
        options.seed, small.run_count
    );
    println!("reproduce: {}", small.options.command());
    println!("  with --trace for every event, --pcap FILE for every frame");
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seed_of_the_clock() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "any number will do")]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // At most nine digits: short enough to be typed again.
    since.map_or(1, |since| u64::from(since.subsec_nanos()))
}
