// SPDX-License-Identifier: MIT OR Apache-2.0
//! Benchmarks of Portolan beside the machine's limits and the kernel's protocols: `portolan bench`.
//!
//! Absolute figures vary with the state of the machine; ratios are reliable. Rows to be compared
//! are therefore measured in pass, round after round (`rounds`), with the same sizes, windows and
//! clock. Both ends of every row are separate processes, started anew in each round: bare rows by
//! `worker`, Portolan's by the [`Launcher`]. A new metric needs a variant of [`Metric`], its
//! programs in `rows`, and a line in `plan`.
//!
//! The command handles labs, jobs, files and exit statuses and provides them through [`Launcher`].

mod args;
mod bidir;
mod compare;
mod competitor;
mod conditions;
mod congestion;
mod control;
mod costs;
mod cpu;
mod end;
mod environment;
mod extra;
mod half_power;
mod history;
mod incast;
mod interface;
mod interfere;
mod launcher;
mod loaded;
mod logp;
mod logp_table;
mod loss;
mod machine;
mod measure;
mod mpi;
mod pattern;
mod percentiles;
mod place;
mod plan;
mod portolan_account;
mod portolan_rows;
mod progress;
mod relative;
mod remote;
mod resume;
mod rounds;
mod rows;
mod schema;
mod socket;
mod spec;
mod spin_wait;
mod sys;
mod table;
mod verdict;
mod worker;

pub use args::{Action, ArgsError, BenchArgs, Metric, Path, parse_seconds};
pub use compare::changes;
pub use conditions::{BROKER, Conditions};
pub use cpu::Cpu;
pub use environment::Environment;
pub use extra::{Extra, Latency};
pub use half_power::{HalfPower, throughput};
pub use history::history_line;
pub use launcher::{Job, LabOrder, Launcher};
pub use logp::{LogP, LongGap};
pub use loss::loss_program;
pub use mpi::{Carrier, Mpi, MpiJob};
pub use percentiles::Tail;
pub use place::{Place, Site, SiteKind, pick_cores, pin, run_on, usable_cores};
pub use remote::{Hosting, RemoteArgs, RemoteError, ServedRank, ServerHost, TOKEN_VARIABLE, serve};
pub use resume::ResumeError;
pub use rounds::median;
pub use schema::{Machine, Report, Row};
pub use table::render;
pub use verdict::{Versus, apart, compare, quartiles};
pub use worker::{GRACE, WorkerArgs, work};

use anyhow::{Context, Result};
use competitor::Programs;
use environment::Stolen;
use loss::Loss;
use measure::{Pace, Sample};
use nix::sys::memfd::{MFdFlags, memfd_create};
use percentiles::Logs;
use plan::Measurement;
use progress::Progress;
use remote::Remote;
use schema::SCHEMA;
use spec::{Burst, Program, Role, Spec};
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Note in the report of an interrupted run.
const INTERRUPTED: &str = "interrupted: results so far; to measure the rest, repeat the command with \
                           --resume FILE, the JSON of this run";

/// Result of a run.
pub struct Outcome {
    /// Measured figures.
    pub report: Report,
    /// Set if all rows of Portolan itself were measured.
    pub complete: bool,
}

/// Reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The earlier report does not match this run.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// No server to measure with.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// No lab with the requested link properties.
    #[error("--link: no lab can be created: {0}")]
    Link(String),
}

/// Measures the rows that `args` request and `earlier` does not contain. Rows that cannot be
/// measured become notes of the report.
///
/// # Errors
/// The figures of `earlier` are from another machine or another configuration, or the server cannot
/// be reached.
pub fn run(
    args: &BenchArgs,
    launcher: &dyn Launcher,
    earlier: Option<&Report>,
) -> Result<Outcome, RunError> {
    let mut notes = Vec::new();
    let remote = Remote::open(&args.remote)?;
    let site = match &remote {
        Some(remote) => remote.site()?,
        None => choose_site(args, launcher, 2, &mut notes)?,
    };
    let incast_site = args
        .metrics
        .contains(&Metric::Incast)
        .then(|| choose_site(args, launcher, args.senders + 1, &mut notes))
        .transpose()?;
    let mut report = Report {
        schema: SCHEMA,
        machine: machine::describe(
            &site,
            args.repeat,
            remote.as_ref().map(|remote| &remote.host),
        ),
        results: vec![],
        slower_variants: vec![],
        half_power: vec![],
        long_gaps: vec![],
        notes,
    };
    if let Some(earlier) = earlier {
        resume::check(&earlier.machine, &report.machine)?;
    }
    let stolen = Stolen::now();
    let bench = Bench {
        args,
        launcher,
        remote,
        site,
        incast_site,
        logs: RefCell::new(Logs::new(args.hdr.clone())),
        competitors: RefCell::default(),
    };
    let complete = bench.measure_all(&mut report, earlier);
    if let Err(error) = bench.logs.borrow().write() {
        report.notes.push(format!("--hdr: {error:#}"));
    }
    report.machine.environment.steal_percent = stolen
        .zip(Stolen::now())
        .and_then(|(before, now)| before.percent_until(now));
    report.half_power = half_power::of(&report.results);
    report.long_gaps = logp::long_gaps(&report.results);
    Ok(Outcome { report, complete })
}

/// Returns a lab if a network path is requested and a lab can be created, otherwise this host. This
/// host has no link with properties that could be set.
fn choose_site(
    args: &BenchArgs,
    launcher: &dyn Launcher,
    count: u32,
    notes: &mut Vec<String>,
) -> Result<Site, RunError> {
    let network = args.paths().iter().any(|path| *path != Path::Shm);
    if network && !args.loopback {
        let order = LabOrder {
            mtu: args.mtu,
            count,
            link: args.link.as_deref(),
        };
        match launcher.open_lab(&order) {
            Ok(site) => return Ok(site),
            Err(error) if args.link.is_some() => return Err(RunError::Link(format!("{error:#}"))),
            Err(error) => notes.push(format!("network paths use loopback: no lab: {error:#}")),
        }
    }
    Ok(Site::loopback(args.mtu as usize, count))
}

struct Bench<'a> {
    args: &'a BenchArgs,
    launcher: &'a dyn Launcher,
    /// Server that runs the answering ends, if they are on another host.
    remote: Option<Remote>,
    site: Site,
    /// Hosts of an incast.
    incast_site: Option<Site>,
    logs: RefCell<Logs>,
    competitors: RefCell<Programs>,
}

impl Bench<'_> {
    /// Measures everything. Returns true if all of Portolan's own rows were measured.
    fn measure_all(&self, report: &mut Report, earlier: Option<&Report>) -> bool {
        let metrics = self.args.metrics.iter();
        let work: Vec<_> = metrics
            .flat_map(|metric| {
                let sizes = self.args.sizes_for(*metric).into_iter();
                sizes.map(|size| {
                    (
                        *metric,
                        size,
                        plan::rows(self.args, *metric, size, self.site.mtu),
                    )
                })
            })
            .collect();
        let known = |(metric, size, rows): &(Metric, usize, Vec<plan::PlannedRow>)| {
            earlier.and_then(|earlier| resume::rows(earlier, (*metric, *size), rows))
        };
        let missing = work.iter().filter(|work| known(work).is_none());
        let counts = missing.map(|(.., rows)| plan::measurements(rows).len());
        let mut progress = Progress::new(counts.sum::<usize>() * self.args.repeat as usize);
        let mut complete = true;
        for work in &work {
            if let Some((rows, slower)) = known(work) {
                report.results.extend(rows);
                report.slower_variants.extend(slower);
            } else if !self.launcher.interrupted() {
                let (metric, size, rows) = work;
                complete &= self.add(report, (*metric, *size), rows, &mut progress);
            }
        }
        if self.launcher.interrupted() {
            report.notes.push(INTERRUPTED.into());
        }
        complete && !self.launcher.interrupted()
    }

    /// Measures one size. Returns true if all of Portolan's own rows were measured.
    fn add(
        &self,
        report: &mut Report,
        (metric, size): (Metric, usize),
        planned: &[plan::PlannedRow],
        progress: &mut Progress,
    ) -> bool {
        let stopped = || self.launcher.interrupted();
        let repeat = self.args.repeat;
        let outcome = rounds::run(planned, (metric, size), repeat, stopped, |measurement| {
            let name = measurement.name();
            progress.begin(&format!("{metric}, {size} bytes, {name}"));
            let sample = self.measure(measurement, size)?;
            let mut logs = self.logs.borrow_mut();
            logs.add((metric, size), &name, &sample);
            Ok(sample)
        });
        report.results.extend(relative::related(outcome.rows));
        report.slower_variants.extend(outcome.slower);
        let mut complete = true;
        for (measurement, why) in outcome.failures {
            let program = measurement.program;
            complete &= program.job().is_none();
            let reason = format!(", {}: {why}", measurement.name());
            // A row that is missing for every metric and size is reported once.
            if !report.notes.iter().any(|note| note.ends_with(&reason)) {
                report.notes.push(format!("{metric}, {size} bytes{reason}"));
            }
        }
        complete
    }

    fn measure(&self, measurement: &Measurement, size: usize) -> Result<Sample> {
        let mut spec = self.spec(measurement, size);
        if let Some((_, path)) = measurement.program.job() {
            let places = self.places(measurement, path);
            let by = (self.launcher, self.remote.as_ref());
            return portolan_rows::run(&mut spec, path, &places, by);
        }
        if let Program::Mpi(mpi, carrier, metric, path) = measurement.program {
            let places = self.site.hosts_for(path);
            let row = (metric, path);
            return mpi::run((mpi, carrier), row, &spec, &places, self.launcher);
        }
        if let Program::Competitor(competitor, ..) = measurement.program {
            spec.program_file = Some(self.competitors.borrow_mut().file(competitor)?);
        }
        let _loss = self.apply_loss(measurement)?;
        // Kept open until both ends have finished. The memory has no name that could be left
        // behind.
        let _shared = share(&mut spec)?;
        worker::run_bare(&spec, self.remote.as_ref())
    }

    /// Returns the hosts of a Portolan row's ranks.
    fn places(&self, measurement: &Measurement, path: Path) -> Vec<Place> {
        let Some((metric, _)) = measurement.program.job() else {
            return Vec::new();
        };
        let site = match &self.incast_site {
            Some(incast_site) if metric == Metric::Incast => incast_site,
            _ => &self.site,
        };
        let mut places = site.hosts_for(path);
        if measurement.conditions.interfere > 0 {
            // On the sender's host.
            places.push(places[0].clone());
        }
        places
    }

    /// Applies packet loss to the lab for a bare row, if its conditions require loss.
    fn apply_loss(&self, measurement: &Measurement) -> Result<Option<Loss>> {
        match measurement.conditions.loss_ppm {
            0 => Ok(None),
            ppm => {
                let offload = measurement.program != Program::TcpGoodput(Burst::Segments);
                Loss::apply(&self.site.hosts, ppm, offload).map(Some)
            }
        }
    }

    fn spec(&self, measurement: &Measurement, size: usize) -> Spec {
        let hosts = if measurement.between_hosts {
            [self.site.hosts[0].clone(), self.site.hosts[1].clone()]
        } else {
            [Place::loopback(), Place::loopback()]
        };
        let pace = match self.args.iterations {
            Some(count) => Pace::Iterations(count),
            None => Pace::Seconds(self.args.seconds / f64::from(self.args.repeat)),
        };
        Spec {
            program: measurement.program,
            conditions: measurement.conditions,
            congestion: measurement.congestion,
            calls: self.args.calls,
            role: Role::Driver,
            // A TCP stream has no messages of 0 bytes, and the bare rows need a byte to mark the
            // end.
            size: match measurement.program {
                Program::Portolan(..) => size,
                _ => size.max(1),
            },
            pace,
            mtu: self.site.mtu,
            cores: place::pick_cores(),
            hosts,
            senders: self.args.senders,
            program_file: None,
            shared: None,
            result: None,
        }
    }
}

/// Creates the memory that the ends of a row share, if any. They open it through this process.
fn share(spec: &mut Spec) -> Result<Option<File>> {
    let len = match spec.program {
        Program::ShmPingpong(_) => rows::shm_pingpong::shared_len(spec.size),
        Program::ShmStream(_) => rows::shm_stream::SHARED_LEN,
        Program::ShmRate(_) => rows::shm_rate::SHARED_LEN,
        _ => return Ok(None),
    };
    let file: File = memfd_create(c"portolan-bench", MFdFlags::MFD_CLOEXEC)
        .context("cannot create shared memory")?
        .into();
    file.set_len(len as u64)
        .context("cannot create shared memory")?;
    let (pid, fd) = (std::process::id(), file.as_raw_fd());
    spec.shared = Some(PathBuf::from(format!("/proc/{pid}/fd/{fd}")));
    Ok(Some(file))
}

#[cfg(test)]
mod tests;
